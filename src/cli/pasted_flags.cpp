#include "cli/pasted_flags.h"

namespace moetier::cli {
namespace {

using Names = std::vector<std::string_view>;

/// One row: what is typed, whether a value follows, which variable sets it, and why nothing is done for it.
struct Row {
  std::string_view name;
  Names aliases;
  std::string_view value;  ///< empty: a flag
  std::string_view env;
  std::string_view note;
  std::string_view only = {};  ///< the one subcommand that has it
  Names negations = {};
};

/// The same for flags of which some values say what is so here anyway.
struct FixedRow {
  std::string_view name;
  Names aliases;
  std::string_view value;
  Names accepted;
  std::string_view env;
  std::string_view note;  ///< why other values are refused
  std::string_view only = {};
};

constexpr std::string_view kNoDevice = "this build computes on the CPU only";
constexpr std::string_view kNoDraft = "there is no draft model";
constexpr std::string_view kPinning = "threads follow from --threads and the CPUs that the process may use (taskset)";
constexpr std::string_view kPages = "the KV cache is always one pool of pages that all slots share";
constexpr std::string_view kNoDownload = "Moetier downloads nothing; fetch the GGUF file and pass it with --model";
constexpr std::string_view kNoAdapter = "adapters are not in this version; merge it into the model first";
constexpr std::string_view kTextOnly = "only text models are run";
constexpr std::string_view kNoSpeculation = "speculative decoding is not in this version";
constexpr std::string_view kOneModel = "a server has one model, the one that --model names";
constexpr std::string_view kRope = "RoPE is as the model's metadata says; --override-kv changes them";
constexpr std::string_view kNoSampler = "this sampler is not in this version";
constexpr std::string_view kShapesIt = "it only shapes a sampler that no flag switches on";
constexpr std::string_view kLog = "the log is plain lines on standard error; -v says more, -q less";
constexpr std::string_view kByRequest = "a server-wide default is not in this version; a request brings its own";

/// Accepted, and said to change nothing.
const std::vector<Row>& ignored() {
  static const std::vector<Row> rows = {
      {"n-gpu-layers", {"-ngl", "--gpu-layers"}, "N", "LLAMA_ARG_N_GPU_LAYERS", kNoDevice},
      {"cpu-moe", {"-cmoe"}, "", "LLAMA_ARG_CPU_MOE", kNoDevice},
      {"n-cpu-moe", {"-ncmoe"}, "N", "LLAMA_ARG_N_CPU_MOE", kNoDevice},
      {"override-tensor", {"-ot"}, "PATTERN", "LLAMA_ARG_OVERRIDE_TENSOR", kNoDevice},
      {"device", {"-dev"}, "LIST", "LLAMA_ARG_DEVICE", kNoDevice},
      {"split-mode", {"-sm"}, "MODE", "LLAMA_ARG_SPLIT_MODE", kNoDevice},
      {"tensor-split", {"-ts"}, "LIST", "LLAMA_ARG_TENSOR_SPLIT", kNoDevice},
      {"main-gpu", {"-mg"}, "N", "LLAMA_ARG_MAIN_GPU", kNoDevice},
      {"kv-offload", {"-kvo"}, "", "LLAMA_ARG_KV_OFFLOAD", kNoDevice, {}, {"-nkvo"}},
      {"op-offload", {}, "", "LLAMA_ARG_OP_OFFLOAD", kNoDevice},
      {"fit", {"-fit"}, "on|off", "LLAMA_ARG_FIT", kNoDevice},
      {"fit-target", {"-fitt"}, "MIB", "LLAMA_ARG_FIT_TARGET", kNoDevice},
      {"fit-ctx", {"-fitc"}, "N", "LLAMA_ARG_FIT_CTX", "without --ctx a slot's context follows from memory anyway"},
      {"backend-sampling", {"-bs"}, "", "LLAMA_ARG_BACKEND_SAMPLING", kNoDevice},
      {"repack", {}, "", "LLAMA_ARG_REPACK", "weights are never repacked", {}, {"-nr"}},
      {"batch",
       {"-b", "--batch-size"},
       "N",
       "LLAMA_ARG_BATCH",
       "a prompt is always handed in whole; --ubatch says how much is computed at once"},
      {"threads-batch", {"-tb"}, "N", "LLAMA_ARG_THREADS_BATCH", "prompts use the same --threads as everything else"},
      {"cpu-mask", {"-C"}, "M", "LLAMA_ARG_CPU_MASK", kPinning},
      {"cpu-range", {"-Cr"}, "LO-HI", "LLAMA_ARG_CPU_RANGE", kPinning},
      {"cpu-strict", {}, "N", "LLAMA_ARG_CPU_STRICT", kPinning},
      {"cpu-mask-batch", {"-Cb"}, "M", "", kPinning},
      {"cpu-range-batch", {"-Crb"}, "LO-HI", "", kPinning},
      {"cpu-strict-batch", {}, "N", "", kPinning},
      {"numa", {}, "TYPE", "LLAMA_ARG_NUMA", kPinning},
      {"prio", {}, "N", "LLAMA_ARG_PRIO", "the system's priorities are left alone (nice)"},
      {"prio-batch", {}, "N", "", "the system's priorities are left alone (nice)"},
      {"poll", {}, "N", "LLAMA_ARG_POLL", "how threads wait is not a setting"},
      {"poll-batch", {}, "N", "", "how threads wait is not a setting"},
      {"mmap", {}, "", "LLAMA_ARG_MMAP", "--experts and --dense-weights say how the model is kept"},
      {"direct-io", {"-dio"}, "", "LLAMA_ARG_DIO", "--odirect says how streamed experts are read", {}, {"-ndio"}},
      {"check-tensors", {}, "", "LLAMA_ARG_CHECK_TENSORS", "moetier inspect MODEL --check does this"},
      {"swa-full", {}, "", "LLAMA_ARG_SWA_FULL", "the KV cache keeps every position"},
      {"kv-unified", {"-kvu"}, "", "LLAMA_ARG_KV_UNIFIED", kPages, {}, {"-no-kvu"}},
      {"defrag-thold", {"-dt"}, "F", "LLAMA_ARG_DEFRAG_THOLD", kPages},
      {"keep", {}, "N", "LLAMA_ARG_KEEP", "nothing is shifted out of a full context"},
      {"perf", {}, "", "LLAMA_ARG_PERF", "times are always measured"},
      {"verbosity", {"-lv", "--log-verbosity"}, "N", "LLAMA_ARG_LOG_VERBOSITY", kLog},
      {"log-colors", {}, "on|off|auto", "LLAMA_ARG_LOG_COLORS", kLog},
      {"log-prefix", {}, "", "LLAMA_ARG_LOG_PREFIX", kLog},
      {"log-timestamps", {}, "", "LLAMA_ARG_LOG_TIMESTAMPS", kLog},
      {"verbose-prompt", {}, "", "", "moetier tokenize shows a prompt's tokens"},
      {"warmup", {}, "", "LLAMA_ARG_WARMUP", "there is no warm-up"},
      {"dry-base", {}, "F", "", kShapesIt},
      {"dry-allowed-length", {}, "N", "", kShapesIt},
      {"dry-penalty-last-n", {}, "N", "", kShapesIt},
      {"dry-sequence-breaker", {}, "TEXT", "", kShapesIt},
      {"mirostat-lr", {}, "F", "", kShapesIt},
      {"mirostat-ent", {}, "F", "", kShapesIt},
      {"adaptive-decay", {}, "F", "", kShapesIt},
      {"draft-max", {"--draft", "--draft-n"}, "N", "LLAMA_ARG_DRAFT_MAX", kNoDraft},
      {"draft-min", {"--draft-n-min"}, "N", "LLAMA_ARG_DRAFT_MIN", kNoDraft},
      {"draft-p-min", {}, "F", "LLAMA_ARG_DRAFT_P_MIN", kNoDraft},
      {"draft-p-split", {}, "F", "LLAMA_ARG_DRAFT_P_SPLIT", kNoDraft},
      {"ctx-size-draft", {"-cd"}, "N", "LLAMA_ARG_CTX_SIZE_DRAFT", kNoDraft},
      {"device-draft", {"-devd"}, "LIST", "", kNoDraft},
      {"n-gpu-layers-draft", {"-ngld", "--gpu-layers-draft"}, "N", "LLAMA_ARG_N_GPU_LAYERS_DRAFT", kNoDraft},
      {"threads-draft", {"-td"}, "N", "", kNoDraft},
      {"threads-batch-draft", {"-tbd"}, "N", "", kNoDraft},
      {"cache-type-k-draft", {"-ctkd"}, "TYPE", "LLAMA_ARG_CACHE_TYPE_K_DRAFT", kNoDraft},
      {"cache-type-v-draft", {"-ctvd"}, "TYPE", "LLAMA_ARG_CACHE_TYPE_V_DRAFT", kNoDraft},
      {"cont-batching",
       {"-cb"},
       "",
       "LLAMA_ARG_CONT_BATCHING",
       "requests are always batched as they come",
       "serve",
       {"-nocb"}},
      {"threads-http", {}, "N", "LLAMA_ARG_THREADS_HTTP", "threads follow from --parallel and --queue", "serve"},
      {"cache-reuse", {}, "N", "LLAMA_ARG_CACHE_REUSE", "only a common beginning is shared, and that always", "serve"},
      {"cache-prompt",
       {},
       "",
       "LLAMA_ARG_CACHE_PROMPT",
       "prefixes are always shared; a request can say cache_prompt",
       "serve"},
      {"cache-ram",
       {"-cram"},
       "MIB",
       "LLAMA_ARG_CACHE_RAM",
       "finished prompts are kept while memory lasts, and on disk with --prompt-cache-dir",
       "serve"},
      {"ctx-checkpoints",
       {"-ctxcp", "--swa-checkpoints"},
       "N",
       "LLAMA_ARG_CTX_CHECKPOINTS",
       "finished prompts are kept while memory lasts",
       "serve"},
      {"slot-prompt-similarity",
       {"-sps"},
       "F",
       "LLAMA_ARG_SLOT_PROMPT_SIMILARITY",
       "a request shares the longest beginning that any slot holds",
       "serve"},
      {"escape", {"-e"}, "", "", "no text of the command line goes to the model", "serve"},
      {"spm-infill", {}, "", "", "there is no infill endpoint", "serve"},
      {"tags", {}, "LIST", "LLAMA_ARG_TAGS", "tags are only told to clients", "serve"},
      {"webui-config",
       {},
       "JSON",
       "LLAMA_ARG_WEBUI_CONFIG",
       "the chat page keeps its settings in the browser",
       "serve"},
      {"webui-config-file",
       {},
       "FILE",
       "LLAMA_ARG_WEBUI_CONFIG_FILE",
       "the chat page keeps its settings in the browser",
       "serve"},
      {"mmproj-auto", {}, "", "LLAMA_ARG_MMPROJ_AUTO", kTextOnly},
      {"mmproj-offload", {}, "", "LLAMA_ARG_MMPROJ_OFFLOAD", kTextOnly},
      {"image-min-tokens", {}, "N", "LLAMA_ARG_IMAGE_MIN_TOKENS", kTextOnly},
      {"image-max-tokens", {}, "N", "LLAMA_ARG_IMAGE_MAX_TOKENS", kTextOnly},
      {"color", {"-co"}, "", "", "the text is printed as it is", "run"},
      {"simple-io", {}, "", "", "lines are always read plainly", "run"},
      {"show-timings", {}, "", "", "the account always tells them", "run"},
  };
  return rows;
}

/// Accepted where it says what is so anyway, else refused.
const std::vector<FixedRow>& fixed() {
  static const std::vector<FixedRow> rows = {
      {"jinja", {}, "", {"true"}, "LLAMA_ARG_JINJA", "chat templates are always rendered as Jinja"},
      {"context-shift",
       {},
       "",
       {"false"},
       "LLAMA_ARG_CONTEXT_SHIFT",
       "nothing is shifted out of a full context: an answer ends there, and says so"},
      {"offline", {}, "", {"true"}, "LLAMA_ARG_OFFLINE", "nothing is ever downloaded, so nothing can be switched on"},
      {"mirostat", {}, "N", {"0"}, "", kNoSampler},
      {"dry-multiplier", {}, "F", {"0"}, "", kByRequest},
      {"adaptive-target", {}, "F", {"-1"}, "", kNoSampler},
      {"spec-type", {}, "NAME", {"none"}, "LLAMA_ARG_SPEC_TYPE", kNoSpeculation},
      {"metrics", {}, "", {"true"}, "LLAMA_ARG_ENDPOINT_METRICS", "/metrics cannot be closed", "serve"},
      {"slots",
       {},
       "",
       {"true"},
       "LLAMA_ARG_ENDPOINT_SLOTS",
       "/slots cannot be closed; it tells numbers, never texts, and --api-key guards it",
       "serve"},
      {"props", {}, "", {"true"}, "LLAMA_ARG_ENDPOINT_PROPS", "GET /props cannot be closed", "serve"},
      {"embeddings", {"--embedding"}, "", {"true"}, "LLAMA_ARG_EMBEDDINGS", "/v1/embeddings cannot be closed", "serve"},
      {"prefill-assistant",
       {},
       "",
       {"true"},
       "LLAMA_ARG_PREFILL_ASSISTANT",
       "a last message of the assistant is always continued",
       "serve"},
      {"sleep-idle-seconds", {}, "N", {"-1"}, "LLAMA_ARG_SLEEP_IDLE_SECONDS", "the model stays loaded", "serve"},
      {"escape", {"-e"}, "", {"false"}, "", "texts are taken as they are; $'...' of the shell writes escapes", "run"},
      {"display-prompt", {}, "", {"false"}, "", "--echo prints the prompt before the text", "run"},
  };
  return rows;
}

/// Would change the answer, or asks for what is not there.
const std::vector<Row>& refused() {
  static const std::vector<Row> rows = {
      {"lora", {}, "FILE", "LLAMA_ARG_LORA", kNoAdapter},
      {"lora-scaled", {}, "FILE", "", kNoAdapter},
      {"control-vector", {}, "FILE", "", "control vectors are not in this version"},
      {"control-vector-scaled", {}, "FILE", "", "control vectors are not in this version"},
      {"control-vector-layer-range", {}, "RANGE", "", "control vectors are not in this version"},
      {"mmproj", {"-mm"}, "FILE", "LLAMA_ARG_MMPROJ", kTextOnly},
      {"mmproj-url", {"-mmu"}, "URL", "LLAMA_ARG_MMPROJ_URL", kTextOnly},
      {"model-draft", {"-md"}, "FILE", "LLAMA_ARG_MODEL_DRAFT", kNoSpeculation},
      {"hf-repo-draft", {"-hfd", "-hfrd"}, "REPO", "LLAMA_ARG_HFD_REPO", kNoSpeculation},
      {"lookup-cache-static", {"-lcs"}, "FILE", "", kNoSpeculation},
      {"lookup-cache-dynamic", {"-lcd"}, "FILE", "", kNoSpeculation},
      {"hf-repo", {"-hf", "-hfr"}, "REPO", "LLAMA_ARG_HF_REPO", kNoDownload},
      {"hf-file", {"-hff"}, "FILE", "LLAMA_ARG_HF_FILE", kNoDownload},
      {"hf-token", {"-hft"}, "TOKEN", "", kNoDownload},
      {"model-url", {"-mu"}, "URL", "LLAMA_ARG_MODEL_URL", kNoDownload},
      {"docker-repo", {"-dr"}, "REPO", "LLAMA_ARG_DOCKER_REPO", kNoDownload},
      {"rpc", {}, "SERVERS", "LLAMA_ARG_RPC", kNoDevice},
      {"list-devices", {}, "", "", kNoDevice},
      {"rope-scaling", {}, "TYPE", "LLAMA_ARG_ROPE_SCALING_TYPE", kRope},
      {"rope-scale", {}, "F", "LLAMA_ARG_ROPE_SCALE", kRope},
      {"rope-freq-base", {}, "F", "LLAMA_ARG_ROPE_FREQ_BASE", kRope},
      {"rope-freq-scale", {}, "F", "LLAMA_ARG_ROPE_FREQ_SCALE", kRope},
      {"yarn-orig-ctx", {}, "N", "LLAMA_ARG_YARN_ORIG_CTX", kRope},
      {"yarn-ext-factor", {}, "F", "LLAMA_ARG_YARN_EXT_FACTOR", kRope},
      {"yarn-attn-factor", {}, "F", "LLAMA_ARG_YARN_ATTN_FACTOR", kRope},
      {"yarn-beta-slow", {}, "F", "LLAMA_ARG_YARN_BETA_SLOW", kRope},
      {"yarn-beta-fast", {}, "F", "LLAMA_ARG_YARN_BETA_FAST", kRope},
      {"log-file", {}, "FILE", "LLAMA_ARG_LOG_FILE", "the log is standard error: 2> FILE keeps it"},
      {"special", {"-sp"}, "", "", "answers never show control tokens", "serve"},
      {"grammar", {}, "GBNF", "", kByRequest, "serve"},
      {"grammar-file", {}, "FILE", "", kByRequest, "serve"},
      {"json-schema", {"-j"}, "SCHEMA", "", kByRequest, "serve"},
      {"json-schema-file", {"-jf"}, "FILE", "", kByRequest, "serve"},
      {"path",
       {},
       "DIR",
       "LLAMA_ARG_STATIC_PATH",
       "the server has pages of its own and serves no other files",
       "serve"},
      {"api-prefix", {}, "PREFIX", "LLAMA_ARG_API_PREFIX", "endpoints are at the root; a proxy can move them", "serve"},
      {"reuse-port", {}, "", "LLAMA_ARG_REUSE_PORT", "a port belongs to one server", "serve"},
      {"rerank", {"--reranking"}, "", "LLAMA_ARG_RERANKING", "there is no /rerank endpoint", "serve"},
      {"media-path", {}, "DIR", "LLAMA_ARG_MEDIA_PATH", kTextOnly, "serve"},
      {"models-dir", {}, "DIR", "LLAMA_ARG_MODELS_DIR", kOneModel, "serve"},
      {"models-preset", {}, "FILE", "LLAMA_ARG_MODELS_PRESET", kOneModel, "serve"},
      {"models-max", {}, "N", "LLAMA_ARG_MODELS_MAX", kOneModel, "serve"},
      {"models-autoload", {}, "", "LLAMA_ARG_MODELS_AUTOLOAD", kOneModel, "serve"},
      {"model-vocoder", {"-mv"}, "FILE", "", kTextOnly, "serve"},
      {"single-turn", {"-st"}, "", "", "a chat goes on until its input ends; a pipe of one line is one turn", "run"},
      {"prompt-cache", {}, "FILE", "", "--session FILE keeps what was computed", "run"},
      {"system-prompt-file", {"-sysf"}, "FILE", "", "--system takes the text itself", "run"},
      {"multiline-input", {"-mli"}, "", "", "a chat reads a line at a time", "run"},
      {"in-prefix", {}, "TEXT", "", "the chat template writes what stands around a message", "run"},
      {"in-suffix", {}, "TEXT", "", "the chat template writes what stands around a message", "run"},
  };
  return rows;
}

Param param_of(const Row& row, Handling handling) {
  return {.name = row.name,
          .aliases = row.aliases,
          .negations = row.negations,
          .type = row.value.empty() ? ParamType::flag : ParamType::text,
          .value = row.value,
          .env = row.env,
          .repeated = true,
          .handling = handling,
          .note = row.note};
}

}  // namespace

ParamList pasted_params(std::string_view command) {
  ParamList all;
  const auto has = [&](const auto& row) { return row.only.empty() || row.only == command; };
  all.push_back({.name = "flash-attn",
                 .aliases = {"-fa"},
                 .type = ParamType::text,
                 .value = "on|off|auto",
                 .choices = {"on", "off", "auto", "1", "0", "true", "false", "enabled", "disabled"},
                 .bare = true,
                 .env = "LLAMA_ARG_FLASH_ATTN",
                 .handling = Handling::noop,
                 .note = "attention is always computed in blocks"});
  all.push_back({.name = "cache-type-v",
                 .aliases = {"-ctv"},
                 .type = ParamType::text,
                 .value = "TYPE",
                 .env = "LLAMA_ARG_CACHE_TYPE_V",
                 .handling = Handling::noop,
                 .note = "--kv-type sets keys and values together, and another type is refused"});
  for (const Row& row : ignored()) {
    if (has(row)) all.push_back(param_of(row, Handling::noop));
  }
  for (const FixedRow& row : fixed()) {
    if (!has(row)) continue;
    Param p = param_of({row.name, row.aliases, row.value, row.env, row.note}, Handling::fixed);
    p.choices = row.accepted;
    all.push_back(p);
  }
  for (const Row& row : refused()) {
    if (has(row)) all.push_back(param_of(row, Handling::refused));
  }
  return all;
}

}  // namespace moetier::cli
