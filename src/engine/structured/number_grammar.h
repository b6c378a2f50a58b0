// GBNF for numbers between bounds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace moetier {

/// A bound as the schema writes it, exactly, in decimal.
struct DecimalBound {
  bool negative = false;
  uint64_t whole = 0;
  std::string fraction;    ///< digits behind the point, without zeros at the end
  bool exclusive = false;  ///< the bound itself is not allowed

  /// nullopt for a number that has more digits than are taken (16 before the point, 20 behind it).
  static std::optional<DecimalBound> of(const nlohmann::ordered_json& number);
  bool is_zero() const { return whole == 0 && fraction.empty(); }
  /// Its value as a double, for comparing.
  double value() const;
};

/// Digits that a number without bounds may have before its point. Numbers of more could not be told from infinity by
/// their readers, or lose digits.
inline constexpr uint64_t kLargestWhole = 9'999'999'999'999'999;

/// Whole numbers from `low` to `high`, both included and at most kLargestWhole away from 0. `low` <= `high`.
std::string integer_range_grammar(int64_t low, int64_t high);

/// Decimal numbers, without exponent, between the bounds; none: up to kLargestWhole. Empty if there are none.
std::string number_range_grammar(const std::optional<DecimalBound>& low, const std::optional<DecimalBound>& high);

}  // namespace moetier
