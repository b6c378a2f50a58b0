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

/// Mixes eight bytes at a time: it notices damage, it does not withstand forgery.
uint64_t checksum(std::string_view bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15ull ^ bytes.size();
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
    hash = std::rotl((hash ^ word) * 0xff51afd7ed558ccdull, 29);
  }
  return hash ^ (hash >> 32);
}

Header header_of(const KvPool& pool, int64_t positions) {
  const KvLayer& layer =
      *std::ranges::find_if(pool.layers(), [](const KvLayer& l) { return !l.k.empty(); });  // of the first that has one
  Header h;
  std::copy(kMagic.begin(), kMagic.end(), h.magic.begin());
  h.version = kVersion;
  h.type = static_cast<uint32_t>(pool.type());
  h.layers = static_cast<uint32_t>(pool.layers().size());
  h.kv_heads = static_cast<uint32_t>(layer.k.shape[2]);
  h.key_length = static_cast<uint32_t>(layer.k.shape[0]);
  h.value_length = static_cast<uint32_t>(layer.v.shape[0]);
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

/// Reads the header and refuses what load() cannot take. Gives the number of positions.
int64_t check_header(const KvPool& pool, std::string_view bytes) {
  if (bytes.size() < sizeof(Header) + 8) fail("the saved state is cut short: it has only {} bytes", bytes.size());
  Header h;
  std::memcpy(&h, bytes.data(), sizeof h);
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
  if (bytes.size() != want)
    fail("the saved state should have {} bytes for its {} positions and has {}", want, positions, bytes.size());
  uint64_t stored = 0;
  std::memcpy(&stored, bytes.data() + bytes.size() - 8, 8);
  if (stored != checksum(bytes.substr(0, bytes.size() - 8)))
    fail("the saved state is damaged: its checksum does not match");
  return positions;
}

}  // namespace

uint64_t SequenceState::saved_bytes() const {
  return state_bytes(*pool_, static_cast<uint64_t>(length_));
}

std::string SequenceState::save() const {
  const Header header = header_of(*pool_, length_);
  std::string out;
  out.reserve(saved_bytes());
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  std::vector<std::byte> page;
  for (size_t i = 0; i < pages_.size(); ++i) {
    pool_->download(pages_[i], page);
    const auto page_index = static_cast<int64_t>(i);
    for_each_run(*pool_, page_index, held_in(length_, page_index), [&](size_t offset, size_t bytes) {
      out.append(reinterpret_cast<const char*>(page.data()) + offset, bytes);
    });
  }
  if (slot_ >= 0) {
    const size_t end = out.size();
    out.resize(end + pool_->states().bytes());
    pool_->states().download(slot_, reinterpret_cast<std::byte*>(out.data()) + end);
  }
  const uint64_t sum = checksum(out);
  out.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  return out;
}

void SequenceState::load(std::string_view bytes) {
  const int64_t positions = check_header(*pool_, bytes);
  SequenceState fresh(*pool_);
  fresh.append(positions);
  std::vector<std::byte> page(pool_->page_bytes());
  const char* from = bytes.data() + sizeof(Header);
  for (size_t i = 0; i < fresh.pages_.size(); ++i) {
    const auto page_index = static_cast<int64_t>(i);
    std::fill(page.begin(), page.end(), std::byte{0});
    for_each_run(*pool_, page_index, held_in(positions, page_index), [&](size_t offset, size_t n) {
      std::memcpy(page.data() + offset, from, n);
      from += n;
    });
    pool_->upload(fresh.pages_[i], page);
  }
  if (fresh.slot_ >= 0) pool_->states().upload(fresh.slot_, reinterpret_cast<const std::byte*>(from));
  *this = std::move(fresh);
}

}  // namespace moetier
