// A model: weights and the graph of each layer, written once against Compute and the MoE operation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/compute.h"
#include "experts/store.h"
#include "gguf/reader.h"
#include "model/hparams.h"
#include "moe/moe.h"

namespace moetier {

/// Scratch tensors for one ubatch of up to max_rows rows, allocated once per context.
class Scratch;

/// What a layer's graph works with: the same for all layers of an ubatch.
struct Pass {
  Compute& compute;
  MoeOperation* moe;                  ///< nullptr for dense models
  const BatchRows& rows;
  const std::vector<KvLayer>& kv;     ///< per layer
  Scratch& scratch;
};

class Model {
 public:
  virtual ~Model() = default;
  const HParams& hparams() const { return hparams_; }

  /// Scratch for ubatches of up to max_rows rows.
  virtual std::unique_ptr<Scratch> make_scratch(Compute& compute, int64_t max_rows) const = 0;
  /// x [width, n] = embeddings of the rows' tokens; also prepares what all layers share (rotary tables).
  virtual void embed(const Pass& pass, const Tensor& x) const = 0;
  /// One layer, x in place.
  virtual void layer(const Pass& pass, int index, const Tensor& x) const = 0;
  /// logits [vocab, n] of x's rows.
  virtual void head(const Pass& pass, const Tensor& x, const Tensor& logits) const = 0;

  /// Bytes of dense weights (everything but entries).
  virtual uint64_t dense_bytes() const = 0;

 protected:
  HParams hparams_;
};

/// An architecture this program can run.
struct Architecture {
  std::string_view name;         ///< as in general.architecture
  std::string_view description;  ///< one line for `docs/models.md`
  std::unique_ptr<Model> (*load)(const GgufFile& file, Compute& compute);
};

/// All supported architectures, by name. A new one is a file in this room and a row here.
const std::vector<Architecture>& architectures();

/// The row of a file's architecture; an unknown one is an error that lists the known ones.
const Architecture& architecture_of(const GgufFile& file);

/// Loads the graph and binds dense weights to the mapped file. An unknown architecture is an error that lists the known ones; a
/// missing or misshapen tensor is an error that names it and the shape wanted. The file and the compute must outlive the model.
std::unique_ptr<Model> load_model(const GgufFile& file, Compute& compute);

/// top_k from metadata (0 for dense models), checked against the expert count.
int read_top_k(const GgufFile& file);

}  // namespace moetier
