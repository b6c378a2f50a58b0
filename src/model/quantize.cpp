#include "model/quantize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/cpu_topology.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "quant/codec.h"
#include "quant/mixture.h"

namespace moetier {
namespace {

/// Weights that one thread converts at a time: a multiple of every block length.
constexpr int64_t kPiece = 1 << 15;
/// Pieces converted before they are written.
constexpr int64_t kPiecesPerBatch = 64;

constexpr uint32_t kQuantizationVersion = 2;

const FileTypeInfo& file_type_of(std::string_view name) {
  if (const FileTypeInfo* info = find_file_type(name)) return *info;
  std::vector<std::string_view> names;
  for (const FileTypeInfo& info : known_file_types()) names.push_back(info.name);
  if (const std::string_view why = why_no_file_type(name); !why.empty()) {
    usage_error("cannot quantize to \"{}\": {}", name, why);
  }
  usage_error("there is no file type \"{}\"; there are {}", name, fmt::join(names, ", "));
}

void refuse_overwriting(const GgufFile& file, const std::string& out) {
  for (const GgufFile::Shard& shard : file.shards()) {
    std::error_code error;
    if (std::filesystem::equivalent(shard.path, out, error)) {
      fail("cannot write {}: it is the model that is read; name another file", out);
    }
  }
}

int read_count(const GgufFile& file, const std::string& key) {
  int64_t largest = 0;  // some models give a number for each layer
  for (const int64_t value : file.get_ints(key).value_or(std::vector<int64_t>{})) largest = std::max(largest, value);
  return static_cast<int>(std::min<int64_t>(largest, 1 << 20));
}

MixtureModel model_of(const GgufFile& file) {
  const std::string architecture = file.get_string("general.architecture").value_or("");
  return {architecture, read_count(file, architecture + ".block_count"),
          read_count(file, architecture + ".attention.head_count"),
          read_count(file, architecture + ".attention.head_count_kv"),
          read_count(file, architecture + ".expert_count")};
}

bool is_float(TensorType type) {
  return type == TensorType::f32 || type == TensorType::f16 || type == TensorType::bf16;
}

/// Integers and doubles: tables, never weights of a matrix product.
bool is_other_plain(TensorType type) {
  return !is_float(type) && type_info(type).block_length == 1;
}

void check_conversion(const GgufFile& file, const TensorInfo& tensor, TensorType to, bool allow_requantize) {
  if (!type_info(tensor.type).computable) {
    fail("{}: tensor {} is {}, which cannot be decoded", file.path(), tensor.name, type_name(tensor.type));
  }
  if (!is_float(tensor.type) && !is_float(to) && !allow_requantize) {
    fail(
        "{}: tensor {} is already quantized ({}), and making it {} would lose more than starting from the original "
        "does; --allow-requantize does it all the same",
        file.path(), tensor.name, type_name(tensor.type), type_name(to));
  }
}

/// The type each tensor will have, in file order; counts fallbacks.
std::vector<TensorType> plan_types(const GgufFile& file, const FileTypeInfo& file_type, const QuantizeOptions& options,
                                   QuantizeReport& report) {
  std::vector<MixtureTensor> tensors;
  for (const TensorInfo& t : file.tensors()) tensors.push_back({t.name, t.shape, t.n_dims});
  const std::vector<TypeChoice> choices = choose_types(file_type.file_type, model_of(file), tensors, options.pure);
  std::vector<TensorType> types;
  std::string example;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    const bool keep = choices[i].keep || is_other_plain(tensor.type);
    types.push_back(keep ? tensor.type : choices[i].type);
    if (types[i] != tensor.type) check_conversion(file, tensor, types[i], options.allow_requantize);
    if (keep || !choices[i].fallback) continue;
    ++report.fallbacks;
    if (example.empty()) {
      example = fmt::format("{} with rows of {} is {}", tensor.name, tensor.shape[0], type_name(types[i]));
    }
  }
  if (report.fallbacks > 0) {
    log::warn("{}: rows do not fit the blocks that {} wants in {} of {} tensors, which get other types (the first: {})",
              file.path(), file_type.name, report.fallbacks, tensors.size(), example);
  }
  return types;
}

/// Converts tensors piece by piece, in parallel.
class Converter {
 public:
  Converter(const GgufFile& file, int threads)
      : file_(file), pool_(threads > 0 ? threads : default_threads()), floats_(static_cast<size_t>(pool_.size())) {}

  /// Hands the tensor's data as `to` to the sink.
  void convert(const TensorInfo& tensor, TensorType to, const GgufWriter::Sink& sink) {
    const int64_t batch = kPiece * kPiecesPerBatch;
    for (int64_t first = 0; first < tensor.elements(); first += batch) {
      const int64_t n = std::min(batch, tensor.elements() - first);
      out_.resize(row_bytes(to, n));
      pool_.run((n + kPiece - 1) / kPiece, [&](int64_t piece, int thread) {
        const int64_t begin = piece * kPiece;
        convert_piece(tensor, to, first + begin, std::min(kPiece, n - begin), out_.data() + row_bytes(to, begin),
                      floats_[static_cast<size_t>(thread)]);
      });
      sink(out_.data(), out_.size());
    }
  }

 private:
  void convert_piece(const TensorInfo& tensor, TensorType to, int64_t first, int64_t n, std::byte* out,
                     std::vector<float>& floats) const {
    floats.resize(static_cast<size_t>(kPiece));
    try {
      decode(tensor.type, file_.data(tensor).data() + row_bytes(tensor.type, first), floats.data(), n);
      encode(to, floats.data(), out, n);
    } catch (const Error& e) {
      fail("{}: tensor {}, from weight {} on: {}", file_.path(), tensor.name, first, e.what());
    }
  }

  const GgufFile& file_;
  ThreadPool pool_;
  std::vector<std::vector<float>> floats_;  ///< one piece per thread
  std::vector<std::byte> out_;              ///< a batch
};

void copy_tensor(std::span<const std::byte> data, const GgufWriter::Sink& sink) {
  constexpr size_t kChunk = size_t{8} << 20;  // so that progress shows
  for (size_t first = 0; first < data.size(); first += kChunk) {
    sink(data.data() + first, std::min(kChunk, data.size() - first));
  }
}

void copy_metadata(const GgufFile& file, const FileTypeInfo& file_type, GgufWriter& writer) {
  for (const auto& [key, value] : file.metadata()) {
    if (key != "general.alignment") writer.set(key, value);  // written with the usual one
  }
  writer.set("general.file_type", static_cast<uint32_t>(file_type.file_type));
  writer.set("general.quantization_version", kQuantizationVersion);
}

}  // namespace

QuantizeReport quantize_file(const std::string& in, const std::string& out, std::string_view type,
                             const QuantizeOptions& options) {
  const FileTypeInfo& file_type = file_type_of(type);
  const GgufFile file = GgufFile::open(in);
  refuse_overwriting(file, out);
  QuantizeReport report;
  const std::vector<TensorType> types = plan_types(file, file_type, options, report);
  if (file_type.wants_importance) {
    log::warn(
        "{} was designed for an importance matrix, which Moetier does not make, so it loses more than files of that "
        "name "
        "usually do; measure it with moetier perplexity before you rely on it",
        file_type.name);
  }

  Converter converter(file, options.threads);
  GgufWriter writer;
  copy_metadata(file, file_type, writer);
  int64_t weights = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    const TensorType to = types[i];
    writer.add_tensor(tensor.name, to, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      [&file, &tensor, &converter, to](const GgufWriter::Sink& sink) {
                        if (to == tensor.type) return copy_tensor(file.data(tensor), sink);
                        converter.convert(tensor, to, sink);
                      });
    report.input_bytes += tensor.bytes;
    report.output_bytes += row_bytes(to, tensor.elements());
    report.converted += to != tensor.type;
    weights += tensor.elements();
  }
  report.tensors = static_cast<int>(types.size());
  if (weights > 0)
    report.bits_per_weight = 8.0 * static_cast<double>(report.output_bytes) / static_cast<double>(weights);
  writer.write(out, options.progress);
  return report;
}

}  // namespace moetier
