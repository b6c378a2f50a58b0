#include "cli/simulate_params.h"

#include "cli/model_rates.h"
#include "cli/param_groups.h"

namespace moetier::cli {
namespace {

using T = ParamType;

ParamList own_params() {
  return {
      {.name = "trace",
       .aliases = {"--test"},
       .type = T::path,
       .value = "FILE",
       .help = "The routing trace to replay: CSV or binary."},
      {.name = "train",
       .type = T::path,
       .value = "FILE",
       .help = "Makes a profile from other traces, which fills the cache first; pinned keeps it. They should not be "
               "the trace that is replayed.",
       .repeated = true,
       .many = true},
      {.name = "cache-mb",
       .aliases = {"--cache-mib"},
       .type = T::text,
       .value = "N[,N...]",
       .help = "Cache sizes in MiB, separated by commas or spaces.",
       .repeated = true,
       .many = true},
      {.name = "policy",
       .aliases = {"--policies", "--cache-policy"},
       .type = T::text,
       .value = "NAME[,NAME...]",
       .fallback = "default",
       .help = "What stays in the cache: default, lru, heat, cycle, pinned, adaptive, reuse or belady, several "
               "separated by commas, or all. belady knows the future: nothing can hit more. Parameters follow the "
               "name: adaptive:half-life=100:swap-every=16 (docs/policies.md lists them).",
       .repeated = true},
      {.name = "model",
       .aliases = {"-m"},
       .type = T::path,
       .value = "FILE",
       .help =
           "Plays the trace on this model's layers, with the slots and the homes in transit of a real run. Layer l of "
           "Lm plays the trace's layer floor(l x Lt / Lm)."},
      {.name = "shape",
       .type = T::text,
       .value = "LAYERSxEXPERTSxBYTES",
       .help = "The same for a model that is not at hand: MoE layers, experts in each, bytes of an entry."},
      {.name = "moe-cache-profile",
       .type = T::path,
       .value = "FILE",
       .help = "Fills the cache first from a profile (STRP); pinned keeps these entries."},
      {.name = "pin-reserve",
       .type = T::real,
       .value = "F",
       .fallback = "0",
       .help = "The share of the cache that the profile leaves to entries that come and go.",
       .min = 0,
       .max = 1},
      {.name = "prompt-tokens",
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help = "How many of a binary trace's tokens are its prompt; the file does not tell.",
       .min = 0,
       .max = 1e12},
      {.name = "prompt", .type = T::flag, .fallback = "true", .help = "With --no-prompt: leaves the prompt out."},
      {.name = "token-by-token",
       .type = T::flag,
       .help = "Plays a trace without decoded tokens (of a text) as if all of them were decoded; that is done without "
               "asking, too, unless it says --no-token-by-token."},
      {.name = "ubatch",
       .aliases = {"-ub"},
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help = "Rows of the prompt that pass a layer at once; 0 = all.",
       .min = 0,
       .max = 1048576},
      {.name = "layers",
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help = "Takes the trace's first N layers with experts only; 0 = all.",
       .min = 0,
       .max = 65536},
      {.name = "svg", .type = T::path, .value = "FILE", .help = "Also draws the curves (SVG)."},
      {.name = "json",
       .type = T::flag,
       .help = "Prints JSON: decode_hit_pct, hits and misses of decoded tokens and more; of several runs, a list."},
  };
}

/// Of the flags that say how to compute, those that a measurement of rates has a use for.
ParamList thread_params() {
  ParamList params = compute_params();
  std::erase_if(params, [](const Param& p) { return p.name != "threads" && p.name != "isa"; });
  return params;
}

}  // namespace

Command simulate_command() {
  return {.name = "simulate",
          .summary = "Replay a routing trace through cache policies",
          .description =
              "Tells what a cache of a given size would hit, by running the engine's own policies over a recorded "
              "trace. Without a model, sizes count the entries' bytes alone.",
          .positionals = {{.name = "MODEL", .help = "The model; the same as -m.", .param = "model", .required = false}},
          .params = join({own_params(), rate_params("false"), thread_params(), log_params()}),
          .examples = {"moetier simulate --trace qwen.route.csv --cache-mb 1000,2000,4000 --policy all",
                       "moetier simulate MODEL --cache-mib 1000 2000 4000 --train T.bin --test H.bin --policies all "
                       "--svg curves.svg",
                       "moetier simulate -m MODEL --trace T.bin --prompt-tokens 28 --cache-mb 2000 --json"},
          .run = run_simulate};
}

}  // namespace moetier::cli
