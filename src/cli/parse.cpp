#include "cli/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/nearest.h"

namespace moetier::cli {
namespace {

/// What a flag's name stands for.
struct Meaning {
  const Param* param = nullptr;
  bool on = true;  ///< of a flag: false for its negation
};

bool is_long(std::string_view name) {
  return name.size() > 2 && name.starts_with("--");
}

bool is_numbers(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789,") == std::string_view::npos;
}

bool is_number_type(const Param& p) {
  return p.type == ParamType::integer || p.type == ParamType::real;
}

class Parser {
 public:
  Parser(const Command& command, const std::vector<std::string>& arguments) : command_(command), words_(arguments) {
    for (const Param& p : command.params) {
      add_name(fmt::format("--{}", p.name), p);
      for (const std::string_view alias : p.aliases) add_name(std::string(alias), p);
      for (const std::string_view name : p.negations) names_[std::string(name)] = {&p, false};
    }
  }

  Parsed parse() {
    bool literal = false;
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (literal || word.size() < 2 || word[0] != '-') {
        take_bare(word, literal);
      } else if (word == "--") {
        list_ = nullptr;
        literal = !command_.flags_after_dashes;
      } else {
        take_flag(word);
      }
    }
    if (!unknown_.empty()) refuse_unknown();
    place_bare();
    return std::move(parsed_);
  }

 private:
  void add_name(const std::string& name, const Param& p) {
    names_[name] = {&p, true};
    if (p.type == ParamType::flag && is_long(name)) names_["--no-" + name.substr(2)] = {&p, false};
  }

  /// A word that is no flag: one more value of the list before it, or an argument by its place.
  void take_bare(const std::string& word, bool literal) {
    if (!literal && list_ != nullptr && (list_->type == ParamType::path || is_numbers(word))) {
      parsed_.given[std::string(list_->name)].values.push_back(word);
      return;
    }
    list_ = nullptr;
    bare_.push_back(word);
  }

  void take_flag(const std::string& word) {
    list_ = nullptr;
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name == "-h" || name == "--help") {
      parsed_.help = true;
      return;
    }
    const auto found = names_.find(name);
    if (found == names_.end()) {
      if (!take_glued(word)) unknown_.push_back(name);
      return;
    }
    const Param& p = *found->second.param;
    if (p.type == ParamType::flag) {
      if (equals != std::string::npos) usage_error("{} takes no value, and '{}' was given", name, word);
      take_switch(p, name, found->second.on);
    } else if (equals != std::string::npos) {
      add_value(p, name, word.substr(equals + 1));
    } else {
      take_value(p, name);
    }
  }

  /// "-t4": the flag of a number and the number.
  bool take_glued(const std::string& word) {
    const auto found = names_.find(word.substr(0, 2));
    if (word[1] == '-' || found == names_.end() || !is_number_type(*found->second.param)) return false;
    const std::string rest = word.substr(2);
    if (rest.find_first_of("0123456789") > 1 || rest.find_first_not_of("+-.0123456789") != std::string::npos)
      return false;
    add_value(*found->second.param, found->first, rest);
    return true;
  }

  void take_switch(const Param& p, const std::string& name, bool on) {
    const auto it = parsed_.given.find(p.name);
    if (it != parsed_.given.end() && (it->second.values.back() == "true") != on)
      usage_error("{} and {} exclude each other", it->second.typed, name);
    parsed_.given[std::string(p.name)] = {{on ? "true" : "false"}, Source::typed, name};
  }

  void take_value(const Param& p, const std::string& name) {
    const bool more = at_ < words_.size();
    if (p.bare && (!more || std::ranges::find(p.choices, words_[at_]) == p.choices.end())) {
      add_value(p, name, std::string(p.choices.front()));
      return;
    }
    if (!more) usage_error("{} needs a value; see 'moetier {} --help'", name, command_.name);
    const std::string& value = words_[at_++];
    if (is_long(value) && names_.contains(value.substr(0, value.find('=')))) {
      usage_error("{} needs a value, and the flag {} follows; see 'moetier {} --help'", name, value, command_.name);
    }
    add_value(p, name, value);
    if (p.many) list_ = &p;
  }

  void add_value(const Param& p, const std::string& name, const std::string& value) {
    if (value.empty() && p.type != ParamType::text)
      usage_error("{} needs a value; see 'moetier {} --help'", name, command_.name);
    Given& given = parsed_.given[std::string(p.name)];
    given.values.push_back(value);
    given.source = Source::typed;
    given.typed = name;
  }

  [[noreturn]] void refuse_unknown() const {
    std::vector<std::string> known, near;
    for (const auto& [name, meaning] : names_) known.push_back(name);
    for (const std::string& wrong : unknown_) {
      const std::string guess = nearest_word(wrong, known);
      if (!guess.empty() && std::ranges::find(near, guess) == near.end()) near.push_back(guess);
    }
    usage_error("unknown flag{} {} for 'moetier {}'; {}see 'moetier {} --help'", unknown_.size() == 1 ? "" : "s",
                fmt::join(unknown_, ", "), command_.name,
                near.empty() ? "" : fmt::format("did you mean {}? ", fmt::join(near, ", ")), command_.name);
  }

  [[noreturn]] void refuse_bare(const std::string& word) const {
    usage_error("'moetier {}' does not take the argument '{}'; see 'moetier {} --help'", command_.name, word,
                command_.name);
  }

  /// Gives arguments without a flag to their parameters; the last one takes what is left if it may be repeated.
  void place_bare() {
    const auto& places = command_.positionals;
    for (size_t i = 0; i < bare_.size(); ++i) {
      if (places.empty()) refuse_bare(bare_[i]);
      const std::string name(places[std::min(i, places.size() - 1)].param);
      if (i < places.size()) {
        if (parsed_.given.contains(name)) {
          usage_error("{} and --{} both name the same thing; give one of them ('{}' was given without a flag)",
                      places[i].name, name, bare_[i]);
        }
        parsed_.given[name] = {{bare_[i]}, Source::typed, ""};
        continue;
      }
      const auto repeated = [&](const Param& p) { return p.name == name && p.repeated; };
      if (std::ranges::none_of(command_.params, repeated)) refuse_bare(bare_[i]);
      parsed_.given[name].values.push_back(bare_[i]);
    }
  }

  const Command& command_;
  const std::vector<std::string>& words_;
  std::map<std::string, Meaning> names_;
  size_t at_ = 0;
  const Param* list_ = nullptr;  // whose values may follow
  std::vector<std::string> bare_, unknown_;
  Parsed parsed_;
};

}  // namespace

Parsed parse_arguments(const Command& command, const std::vector<std::string>& arguments) {
  Parsed parsed = Parser(command, arguments).parse();
  read_environment(command, parsed.given);
  if (const std::string note = unknown_variables(command); !note.empty()) parsed.notes.push_back(note);
  for (const Positional& positional : command.positionals) {
    if (positional.required && !parsed.help && !parsed.given.contains(positional.param)) {
      usage_error("'moetier {}' needs {}; see 'moetier {} --help'", command.name, positional.name, command.name);
    }
  }
  return parsed;
}

}  // namespace moetier::cli
