#include "cli/tool_commands.h"

#include "cli/model_rates.h"
#include "cli/param_groups.h"
#include "cli/replay.h"
#include "cli/residency_params.h"

namespace moetier::cli {
namespace {

using T = ParamType;

Param json_flag() {
  return {.name = "json", .type = T::flag, .help = "Prints JSON."};
}

}  // namespace

Command trace_show_command() {
  return {.name = "trace show",
          .summary = "Tell what a routing trace says",
          .description =
              "Prints how skewed the picks of a trace are, how much a token's picks overlap with earlier tokens', how "
              "long ago picked entries were picked before, and how fast distinct experts add up.",
          .positionals = {{.name = "TRACE", .help = "The trace, CSV or binary.", .param = "trace"}},
          .params = join({{{.name = "trace", .type = T::path, .value = "FILE", .help = "The trace, CSV or binary."},
                           {.name = "phase",
                            .type = T::choice,
                            .value = "NAME",
                            .fallback = "all",
                            .help = "Which tokens to look at.",
                            .choices = {"all", "prompt", "decoded"}},
                           {.name = "prompt-tokens",
                            .type = T::integer,
                            .value = "N",
                            .fallback = "0",
                            .help = "How many of a binary trace's tokens are its prompt; the file does not tell.",
                            .min = 0,
                            .max = 1e12},
                           {.name = "layers", .type = T::flag, .help = "Also prints a line for each layer."},
                           {.name = "svg", .type = T::path, .value = "FILE", .help = "Also draws it all (SVG)."},
                           json_flag()},
                          log_params()}),
          .examples = {"moetier trace show qwen.route.csv --svg qwen.svg", "moetier trace show T.bin --layers"},
          .run = run_trace_show};
}

Command plan_command() {
  ParamList own = {
      {.name = "shards",
       .type = T::path,
       .value = "FILE",
       .help = "Further shards of the same model; they are found by themselves, so this only checks that they are its.",
       .repeated = true},
      {.name = "ram-gib",
       .type = T::real,
       .value = "G",
       .help = "Memory that the process may use, in GiB; left out, what is there now.",
       .min = 0,
       .max = 1e6},
      {.name = "vram-gib",
       .type = T::real,
       .value = "G",
       .help = "Memory of a device, in GiB: dense weights go there first if they fit, then the hottest entries.",
       .min = 0,
       .max = 1e6},
      {.name = "reserve-gib",
       .type = T::real,
       .value = "G",
       .fallback = "2",
       .help = "Of --vram-gib, so much is left for the KV cache and buffers.",
       .min = 0,
       .max = 1e6},
      {.name = "cache-mb",
       .aliases = {"--cache-mib"},
       .type = T::integer,
       .value = "N",
       .help = "Size of the expert cache in memory, in MiB; left out, as a run would size it.",
       .min = 0,
       .max = 16777216},
      {.name = "whole-layers",
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help = "The entries of the last N layers go to the device whole, before any others.",
       .min = 0,
       .max = 65536},
      {.name = "trace",
       .type = T::path,
       .value = "FILE",
       .help = "Ranks entries by the picks of routing traces, and measures hit rates on them: of the host by the "
               "engine's default policy, of the device by ranking on the first half and measuring on the second.",
       .repeated = true,
       .many = true},
      {.name = "out", .aliases = {"-o"}, .type = T::path, .value = "FILE", .help = "Also writes the order (STRP)."},
      json_flag()};
  return {.name = "plan",
          .summary = "Tell what will fit where, and how fast it will be",
          .description =
              "Tells which dense weights and entries of a model go to which tier (device, memory, file), what share of "
              "the picks each tier will serve, and the time of a token from rates measured on this machine.",
          .positionals = {{.name = "MODEL", .help = "The model; of a split set, any shard.", .param = "model"},
                          {.name = "SHARDS", .help = "Further shards of it.", .param = "shards", .required = false}},
          .params = join({model_params(), own, rate_params("true"), compute_params(), log_params()}),
          .examples = {"moetier plan MODEL --ram-gib 8", "moetier plan MODEL --trace T.bin --cache-mib 4000",
                       "moetier plan MODEL --vram-gib 12 --trace T.bin --out P.strp"},
          .run = run_plan};
}

Command predict_command() {
  return {.name = "predict",
          .summary = "Tell how well experts can be known ahead",
          .description =
              "Runs a text and tells what share of a layer's picks could have been named before its attention: by what "
              "the last tokens picked, by popularity, by what is picked beside the layer before's picks, and by the "
              "layer's own router on the state of the layer before. Each guess knows only what came before it.",
          .positionals =
              {{.name = "MODEL", .help = "The model.", .param = "model", .required = false},
               {.name = "TEXT", .help = "The text; - is standard input.", .param = "file", .required = false},
               {.name = "N_TOKENS", .help = "Tokens at most; 1024 unless told.", .param = "n", .required = false},
               {.name = "N_THREADS", .help = "Threads.", .param = "threads", .required = false}},
          .params = join({model_params(),
                          {{.name = "file",
                            .aliases = {"-f"},
                            .type = T::path,
                            .value = "FILE",
                            .help = "The text; - is standard input."},
                           {.name = "n",
                            .aliases = {"-n"},
                            .type = T::integer,
                            .value = "N",
                            .fallback = "1024",
                            .help = "Tokens at most.",
                            .min = 2,
                            .max = 1048576},
                           {.name = "dump",
                            .type = T::path,
                            .value = "FILE",
                            .help = "Also keeps what was recorded (docs/formats.md), for --from."},
                           {.name = "from",
                            .type = T::path,
                            .value = "FILE",
                            .help = "Analyses a recording instead of running a text."},
                           json_flag()},
                          compute_params(),
                          residency_params(),
                          log_params()}),
          .examples = {"moetier predict MODEL corpus.txt 2048", "moetier predict MODEL corpus.txt --dump guesses.bin",
                       "moetier predict --from guesses.bin --json"},
          .run = run_predict};
}

Command bench_grid_command() {
  ParamList own = {
      {.name = "file",
       .aliases = {"-f"},
       .type = T::path,
       .value = "FILE",
       .help = "Continues this text; left out, a fixed walk over the vocabulary is measured, as bench does."},
      {.name = "modes",
       .aliases = {"--experts"},
       .type = T::text,
       .value = "MODE[,MODE...]",
       .fallback = "stream",
       .help = "How experts are kept: resident, mmap, advise, noop, stream, auto.",
       .repeated = true},
      {.name = "cache-mib",
       .aliases = {"--cache-mb"},
       .type = T::text,
       .value = "N[,N...]",
       .help = "Sizes of the expert cache in MiB, for stream; separated by commas or spaces.",
       .repeated = true,
       .many = true},
      {.name = "policies",
       .aliases = {"--policy", "--cache-policy"},
       .type = T::text,
       .value = "NAME[,NAME...]",
       .fallback = "default",
       .help = "Policies of the cache, for stream.",
       .repeated = true},
      {.name = "profile",
       .aliases = {"--moe-cache-profile"},
       .type = T::path,
       .value = "FILE",
       .help = "Fills the cache first from this profile (STRP)."},
      {.name = "threads",
       .aliases = {"-t"},
       .type = T::text,
       .value = "N[,N...]",
       .help = "Numbers of threads; left out, what a run takes by itself.",
       .repeated = true,
       .many = true},
      {.name = "n",
       .aliases = {"-n", "--n-gen"},
       .type = T::integer,
       .value = "N",
       .fallback = "128",
       .help = "Tokens to decode.",
       .min = 1,
       .max = 1048576},
      {.name = "prompt-tokens",
       .aliases = {"-p", "--n-prompt"},
       .type = T::integer,
       .value = "P",
       .fallback = "512",
       .help = "Tokens of the prompt, where there is no text; 0 leaves it out.",
       .min = 0,
       .max = 1048576},
      {.name = "runs",
       .aliases = {"-r", "--repeat"},
       .type = T::integer,
       .value = "R",
       .fallback = "2",
       .help = "Runs of every combination, in turns: all once, then all again.",
       .min = 1,
       .max = 1000},
      {.name = "ctx",
       .aliases = {"-c", "--ctx-size"},
       .type = T::integer,
       .value = "N",
       .help = "Positions a sequence can hold.",
       .min = 0,
       .max = 16777216},
      {.name = "csv", .type = T::path, .value = "FILE", .help = "Also writes every run (CSV)."},
      {.name = "md", .type = T::path, .value = "FILE", .help = "Also writes the table (Markdown)."},
      {.name = "svg", .type = T::path, .value = "FILE", .help = "Also draws the curves (SVG)."},
      {.name = "out",
       .aliases = {"-o"},
       .type = T::path,
       .value = "FILE",
       .help = "Also writes it all (JSON), for compare."},
      json_flag()};
  const ParamList device = {
      {.name = "hybrid",
       .type = T::flag,
       .help = "Also measures the caches that a miss changes nothing in, as between a device and a CPU: adaptive and, "
               "with --profile, pinned."},
      {.name = "only-hybrid", .type = T::flag, .help = "Measures these alone."},
      {.name = "n-cpu-moe",
       .type = T::text,
       .value = "N",
       .help = "Layers whose experts stay with the CPU.",
       .repeated = true,
       .handling = Handling::refused,
       .note = "it needs a device, and this build computes on the CPU only"}};
  return {
      .name = "bench grid",
      .summary = "Measure combinations of modes, cache sizes, policies and threads",
      .description =
          "Measures every combination in a process of its own, in turns, and prints a table of medians: prompt and "
          "decode speed, hit rate and bytes read per token.",
      .positionals = {{.name = "MODEL", .help = "The model.", .param = "model", .required = false},
                      {.name = "TEXT", .help = "The text to continue.", .param = "file", .required = false}},
      .params = join({model_params(), own, replay_params(), device, log_params()}),
      .examples = {"moetier bench grid MODEL --cache-mib 1000 2000 4000 --policy default,lru --runs 3 --svg grid.svg",
                   "moetier bench grid MODEL story.txt --experts mmap,stream --cache-mib 2000 -t 2 4 -o grid.json"},
      .run = run_bench_grid};
}

Command compare_command() {
  return {.name = "compare",
          .summary = "Tell two records apart",
          .description =
              "Reads two records (run --record, bench --json, bench grid --out) and prints which parameters and "
              "circumstances differed, and how the results did: the change in percent and, where there are several "
              "runs, whether it is more than their spread.",
          .positionals = {{.name = "A", .help = "A record (JSON).", .param = "a"},
                          {.name = "B", .help = "Another one.", .param = "b"}},
          .params = join({{{.name = "a", .type = T::path, .value = "FILE", .help = "A record (JSON)."},
                           {.name = "b", .type = T::path, .value = "FILE", .help = "Another one."},
                           json_flag()},
                          log_params()}),
          .examples = {"moetier compare before.json after.json"},
          .run = run_compare};
}

Command eval_code_command() {
  ParamList own = {
      {.name = "suite",
       .type = T::choice,
       .value = "NAME",
       .fallback = "smoke",
       .help = "smoke: six tasks that any coding model should do; hard: ten that need some thought.",
       .choices = {"smoke", "hard"}},
      {.name = "max-tokens",
       .type = T::integer,
       .value = "N",
       .fallback = "700",
       .help = "Tokens of an answer at most.",
       .min = 1,
       .max = 1048576},
      {.name = "answers",
       .type = T::path,
       .value = "DIR",
       .help = "Judges the answers in DIR/TASK.py instead of a model's."},
      {.name = "url",
       .type = T::text,
       .value = "URL",
       .help = "Asks a server that runs, through /v1/chat/completions: http://HOST:PORT."},
      {.name = "port",
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help =
           "Without a model: asks the server that runs on this port of this machine. With one: as --server, on this "
           "port; 0 takes any that is free.",
       .min = 0,
       .max = 65535},
      {.name = "server",
       .type = T::flag,
       .help = "Serves the model on this machine and asks it through the server. --no-server asks it in this process, "
               "as without this flag, whatever --port says."},
      {.name = "api-key",
       .type = T::text,
       .value = "KEY",
       .help = "The key that the server asks for.",
       .env = "LLAMA_API_KEY"},
      {.name = "trust-answers",
       .type = T::flag,
       .help = "Runs answers where they cannot be kept from writing to your files or from the network, with limits on "
               "time and memory only."},
      json_flag()};
  return {
      .name = "eval code",
      .summary = "Let a model solve small coding tasks",
      .description =
          "Asks a model for Python functions, greedy, and runs each answer against asserts in a process with limits "
          "on time, memory and files, without network and without a way to write outside a folder of its own. A "
          "smoke test of a quantization, not a benchmark.",
      .positionals = {{.name = "MODEL", .help = "The model.", .param = "model", .required = false}},
      .params = join({model_params(), own, compute_params(), residency_params(), log_params()}),
      .examples = {"moetier eval code MODEL", "moetier eval code MODEL --suite hard --json",
                   "moetier eval code --port 8080", "moetier eval code MODEL --port 8099 --no-server",
                   "moetier eval code --answers my-answers"},
      .run = run_eval_code};
}

Command check_all_command() {
  return {
      .name = "check-all",
      .summary = "Check that a model does on this machine what it should",
      .description =
          "Checks the file's data, that every way to keep experts gives the same bits, that the simulator counts what "
          "the engine counts, and that a profile fills the cache; with the server, its audit log and its APIs. "
          "Prints a line for each and a summary; exit code 1 if one failed.",
      .positionals = {{.name = "MODEL", .help = "The model.", .param = "model", .required = false},
                      {.name = "PROFILE", .help = "A profile of it (STRP).", .param = "profile", .required = false}},
      .params = join({model_params(),
                      {{.name = "profile", .type = T::path, .value = "FILE", .help = "A profile of the model (STRP)."},
                       {.name = "cache-mb",
                        .aliases = {"--cache-mib"},
                        .type = T::integer,
                        .value = "N",
                        .help = "Size of the caches to check with; left out, half of the entries, at most 4096.",
                        .min = 1,
                        .max = 16777216},
                       {.name = "cpu-only", .type = T::flag, .help = "Leaves out what needs a device."},
                       json_flag()},
                      log_params()}),
      .examples = {"moetier check-all MODEL", "moetier check-all MODEL corpus.strp --cpu-only --json"},
      .run = run_check_all};
}

}  // namespace moetier::cli
