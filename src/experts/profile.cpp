#include "experts/profile.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace moetier {
namespace {

constexpr char kMagic[4] = {'S', 'T', 'R', 'P'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = 24;       // magic, version, n_layers, n_expert, slots, n_ranked
constexpr int kMaxDimension = 1 << 16;  // layers and experts are u16
constexpr uint64_t kMaxProfileBytes = uint64_t{1} << 26;

template <typename T>
T little_endian(const std::byte* at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<uint64_t>(at[i]) << (8 * i);
  return static_cast<T>(value);
}

template <typename T>
void append(std::string& to, T value) {
  const auto bits = static_cast<uint64_t>(value);
  for (size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(static_cast<uint8_t>(bits >> (8 * i)));
}

Profile parse(std::span<const std::byte> bytes, const std::string& name, int n_layer, int n_expert) {
  if (bytes.size() < sizeof kMagic || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    fail("{} is no profile: it does not begin with STRP", name);
  if (bytes.size() < kHeadBytes) fail("{} ends within its header of {} bytes", name, kHeadBytes);
  const auto word = [&](size_t index) { return little_endian<uint32_t>(bytes.data() + 4 * index); };
  if (word(1) != kVersion) fail("{} is a profile of version {}, and only {} is known", name, word(1), kVersion);
  if (word(2) != static_cast<uint32_t>(n_layer) || word(3) != static_cast<uint32_t>(n_expert)) {
    fail("{} is a profile for {} layers of {} experts, and the model has {} layers of {}", name, word(2), word(3),
         n_layer, n_expert);
  }
  const uint64_t cells = uint64_t{word(2)} * word(3), ranked = word(5);
  if (ranked > cells) fail("{} ranks {} entries, more than the {} there are", name, ranked, cells);
  const std::span<const std::byte> pairs = bytes.subspan(kHeadBytes);
  if (ranked > pairs.size() / 4) fail("{} ends within its {} ranked entries; was it cut short?", name, ranked);
  Profile profile;
  profile.slots = word(4);
  std::vector<bool> seen(cells);
  for (uint64_t i = 0; i < ranked; ++i) {
    const int layer = little_endian<uint16_t>(pairs.data() + 4 * i);
    const int expert = little_endian<uint16_t>(pairs.data() + 4 * i + 2);
    if (layer >= n_layer || expert >= n_expert)
      fail("{}: rank {} is expert {} of layer {}, which the model does not have", name, i, expert, layer);
    const uint64_t cell =
        static_cast<uint64_t>(layer) * static_cast<uint64_t>(n_expert) + static_cast<uint64_t>(expert);
    if (!seen[cell]) profile.ranked.emplace_back(layer, expert);
    seen[cell] = true;
  }
  return profile;
}

template <typename Action>
Profile refused_on_error(Action&& action) {
  try {
    return action();
  } catch (const Error& error) {
    Profile refused;
    refused.problem = error.what();
    return refused;
  }
}

void check_shape(int n_layer, int n_expert) {
  if (n_layer < 1 || n_layer > kMaxDimension || n_expert < 1 || n_expert > kMaxDimension ||
      int64_t{n_layer} * n_expert > INT32_MAX)
    fail("a profile cannot hold {} layers of {} experts", n_layer, n_expert);
}

}  // namespace

Profile parse_profile(std::span<const std::byte> bytes, const std::string& name, int n_layer, int n_expert) {
  return refused_on_error([&] {
    check_shape(n_layer, n_expert);
    return parse(bytes, name, n_layer, n_expert);
  });
}

Profile read_profile(const std::string& path, int n_layer, int n_expert) {
  return refused_on_error([&] {
    const std::string text = read_file(path, kMaxProfileBytes);
    return parse_profile(std::as_bytes(std::span(text.data(), text.size())), path, n_layer, n_expert);
  });
}

void write_profile(const std::string& path, int n_layer, int n_expert, std::span<const std::pair<int, int>> ranked,
                   uint32_t slots) {
  check_shape(n_layer, n_expert);
  std::vector<int32_t> rank(static_cast<size_t>(n_layer) * static_cast<size_t>(n_expert), -1);
  std::string out(kMagic, sizeof kMagic);
  for (const uint32_t word : {kVersion, static_cast<uint32_t>(n_layer), static_cast<uint32_t>(n_expert), slots,
                              static_cast<uint32_t>(std::min(ranked.size(), rank.size()))}) {
    append(out, word);
  }
  int32_t next = 0;
  for (const auto& [layer, expert] : ranked) {
    if (layer < 0 || layer >= n_layer || expert < 0 || expert >= n_expert)
      fail("cannot write {}: expert {} of layer {} is not among {} layers of {}", path, expert, layer, n_layer,
           n_expert);
    int32_t& place = rank[static_cast<size_t>(layer) * static_cast<size_t>(n_expert) + static_cast<size_t>(expert)];
    if (place >= 0) fail("cannot write {}: expert {} of layer {} is ranked twice", path, expert, layer);
    place = next++;
    append(out, static_cast<uint16_t>(layer));
    append(out, static_cast<uint16_t>(expert));
  }
  for (const int32_t place : rank) append(out, place);
  AtomicFile file(path);
  file.write(out);
  file.commit();
}

}  // namespace moetier
