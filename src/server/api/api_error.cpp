#include "server/api/api_error.h"

#include <new>

#include "base/error.h"
#include "server/request.h"

namespace moetier::server {
namespace {

std::string_view openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string_view default_code(int status) {
  switch (status) {
    case 401:
      return "invalid_api_key";
    case 404:
      return "not_found";
    case 429:
      return "rate_limit_exceeded";
    default:
      return "";
  }
}

}  // namespace

Api api_of(std::string_view path) {
  if (path.starts_with("/v1/messages")) return Api::anthropic;
  return path.starts_with("/v1/") ? Api::openai : Api::native;
}

namespace {

std::string without_controls(std::string_view text, std::string_view but) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x20 && byte != 0x7f) || but.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return without_controls(text, "\n\t");
}

std::string one_line(std::string_view text) {
  return without_controls(text, "");
}

void bad_field(const std::string& field, const std::string& sentence) {
  throw ApiError(400, sentence, field);
}

ApiError to_api_error(std::exception_ptr what) {
  try {
    std::rethrow_exception(what);
  } catch (const ApiError& error) {
    return error;
  } catch (const Busy& error) {
    ApiError answer(429, error.what());
    answer.retry_after = error.retry_after_seconds();
    return answer;
  } catch (const Stopping& error) {
    return ApiError(503, error.what());
  } catch (const NotThere& error) {
    return ApiError(404, error.what());
  } catch (const ContextOverflow& error) {
    ApiError answer(400, error.what(), "", "context_length_exceeded");
    answer.details = {{"n_prompt_tokens", error.prompt_tokens()}, {"n_ctx", error.context()}};
    return answer;
  } catch (const Error& error) {
    return ApiError(error.kind() == ErrorKind::usage ? 400 : 500, error.what());
  } catch (const std::bad_alloc&) {
    return ApiError(500, "out of memory; a smaller request needs less");
  } catch (const std::exception& error) {
    return ApiError(500, error.what());
  }
}

Json error_body(Api api, const ApiError& error) {
  const int status = error.status();
  const bool overflow = error.code() == "context_length_exceeded";
  if (api == Api::anthropic) {
    std::string message = error.what();
    // Clients look for Anthropic's own words.
    if (overflow && error.details.contains("n_ctx")) {
      message = "prompt is too long: " + error.details["n_prompt_tokens"].dump() + " tokens > " +
                error.details["n_ctx"].dump() + " maximum; " + message;
    }
    return {{"type", "error"}, {"error", {{"type", anthropic_type(status)}, {"message", message}}}};
  }
  Json body = {
      {"message", error.what()},
      {"type", api == Api::native && overflow ? std::string_view("exceed_context_size_error") : openai_type(status)}};
  if (api == Api::openai) {
    body["param"] = error.param().empty() ? Json() : Json(error.param());
    const std::string code = error.code().empty() ? std::string(default_code(status)) : error.code();
    body["code"] = code.empty() ? Json() : Json(code);
  } else {
    body["code"] = status;
    if (!error.param().empty()) body["param"] = error.param();
  }
  for (const auto& [name, value] : error.details.items()) body[name] = value;
  return {{"error", body}};
}

}  // namespace moetier::server
