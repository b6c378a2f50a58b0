// The web pages, built into the program. web/dist holds them: index.html becomes "/", monitor.html "/monitor", any
// other file "/assets/NAME". CMake embeds what is there when it is configured (cmake/EmbedPages.cmake); without it
// there are no pages.
#pragma once

#include <span>
#include <string_view>

namespace moetier::server {

struct Page {
  std::string_view path;  ///< a pattern for the router; without special characters it is the path itself
  std::string_view type;  ///< of the content
  std::string_view bytes;
};

std::span<const Page> pages();

}  // namespace moetier::server
