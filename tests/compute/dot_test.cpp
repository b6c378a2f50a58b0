#include "compute/cpu/dot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "compute/dot_simde.h"
#include "compute/kernel_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

/// Weights in memory of exactly their size (so that a sanitizer sees a read past the end), `shift` bytes off alignment.
class PlacedWeights {
 public:
  PlacedWeights(const Bytes& bytes, size_t shift) : memory_(new std::byte[bytes.size() + shift]), shift_(shift) {
    std::copy(bytes.begin(), bytes.end(), memory_.get() + shift);
  }
  const std::byte* data() const { return memory_.get() + shift_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t shift_;
};

/// A table of dots, and what it is called.
struct Unit {
  std::string name;
  const DotTable* dots;
};

/// Every table that can be run here, portable first: the instruction sets' and their variants.
std::vector<Unit> units() {
  std::vector<Unit> out{{"portable", &portable_dots()}};
  if (isa_available(Isa::avx2)) out.push_back({"avx2", avx2_dots()});
  if (has_avx_vnni()) out.push_back({"avx2 with VNNI", avxvnni_dots()});
  if (isa_available(Isa::avx512)) out.push_back({"avx512, eight rows", avx512vl_dots()});
  if (isa_available(Isa::avx512)) out.push_back({"avx512", avx512_dots()});
  if (isa_available(Isa::avx2) && simde_avx512_dots() != nullptr) {
    out.push_back({"avx512 by SIMDe", simde_avx512_dots()});
  }
  if (has_amx_int8()) out.push_back({"amx", amx_dots()});
  const std::pair<const char*, NeonDots> neon[] = {
      {"neon", NeonDots::base}, {"neon with dotprod", NeonDots::dotprod}, {"neon with i8mm", NeonDots::i8mm}};
  for (const auto& [name, variant] : neon) {
    if (const DotTable* dots = neon_dots(variant); dots != nullptr) out.push_back({name, dots});
  }
  return out;
}

/// All dots of `rows` weight rows and the activation rows, [activation row][weight row], and nothing written elsewhere.
Floats all_dots(const Unit& unit, TensorType type, const std::byte* weights, int64_t columns, int64_t rows,
                int64_t first, int64_t last, const std::vector<Bytes>& x) {
  const WeightMatrix w{weights, row_bytes(type, columns), columns, rows};
  const auto width = static_cast<size_t>(last - first);
  constexpr float kUntouched = -12345.0f;
  Floats out((width + 2) * x.size(), kUntouched);
  std::vector<const std::byte*> inputs;
  std::vector<float*> outputs;
  for (size_t t = 0; t < x.size(); ++t) {
    inputs.push_back(x[t].data());
    outputs.push_back(out.data() + t * (width + 2) + 1);
  }
  unit.dots->of(type)(w, first, last, inputs.data(), outputs.data(), static_cast<int>(x.size()));
  Floats packed;
  for (size_t t = 0; t < x.size(); ++t) {
    EXPECT_EQ(outputs[t][-1], kUntouched);
    EXPECT_EQ(outputs[t][width], kUntouched);
    packed.insert(packed.end(), outputs[t], outputs[t] + width);
  }
  return packed;
}

std::vector<Bytes> encode_rows(ActivationKind kind, int64_t columns, int n, int variant, unsigned seed) {
  std::vector<Bytes> out;
  for (int t = 0; t < n; ++t) {
    const Floats x = make_activations(static_cast<size_t>(columns), seed + static_cast<unsigned>(t), variant);
    out.push_back(encode_row(kind, x.data(), columns));
  }
  return out;
}

class DotTest : public testing::TestWithParam<TensorType> {
 protected:
  TensorType type() const { return GetParam(); }
  ActivationKind kind() const { return activation_kind(type()); }
  int64_t block() const { return type_info(type()).block_length; }

  /// Expects the bits of the portable unit from all others.
  void expect_units_agree(const std::byte* weights, int64_t columns, int64_t rows, const std::vector<Bytes>& x) const {
    Floats portable;
    for (const Unit& unit : units()) {
      const Floats got = all_dots(unit, type(), weights, columns, rows, 0, rows, x);
      if (portable.empty()) portable = got;
      expect_same_bits(got, portable,
                       fmt::format("{}: {} columns, {} rows, {} activation rows", unit.name, columns, rows, x.size()));
    }
  }
};

TEST_P(DotTest, UnitsGiveTheSameBitsForAllShapes) {
  unsigned seed = 1;
  for (const int64_t blocks : {1, 2, 3, 5, 16, 17, 33}) {
    const int64_t columns = blocks * block();
    if (columns > 4352) continue;
    for (const int64_t rows : {1, 3, 7, 8, 9, 15, 16, 17, 23, 25, 32, 33, 48}) {
      const int n = std::array{1, 2, 3, 5, 8, 15, 16, 17, 31, 32}[seed % 10];
      const PlacedWeights w(make_weights(type(), columns, rows, Fill::ordinary, seed), block() == 1 ? 0 : seed % 3);
      const std::vector<Bytes> x = encode_rows(kind(), columns, n, 0, seed);
      expect_units_agree(w.data(), columns, rows, x);
      ++seed;
    }
  }
}

TEST_P(DotTest, UnitsGiveTheSameBitsForHostileValues) {
  const int64_t columns = block() == 1 ? 100 : 3 * std::max<int64_t>(block(), 128), rows = 27;
  unsigned seed = 100;
  for (const Fill fill : {Fill::ordinary, Fill::largest, Fill::smallest, Fill::scales, Fill::broken}) {
    for (int variant = 0; variant < kActivationVariants; ++variant) {
      for (const int n : {1, 3, 18}) {
        const Bytes w = make_weights(type(), columns, rows, fill, ++seed);
        const std::vector<Bytes> x = encode_rows(kind(), columns, n, variant, seed);
        SCOPED_TRACE(fmt::format("fill {}, activations {}", static_cast<int>(fill), variant));
        expect_units_agree(w.data(), columns, rows, x);
      }
    }
  }
}

TEST_P(DotTest, ARowsBitsDependOnNothingElse) {
  const int64_t columns = 5 * std::max<int64_t>(block(), 20), rows = 21;
  const Bytes w = make_weights(type(), columns, rows, Fill::ordinary, 5);
  const std::vector<Bytes> x = encode_rows(kind(), columns, 6, 0, 9);
  for (const Unit& unit : units()) {
    const Floats all = all_dots(unit, type(), w.data(), columns, rows, 0, rows, x);
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 1}, {3, 8}, {4, 15}, {13, 21}, {20, 21}}) {
      for (size_t t = 0; t < x.size(); ++t) {
        const Floats part = all_dots(unit, type(), w.data(), columns, rows, first, last, {x[t]});
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(t) * rows;
        expect_same_bits(part, Floats(begin + first, begin + last), fmt::format("rows {} to {}", first, last));
      }
    }
  }
}

TEST_P(DotTest, IsNearTheF64Dot) {
  const int64_t columns = block() == 1 ? 1000 : 1024, rows = 24;
  const Bytes w = make_weights(type(), columns, rows, Fill::ordinary, 77);
  std::vector<float> decoded(static_cast<size_t>(columns * rows));
  decode(type(), w.data(), decoded.data(), columns * rows);
  const std::vector<Bytes> x = encode_rows(kind(), columns, 3, 0, 78);
  // Sequential roundings: 16 terms in a segment (or 63 in a float partial sum), the segments, and a few within a term.
  // K types: decode() itself rounds twice.
  const double roundings = block() == 1 ? 70 : 26;
  for (const Unit& unit : units()) {
    const Floats got = all_dots(unit, type(), w.data(), columns, rows, 0, rows, x);
    for (size_t t = 0; t < x.size(); ++t) {
      const std::vector<double> activations = decode_row(kind(), x[t], columns);
      for (int64_t r = 0; r < rows; ++r) {
        const auto begin = decoded.begin() + r * columns;
        const Exact exact = exact_dot({begin, begin + columns}, activations);
        const double error = std::fabs(got[t * rows + static_cast<size_t>(r)] - exact.value);
        ASSERT_LE(error, roundings * 0x1p-24 * exact.magnitude) << "row " << r;
        ASSERT_GT(exact.magnitude, 0.0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DotTest, testing::ValuesIn(kernel_types()), type_test_name);

TEST(Dot, KnowsWhichTypesItHas) {
  for (const TypeInfo& info : known_types()) EXPECT_EQ(has_dot(info.type), info.computable) << info.name;
  EXPECT_EQ(activation_kind(TensorType::bf16), ActivationKind::floats);
  EXPECT_EQ(activation_kind(TensorType::mxfp4), ActivationKind::blocks32);
  EXPECT_EQ(activation_kind(TensorType::nvfp4), ActivationKind::blocks32);
  EXPECT_EQ(activation_kind(TensorType::q6_k), ActivationKind::blocks256);
  EXPECT_EQ(activation_kind(TensorType::iq2_xxs), ActivationKind::blocks256);
}

Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars((std::istreambuf_iterator<char>(in)), {});
  Bytes out(chars.size());
  if (!chars.empty()) std::memcpy(out.data(), chars.data(), chars.size());
  return out;
}

TEST(Dot, IsNearTheStockKernelsOnGoldenBlocks) {
  const char* shared = std::getenv("MOETIER_SHARED");
  const std::filesystem::path golden =
      std::filesystem::path(shared != nullptr ? shared : MOETIER_SOURCE_DIR "/../shared") / "quant/golden";
  if (!std::filesystem::exists(golden / "dot.json")) GTEST_SKIP() << "there are no golden blocks in " << golden;
  const nlohmann::json dots = nlohmann::json::parse(std::ifstream(golden / "dot.json"));
  const Bytes input = read_bytes(golden / "act/input.f32");
  int compared = 0;
  for (const TensorType type : kernel_types()) {
    std::string name(type_name(type));
    if (name.ends_with("_k")) name.back() = 'K';
    if (!dots.contains(name)) continue;
    const nlohmann::json& dot = dots[name];
    const auto columns = dot["n"].get<int64_t>();
    const Bytes blocks = read_bytes(golden / (name + ".blk"));
    ASSERT_EQ(blocks.size(), row_bytes(type, columns));
    const ActivationKind kind = activation_kind(type);
    const Bytes x = encode_row(kind, reinterpret_cast<const float*>(input.data()), columns);
    // The stock activations have the same codes; for 32-blocks their scale is rounded to f16 (2^-11 of each term).
    const double bound = (kind == ActivationKind::blocks32 ? 0x1p-11 : 4e-6) * dot["sum_abs"].get<double>();
    for (const Unit& unit : units()) {
      const Floats got = all_dots(unit, type, blocks.data(), columns, 1, 0, 1, {x});
      EXPECT_NEAR(got[0], dot["exact_from_dequant"].get<double>(), bound) << name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 40);
}

/// By the rule's own words, with one block: a term is flush(d * a) * float(sum q*c).
TEST(Dot, OneBlockIsExactlyTheTerm) {
  Bytes w(34);
  const uint16_t d = f32_to_f16(0.37f);
  std::memcpy(w.data(), &d, 2);
  Floats x(32);
  for (size_t i = 0; i < 32; ++i) {
    w[2 + i] = static_cast<std::byte>(static_cast<int8_t>(7 * static_cast<int>(i) - 100));
    x[i] = 0.1f * static_cast<float>(i) - 1.3f;
  }
  const Bytes row = encode_row(ActivationKind::blocks32, x.data(), 32);
  const auto& codes = *reinterpret_cast<const Codes32*>(row.data());
  int sum = 0;
  for (int i = 0; i < 32; ++i) sum += (7 * i - 100) * codes.codes[i];
  const float expected = f16_to_f32(d) * codes.scale * static_cast<float>(sum);
  Bytes sixteen;
  for (int r = 0; r < 16; ++r) sixteen.insert(sixteen.end(), w.begin(), w.end());
  for (const Unit& unit : units()) {
    for (const float got : all_dots(unit, TensorType::q8_0, sixteen.data(), 32, 16, 0, 16, {row}))
      EXPECT_EQ(got, expected);
  }
}

/// Segments of 512 columns are summed apart: with terms 1, then 2^-24 many times, the order shows.
TEST(Dot, SumsInSegmentsOf512Columns) {
  const int64_t columns = 1536;
  const auto term = [](int block) { return block == 0 ? 1.0f : 0x1p-24f; };
  float total = 0.0f, flat = 0.0f;
  for (int begin = 0; begin < 48; begin += 16) {
    float segment = 0.0f;
    for (int b = begin; b < begin + 16; ++b) segment = segment + term(b);
    total = total + segment;
  }
  for (int b = 0; b < 48; ++b) flat = flat + term(b);
  ASSERT_NE(total, flat);
  // The largest activation makes the scale 1 and meets a weight of 0; the next gives the block's integer sum, 1.
  Bytes row_of_weights;
  Floats x(static_cast<size_t>(columns), 0.0f);
  for (int b = 0; b < 48; ++b) {
    Bytes block(34, std::byte{0});
    const uint16_t d = f32_to_f16(term(b));
    std::memcpy(block.data(), &d, 2);
    block[3] = std::byte{1};
    row_of_weights.insert(row_of_weights.end(), block.begin(), block.end());
    x[static_cast<size_t>(32 * b)] = 127.0f;
    x[static_cast<size_t>(32 * b + 1)] = 1.0f;
  }
  Bytes w;
  for (int r = 0; r < 16; ++r) w.insert(w.end(), row_of_weights.begin(), row_of_weights.end());
  const Bytes row = encode_row(ActivationKind::blocks32, x.data(), columns);
  ASSERT_EQ(reinterpret_cast<const Codes32*>(row.data())->scale, 1.0f);
  for (const Unit& unit : units()) {
    for (const float got : all_dots(unit, TensorType::q8_0, w.data(), columns, 16, 0, 16, {row})) EXPECT_EQ(got, total);
  }
}

}  // namespace
}  // namespace moetier
