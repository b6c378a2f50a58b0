// Where a request's body ends, found while it comes: no thread has to wait for it.
#pragma once

#include <cstddef>
#include <string_view>

#include "server/http/request_head.h"

namespace moetier::server {

/// Follows one body, whose length is known or that is chunked (RFC 9112, 7.1; trailers are not taken).
class BodyScan {
 public:
  enum class State {
    incomplete,  ///< more must come
    whole,       ///< it ends at size()
    malformed,   ///< no chunked body begins like that
    too_large,   ///< more than `most` bytes, or that many and 64 KiB with the framing
  };
  BodyScan() = default;  ///< of no body
  /// Of the body that `head` announces, which is without a fault.
  BodyScan(const RequestHead& head, size_t most);

  /// `body`: all that has come, from its first byte on; what follows it may be there, too.
  State look(std::string_view body);
  /// Bytes in all where that is known from the beginning, else 0.
  size_t length() const { return length_; }
  /// Bytes from its first, as far as they are looked through.
  size_t size() const { return at_; }

 private:
  enum class Part { chunk_size, chunk, chunk_end, last_end, end };
  State look_at_chunks(std::string_view body);
  State take_size(std::string_view rest);
  State take_line_end(std::string_view rest, Part next);

  bool chunked_ = false;
  size_t most_ = 0;
  size_t length_ = 0;
  size_t left_ = 0;  // of the chunk
  size_t content_ = 0, at_ = 0;
  Part part_ = Part::chunk_size;
};

}  // namespace moetier::server
