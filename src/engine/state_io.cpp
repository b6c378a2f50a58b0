// A sequence's state as bytes, little-endian: a header of 56 bytes (below), the keys and values, in models with
// recurrent layers their state after the last position (if there is one), a checksum of 8 bytes over all before. Keys
// and values stand page by page (64 positions, the last page only as far as it is held); in a page layer by layer, K
// then V (where V is not a part of K), then keys of the blocks of positions that end in what is held, head by head,
// position by position, the elements as the KV type stores them.
// Recurrent layers follow one another, of each a convolution's last inputs [channels, inputs], then a state [width,
// rows, heads], f32.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "engine/state.h"

namespace moetier {
namespace {

// K and V are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little, "states are little-endian");

constexpr std::string_view kMagic{"MTSTATE\0", 8};
constexpr uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic{};
  uint32_t version = 0, type = 0;
  uint32_t layers = 0, kv_heads = 0, key_length = 0, value_length = 0;
  uint32_t page_positions = 0, reserved = 0;
  uint64_t fingerprint = 0;
  uint64_t positions = 0;
};
static_assert(sizeof(Header) == 56);

/// Mixes eight bytes at a time, in whatever pieces they come: it notices damage, it does not withstand forgery.
class Checksum {
 public:
  explicit Checksum(uint64_t bytes) : hash_(0x9e3779b97f4a7c15ull ^ bytes) {}
  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      if (held_ == 0 && bytes.size() >= sizeof word_) {
        std::memcpy(&word_, bytes.data(), sizeof word_);
        bytes.remove_prefix(sizeof word_);
        mix();
        continue;
      }
      const size_t n = std::min(sizeof word_ - held_, bytes.size());
      std::memcpy(reinterpret_cast<char*>(&word_) + held_, bytes.data(), n);
      bytes.remove_prefix(n);
      held_ += n;
      if (held_ == sizeof word_) mix();
    }
  }
  /// Of all that was added; the end.
  uint64_t value() {
    if (held_ > 0) mix();
    return hash_ ^ (hash_ >> 32);
  }

 private:
  void mix() {
    hash_ = std::rotl((hash_ ^ word_) * 0xff51afd7ed558ccdull, 29);
    word_ = 0;
    held_ = 0;
  }
  uint64_t hash_, word_ = 0;
  size_t held_ = 0;  // bytes of the next word
};

Header header_of(const KvPool& pool, int64_t positions) {
  Header h;
  std::copy(kMagic.begin(), kMagic.end(), h.magic.begin());
  h.version = kVersion;
  h.type = static_cast<uint32_t>(pool.type());
  h.layers = static_cast<uint32_t>(pool.layers().size());
  const auto layer = std::ranges::find_if(pool.layers(), [](const KvLayer& l) { return !l.k.empty(); });
  if (layer != pool.layers().end()) {  // the first that keeps some; a recurrent model has none
    h.kv_heads = static_cast<uint32_t>(layer->k.shape[2]);
    h.key_length = static_cast<uint32_t>(layer->k.shape[0]);
    h.value_length = static_cast<uint32_t>(layer->v.shape[0]);
  }
  h.page_positions = kPagePositions;
  h.fingerprint = pool.fingerprint();
  h.positions = static_cast<uint64_t>(positions);
  return h;
}

/// Calls copy(bytes before it in the page, bytes) for each run that holds the first `positions` positions of a
/// sequence's page, in order.
template <typename Copy>
void for_each_run(const KvPool& pool, int64_t page, int64_t positions, Copy copy) {
  size_t offset = 0;
  for (size_t i = 0; i < pool.stored().size(); ++i) {
    const Tensor& side = pool.stored()[i];
    const int64_t rows = pool.rows_held(i, page, positions);
    for (int64_t head = 0; head < side.shape[2]; ++head) {
      copy(offset, static_cast<size_t>(rows) * side.row_stride);
      offset += static_cast<size_t>(side.shape[1]) * side.row_stride;
    }
  }
}

/// Positions of a sequence that its page holds.
int64_t held_in(int64_t positions, int64_t page) {
  return std::min<int64_t>(kPagePositions, positions - page * kPagePositions);
}

/// Bytes of a saved state of so many positions.
uint64_t state_bytes(const KvPool& pool, uint64_t positions) {
  uint64_t bytes = sizeof(Header) + (positions > 0 ? pool.states().bytes() : 0) + 8;
  const auto length = static_cast<int64_t>(positions);
  for (int64_t page = 0; page < pages_for(length); ++page)
    for_each_run(pool, page, held_in(length, page), [&](size_t, size_t n) { bytes += n; });
  return bytes;
}

/// Refuses what load() cannot take: a state of `bytes` bytes that begins with `h`. Gives the number of positions.
int64_t check_header(const KvPool& pool, const Header& h, uint64_t bytes) {
  if (std::string_view(h.magic.data(), h.magic.size()) != kMagic)
    fail("this is not a saved sequence state (wrong magic)");
  if (h.version != kVersion) fail("the saved state has version {}; this program reads version {}", h.version, kVersion);
  const Header mine = header_of(pool, 0);
  if (h.type != mine.type) {
    const TypeInfo* type = h.type <= 255 ? find_type(static_cast<int32_t>(h.type)) : nullptr;
    fail("the saved state holds {} and this context's KV cache holds {}: use the same KV type",
         type != nullptr ? type->name : "an unknown type", type_name(pool.type()));
  }
  if (h.layers != mine.layers || h.kv_heads != mine.kv_heads || h.key_length != mine.key_length ||
      h.value_length != mine.value_length || h.page_positions != mine.page_positions) {
    fail(
        "the saved state has another shape ({} layers, {} KV heads of {} and {}) than this model ({} layers, {} KV "
        "heads of {} and {})",
        h.layers, h.kv_heads, h.key_length, h.value_length, mine.layers, mine.kv_heads, mine.key_length,
        mine.value_length);
  }
  if (h.fingerprint != mine.fingerprint) fail("the saved state comes from another model");
  const int64_t limit = int64_t{pool.capacity()} * kPagePositions;
  if (h.positions > static_cast<uint64_t>(limit)) {
    fail("the saved state holds {} positions and this context's KV cache only {}", h.positions, limit);
  }
  const auto positions = static_cast<int64_t>(h.positions);
  // Cannot overflow: the pool's own size does not.
  const uint64_t want = state_bytes(pool, h.positions);
  if (bytes != want)
    fail("the saved state should have {} bytes for its {} positions and has {}", want, positions, bytes);
  return positions;
}

}  // namespace

uint64_t SequenceState::saved_bytes() const {
  return state_bytes(*pool_, static_cast<uint64_t>(length_));
}

std::string SequenceState::save() const {
  std::string out;
  out.reserve(saved_bytes());
  save([&](std::string_view piece) { out.append(piece); });
  return out;
}

void SequenceState::save(const std::function<void(std::string_view)>& write) const {
  const Header header = header_of(*pool_, length_);
  Checksum sum(saved_bytes() - 8);
  const auto give = [&](const void* data, size_t bytes) {
    const std::string_view piece(static_cast<const char*>(data), bytes);
    sum.add(piece);
    write(piece);
  };
  give(&header, sizeof header);
  std::vector<std::byte> page, state;
  for (size_t i = 0; i < pages_.size(); ++i) {
    pool_->download(pages_[i], page);
    const auto index = static_cast<int64_t>(i);
    for_each_run(*pool_, index, held_in(length_, index),
                 [&](size_t offset, size_t bytes) { give(page.data() + offset, bytes); });
  }
  if (slot_ >= 0) {
    state.resize(pool_->states().bytes());
    pool_->states().download(slot_, state.data());
    give(state.data(), state.size());
  }
  const uint64_t value = sum.value();
  write({reinterpret_cast<const char*>(&value), sizeof value});
}

void SequenceState::load(std::string_view bytes) {
  load(bytes.size(), [&](std::span<std::byte> out) {
    std::memcpy(out.data(), bytes.data(), out.size());
    bytes.remove_prefix(out.size());
  });
}

void SequenceState::load(uint64_t bytes, const std::function<void(std::span<std::byte>)>& read) {
  if (bytes < sizeof(Header) + 8) fail("the saved state is cut short: it has only {} bytes", bytes);
  Checksum sum(bytes - 8);
  const auto take = [&](void* data, size_t n) {
    read({static_cast<std::byte*>(data), n});
    sum.add({static_cast<const char*>(data), n});
  };
  Header header;
  take(&header, sizeof header);
  const int64_t positions = check_header(*pool_, header, bytes);
  SequenceState fresh(*pool_);
  fresh.append(positions);
  std::vector<std::byte> page(pool_->page_bytes()), state;
  for (size_t i = 0; i < fresh.pages_.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    std::fill(page.begin(), page.end(), std::byte{0});
    for_each_run(*pool_, index, held_in(positions, index),
                 [&](size_t offset, size_t n) { take(page.data() + offset, n); });
    pool_->upload(fresh.pages_[i], page);
  }
  if (fresh.slot_ >= 0) {
    state.resize(pool_->states().bytes());
    take(state.data(), state.size());
    pool_->states().upload(fresh.slot_, state.data());
  }
  uint64_t stored = 0;
  read(std::as_writable_bytes(std::span(&stored, 1)));
  if (stored != sum.value()) fail("the saved state is damaged: its checksum does not match");
  *this = std::move(fresh);
}

}  // namespace moetier
