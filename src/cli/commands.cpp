// The one table of subcommands and their parameters.
#include <algorithm>

#include "cli/command.h"
#include "cli/param_groups.h"
#include "cli/pasted_flags.h"
#include "cli/profile_params.h"
#include "cli/replay.h"
#include "cli/residency_params.h"
#include "cli/route_trace.h"
#include "cli/run_files.h"
#include "cli/serve_params.h"
#include "cli/simulate_params.h"
#include "cli/tool_commands.h"

namespace moetier::cli {
namespace {

using T = ParamType;

Param text_file(std::string_view help) {
  return {.name = "file", .aliases = {"-f"}, .type = T::path, .value = "FILE", .help = help};
}

Param json_flag(std::string_view help) {
  return {.name = "json", .type = T::flag, .help = help};
}

ParamList run_own() {
  return {
      {.name = "prompt", .aliases = {"-p"}, .type = T::text, .value = "TEXT", .help = "What to continue."},
      text_file("Reads the prompt from a file, without its last newline; - is standard input."),
      {.name = "n",
       .aliases = {"-n", "--predict", "--n-predict"},
       .type = T::integer,
       .value = "N",
       .fallback = "-1",
       .help = "Tokens to generate; -1 goes on until the model ends or the context is full.",
       .min = -1,
       .max = 2147483647,
       .env = "LLAMA_ARG_N_PREDICT"},
      {.name = "chat",
       .aliases = {"-i", "--interactive", "-cnv", "--conversation"},
       .negations = {"-no-cnv"},
       .type = T::flag,
       .help = "Talks with the model: reads a line at a time, keeps the history, uses the model's chat template. The "
               "default when "
               "there is no prompt and standard input is a terminal."},
      {.name = "system",
       .aliases = {"-sys", "--system-prompt"},
       .type = T::text,
       .value = "TEXT",
       .help = "The system message of a chat."},
      {.name = "chat-template",
       .type = T::path,
       .value = "FILE",
       .help = "The chat template (Jinja), instead of the model's own."},
      {.name = "echo", .type = T::flag, .help = "Prints the prompt before the text."},
      {.name = "special", .aliases = {"-sp"}, .type = T::flag, .help = "Prints control tokens too."},
      {.name = "bos",
       .type = T::flag,
       .fallback = "true",
       .help = "With --no-bos: puts no BOS token before the prompt."},
      json_flag("Prints the run record (JSON, with the text in it) on standard output instead of the text."),
      {.name = "record", .type = T::path, .value = "FILE", .help = "Also writes the run record (JSON) to a file."},
      {.name = "session",
       .type = T::path,
       .value = "FILE",
       .help = "Keeps what was computed in a file: a later run whose prompt begins the same way reads it and does not "
               "compute that part anew. Written at the end, and when Ctrl-C ends the text. The answer does not depend "
               "on it."},
  };
}

Command run_command() {
  return {
      .name = "run",
      .summary = "Continue a text, or chat",
      .description =
          "Loads a model and continues the prompt, printing words as they come. Only the text goes to standard output; "
          "an account "
          "follows on standard error: a line of speed, memory and experts used, and one of what bound the run. Without "
          "a "
          "prompt it reads one from standard input, or, on a terminal, chats.",
      .positionals = {{.name = "MODEL", .help = "The model, a GGUF file.", .param = "model", .required = false}},
      .params =
          join({model_params(), run_own(), sampling_params(), constraint_params(), compute_params(), residency_params(),
                stats_params(), route_trace_params(), token_params(), log_params(), pasted_params("run")}),
      .examples = {"moetier run -m models/fairytale-moe-q8_0.gguf -p \"Once upon a time\" -n 100",
                   "moetier run -m MODEL -f story.txt -n 200 --temp 0", "moetier run -m MODEL --chat"},
      .run = run_run};
}

Command logits_command() {
  return {.name = "logits",
          .summary = "Write the logits of every position",
          .description =
              "Feeds token ids and writes float32 logits, positions x vocabulary, little-endian: for comparing models, "
              "machines and "
              "settings.",
          .positionals = {},
          .params = join(
              {model_params(),
               {{.name = "tokens", .type = T::text, .value = "IDS", .help = "Token ids, separated by commas."},
                {.name = "out", .aliases = {"-o"}, .type = T::path, .value = "FILE", .help = "Where the logits go."}},
               compute_params(),
               residency_params(),
               stats_params(),
               route_trace_params(),
               log_params()}),
          .examples = {"moetier logits -m MODEL --tokens 1,2,3 -o logits.f32 --kv-type f32"},
          .run = run_logits};
}

Command perplexity_command() {
  return {.name = "perplexity",
          .summary = "Measure how well a model predicts a text",
          .description =
              "Cuts the text into windows and measures perplexity over the second half of each, with its standard "
              "error. Where the vocabulary asks for a BOS, it takes the place of each window's first token.",
          .positionals = {},
          .params = join({model_params(),
                          {text_file("The text; - is standard input."),
                           {.name = "window",
                            .type = T::integer,
                            .value = "N",
                            .fallback = "512",
                            .help = "Tokens in a window.",
                            .min = 2,
                            .max = 1048576},
                           {.name = "score-all",
                            .type = T::flag,
                            .help = "Scores every position of a window, not only the second half."},
                           {.name = "windows",
                            .aliases = {"--chunks"},
                            .type = T::integer,
                            .value = "N",
                            .fallback = "all",
                            .help = "Stops after N windows; all (or -1) takes the whole text.",
                            .min = 1,
                            .max = 2147483647,
                            .choices = {"all", "-1"}},
                           {.name = "token-by-token",
                            .type = T::flag,
                            .help = "Feeds one token at a time instead of whole windows. The numbers are the same."},
                           json_flag("Prints JSON.")},
                          compute_params(),
                          residency_params(),
                          stats_params(),
                          route_trace_params(),
                          log_params()}),
          .examples = {"moetier perplexity -m MODEL -f wiki.txt", "moetier perplexity -m MODEL -f wiki.txt --json"},
          .run = run_perplexity};
}

/// A measurement shall not pay for what is copied at first use.
ParamList preloading(ParamList params) {
  for (Param& p : params) {
    if (p.name == "preload") p.fallback = "true";
  }
  return params;
}

Command bench_command() {
  return {
      .name = "bench",
      .summary = "Measure prompt and decode speed",
      .description =
          "Measures a prompt of P tokens and N decoded tokens, R times after one warm-up, and prints medians and "
          "spread.",
      .positionals = {{.name = "MODEL", .help = "The model, a GGUF file.", .param = "model", .required = false}},
      .params = join({model_params(),
                      {{.name = "prompt-tokens",
                        .aliases = {"-p", "--n-prompt"},
                        .type = T::integer,
                        .value = "P",
                        .fallback = "512",
                        .help = "Tokens of the prompt; 0 leaves it out.",
                        .min = 0,
                        .max = 1048576},
                       {.name = "n",
                        .aliases = {"-n", "--n-gen"},
                        .type = T::integer,
                        .value = "N",
                        .fallback = "128",
                        .help = "Tokens to decode; 0 leaves it out.",
                        .min = 0,
                        .max = 1048576},
                       {.name = "depth",
                        .aliases = {"-d", "--n-depth"},
                        .type = T::integer,
                        .value = "D",
                        .fallback = "0",
                        .help = "Positions that the cache holds before each measurement; filling it is not timed.",
                        .min = 0,
                        .max = 1048576},
                       {.name = "parallel",
                        .aliases = {"-np"},
                        .type = T::integer,
                        .value = "N",
                        .fallback = "1",
                        .help = "Sequences that decode together, N tokens at each step; speeds are of all of them.",
                        .min = 1,
                        .max = 256},
                       {.name = "repeat",
                        .aliases = {"-r", "--repetitions", "--runs"},
                        .type = T::integer,
                        .value = "R",
                        .fallback = "5",
                        .help = "Repetitions.",
                        .min = 1,
                        .max = 100000},
                       {.name = "machine",
                        .type = T::flag,
                        .help = "Measures the machine instead of a model: read bandwidth by threads, int8 and f32 "
                                "rates, the drive (reading the model given with -m), huge pages."},
                       {.name = "work",
                        .type = T::path,
                        .value = "DIR",
                        .fallback = "/var/tmp",
                        .help = "With --machine and no model: where a file to read from is made (512 MiB, removed "
                                "again)."},
                       {.name = "read-bandwidth",
                        .type = T::flag,
                        .fallback = "true",
                        .help = "With --no-read-bandwidth: does not measure how fast memory is read, so decoding is "
                                "not told as a share of it."},
                       json_flag("Prints JSON: prompt_tok_s and decode_tok_s, each with median, min, max and "
                                 "samples (null if left out).")},
                      compute_params(),
                      preloading(residency_params()),
                      replay_params(),
                      stats_params(),
                      token_params(),
                      route_trace_params(),
                      log_params()}),
      .examples = {"moetier bench --machine --json",
                   "moetier bench -m MODEL --replay trace.csv -p 0 -n 256 --moe-stream",
                   "moetier bench -m MODEL -p 512 -n 128 -r 5 --threads 2 --json"},
      .run = run_bench};
}

Command inspect_command() {
  return {
      .name = "inspect",
      .summary = "Show what a GGUF file holds",
      .description =
          "Prints metadata, tensors, the bytes of an entry (one expert of one layer) per layer, the token cycle and "
          "the dense bytes, "
          "what each tier would hold, and whether this program can run the model: if not, all that is missing or "
          "wrong, "
          "up to 32 sentences.",
      .positionals = {{.name = "FILE", .help = "The GGUF file; of a split set, any shard.", .param = "model"}},
      .params = join(
          {model_params(),
           {json_flag("Prints JSON."),
            {.name = "check", .type = T::flag, .help = "Reads all tensor data and checks the scales of every block."},
            {.name = "full", .type = T::flag, .help = "Prints arrays whole instead of their first elements."}},
           log_params()}),
      .examples = {"moetier inspect model.gguf", "moetier inspect model-00001-of-00003.gguf --json"},
      .run = run_inspect};
}

ParamList special_param() {
  return {{.name = "special",
           .type = T::flag,
           .fallback = "true",
           .help = "With --no-special: adds no BOS or EOS, and does not recognise control tokens in the text "
                   "(user-defined ones still are)."}};
}

Command tokenize_command() {
  return {
      .name = "tokenize",
      .summary = "Turn text into token ids",
      .description = "Prints the ids as a JSON array.",
      .positionals = {{.name = "MODEL", .help = "The model, a GGUF file.", .param = "model", .required = false}},
      .params =
          join({model_params(),
                {text_file("The text; - is standard input."),
                 {.name = "prompt", .aliases = {"-p"}, .type = T::text, .value = "TEXT", .help = "The text itself."}},
                special_param(),
                {{.name = "pieces", .type = T::flag, .help = "Prints a line per token: id and text."}},
                log_params()}),
      .examples = {"moetier tokenize -m MODEL -f text.txt", "moetier tokenize -m MODEL -p \"Hello world\" --pieces"},
      .run = run_tokenize};
}

Command detokenize_command() {
  return {.name = "detokenize",
          .summary = "Turn token ids into text",
          .description =
              "Reads ids separated by commas or white space, or a JSON array, and prints the text, nothing else.",
          .positionals = {{.name = "MODEL", .help = "The model, a GGUF file.", .param = "model", .required = false}},
          .params = join({model_params(),
                          {{.name = "tokens", .type = T::text, .value = "IDS", .help = "The ids."},
                           text_file("Reads the ids from a file; - is standard input."),
                           {.name = "special", .type = T::flag, .help = "Prints control tokens too."}},
                          log_params()}),
          .examples = {"moetier detokenize -m MODEL --tokens 1,2,3"},
          .run = run_detokenize};
}

Command template_command() {
  return {.name = "template",
          .summary = "Render a chat template",
          .description = "Renders a Jinja chat template over messages and prints the prompt, nothing else.",
          .positionals = {},
          .params = join(
              {{{.name = "file", .aliases = {"-f"}, .type = T::path, .value = "FILE", .help = "The template (Jinja)."},
                {.name = "model",
                 .aliases = {"-m"},
                 .type = T::path,
                 .value = "FILE",
                 .help = "Takes the template, BOS and EOS from this model instead."},
                {.name = "messages",
                 .type = T::path,
                 .value = "FILE",
                 .help = "JSON: an array of messages, or an object with messages and, if wanted, tools and further "
                         "variables; - "
                         "is standard input."},
                {.name = "bos", .type = T::text, .value = "TEXT", .help = "The text of bos_token."},
                {.name = "eos", .type = T::text, .value = "TEXT", .help = "The text of eos_token."},
                {.name = "add-generation-prompt",
                 .type = T::flag,
                 .help = "Sets add_generation_prompt, unless the JSON does."}},
               log_params()}),
          .examples = {"moetier template -f chat.jinja --messages messages.json --bos \"<s>\" --eos \"</s>\""},
          .run = run_template};
}

Command trace_command() {
  return {
      .name = "trace",
      .summary = "Write what the router chooses over a text",
      .description =
          "Runs a text through the model, window by window, and writes a routing trace: every token's picks in every "
          "MoE layer, with their weights. A name ending in .csv gets the CSV kind, any other the binary one.",
      .positionals =
          {{.name = "MODEL", .help = "The model to run.", .param = "model", .required = false},
           {.name = "TEXT", .help = "The text; - is standard input.", .param = "file", .required = false},
           {.name = "OUT", .help = "Where the trace goes.", .param = "out", .required = false},
           {.name = "N_CTX", .help = "Tokens in a window; 4096 unless told.", .param = "ctx", .required = false},
           {.name = "N_THREADS", .help = "Threads.", .param = "threads", .required = false}},
      .params =
          join({model_params(),
                {text_file("The text; - is standard input."),
                 {.name = "out", .aliases = {"-o"}, .type = T::path, .value = "FILE", .help = "Where the trace goes."},
                 {.name = "weights",
                  .type = T::flag,
                  .fallback = "true",
                  .help = "With --no-weights: a binary trace holds zeros instead of the router's weights."}},
                compute_params(),
                residency_params(),
                stats_params(),
                log_params()}),
      .examples = {"moetier trace MODEL corpus.txt routing.bin", "moetier trace -m MODEL -f corpus.txt -o routing.csv"},
      .run = run_trace};
}

Command quantize_command() {
  return {.name = "quantize",
          .summary = "Write a model in another tensor type",
          .description = "Re-encodes the weights of a GGUF file. TYPE is a tensor type or one of the usual mixtures.",
          .positionals = {{.name = "IN", .help = "The model to read.", .param = "model"},
                          {.name = "OUT", .help = "The file to write.", .param = "out"},
                          {.name = "TYPE",
                           .help = "q8_0, q4_k_m, iq4_xs, q3_k_m, q2_k, mxfp4, f16 ...; an unknown one lists them all.",
                           .param = "type"}},
          .params = join(
              {{{.name = "model", .aliases = {"-m"}, .type = T::path, .value = "FILE", .help = "The model to read."},
                {.name = "out", .aliases = {"-o"}, .type = T::path, .value = "FILE", .help = "The file to write."},
                {.name = "type", .type = T::text, .value = "TYPE", .help = "The type or mixture."},
                {.name = "allow-requantize",
                 .type = T::flag,
                 .help = "Also takes weights that are already quantized, at a further loss.",
                 .lossy = true},
                {.name = "pure",
                 .type = T::flag,
                 .help = "All matrices in the mixture's base type, the output and the embeddings too."},
                {.name = "threads",
                 .aliases = {"-t"},
                 .type = T::integer,
                 .value = "N",
                 .fallback = "auto",
                 .help = "Threads.",
                 .min = 1,
                 .max = 1024,
                 .choices = {"auto"}}},
               log_params()}),
          .examples = {"moetier quantize model-f16.gguf model-q4_k_m.gguf q4_k_m"},
          .run = run_quantize};
}

Command synth_command() {
  return {
      .name = "synth",
      .summary = "Write a random model of a known shape",
      .description =
          "Writes a GGUF file with random valid weights in the shape of a known model, at disk speed: for benchmarks "
          "and tests.",
      .positionals = {},
      .params = join(
          {{{.name = "like",
             .type = T::text,
             .value = "SHAPE",
             .help = "The shape, e.g. qwen3-30b-a3b; an unknown name lists them."},
            {.name = "architecture",
             .aliases = {"--arch"},
             .type = T::text,
             .value = "NAME",
             .help = "For the shape 'tiny': the architecture."},
            {.name = "layers",
             .type = T::integer,
             .value = "N",
             .fallback = "0",
             .help = "Layers; 0 = the shape's own.",
             .min = 0,
             .max = 512},
            {.name = "type", .type = T::text, .value = "TYPE", .fallback = "q4_k_m", .help = "Tensor type or mixture."},
            {.name = "pure", .type = T::flag, .help = "All matrices in the mixture's base type."},
            {.name = "out", .aliases = {"-o"}, .type = T::path, .value = "FILE", .help = "The file to write."},
            {.name = "seed",
             .aliases = {"-s"},
             .type = T::integer,
             .value = "N",
             .fallback = "1",
             .help = "Seed of the weights.",
             .min = 0,
             .max = 9.2e18},
            {.name = "skew",
             .type = T::real,
             .value = "F",
             .fallback = "0",
             .help = "Above 0, some experts are picked far more often than others.",
             .min = 0,
             .max = 10},
            {.name = "set",
             .type = T::text,
             .value = "KEY=N",
             .help = "Changes one number of the shape, e.g. V=1000.",
             .repeated = true}},
           log_params()}),
      .examples = {"moetier synth --like qwen3-30b-a3b --layers 12 --type q4_k_m -o big.gguf"},
      .run = run_synth};
}

Command check_audit_command() {
  return {.name = "check-audit",
          .summary = "Check an audit log",
          .description =
              "With a model and a profile: serves some requests with a cache that the profile fills, writes an audit "
              "log, checks every event and field of it and that its numbers add up, and that the texts are the same "
              "with and without overlapped reads. With --log: checks a log that is there.",
          .positionals = {{.name = "MODEL", .help = "The GGUF file.", .param = "model", .required = false},
                          {.name = "PROFILE", .help = "The profile (STRP).", .param = "profile", .required = false}},
          .params = join({model_params(),
                          check_params(),
                          {{.name = "log", .type = T::path, .value = "FILE", .help = "The log to check."}},
                          log_params()}),
          .examples = {"moetier check-audit MODEL PROFILE", "moetier check-audit --log audit.jsonl"},
          .run = run_check_audit};
}

Command docs_command() {
  return {.name = "docs",
          .summary = "Print documentation made from the parameter table",
          .description = "Prints the CLI reference, the man page, a shell completion or the list of models.",
          .positionals = {{.name = "KIND", .help = "cli, models, man, bash, zsh or fish.", .param = "kind"}},
          .params = {{.name = "kind",
                      .type = T::choice,
                      .value = "KIND",
                      .help = "What to print.",
                      .choices = {"cli", "models", "man", "bash", "zsh", "fish"}}},
          .examples = {"moetier docs man | man -l -", "source <(moetier docs bash)"},
          .run = run_docs};
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all = [] {
    std::vector<Command> list = {run_command(),      serve_command(),      bench_command(),     bench_grid_command(),
                                 compare_command(),  perplexity_command(), eval_code_command(), check_all_command(),
                                 logits_command(),   inspect_command(),    tokenize_command(),  detokenize_command(),
                                 template_command(), trace_command(),      trace_show_command()};
    for (Command& command : profile_commands()) list.push_back(std::move(command));
    for (Command& command :
         std::vector<Command>{plan_command(), simulate_command(), predict_command(), quantize_command(),
                              synth_command(), check_audit_command(), check_api_command(), docs_command()}) {
      list.push_back(std::move(command));
    }
    return list;
  }();
  return all;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

const Command* find_command(const std::vector<std::string>& arguments, size_t& words) {
  for (words = std::min<size_t>(arguments.size(), 2); words > 0; --words) {
    const Command* found = find_command(words == 2 ? arguments[0] + " " + arguments[1] : arguments[0]);
    if (found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace moetier::cli
