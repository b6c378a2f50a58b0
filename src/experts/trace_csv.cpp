// Reads routing traces of the CSV kind.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "experts/trace_builder.h"
#include "experts/trace_input.h"

namespace moetier {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 40;  // of one entry or one layer, so that sums cannot overflow

enum Column : size_t { turn, phase, step, layer, slot, expert, weight, residency, expert_bytes, dropped, kColumns };
constexpr std::array<std::string_view, kColumns> kNames = {"turn",   "phase",  "step",      "layer",        "slot",
                                                           "expert", "weight", "residency", "expert_bytes", "dropped"};
constexpr std::array<Column, 4> kNeeded = {phase, step, layer, expert};

class CsvReader {
 public:
  explicit CsvReader(TraceInput& input) : input_(input) {}

  RoutingTrace read() {
    std::string_view text;
    bool header = false;
    while (input_.line(text)) {
      if (text.empty()) continue;
      if (text.front() == '#') {
        if (!header) comment(text.substr(1));  // later ones could not hold for the rows above
      } else if (!header) {
        columns(text);
        header = true;
      } else {
        row(text);
      }
    }
    if (!header) fail("{} has no line that names its columns, so it is no routing trace", input_.name());
    return finish();
  }

 private:
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: line {} {}", input_.name(), input_.line_number(), fmt::format(format, std::forward<Args>(args)...));
  }

  /// A whole number in [low, high], and nothing behind it.
  int64_t integer(std::string_view text, std::string_view what, int64_t low, int64_t high) const {
    int64_t value = 0;
    const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || stop != text.data() + text.size() || value < low || value > high)
      bad("has '{}' for {}, which must be a whole number from {} to {}", text.substr(0, 40), what, low, high);
    return value;
  }

  /// The value behind ` key=`, up to the next space; nullopt if the key is not there.
  static std::optional<std::string_view> value_of(std::string_view text, std::string_view key) {
    const size_t at = text.find(key);
    if (at == std::string_view::npos) return std::nullopt;
    text.remove_prefix(at + key.size());
    return text.substr(0, text.find(' '));
  }

  void comment(std::string_view text) {
    constexpr std::string_view kVersion = " route_trace v", kModel = " model=", kArch = " arch=";
    if (text.starts_with(kVersion)) {
      if (text != " route_trace v1") bad("says '{}', and only version 1 is known", text.substr(1, 40));
    } else if (text.starts_with(kModel)) {
      // A file's name may hold spaces.
      builder_.trace.model = text.substr(kModel.size(), text.find(kArch) - kModel.size());
      builder_.trace.arch = value_of(text, kArch).value_or("");
      if (const auto n = value_of(text, " n_layer=")) n_layer_ = integer(*n, "n_layer", 1, kMaxTraceLayers);
      if (const auto n = value_of(text, " n_expert=")) n_expert_ = integer(*n, "n_expert", 1, kMaxTraceExperts);
    } else if (const auto number = value_of(text, " layer="); number && text.starts_with(" layer=")) {
      layer_line(static_cast<size_t>(integer(*number, "layer", 0, n_layer_.value_or(kMaxTraceLayers) - 1)), text);
    }
  }

  void layer_line(size_t number, std::string_view text) {
    const auto keep = [&](std::vector<uint64_t>& bytes, std::string_view key, std::string_view what) {
      const auto value = value_of(text, key);
      if (!value) return;
      if (bytes.size() <= number) bytes.resize(number + 1);
      bytes[number] = static_cast<uint64_t>(integer(*value, what, 0, kMaxBytes));
    };
    keep(builder_.trace.entry_bytes, " expert_bytes=", "expert_bytes");
    keep(builder_.trace.dense_bytes, " dense_bytes=", "dense_bytes");
  }

  /// Where each known column stands; others are left alone.
  void columns(std::string_view text) {
    place_.fill(kAbsent);
    size_t index = 0;
    for_each_field(text, [&](std::string_view name) {
      const auto known = std::find(kNames.begin(), kNames.end(), name);
      if (known != kNames.end()) {
        size_t& place = place_[static_cast<size_t>(known - kNames.begin())];
        if (place != kAbsent) bad("names the column {} twice", name);
        place = index;
      }
      ++index;
    });
    for (const Column column : kNeeded) {
      if (place_[column] == kAbsent)
        bad("should name the columns of a routing trace, and {} is missing", kNames[column]);
    }
  }

  template <typename Action>
  static void for_each_field(std::string_view text, Action action) {
    for (;;) {
      const size_t comma = text.find(',');
      action(text.substr(0, comma));
      if (comma == std::string_view::npos) return;
      text.remove_prefix(comma + 1);
    }
  }

  /// A column's number, or `absent` if the file has no such column.
  int64_t number(Column column, int64_t high, int64_t absent) const {
    return place_[column] == kAbsent ? absent : integer(fields_[column], kNames[column], 0, high);
  }

  float weight_of_row() const {
    const std::string_view text = fields_[weight];
    if (place_[weight] == kAbsent) return 0;
    float value = 0;
    const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || stop != text.data() + text.size() || std::isinf(value))
      bad("has '{}' for weight, which must be a number or nan", text.substr(0, 40));
    return value;
  }

  void split(std::string_view text) {
    size_t index = 0, found = 0;
    for_each_field(text, [&](std::string_view field) {
      for (size_t c = 0; c < kColumns; ++c) {
        if (place_[c] != index) continue;
        fields_[c] = field;
        ++found;
      }
      ++index;
    });
    const auto named = kColumns - static_cast<size_t>(std::count(place_.begin(), place_.end(), kAbsent));
    if (found < named) bad("has {} fields, fewer than its columns; was the file cut short?", index);
  }

  void row(std::string_view text) {
    split(text);
    const Key key = {number(turn, INT32_MAX, 0), number(step, INT32_MAX, 0), number(phase, 1, 0),
                     number(layer, n_layer_.value_or(kMaxTraceLayers) - 1, 0)};
    const int64_t rank = number(slot, kMaxTraceExperts, last_slot_ + 1);
    if (key[0] < last_[0]) bad("goes back to turn {} from turn {}", key[0], last_[0]);
    if (key[0] > last_[0] && !builder_.trace.routings.empty()) builder_.end_turn(input_.name());
    if (key != last_ || rank <= last_slot_ || builder_.trace.routings.empty())
      builder_.begin(static_cast<int32_t>(key[1]), static_cast<int32_t>(key[3]), key[2] == 0, input_.name());
    last_ = key;
    last_slot_ = rank;
    const int64_t id = number(expert, n_expert_.value_or(kMaxTraceExperts) - 1, 0);
    if (!builder_.add(static_cast<int32_t>(id), weight_of_row())) bad("picks expert {} a second time", id);
    number(expert_bytes, kMaxBytes, 0);
    if (place_[residency] != kAbsent) {
      const int64_t state = number(dropped, 1, 0) == 1 ? -1 : number(residency, 2, 0);
      builder_.trace.residency.push_back(static_cast<int8_t>(state));
    }
  }

  RoutingTrace finish() {
    RoutingTrace& trace = builder_.trace;
    if (n_layer_) trace.n_layer = static_cast<int>(*n_layer_);
    if (n_expert_) trace.n_expert = static_cast<int>(*n_expert_);
    trace.told = n_expert_.has_value();
    for (auto* bytes : {&trace.entry_bytes, &trace.dense_bytes}) {
      if (!bytes->empty()) bytes->resize(static_cast<size_t>(trace.n_layer));
    }
    return builder_.finish(input_.name());
  }

  static constexpr size_t kAbsent = std::numeric_limits<size_t>::max();
  using Key = std::array<int64_t, 4>;  // turn, step, phase, layer

  TraceInput& input_;
  TraceBuilder builder_;
  std::optional<int64_t> n_layer_, n_expert_;  // as the file says
  std::array<size_t, kColumns> place_{};       // a column's place in a row, or kAbsent
  std::array<std::string_view, kColumns> fields_;
  Key last_ = {-1, 0, 0, 0};
  int64_t last_slot_ = -1;
};

}  // namespace

RoutingTrace read_csv_trace(TraceInput& input) {
  return CsvReader(input).read();
}

}  // namespace moetier
