#include "tokenizer/template/symbols.h"

#include <functional>

namespace moetier::jinja {
namespace {

/// Visits the direct parts of an expression.
void for_each_part(const Expression& expression, const std::function<void(const Expression&)>& visit) {
  for (const auto& part : expression.parts) {
    if (part != nullptr) visit(*part);
  }
  if (expression.arguments == nullptr) return;
  for (const auto& argument : expression.arguments->positional) visit(*argument);
  for (const auto& [name, argument] : expression.arguments->named) visit(*argument);
  if (expression.arguments->star != nullptr) visit(*expression.arguments->star);
  if (expression.arguments->double_star != nullptr) visit(*expression.arguments->double_star);
}

class UndeclaredFinder {
 public:
  explicit UndeclaredFinder(std::set<std::string> names) : names_(std::move(names)) {}

  void visit(const Body& body) {
    for (const auto& statement : body) visit(*statement);
  }
  std::set<std::string> take() { return std::move(found_); }

 private:
  void visit(const Statement& statement) {
    const Level level;
    spend(1);
    if (statement.kind == StatementKind::block) return;
    if (statement.target != nullptr) set(*statement.target);
    for (const auto& target : statement.targets) set(*target);
    if (statement.kind == StatementKind::filter_block) {
      visit(statement.body);
      return visit(statement.value.get());
    }
    visit(statement.value.get());
    for (const auto& expression : statement.expressions) visit(expression.get());
    visit(statement.body);
    for (const auto& elif : statement.elifs) visit(*elif);
    visit(statement.otherwise);
    visit(statement.condition.get());
    if (statement.macro != nullptr) {
      for (const std::string& parameter : statement.macro->parameters) names_.erase(parameter);
      for (const auto& value : statement.macro->defaults) visit(value.get());
      visit(statement.macro->body);
    }
  }

  void visit(const Expression* expression) {
    if (expression == nullptr) return;
    spend(1);
    if (expression->kind == ExpressionKind::name && names_.count(expression->name) != 0)
      found_.insert(expression->name);
    for_each_part(*expression, [this](const Expression& part) { visit(&part); });
  }

  void set(const Expression& target) {
    if (target.kind == ExpressionKind::name) names_.erase(target.name);
    for (const auto& part : target.parts) set(*part);
  }

  std::set<std::string> names_, found_;
};

}  // namespace

int FunctionScope::slot(int level, const std::string& name) {
  return slots.try_emplace({level, name}, static_cast<int>(slots.size())).first->second;
}

Symbols::Symbols(FunctionScope& function, const Symbols* parent)
    : function_(&function), parent_(parent), level_(parent == nullptr ? 0 : parent->level_ + 1) {}

Symbols::Symbols(const Symbols& base, Branch)
    : function_(base.function_), parent_(base.parent_), base_(&base), level_(base.level_) {}

int Symbols::define(const std::string& name, const FrameLoad* load) {
  const int slot = function_->slot(level_, name);
  references_[name] = {function_, slot};
  if (load != nullptr) {
    FrameLoad& stored = loads_[slot] = *load;
    stored.slot = slot;
    stored.name = name;
  } else {
    loads_.erase(slot);
    parameters_.insert(slot);
  }
  return slot;
}

const Symbols::Reference* Symbols::find_own(const std::string& name) const {
  for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->base_) {
    const auto found = symbols->references_.find(name);
    if (found != symbols->references_.end()) return &found->second;
  }
  return nullptr;
}

const Symbols::Reference* Symbols::find(const std::string& name) const {
  for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->parent_) {
    if (const Reference* reference = symbols->find_own(name)) return reference;
  }
  return nullptr;
}

bool Symbols::stores(const std::string& name) const {
  return stores_.count(name) != 0 || (base_ != nullptr && base_->stores(name));
}

void Symbols::load(const std::string& name) {
  if (find(name) != nullptr) return;
  const FrameLoad from_context{-1, FrameLoad::From::context, {}, {}};
  define(name, &from_context);
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  if (find_own(name) != nullptr) return;
  FrameLoad load;
  if (const Reference* outer = parent_ != nullptr ? parent_->find(name) : nullptr) {
    load.from = FrameLoad::From::place;
    load.place = place_of(*outer);
  }
  define(name, &load);
}

int Symbols::declare_parameter(const std::string& name) {
  stores_.insert(name);
  return define(name, nullptr);
}

void Symbols::find_in(const Body& body) {
  for (const auto& statement : body) find_in(*statement);
}

void Symbols::find_in(const Statement& statement) {
  const Level level;
  spend(1);
  switch (statement.kind) {
    case StatementKind::if_block: {
      find_in(statement.value.get());
      std::vector<Symbols> branches(3, Symbols(*this, Branch{}));
      branches[0].find_in(statement.body);
      for (const auto& elif : statement.elifs) branches[1].find_in(*elif);
      branches[2].find_in(statement.otherwise);
      return merge_branches(branches);
    }
    case StatementKind::macro:
      return store(statement.macro->name);
    case StatementKind::set:
      find_in(statement.value.get());
      return find_target(*statement.target);
    case StatementKind::set_block:
      return find_target(*statement.target);
    case StatementKind::generation:
      return;
    default:
      break;
  }
  find_in(statement.value.get());
  for (const auto& expression : statement.expressions) find_in(expression.get());
}

void Symbols::find_in(const Expression* expression) {
  if (expression == nullptr) return;
  spend(1);
  if (expression->kind == ExpressionKind::name) load(expression->name);
  for_each_part(*expression, [this](const Expression& part) { find_in(&part); });
}

void Symbols::find_target(const Expression& target) {
  if (target.kind == ExpressionKind::name) store(target.name);
  if (target.kind == ExpressionKind::namespace_target) load(target.name);
  for (const auto& part : target.parts) find_target(*part);
}

void Symbols::declare_target(const Expression& target) {
  if (target.kind == ExpressionKind::name) declare_parameter(target.name);
  for (const auto& part : target.parts) declare_target(*part);
}

void Symbols::merge_branches(const std::vector<Symbols>& branches) {
  std::map<std::string, size_t> set_in;
  for (const Symbols& branch : branches) {
    for (const std::string& name : branch.stores_) {
      if (!stores(name)) ++set_in[name];
    }
  }
  for (const Symbols& branch : branches) {
    spend(8 * branch.references_.size());
    for (const auto& [name, reference] : branch.references_) references_[name] = reference;
    for (const auto& [slot, load] : branch.loads_) loads_[slot] = load;
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  for (const auto& [name, count] : set_in) {
    if (count == branches.size()) continue;
    // Not set on every way: it may still be what it was outside.
    const int slot = find_own(name)->slot;
    FrameLoad& load = loads_[slot];
    load.slot = slot;
    load.name = name;
    if (const Reference* outer = parent_ != nullptr ? parent_->find(name) : nullptr) {
      load.from = FrameLoad::From::place;
      load.place = place_of(*outer);
    } else {
      load.from = FrameLoad::From::context;
    }
  }
}

Place Symbols::place_of(const Reference& reference) const {
  return {function_->depth - reference.function->depth, reference.slot};
}

Place Symbols::place(const std::string& name) const {
  const Reference* reference = find(name);
  return reference == nullptr ? Place{} : place_of(*reference);
}

Frame Symbols::frame() const {
  Frame frame;
  for (const auto& [slot, load] : loads_) frame.loads.push_back(load);
  frame.parameters.assign(parameters_.begin(), parameters_.end());
  return frame;
}

std::vector<std::pair<std::string, Place>> Symbols::stored_places() const {
  std::map<std::string, Place> places;
  for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->parent_) {
    for (const std::string& name : symbols->stores_) places.try_emplace(name, place(name));
  }
  return {places.begin(), places.end()};
}

std::set<std::string> find_undeclared(const Body& body, std::set<std::string> names) {
  UndeclaredFinder finder(std::move(names));
  finder.visit(body);
  return finder.take();
}

}  // namespace moetier::jinja
