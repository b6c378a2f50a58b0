#include "cli/windows.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/progress.h"

namespace moetier::cli {

int64_t usual_window(const Engine& engine) {
  const int64_t own = engine.model().hparams().context_length;
  return own > 0 ? std::min(own, kUsualWindow) : kUsualWindow;
}

void run_windows(Context& context, std::span<const TokenId> tokens, std::string_view what) {
  Progress progress{std::string(what)};
  const ContextOptions& options = context.options();
  const auto window = static_cast<size_t>(options.context);
  const auto step = static_cast<size_t>(options.group_rows);
  SequenceState sequence = context.new_sequence();
  std::vector<BatchRow> rows;
  for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
    if (first % window == 0) sequence.truncate(0);
    end = std::min({first + step, first - first % window + window, tokens.size()});
    rows.clear();
    for (size_t i = first; i < end; ++i) rows.push_back({tokens[i], &sequence, false});
    context.decode(rows);
    progress.update(end, tokens.size());
  }
}

}  // namespace moetier::cli
