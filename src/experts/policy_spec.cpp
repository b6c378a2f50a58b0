#include "experts/policy_spec.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "experts/policy_heat.h"

namespace moetier {
namespace {

/// One parameter: where its value goes, and what it may be.
struct Parameter {
  std::string_view name;
  double* real = nullptr;
  int* whole = nullptr;  ///< instead of `real`
  double least = 0, most = 0;
};

std::vector<Parameter> parameters_of(PolicySpec& spec) {
  constexpr double kLong = 1e9, kMany = 1e6;
  AdaptiveOptions& a = spec.adaptive;
  ReuseOptions& r = spec.reuse;
  switch (spec.kind) {
    case CachePolicy::heat:
      return {{"half-life", &spec.heat_half_life, nullptr, 0.1, kLong}};
    case CachePolicy::cycle:
      return {{"half-life", &spec.cycle_half_life, nullptr, 0.1, kLong},
              {"weight", &spec.cycle_weight, nullptr, 0, kLong}};
    case CachePolicy::adaptive:
      return {{"half-life", &a.half_life, nullptr, 0.1, kLong}, {"swap-every", nullptr, &a.swap_every, 1, kMany},
              {"most-swaps", nullptr, &a.most_swaps, 0, kMany}, {"fill-every", nullptr, &a.fill_every, 1, kMany},
              {"most-fills", nullptr, &a.most_fills, 0, kMany}, {"factor", &a.factor, nullptr, 0, kLong},
              {"margin", &a.margin, nullptr, 0, kLong}};
    case CachePolicy::reuse:
    case CachePolicy::standard:
      return {{"half-life", &r.half_life, nullptr, 0.1, kLong},
              {"rate-share", &r.rate_share, nullptr, 0, 1},
              {"backoff", &r.backoff, nullptr, 0.01, kLong},
              {"position-weight", &r.position_weight, nullptr, 0, kLong},
              {"memory", &r.memory, nullptr, 2, kLong}};
    case CachePolicy::lru:
    case CachePolicy::pinned:
      break;
  }
  return {};
}

void set(PolicySpec& spec, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  const std::string_view name = assignment.substr(0, equals);
  std::string names;
  for (const Parameter& p : parameters_of(spec)) {
    names += names.empty() ? "" : ", ";
    names += p.name;
    if (p.name != name || equals == std::string_view::npos) continue;
    const std::string_view text = assignment.substr(equals + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc() && end == text.data() + text.size();
    const bool fits = p.whole == nullptr || value == std::trunc(value);
    if (!number || !fits || !(value >= p.least && value <= p.most))
      usage_error("'{}' of {} must be a {}number from {} to {}, not '{}'", name, spec.text,
                  p.whole != nullptr ? "whole " : "", p.least, p.most, text);
    if (p.whole != nullptr) {
      *p.whole = static_cast<int>(value);
    } else {
      *p.real = value;
    }
    return;
  }
  usage_error("{} has no parameter '{}'; {}", spec.text, assignment,
              names.empty() ? "there are none" : "write NAME=VALUE with one of " + names);
}

}  // namespace

PolicySpec parse_policy_spec(std::string_view text) {
  PolicySpec spec;
  spec.text = text;
  size_t end = text.find(':');
  const std::string_view name = text.substr(0, end);
  bool found = false;
  std::string names;
  for (const CachePolicy kind : kCachePolicies) {
    names += names.empty() ? "" : ", ";
    names += to_string(kind);
    if (to_string(kind) != name) continue;
    spec.kind = kind;
    found = true;
  }
  if (!found) usage_error("there is no cache policy '{}'; there are {}", name, names);
  spec.reuse.followers = spec.kind == CachePolicy::standard;
  while (end != std::string_view::npos) {
    const size_t begin = end + 1;
    end = text.find(':', begin);
    set(spec, text.substr(begin, end == std::string_view::npos ? end : end - begin));
  }
  return spec;
}

std::unique_ptr<Policy> make_policy(const PolicySpec& spec, std::span<const LayerShape> shapes,
                                    std::span<const std::pair<int, int>> profile) {
  switch (spec.kind) {
    case CachePolicy::heat:
      return make_heat_policy(shapes, spec.heat_half_life);
    case CachePolicy::cycle:
      return make_cycle_policy(shapes, spec.cycle_half_life, spec.cycle_weight);
    case CachePolicy::adaptive:
      return make_adaptive_policy(shapes, spec.adaptive);
    case CachePolicy::reuse:
    case CachePolicy::standard:
      return make_reuse_policy(shapes, spec.reuse);
    case CachePolicy::lru:
    case CachePolicy::pinned:
      break;
  }
  return make_policy(spec.kind, shapes, profile);
}

}  // namespace moetier
