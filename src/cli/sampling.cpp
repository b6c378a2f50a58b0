#include "cli/sampling.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <random>

#include "base/error.h"

namespace moetier::cli {
namespace {

std::pair<TokenId, float> parse_bias(const std::string& text) {
  const size_t equals = text.find_first_of("=+-");
  TokenId id = -1;
  float bias = 0;
  const auto whole = [](const char* from, const char* to, auto& out) {
    const auto [end, status] = std::from_chars(from, to, out);
    return status == std::errc() && end == to;
  };
  const char* const end = text.data() + text.size();
  if (equals == std::string::npos || !whole(text.data(), text.data() + equals, id) || id < 0 ||
      !whole(text.data() + equals + (text[equals] == '-' ? 0 : 1), end, bias)) {
    usage_error("--logit-bias takes ID=F, e.g. 13=-2.5 or 13=-inf, not '{}'", text);
  }
  return {id, bias};
}

/// --samplers or --sampler-seq. Errors (usage): names that no sampler has, or both flags.
std::vector<SamplerStep> sampler_order(const Settings& settings) {
  if (settings.is_set("samplers") && settings.is_set("sampler-seq"))
    usage_error("--samplers and --sampler-seq say the same; give one of them");
  std::vector<SamplerStep> order;
  const auto add = [&](std::optional<SamplerStep> step, std::string_view name) {
    if (!step) usage_error("there is no sampler '{}'; see --samplers in the help", name);
    order.push_back(*step);
  };
  if (settings.is_set("sampler-seq")) {
    for (const char letter : settings.text("sampler-seq")) add(sampler_step(letter), std::string_view(&letter, 1));
    return order;
  }
  const std::string& names = settings.text("samplers");
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(';', at), names.size());
    const std::string name = names.substr(at, end - at);
    add(sampler_step(name), name);
    at = end + 1;
  }
  return order;
}

}  // namespace

GenerateOptions generate_options(const Settings& settings) {
  GenerateOptions options;
  SamplerOptions& s = options.sampler;
  s.temperature = static_cast<float>(settings.real("temp"));
  s.top_k = static_cast<int>(settings.integer("top-k"));
  s.top_p = static_cast<float>(settings.real("top-p"));
  s.min_p = static_cast<float>(settings.real("min-p"));
  s.typical_p = static_cast<float>(settings.real("typical"));
  s.top_n_sigma = static_cast<float>(settings.real("top-n-sigma"));
  s.dynatemp_range = static_cast<float>(settings.real("dynatemp-range"));
  s.dynatemp_exponent = static_cast<float>(settings.real("dynatemp-exp"));
  s.xtc_probability = static_cast<float>(settings.real("xtc-probability"));
  s.xtc_threshold = static_cast<float>(settings.real("xtc-threshold"));
  s.min_keep = static_cast<int>(settings.integer("min-keep"));
  s.order = sampler_order(settings);
  s.repeat_penalty = static_cast<float>(settings.real("repeat-penalty"));
  s.presence_penalty = static_cast<float>(settings.real("presence-penalty"));
  s.frequency_penalty = static_cast<float>(settings.real("frequency-penalty"));
  s.penalty_window = static_cast<int>(settings.integer("repeat-last-n"));
  s.seed = settings.text("seed") == "auto" ? std::random_device{}() : static_cast<uint64_t>(settings.integer("seed"));
  for (const std::string& bias : settings.texts("logit-bias")) s.logit_bias.push_back(parse_bias(bias));
  options.stop = settings.texts("stop");
  options.ignore_eog = settings.flag("ignore-eos");
  options.special = settings.has("special") && settings.flag("special");
  options.max_tokens = settings.integer("n");
  return options;
}

}  // namespace moetier::cli
