#include "cli/model_rates.h"

#include <fmt/format.h>

#include <initializer_list>
#include <map>

#include "base/units.h"
#include "cli/support.h"
#include "compute/cpu/cpu_compute.h"
#include "engine/decode_rate.h"
#include "engine/dense_memory.h"
#include "io/drive_probe.h"

namespace moetier::cli {
namespace {

constexpr double kGiga = 1e9;

bool only_looked_up(const GgufFile& file, const TensorInfo& tensor) {
  return tensor.name == "token_embd.weight" && file.find_tensor("output.weight") != nullptr;
}

BytesByKind dense_kinds(const GgufFile& file, const EntryMap& map) {
  BytesByKind bytes;
  for (const TensorInfo* tensor : dense_tensors(file, map)) {
    if (only_looked_up(file, *tensor) || !type_info(tensor->type).computable) continue;
    if (tensor->n_dims < 2) continue;  // a norm's weights or a bias: next to nothing
    const int64_t columns = tensor->shape[0];
    bytes[{tensor->type, columns, tensor->elements() / columns, 1}] += tensor->bytes;
  }
  return bytes;
}

BytesByKind expert_kinds(const EntryMap& map) {
  BytesByKind bytes;
  for (const LayerEntries& layer : map.layers) {
    const int picks = std::min(layer.top_k, layer.n_expert);
    for (const SliceSource& slice : layer.slices) {
      if (type_info(slice.type).computable)
        bytes[{slice.type, slice.columns, slice.rows, picks}] += slice.slice_bytes * static_cast<uint64_t>(picks);
    }
  }
  return bytes;
}

std::map<TensorType, double> rates_by_type(std::initializer_list<BytesByKind> parts,
                                           const std::map<MatrixKind, double>& known) {
  std::map<TensorType, double> rates, seconds;
  for (const BytesByKind& part : parts) {
    for (const auto& [kind, n] : part) {
      rates[kind.type] += static_cast<double>(n);
      seconds[kind.type] += static_cast<double>(n) / known.at(kind);
    }
  }
  for (auto& [type, rate] : rates) rate /= seconds.at(type);
  return rates;
}

/// Bytes per second of direct reads of slices; 0 and the reason in `how` where that cannot be had.
double drive_rate(const GgufFile& file, const EntryMap& map, std::string& how) {
  uint64_t bytes = 0, slices = 0;
  for (const LayerEntries& layer : map.layers) {
    for (const SliceSource& slice : layer.slices) {
      bytes += slice.slice_bytes;
      ++slices;
    }
  }
  const SliceSource& first = map.layers.front().slices.front();
  const ReadFile shard(file.shards()[static_cast<size_t>(first.shard)].path, true);
  ProbeOptions options;
  options.request_bytes = bytes / slices;
  options.ignore_cache = true;  // a drive that others use, or a virtual one, is not the same for ever
  const DriveRate rate = probe_drive(shard, options);
  how += fmt::format("; drive: {}", describe(rate));
  return rate.best_bytes_per_second;
}

}  // namespace

ParamList rate_params(std::string_view fallback) {
  return {
      {.name = "measure",
       .type = ParamType::flag,
       .fallback = fallback,
       .help = "Measures how fast weights of the model's types pass through the kernels (about a second) and how fast "
               "the drive reads its slices, for the expected time of a token. --no-measure leaves that out."},
      {.name = "drive-gb-s",
       .type = ParamType::real,
       .value = "F",
       .fallback = "0",
       .help = "Takes this as the drive's rate (10^9 bytes per second) instead; 0 = measured.",
       .min = 0,
       .max = 1e6},
      {.name = "memory-gb-s",
       .type = ParamType::real,
       .value = "F",
       .fallback = "0",
       .help = "Takes this as the rate of weights through the kernels instead; 0 = measured.",
       .min = 0,
       .max = 1e6},
  };
}

uint64_t dense_token_bytes(const GgufFile& file, const EntryMap& map) {
  uint64_t bytes = 0;
  for (const TensorInfo* tensor : dense_tensors(file, map)) {
    if (!only_looked_up(file, *tensor)) bytes += tensor->bytes;
  }
  return bytes;
}

MeasuredRates rates_of(const Settings& settings, const GgufFile* file, const EntryMap& map) {
  MeasuredRates measured;
  TokenRates& rates = measured.rates;
  const bool measure = settings.flag("measure") && file != nullptr;
  if (const double given = settings.real("memory-gb-s"); given > 0) {
    rates.dense = rates.experts = given * kGiga;
    measured.how = "kernels as given";
  } else if (measure) {
    const auto compute = make_cpu_compute({.threads = thread_count(settings), .isa = parse_isa(settings.text("isa"))});
    const BytesByKind dense = dense_kinds(*file, map), experts = expert_kinds(map);
    std::map<MatrixKind, double> known;
    rates.dense = decode_rate(*compute, dense, known);
    rates.experts = decode_rate(*compute, experts, known);
    measured.how = fmt::format("measured with {}:", compute->name());
    for (const auto& [type, rate] : rates_by_type({dense, experts}, known))
      measured.how += fmt::format(" {} {:.1f} GB/s", type_name(type), rate / kGiga);
  }
  if (const double given = settings.real("drive-gb-s"); given > 0) {
    rates.drive = given * kGiga;
    measured.how += measured.how.empty() ? "drive as given" : "; drive as given";
  } else if (measure) {
    rates.drive = drive_rate(*file, map, measured.how);
  }
  return measured;
}

}  // namespace moetier::cli
