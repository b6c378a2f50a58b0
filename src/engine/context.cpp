#include "engine/context.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "base/units.h"
#include "engine/batch_plan.h"
#include "engine/machine.h"
#include "model/scratch.h"

namespace moetier {
namespace {

// Rows whose logits are computed at once: enough to read the head's weights seldom, few enough to keep [vocab, rows]
// small.
constexpr int64_t kHeadRows = 64;
constexpr int64_t kMostUbatch = 65536;
constexpr int64_t kMostGroup = 1 << 20;
constexpr int64_t kMostContext = int64_t{1} << 24;

/// Device memory that grows when more is wanted and never shrinks.
class Growing {
 public:
  Buffer* get(Compute& compute, size_t bytes) {
    if (buffer_ == nullptr || buffer_->bytes() < bytes) {
      const size_t before = buffer_ == nullptr ? 0 : buffer_->bytes();
      buffer_.reset();
      buffer_ = compute.allocate(std::max(bytes, before * 2));
    }
    return buffer_.get();
  }
  uint64_t bytes() const { return buffer_ == nullptr ? 0 : buffer_->bytes(); }

 private:
  std::unique_ptr<Buffer> buffer_;
};

/// The part of a list that an ubatch sees.
Tensor part(const Tensor& list, int64_t first, int64_t n) {
  return list.empty() ? list : list.slice_columns(first, n);
}

void check(const ContextOptions& o) {
  if (o.context < 0 || o.context > kMostContext)
    usage_error("a context of {} positions cannot be had: choose up to {}", o.context, kMostContext);
  if (o.sequences < 1) usage_error("a context needs one sequence or more, and {} were asked for", o.sequences);
  if (o.ubatch < 1 || o.ubatch > kMostUbatch)
    usage_error("an ubatch of {} rows cannot be had: choose 1 to {}", o.ubatch, kMostUbatch);
  if (o.group_rows < 0 || o.group_rows > kMostGroup)
    usage_error("{} rows cannot pass a layer together: choose up to {}", o.group_rows, kMostGroup);
}

/// Positions per sequence, from what was asked, what the model was trained for, and the memory there is.
int64_t resolve_context(const ContextOptions& o, const HParams& hparams) {
  const uint64_t memory = memory_limit();
  const int64_t chosen = o.context > 0 ? o.context : default_context(hparams, o.kv_type, o.sequences, memory);
  const int64_t own = hparams.context_length;
  if (own > 0 && chosen > own) {
    log::warn("the context of {} positions is longer than the {} that the model was trained for", chosen, own);
  }
  if (const int64_t usual = default_context(hparams, o.kv_type, o.sequences, 0); o.context == 0 && chosen < usual) {
    log::warn(
        "the context is {} positions and not {}, so that the KV cache takes no more than a quarter of the {} of "
        "memory; give a context size to change that",
        chosen, usual, format_bytes(memory));
  }
  const uint64_t page = KvPool::page_bytes(hparams, o.kv_type);
  const auto pages = static_cast<uint64_t>(pages_for(chosen)) * static_cast<uint64_t>(o.sequences);
  if (memory > 0 && page > 0 && pages > memory / page) {
    log::warn(
        "the KV cache can grow to {} pages of {}, more than the {} of memory; choose a smaller context or fewer "
        "sequences",
        pages, format_bytes(page), format_bytes(memory));
  }
  return chosen;
}

/// Rows of a group, whole ubatches.
int64_t group_rows(const ContextOptions& o, bool streaming) {
  int64_t rows = o.group_rows;
  if (rows == 0 && streaming) rows = kStreamGroupRows;
  const int64_t ubatches = (std::min(rows, o.context * o.sequences) + o.ubatch - 1) / o.ubatch;
  return std::max<int64_t>(ubatches, 1) * o.ubatch;
}

}  // namespace

int64_t default_context(const HParams& hparams, TensorType kv_type, int sequences, uint64_t memory) {
  const int64_t own = hparams.context_length > 0 ? std::min(hparams.context_length, kDefaultContext) : kDefaultContext;
  const uint64_t page = KvPool::page_bytes(hparams, kv_type);
  if (memory == 0 || page == 0) return own;
  const uint64_t share = memory / 4 / static_cast<uint64_t>(std::max(sequences, 1));
  const auto pages = static_cast<int64_t>(std::min<uint64_t>(share / page, 1 << 24));
  return std::min(own, std::max<int64_t>(pages, 1) * kPagePositions);
}

ContextBytes context_bytes(const HParams& h, const ContextOptions& options, bool streaming) {
  check(options);
  ContextOptions o = options;
  if (o.context == 0) o.context = default_context(h, o.kv_type, o.sequences, memory_limit());
  o.ubatch = std::clamp<int64_t>(o.ubatch, 1, o.context * o.sequences);
  const auto rows = static_cast<uint64_t>(o.ubatch), group = static_cast<uint64_t>(group_rows(o, streaming));
  const auto width = static_cast<uint64_t>(h.width), vocab = static_cast<uint64_t>(h.vocab);
  const auto residual = static_cast<uint64_t>(h.residual_width());
  const auto heads = static_cast<uint64_t>(h.heads), kv_heads = static_cast<uint64_t>(h.kv_heads);
  const auto key = static_cast<uint64_t>(h.key_length), value = static_cast<uint64_t>(h.value_length);
  const uint64_t beside =
      static_cast<uint64_t>(std::max(h.is_moe(0) && h.kv_shapes.empty() ? 0 : h.ffn_width, h.shared_width));
  // Floats per row: of an ubatch what attention and an FFN work on, of a group the residual stream, the experts' input
  // and output, the router's scores and the picks.
  const uint64_t mixing =
      h.mixer_floats > 0 ? static_cast<uint64_t>(h.mixer_floats) : (heads + kv_heads) * (key + value);
  const uint64_t per_row = 3 * width + mixing + 2 * beside;
  const uint64_t per_group_row = static_cast<uint64_t>(h.rope.dims) + 2 * width + residual +
                                 static_cast<uint64_t>(h.experts) + 6 * static_cast<uint64_t>(h.top_k);
  // The kernels': encoded activations, and a batch of 512 picks between an expert's halves and behind them.
  const uint64_t kernels = group * width * 5 / 4 / sizeof(float) +
                           (h.experts > 0 ? 512 * (width + 2 * static_cast<uint64_t>(h.expert_width)) : 0) +
                           rows * (beside + heads * value) / 3;
  const uint64_t head = 2 * std::min<uint64_t>(rows, kHeadRows) * (vocab + residual);
  ContextBytes bytes;
  bytes.kv = (KvPool::page_bytes(h, o.kv_type) * static_cast<uint64_t>(pages_for(o.context)) +
              StateSlots::bytes_of(h) * kSlotsPerSequence) *
             static_cast<uint64_t>(o.sequences);
  constexpr uint64_t kSmallThings = uint64_t{64} << 10;  // ids, positions, pages, alignment
  bytes.buffers = (rows * per_row + group * per_group_row + head) * sizeof(float) + kSmallThings;
  bytes.kernels = kernels * sizeof(float) + (uint64_t{1} << 20);
  return bytes;
}

struct Context::Impl {
  Impl(Engine& owner, const ContextOptions& wanted);
  void run(std::span<const BatchRow> rows, const LogitsSink* sink, bool wants_hidden = false);
  void upload_batch();
  void run_group(int64_t first, int64_t ubatches);
  void run_head(const Pass& pass, int64_t first, const Tensor& x);
  int64_t output_length() const { return hidden ? model.hparams().width : model.hparams().vocab; }
  void give_logits(const Tensor& logits);
  void stop_if_cancelled() const;
  Tensor upload(Growing& to, std::span<const int32_t> values, std::array<int64_t, 4> shape);

  Engine& engine;
  Compute& compute;
  const Model& model;
  ContextOptions options;
  KvPool pool;
  std::unique_ptr<MoeOperation> moe;
  Scratch scratch;
  Growing x, gathered, logits, gather_ids, tokens, positions, columns, page_table, states_from, states_to;
  int64_t head_rows;

  BatchPlan plan;
  BatchRows batch;               // all rows of the batch
  std::vector<BatchRows> parts;  // of a group, by ubatch
  size_t next_wanted = 0;        // into plan.wanted()
  std::vector<int32_t> wanted_here;
  const LogitsSink* sink = nullptr;
  bool hidden = false;  // hidden states are wanted, and no logits
  std::vector<float> host_logits;
  int64_t logits_count = 0, logits_done = 0;

  const std::atomic<bool>* cancel = nullptr;
  ExpertUse use;
  std::vector<StoreCounters> store_before;  // by layer of its map, when this was made
  PickObserver observer = nullptr;
  void* observer_user = nullptr;
  Meters meters;
};

Context::Impl::Impl(Engine& owner, const ContextOptions& wanted)
    : engine(owner),
      compute(owner.compute()),
      model(owner.model()),
      options([&] {
        check(wanted);
        ContextOptions resolved = wanted;
        resolved.context = resolve_context(wanted, owner.model().hparams());
        resolved.ubatch = std::min(wanted.ubatch, resolved.context * wanted.sequences);
        const std::lock_guard quiet(owner.run_mutex());  // other contexts use the store
        ExpertStore* store = owner.store();
        resolved.group_rows = group_rows(resolved, store != nullptr && store->status().mode == ExpertMode::stream);
        return resolved;
      }()),
      pool(
          compute, model.hparams(), options.kv_type,
          [&] {
            const int64_t pages = pages_for(options.context) * options.sequences;
            if (pages > INT32_MAX)
              usage_error("{} sequences of {} positions are more than a KV cache can count", options.sequences,
                          options.context);
            return static_cast<int32_t>(pages);
          }(),
          kSlotsPerSequence * options.sequences),
      scratch(compute, model.scratch_plan(), options.ubatch),
      head_rows(std::min(options.ubatch, kHeadRows)) {
  parts.resize(static_cast<size_t>(options.group_rows / options.ubatch));
  // So that a sequence can grow page by page without an allocation.
  plan.reserve(options.ubatch, pool.capacity());
  page_table.get(compute, static_cast<size_t>(pool.capacity()) * sizeof(int32_t));
  wanted_here.reserve(static_cast<size_t>(head_rows));
  if (ExpertStore* store = engine.store(); store != nullptr) {
    const std::lock_guard quiet(engine.run_mutex());
    const HParams& h = model.hparams();
    moe = std::make_unique<MoeOperation>(compute, *store, options.ubatch, h.experts, h.top_k);
    use = ExpertUse(store->map());
    for (const LayerEntries& layer : store->map().layers) store_before.push_back(store->counters(layer.layer));
    moe->observe(
        [](void* user, const RoutedPicks& picks) {
          auto& self = *static_cast<Impl*>(user);
          if (self.observer != nullptr) self.observer(self.observer_user, picks);
        },
        this);
    moe->observe_use(
        [](void* user, int layer, std::span<const int32_t> ids) { static_cast<Impl*>(user)->use.note(layer, ids); },
        this);
  }
}

Tensor Context::Impl::upload(Growing& to, std::span<const int32_t> values, std::array<int64_t, 4> shape) {
  const Tensor tensor = Tensor::packed(to.get(compute, values.size_bytes()), 0, TensorType::i32, shape);
  compute.upload(tensor, values.data());
  return tensor;
}

void Context::Impl::upload_batch() {
  const int64_t n = plan.rows();
  batch.tokens = upload(tokens, plan.tokens(), {n, 1, 1, 1});
  batch.positions = upload(positions, plan.positions(), {n, 1, 1, 1});
  batch.sequences = upload(columns, plan.columns(), {n, 1, 1, 1});
  batch.page_table = upload(page_table, plan.page_table(), {plan.pages_per_sequence(), plan.sequences(), 1, 1});
  if (plan.states_to().empty()) return;
  batch.states_from = upload(states_from, plan.states_from(), {n, 1, 1, 1});
  batch.states_to = upload(states_to, plan.states_to(), {n, 1, 1, 1});
}

void Context::Impl::run(std::span<const BatchRow> rows, const LogitsSink* to, bool wants_hidden) {
  Stopwatch watch;
  logits_count = logits_done = 0;
  if (rows.empty()) return;
  const std::lock_guard lock(engine.run_mutex());
  engine.check_intact();
  plan.admit(rows, {&pool, options.context, model.hparams().vocab});
  try {
    sink = to;
    hidden = wants_hidden;
    next_wanted = 0;
    const size_t kept =
        to == nullptr ? plan.wanted().size() : std::min(plan.wanted().size(), static_cast<size_t>(head_rows));
    const size_t cells = kept * static_cast<size_t>(output_length());
    if (host_logits.size() < cells) host_logits.resize(cells);
    engine.profile().begin_batch(plan.rows());
    upload_batch();
    for (int64_t first = 0; first < plan.rows(); first += options.group_rows) {
      const int64_t left = std::min(options.group_rows, plan.rows() - first);
      run_group(first, (left + options.ubatch - 1) / options.ubatch);
    }
    engine.check_intact();
  } catch (...) {
    meters.seconds += watch.lap();
    plan.undo();
    engine.check_intact();  // then that is why, whatever the zeros led to
    throw;
  }
  if (to == nullptr) logits_count = logits_done;
  const double seconds = watch.lap();
  engine.profile().end_batch(seconds);
  meters.seconds += seconds;
  meters.rows += rows.size();
}

/// Ubatches from row `first` on, all of them through one layer before the next.
void Context::Impl::run_group(int64_t first, int64_t ubatches) {
  const int64_t width = model.hparams().residual_width();
  const int64_t rows = std::min(ubatches * options.ubatch, plan.rows() - first);
  const Tensor all = Tensor::packed(x.get(compute, static_cast<size_t>(rows * width) * sizeof(float)), 0,
                                    TensorType::f32, {width, rows, 1, 1});
  const auto x_of = [&](int64_t u) {
    const int64_t begin = u * options.ubatch;
    return all.slice_rows(begin, std::min(options.ubatch, rows - begin));
  };
  const auto pass_of = [&](int64_t u) {
    const auto index = static_cast<size_t>(u);
    return Pass{compute, moe.get(),          parts[index],   pool.layers(), pool.states().layers(),
                scratch, u * options.ubatch, options.context};
  };
  scratch.reserve_group(rows);
  if (moe != nullptr) moe->reserve(rows);
  for (int64_t u = 0; u < ubatches; ++u) {
    const int64_t begin = first + u * options.ubatch, n = x_of(u).shape[1];
    parts[static_cast<size_t>(u)] = {part(batch.tokens, begin, n),      part(batch.positions, begin, n),
                                     part(batch.sequences, begin, n),   batch.page_table,
                                     part(batch.states_from, begin, n), part(batch.states_to, begin, n)};
    model.embed(pass_of(u), x_of(u));
  }
  for (int layer = 0; layer < model.hparams().layers; ++layer) {
    for (int64_t u = 0; u < ubatches; ++u) {
      stop_if_cancelled();
      model.mix(pass_of(u), layer, x_of(u));
    }
    model.ffn(pass_of(0), layer, all);
  }
  stop_if_cancelled();
  for (int64_t u = 0; u < ubatches; ++u) run_head(pass_of(u), first + u * options.ubatch, x_of(u));
  meters.ubatches += static_cast<uint64_t>(ubatches);
}

void Context::Impl::stop_if_cancelled() const {
  if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) throw Cancelled();
}

/// Logits of an ubatch's wanted rows, a few at a time. x holds the rows from `first` on.
void Context::Impl::run_head(const Pass& pass, int64_t first, const Tensor& rows) {
  const std::span<const int32_t> wanted = plan.wanted();
  const int64_t end = first + rows.shape[1], length = output_length(), width = rows.shape[0];
  while (next_wanted < wanted.size() && wanted[next_wanted] < end) {
    wanted_here.clear();
    while (next_wanted < wanted.size() && wanted[next_wanted] < end &&
           static_cast<int64_t>(wanted_here.size()) < head_rows) {
      wanted_here.push_back(static_cast<int32_t>(wanted[next_wanted++] - first));
    }
    const auto n = static_cast<int64_t>(wanted_here.size());
    Tensor input = rows;
    if (n != rows.shape[1]) {
      const Tensor ids = upload(gather_ids, wanted_here, {n, 1, 1, 1});
      input = Tensor::packed(gathered.get(compute, static_cast<size_t>(n * width) * sizeof(float)), 0, TensorType::f32,
                             {width, n, 1, 1});
      compute.get_rows(rows, ids, input);
    }
    const Tensor out = Tensor::packed(logits.get(compute, static_cast<size_t>(n * length) * sizeof(float)), 0,
                                      TensorType::f32, {length, n, 1, 1});
    if (hidden) {
      model.last_hidden(pass, input, out);
    } else {
      model.head(pass, input, out);
    }
    give_logits(out);
  }
}

namespace {

/// Logits that are no numbers come from damaged weights: better an error than a text made of them.
void check_logits(std::span<const float> logits, const std::string& path) {
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return x != x; })) {
    fail("{}: its logits are not numbers, so its weights are damaged; 'moetier inspect --check' finds where", path);
  }
}

}  // namespace

void Context::Impl::give_logits(const Tensor& out) {
  const auto vocab = static_cast<size_t>(out.shape[0]), rows = static_cast<size_t>(out.shape[1]);
  float* const to = host_logits.data() + (sink == nullptr ? static_cast<size_t>(logits_done) * vocab : 0);
  compute.download(out, to);
  engine.check_intact();  // before anyone sees them
  if (!hidden) engine.note_token();
  check_logits({to, vocab * rows}, engine.file().path());
  if (sink == nullptr) {
    logits_done += out.shape[1];
    return;
  }
  for (int64_t i = 0; i < out.shape[1]; ++i) {
    (*sink)(logits_done++, std::span<const float>(host_logits).subspan(static_cast<size_t>(i) * vocab, vocab));
  }
}

Context::Context(Engine& engine, const ContextOptions& options) : impl_(std::make_unique<Impl>(engine, options)) {}
Context::~Context() = default;

Engine& Context::engine() {
  return impl_->engine;
}
const ContextOptions& Context::options() const {
  return impl_->options;
}
KvPool& Context::kv() {
  return impl_->pool;
}
SequenceState Context::new_sequence() {
  return SequenceState(impl_->pool);
}
void Context::decode(std::span<const BatchRow> rows) {
  impl_->run(rows, nullptr);
}
void Context::decode(std::span<const BatchRow> rows, const LogitsSink& sink) {
  impl_->run(rows, &sink);
}
void Context::embed(std::span<const BatchRow> rows, const LogitsSink& sink) {
  impl_->run(rows, &sink, true);
}
void Context::cancel_on(const std::atomic<bool>* flag) {
  impl_->cancel = flag;
  if (impl_->moe != nullptr) impl_->moe->cancel_on(flag);
}
const std::atomic<bool>* Context::cancelled_by() const {
  return impl_->cancel;
}
int64_t Context::logits_count() const {
  return impl_->logits_count;
}

std::span<const float> Context::logits(int64_t index) const {
  if (index < 0 || index >= impl_->logits_count) {
    fail("logits {} were asked for, and the last batch wanted those of {} rows", index, impl_->logits_count);
  }
  const auto vocab = static_cast<size_t>(impl_->model.hparams().vocab);
  return std::span<const float>(impl_->host_logits).subspan(static_cast<size_t>(index) * vocab, vocab);
}

MoeOperation* Context::moe() {
  return impl_->moe.get();
}
void Context::observe_picks(PickObserver observer, void* user) {
  impl_->observer = observer;
  impl_->observer_user = user;
}
const ExpertUse& Context::expert_use() const {
  return impl_->use;
}
std::vector<StoreCounters> Context::store_counters() const {
  std::vector<StoreCounters> passed = impl_->store_before;
  for (size_t i = 0; i < passed.size(); ++i) {
    ExpertStore& store = *impl_->engine.store();
    passed[i] = store.counters(store.map().layers[i].layer) - passed[i];
  }
  return passed;
}
const Context::Meters& Context::meters() const {
  return impl_->meters;
}

void Context::reset_meters() {
  impl_->meters = {};
  impl_->use.reset();
  if (impl_->moe != nullptr) impl_->moe->reset_meters();
}

uint64_t Context::buffer_bytes() const {
  const Impl& c = *impl_;
  uint64_t bytes = c.host_logits.capacity() * sizeof(float);
  bytes += c.scratch.bytes();
  for (const Growing* g : {&c.x, &c.gathered, &c.logits, &c.gather_ids, &c.tokens, &c.positions, &c.columns,
                           &c.page_table, &c.states_from, &c.states_to}) {
    bytes += g->bytes();
  }
  if (c.moe != nullptr) bytes += c.moe->scratch_bytes();
  return bytes;
}

}  // namespace moetier
