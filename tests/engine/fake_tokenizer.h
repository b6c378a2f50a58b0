// A tokenizer whose tokens are given one by one; for what looks only at pieces.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace moetier::testing_support {

class FakeTokenizer final : public Tokenizer {
 public:
  TokenId add(std::string text) {
    texts_.push_back(std::move(text));
    kinds_.push_back(0);
    return static_cast<TokenId>(texts_.size()) - 1;
  }
  TokenId add_control(std::string text) {
    const TokenId id = add(std::move(text));
    kinds_.back() = 1;
    return id;
  }
  TokenId add_end(std::string text) {
    const TokenId id = add(std::move(text));
    kinds_.back() = 2;
    return id;
  }

  std::vector<TokenId> encode(std::string_view, const EncodeOptions&) const override { fail("not there"); }
  std::string piece(TokenId id, bool special) const override { return kind(id) == 0 || special ? text(id) : ""; }
  std::string decode(std::span<const TokenId> ids, bool special) const override {
    std::string out;
    for (const TokenId id : ids) out += piece(id, special);
    return out;
  }
  bool clean_spaces() const override { return false; }
  int32_t vocab_size() const override { return static_cast<int32_t>(texts_.size()); }
  TokenId bos() const override { return -1; }
  TokenId eos() const override { return -1; }
  bool add_bos() const override { return false; }
  bool is_end_of_generation(TokenId id) const override { return kind(id) == 2; }
  bool is_control(TokenId id) const override { return kind(id) != 0; }
  const std::string& text(TokenId id) const override { return texts_[static_cast<size_t>(id)]; }
  TokenId find(std::string_view wanted) const override {
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i] == wanted) return static_cast<TokenId>(i);
    }
    return -1;
  }
  const std::string& chat_template() const override { return texts_.front(); }
  std::span<const TokenId> suppressed() const override { return {}; }

 private:
  int kind(TokenId id) const { return kinds_[static_cast<size_t>(id)]; }
  std::vector<std::string> texts_;
  std::vector<int> kinds_;
};

}  // namespace moetier::testing_support
