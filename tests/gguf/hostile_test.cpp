// Malformed files: each must give its own error, and none may crash, hang or read past the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/error.h"
#include "gguf/check.h"
#include "gguf/raw_gguf.h"
#include "gguf/reader.h"

namespace moetier {
namespace {

using test::raw;
using test::raw_string;
using test::RawGguf;
using ::testing::HasSubstr;

/// Parses from a heap block of exactly this size, so that an address sanitizer sees an over-read of one byte.
std::string parse_error(const std::string& bytes) {
  const std::vector<char> exact(bytes.begin(), bytes.end());
  return test::message_of<Error>([&] {
    const GgufFile file = GgufFile::parse({reinterpret_cast<const std::byte*>(exact.data()), exact.size()}, "bad.gguf");
    check_tensor_data(file);
  });
}

RawGguf good() {
  RawGguf g;
  g.kv("general.architecture", 8, raw_string("test")).kv_u32("n", 7).kv("on", 7, raw<uint8_t>(1));
  g.kv_array("list", 5, 2, raw(1) + raw(2)).kv_array("words", 8, 2, raw_string("a") + raw_string("bc"));
  g.kv_array("nested", 9, 1, raw<uint32_t>(6) + raw<uint64_t>(1) + raw(1.0f));
  g.tensor("t.a", {8}, 0, 0).tensor("t.b", {4, 2, 1}, 0, 32).bytes(64);
  return g;
}

TEST(HostileGguf, TheSampleItselfIsGood) {
  EXPECT_EQ(parse_error(good().build()), "");
}

TEST(HostileGguf, EveryPrefixIsRefused) {
  const std::string bytes = good().build();
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string error = parse_error(bytes.substr(0, n));
    ASSERT_NE(error, "") << "prefix of " << n << " bytes was accepted";
    ASSERT_THAT(error, HasSubstr("bad.gguf: ")) << n;
    ASSERT_THAT(error, HasSubstr(n > 0 ? " at byte " : "is empty")) << n;
  }
}

TEST(HostileGguf, NoChangedByteCrashes) {
  const std::string bytes = good().build();
  const size_t header = good().header().size();
  for (size_t i = 0; i < header; ++i) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(value);
      (void)parse_error(changed);  // anything but an Error ends the test
    }
  }
}

TEST(HostileGguf, NoRandomDamageCrashes) {
  std::mt19937 random(5);
  const std::string bytes = good().build();
  for (int round = 0; round < 3000; ++round) {
    std::string changed = bytes;
    for (int k = 0; k < 4; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    changed.resize(random() % (changed.size() + 1));
    (void)parse_error(changed);
  }
}

struct Case {
  const char* name;
  std::function<std::string()> bytes;
  std::vector<const char*> fragments;  ///< all must stand in the error
};

std::string with(const std::function<void(RawGguf&)>& change) {
  RawGguf g;
  change(g);
  return g.build();
}

constexpr uint64_t kHuge = ~uint64_t{0};

std::vector<Case> header_cases() {
  return {
      {"empty", [] { return std::string(); }, {"bad.gguf: the file is empty"}},
      {"magic",
       [] { return with([](RawGguf& g) { g.magic = "GGML"; }); },
       {"magic at byte 0 is \"GGML\"", "not a GGUF file"}},
      {"lfs",
       [] { return std::string("version https://git-lfs.github.com/spec/v1\noid sha256:"); },
       {"Git LFS pointer"}},
      {"version 0",
       [] { return with([](RawGguf& g) { g.version = 0; }); },
       {"version at byte 4 is 0", "only versions 2 and 3"}},
      {"version 1",
       [] { return with([](RawGguf& g) { g.version = 1; }); },
       {"version at byte 4 is 1", "convert the model again"}},
      {"version 4",
       [] { return with([](RawGguf& g) { g.version = 4; }); },
       {"version at byte 4 is 4", "only versions 2 and 3"}},
      {"big-endian",
       [] { return with([](RawGguf& g) { g.version = 0x03000000; }); },
       {"version at byte 4 is big-endian"}},
      {"tensor count",
       [] { return with([](RawGguf& g) { g.n_tensors = kHuge; }); },
       {"tensor count at byte 8 is 18446744073709551615", "at most 0"}},
      {"metadata count",
       [] { return with([](RawGguf& g) { g.kv_u32("a", 1).n_metadata = 5; }); },
       {"metadata count at byte 16 is 5", "at most 2"}},
  };
}

std::vector<Case> metadata_cases() {
  const auto kv = [](std::string_view key, uint32_t type, const std::string& value) {
    return [key = std::string(key), type, value] {
      return with([&](RawGguf& g) { g.kv(key, type, value).kv_u32("pad", 0); });
    };
  };
  const auto array = [kv](uint32_t type, uint64_t count, const std::string& elements = "") {
    return kv("k", 9, raw(type) + raw(count) + elements);
  };
  std::string deep = raw<uint32_t>(0) + raw<uint64_t>(0);
  for (int i = 0; i < 4; ++i) deep = raw<uint32_t>(9) + raw<uint64_t>(1) + deep;
  return {
      {"empty key", kv("", 4, raw(1u)), {"metadata record 0: key at byte 24 is empty"}},
      {"long key", kv(std::string(65536, 'k'), 4, raw(1u)), {"length of the key at byte 24 is 65536", "at most 65535"}},
      {"key length",
       [] {
         return with([](RawGguf& g) {
           g.kv_u32("abcdefg", 1);
           g.metadata.replace(0, 8, raw<uint64_t>(100));
         });
       },
       {"metadata record 0: key at byte 32 needs 100 bytes", "file ends after"}},
      {"key length overflow",
       [] {
         return with([](RawGguf& g) {
           g.kv_u32("abcdefg", 1);
           g.metadata.replace(0, 8, raw(kHuge));
         });
       },
       {"length of the key at byte 24 is 18446744073709551615"}},
      {"value type", kv("k", 13, raw(1u)), {"key \"k\": value type at byte 33 is 13, which is no value type"}},
      {"bool", kv("k", 7, raw<uint8_t>(2)), {"key \"k\": bool at byte 37 is 2, and only 0 and 1"}},
      {"string length", kv("k", 8, raw<uint64_t>(1 << 20)), {"key \"k\": string value at byte 45 needs 1048576 bytes"}},
      {"string overflow", kv("k", 8, raw(kHuge)), {"string value at byte 45 needs 18446744073709551615 bytes"}},
      {"element type", array(99, 1), {"key \"k\": element type at byte 37 is 99, which is no value type"}},
      {"u8 count", array(0, kHuge), {"element count at byte 41 is 18446744073709551615"}},
      {"f64 count", array(12, kHuge / 8 + 1), {"element count at byte 41 is 2305843009213693952"}},
      {"string count", array(8, 1 << 20), {"element count at byte 41 is 1048576", "can hold at most"}},
      {"array count", array(9, 1 << 20), {"element count at byte 41 is 1048576", "can hold at most"}},
      {"bool in array", array(7, 3, std::string("\0\1\3", 3)), {"bool at byte 51 is 3"}},
      {"string in array", array(8, 1, raw<uint64_t>(1000)), {"array string at byte 57 needs 1000 bytes"}},
      {"deep nesting", kv("k", 9, deep), {"array at byte 85 is nested deeper than 4"}},
      {"duplicate key",
       [] { return with([](RawGguf& g) { g.kv_u32("k", 1).kv_u32("j", 1).kv_u32("k", 2); }); },
       {"key \"k\": key at byte 58 is there twice, first at byte 24"}},
      {"control bytes in a key", kv("k\x1b[2J", 13, raw(1u)), {"key \"k\\x1b[2J\": value type"}},
      {"alignment 0", kv("general.alignment", 4, raw(0u)), {"alignment at byte 53 is 0 and must be a power of two"}},
      {"alignment 24", kv("general.alignment", 4, raw(24u)), {"alignment at byte 53 is 24 and must be a power of two"}},
      {"alignment type",
       kv("general.alignment", 10, raw<uint64_t>(32)),
       {"alignment at byte 53 has type u64 and must have type u32"}},
  };
}

std::vector<Case> tensor_cases() {
  const auto one = [](const std::vector<int64_t>& shape, int32_t type = 0, uint64_t offset = 0,
                      std::string name = "t") {
    return [=] { return with([&](RawGguf& g) { g.tensor(name, shape, type, offset).bytes(128); }); };
  };
  const auto two = [](uint64_t a, uint64_t b) {
    return [=] { return with([&](RawGguf& g) { g.tensor("a", {16}, 0, a).tensor("b", {8}, 0, b).bytes(128); }); };
  };
  std::vector<Case> cases{
      {"empty name", one({1}, 0, 0, ""), {"tensor record 0: name at byte 24 is empty"}},
      {"long name", one({1}, 0, 0, std::string(64, 'n')), {"length of the name at byte 24 is 64", "at most 63"}},
      {"no dimensions", one({}), {"tensor \"t\": dimension count at byte 33 is 0 and must be 1 to 4"}},
      {"five dimensions", one({1, 1, 1, 1, 1}), {"dimension count at byte 33 is 5 and must be 1 to 4"}},
      {"size 0", one({0}), {"dimension 0 at byte 37 is 0 and must be at least 1"}},
      {"negative size", one({4, -4}), {"dimension 1 at byte 45 is -4 and must be at least 1"}},
      {"element overflow",
       one({int64_t{1} << 32, int64_t{1} << 31}),
       {"dimension 1 at byte 45", "the number of elements overflows"}},
      {"byte overflow", one({int64_t{1} << 62}, 28), {"type at byte 45 is f64: the number of bytes overflows"}},
      {"unknown type", one({32}, 43), {"type at byte 45 is 43, which is not known"}},
      {"negative type", one({32}, -1), {"type at byte 45 is -1, which is not known"}},
      {"block length",
       one({48}, 2),
       {"type at byte 45 is q4_0, whose rows are multiples of 32, but dimension 0 is 48"}},
      {"misaligned", one({8}, 0, 16), {"offset at byte 49 is 16 and must be a multiple of the alignment 32"}},
      {"outside",
       one({8}, 0, 128),
       {"offset at byte 49 is 128: its 32 bytes would end beyond the 128 bytes of tensor data"}},
      {"far outside",
       one({8}, 0, kHuge - 31),
       {"offset at byte 49 is 18446744073709551584: its 32 bytes would end beyond"}},
      {"too long", one({33}), {"offset at byte 49 is 0: its 132 bytes would end beyond the 128"}},
      {"no data at all",
       [] {
         return with([](RawGguf& g) {
           g.tensor("t", {8}, 0, 0);
           g.alignment = 1;
         });
       },
       {"would end beyond the 0 bytes"}},
      {"overlap",
       two(0, 32),
       {"tensor \"b\": offset at byte 82 is 32: its data overlaps that of tensor \"a\", which ends at 64"}},
      {"overlap backwards",
       two(64, 64),
       {"tensor \"b\": offset at byte 82 is 64: its data overlaps that of tensor \"a\""}},
      {"inside", two(32, 64), {"its data overlaps that of tensor \"a\", which ends at 96"}},
      {"duplicate tensor",
       [] { return with([](RawGguf& g) { g.tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).bytes(64); }); },
       {"tensor \"t\": name at byte 57 is there twice, first at byte 24"}},
  };
  for (const int32_t retired : {4, 5, 31, 32, 33, 36, 37, 38}) {
    cases.push_back({"retired type", one({32}, retired), {"a retired one: convert the model again"}});
  }
  return cases;
}

std::vector<Case> data_cases() {
  const auto data = [](int32_t type, int64_t columns, const std::string& bytes) {
    return [=] { return with([&](RawGguf& g) { g.tensor("w", {columns}, type, 0).data = bytes; }); };
  };
  const std::string inf16 = "\x00\x7c", nan16 = "\x01\xfe", bf_nan = "\xc0\x7f";
  const auto f16_at = [](size_t size, size_t at) {
    std::string block(size, '\0');
    block[at + 1] = '\x7c';
    return block;
  };
  return {
      {"f32 NaN",
       data(0, 3, raw(1.0f) + raw(0.0f) + raw(std::nanf(""))),
       {"tensor \"w\" (f32): the weight of block 2 at byte 72 is not a finite number"}},
      {"f32 infinity", data(0, 1, raw<uint32_t>(0xff800000u)), {"(f32): the weight of block 0 at byte 64"}},
      {"f16 NaN", data(1, 2, std::string(2, '\0') + nan16), {"(f16): the weight of block 1 at byte 66"}},
      {"bf16 NaN", data(30, 1, bf_nan), {"(bf16): the weight of block 0"}},
      {"q4_0", data(2, 64, std::string(18, '\0') + f16_at(18, 0)), {"(q4_0): the scale of block 1 at byte 82"}},
      {"q4_1 scale", data(3, 32, f16_at(20, 0)), {"(q4_1): the scale of block 0"}},
      {"q4_1 minimum", data(3, 32, f16_at(20, 2)), {"(q4_1): the minimum of block 0 at byte 66"}},
      {"q5_0", data(6, 32, f16_at(22, 0)), {"(q5_0): the scale"}},
      {"q5_1 minimum", data(7, 32, f16_at(24, 2)), {"(q5_1): the minimum"}},
      {"q8_0", data(8, 32, f16_at(34, 0)), {"(q8_0): the scale"}},
      {"q4_k minimum", data(12, 256, f16_at(144, 2)), {"(q4_k): the minimum"}},
      {"q5_k", data(13, 256, f16_at(176, 0)), {"(q5_k): the scale"}},
      {"q6_k", data(14, 512, std::string(210, '\0') + f16_at(210, 208)), {"(q6_k): the scale of block 1 at byte 482"}},
      {"iq4_nl", data(20, 32, f16_at(18, 0)), {"(iq4_nl): the scale"}},
      {"mxfp4",
       data(39, 64, std::string(17, '\0') + "\xff" + std::string(16, '\0')),
       {"(mxfp4): the scale exponent of block 1 at byte 81"}},
      {"q2_k scale", data(10, 256, f16_at(84, 80)), {"(q2_k): the scale of block 0 at byte 144"}},
      {"q2_k minimum", data(10, 256, f16_at(84, 82)), {"(q2_k): the minimum of block 0 at byte 146"}},
      {"q3_k scale", data(11, 256, f16_at(110, 108)), {"(q3_k): the scale of block 0 at byte 172"}},
      {"iq2_xxs scale", data(16, 256, f16_at(66, 0)), {"(iq2_xxs): the scale of block 0 at byte 64"}},
      {"iq2_xs scale", data(17, 256, f16_at(74, 0)), {"(iq2_xs): the scale of block 0 at byte 64"}},
      {"iq3_xxs scale", data(18, 256, f16_at(98, 0)), {"(iq3_xxs): the scale of block 0 at byte 64"}},
      {"iq1_s scale", data(19, 256, f16_at(50, 0)), {"(iq1_s): the scale of block 0 at byte 64"}},
      {"iq3_s scale", data(21, 256, f16_at(110, 0)), {"(iq3_s): the scale of block 0 at byte 64"}},
      {"iq2_s scale", data(22, 256, f16_at(82, 0)), {"(iq2_s): the scale of block 0 at byte 64"}},
      {"iq4_xs scale", data(23, 256, f16_at(136, 0)), {"(iq4_xs): the scale of block 0 at byte 64"}},
      {"tq1_0 scale", data(34, 256, f16_at(54, 52)), {"(tq1_0): the scale of block 0 at byte 116"}},
      {"tq2_0 scale", data(35, 256, f16_at(66, 64)), {"(tq2_0): the scale of block 0 at byte 128"}},
      {"iq1_m", data(29, 256, std::string(52, '\0') + std::string("\0\xc0\0\x70", 4)), {"(iq1_m): the scale"}},
  };
}

void run(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const std::string error = parse_error(c.bytes());
    EXPECT_NE(error, "") << c.name << " was accepted";
    for (const char* fragment : c.fragments) EXPECT_THAT(error, HasSubstr(fragment)) << c.name;
  }
}

TEST(HostileGguf, Headers) {
  run(header_cases());
}
TEST(HostileGguf, Metadata) {
  run(metadata_cases());
}
TEST(HostileGguf, Tensors) {
  run(tensor_cases());
}
TEST(HostileGguf, TensorData) {
  run(data_cases());
}

TEST(HostileGguf, CodesThatLookLikeNanAreNoScales) {
  RawGguf g;
  g.tensor("w", {32}, 8, 0).data = raw<uint16_t>(0x3c00) + std::string(32, '\xff');
  EXPECT_EQ(parse_error(g.build()), "");
}

TEST(HostileGguf, OpeningDoesNotTouchTheData) {
  RawGguf g;
  g.tensor("w", {1}, 0, 0).data = raw<uint32_t>(0x7fc00000u);
  const std::string bytes = g.build();
  EXPECT_NO_THROW((void)GgufFile::parse(test::as_bytes(bytes), "nan"));
}

TEST(HostileGguf, AHeaderBeyondAllReasonIsRefused) {
  // A sparse file of 300 MiB whose only key claims a string of 290 MiB: refused without buying the memory.
  const test::TempDir dir;
  const std::string path = dir / "sparse.gguf";
  RawGguf g;
  g.kv("k", 8, raw<uint64_t>(uint64_t{290} << 20));
  test::write_bytes(path, g.build());
  std::filesystem::resize_file(path, uint64_t{300} << 20);
  const std::string error = test::message_of<Error>([&] { (void)GgufFile::open(path); });
  EXPECT_THAT(error, HasSubstr("lies beyond the first 268435456 bytes"));
}

TEST(HostileGguf, WhatIsNoFileIsRefused) {
  const test::TempDir dir;
  const auto open_error = [](const std::string& path) {
    return test::message_of<Error>([&] { (void)GgufFile::open(path); });
  };
  EXPECT_THAT(open_error(dir / "none.gguf"), HasSubstr("No such file"));
  EXPECT_THAT(open_error(dir / ""), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((dir / "pipe.gguf").c_str(), 0600), 0);
  EXPECT_THAT(open_error(dir / "pipe.gguf"), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace moetier
