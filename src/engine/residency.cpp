#include "engine/residency.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/cpu_topology.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "experts/pick_counts.h"
#include "experts/placed_store.h"
#include "experts/profile.h"
#include "experts/random_probe.h"
#include "experts/slot_layout.h"
#include "experts/stream_store.h"
#include "io/advice.h"
#include "io/block_device.h"
#include "io/drive_probe.h"
#include "io/memory.h"
#include "io/page_cache.h"

namespace moetier {
namespace {

/// Reads of a resident load and of dense weights are long; so many in flight keep any drive busy.
constexpr int kBulkDepth = 16;
/// The next read begins when somebody looks at the last: with fewer in flight than this the drive rests while experts
/// are computed, though the probe, which does nothing else, saw no difference.
constexpr int kLeastDepth = 4;
/// A page cache that lacks up to this part of the entries counts as warm.
constexpr uint64_t kMostMissing = 20;
/// Where the drive was not probed.
constexpr int kUsualDepth = 32, kUsualLanes = 4;

uint64_t slice_bytes(const EntryMap& map) {
  uint64_t sum = 0, n = 0;
  for (const LayerEntries& layer : map.layers) {
    for (const SliceSource& slice : layer.slices) {
      sum += slice.slice_bytes;
      ++n;
    }
  }
  return n == 0 ? 0 : sum / n;
}

/// The options given that only a cache has a use for, as flags.
std::vector<std::string_view> cache_options(const ResidencyOptions& o) {
  const ResidencyOptions usual;
  std::vector<std::string_view> given;
  if (o.cache_bytes.value_or(0) > 0) given.push_back("--cache-mb");
  // Under auto these had a say in the mode.
  const bool floor = o.floor_asked && o.floor_bytes != usual.floor_bytes;
  if (o.mode != ExpertMode::automatic && floor) given.push_back("--cache-floor-mb");
  if (o.mode != ExpertMode::automatic && o.ceil_bytes != usual.ceil_bytes) given.push_back("--cache-ceil-mb");
  if (o.policy != usual.policy) given.push_back("--cache-policy");
  if (!o.profile.empty()) given.push_back("--moe-cache-profile");
  return given;
}

/// Says once which options do nothing without a cache.
void say_unused(std::span<const std::string_view> options, std::string_view why) {
  if (options.empty()) return;
  const bool one = options.size() == 1;
  log::warn("{} change{} nothing: {} a cache, and {}", fmt::join(options, ", "), one ? "s" : "",
            one ? "it needs" : "they need", why);
}

/// What was asked for and cannot be had in the mode that it came to: an error if the mode was asked for too, else said.
void check(const ResidencyOptions& o, const SizingPlan& plan, DensePolicy dense) {
  const bool cached = plan.mode == ExpertMode::stream && plan.budget > 0;
  if (o.prefetch > 0 && !cached) {
    if (o.mode != ExpertMode::automatic || o.cache_bytes)
      usage_error("--prefetch {} needs a cache to read into; use --experts stream with a cache, or leave it out",
                  o.prefetch);
    log::warn("--prefetch changes nothing: it needs a cache, and experts are {}", to_string(plan.mode));
  }
  if (!cached) {
    say_unused(cache_options(o),
               plan.mode == ExpertMode::stream
                   ? "experts are streamed without one"
                   : fmt::format("experts are {}", plan.mode == ExpertMode::mmap ? "mapped" : to_string(plan.mode)));
  }
  if (plan.mode == ExpertMode::resident && !plan.fits) log::warn("{}, so the run may be killed", plan.why);
  const bool own = plan.mode == ExpertMode::resident || plan.mode == ExpertMode::stream;
  if (o.mlock && !(own && dense == DensePolicy::anon)) {
    log::warn("--mlock does not lock {}: the page cache has them", own                          ? "dense weights"
                                                                   : dense == DensePolicy::anon ? "experts"
                                                                                                : "any weights");
  }
}

}  // namespace

struct ResidencyMaker::Impl {
  Impl(GgufFile& f, EntryMap m, const EngineOptions& o) : file(f), map(std::move(m)), options(o) {}

  void plan();
  void open_files();
  ReadEngine& bulk_engine();
  WarmSource warm_source();
  bool all_warm();
  bool fits_twice() const;
  std::unique_ptr<ExpertStore> resident();
  std::unique_ptr<ExpertStore> stream();
  std::unique_ptr<ExpertStore> advise();
  ReadEngineOptions probed();
  void leave_the_page_cache();

  GgufFile& file;
  EntryMap map;
  const EngineOptions& options;
  Residency result;
  std::vector<ReadFile> files;
  std::unique_ptr<ReadEngine> bulk;
  std::vector<PageCacheView> views;
  std::unique_ptr<ThreadPool> pool;
};

Residency planned_residency(const GgufFile& file, const EntryMap& map, const EngineOptions& options) {
  const HParams hparams = architecture_of(file).read(file);
  // As if entries were streamed, which takes a little more for prompts: the mode is not known yet.
  return planned_residency(map.total_bytes(), dense_bytes(file, map),
                           context_bytes(hparams, options.planned, !map.layers.empty()), options);
}

Residency planned_residency(uint64_t entries, uint64_t dense, const ContextBytes& context,
                            const EngineOptions& options) {
  Residency result;
  const ResidencyOptions& o = options.residency;
  SizingInput in;
  const MemoryState memory = memory_state();
  in.available = memory.available;
  in.group_limit = memory.group_limit;
  in.bank = entries;
  in.kv = context.kv;
  in.buffers = context.buffers + context.kernels;
  // In which mode dense weights count is known only with the mode, and the mode only with them: as if they were ours.
  in.dense = dense;
  ExpertMode mode = entries == 0 ? ExpertMode::mmap : plan_residency(o, in).mode;
  result.dense = o.dense;
  if (result.dense == DensePolicy::automatic) {
    const bool own = mode == ExpertMode::stream || mode == ExpertMode::resident;
    result.dense = own ? DensePolicy::anon : DensePolicy::mmap;
  }
  if (result.dense != DensePolicy::anon) {
    in.dense = 0;
    in.dense_mapped = dense;
  }
  ResidencyOptions fixed = o;
  fixed.mode = mode;
  result.plan = plan_residency(fixed, in);
  return result;
}

void ResidencyMaker::Impl::plan() {
  const ResidencyOptions& o = options.residency;
  const Residency planned = planned_residency(file, map, options);
  result.plan = planned.plan;
  result.dense = planned.dense;
  if (!map.layers.empty()) {
    check(o, result.plan, result.dense);
  } else {
    say_unused(cache_options(o), "the model has no experts");
  }
}

void ResidencyMaker::Impl::open_files() {
  for (const GgufFile::Shard& shard : file.shards()) {
    files.emplace_back(shard.path, options.residency.direct);
    if (files.back().bytes() != shard.bytes)
      fail("{} changed while it was being opened; load the model again", shard.path);
  }
  const auto buffered = std::ranges::find_if(files, [](const ReadFile& f) { return !f.direct(); });
  if (options.residency.direct && buffered != files.end()) log::warn("{}", buffered->why_buffered());
}

ReadEngine& ResidencyMaker::Impl::bulk_engine() {
  if (bulk == nullptr) {
    const int lanes = options.residency.io_lanes > 0 ? options.residency.io_lanes : kUsualLanes;
    bulk = make_read_engine({.kind = options.residency.io, .depth = kBulkDepth, .lanes = lanes}, files);
  }
  return *bulk;
}

/// What the page cache has is copied from there, which is faster than any drive.
WarmSource ResidencyMaker::Impl::warm_source() {
  if (pool == nullptr) {
    const int threads = options.cpu.threads;
    pool = std::make_unique<ThreadPool>(threads > 0 ? threads : default_threads());
    for (size_t i = 0; i < files.size(); ++i) views.emplace_back(files[i].path(), file.shard_bytes(i));
  }
  return {views, pool.get()};
}

/// The page cache has (nearly) every entry. What it lacks is asked for.
bool ResidencyMaker::Impl::all_warm() {
  constexpr uint64_t kPiece = uint64_t{4} << 20;
  const uint64_t total = map.total_bytes();
  const WarmSource warm = warm_source();
  uint64_t missing = 0;
  std::vector<std::span<const std::byte>> holes;
  for (const LayerEntries& layer : map.layers) {
    for (const SliceSource& slice : layer.slices) {
      const PageCacheView& view = warm.views[static_cast<size_t>(slice.shard)];
      const uint64_t end = slice.offset + slice.slice_bytes * static_cast<uint64_t>(layer.n_expert);
      for (uint64_t at = slice.offset; at < end; at += kPiece) {
        const uint64_t bytes = std::min(kPiece, end - at), cached = view.cached(at, bytes);
        if (cached == bytes) continue;
        missing += bytes - cached;
        if (missing > total / kMostMissing) return false;
        holes.emplace_back(view.data() + at, bytes);
      }
    }
  }
  for (const auto& hole : holes) static_cast<void>(advise_willneed(hole.data(), hole.size(), uint64_t{128} << 10));
  return true;
}

/// There is memory for all entries twice, in the page cache and as ours, if other files' pages make room.
bool ResidencyMaker::Impl::fits_twice() const {
  const uint64_t total = map.total_bytes();
  const SizingInput& in = result.plan.input;
  const uint64_t rest = in.kv + in.buffers + result.plan.floor;
  const MemoryState memory = memory_state();
  return memory.unused >= total + rest || memory.available.value_or(0) >= 2 * total + rest;
}

std::unique_ptr<ExpertStore> ResidencyMaker::Impl::resident() {
  const bool lock = options.residency.mlock;
  if (!lock && !options.residency.preload && result.plan.fits && all_warm()) {
    const bool keep = fits_twice();
    if (keep) {
      log::verbose("experts: {} are in the page cache, and are copied from there when they are used again",
                   format_bytes(map.total_bytes()));
    } else {
      log::info(
          "experts: {} are in the page cache, and leave it as they are copied, for memory has no room for both; the "
          "next start reads them from the drive",
          format_bytes(map.total_bytes()));
    }
    bulk.reset();
    std::vector<ReadFile> dropped_from;
    if (!keep) dropped_from = std::move(files);
    return make_copying_store(file, std::move(map), pool->size(), std::move(dropped_from));
  }
  return make_resident_store(std::move(map), bulk_engine(), files, lock, warm_source());
}

/// How many reads at once are worth it on this drive: as asked for, else probed.
ReadEngineOptions ResidencyMaker::Impl::probed() {
  const ResidencyOptions& o = options.residency;
  ReadEngineOptions engine{.kind = o.io, .depth = o.io_depth, .lanes = o.io_lanes};
  const bool given = o.io == ReadKind::threads ? o.io_lanes > 0 : o.io_depth > 0;
  if (!given || o.io_probe) {
    const SliceSource& slice = map.layers.front().slices.front();
    ProbeOptions probe;
    probe.kind = o.io;
    probe.request_bytes = slice_bytes(map);
    probe.ignore_cache = o.io_probe;
    const DriveRate rate = probe_drive(files[static_cast<size_t>(slice.shard)], probe);
    log::verbose("drive: {}", describe(rate));
    result.drive_bytes_per_second = rate.best_bytes_per_second;
    if (engine.depth == 0) engine.depth = std::max(rate.depth, kLeastDepth);
    if (engine.lanes == 0) engine.lanes = rate.engine == "threads" ? rate.depth : kUsualLanes;
  }
  if (engine.depth == 0) engine.depth = kUsualDepth;
  if (engine.lanes == 0) engine.lanes = kUsualLanes;
  return engine;
}

/// Entries are read past the page cache from now on: what opening the file brought there is given back, and what is
/// still mapped of them is touched a page at a time. Dense weights that stay mapped keep the kernel's read-ahead.
void ResidencyMaker::Impl::leave_the_page_cache() {
  for (size_t shard = 0; result.dense == DensePolicy::anon && shard < files.size(); ++shard) {
    const std::span<const std::byte> bytes = file.shard_bytes(shard);
    advise_random(bytes.data(), bytes.size());
  }
  for (const LayerEntries& layer : map.layers) {
    for (const SliceSource& slice : layer.slices) {
      const auto shard = static_cast<size_t>(slice.shard);
      const uint64_t bytes = slice.slice_bytes * static_cast<uint64_t>(layer.n_expert);
      const std::byte* const begin = file.shard_bytes(shard).data() + slice.offset;
      advise_random(begin, bytes);
      advise_unmap(begin, bytes);  // pages that this process maps would stay
      files[shard].drop_from_page_cache(slice.offset, bytes);
    }
  }
}

std::unique_ptr<ExpertStore> ResidencyMaker::Impl::stream() {
  const ResidencyOptions& o = options.residency;
  StreamOptions stream;
  stream.budget_bytes = result.plan.budget;
  stream.policy = o.policy;
  stream.overlap = o.overlap;
  stream.load_all = o.load_all;
  stream.prefetch = o.prefetch;
  stream.lock = o.mlock;
  if (!o.profile.empty()) {
    const auto [layers, experts] = profile_shape(map, read_layers(file));
    const Profile profile = read_profile(o.profile, layers, experts);
    if (!profile.problem.empty()) {
      log::warn("{}; the cache starts empty", profile.problem);
    } else {
      stream.profile = profile.ranked;
    }
  }
  const int top_k = map.layers.front().top_k;
  if (const std::string low = below_cycle(stream.budget_bytes, map.token_cycle_bytes(), top_k, to_string(o.policy));
      !low.empty()) {
    log::warn("{}", low);
  }
  leave_the_page_cache();
  const ReadEngineOptions engine = probed();
  bulk.reset();
  auto store = make_stream_store(
      std::move(map), std::move(files), [&engine](std::span<const ReadFile> f) { return make_read_engine(engine, f); },
      stream);
  const StoreStatus status = store->status();
  if (status.prefilled > 0) {
    log::info("prefill: MoE cache filled with {} experts ({}) from {}", status.prefilled,
              format_bytes(store->resident_bytes()), o.profile);
  }
  return store;
}

std::unique_ptr<ExpertStore> ResidencyMaker::Impl::advise() {
  const bool hint = result.plan.mode == ExpertMode::advise;
  if (hint && result.plan.fits && !options.residency.advise_always) {
    log::info(
        "advise stands down: the model fits in memory, where the page cache does better alone (--advise-always keeps "
        "it on)");
    return make_mapped_store(file, std::move(map));
  }
  const BlockDevice device = block_device(file.shards().front().path);
  AdviseOptions advise;
  advise.hint = hint;
  advise.call_bytes = device.willneed_bytes();
  if (hint) {
    result.random = choose_random(file, map, advise.call_bytes, device.read_ahead_bytes.value_or(0));
    advise.random = result.random.random;
    log::verbose("advise: {}", result.random.why);
  }
  return make_advising_store(file, std::move(map), advise);
}

ResidencyMaker::ResidencyMaker(GgufFile& file, EntryMap map, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(file, std::move(map), options)) {
  impl_->plan();
  const ExpertMode mode = impl_->result.plan.mode;
  const bool reads =
      impl_->result.dense == DensePolicy::anon || mode == ExpertMode::stream || mode == ExpertMode::resident;
  if (reads) impl_->open_files();
  impl_->result.read_ahead_bytes = block_device(file.shards().front().path).read_ahead_bytes.value_or(0);
}

ResidencyMaker::~ResidencyMaker() = default;

DenseMemory ResidencyMaker::place_dense_weights() {
  Impl& impl = *impl_;
  if (impl.result.dense == DensePolicy::mmap) return {};
  DenseMemory memory = impl.result.dense == DensePolicy::warm
                           ? warm_dense(impl.file, impl.map)
                           : place_dense(impl.file, impl.map, impl.bulk_engine(), impl.files,
                                         impl.options.residency.mlock, impl.warm_source());
  impl.result.dense_bytes = memory.bytes;
  impl.result.dense_seconds = memory.seconds;
  return memory;
}

std::unique_ptr<ExpertStore> ResidencyMaker::make_store() {
  Impl& impl = *impl_;
  if (impl.map.layers.empty()) return nullptr;
  log::verbose("{}", impl.result.plan.why);
  switch (impl.result.plan.mode) {
    case ExpertMode::stream:
      return impl.stream();
    case ExpertMode::resident:
      return impl.resident();
    case ExpertMode::advise:
    case ExpertMode::noop:
      return impl.advise();
    default:
      return make_mapped_store(impl.file, std::move(impl.map));
  }
}

const Residency& ResidencyMaker::residency() const {
  return impl_->result;
}

}  // namespace moetier
