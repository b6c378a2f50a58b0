// Where the answers to coding tasks come from: files, a model, a server.
#pragma once

#include <memory>
#include <string>

#include "cli/eval_tasks.h"
#include "cli/settings.h"

namespace moetier::cli {

struct Answer {
  std::string text;
  std::string problem;  ///< why there is none: one line
};

/// What a task is put as.
std::string question_of(const CodeTask& task);

class Answers {
 public:
  virtual ~Answers() = default;
  virtual Answer of(const CodeTask& task) = 0;
};

/// As the flags say: --answers; --url, or --port without a model: a server that runs; a model with --server or --port:
/// a server of its own; a model: in this process. Usage errors: none or several of them.
std::unique_ptr<Answers> answers_of(const Settings& settings);

/// Asks a server through /v1/chat/completions, greedy. `url`: http://HOST:PORT, with a path in front of /v1 if it has
/// one. Errors: an address that is none, a server that does not answer or refuses the key. A request that it refuses is
/// an answer's problem.
std::unique_ptr<Answers> answers_of_server(const std::string& url, const std::string& key, int64_t max_tokens);

}  // namespace moetier::cli
