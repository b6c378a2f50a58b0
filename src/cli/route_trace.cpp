#include "cli/route_trace.h"

#include <string_view>

#include "cli/support.h"

namespace moetier::cli {

ParamList route_trace_params() {
  return {{.name = "route-trace",
           .type = ParamType::path,
           .value = "FILE",
           .help = "Writes what the router chooses, token by token, with hits, misses and the bytes read (CSV, "
                   "docs/formats.md). It slows the run a little."}};
}

std::unique_ptr<RouteLog> open_route_trace(const Settings& settings, Context& context) {
  if (!settings.is_set("route-trace")) return nullptr;
  for (const std::string_view input : {"model", "file", "chat-template", "moe-cache-profile", "replay"}) {
    if (settings.has(input)) refuse_overwriting(settings, "route-trace", {input});
  }
  return std::make_unique<RouteLog>(context, settings.text("route-trace"), TraceKind::csv);
}

}  // namespace moetier::cli
