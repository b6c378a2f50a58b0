#include "experts/guess_log.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace moetier {
namespace {

constexpr char kMagic[8] = {'M', 'T', 'G', 'U', 'E', 'S', 'S', '\0'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = 32, kLayerBytes = 16;
constexpr uint64_t kMostBytes = uint64_t{1} << 32;

template <typename T>
T little_endian(std::span<const std::byte> bytes, uint64_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  return static_cast<T>(value);
}

template <typename T>
void append(std::string& to, T value) {
  const auto bits = static_cast<uint64_t>(value);
  for (size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(static_cast<uint8_t>(bits >> (8 * i)));
}

void append_ids(std::string& to, std::span<const int32_t> ids) {
  for (const int32_t id : ids) append(to, static_cast<uint16_t>(id));
}

std::vector<int32_t> ids_at(std::span<const std::byte> bytes, uint64_t& at, uint64_t count, int n_expert,
                            const std::string& name) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) {
    id = little_endian<uint16_t>(bytes, at);
    if (id >= n_expert) fail("{}: byte {} names expert {}, and there are {}", name, at, id, n_expert);
    at += 2;
  }
  return ids;
}

}  // namespace

void write_guess_log(const std::string& path, const GuessLog& log) {
  std::string head(kMagic, sizeof kMagic);
  for (const auto word :
       {kVersion, static_cast<uint32_t>(log.layers.size()), static_cast<uint32_t>(log.n_expert),
        static_cast<uint32_t>(log.top_k), static_cast<uint32_t>(log.width), static_cast<uint32_t>(log.tokens)}) {
    append(head, word);
  }
  const auto tokens = static_cast<size_t>(log.tokens);
  for (const GuessLog::Layer& layer : log.layers) {
    if (layer.picks.size() != tokens * static_cast<size_t>(log.top_k) ||
        layer.guesses.size() != (&layer == &log.layers.front() ? 0 : tokens * static_cast<size_t>(log.width)))
      fail("cannot write {}: layer {} has {} picks and {} guesses of {} tokens", path, layer.layer, layer.picks.size(),
           layer.guesses.size(), tokens);
    append(head, static_cast<uint32_t>(layer.layer));
    append(head, uint32_t{0});
    append(head, layer.entry_bytes);
  }
  AtomicFile file(path);
  file.write(head);
  for (const GuessLog::Layer& layer : log.layers) {
    std::string ids;
    append_ids(ids, layer.picks);
    append_ids(ids, layer.guesses);
    file.write(ids);
  }
  file.commit();
}

GuessLog parse_guess_log(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    fail("{} is no log of guesses: it does not begin with MTGUESS", name);
  const auto word = [&](size_t index) { return little_endian<uint32_t>(bytes, sizeof kMagic + 4 * index); };
  if (word(0) != kVersion) fail("{} is a log of guesses of version {}, and only {} is known", name, word(0), kVersion);
  const uint64_t layers = word(1), experts = word(2), top_k = word(3), width = word(4), tokens = word(5);
  if (layers == 0 || layers > 65536 || experts == 0 || experts > 65536 || top_k == 0 || top_k > experts || width == 0 ||
      width > experts || tokens == 0)
    fail("{} tells of {} layers of {} experts, {} picks, {} guesses and {} tokens, which cannot be", name, layers,
         experts, top_k, width, tokens);
  // All factors are below 2^32, 2^16 and 2^17, and so is the whole below 2^63.
  const uint64_t per_layer = tokens * (top_k + width) * 2;
  if (per_layer > kMostBytes || bytes.size() != kHeadBytes + layers * (kLayerBytes + per_layer) - 2 * tokens * width)
    fail("{} has {} bytes, which is not what its header tells; was it cut short?", name, bytes.size());
  GuessLog log;
  log.n_expert = static_cast<int>(experts);
  log.top_k = static_cast<int>(top_k);
  log.width = static_cast<int>(width);
  log.tokens = static_cast<int64_t>(tokens);
  uint64_t at = kHeadBytes;
  for (uint64_t l = 0; l < layers; ++l, at += kLayerBytes) {
    GuessLog::Layer layer;
    const auto number = little_endian<uint32_t>(bytes, at);
    if (number > 65535 || (!log.layers.empty() && static_cast<int>(number) <= log.layers.back().layer))
      fail("{}: layer {} comes out of order", name, number);
    layer.layer = static_cast<int>(number);
    layer.entry_bytes = little_endian<uint64_t>(bytes, at + 8);
    if (layer.entry_bytes > (uint64_t{1} << 48))
      fail("{}: layer {} has entries of {} bytes", name, number, layer.entry_bytes);
    log.layers.push_back(std::move(layer));
  }
  for (size_t l = 0; l < log.layers.size(); ++l) {
    log.layers[l].picks = ids_at(bytes, at, tokens * top_k, log.n_expert, name);
    if (l > 0) log.layers[l].guesses = ids_at(bytes, at, tokens * width, log.n_expert, name);
  }
  return log;
}

GuessLog read_guess_log(const std::string& path) {
  const std::string text = read_file(path, kMostBytes);
  return parse_guess_log(std::as_bytes(std::span(text.data(), text.size())), path);
}

}  // namespace moetier
