#include "tokenizer/template/budget.h"

#include <limits>

#include "tokenizer/template/fault.h"

namespace moetier::jinja {
namespace {

thread_local Budget* current_budget = nullptr;

}  // namespace

Budget::Budget(const Limits& limits, bool counts_memory)
    : limits_(limits), counts_memory_(counts_memory), steps_left_(limits.steps), outer_(current_budget) {
  current_budget = this;
}

Budget::~Budget() {
  current_budget = outer_;
}

Budget* Budget::current() {
  return current_budget;
}

void Budget::hold(size_t bytes) {
  if (bytes > limits_.memory || held_ > limits_.memory - bytes) {
    raise(FaultKind::limit, "the template needs more than {} MiB of memory", limits_.memory >> 20);
  }
  held_ += bytes;
}

void Budget::out_of_steps() const {
  raise(FaultKind::limit, "the template takes more than {} steps: it may be looping", limits_.steps);
}

void Budget::too_deep() {
  --depth_;
  raise(FaultKind::limit, "the template nests more than {} evaluations", limits_.depth);
}

void spend(uint64_t steps) {
  if (Budget* budget = current_budget) budget->spend(steps);
}

void spend_on_text(size_t bytes) {
  spend(bytes / 64 + 1);
}

void spend_on_characters(size_t bytes) {
  spend(bytes / 4 + 1);
}

void check_text_size(size_t bytes) {
  const size_t limit = current_budget != nullptr ? current_budget->limits().text : Limits{}.text;
  if (bytes > limit) raise(FaultKind::limit, "a string of {} bytes is longer than the limit of {}", bytes, limit);
}

void check_text_product(size_t bytes, size_t times) {
  if (times != 0 && bytes > std::numeric_limits<size_t>::max() / times) {
    raise(FaultKind::limit, "a string of {} times {} bytes is too long", times, bytes);
  }
  check_text_size(bytes * times);
}

Claim::Claim(size_t bytes) {
  grow(bytes);
}

Claim::~Claim() {
  if (budget_ != nullptr) budget_->release(bytes_);
}

void Claim::grow(size_t bytes) {
  if (budget_ == nullptr && current_budget != nullptr && current_budget->counts_memory()) budget_ = current_budget;
  if (budget_ == nullptr) return;
  budget_->hold(bytes);
  bytes_ += bytes;
}

Level::Level() : budget_(current_budget) {
  if (budget_ != nullptr) budget_->enter();
}

Level::~Level() {
  if (budget_ != nullptr) budget_->leave();
}

}  // namespace moetier::jinja
