#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "golden.h"
#include "quant/codec.h"

namespace moetier {
namespace {

using namespace testing;  // NOLINT: the room's test helpers

std::vector<std::byte> encoded(TensorType type, const std::vector<float>& values) {
  std::vector<std::byte> blocks(row_bytes(type, static_cast<int64_t>(values.size())));
  encode(type, values.data(), blocks.data(), static_cast<int64_t>(values.size()));
  return blocks;
}

std::vector<float> round_trip(TensorType type, const std::vector<float>& values) {
  const std::vector<std::byte> blocks = encoded(type, values);
  std::vector<float> out(values.size());
  decode(type, blocks.data(), out.data(), static_cast<int64_t>(out.size()));
  return out;
}

/// `blocks_only`: without the plain types.
std::vector<TensorType> encodable_types(bool blocks_only = false) {
  std::vector<TensorType> types;
  for (const TypeInfo& info : known_types()) {
    if (can_encode(info.type) && (!blocks_only || info.block_length > 1)) types.push_back(info.type);
  }
  return types;
}

/// RMS of the error over RMS of the values.
double relative_rms(const std::vector<float>& values, const std::vector<float>& got) {
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += (got[i] - static_cast<double>(values[i])) * (got[i] - static_cast<double>(values[i]));
    size += static_cast<double>(values[i]) * values[i];
  }
  return std::sqrt(error / size);
}

std::vector<TensorType> types_with_f16_scales() {
  std::vector<TensorType> types = encodable_types(true);
  std::erase(types, TensorType::mxfp4);
  std::erase(types, TensorType::nvfp4);
  return types;
}

class Encode : public ::testing::TestWithParam<TensorType> {};
class EncodeBlocks : public Encode {};
class EncodeF16Scales : public Encode {};

/// `skipped`: a super-block that is not compared.
void expect_golden(TensorType type, const std::string& input, const std::string& folder, int skipped = -1) {
  const std::string name(type_name(type));
  const TypeInfo& info = type_info(type);
  const std::vector<std::byte> want = golden_bytes(folder + name + ".blk");
  const std::vector<std::byte> got = encoded(type, golden_floats(input));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t block = i / info.block_bytes;
    if (static_cast<int>(block) * static_cast<int>(info.block_length) / 256 == skipped) continue;
    ASSERT_EQ(got[i], want[i]) << name << " block " << block << " byte " << i % info.block_bytes;
  }
}

TEST_P(EncodeBlocks, GivesTheGoldenBytes) {
  expect_golden(GetParam(), "enc/input.f32", "enc/");
}

TEST_P(EncodeBlocks, GivesTheGoldenBytesOfHardBlocks) {
  // In an IQ3_S super-block with a group of zeros, the stock quantizer puts the codes of later groups a group too
  // early.
  const int zero_groups = GetParam() == TensorType::iq3_s ? 12 : -1;
  expect_golden(GetParam(), "enc/hard.f32", "enc/hard/", zero_groups);
}

/// What a round trip of normally distributed weights may lose. With N levels over about +-2.5 to 3 sigma a block, the
/// step is 5..6 / N and the error step / sqrt(12); the K types' searches take some off that.
double rms_bound(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return 0;
    case TensorType::f16:
      return 0x1p-11;
    case TensorType::bf16:
      return 0x1p-8;
    case TensorType::q8_0:
      return 0.0060;
    case TensorType::q6_k:
      return 0.020;
    case TensorType::q5_k:
      return 0.040;
    case TensorType::q5_0:
      return 0.046;
    case TensorType::q5_1:
      return 0.042;
    case TensorType::q4_k:
      return 0.078;
    case TensorType::q4_1:
      return 0.085;
    case TensorType::q4_0:
      return 0.093;
    case TensorType::iq4_nl:
    case TensorType::iq4_xs:
      return 0.084;
    case TensorType::nvfp4:
      return 0.105;
    case TensorType::mxfp4:
      return 0.125;
    case TensorType::q3_k:
      return 0.165;
    case TensorType::iq3_s:
      return 0.182;
    case TensorType::iq3_xxs:
      return 0.233;
    case TensorType::iq2_s:
      return 0.29;
    case TensorType::q2_k:
      return 0.325;
    case TensorType::tq1_0:  // for weights that are -1, 0 and 1 times something; these are not
    case TensorType::tq2_0:
      return 0.85;
    default:
      return -1;
  }
}

TEST_P(Encode, LosesNoMoreThanItsBound) {
  for (const float sigma : {1.0f, 0.02f, 3e-3f}) {
    if (GetParam() == TensorType::nvfp4 && sigma < 0.01f) continue;  // its scales end at 2^-10: weights need a factor
    const std::vector<float> values = normal_floats(256 * 64, 7, sigma);
    const double lost = relative_rms(values, round_trip(GetParam(), values));
    EXPECT_LE(lost, rms_bound(GetParam())) << type_name(GetParam()) << " sigma " << sigma;
    if (rms_bound(GetParam()) > 0) {
      EXPECT_GE(lost, rms_bound(GetParam()) * 0.3) << "the bound says nothing";
    }
  }
}

TEST_P(Encode, ZerosStayZeros) {
  for (const float y : round_trip(GetParam(), std::vector<float>(512, 0.0f))) ASSERT_EQ(y, 0.0f);
}

TEST_P(Encode, HandlesConstantTinyAndLopsidedBlocks) {
  std::vector<float> values(256 * 5);
  for (size_t i = 0; i < 256; ++i) {
    values[i] = -0.75f;                                       // constant, below zero
    values[256 + i] = 1e-40f * static_cast<float>(i);         // subnormal
    values[512 + i] = i == 77 ? 40.0f : 0.01f;                // one outlier
    values[768 + i] = 5.0f + 0.001f * static_cast<float>(i);  // far from zero
    values[1024 + i] = i < 128 ? 0.0f : -1.0f;                // zero sub-blocks beside others
  }
  const bool grid = GetParam() == TensorType::iq3_xxs || GetParam() == TensorType::iq3_s;
  const float tolerance = grid ? 0.35f : 0.26f;  // beside a large weight, not every small one is in the grid
  const std::vector<float> got = round_trip(GetParam(), values);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << type_name(GetParam()) << " " << i;
    const float block_peak = i / 256 == 2 ? 40.0f : std::fabs(values[i]) + 0.2f;
    ASSERT_NEAR(got[i], values[i], tolerance * block_peak) << type_name(GetParam()) << " " << i;
  }
}

TEST_P(Encode, IsTheSameBlockByBlock) {
  const int64_t length = type_info(GetParam()).block_length;
  const std::vector<float> values = normal_floats(1024, 8);
  const std::vector<std::byte> whole = encoded(GetParam(), values);
  std::vector<std::byte> parts(whole.size());
  for (int64_t b = 0; b < 1024 / length; ++b) {
    encode(GetParam(), values.data() + b * length, parts.data() + row_bytes(GetParam(), b * length), length);
  }
  EXPECT_EQ(whole, parts);
}

TEST_P(EncodeBlocks, RefusesWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = normal_floats(512, 9);
    values[300] = bad;
    try {
      encoded(GetParam(), values);
      FAIL() << "encoded";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr("300"));
    }
  }
}

TEST_P(EncodeF16Scales, AreRefusedBeyondTheirRange) {
  for (const float huge : {1e10f, 1e20f, 3e38f}) {
    std::vector<float> values = normal_floats(256, 10);
    values[40] = huge;
    values[41] = -huge;
    EXPECT_THROW(encoded(GetParam(), values), Error) << huge;
  }
}

const auto kName = [](const ::testing::TestParamInfo<TensorType>& p) { return std::string(type_name(p.param)); };
INSTANTIATE_TEST_SUITE_P(Types, Encode, ::testing::ValuesIn(encodable_types()), kName);
INSTANTIATE_TEST_SUITE_P(Types, EncodeBlocks, ::testing::ValuesIn(encodable_types(true)), kName);
INSTANTIATE_TEST_SUITE_P(Types, EncodeF16Scales, ::testing::ValuesIn(types_with_f16_scales()), kName);

TEST(EncodeTypes, AreThoseTheDocsName) {
  EXPECT_EQ(encodable_types().size(), 22u);
  std::byte block[256];
  for (const TensorType type :
       {TensorType::iq2_xxs, TensorType::iq2_xs, TensorType::iq1_s, TensorType::iq1_m, TensorType::q8_k}) {
    EXPECT_FALSE(can_encode(type));
    EXPECT_THROW(encode(type, normal_floats(256, 1).data(), block, 256), Error) << type_name(type);
  }
  EXPECT_THROW(encode(TensorType::q4_0, normal_floats(32, 1).data(), block, 16), Error);
}

TEST(EncodeQ8_0, RoundsHalvesAwayFromZero) {
  // The peak 127 makes the scale exactly 1.
  std::vector<float> values(32, 0.0f);
  values[0] = 127.0f;
  const float halves[] = {0.5f, -0.5f, 1.5f, -1.5f, 2.5f, -2.5f, 126.5f, -126.5f, 0.49999997f, -0.49999997f};
  std::copy(std::begin(halves), std::end(halves), values.begin() + 1);
  const std::vector<float> got = round_trip(TensorType::q8_0, values);
  const std::vector<float> part(got.begin() + 1, got.begin() + 11);
  EXPECT_THAT(part, ::testing::ElementsAre(1, -1, 2, -2, 3, -3, 127, -127, 0, 0));
}

TEST(EncodeMxfp4, TakesTheNearestValueAndTheLowerCodeOfTwo) {
  // The peak 6 makes the scale 1: values 0 0.5 1 1.5 2 3 4 6 and their negatives.
  std::vector<float> values(32, 0.0f);
  values[0] = 6.0f;
  const float in[] = {0.25f, 0.26f, -0.25f, -0.26f, 0.75f, 1.25f, 1.75f, 2.5f, 2.51f, 3.5f, 5.0f, -5.0f, -5.1f, -6.0f};
  std::copy(std::begin(in), std::end(in), values.begin() + 1);
  const std::vector<float> got = round_trip(TensorType::mxfp4, values);
  const std::vector<float> part(got.begin() + 1, got.begin() + 15);
  EXPECT_THAT(part, ::testing::ElementsAre(0, 0.5f, 0, -0.5f, 0.5f, 1, 1.5f, 2, 3, 3, 4, -4, -6, -6));
}

TEST(EncodeIq3S, KeepsEachGroupInItsPlaceBesideGroupsOfZeros) {
  std::vector<float> values = normal_floats(512, 4);
  std::fill(values.begin() + 32, values.begin() + 64, 0.0f);
  std::fill(values.begin() + 256, values.begin() + 480, 0.0f);
  EXPECT_LE(relative_rms(values, round_trip(TensorType::iq3_s, values)), rms_bound(TensorType::iq3_s));
}

TEST(EncodeTernary, IsExactForTernaryWeights) {
  std::vector<float> values(512);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.375f * static_cast<float>(static_cast<int>((7 * i + i / 3) % 3) - 1);
  for (const TensorType type : {TensorType::tq1_0, TensorType::tq2_0}) EXPECT_EQ(round_trip(type, values), values);
}

TEST(EncodeNvfp4, TakesAScaleForEachGroup) {
  // Peaks of 6 * 2^n make scales of 2^n: values 0 0.5 1 1.5 2 3 4 6 times that and their negatives.
  std::vector<float> values(64), want(64);
  for (size_t g = 0; g < 4; ++g) {
    const float unit = std::ldexp(1.0f, static_cast<int>(g) * 4 - 6);
    const float in[] = {6, 0.25f, 0.26f, -0.26f, 0.75f, 2.5f, 2.51f, 5, -5.1f},
                out[] = {6, 0, 0.5f, -0.5f, 0.5f, 2, 3, 4, -6};
    for (size_t j = 0; j < std::size(in); ++j) {
      values[16 * g + j] = unit * in[j];
      want[16 * g + j] = unit * out[j];
    }
  }
  EXPECT_EQ(round_trip(TensorType::nvfp4, values), want);
}

TEST(EncodeMxfp4, CoversTheWholeRangeOfExponents) {
  for (int exponent = -148; exponent <= 127; ++exponent) {
    const std::vector<float> values(32, std::ldexp(1.0f, exponent));
    const std::vector<float> got = round_trip(TensorType::mxfp4, values);
    // 2^-128 is the smallest scale: half of it is the smallest value, and 0 is nearer below a quarter.
    if (exponent >= -128) {
      ASSERT_EQ(got[0], values[0]) << exponent;
    }
    if (exponent < -129) {
      ASSERT_EQ(got[0], 0.0f) << exponent;
    }
  }
}

}  // namespace
}  // namespace moetier
