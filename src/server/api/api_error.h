// Errors as each API writes them.
#pragma once

#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace moetier::server {

using Json = nlohmann::ordered_json;

/// Whose shapes an endpoint speaks.
enum class Api { openai, anthropic, native };

/// The API of a path: Anthropic's for /v1/messages, OpenAI's for the rest of /v1, llama-server's for others.
Api api_of(std::string_view path);

/// `text` with %XX in place of control characters (but line ends and tabs): what a client sent, fit for a sentence.
std::string printable(std::string_view text);
/// The same of line ends and tabs too, fit for a line of the log.
std::string one_line(std::string_view text);

/// An answer with an error status. `what()` is one sentence; control characters in it are made printable.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& sentence, std::string param = "", std::string code = "")
      : std::runtime_error(printable(sentence)), status_(status), param_(std::move(param)), code_(std::move(code)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }  ///< the field that was wrong; empty if it was none
  const std::string& code() const { return code_; }    ///< a word for programs; empty = chosen by status
  int retry_after = 0;                                 ///< seconds; 0 = not told
  Json details = Json::object();                       ///< added to llama-server's and OpenAI's error object

 private:
  int status_;
  std::string param_, code_;
};

/// 400 for a wrong field.
[[noreturn]] void bad_field(const std::string& field, const std::string& sentence);

/// What happened, as an answer: the scheduler's errors with their statuses, wrong usage as 400, others as 500.
ApiError to_api_error(std::exception_ptr what);

/// {"error": ...} as this API's clients expect it.
Json error_body(Api api, const ApiError& error);

}  // namespace moetier::server
