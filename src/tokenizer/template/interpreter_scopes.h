// What the interpreter makes current for a while.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/template/interpreter.h"

namespace moetier::jinja {

class Interpreter::Inside {
 public:
  Inside(Interpreter& interpreter, std::shared_ptr<Activation> activation)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.activation_, std::move(activation))) {}
  ~Inside() { interpreter_.activation_ = std::move(outer_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Activation> outer_;
};

class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.output_, this)) {}
  ~Capture() { interpreter_.output_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void write(std::string_view text) {
    check_text_size(text_.size() + text.size());
    claim_.grow(text.size());
    spend_on_text(text.size());
    text_ += text;
  }
  std::string text() const { return text_; }

 private:
  Interpreter& interpreter_;
  Capture* outer_;
  std::string text_;
  Claim claim_;
};

/// The text that a filter block's filter is applied to.
class BlockText {
 public:
  BlockText(const Value*& current, const Value* text) : current_(current), outer_(std::exchange(current, text)) {}
  ~BlockText() { current_ = outer_; }
  BlockText(const BlockText&) = delete;
  BlockText& operator=(const BlockText&) = delete;

 private:
  const Value*& current_;
  const Value* outer_;
};

}  // namespace moetier::jinja
