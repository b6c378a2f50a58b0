#include "tokenizer/template/arguments.h"

namespace moetier::jinja {

void bind_arguments(std::string_view function, const std::string_view* names, size_t count, size_t required,
                    Arguments& arguments, Naming naming, Value* out) {
  const size_t positional = arguments.positional.size();
  if (positional > count) {
    raise(FaultKind::type, "{} takes at most {} arguments ({} given)", function, count, positional);
  }
  for (size_t i = 0; i < count; ++i) {
    out[i] = i < positional ? std::move(arguments.positional[i]) : Value::missing();
  }
  if (naming == Naming::refused && !arguments.named.empty()) {
    raise(FaultKind::type, "{} takes no keyword arguments", function);
  }
  for (auto& [name, value] : arguments.named) {
    size_t at = 0;
    while (at < count && names[at] != name) ++at;
    if (at == count) raise(FaultKind::type, "{} got an unexpected keyword argument '{}'", function, name);
    if (!out[at].is_missing()) raise(FaultKind::type, "{} got multiple values for argument '{}'", function, name);
    out[at] = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i].is_missing()) raise(FaultKind::type, "{} is missing required argument: '{}'", function, names[i]);
  }
}

void bind_nothing(std::string_view function, Arguments& arguments) {
  bind_arguments(function, nullptr, 0, 0, arguments, Naming::refused, nullptr);
}

}  // namespace moetier::jinja
