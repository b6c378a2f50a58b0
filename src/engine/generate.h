// Generation: a prompt in, text out, until something says stop.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/answer.h"
#include "engine/context.h"

namespace moetier {

/// What one sampled token took, in seconds. What `wall` holds beside the others is the loop around them.
struct TokenTimes {
  double wall = 0;      ///< since the token before was known
  double decode = 0;    ///< computing its logits; 0 for the first, which has the prompt's
  double sampling = 0;  ///< choosing it
};

/// Told how a generation goes on; for meters and logs.
class GenerateWatcher {
 public:
  virtual ~GenerateWatcher() = default;
  virtual void started() {}
  /// The prompt was computed, or computing it was cancelled; `computed` of its tokens are new in the sequence.
  virtual void prompt_done(int64_t computed, double seconds) = 0;
  /// A token was sampled, and its text, if any, was handed out.
  virtual void token_done(TokenId token, const TokenTimes& times) = 0;
  /// Not called if an error ends it.
  virtual void finished() {}
};

struct GenerateOptions : AnswerOptions {
  const std::atomic<bool>* cancel = nullptr;  ///< ends it at once, also in the middle of a batch
  GenerateWatcher* watcher = nullptr;
};

struct GenerateResult {
  std::string text;  ///< empty for a model without vocabulary
  std::vector<TokenId>
      tokens;  ///< generated, without the one that ended it (end of generation, or the end of a stop text)
  StopReason reason = StopReason::length;
  int64_t prompt_tokens = 0, reused_tokens = 0;  ///< reused: of the prompt, already held and not computed again
  double prompt_seconds = 0;                     ///< computing the rest of the prompt
  /// Wall time of each sampled token, the ending one too, from when the one before it was known. The first needs no
  /// computing but the prompt's; the second is the first that a decode step made.
  std::vector<double> token_seconds;
};

/// Feeds `prompt` to the sequence, then samples. Positions that the sequence already holds with the same tokens are
/// reused: `held` lists the tokens it holds and is kept up to date, also when an error leaves this function. The
/// sequence then ends before the last token sampled. `on_text` receives text as it becomes certain (never half a
/// character, never part of a stop text); returning false cancels. Errors: an empty prompt, one longer than the
/// context, `held` that does not match the sequence, stop texts without a vocabulary.
GenerateResult generate(Context& context, SequenceState& sequence, std::vector<TokenId>& held,
                        std::span<const TokenId> prompt, const GenerateOptions& options,
                        const std::function<bool(std::string_view)>& on_text = {});

}  // namespace moetier
