#include "server/request.h"

#include <fmt/format.h>

namespace moetier {

std::string_view to_string(Finish finish) {
  switch (finish) {
    case Finish::end_of_generation:
      return "end of generation";
    case Finish::stop_text:
      return "stop text";
    case Finish::length:
      return "length";
    case Finish::context_full:
      return "context full";
    case Finish::timed_out:
      return "timed out";
    case Finish::cancelled:
      return "cancelled";
    case Finish::stalled:
      return "stalled";
    case Finish::shutdown:
      return "shutdown";
    case Finish::failed:
      return "failed";
  }
  return "unknown";
}

double RequestUsage::prompt_tok_s() const {
  return computed_tokens > 0 && prompt_seconds > 0 ? static_cast<double>(computed_tokens) / prompt_seconds : 0;
}

double RequestUsage::decode_tok_s() const {
  return sampled_tokens > 1 && decode_seconds > 0 ? static_cast<double>(sampled_tokens - 1) / decode_seconds : 0;
}

ContextOverflow::ContextOverflow(int64_t prompt_tokens, int64_t context)
    : Error(ErrorKind::usage,
            fmt::format("the prompt has {} tokens and the context of a slot holds {}: shorten the prompt, or serve "
                        "with a larger --ctx",
                        prompt_tokens, context)),
      prompt_tokens_(prompt_tokens),
      context_(context) {}

}  // namespace moetier
