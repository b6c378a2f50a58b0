#include "tokenizer/template/globals.h"

#include <ctime>

#include "tokenizer/template/arguments.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

Value make_range(Interpreter&, Arguments&& arguments) {
  auto [first, second, third] = bind<3>("range", {"start", "stop", "step"}, 1, arguments, Naming::refused);
  constexpr std::string_view what = "range() needs integers";
  for (const Value* value : {&first, &second, &third}) {
    if (value->is_undefined()) raise(FaultKind::type, "'Undefined' object cannot be interpreted as an integer");
  }
  const Integer step = third.is_missing() ? 1 : as_index(third, what);
  const Integer start = second.is_missing() ? 0 : as_index(first, what);
  const Integer stop = as_index(second.is_missing() ? first : second, what);
  return Value::object(std::make_shared<Range>(start, stop, step));
}

/// What dict(...) makes of its arguments.
void fill_dict(DictData& dict, Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    raise(FaultKind::type, "dict expected at most 1 argument, got {}", arguments.positional.size());
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (source.is_undefined()) raise_undefined(source);
    if (source.is(Kind::dict)) {
      for (const auto& [key, value] : source.dict_data().entries()) dict.set(key, value);
    } else {
      const auto iterator = iterate(source);
      for (Value pair; iterator->next(pair);) {
        if (!is_iterable(pair)) raise(FaultKind::type, "cannot convert dictionary update sequence to a sequence");
        const std::vector<Value> both = collect(pair);
        if (both.size() != 2)
          raise(FaultKind::value, "dictionary update sequence element has length {}; 2 is required", both.size());
        dict.set(both[0], both[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) dict.set(Value::string(name), std::move(value));
}

Value make_dict(Interpreter&, Arguments&& arguments) {
  auto dict = std::make_shared<DictData>();
  fill_dict(*dict, arguments);
  return Value::dict(std::move(dict));
}

Value make_namespace(Interpreter&, Arguments&& arguments) {
  auto space = std::make_shared<Namespace>();
  fill_dict(space->attributes(), arguments);
  return Value::object(std::move(space));
}

class Cycler : public Object {
 public:
  explicit Cycler(Value items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::string_view module_name() const override { return "jinja2.utils"; }

  Value attribute(std::string_view name) override {
    if (name == "items") return items_;
    if (name == "pos") return Value::integer(static_cast<Integer>(position_));
    if (name == "current") return items_.items()[position_];
    if (name == "next" || name == "reset") {
      return Value::object(std::make_shared<BoundMethod>(
          Value::object(shared_from_this()), name == "next" ? "next" : "reset", name == "next" ? next : reset));
    }
    return Value::missing();
  }

 private:
  static Value next(Interpreter&, const Value& self, Arguments&& arguments) {
    bind_nothing("next", arguments);
    auto& cycler = static_cast<Cycler&>(self.as_object());
    const auto& items = cycler.items_.items();
    Value value = items[cycler.position_];
    cycler.position_ = (cycler.position_ + 1) % items.size();
    return value;
  }
  static Value reset(Interpreter&, const Value& self, Arguments&& arguments) {
    bind_nothing("reset", arguments);
    static_cast<Cycler&>(self.as_object()).position_ = 0;
    return Value::none();
  }

  Value items_;
  size_t position_ = 0;
};

Value make_cycler(Interpreter&, Arguments&& arguments) {
  if (!arguments.named.empty()) raise(FaultKind::type, "cycler() takes no keyword arguments");
  if (arguments.positional.empty()) raise(FaultKind::runtime, "at least one item has to be provided");
  return Value::object(std::make_shared<Cycler>(Value::tuple(std::move(arguments.positional))));
}

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  std::string_view module_name() const override { return "jinja2.utils"; }
  bool callable() const override { return true; }
  Value attribute(std::string_view name) override {
    if (name == "sep") return separator_;
    return name == "used" ? Value::boolean(used_) : Value::missing();
  }
  Value call(Interpreter&, Arguments&& arguments) override {
    bind_nothing("joiner", arguments);
    if (used_) return separator_;
    used_ = true;
    return Value::string("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_joiner(Interpreter&, Arguments&& arguments) {
  auto [separator] = bind<1>("joiner", {"sep"}, 0, arguments);
  return Value::object(std::make_shared<Joiner>(given_or(separator, Value::string(", "))));
}

Value raise_exception(Interpreter&, Arguments&& arguments) {
  auto [message] = bind<1>("raise_exception", {"message"}, 1, arguments);
  raise(FaultKind::raised, "{}", str(message));
}

/// datetime.now().strftime(format)
Value strftime_now(Interpreter& interpreter, Arguments&& arguments) {
  auto [format] = bind<1>("strftime_now", {"format"}, 1, arguments);
  if (!format.is_string()) raise(FaultKind::type, "strftime() argument 1 must be str, not {}", type_name(format));
  const auto now = interpreter.now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micro = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  std::string out;
  const std::string_view text = format.text().substr(0, format.text().find('\0'));  // where C ends a format
  spend_on_characters(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    check_text_size(out.size());
    if (text[at] != '%' || at + 1 == text.size()) {
      out += text[at];
      continue;
    }
    spend(16);
    std::string directive = "%";
    do {
      directive += text[++at];  // with the flags and widths that C allows
    } while (at + 1 < text.size() && directive.size() < 5 &&
             std::string_view("-_0^#EO123456789").find(text[at]) != std::string_view::npos);
    if (directive == "%f") {
      out += fmt::format("{:06d}", micro);
    } else if (directive != "%z" && directive != "%Z") {  // a time without a zone has none to name
      char buffer[256];
      out.append(buffer, std::strftime(buffer, sizeof(buffer), directive.c_str(), &local));
    }
  }
  return Value::string(repaired_utf8(out));
}

Value refuse_lipsum(Interpreter&, Arguments&&) {
  raise(FaultKind::unsupported, "lipsum is refused, since a template must render alike every time");
}

}  // namespace

void add_globals(Context& context) {
  const auto add = [&](const char* name, NativeFunction function, bool is_type) {
    context.variables[name] = Value::object(std::make_shared<Function>(name, function, is_type));
  };
  add("range", make_range, false);
  add("dict", make_dict, true);
  add("namespace", make_namespace, true);
  add("cycler", make_cycler, true);
  add("joiner", make_joiner, true);
  add("lipsum", refuse_lipsum, false);
  add("raise_exception", raise_exception, false);
  add("strftime_now", strftime_now, false);
}

}  // namespace moetier::jinja
