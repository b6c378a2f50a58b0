// Which variables a frame has and where they come from. The rules are those of jinja2's idtracking module, which decide
// what a template means where a name is set in one branch, in a loop, or after it was read.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tokenizer/template/ast.h"

namespace moetier::jinja {

/// A unit with variables of its own at run time: the template, a macro, a recursive loop, a loop's condition, a block.
struct FunctionScope {
  int depth = 0;  ///< functions around it
  /// A variable is known by its name and the level of its frame, so frames side by side share slots.
  std::map<std::pair<int, std::string>, int> slots;
  int slot(int level, const std::string& name);
  int size() const { return static_cast<int>(slots.size()); }
};

class Symbols {
 public:
  Symbols(FunctionScope& function, const Symbols* parent);

  // What the frame's source does with a name, in the order of the source.
  void load(const std::string& name);
  void store(const std::string& name);
  int declare_parameter(const std::string& name);

  void find_in(const Body& body);
  void find_in(const Statement& statement);
  void find_in(const Expression* expression);
  void find_target(const Expression& target);
  /// The target's names as parameters: loops and with.
  void declare_target(const Expression& target);

  /// Where the frame finds the name; slot -1 if it does not know it.
  Place place(const std::string& name) const;
  FunctionScope& function() const { return *function_; }
  Frame frame() const;
  /// Every name that this frame and those around it set.
  std::vector<std::pair<std::string, Place>> stored_places() const;

 private:
  struct Reference {
    const FunctionScope* function = nullptr;
    int slot = -1;
  };
  /// What a branch of an if adds to the names that `base` has so far.
  struct Branch {};
  Symbols(const Symbols& base, Branch);

  const Reference* find_own(const std::string& name) const;
  const Reference* find(const std::string& name) const;
  bool stores(const std::string& name) const;
  int define(const std::string& name, const FrameLoad* load);
  void merge_branches(const std::vector<Symbols>& branches);
  Place place_of(const Reference& reference) const;

  FunctionScope* function_;
  const Symbols* parent_;
  const Symbols* base_ = nullptr;  ///< of a branch: the frame's symbols before it
  int level_;
  std::map<std::string, Reference> references_;
  std::map<int, FrameLoad> loads_;  ///< by slot; parameters have none
  std::set<int> parameters_;
  std::set<std::string> stores_;
};

/// Which of `names` the statements read before they set them; blocks are not looked into.
std::set<std::string> find_undeclared(const Body& body, std::set<std::string> names);

}  // namespace moetier::jinja
