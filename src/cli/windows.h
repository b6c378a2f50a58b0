// A text of any length through a model, window by window: for what only looks at the routing.
#pragma once

#include <span>
#include <string_view>

#include "engine/context.h"

namespace moetier::cli {

/// Tokens in a window, unless told otherwise.
inline constexpr int64_t kUsualWindow = 4096;
/// The same, or the model's own context where that is shorter.
int64_t usual_window(const Engine& engine);

/// Runs the tokens in windows of the context's size, each as a prompt of its own. `what` stands beside the progress.
void run_windows(Context& context, std::span<const TokenId> tokens, std::string_view what);

}  // namespace moetier::cli
