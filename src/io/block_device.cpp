#include "io/block_device.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

#include "io/small_files.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> kib(const fs::path& file) {
  const std::optional<uint64_t> value = first_number(file);
  if (!value || *value > (uint64_t{1} << 40)) return std::nullopt;
  return *value * 1024;
}

/// Words of letters, digits and the like, so that it can stand anywhere.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 128)) {
    const bool keep =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
    if (keep) {
      out += c;
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

std::string stable_id(const fs::path& disk, const std::string& name) {
  std::string id = plain(name);
  for (const char* file : {"wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "device/model", "size"}) {
    const std::string part = plain(first_line(disk / file));
    if (!part.empty()) id += ":" + part;
  }
  return id;
}

}  // namespace

uint64_t BlockDevice::willneed_bytes() const {
  return std::max(read_ahead_bytes.value_or(0), request_bytes.value_or(0));
}

BlockDevice block_device(const std::string& path, const fs::path& root) {
  BlockDevice device;
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return device;
  const std::string number = fmt::format("{}:{}", major(facts.st_dev), minor(facts.st_dev));
  // Network file systems have a read-ahead too, and no disk.
  device.read_ahead_bytes = kib(root / "sys/class/bdi" / number / "read_ahead_kb");
  std::error_code none;
  fs::path disk = fs::canonical(root / "sys/dev/block" / number, none);
  if (none) return device;
  if (fs::exists(disk / "partition", none)) disk = disk.parent_path();
  device.name = disk.filename().string();
  device.id = stable_id(disk, device.name);
  if (const auto ahead = kib(disk / "queue/read_ahead_kb")) device.read_ahead_bytes = ahead;
  device.request_bytes = kib(disk / "queue/max_sectors_kb");
  if (const auto spins = first_number(disk / "queue/rotational")) device.rotational = *spins != 0;
  return device;
}

}  // namespace moetier
