// synth: a random model of a known shape.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <charconv>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/support.h"
#include "model/synth.h"

namespace moetier::cli {
namespace {

std::map<std::string, int64_t> parse_overrides(const std::vector<std::string>& specs) {
  std::map<std::string, int64_t> out;
  for (const std::string& spec : specs) {
    const size_t equals = spec.find('=');
    int64_t value = 0;
    const char* const end = spec.data() + spec.size();
    const char* const from = equals == std::string::npos ? end : spec.data() + equals + 1;
    const auto [stop, status] = std::from_chars(from, end, value);
    if (status != std::errc() || stop != end) usage_error("--set takes KEY=N, e.g. V=1000, not '{}'", spec);
    out[spec.substr(0, equals)] = value;
  }
  return out;
}

/// Fails before hours of writing rather than after, when the file cannot fit.
void check_space(const std::string& path, uint64_t bytes) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  struct statvfs disk {};
  if (::statvfs(folder.empty() ? "." : folder.c_str(), &disk) != 0) return;  // the write itself will tell
  const uint64_t left = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (bytes > left) {
    fail("{} would take {}, and its disk has {} left; choose another place or fewer --layers", path,
         format_bytes(bytes), format_bytes(left));
  }
}

}  // namespace

int run_synth(const Settings& settings) {
  SynthOptions options;
  options.like = need(settings, "like");
  options.architecture = settings.text("architecture");
  options.layers = static_cast<int>(settings.integer("layers"));
  options.type = settings.text("type");
  options.pure = settings.flag("pure");
  options.seed = static_cast<uint64_t>(settings.integer("seed"));
  options.skew = settings.real("skew");
  options.set = parse_overrides(settings.texts("set"));
  const std::string& out = need(settings, "out");
  const GgufWriter writer = plan_synthesis(options);
  check_space(out, writer.file_bytes());
  const auto start = std::chrono::steady_clock::now();
  {
    Progress progress("writing " + out);
    writer.write(out, [&](uint64_t done, uint64_t total) { progress.update(done, total); });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log::info("{}: {} in {}, {}/s", out, format_bytes(writer.file_bytes()), format_seconds(seconds),
            format_bytes(static_cast<uint64_t>(static_cast<double>(writer.file_bytes()) / std::max(seconds, 1e-3))));
  return 0;
}

}  // namespace moetier::cli
