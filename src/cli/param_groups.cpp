#include "cli/param_groups.h"

namespace moetier::cli {

using T = ParamType;

ParamList join(std::vector<ParamList> lists) {
  ParamList all;
  for (ParamList& list : lists) {
    for (Param& p : list) all.push_back(std::move(p));
  }
  return all;
}

ParamList model_params() {
  return {
      {.name = "model",
       .aliases = {"-m"},
       .type = T::path,
       .value = "FILE",
       .help = "The model, a GGUF file; of a split set, any shard.",
       .env = "LLAMA_ARG_MODEL"},
      {.name = "override-kv",
       .type = T::text,
       .value = "KEY=TYPE:VALUE",
       .help = "Reads a metadata key as this value instead (TYPE: int, float, bool or str).",
       .repeated = true,
       .lossy = true},
  };
}

ParamList compute_params() {
  return {
      {.name = "threads",
       .aliases = {"-t"},
       .type = T::integer,
       .value = "N",
       .fallback = "auto",
       .help = "Threads to compute with; auto takes the physical cores that this process may use, no more than its "
               "cgroup gives time for. The answer does not depend on it.",
       .min = 1,
       .max = 1024,
       .choices = {"auto"},
       .unset = "-1",
       .env = "LLAMA_ARG_THREADS"},
      {.name = "isa",
       .type = T::choice,
       .value = "NAME",
       .fallback = "auto",
       .help = "Instruction set of the kernels. The answer does not depend on it.",
       .choices = {"auto", "portable", "avx2", "avx512", "neon"}},
      {.name = "mmid-chunk",
       .type = T::integer,
       .value = "N",
       .fallback = "32",
       .help =
           "Rows of an expert that a thread takes at once, of a prompt up to eight times as many; 0 gives each thread "
           "one equal share. The answer does not depend on it.",
       .min = 0,
       .max = 1048576,
       .env = "GGML_MMID_CHUNK"},
      {.name = "profile-ops",
       .type = T::flag,
       .help = "Prints the time per operation on standard error at the end, barriers apart (and in --stats-json).",
       .env = "GGML_CPU_OP_PROFILE"},
      {.name = "profile-token",
       .type = T::flag,
       .help = "Prints where a generated token's time went, computing and waits, on standard error at the end.",
       .env = "GGML_SCHED_PROFILE"},
      {.name = "ctx",
       .aliases = {"-c", "--ctx-size"},
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help = "Positions a sequence can hold; 0 takes the model's own, up to 8192.",
       .min = 0,
       .max = 16777216,
       .env = "LLAMA_ARG_CTX_SIZE"},
      {.name = "ubatch",
       .aliases = {"-ub", "--ubatch-size"},
       .type = T::integer,
       .value = "N",
       .fallback = "512",
       .help = "Rows computed at once in a prompt. The answer does not depend on it.",
       .min = 1,
       .max = 65536,
       .env = "LLAMA_ARG_UBATCH"},
      {.name = "kv-type",
       .aliases = {"-ctk", "--cache-type-k"},
       .type = T::choice,
       .value = "TYPE",
       .fallback = "f16",
       .help = "How keys and values are kept. q8_0 takes about half the memory of f16, at a small loss; it needs heads "
               "whose size is a multiple of 32.",
       .choices = {"f16", "q8_0", "f32"},
       .env = "LLAMA_ARG_CACHE_TYPE_K"},
  };
}

ParamList sampling_params() {
  return {
      {.name = "temp",
       .aliases = {"--temperature"},
       .type = T::real,
       .value = "F",
       .fallback = "0.8",
       .help = "Sampling temperature; 0 takes the likeliest token.",
       .min = 0,
       .max = 100,
       .env = "LLAMA_ARG_TEMP"},
      {.name = "top-k",
       .type = T::integer,
       .value = "N",
       .fallback = "40",
       .help = "Draws from the N likeliest tokens; 0 = all.",
       .min = 0,
       .max = 2147483647,
       .env = "LLAMA_ARG_TOP_K"},
      {.name = "top-p",
       .type = T::real,
       .value = "F",
       .fallback = "0.95",
       .help = "Draws from the likeliest tokens that together have this probability; 1 = off.",
       .min = 0,
       .max = 1,
       .env = "LLAMA_ARG_TOP_P"},
      {.name = "min-p",
       .type = T::real,
       .value = "F",
       .fallback = "0.05",
       .help = "Leaves out tokens less likely than this share of the likeliest; 0 = off.",
       .min = 0,
       .max = 1,
       .env = "LLAMA_ARG_MIN_P"},
      {.name = "repeat-penalty",
       .type = T::real,
       .value = "F",
       .fallback = "1",
       .help = "Divides the logits of tokens seen lately by this; 1 = off.",
       .min = 0.01,
       .max = 100},
      {.name = "presence-penalty",
       .type = T::real,
       .value = "F",
       .fallback = "0",
       .help = "Taken from the logits of tokens seen lately.",
       .min = -100,
       .max = 100},
      {.name = "frequency-penalty",
       .type = T::real,
       .value = "F",
       .fallback = "0",
       .help = "Taken from the logits of tokens for each time they were seen lately.",
       .min = -100,
       .max = 100},
      {.name = "repeat-last-n",
       .type = T::integer,
       .value = "N",
       .fallback = "64",
       .help = "How many last tokens the penalties look at; -1 = all.",
       .min = -1,
       .max = 2147483647},
      {.name = "seed",
       .aliases = {"-s"},
       .type = T::integer,
       .value = "N",
       .fallback = "auto",
       .help = "Seed of the draw; the same seed gives the same text on every machine. auto draws one and records it.",
       .min = 0,
       .max = 9.2e18,
       .choices = {"auto"},
       .unset = "-1",
       .env = "LLAMA_ARG_SEED"},
      {.name = "logit-bias",
       .aliases = {"-l"},
       .type = T::text,
       .value = "ID=F",
       .help = "Adds F to the logit of token ID (F may be -inf). ID+F and ID-F are taken as well.",
       .repeated = true},
      {.name = "stop",
       .aliases = {"-r", "--reverse-prompt"},
       .type = T::text,
       .value = "TEXT",
       .help = "Ends at this text, which is not printed.",
       .repeated = true},
      {.name = "ignore-eos", .type = T::flag, .help = "Goes on after an end-of-generation token."},
  };
}

ParamList check_params() {
  return {
      {.name = "profile", .type = T::path, .value = "FILE", .help = "Fills the cache from this profile."},
      {.name = "cache-mib",
       .type = T::integer,
       .value = "N",
       .fallback = "256",
       .help = "Size of the cache in MiB.",
       .min = 1,
       .max = 16777216},
      {.name = "threads",
       .aliases = {"-t"},
       .type = T::integer,
       .value = "N",
       .fallback = "auto",
       .help = "Threads to compute with.",
       .min = 1,
       .max = 1024,
       .choices = {"auto"}},
  };
}

ParamList constraint_params() {
  return {
      {.name = "grammar",
       .type = T::text,
       .value = "GBNF",
       .help = "Only texts of this grammar are generated (docs/structured-output.md)."},
      {.name = "grammar-file", .type = T::path, .value = "FILE", .help = "The same, with the grammar in a file."},
      {.name = "json-schema",
       .aliases = {"-j"},
       .type = T::text,
       .value = "SCHEMA",
       .help = "Only JSON documents that this schema allows are generated; {} allows any."},
      {.name = "json-schema-file",
       .aliases = {"-jf"},
       .type = T::path,
       .value = "FILE",
       .help = "The same, with the schema in a file."},
  };
}

ParamList log_params() {
  return {
      {.name = "verbose", .aliases = {"-v", "--log-verbose"}, .type = T::flag, .help = "Says more on standard error."},
      {.name = "quiet",
       .aliases = {"-q", "--log-disable"},
       .type = T::flag,
       .help = "Says only errors on standard error."},
  };
}

}  // namespace moetier::cli
