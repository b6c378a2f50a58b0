#include "gguf/reader.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "gguf/cursor.h"
#include "gguf/impl.h"
#include "gguf/split.h"

namespace moetier {
namespace {

/// One file, parsed, and what tells it from others.
struct Part {
  std::string path;
  MappedFile map;
  ParsedGguf parsed;
  dev_t device = 0;
  ino_t inode = 0;
};

/// The split.* keys of a file.
struct SplitKeys {
  std::optional<int64_t> number;  ///< from 0
  std::optional<int64_t> count, tensors;
};

/// Opens and parses one file. `role` stands in errors before its name, e.g. "shard 2 of 3 ".
Part load_part(const std::string& path, const std::string& role) {
  Part part;
  part.path = path;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT && !role.empty()) fail("{}is missing: there is no file {}", role, path);
    fail("cannot open {}{}: {}", role, path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) fail("cannot open {}{}: it is not a regular file", role, path);
  part.device = info.st_dev;
  part.inode = info.st_ino;
  part.map = MappedFile(path);
  part.parsed = parse_gguf(part.map.bytes(), path);
  return part;
}

SplitKeys split_keys(const Part& part) {
  SplitKeys keys;
  for (const auto& [key, value] : part.parsed.metadata) {
    std::optional<int64_t>* slot = nullptr;
    if (key == "split.no") slot = &keys.number;
    if (key == "split.count") slot = &keys.count;
    if (key == "split.tensors.count") slot = &keys.tensors;
    if (slot == nullptr) continue;
    *slot = integer_of(value);
    const int64_t most = key == "split.tensors.count" ? INT64_MAX : 65535;
    if (!*slot || **slot < 0 || **slot > most) fail("{}: key {} must be an integer from 0 to {}", part.path, key, most);
  }
  return keys;
}

/// The name of a shard that was handed in, checked against its keys.
SplitName checked_name(const Part& part, const SplitKeys& keys) {
  const auto name = parse_split_name(part.path);
  if (!keys.number) fail("{}: key split.count says {} shards, but key split.no is missing", part.path, *keys.count);
  if (!name) {
    fail(
        "{}: the file is shard {} of {}, so its name must end in -{:05}-of-{:05}.gguf for the others to be found; "
        "rename it",
        part.path, *keys.number + 1, *keys.count, *keys.number + 1, *keys.count);
  }
  if (name->count != *keys.count) {
    fail("{}: the name says {} shards, but key split.count says {}", part.path, name->count, *keys.count);
  }
  return *name;
}

/// A shard against its place in the set and the first shard's keys.
void check_shard(const Part& part, int number, const SplitKeys& first) {
  const SplitKeys keys = split_keys(part);
  if (!keys.number) fail("{}: key split.no is missing, so the file is no shard of this set", part.path);
  if (*keys.number != number - 1) {
    fail("{}: the name says shard {}, but key split.no says {} (which counts from 0, so shard {})", part.path, number,
         *keys.number, *keys.number + 1);
  }
  if (keys.count && *keys.count != *first.count) {
    fail("{}: key split.count says {} shards, but another shard of the set says {}", part.path, *keys.count,
         *first.count);
  }
  if (keys.tensors && first.tensors && *keys.tensors != *first.tensors) {
    fail("{}: key split.tensors.count says {}, but another shard of the set says {}", part.path, *keys.tensors,
         *first.tensors);
  }
}

/// All shards of the set that `handed` belongs to, in order.
std::vector<Part> load_set(Part handed, const SplitKeys& keys) {
  const SplitName name = checked_name(handed, keys);
  std::vector<Part> parts;
  for (int number = 1; number <= name.count; ++number) {
    const std::string path = split_path(name.prefix, number, name.count);
    Part part =
        number == name.number ? std::move(handed) : load_part(path, fmt::format("shard {} of {} ", number, name.count));
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].device != part.device || parts[i].inode != part.inode) continue;
      fail("{}: shards {} and {} are one and the same file (a link), so the set refers to itself", part.path, i + 1,
           number);
    }
    check_shard(part, number, keys);
    parts.push_back(std::move(part));
  }
  return parts;
}

void append_tensors(std::vector<TensorInfo>& all, Part& part, int shard) {
  for (TensorInfo& tensor : part.parsed.tensors) {
    tensor.shard = shard;
    all.push_back(std::move(tensor));
  }
}

}  // namespace

void GgufFile::Impl::index() {
  metadata_order = order_by_name(metadata, [](const auto& pair) -> const std::string& { return pair.first; });
  tensor_order = order_by_name(tensors, [](const TensorInfo& t) -> const std::string& { return t.name; });
  for (size_t i = 1; i < tensor_order.size(); ++i) {
    const TensorInfo& a = tensors[tensor_order[i - 1]];
    const TensorInfo& b = tensors[tensor_order[i]];
    if (a.name == b.name)
      fail("{}: tensor {} is in {}, too", shards[b.shard].path, quote(b.name), shards[a.shard].path);
  }
}

GgufFile::GgufFile(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

GgufFile GgufFile::open(const std::string& path) {
  Part handed = load_part(path, "");
  const SplitKeys keys = split_keys(handed);
  std::vector<Part> parts;
  if (keys.count.value_or(1) > 1) {
    parts = load_set(std::move(handed), keys);
  } else {
    const auto name = parse_split_name(path);
    if (name && name->count > 1) {
      log::warn("{} is named like shard {} of {}, but has no key split.count; it is read as a whole model", path,
                name->number, name->count);
    }
    parts.push_back(std::move(handed));
  }

  auto impl = std::make_shared<Impl>();
  impl->path = path;
  impl->version = parts[0].parsed.version;
  impl->metadata = std::move(parts[0].parsed.metadata);
  for (size_t i = 0; i < parts.size(); ++i) {
    append_tensors(impl->tensors, parts[i], static_cast<int>(i));
    impl->shards.push_back({parts[i].path, parts[i].map.bytes().size(), parts[i].parsed.data_offset});
    impl->bytes.push_back(parts[i].map.bytes());
    impl->maps.push_back(std::move(parts[i].map));
  }
  impl->index();
  if (parts.size() > 1) {
    const auto expected = keys.tensors;
    if (expected && *expected != static_cast<int64_t>(impl->tensors.size())) {
      fail("{}: the {} shards hold {} tensors, but key split.tensors.count says {}", path, parts.size(),
           impl->tensors.size(), *expected);
    }
  }
  return GgufFile(std::move(impl));
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, const std::string& name) {
  ParsedGguf parsed = parse_gguf(bytes, name);
  auto impl = std::make_shared<Impl>();
  impl->path = name;
  impl->version = parsed.version;
  impl->metadata = std::move(parsed.metadata);
  impl->tensors = std::move(parsed.tensors);
  impl->shards.push_back({name, bytes.size(), parsed.data_offset});
  impl->bytes.push_back(bytes);
  impl->index();
  return GgufFile(std::move(impl));
}

const std::string& GgufFile::path() const {
  return impl_->path;
}
uint32_t GgufFile::version() const {
  return impl_->version;
}
std::span<const GgufFile::Shard> GgufFile::shards() const {
  return impl_->shards;
}
std::span<const std::byte> GgufFile::shard_bytes(size_t shard) const {
  return impl_->bytes.at(shard);
}
std::span<const std::pair<std::string, GgufValue>> GgufFile::metadata() const {
  return impl_->metadata;
}
std::span<const TensorInfo> GgufFile::tensors() const {
  return impl_->tensors;
}

uint64_t GgufFile::file_bytes() const {
  uint64_t sum = 0;
  for (const Shard& shard : impl_->shards) sum += shard.bytes;
  return sum;
}

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
  const auto name_of = [&](uint32_t i) -> std::string_view { return impl_->tensors[i].name; };
  const auto at = std::ranges::lower_bound(impl_->tensor_order, name, {}, name_of);
  return at != impl_->tensor_order.end() && name_of(*at) == name ? &impl_->tensors[*at] : nullptr;
}

std::span<const std::byte> GgufFile::data(const TensorInfo& tensor) const {
  if (const auto moved = impl_->relocated.find(tensor.name); moved != impl_->relocated.end()) return moved->second;
  const auto shard = static_cast<size_t>(tensor.shard);
  if (shard >= impl_->bytes.size() || tensor.offset > impl_->bytes[shard].size() ||
      tensor.bytes > impl_->bytes[shard].size() - tensor.offset) {
    fail("{}: tensor {} does not belong to this file", impl_->path, quote(tensor.name));
  }
  return impl_->bytes[shard].subspan(tensor.offset, tensor.bytes);
}

void GgufFile::relocate(const TensorInfo& tensor, std::span<const std::byte> bytes) {
  if (bytes.size() != data(tensor).size()) {
    fail("{}: tensor {} has {} bytes and cannot be relocated to {}", impl_->path, quote(tensor.name), tensor.bytes,
         bytes.size());
  }
  impl_->relocated[tensor.name] = bytes;
}

int block_number(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int number = -1;
  const auto [stop, status] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = status == std::errc() && stop != name.data() + name.size() && *stop == '.';
  return whole && number >= 0 ? number : -1;
}

}  // namespace moetier
