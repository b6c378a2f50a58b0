// What each token cost: as rows of a CSV, and as lines of JSON for a program that watches.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/run_meters.h"

namespace moetier {

/// A log file that is written as things happen. A failed write is said once, ends the log, and stops nothing else.
class LogFile {
 public:
  /// Replaces the file. An error if it cannot be opened.
  explicit LogFile(const std::string& path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  void write(std::string_view text);
  /// One sentence about what was lost; empty if all was written.
  const std::string& problem() const { return problem_; }
  bool open() const { return fd_ >= 0; }

 private:
  std::string path_, problem_;
  int fd_ = -1;
};

struct TokenLogOptions {
  bool progress = false;  ///< JSON lines on standard error
  int64_t steps = -1;     ///< tokens wanted; -1 = not known
};

/// The columns of the CSV in order, and what each means. Only ever added to.
struct Column {
  std::string_view name, meaning;
};
const std::vector<Column>& token_columns();

class TokenLog : public GenerateWatcher {
 public:
  /// `config`: every parameter with its resolved value, for the preamble. `csv`: where rows go; may be null.
  TokenLog(Context& context, const nlohmann::ordered_json& config, const TokenLogOptions& options,
           std::unique_ptr<LogFile> csv);
  /// Text that was handed out since the last token.
  void add_text(std::string_view text) { text_ += text; }

  void started() override;
  void prompt_done(int64_t computed, double seconds) override;
  void token_done(TokenId token, const TokenTimes& times) override;
  /// Writes the trailer. One sentence about what could not be written; empty if all was.
  const std::string& close(const RunMeters& meters);

 private:
  struct Row;
  void write_row(const Row& row);
  void progress_line(const Row& row);
  Context& context_;
  TokenLogOptions options_;
  std::unique_ptr<LogFile> csv_;  // null: none
  Reading last_;
  std::string text_;
  int64_t turn_ = -1, step_ = 0;
  std::string problem_;  // of the CSV, once closed
};

/// Tells several watchers, in order.
class Watchers : public GenerateWatcher {
 public:
  explicit Watchers(std::vector<GenerateWatcher*> all) : all_(std::move(all)) {}
  void started() override {
    for (GenerateWatcher* w : all_) w->started();
  }
  void prompt_done(int64_t computed, double seconds) override {
    for (GenerateWatcher* w : all_) w->prompt_done(computed, seconds);
  }
  void token_done(TokenId token, const TokenTimes& times) override {
    for (GenerateWatcher* w : all_) w->token_done(token, times);
  }
  void finished() override {
    for (GenerateWatcher* w : all_) w->finished();
  }

 private:
  std::vector<GenerateWatcher*> all_;
};

}  // namespace moetier
