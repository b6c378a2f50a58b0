// Finds stop texts in text that comes in pieces.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetier {

/// Holds back what may be the beginning of a stop text until it is certain. Matching is Knuth, Morris and Pratt's
/// (1977), so a byte costs constant time however long and periodic the stop texts are.
class StopText {
 public:
  /// An empty stop text is a usage error.
  explicit StopText(const std::vector<std::string>& stops);

  /// The text that became certain. When a stop text is complete it and all after it are swallowed, and stopped() is
  /// true.
  std::string push(std::string_view text);
  /// What was held back, if nothing stopped.
  std::string finish();
  bool stopped() const { return stopped_; }
  /// The stop text that was complete first (the longest of several); empty before.
  const std::string& matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // by prefix length: its longest proper prefix that is also its suffix
    size_t matched = 0;          // longest prefix of `text` that the input ends with
  };
  std::vector<Pattern> patterns_;
  std::string pending_, matched_;
  bool stopped_ = false;
};

}  // namespace moetier
