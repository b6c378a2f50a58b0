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
#include "model/scratch.h"
#include "moe/moe.h"

namespace moetier {

/// What a layer's graph works with: the same for all layers of an ubatch, or of a group of ubatches.
struct Pass {
  Compute& compute;
  MoeOperation* moe;  ///< nullptr for dense models
  const BatchRows& rows;
  const std::vector<KvLayer>& kv;                ///< per layer
  const std::vector<RecurrentLayer>& recurrent;  ///< per layer
  Scratch& scratch;
  int64_t first_row = 0;  ///< of the ubatch in its group
  int64_t context = 0;    ///< positions that a sequence may hold
};

class Model {
 public:
  virtual ~Model() = default;
  const HParams& hparams() const { return hparams_; }

  /// What scratch the layers need.
  virtual const ScratchPlan& scratch_plan() const = 0;
  /// x [width, n] = embeddings of an ubatch's tokens; also prepares what all layers share (rotary tables).
  virtual void embed(const Pass& pass, const Tensor& x) const = 0;
  /// The first half of a layer, x in place: what mixes positions. For one ubatch.
  virtual void mix(const Pass& pass, int index, const Tensor& x) const = 0;
  /// The second half, x in place: what sees each row by itself. For one ubatch or for all rows of a group, so that
  /// experts are asked for once for all of them; of `pass`, rows is not looked at.
  virtual void ffn(const Pass& pass, int index, const Tensor& x) const = 0;
  /// logits [vocab, n] of x's rows.
  virtual void head(const Pass& pass, const Tensor& x, const Tensor& logits) const = 0;
  /// What the head sees, [width, n]: x's rows behind the last norm. A family that has no such thing says so (usage).
  virtual void last_hidden(const Pass& pass, const Tensor& x, const Tensor& out) const;

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
  /// Its hyperparameters, as far as the size of a context depends on them.
  HParams (*read)(const GgufFile& file) = [](const GgufFile& file) { return read_hparams(file); };
};

/// All supported architectures, by name. A new one is a file in this room and a row here.
const std::vector<Architecture>& architectures();

/// The row of a file's architecture; an unknown one is an error that lists the known ones.
const Architecture& architecture_of(const GgufFile& file);

/// Loads the graph and binds dense weights to the mapped file. An unknown architecture is an error that lists the known
/// ones; a missing or misshapen tensor is an error that names it and the shape wanted. The file and the compute must
/// outlive the model.
std::unique_ptr<Model> load_model(const GgufFile& file, Compute& compute);

/// Blocks that are executed: block_count without those for predicting further tokens.
int read_layers(const GgufFile& file);

/// top_k from metadata (0 for dense models), checked against the expert count.
int read_top_k(const GgufFile& file);

}  // namespace moetier
