// Rules to a program: checks that it can be run, and leaves out what no text can reach.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/structured/grammar_program.h"

namespace moetier {
namespace {

using Kind = GrammarItem::Kind;
using Alternative = GrammarDraft::Alternative;

/// Which rules have a property that an alternative has as soon as all of its items do; found by going round until
/// nothing changes, over a list of who calls whom, so in linear time.
template <typename ItemHas>
std::vector<bool> closure(const GrammarDraft& draft, const ItemHas& item_has) {
  struct Use {
    uint32_t rule;
    size_t alternative;
  };
  std::vector<std::vector<Use>> users(draft.rules.size());
  std::vector<std::vector<uint32_t>> missing(draft.rules.size());  // items that lack it, by alternative
  std::vector<bool> has(draft.rules.size());
  std::vector<uint32_t> news;
  const auto found = [&](uint32_t rule) {
    if (has[rule]) return;
    has[rule] = true;
    news.push_back(rule);
  };
  for (uint32_t r = 0; r < draft.rules.size(); ++r) {
    const auto& alternatives = draft.rules[r].alternatives;
    missing[r].resize(alternatives.size());
    for (size_t a = 0; a < alternatives.size(); ++a) {
      for (const GrammarItem& item : alternatives[a]) {
        if (item_has(item)) continue;
        ++missing[r][a];
        if (item.kind == Kind::call) users[item.target].push_back({r, a});
      }
      if (missing[r][a] == 0) found(r);
    }
  }
  while (!news.empty()) {
    const uint32_t rule = news.back();
    news.pop_back();
    for (const Use& use : users[rule]) {
      if (--missing[use.rule][use.alternative] == 0) found(use.rule);
    }
  }
  return has;
}

/// Refuses rules that begin with themselves: reading them would go round without end.
class LeftRecursion {
 public:
  LeftRecursion(const GrammarDraft& draft, const std::vector<bool>& nullable)
      : draft_(draft), nullable_(nullable), state_(draft.rules.size(), State::unseen) {}

  void check() {
    for (uint32_t rule = 0; rule < draft_.rules.size(); ++rule) {
      if (state_[rule] == State::unseen) visit(rule);
    }
  }

 private:
  enum class State : uint8_t { unseen, open, done };
  struct Visit {
    uint32_t rule;
    std::vector<uint32_t> next;  // rules that it may begin with
  };

  std::vector<uint32_t> beginnings(uint32_t rule) const {
    std::vector<uint32_t> out;
    for (const Alternative& alternative : draft_.rules[rule].alternatives) {
      for (const GrammarItem& item : alternative) {
        if (item.kind == Kind::call && item.max > 0) out.push_back(item.target);
        const bool skips = item.min == 0 || (item.kind == Kind::call && nullable_[item.target]);
        if (!skips) break;
      }
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  void visit(uint32_t first) {
    std::vector<Visit> path;
    path.push_back({first, beginnings(first)});
    state_[first] = State::open;
    while (!path.empty()) {
      if (path.back().next.empty()) {
        state_[path.back().rule] = State::done;
        path.pop_back();
        continue;
      }
      const uint32_t rule = path.back().next.back();
      path.back().next.pop_back();
      if (state_[rule] == State::open) refuse(path, rule);
      if (state_[rule] == State::done) continue;
      state_[rule] = State::open;
      path.push_back({rule, beginnings(rule)});
    }
  }

  [[noreturn]] void refuse(const std::vector<Visit>& path, uint32_t rule) const {
    auto from = std::find_if(path.begin(), path.end(), [&](const Visit& v) { return v.rule == rule; });
    std::string way;
    const std::string* last = nullptr;
    for (; from != path.end(); ++from) {
      const std::string& name = draft_.rules[from->rule].name;
      if (last != nullptr && *last == name) continue;  // a group inside it
      if (way.size() > 200) {
        way += "... -> ";
        break;
      }
      way += name + " -> ";
      last = &name;
    }
    usage_error(
        "the grammar is left-recursive: the rule '{}' can begin with itself ({}{}); write the repetition with * or +, "
        "or move the call to the end",
        draft_.rules[rule].name, way, draft_.rules[rule].name);
  }

  const GrammarDraft& draft_;
  const std::vector<bool>& nullable_;
  std::vector<State> state_;
};

class Compiler {
 public:
  Compiler(GrammarDraft draft, const GrammarLimits& limits) : draft_(std::move(draft)) { out_.limits = limits; }

  Grammar::Impl run() {
    const auto is_nullable = [](const GrammarItem& item) { return item.min == 0; };
    const std::vector<bool> nullable = closure(draft_, is_nullable);
    LeftRecursion(draft_, nullable).check();
    productive_ = closure(draft_, [&](const GrammarItem& item) {
      if (item.min == 0 || item.kind == Kind::token || item.kind == Kind::other) return true;
      return item.kind == Kind::chars && !draft_.sets[item.target].empty();
    });
    if (!productive_[draft_.root]) usage_error("the grammar allows no text: no way through the rule 'root' ever ends");
    for (const CharSet& set : draft_.sets) nodes_.push_back(utf8_.add(set));
    emit();
    out_.nullable = nullable;
    out_.root = draft_.root;
    out_.utf8 = utf8_.build();
    return std::move(out_);
  }

 private:
  /// Whether a text can match one repetition of the item.
  bool possible(const GrammarItem& item) const {
    if (item.kind == Kind::call) return productive_[item.target];
    return item.kind != Kind::chars || !draft_.sets[item.target].empty();
  }

  void emit() {
    for (const GrammarDraft::Rule& rule : draft_.rules) {
      out_.first_start.push_back(static_cast<uint32_t>(out_.starts.size()));
      for (const Alternative& alternative : rule.alternatives) emit(alternative);
    }
    out_.first_start.push_back(static_cast<uint32_t>(out_.starts.size()));
  }

  void emit(const Alternative& alternative) {
    const bool dead = std::any_of(alternative.begin(), alternative.end(),
                                  [&](const GrammarItem& item) { return item.min > 0 && !possible(item); });
    if (dead) return;
    out_.starts.push_back(static_cast<uint32_t>(out_.items.size()));
    for (GrammarItem item : alternative) {
      if (item.max == 0 || !possible(item)) continue;
      if (item.kind == Kind::chars) {
        const auto& ranges = draft_.sets[item.target].ranges();
        item.single = ranges.size() == 1 && ranges[0].first == ranges[0].last;
        item.target = nodes_[item.target];
      }
      if (item.kind == Kind::token || item.kind == Kind::other) out_.has_tokens = true;
      out_.items.push_back(item);
    }
    out_.items.push_back({.kind = Kind::end});
  }

  GrammarDraft draft_;
  std::vector<bool> productive_;
  std::vector<uint32_t> nodes_;
  Utf8AutomatonBuilder utf8_;
  Grammar::Impl out_;
};

}  // namespace

Grammar::Grammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;

std::shared_ptr<const Grammar> Grammar::compile(std::string_view gbnf, const GrammarLimits& limits,
                                                const std::function<TokenId(std::string_view)>& find_token) {
  Compiler compiler(parse_gbnf(gbnf, limits, find_token), limits);
  return std::make_shared<const Grammar>(std::make_unique<const Impl>(compiler.run()));
}

}  // namespace moetier
