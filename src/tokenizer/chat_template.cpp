#include "tokenizer/chat_template.h"

#include "base/error.h"
#include "tokenizer/template/program.h"

namespace moetier {
namespace {

[[noreturn]] void report(const jinja::Fault& fault, const char* stage) {
  const std::string where = fault.line() > 0 ? fmt::format(", line {}", fault.line()) : std::string();
  fail("the chat template {}{}: {}", stage, where, fault.message());
}

}  // namespace

struct ChatTemplate::Impl {
  explicit Impl(std::string_view source) : program(source, jinja::Limits{}) {}
  jinja::Program program;
};

ChatTemplate::ChatTemplate(std::string_view source) {
  try {
    impl_ = std::make_unique<Impl>(source);
  } catch (const jinja::Fault& fault) {
    report(fault, "does not compile");
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const nlohmann::ordered_json& variables) const {
  try {
    return impl_->program.render(variables, jinja::Limits{}, std::chrono::system_clock::now());
  } catch (const jinja::Fault& fault) {
    report(fault, "failed");
  }
}

}  // namespace moetier
