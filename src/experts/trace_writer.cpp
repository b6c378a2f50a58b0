#include "experts/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/log.h"

namespace moetier {

static_assert(std::endian::native == std::endian::little, "binary traces are written as they lie in memory");

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

/// A name as a preamble can hold it: in one line.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

std::string preamble(const TraceHead& head, bool dropped) {
  std::string text = fmt::format("# route_trace v1\n# model={} arch={} n_layer={} n_expert={} n_expert_used={}\n",
                                 one_line(head.model), one_line(head.arch), head.n_layer, head.n_expert, head.top_k);
  const size_t layers = std::max(head.entry_bytes.size(), head.dense_bytes.size());
  for (size_t i = 0; i < layers; ++i) {
    fmt::format_to(std::back_inserter(text), "# layer={} expert_bytes={} dense_bytes={}\n", i,
                   i < head.entry_bytes.size() ? head.entry_bytes[i] : 0,
                   i < head.dense_bytes.size() ? head.dense_bytes[i] : 0);
  }
  text += "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes";
  return text + (dropped ? ",dropped\n" : "\n");
}

}  // namespace

CsvTraceWriter::CsvTraceWriter(const std::string& path, const TraceHead& head, bool dropped)
    : path_(path),
      buffer_(preamble(head, dropped)),
      fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666)),
      dropped_(dropped) {
  if (fd_ < 0) fail("cannot write {}: {}", path_, std::strerror(errno));
}

CsvTraceWriter::~CsvTraceWriter() {
  try {
    flush();
  } catch (const Error& error) {
    log::warn_once(error.what());
  }
  ::close(fd_);
}

void CsvTraceWriter::next_turn() {
  ++turn_;
}

void CsvTraceWriter::add(const TracedRouting& r) {
  for (size_t i = 0; i < r.ids.size(); ++i) {
    const int state = i < r.residency.size() ? r.residency[i] : 0;
    fmt::format_to(std::back_inserter(buffer_), "{},{},{},{},{},{},{},{},{}{}\n", turn_, r.prompt ? 0 : 1, r.step,
                   r.layer, i, r.ids[i], r.weights[i], std::max(state, 0), i < r.bytes.size() ? r.bytes[i] : 0,
                   !dropped_   ? ""
                   : state < 0 ? ",1"
                               : ",0");
  }
  if (buffer_.size() >= kBufferBytes) flush();
}

void CsvTraceWriter::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int reason = errno;
      buffer_.clear();  // the same bytes are not tried again
      fail("cannot write {}: {}", path_, std::strerror(reason));
    }
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

BinaryTraceWriter::BinaryTraceWriter(const std::string& path) : file_(path) {}

void BinaryTraceWriter::add(int layer, std::span<const int32_t> ids, std::span<const float> weights) {
  const int32_t head[2] = {layer, static_cast<int32_t>(ids.size())};
  file_.write(head, sizeof head);
  file_.write(ids.data(), ids.size_bytes());
  file_.write(weights.data(), weights.size_bytes());
}

void BinaryTraceWriter::commit() {
  file_.commit();
}

}  // namespace moetier
