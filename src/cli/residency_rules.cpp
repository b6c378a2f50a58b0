// What residency parameters mean together: contradictions, notes, and the options that come of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/log.h"
#include "cli/residency_params.h"
#include "experts/sizing.h"

namespace moetier::cli {
namespace {

using Lookup = std::function<std::optional<std::string>(std::string_view)>;  // what was given, not defaults

Lookup lookup(const GivenValues& given) {
  return [&given](std::string_view name) -> std::optional<std::string> {
    const auto it = given.find(name);
    if (it == given.end() || it->second.values.empty()) return std::nullopt;
    return it->second.values.back();
  };
}

Lookup lookup(const Settings& settings) {
  return [&settings](std::string_view name) -> std::optional<std::string> {
    return settings.is_set(name) ? std::optional(settings.text(name)) : std::nullopt;
  };
}

bool on(const Lookup& get, std::string_view flag) {
  return get(flag) == "true";
}

uint64_t number(const std::string& text) {
  uint64_t value = 0;
  const char* const from = text.data() + (text.starts_with('+') ? 1 : 0);
  std::from_chars(from, text.data() + text.size(), value);
  return value;
}

/// The size asked for in MiB; nullopt: auto.
std::optional<uint64_t> cache_mib(const Lookup& get) {
  const auto text = get("cache-mb");
  return text && *text != "auto" ? std::optional(number(*text)) : std::nullopt;
}

/// A value that some flag asks for, and that flag as it is typed.
struct Wish {
  std::string value, flag;
};

/// All that is said about --experts, the plain flag first.
std::vector<Wish> mode_wishes(const Lookup& get) {
  std::vector<Wish> wishes;
  if (const auto mode = get("experts"); mode) wishes.push_back({*mode, "--experts " + *mode});
  if (on(get, "moe-stream")) wishes.push_back({"stream", "--moe-stream"});
  if (const auto size = get("expert-cache-size"); size && number(*size) > 0) {
    wishes.push_back({on(get, "expert-cache-noop") ? "noop" : "advise", "--expert-cache-size " + *size});
  }
  // auto leaves the choice to whoever says more.
  if (wishes.size() > 1 && wishes.front().value == "auto") wishes.erase(wishes.begin());
  return wishes;
}

std::vector<Wish> dense_wishes(const Lookup& get) {
  std::vector<Wish> wishes;
  if (const auto policy = get("dense-weights"); policy) wishes.push_back({*policy, "--dense-weights " + *policy});
  if (const auto warm = get("warm-dense"); warm) {
    const bool yes = *warm == "true";
    wishes.push_back({yes ? "warm" : "mmap", yes ? "--warm-dense" : "--no-warm-dense"});
  }
  if (on(get, "dense-odirect")) wishes.push_back({"anon", "--dense-odirect"});
  return wishes;
}

std::vector<Wish> policy_wishes(const Lookup& get) {
  std::vector<Wish> wishes;
  if (const auto policy = get("cache-policy"); policy) wishes.push_back({*policy, "--cache-policy " + *policy});
  if (on(get, "moe-cache-adaptive")) wishes.push_back({"adaptive", "--moe-cache-adaptive"});
  return wishes;
}

std::string contradiction(const std::vector<Wish>& wishes, std::string_view what) {
  for (size_t i = 1; i < wishes.size(); ++i) {
    if (wishes[i].value == wishes[0].value) continue;
    return fmt::format("{} and {} exclude each other: one asks for {} {}, the other for {}", wishes[0].flag,
                       wishes[i].flag, what, wishes[0].value, wishes[i].value);
  }
  return "";
}

/// What was asked for, before the memory has a say.
std::string mode_of(const Lookup& get) {
  const auto wishes = mode_wishes(get);
  const std::string mode = wishes.empty() ? "auto" : wishes.front().value;
  return mode == "auto" && cache_mib(get) ? "stream" : mode;
}

/// Why there can be no cache; empty if there can.
std::string no_cache_reason(const Lookup& get) {
  const std::string mode = mode_of(get);
  if (mode != "stream" && mode != "auto") return fmt::format("--experts {} has none", mode);
  if (cache_mib(get) == 0u) return "--cache-mb 0 leaves none";
  return "";
}

bool has_rules(const ParamList& params) {
  return std::any_of(params.begin(), params.end(), [](const Param& p) { return p.name == "experts"; });
}

template <typename Enum, size_t N>
Enum named(const std::string& text, const std::array<Enum, N>& all) {
  for (const Enum value : all) {
    if (to_string(value) == text) return value;
  }
  return all[0];
}

}  // namespace

std::string residency_problem(const ParamList& params, const GivenValues& given) {
  if (!has_rules(params)) return "";
  const Lookup get = lookup(given);
  for (const std::string& problem :
       {contradiction(mode_wishes(get), "experts"), contradiction(dense_wishes(get), "dense weights"),
        contradiction(policy_wishes(get), "the policy")}) {
    if (!problem.empty()) return problem;
  }
  constexpr uint64_t kLeastMib = kLeastCache >> 20;
  if (const auto mib = cache_mib(get); mib && *mib > 0 && *mib < kLeastMib && !on(get, "force-cache")) {
    return fmt::format(
        "--cache-mb {} is below {}, where a cache rarely holds what it is asked for; 0 streams without "
        "one, and --force-cache insists",
        *mib, kLeastMib);
  }
  const std::string reason = no_cache_reason(get);
  if (const auto layers = get("prefetch"); layers && number(*layers) > 0 && !reason.empty()) {
    return fmt::format("--prefetch {} needs a cache to read into, and {}", *layers, reason);
  }
  const auto drop = get("drop-cold-experts");
  if (drop && drop->find_first_of("123456789") != std::string::npos && !reason.empty()) {
    return fmt::format("--drop-cold-experts {} needs a cache that tells cold from warm, and {}", *drop, reason);
  }
  return "";
}

std::vector<std::string> residency_notes(const ParamList& params, const GivenValues& given) {
  std::vector<std::string> notes;
  if (!has_rules(params)) return notes;
  const Lookup get = lookup(given);
  if (const auto warm = get("warm-dense"); warm) {
    notes.push_back(*warm == "true" ? "--warm-dense is deprecated: it is --dense-weights warm"
                                    : "--no-warm-dense is deprecated: it is --dense-weights mmap");
  }
  if (on(get, "dense-odirect")) notes.push_back("--dense-odirect is deprecated: it is --dense-weights anon");
  const std::string mode = mode_of(get);
  if (const auto size = get("expert-cache-size"); size && number(*size) > 0) {
    notes.push_back(fmt::format("--expert-cache-size {} means --experts {}: its number is no size", *size, mode));
  }
  // Of what needs a cache and finds none, the engine speaks.
  if (const auto mib = cache_mib(get); mib && no_cache_reason(get).empty()) {
    for (const std::string_view flag : {"cache-floor-mb", "cache-ceil-mb"}) {
      if (get(flag)) notes.push_back(fmt::format("--{} changes nothing: --cache-mb {} is no auto", flag, *mib));
    }
  }
  if (on(get, "load-all") && mode != "stream" && mode != "auto") {
    notes.push_back(fmt::format("--load-all changes nothing: it needs --experts stream, not {}", mode));
  }
  if (on(get, "preload") && mode != "resident" && mode != "auto") {
    notes.push_back(fmt::format("--preload changes nothing: it needs --experts resident, not {}", mode));
  }
  if (on(get, "advise-always") && mode != "advise" && mode != "noop") {
    notes.push_back(fmt::format("--advise-always changes nothing: it needs --experts advise, not {}", mode));
  }
  return notes;
}

ResidencyOptions residency_options(const Settings& settings) {
  using enum ExpertMode;
  const Lookup get = lookup(settings);
  const auto first = [](const std::vector<Wish>& wishes, const char* otherwise) {
    return wishes.empty() ? std::string(otherwise) : wishes.front().value;
  };
  ResidencyOptions options;
  options.mode = named(mode_of(get), std::array{automatic, resident, mmap, advise, noop, stream});
  options.dense = named(first(dense_wishes(get), "auto"),
                        std::array{DensePolicy::automatic, DensePolicy::mmap, DensePolicy::warm, DensePolicy::anon});
  options.policy = named(first(policy_wishes(get), "default"), kCachePolicies);
  if (const auto mib = cache_mib(get); mib) options.cache_bytes = *mib << 20;
  options.floor_bytes = static_cast<uint64_t>(settings.integer("cache-floor-mb")) << 20;
  options.floor_asked = settings.is_set("cache-floor-mb");
  options.ceil_bytes = static_cast<uint64_t>(settings.integer("cache-ceil-mb")) << 20;
  options.profile = settings.text("moe-cache-profile");
  options.direct = settings.flag("odirect");
  options.overlap = settings.flag("overlap");
  options.prefetch = static_cast<int>(settings.integer("prefetch"));
  options.load_all = settings.flag("load-all");
  options.advise_always = settings.flag("advise-always");
  options.preload = settings.flag("preload");
  options.mlock = settings.flag("mlock");
  const std::string& io = settings.text("io");
  options.io = io == "io_uring" ? ReadKind::io_uring : io == "threads" ? ReadKind::threads : ReadKind::automatic;
  if (settings.text("io-depth") != "auto") options.io_depth = static_cast<int>(settings.integer("io-depth"));
  if (settings.text("io-threads") != "auto") options.io_lanes = static_cast<int>(settings.integer("io-threads"));
  options.io_probe = settings.flag("io-probe");
  return options;
}

void note_unused_drop(const Settings& settings, std::string_view mode) {
  if (settings.real("drop-cold-experts") > 0) {
    log::warn("--drop-cold-experts changes nothing: it needs a cache, and --experts auto became {}, which has none",
              mode);
  }
}

}  // namespace moetier::cli
