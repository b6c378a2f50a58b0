// A backend that only keeps memory: for what is about pages and not about numbers.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "compute/compute.h"

namespace moetier::testing_support {

class MemoryCompute : public Compute {
 public:
  /// Downloads fail once this many more have succeeded; -1 = never.
  int downloads_until_failure = -1;

  std::string name() const override { return "memory only"; }
  std::unique_ptr<Buffer> allocate(size_t bytes) override { return std::make_unique<Memory>(bytes); }
  std::unique_ptr<Buffer> wrap(const void*, size_t) override { refuse(); }
  void upload(const Tensor& to, const void* from) override {
    std::memcpy(to.buffer->host() + to.offset, from, to.bytes());
  }
  void download(const Tensor& from, void* to) override {
    if (downloads_until_failure == 0) fail("the download was made to fail");
    if (downloads_until_failure > 0) --downloads_until_failure;
    std::memcpy(to, from.buffer->host() + from.offset, from.bytes());
  }

  void get_rows(const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void matmul(const Tensor&, std::span<const MatmulTerm>) override { refuse(); }
  void matmul_heads(const Tensor&, const Tensor&, float, const Tensor&) override { refuse(); }
  void rms_norm(const Tensor&, const Tensor&, float, const Tensor&) override { refuse(); }
  void add(const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void soft_cap(float, const Tensor&, const Tensor&) override { refuse(); }
  void scale(float, const Tensor&, const Tensor&) override { refuse(); }
  void glu(Activation, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void sigmoid_gate(const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void rope_table(const RopeParams&, const Tensor&, const Tensor&) override { refuse(); }
  void rope(const Tensor&, const Tensor&, RopePairs, bool) override { refuse(); }
  void clamp(float, float, const Tensor&, const Tensor&) override { refuse(); }
  void compress(const CompressParams&, const BatchRows&, const Tensor&, const Tensor&) override { refuse(); }
  void store_blocks(const Tensor&, const BatchRows&, int64_t, const Tensor&) override { refuse(); }
  void choose_blocks(const BlockChoice&, const BatchRows&, const Tensor&, const Tensor&) override { refuse(); }
  void stream_weights(const StreamParams&, const Tensor&, const Tensor&) override { refuse(); }
  void join_streams(const StreamParams&, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void spread_streams(const StreamParams&, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void temperature(const TemperatureParams&, const Tensor&, const Tensor&) override { refuse(); }
  void store_kv(const Tensor&, const Tensor&, const BatchRows&, const KvLayer&) override { refuse(); }
  void attention(const Tensor&, const BatchRows&, const KvLayer&, const AttentionParams&, const Tensor&) override {
    refuse();
  }
  void causal_conv(const Tensor&, const ConvParams&, const BatchRows&, const Tensor&, const Tensor&) override {
    refuse();
  }
  void delta_rule(const DeltaInputs&, const BatchRows&, const Tensor&, const Tensor&) override { refuse(); }
  void scan(const ScanInputs&, const BatchRows&, const Tensor&, const Tensor&) override { refuse(); }
  void route(const Tensor&, const Tensor&, const RouteParams&, const Tensor&, const Tensor&) override { refuse(); }
  void experts_begin(const ExpertFfn&, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void experts_run(std::span<const ExpertGroup>, ExpertStage) override { refuse(); }
  void experts_finish(const Tensor&, const Tensor&) override { refuse(); }

 private:
  class Memory : public Buffer {
   public:
    explicit Memory(size_t n) : data_(n) {}
    size_t bytes() const override { return data_.size(); }
    std::byte* host() const override { return data_.data(); }

   private:
    mutable std::vector<std::byte> data_;
  };
  [[noreturn]] static void refuse() { fail("this backend only keeps memory"); }
};

}  // namespace moetier::testing_support
