#include "tokenizer/template/program.h"

#include "tokenizer/template/globals.h"
#include "tokenizer/template/interpreter.h"
#include "tokenizer/template/parser.h"
#include "tokenizer/template/resolver.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

Value string_value(const std::string& text) {
  return Value::string(is_valid_utf8(text) ? text : repaired_utf8(text));
}

Value convert(const nlohmann::ordered_json& json, int nesting) {
  using Type = nlohmann::ordered_json::value_t;
  if (nesting <= 0) raise(FaultKind::limit, "the variables nest too deeply");
  switch (json.type()) {
    case Type::null:
      return Value::none();
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned:
      return Value::integer(json.get<uint64_t>());
    case Type::number_float:
      return Value::real(json.get<double>());
    case Type::string:
      return string_value(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, nesting - 1));
      return Value::list(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<DictData>();
      for (const auto& [key, item] : json.items()) dict->set(string_value(key), convert(item, nesting - 1));
      return Value::dict(std::move(dict));
    }
    default:
      raise(FaultKind::type, "the variables hold something that is not JSON");
  }
}

}  // namespace

Value value_from_json(const nlohmann::ordered_json& json) {
  return convert(json, Limits{}.value_nesting);
}

Program::Program(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source) {
    raise(FaultKind::limit, "its {} bytes are more than the limit of {}", source.size(), limits.source);
  }
  if (!is_valid_utf8(source)) raise(FaultKind::syntax, "it is not valid UTF-8");
  const Budget budget(limits, false);
  parsed_ = parse_template(source);
  resolve(*parsed_);
}

std::string Program::render(const nlohmann::ordered_json& variables, const Limits& limits,
                            std::chrono::system_clock::time_point now) const {
  const Budget budget(limits);
  const Tracked::Scope scope;
  auto globals = std::make_shared<Context>();
  add_globals(*globals);
  auto given = std::make_shared<Context>();
  given->outer = std::move(globals);
  if (!variables.is_object() && !variables.is_null()) raise(FaultKind::type, "the variables are not a JSON object");
  for (const auto& [name, value] : variables.items()) given->variables[repaired_utf8(name)] = value_from_json(value);
  return Interpreter(*parsed_, std::move(given), now).run();
}

}  // namespace moetier::jinja
