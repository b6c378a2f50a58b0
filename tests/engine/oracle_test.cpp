// Whole models against the logits of a reference, at every position: a prompt in one batch, in small ubatches, and
// token by token.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>

#include "engine/context.h"
#include "gguf/writer.h"
#include "oracle_case.h"
#include "sanitized.h"

namespace moetier {
namespace {

using namespace testing_support;

struct Way {
  int64_t ubatch;
  size_t rows_per_call;  ///< 0 = all
  int threads;
};

/// Logits of every position from `first` on, with an f32 KV cache. What is before it comes in one call.
std::vector<float> logits_of(const std::string& path, const std::vector<int32_t>& tokens, const Way& way,
                             size_t first = 0) {
  EngineOptions options;
  options.cpu.threads = way.threads;
  const auto engine = Engine::load(path, options);
  ContextOptions shape;
  shape.context = static_cast<int64_t>(tokens.size());
  shape.ubatch = way.ubatch;
  shape.kv_type = TensorType::f32;
  Context context(*engine, shape);
  SequenceState sequence = context.new_sequence();
  std::vector<float> all;
  const size_t step = way.rows_per_call == 0 ? tokens.size() : way.rows_per_call;
  for (size_t at = 0; at < tokens.size();) {
    const size_t end = std::min(at < first ? std::max(first, step) : at + step, tokens.size());
    std::vector<BatchRow> rows;
    for (size_t i = at; i < end; ++i) rows.push_back({tokens[i], &sequence, i >= first});
    context.decode(rows);
    for (int64_t i = 0; i < context.logits_count(); ++i) {
      const auto row = context.logits(i);
      all.insert(all.end(), row.begin(), row.end());
    }
    at = end;
  }
  return all;
}

constexpr Way kOneBatch{512, 0, 2};
constexpr Way kSmallUbatches{7, 0, 1};
constexpr Way kTokenByToken{512, 1, 2};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The coarsest kind of weight in the file: it says which bar holds.
enum class Kind { f32, half, quantized };

Kind kind_of(const GgufFile& file) {
  // The reference takes GELU, the activation of gemma4, from a table of halves.
  Kind kind = file.need_string("general.architecture") == "gemma4" ? Kind::half : Kind::f32;
  for (const TensorInfo& tensor : file.tensors()) {
    if (type_info(tensor.type).block_length > 1) return Kind::quantized;
    if (tensor.type != TensorType::f32) kind = Kind::half;
  }
  return kind;
}

/// Why this version cannot run the file, or "".
std::string unsupported(const GgufFile& file) {
  const std::string name = file.need_string("general.architecture");
  const auto& known = architectures();
  if (std::none_of(known.begin(), known.end(), [&](const Architecture& a) { return a.name == name; }))
    return "the architecture " + name + " is not supported";
  for (const TensorInfo& tensor : file.tensors()) {
    if (!type_info(tensor.type).computable && tensor.type != TensorType::i32)  // of tables
      return "the type " + std::string(type_name(tensor.type)) + " is not supported";
  }
  return "";
}

/// What comparing a case with the reference's logits comes to.
struct Verdict {
  std::string skipped;  ///< why it cannot be compared
  std::string numbers;
  std::vector<std::string> problems;
};

Verdict compare(const OracleCase& c) {
  const GgufFile file = GgufFile::open(c.model());
  Verdict v;
  v.skipped = unsupported(file);
  if (!v.skipped.empty()) return v;
  const auto require = [&](bool holds, const char* what) {
    if (!holds) v.problems.push_back(fmt::format("{}: {}", what, v.numbers));
  };
  const std::vector<int32_t> tokens = c.tokens();
  const std::vector<float> want = c.logits();
  // Of a long text only the last positions may have logits.
  const auto vocab = static_cast<size_t>(architecture_of(file).read(file).vocab);
  const size_t positions = std::min(want.size() / vocab, tokens.size()), first = tokens.size() - positions;
  const std::vector<float> got = logits_of(c.model(), tokens, kOneBatch, first);
  require(got.size() == want.size() && positions > 0, "the reference has another number of logits");
  if (!v.problems.empty()) return v;
  require(same_bits(got, logits_of(c.model(), tokens, kSmallUbatches, first)), "small ubatches change bits");
  require(same_bits(got, logits_of(c.model(), tokens, kTokenByToken, first)), "single tokens change bits");

  const Difference own = difference(want, got, positions);
  const Difference spread = read_spread(c);
  v.numbers =
      fmt::format("relative {:.2e} (the reference's own spread {:.2e}), KL {:.2e} ({:.2e}), argmax {:.1f} % ({:.1f} %)",
                  own.relative, spread.relative, own.kl, spread.kl, 100 * own.agreement, 100 * spread.agreement);
  switch (kind_of(file)) {
    case Kind::f32:
      require(own.relative <= 2e-4, "logits differ");
      require(own.agreement == 1.0, "the best token differs");
      break;
    case Kind::half:
      require(own.relative <= std::max(2e-3, 2 * spread.relative), "logits differ");
      require(own.agreement == 1.0, "the best token differs");
      break;
    case Kind::quantized:
      require(own.kl <= std::max(1e-3, 2 * spread.kl), "logits differ");
      require(own.agreement >= std::min(0.95, spread.agreement), "the best token differs");
      break;
  }
  return v;
}

class Oracle : public ::testing::TestWithParam<OracleCase> {};

TEST_P(Oracle, EveryPositionAgreesOnEveryPath) {
  const OracleCase& c = GetParam();
  constexpr size_t kLongText = 4096;
  if (kSanitized && c.tokens().size() > kLongText) GTEST_SKIP() << "a long text takes minutes under a sanitizer";
  const Verdict v = compare(c);
  if (!v.skipped.empty()) {
    ASSERT_FALSE(c.committed) << v.skipped;
    GTEST_SKIP() << c.name << " is skipped: " << v.skipped << ".";
  }
  RecordProperty("difference", v.numbers);
  for (const std::string& problem : v.problems) ADD_FAILURE() << problem;
}

INSTANTIATE_TEST_SUITE_P(Models, Oracle, ::testing::ValuesIn(find_oracle_cases()), [](const auto& test) {
  std::string name = ::testing::PrintToString(test.param);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char ch) { return std::isalnum(ch) == 0; }, '_');
  return name;
});

TEST(OracleCases, TheSharedFolderIsThere) {
  if (!fs::is_directory(shared_folder() / "oracle" / "models"))
    GTEST_SKIP() << "The bigger oracle models are skipped: there is no folder shared/oracle/models beside the checkout "
                    "(MOETIER_SHARED names another place).";
  EXPECT_GT(find_oracle_cases().size(), 26u);
}

/// A file that nobody gave logits for is loaded all the same, and held against itself.
TEST(DroppedModels, WithoutLogitsAreHeldAgainstThemselves) {
  const std::vector<OracleCase> models = find_models_without_answers();
  if (models.empty())
    GTEST_SKIP() << "No model without logits was dropped in: put NAME.gguf into the folder that MOETIER_ORACLE_DIR "
                    "names (with NAME.tokens and NAME.f32, it is compared with them).";
  for (const OracleCase& c : models) {
    SCOPED_TRACE(c.model());
    const GgufFile file = GgufFile::open(c.model());
    if (const std::string reason = unsupported(file); !reason.empty()) {
      std::cerr << c.model() << " is passed over: " << reason << "\n";
      continue;
    }
    std::vector<int32_t> tokens(48);
    const auto vocab = static_cast<size_t>(Engine::load(c.model())->model().hparams().vocab);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7919 % vocab);
    const std::vector<float> got = logits_of(c.model(), tokens, kOneBatch);
    EXPECT_TRUE(std::ranges::all_of(got, [](float l) { return std::isfinite(l); }));
    EXPECT_TRUE(same_bits(got, logits_of(c.model(), tokens, kTokenByToken)));
  }
}

/// A folder with cases of somebody else's: they are found and compared, whatever their names, and wrong logits show.
TEST(DroppedModels, AreComparedWithTheLogitsBesideThem) {
  const fs::path folder = fs::temp_directory_path() / ("dropped_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const OracleCase own{"mini-llama-f32", fs::path(MOETIER_TEST_DATA) / "models", true};
  const OracleCase other{"odd-llama-f32", own.folder, true};
  const auto drop = [&](const OracleCase& from, const char* extension, const std::string& name) {
    fs::copy_file(from.file(extension), folder / (name + extension), fs::copy_options::overwrite_existing);
  };
  for (const char* extension : {".gguf", ".tokens", ".f32"}) {
    drop(own, extension, "theirs");            // without a spread
    drop(own, extension, "mini-llama-f32");    // the same bytes
    drop(other, extension, "mini-qwen3-f32");  // a known name
    drop(own, extension, "wrong");
  }
  std::vector<float> wrong = own.logits();
  wrong[wrong.size() / 2] += 1.0f;
  std::ofstream(folder / "wrong.f32", std::ios::binary)
      .write(reinterpret_cast<const char*>(wrong.data()), static_cast<std::streamsize>(wrong.size() * sizeof(float)));
  drop(own, ".gguf", "alone");
  const char* before = std::getenv("MOETIER_ORACLE_DIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("MOETIER_ORACLE_DIR", folder.c_str(), 1);
  std::map<std::string, OracleCase> found;
  for (const OracleCase& c : find_oracle_cases()) {
    if (c.folder == folder) found.emplace(::testing::PrintToString(c), c);
  }
  std::vector<OracleCase> alone = find_models_without_answers();
  std::erase_if(alone, [&](const OracleCase& c) { return c.folder != folder; });
  if (before == nullptr) {
    unsetenv("MOETIER_ORACLE_DIR");
  } else {
    setenv("MOETIER_ORACLE_DIR", kept.c_str(), 1);
  }
  ASSERT_EQ(found.size(), 3u);
  ASSERT_TRUE(found.contains("theirs") && found.contains("wrong"));
  EXPECT_EQ(alone.size(), 1u);
  for (const auto& [title, c] : found) {
    const Verdict v = compare(c);
    EXPECT_EQ(v.problems.empty(), title != "wrong") << title << ": " << v.numbers;
  }
  fs::remove_all(folder);
}

/// A committed model written anew in another form.
class OtherForm {
 public:
  explicit OtherForm(const std::string& name)
      : committed_{name, fs::path(MOETIER_TEST_DATA) / "models", true},
        file_(GgufFile::open(committed_.model())),
        prefix_((fs::temp_directory_path() / ("other_form_" + std::to_string(getpid()))).string()) {
    for (const auto& [key, value] : file_.metadata()) writer_.set(key, value);
  }
  ~OtherForm() {
    for (const std::string& path : written_) fs::remove(path);
  }
  OtherForm(const OtherForm&) = delete;
  OtherForm& operator=(const OtherForm&) = delete;

  const GgufFile& from() const { return file_; }
  void keep(const TensorInfo& tensor) {
    const auto data = file_.data(tensor);
    writer_.add_tensor(tensor.name, tensor.type, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                       {data.begin(), data.end()});
  }
  /// Gate and up of each expert, one after the other.
  void fuse(const TensorInfo& gate, const TensorInfo& up, const std::string& name) {
    const auto experts = static_cast<size_t>(gate.shape[2]);
    std::vector<std::byte> data;
    for (size_t e = 0; e < experts; ++e) {
      for (const TensorInfo* part : {&gate, &up}) {
        const auto slice = file_.data(*part).subspan(e * part->bytes / experts, part->bytes / experts);
        data.insert(data.end(), slice.begin(), slice.end());
      }
    }
    writer_.add_tensor(name, gate.type, {gate.shape[0], 2 * gate.shape[1], gate.shape[2]}, std::move(data));
  }
  std::string write() {
    written_.push_back(prefix_ + ".gguf");
    writer_.write(written_.back());
    return written_.back();
  }
  std::string write_split(int shards) {
    writer_.write_split(prefix_, shards);
    for (int i = 1; i <= shards; ++i) written_.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", prefix_, i, shards));
    return written_.back();
  }
  void expect_same_bits(const std::string& path) const {
    const std::vector<int32_t> tokens = committed_.tokens();
    EXPECT_TRUE(same_bits(logits_of(path, tokens, kOneBatch), logits_of(committed_.model(), tokens, kOneBatch)));
  }

 private:
  OracleCase committed_;
  GgufFile file_;
  std::string prefix_;
  GgufWriter writer_;
  std::vector<std::string> written_;
};

TEST(OtherForms, FusedGateAndUpGiveTheSameBits) {
  for (const char* name : {"mini-qwen3moe-f32", "mini-qwen3moe-q8_0", "small-qwen3moe-q4_k_m", "mini-llama-f32"}) {
    SCOPED_TRACE(name);
    OtherForm form(name);
    for (const TensorInfo& tensor : form.from().tensors()) {
      const size_t at = tensor.name.find("ffn_gate_exps");
      if (at != std::string::npos) {
        const std::string block = tensor.name.substr(0, at);
        form.fuse(tensor, *form.from().find_tensor(block + "ffn_up_exps.weight"), block + "ffn_gate_up_exps.weight");
      } else if (tensor.name.find("ffn_up_exps") == std::string::npos) {
        form.keep(tensor);
      }
    }
    form.expect_same_bits(form.write());
  }
}

TEST(OtherForms, ASplitSetGivesTheSameBits) {
  OtherForm form("mini-qwen3moe-q8_0");
  for (const TensorInfo& tensor : form.from().tensors()) form.keep(tensor);
  form.expect_same_bits(form.write_split(5));
}

}  // namespace
}  // namespace moetier
