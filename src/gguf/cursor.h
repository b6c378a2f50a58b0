// Reads a file's header field by field; nothing is read or allocated before it is known to fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace moetier {

/// `text` from a file as it may stand in a message: in double quotes, control and non-ASCII bytes escaped, cut at 80
/// bytes.
std::string quote(std::string_view text);

/// The place in a file where parsing stands. Errors read "FILE: SUBJECT: FIELD at byte OFFSET ...".
class Cursor {
 public:
  /// Bytes of metadata and tensor records that a file may have. Real ones have some MB; a sparse file must not buy
  /// gigabytes.
  static constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;

  /// `file` must outlive the cursor.
  Cursor(std::span<const std::byte> bytes, const std::string& file)
      : bytes_(bytes), file_(&file), end_(bytes.size() < kMaxHeaderBytes ? bytes.size() : kMaxHeaderBytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return end_ - offset_; }
  const std::string& file() const { return *file_; }

  /// What the fields that follow belong to, e.g. `metadata record 3`.
  void set_subject(std::string subject) { subject_ = std::move(subject); }

  /// A little-endian number. `field` says what it is, e.g. "dimension count".
  template <typename T>
  T number(std::string_view field) {
    need(sizeof(T), field);
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  /// The next `n_bytes` bytes into `out`.
  void copy(void* out, uint64_t n_bytes, std::string_view field) {
    need(n_bytes, field);
    if (n_bytes > 0) std::memcpy(out, bytes_.data() + offset_, n_bytes);
    offset_ += n_bytes;
  }

  /// A string: u64 length, then bytes. The view lies in the file.
  std::string_view string(std::string_view field, uint64_t max_bytes);

  /// A count of things that take at least `min_bytes` each in what is left of the file.
  uint64_t count(std::string_view field, uint64_t min_bytes);

  /// Throws: FIELD, whose first byte is `at`, COMPLAINT.
  [[noreturn]] void refuse(std::string_view field, uint64_t at, std::string_view complaint) const;

 private:
  void need(uint64_t n, std::string_view field) const {
    if (n > left()) refuse_short(n, field);
  }
  [[noreturn]] void refuse_short(uint64_t n, std::string_view field) const;

  std::span<const std::byte> bytes_;
  const std::string* file_;
  std::string subject_ = "header";
  uint64_t offset_ = 0;
  uint64_t end_;
};

}  // namespace moetier
