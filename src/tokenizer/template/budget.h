// Bounds on what a template may use. Templates come from model files, so they are hostile until proven otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetier::jinja {

/// One rendering may use this much. The largest prompts of today's models stay far below.
struct Limits {
  uint64_t steps = 50'000'000;      ///< nodes evaluated, items visited, 4 bytes of text looked at, or 64 copied
  size_t memory = size_t{1} << 29;  ///< bytes held by values and unfinished output
  size_t text = size_t{1} << 26;    ///< bytes of one string, and of the output
  int depth = 1600;                 ///< expressions, statements and macro calls inside one another
  size_t source = size_t{1} << 20;  ///< bytes of a template
  int nesting = 200;                ///< statements and expressions inside one another in the source
  int expression_depth = 400;       ///< height of one expression's tree
  int value_nesting = 400;          ///< lists and dicts inside one another
  static constexpr int64_t range = 100'000;  ///< items of a range, as in jinja2's sandbox
};

/// Counts what the rendering on this thread has used; beyond a limit it raises a `limit` fault. Without a Budget in
/// scope (while values of a compiled template are made or freed) nothing is counted.
class Budget {
 public:
  /// Values that outlive the budget (a compiled template's constants) must be made under one that does not count
  /// memory.
  explicit Budget(const Limits& limits, bool counts_memory = true);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  static Budget* current();
  const Limits& limits() const { return limits_; }
  bool counts_memory() const { return counts_memory_; }

  void spend(uint64_t steps) {
    if (steps > steps_left_) out_of_steps();
    steps_left_ -= steps;
  }
  void hold(size_t bytes);
  void release(size_t bytes) { held_ -= bytes; }
  void enter() {
    if (++depth_ > limits_.depth) too_deep();
  }
  void leave() { --depth_; }

 private:
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] void too_deep();

  Limits limits_;
  bool counts_memory_;
  uint64_t steps_left_;
  size_t held_ = 0;
  int depth_ = 0;
  Budget* outer_;
};

/// Spends `steps` of the current budget, if there is one.
void spend(uint64_t steps);
/// Spends what copying or comparing `bytes` of text costs.
void spend_on_text(size_t bytes);
/// Spends what looking at `bytes` of text character by character costs.
void spend_on_characters(size_t bytes);
/// Raises if a string of `bytes` would be too long; call it before building one whose size comes from the template.
void check_text_size(size_t bytes);
/// The same for a product, without overflow.
void check_text_product(size_t bytes, size_t times);

/// Memory that a value holds, given back when the value dies.
class Claim {
 public:
  Claim() = default;
  explicit Claim(size_t bytes);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  /// Claims more.
  void grow(size_t bytes);

 private:
  Budget* budget_ = nullptr;
  size_t bytes_ = 0;
};

/// One level of recursion.
class Level {
 public:
  Level();
  ~Level();
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Budget* budget_;
};

}  // namespace moetier::jinja
