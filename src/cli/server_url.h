// The address of a server that runs.
#pragma once

#include <string>

namespace moetier::cli {

struct ServerUrl {
  std::string host;    ///< "http://host:8080", as httplib wants it
  std::string prefix;  ///< stands before every path; without / at its end
};

/// "http://host:8080/prefix" taken apart; /v1 at its end, which OpenAI's clients write, is left out. Errors (usage): no
/// address.
ServerUrl parse_server_url(const std::string& url);

}  // namespace moetier::cli
