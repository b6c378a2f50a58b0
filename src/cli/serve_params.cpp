#include "cli/serve_params.h"

#include "cli/param_groups.h"
#include "cli/pasted_flags.h"
#include "cli/residency_params.h"

namespace moetier::cli {
namespace {

using T = ParamType;

ParamList address_params() {
  return {
      {.name = "host",
       .type = T::text,
       .value = "H",
       .fallback = "127.0.0.1",
       .help = "Address or name to listen on; 0.0.0.0 or :: is every interface, which wants an --api-key.",
       .env = "LLAMA_ARG_HOST"},
      {.name = "port",
       .type = T::integer,
       .value = "N",
       .fallback = "8080",
       .help = "Port to listen on; 0 takes any that is free and says which.",
       .min = 0,
       .max = 65535,
       .env = "LLAMA_ARG_PORT"},
      {.name = "alias",
       .aliases = {"-a"},
       .type = T::text,
       .value = "NAME",
       .help = "The model's name as clients see it; without it, the file's name.",
       .env = "LLAMA_ARG_ALIAS"},
      {.name = "api-key",
       .type = T::text,
       .value = "KEY",
       .help = "Serves only who sends this key (Authorization: Bearer, or X-Api-Key); several are separated by commas. "
               "It shows in the process list; "
               "--api-key-file does not.",
       .env = "LLAMA_API_KEY",
       .repeated = true},
      {.name = "api-key-file",
       .type = T::path,
       .value = "FILE",
       .help = "Keys, one a line; empty lines and those that begin with # are skipped.",
       .env = "LLAMA_ARG_API_KEY_FILE"},
      {.name = "ssl-key-file",
       .type = T::path,
       .value = "FILE",
       .help = "The key for TLS (PEM).",
       .env = "LLAMA_ARG_SSL_KEY_FILE"},
      {.name = "ssl-cert-file",
       .type = T::path,
       .value = "FILE",
       .help = "The certificate for TLS (PEM, with its chain).",
       .env = "LLAMA_ARG_SSL_CERT_FILE"},
      {.name = "cors-origin",
       .type = T::text,
       .value = "ORIGIN",
       .help = "Lets web pages of this origin (https://HOST, or null for a file) read /metrics, /slots and /props."},
      {.name = "webui",
       .aliases = {"--ui"},
       .type = T::flag,
       .fallback = "true",
       .help = "Serves the chat at / and the monitor at /monitor, where they were built in.",
       .env = "LLAMA_ARG_WEBUI",
       .env_alias = "LLAMA_ARG_UI"},
  };
}

ParamList serving_params() {
  return {
      {.name = "parallel",
       .aliases = {"-np"},
       .type = T::integer,
       .value = "N",
       .fallback = "1",
       .help =
           "Slots: requests that are generated together. Each has --ctx positions. The answer does not depend on it.",
       .min = 1,
       .max = 256,
       .unset = "-1",
       .env = "LLAMA_ARG_N_PARALLEL"},
      {.name = "queue",
       .type = T::integer,
       .value = "N",
       .fallback = "64",
       .help = "Requests that may wait for a slot; one more is refused with 429.",
       .min = 0,
       .max = 4096},
      {.name = "prompt-slice",
       .type = T::integer,
       .value = "N",
       .fallback = "0",
       .help =
           "Rows of a prompt that are computed between the tokens of others; 0 follows from the speed measured. The "
           "answer does not depend on it.",
       .min = 0,
       .max = 65536},
      {.name = "chat-template",
       .aliases = {"--chat-template-file"},
       .type = T::path,
       .value = "FILE",
       .help = "The chat template (Jinja), instead of the model's own.",
       .env = "LLAMA_ARG_CHAT_TEMPLATE_FILE"},
      {.name = "reasoning-budget",
       .type = T::integer,
       .value = "N",
       .fallback = "-1",
       .help = "Tokens that a chat's answer may think, where a request says nothing else; then the thought is ended. 0 "
               "switches thinking off, -1 is no limit.",
       .min = -1,
       .max = 2147483647,
       .env = "LLAMA_ARG_REASONING_BUDGET",
       .env_alias = "LLAMA_ARG_THINK_BUDGET"},
      {.name = "reasoning-format",
       .type = T::choice,
       .value = "WHAT",
       .fallback = "auto",
       .help =
           "Where thoughts go, if a request says nothing else: auto and deepseek take them out of the content, none "
           "leaves them in it.",
       .choices = {"none", "deepseek", "auto"},
       .env = "LLAMA_ARG_REASONING_FORMAT",
       .env_alias = "LLAMA_ARG_THINK"},
      {.name = "chat-template-kwargs",
       .type = T::text,
       .value = "JSON",
       .help = "Variables for the chat template, an object; a request's chat_template_kwargs count before them.",
       .env = "LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
       .env_alias = "LLAMA_CHAT_TEMPLATE_KWARGS"},
      {.name = "pooling",
       .type = T::choice,
       .value = "WHAT",
       .fallback = "auto",
       .help = "Which hidden states make a text's embedding: mean, cls (the first token's), last; auto takes what the "
               "model says, else last.",
       .choices = {"auto", "mean", "cls", "last"},
       .env = "LLAMA_ARG_POOLING"},
      {.name = "prompt-cache-dir",
       .type = T::path,
       .value = "DIR",
       .help = "Keeps the states of finished prompts here, so that they need not be computed again, by a later run "
               "either."},
      {.name = "prompt-cache-mb",
       .aliases = {"--prompt-cache-mib"},
       .type = T::integer,
       .value = "N",
       .fallback = "4096",
       .help = "Size of --prompt-cache-dir at most; the oldest unused are removed.",
       .min = 1,
       .max = 16777216},
      {.name = "slot-save-path",
       .type = T::path,
       .value = "DIR",
       .help = "Where POST /slots/ID?action=save keeps its files.",
       .env = "LLAMA_ARG_SLOT_SAVE_PATH"},
      {.name = "n",
       .aliases = {"-n", "--predict", "--n-predict"},
       .type = T::integer,
       .value = "N",
       .fallback = "-1",
       .help = "Tokens of an answer where a request says nothing; -1 goes on until the model ends or the slot is full.",
       .min = -1,
       .max = 2147483647,
       .env = "LLAMA_ARG_N_PREDICT"},
  };
}

ParamList limit_params() {
  return {
      {.name = "request-timeout",
       .type = T::real,
       .value = "S",
       .fallback = "0",
       .help = "Seconds from a request to its last token; then the answer ends. 0 = no limit.",
       .min = 0,
       .max = 1e6},
      {.name = "timeout",
       .aliases = {"-to"},
       .type = T::real,
       .value = "S",
       .fallback = "30",
       .help = "Seconds that a client may take to send its request, and for each 16 KiB of the answer that it reads. A "
               "reader that is slower loses its connection, and its slot.",
       .min = 1,
       .max = 1e6,
       .env = "LLAMA_ARG_TIMEOUT"},
      {.name = "keep-alive",
       .type = T::real,
       .value = "S",
       .fallback = "15",
       .help = "Seconds of silence in a stream before a sign of life is sent.",
       .min = 0.1,
       .max = 1e6},
      {.name = "max-body-mib",
       .type = T::integer,
       .value = "N",
       .fallback = "32",
       .help = "The largest body of a request, also if it is chunked or compressed.",
       .min = 1,
       .max = 4096},
      {.name = "max-connections",
       .type = T::integer,
       .value = "N",
       .fallback = "1024",
       .help = "Connections that may be open; more are refused.",
       .min = 8,
       .max = 65536},
      {.name = "drain-timeout",
       .type = T::real,
       .value = "S",
       .fallback = "30",
       .help = "At SIGTERM or Ctrl-C: seconds for the requests under way to end. A second signal ends them at once.",
       .min = 0,
       .max = 1e6},
      {.name = "log-prompts",
       .type = T::flag,
       .help = "Writes prompts and answers to standard error. Without it nothing of them is logged."},
  };
}

ParamList fit_params() {
  return {
      {.name = "dry-run",
       .type = T::flag,
       .help = "Prints what would be chosen and why (experts, cache, context, ubatch), and ends."},
      {.name = "favor",
       .type = T::choice,
       .value = "WHAT",
       .fallback = "generation",
       .help = "What memory goes to first where it is short: a large ubatch for prompts, or the cache for generation.",
       .choices = {"prompt", "generation"}},
      {.name = "margin-mib",
       .type = T::integer,
       .value = "N",
       .fallback = "400",
       .help = "MiB of memory to leave free; --cache-floor-mb, if given, says it instead.",
       .min = 0,
       .max = 16777216},
      {.name = "min-cache-mib",
       .type = T::integer,
       .value = "N",
       .fallback = "1500",
       .help = "Context and ubatch are made smaller before the expert cache gets less than this.",
       .min = 0,
       .max = 16777216},
  };
}

/// The groups that other subcommands have, with serve's own defaults.
ParamList shared_params() {
  ParamList all = join({model_params(), sampling_params(), compute_params(), residency_params()});
  for (Param& p : all) {
    if (p.name == "ctx") {
      p.fallback = "auto";
      p.choices = {"auto"};
      p.help = "Positions of each slot; auto takes the model's own, up to 32768, and less where memory is short.";
    } else if (p.name == "ubatch") {
      p.fallback = "auto";
      p.choices = {"auto"};
      p.help =
          "Rows computed at once in a prompt; auto follows from memory and --favor. The answer does not depend on "
          "it.";
    } else if (p.name == "cache-mb") {
      p.aliases.push_back("--cache-mib");
    } else if (p.name == "moe-cache-profile") {
      p.aliases.push_back("--profile");
    }
  }
  return all;
}

}  // namespace

Command serve_command() {
  return {.name = "serve",
          .summary = "Serve a model over HTTP",
          .description =
              "Answers OpenAI's, Anthropic's and llama-server's APIs on 127.0.0.1:8080, as many requests at a time as "
              "--parallel says. "
              "Without further flags it fits cache, context and ubatch to the machine. docs/server.md has the "
              "endpoints.",
          .positionals = {{.name = "MODEL", .help = "The model, a GGUF file.", .param = "model", .required = false}},
          .params = join({address_params(), serving_params(), limit_params(), fit_params(), shared_params(),
                          log_params(), pasted_params("serve")}),
          .examples = {"moetier serve -m MODEL",
                       "moetier serve -m MODEL --parallel 4 --api-key-file keys.txt --host 0.0.0.0",
                       "moetier serve -m MODEL --dry-run"},
          .run = run_serve,
          .flags_after_dashes = true};
}

Command check_api_command() {
  ParamList own = {
      {.name = "url",
       .type = T::text,
       .value = "URL",
       .help = "Asks a server that runs, of whatever make, instead of one of its own: http://HOST:PORT."},
      {.name = "api-key",
       .type = T::text,
       .value = "KEY",
       .help =
           "The key that the server at --url asks for. With it, answers without it and with a wrong one are checked.",
       .env = "LLAMA_API_KEY"},
      {.name = "max-tokens",
       .type = T::integer,
       .value = "N",
       .fallback = "256",
       .help = "Tokens of documents and tool calls at most; a model that thinks before them needs more.",
       .min = 16,
       .max = 1048576},
      {.name = "complete",
       .type = T::flag,
       .help = "With --url: an endpoint that is not there is a failure. It always is for a server of its own."}};
  return {
      .name = "check-api",
      .summary = "Check a server's APIs",
      .description =
          "Starts a server of its own with a cache that the profile fills, or takes one that runs (--url), and asks it "
          "through its socket: OpenAI's, Anthropic's and llama-server's endpoints, whole and streamed, with tools, "
          "schemas, grammars and logprobs, the shape of every answer and event, errors, context overflow, API keys, "
          "and clients that hang up. Prints a line for each check; exit code 1 if one failed. docs/tools.md has more.",
      .positionals = {{.name = "MODEL", .help = "The GGUF file.", .param = "model", .required = false},
                      {.name = "PROFILE", .help = "The profile (STRP).", .param = "profile", .required = false}},
      .params = join({model_params(), check_params(), {audit_param()}, own, log_params()}),
      .examples = {"moetier check-api MODEL PROFILE", "moetier check-api --url http://127.0.0.1:8080 --api-key KEY"},
      .run = run_check_api};
}

}  // namespace moetier::cli
