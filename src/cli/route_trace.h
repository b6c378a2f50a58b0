// --route-trace: what the router chooses, written while a run goes on.
#pragma once

#include <memory>

#include "cli/param.h"
#include "cli/settings.h"
#include "engine/route_log.h"

namespace moetier::cli {

ParamList route_trace_params();

/// The log that --route-trace asks for, or nullptr. Errors: a file that the run reads, or that cannot be written; a
/// model without experts. It is finished by RunFiles, if given to it, or by the caller.
std::unique_ptr<RouteLog> open_route_trace(const Settings& settings, Context& context);

}  // namespace moetier::cli
