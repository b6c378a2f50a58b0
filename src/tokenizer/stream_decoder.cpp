#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace moetier {

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  append_whole_utf8(out, pending_, tokenizer_->piece(id, special_));
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  finish_utf8(out, pending_);
  return out;
}

}  // namespace moetier
