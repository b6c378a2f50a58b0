// How well logits foretell a token.
#pragma once

#include <span>

#include "tokenizer/tokenizer.h"

namespace moetier {

/// -ln of the probability that softmax(logits) gives `token`, summed in double in ascending id. +infinity if that
/// probability is 0, NaN if a logit is.
double negative_log_likelihood(std::span<const float> logits, TokenId token);

/// Mean and spread of numbers that come one by one (Welford 1962).
class RunningMean {
 public:
  void add(double value) {
    ++count_;
    const double delta = value - mean_;
    mean_ += delta / static_cast<double>(count_);
    squares_ += delta * (value - mean_);
  }
  int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double standard_error() const;  ///< of the mean; 0 for fewer than two numbers

 private:
  int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

}  // namespace moetier
