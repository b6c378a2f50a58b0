#include "engine/structured/number_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace moetier {
namespace {

std::string either(const std::vector<std::string>& ways) {
  if (ways.size() == 1) return ways[0];
  std::string out = "(";
  for (size_t i = 0; i < ways.size(); ++i) out += (i > 0 ? " | " : "") + ways[i];
  return out + ")";
}

std::string digit_range(char first, char last) {
  return first == last ? fmt::format("\"{}\"", first) : fmt::format("[{}-{}]", first, last);
}

std::string any_digits(size_t n) {
  return n == 0 ? "" : n == 1 ? "[0-9]" : fmt::format("[0-9]{{{}}}", n);
}

std::string joined(const std::string& a, const std::string& b) {
  return b.empty() ? a : a + " " + b;
}

/// Numbers with as many digits as both bounds have. `at_low`, `at_high`: all digits so far are those of the bound.
std::string same_length(const std::string& low, const std::string& high, size_t at, bool at_low, bool at_high) {
  const size_t rest = low.size() - at;
  if (rest == 0) return "";
  if (!at_low && !at_high) return any_digits(rest);
  const char first = at_low ? low[at] : '0';
  const char last = at_high ? high[at] : '9';
  const auto is_rest = [&](const std::string& text, char digit) {
    return text.find_first_not_of(digit, at + 1) == std::string::npos;
  };
  // A bound that the following digits reach anyway binds no more.
  const bool low_binds = at_low && !is_rest(low, '0'), high_binds = at_high && !is_rest(high, '9');
  std::vector<std::string> ways;
  char from = first;
  char to = last;
  if (first == last) {
    return joined(digit_range(first, last), same_length(low, high, at + 1, at_low, at_high));
  }
  if (low_binds) {
    ways.push_back(joined(digit_range(first, first), same_length(low, high, at + 1, true, false)));
    ++from;
  }
  if (high_binds) --to;
  if (from <= to) ways.push_back(joined(digit_range(from, to), any_digits(rest - 1)));
  if (high_binds) ways.push_back(joined(digit_range(last, last), same_length(low, high, at + 1, false, true)));
  return either(ways);
}

/// From `low` to `high`, without sign.
std::string natural_range(uint64_t low, uint64_t high) {
  std::vector<std::string> ways;
  while (low <= high) {
    const std::string text = std::to_string(low);
    const std::string nines(text.size(), '9');
    const uint64_t end = std::min<uint64_t>(high, std::strtoull(nines.c_str(), nullptr, 10));
    ways.push_back(same_length(text, std::to_string(end), 0, true, true));
    if (end == high) break;
    low = end + 1;
  }
  // Full lengths one after the other are one repetition.
  if (ways.size() > 2) {
    std::vector<std::string> shorter{ways.front()};
    size_t begin = 1;
    const auto is_full = [](const std::string& way) { return way.starts_with("[1-9] [0-9]"); };
    const auto digits = [](const std::string& way) { return way == "[1-9] [0-9]" ? 1 : std::atoi(way.c_str() + 12); };
    while (begin < ways.size()) {
      size_t end = begin;
      while (end < ways.size() && is_full(ways[end])) ++end;
      if (end - begin > 1) {
        shorter.push_back(fmt::format("[1-9] [0-9]{{{},{}}}", digits(ways[begin]), digits(ways[end - 1])));
        begin = end;
      } else {
        shorter.push_back(ways[begin++]);
      }
    }
    ways = shorter;
  }
  return either(ways);
}

int compare(const DecimalBound& a, const DecimalBound& b) {
  if (a.whole != b.whole) return a.whole < b.whole ? -1 : 1;
  return a.fraction == b.fraction ? 0 : a.fraction < b.fraction ? -1 : 1;
}

/// Writes ranges of decimals. So few digits that neighbours stay apart as doubles: a value below an exclusive bound
/// must not be rounded to it by who reads it.
class DecimalRange {
 public:
  explicit DecimalRange(size_t digits)
      : more_(fmt::format("[0-9]{{0,{}}}", digits)), any_fraction_(fmt::format("(\".\" [0-9]{{1,{}}})?", digits)) {}

  /// Magnitudes from `low` to `high`, both without sign.
  std::string magnitude_range(const DecimalBound& low, const DecimalBound& high) const {
    const int order = compare(low, high);
    if (order > 0 || (order == 0 && (low.exclusive || high.exclusive))) return "";
    const auto whole = [](uint64_t n) { return fmt::format("\"{}\"", n); };
    if (order == 0) {
      if (low.fraction.empty()) return whole(low.whole) + " " + fraction_to("", false);
      return fmt::format("\"{}.{}\" \"0\"{{0,5}}", low.whole, low.fraction);
    }
    if (low.whole == high.whole) return whole(low.whole) + " " + fraction_between(low, high);
    std::vector<std::string> ways;
    ways.push_back(whole(low.whole) + " " + fraction_from(low.fraction, low.exclusive));
    if (high.whole - low.whole > 1) ways.push_back(natural_range(low.whole + 1, high.whole - 1) + " " + any_fraction_);
    if (!(high.fraction.empty() && high.exclusive)) {
      ways.push_back(whole(high.whole) + " " + fraction_to(high.fraction, high.exclusive));
    }
    return either(ways);
  }

 private:
  /// What may follow the first `at` digits of `low` so that the fraction is not below it.
  std::string at_least(const std::string& low, size_t at, bool exclusive) const {
    if (at >= low.size()) return exclusive ? "\"0\"{0,5} [1-9] " + more_ : more_;
    std::vector<std::string> ways;
    if (low[at] < '9') ways.push_back(joined(digit_range(static_cast<char>(low[at] + 1), '9'), more_));
    ways.push_back(joined(digit_range(low[at], low[at]), at_least(low, at + 1, exclusive)));
    return either(ways);
  }

  /// The same for `high`; the digits so far are below it unless they are all of it. Possibly empty: nothing may follow.
  std::string at_most(const std::string& high, size_t at, bool exclusive) const {
    if (at >= high.size()) return "\"0\"{0,5}";
    const bool last = at + 1 == high.size();
    std::vector<std::string> ways;
    if (high[at] > '0') ways.push_back(joined(digit_range('0', static_cast<char>(high[at] - 1)), more_));
    if (!last) {
      ways.push_back(joined(digit_range(high[at], high[at]), fmt::format("({})?", at_most(high, at + 1, exclusive))));
    } else if (!exclusive) {
      ways.push_back(joined(digit_range(high[at], high[at]), at_most(high, at + 1, exclusive)));
    }
    return either(ways);
  }

  /// Fractions, with their point, from `low` up.
  std::string fraction_from(const std::string& low, bool exclusive) const {
    if (low.empty() && !exclusive) return any_fraction_;
    return "\".\" " + at_least(low, 0, exclusive);
  }

  /// Fractions, with their point, up to `high`; must not be asked for an exclusive 0.
  std::string fraction_to(const std::string& high, bool exclusive) const {
    if (high.empty()) return "(\".\" \"0\"{1,5})?";
    return "(\".\" " + at_most(high, 0, exclusive) + ")?";
  }

  /// Fractions between two that differ, low < high.
  std::string fraction_between(const DecimalBound& low, const DecimalBound& high) const {
    if (low.fraction.empty() && !low.exclusive) return fraction_to(high.fraction, high.exclusive);
    std::string from = low.fraction;
    const std::string& to = high.fraction;
    size_t same = 0;
    for (;; ++same) {
      if (same == from.size()) from += '0';
      if (from[same] != to[same]) break;
    }
    std::string out = "\".\" ";
    for (size_t i = 0; i < same; ++i) out += digit_range(from[i], from[i]) + " ";
    const char first = from[same];
    std::vector<std::string> ways;
    ways.push_back(joined(digit_range(first, first), at_least(from, same + 1, low.exclusive)));
    if (first + 1 <= to[same] - 1) {
      ways.push_back(joined(digit_range(static_cast<char>(first + 1), static_cast<char>(to[same] - 1)), more_));
    }
    const bool last = same + 1 == to.size();
    if (!last) {
      ways.push_back(
          joined(digit_range(to[same], to[same]), fmt::format("({})?", at_most(to, same + 1, high.exclusive))));
    } else if (!high.exclusive) {
      ways.push_back(joined(digit_range(to[same], to[same]), at_most(to, same + 1, false)));
    }
    return out + either(ways);
  }

  std::string more_, any_fraction_;
};

}  // namespace

std::optional<DecimalBound> DecimalBound::of(const nlohmann::ordered_json& number) {
  std::string text = number.dump();
  DecimalBound b;
  if (text.starts_with('-')) {
    b.negative = true;
    text.erase(0, 1);
  }
  long exponent = 0;
  const size_t e = text.find_first_of("eE");
  if (e != std::string::npos) {
    exponent = std::strtol(text.c_str() + e + 1, nullptr, 10);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  long before = static_cast<long>(point) + exponent;  // digits before the point
  if (before < -20 || before > 40) return std::nullopt;
  while (before < 0) digits.insert(0, 1, '0'), ++before;
  while (static_cast<long>(digits.size()) < before) digits += '0';
  std::string whole = digits.substr(0, static_cast<size_t>(before));
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  b.fraction = digits.substr(static_cast<size_t>(before));
  b.fraction.erase(b.fraction.find_last_not_of('0') + 1);
  if (whole.size() > 16 || b.fraction.size() > 20) return std::nullopt;
  b.whole = whole.empty() ? 0 : std::strtoull(whole.c_str(), nullptr, 10);
  if (b.is_zero()) b.negative = false;
  return b;
}

double DecimalBound::value() const {
  const double magnitude = std::strtod(fmt::format("{}.{}", whole, fraction.empty() ? "0" : fraction).c_str(), nullptr);
  return negative ? -magnitude : magnitude;
}

std::string integer_range_grammar(int64_t low, int64_t high) {
  std::vector<std::string> ways;
  if (low < 0) {
    const auto far = static_cast<uint64_t>(-low), near = high < 0 ? static_cast<uint64_t>(-high) : uint64_t{1};
    ways.push_back("\"-\" " + natural_range(near, far));
  }
  if (high >= 0) ways.push_back(natural_range(low < 0 ? 0 : static_cast<uint64_t>(low), static_cast<uint64_t>(high)));
  return either(ways);
}

std::string number_range_grammar(const std::optional<DecimalBound>& low, const std::optional<DecimalBound>& high) {
  const DecimalBound zero{};
  const DecimalBound far{.negative = false, .whole = kLargestWhole, .fraction = "", .exclusive = false};
  size_t given = 1;
  for (const auto& bound : {low, high}) {
    if (bound) given = std::max(given, std::to_string(bound->whole).size() + bound->fraction.size());
  }
  const DecimalRange writer(given < 13 ? 14 - given : 1);
  std::vector<std::string> ways;
  const auto add = [&](const char* sign, const DecimalBound& from, const DecimalBound& to) {
    const std::string range = writer.magnitude_range(from, to);
    if (!range.empty()) ways.push_back(sign + range);
  };
  const bool low_negative = !low || low->negative, high_negative = high && high->negative;
  if (low_negative) {
    // The smallest magnitude is that of `high` where it is negative, else anything above 0.
    const DecimalBound near = high_negative ? *high : DecimalBound{.fraction = "", .exclusive = true};
    add("\"-\" ", near, low ? *low : far);
  }
  if (!high_negative) add("", low_negative ? zero : *low, high ? *high : far);
  return ways.empty() ? "" : either(ways);
}

}  // namespace moetier
