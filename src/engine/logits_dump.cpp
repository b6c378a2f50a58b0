#include "engine/logits_dump.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace moetier {

static_assert(std::endian::native == std::endian::little, "logits are written as they lie in memory");

void dump_logits(Context& context, std::span<const TokenId> tokens, const std::string& path,
                 const std::function<void(int64_t, int64_t)>& progress) {
  if (tokens.empty()) fail("there are no tokens to compute logits of");
  const ContextOptions& options = context.options();
  if (static_cast<int64_t>(tokens.size()) > options.context) {
    fail("there are {} tokens and the context holds {}: raise the context size", tokens.size(), options.context);
  }
  AtomicFile file(path);
  SequenceState sequence = context.new_sequence();
  std::vector<BatchRow> rows;
  const auto step = static_cast<size_t>(options.group_rows);
  for (size_t first = 0; first < tokens.size(); first += step) {
    rows.clear();
    for (const TokenId token : tokens.subspan(first, std::min(step, tokens.size() - first))) {
      rows.push_back({token, &sequence, true});
    }
    context.decode(rows,
                   [&](int64_t, std::span<const float> logits) { file.write(logits.data(), logits.size_bytes()); });
    if (progress) progress(sequence.length(), static_cast<int64_t>(tokens.size()));
  }
  file.commit();
}

}  // namespace moetier
