// The bytes of a trace, taken piece by piece from a file or from memory. Of the reader's own use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace moetier {

class TraceInput {
 public:
  explicit TraceInput(const std::string& path);  ///< errors: cannot be opened
  TraceInput(std::span<const std::byte> bytes, const std::string& name);
  ~TraceInput();
  TraceInput(const TraceInput&) = delete;
  TraceInput& operator=(const TraceInput&) = delete;

  /// The next `bytes` or, at the end, fewer; valid until the next call. An error beyond kMaxTraceBytes.
  std::string_view peek(size_t bytes);
  void skip(size_t bytes);  ///< of those peeked
  /// The next line without its end; false at the end. An error for one longer than kMaxLine.
  bool line(std::string_view& text);
  uint64_t offset() const { return offset_; }            ///< of the next byte
  uint64_t line_number() const { return line_number_; }  ///< of the last line, from 1
  const std::string& name() const { return name_; }

  static constexpr size_t kMaxLine = 1 << 16;

 private:
  void refill(size_t wanted);
  std::string name_;
  int fd_ = -1;
  std::string buffer_;     // of a file
  std::string_view left_;  // what is held and not taken
  bool ended_ = false;
  uint64_t read_ = 0, offset_ = 0, line_number_ = 0;
};

}  // namespace moetier
