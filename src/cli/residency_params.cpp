#include "cli/residency_params.h"

namespace moetier::cli {
namespace {

using T = ParamType;

constexpr std::string_view kCache = "the cache of --experts stream";
constexpr std::string_view kStream = "--experts stream";

ParamList mode_params() {
  return {
      {.name = "experts",
       .type = T::choice,
       .value = "MODE",
       .fallback = "auto",
       .help = "How experts are kept: resident (all in memory), mmap (the page cache decides), advise (mmap, and the "
               "kernel is told which bytes are needed next), noop (advise without telling, for comparing), stream (a "
               "cache in memory, the rest read when picked), auto (resident when the model fits with air, else "
               "stream). The answer does not depend on it.",
       .choices = {"auto", "resident", "mmap", "advise", "noop", "stream"}},
      {.name = "moe-stream", .type = T::flag, .help = "The same as --experts stream."},
      {.name = "expert-cache-size",
       .type = T::integer,
       .value = "N",
       .help = "1 or more is the same as --experts advise (N is no size); 0 changes nothing.",
       .min = 0,
       .max = 2147483647},
      {.name = "expert-cache-noop",
       .type = T::flag,
       .help = "With --expert-cache-size: noop instead of advise. Alone it changes nothing.",
       .env = "EXPERT_CACHE_NOOP"},
      {.name = "advise-always",
       .type = T::flag,
       .help = "Advises also when the model fits in memory.",
       .mode = "--experts advise"},
      {.name = "load-all",
       .type = T::flag,
       .help = "Reads every expert of a layer, picked or not: for comparing.",
       .mode = kStream},
      {.name = "dense-weights",
       .type = T::choice,
       .value = "POLICY",
       .fallback = "auto",
       .help = "How the weights that every token needs are kept: mmap (in the mapped file), warm (mmap, read once at "
               "load), anon (in memory of the program's own), auto (anon when experts are streamed or resident, else "
               "mmap). The answer does not depend on it.",
       .choices = {"auto", "mmap", "warm", "anon"}},
      {.name = "warm-dense",
       .type = T::flag,
       .help = "Deprecated: --no-warm-dense is --dense-weights mmap, --warm-dense is --dense-weights warm."},
      {.name = "dense-odirect", .type = T::flag, .help = "Deprecated: the same as --dense-weights anon."},
      {.name = "preload",
       .type = T::flag,
       .help = "Brings all experts into memory at load. Without it, if the page cache has the model, they are copied "
               "from there when they are used a second time, so that the first token comes sooner. The answer does not "
               "depend on it.",
       .mode = "--experts resident"},
      {.name = "mlock",
       .type = T::flag,
       .help = "Locks the memory of the cache and of the dense weights, so that it is never swapped out.",
       .env = "LLAMA_ARG_MLOCK"},
  };
}

ParamList cache_params() {
  return {
      {.name = "cache-mb",
       .type = T::integer,
       .value = "N",
       .fallback = "auto",
       .help = "Size of the expert cache in MiB, all of it included. auto sizes it from the memory there is, once, at "
               "load; 0 streams without a cache. A number given with --experts auto means stream.",
       .min = 0,
       .max = 16777216,
       .choices = {"auto"},
       .env = "MOETIER_CACHE_MB"},
      {.name = "cache-floor-mb",
       .type = T::integer,
       .value = "N",
       .fallback = "1536",
       .help = "With --cache-mb auto: MiB of memory to leave free.",
       .min = 0,
       .max = 16777216,
       .mode = kCache},
      {.name = "cache-ceil-mb",
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help = "With --cache-mb auto: the most MiB the cache may take; 0 = no bound.",
       .min = 0,
       .max = 16777216,
       .mode = kCache},
      {.name = "force-cache", .type = T::flag, .help = "Allows a --cache-mb from 1 to 1499."},
      {.name = "cache-policy",
       .type = T::choice,
       .value = "NAME",
       .fallback = "default",
       .help = "Which entries the cache keeps. The answer does not depend on it.",
       .choices = {"default", "lru", "heat", "cycle", "pinned", "adaptive", "reuse"},
       .mode = kCache},
      {.name = "moe-cache-profile",
       .type = T::path,
       .value = "FILE",
       .help = "Fills the cache at load from a profile (STRP), hottest entries first.",
       .env = "LLAMA_ARG_MOE_CACHE_PROFILE",
       .mode = kCache},
      {.name = "moe-cache-adaptive",
       .type = T::flag,
       .help = "The same as --cache-policy adaptive, with or without a profile.",
       .env = "LLAMA_ARG_MOE_CACHE_ADAPTIVE",
       .mode = kCache},
      {.name = "prefetch",
       .type = T::integer,
       .value = "K",
       .fallback = "0",
       .help = "Reads what the last token picked in the next K layers, while the drive is idle.",
       .min = 0,
       .max = 8,
       .mode = kCache},
      {.name = "moe-cache-mib",
       .type = T::text,
       .value = "N",
       .help = "Cache in device memory.",
       .env = "LLAMA_ARG_MOE_CACHE_MIB",
       .handling = Handling::noop,
       .note = "it needs a device, and this build computes on the CPU only; --cache-mb sizes the cache in memory"},
      {.name = "moe-cache-hybrid",
       .type = T::flag,
       .help = "Device and CPU share the experts.",
       .env = "LLAMA_ARG_MOE_CACHE_HYBRID",
       .handling = Handling::noop,
       .note = "it needs a device, and this build computes on the CPU only"},
      audit_param(),
  };
}

ParamList reading_params() {
  return {
      {.name = "io",
       .type = T::choice,
       .value = "NAME",
       .fallback = "auto",
       .help = "How experts are read: io_uring, or threads where the kernel refuses it.",
       .choices = {"auto", "io_uring", "threads"}},
      {.name = "io-threads",
       .type = T::integer,
       .value = "N",
       .fallback = "auto",
       .help = "Threads that read, with --io threads.",
       .min = 1,
       .max = 64,
       .choices = {"auto"}},
      {.name = "io-depth",
       .type = T::integer,
       .value = "N",
       .fallback = "auto",
       .help = "Reads in flight at most, with io_uring.",
       .min = 1,
       .max = 1024,
       .choices = {"auto"}},
      {.name = "io-probe",
       .type = T::flag,
       .help = "Measures the drive anew for --io-depth and --io-threads auto, instead of taking what is remembered."},
      {.name = "odirect",
       .type = T::flag,
       .fallback = "true",
       .help = "Reads past the page cache; --no-odirect reads through it."},
      {.name = "overlap",
       .type = T::flag,
       .fallback = "true",
       .help = "Computes experts as they land; --no-overlap waits for all of a layer first. The answer does not "
               "depend on it."},
      {.name = "prompt-rows",
       .type = T::integer,
       .value = "N",
       .fallback = "4096",
       .help = "Rows of a prompt that pass layer by layer together when experts are streamed, so that each expert is "
               "read once for all of them. The answer does not depend on it.",
       .min = 1,
       .max = 1048576},
  };
}

ParamList lossy_params() {
  return {
      {.name = "n-expert-used",
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help = "Experts that a token uses in each layer; 0 = the model's own number.",
       .min = 0,
       .max = 1024,
       .lossy = true},
      {.name = "drop-cold-experts",
       .type = T::real,
       .value = "F",
       .fallback = "0",
       .help = "Leaves out picks that the cache does not hold and whose weight is below this share of the token's mean "
               "one.",
       .min = 0,
       .max = 1,
       .lossy = true,
       .mode = kCache},
  };
}

}  // namespace

Param audit_param() {
  return {.name = "moe-cache-audit",
          .type = T::path,
          .value = "FILE",
          .help =
              "Appends an audit log to a file: what was loaded, what each request did, and what the cache did (JSON "
              "lines, docs/server.md).",
          .env = "LLAMA_ARG_MOE_CACHE_AUDIT"};
}

ParamList residency_params() {
  ParamList all;
  for (ParamList list : {mode_params(), cache_params(), reading_params(), lossy_params()}) {
    for (Param& p : list) all.push_back(std::move(p));
  }
  return all;
}

}  // namespace moetier::cli
