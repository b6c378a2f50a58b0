// What bound a run, and what would help: a table of cases.
#include "engine/account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetier {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

/// 100 tokens in 10 s that waited for a busy drive, with a cache of a quarter of the bank and memory to spare.
AccountInput streaming() {
  AccountInput in;
  in.mode = ExpertMode::stream;
  in.dense = DensePolicy::anon;
  in.cached = true;
  in.tokens = 100;
  in.wall = 10;
  in.read_wait = 6;
  in.compute = 3.5;
  in.bytes_read = 19 * kGiB;
  in.hit_share = 0.771;
  in.budget = 4 * kGiB;
  in.bank = 16 * kGiB;
  in.available = 6 * kGiB;
  in.floor = 1 * kGiB;
  in.drive_rate = 2.0 * static_cast<double>(kGiB);
  in.threads = in.cpus = 8;
  in.other_cpu_share = 0.02;
  in.swapped_in = 0;
  return in;
}

AccountInput mapped() {
  AccountInput in = streaming();
  in.mode = ExpertMode::mmap;
  in.dense = DensePolicy::mmap;
  in.cached = false;
  in.read_wait = 0;
  in.compute = 9.5;
  in.bytes_read = 0;
  in.device_bytes = 20 * kGiB;
  in.hit_share.reset();
  in.budget = 0;
  in.major_faults = 100000;
  return in;
}

struct Case {
  const char* name;
  AccountInput input;
  Bound bound;
  const char* help;  // a part of it; "" = there is none
};

template <typename Change>
AccountInput with(AccountInput in, Change change) {
  change(in);
  return in;
}

std::vector<Case> cases() {
  return {
      {"a larger cache where there is memory", streaming(), Bound::drive, "--cache-mb 9216)"},
      {"no memory for it", with(streaming(), [](auto& in) { in.available = in.floor; }), Bound::memory, ""},
      {"the cache holds the whole bank", with(streaming(), [](auto& in) { in.budget = in.bank; }), Bound::drive, ""},
      {"no cache",
       with(streaming(),
            [](auto& in) {
              in.cached = false;
              in.budget = 0;
            }),
       Bound::drive, "--cache-mb auto"},
      {"a small cache that needs little",
       with(streaming(),
            [](auto& in) {
              in.budget = 10 * kMiB;
              in.bank = 20 * kMiB;
            }),
       Bound::drive, "--cache-mb auto"},
      {"a drive that rests and no overlap",
       with(streaming(),
            [](auto& in) {
              in.available = 0;
              in.bytes_read = 5 * kGiB;
              in.overlap = false;
            }),
       Bound::memory, "--overlap"},
      {"a drive that rests",
       with(streaming(),
            [](auto& in) {
              in.available = 0;
              in.bytes_read = 5 * kGiB;
            }),
       Bound::memory, "--prefetch 1"},
      {"memory unknown", with(streaming(), [](auto& in) { in.available.reset(); }), Bound::drive, ""},
      {"mapped and faulting", mapped(), Bound::faults, "--experts stream"},
      {"advised and faulting", with(mapped(), [](auto& in) { in.mode = ExpertMode::advise; }), Bound::faults,
       "--experts stream"},
      {"streaming with dense weights that fault",
       with(streaming(),
            [](auto& in) {
              in.read_wait = 1;
              in.dense = DensePolicy::mmap;
              in.major_faults = 5000;
            }),
       Bound::faults, "--dense-weights anon"},
      {"a dense model that faults", with(mapped(), [](auto& in) { in.has_experts = false; }), Bound::faults,
       "--dense-weights anon"},
      {"few faults", with(mapped(), [](auto& in) { in.major_faults = 1900; }), Bound::compute, ""},
      {"swapping with a cache", with(streaming(), [](auto& in) { in.swapped_in = 100 * kMiB; }), Bound::swap,
       "--cache-mb below 4096"},
      {"swapping while resident",
       with(mapped(),
            [](auto& in) {
              in.mode = ExpertMode::resident;
              in.swapped_in = 100 * kMiB;
            }),
       Bound::swap, "--experts stream"},
      {"a little swap is someone else's", with(streaming(), [](auto& in) { in.swapped_in = 10 * kMiB; }), Bound::drive,
       "--cache-mb"},
      {"swap not known", with(streaming(), [](auto& in) { in.swapped_in.reset(); }), Bound::drive, "--cache-mb"},
      {"computing on too few threads",
       with(streaming(),
            [](auto& in) {
              in.read_wait = 0.5;
              in.compute = 9;
              in.threads = 2;
            }),
       Bound::compute, "--threads 8"},
      {"computing beside others",
       with(streaming(),
            [](auto& in) {
              in.read_wait = 0.5;
              in.other_cpu_share = 0.5;
            }),
       Bound::compute, "other processes took 50 %"},
      {"computing and nothing else", with(streaming(), [](auto& in) { in.read_wait = 0.5; }), Bound::compute, ""},
      {"nothing was done", with(streaming(), [](auto& in) { in.tokens = 0; }), Bound::nothing, ""},
  };
}

TEST(Account, NamesTheBoundAndTheFlag) {
  for (const Case& c : cases()) {
    const Account got = judge(c.input);
    EXPECT_EQ(to_string(got.bound), to_string(c.bound)) << c.name;
    if (*c.help == '\0') {
      EXPECT_EQ(got.help, "") << c.name;
    } else {
      EXPECT_THAT(got.help, HasSubstr(c.help)) << c.name;
    }
    const std::string line = account(c.input);
    EXPECT_THAT(line, HasSubstr(std::string("bound by ") + std::string(to_string(c.bound)))) << c.name;
    EXPECT_EQ(line.find('\n'), std::string::npos) << c.name;
  }
}

TEST(Account, TellsBytesHitsAndRates) {
  EXPECT_EQ(account(streaming()),
            "bound by drive: 60 % of the time was spent waiting for reads; 195 MiB read per token at 77.1 % hits, 1.90 "
            "GiB/s of 2.00 GiB/s possible; a larger cache (--cache-mb 9216) would help most");
  EXPECT_THAT(account(mapped()), HasSubstr("1000 major faults per token; 205 MiB read per token, 2.00 GiB/s of"));
  AccountInput unknown = mapped();
  unknown.device_bytes.reset();
  EXPECT_THAT(account(unknown), Not(HasSubstr("read per token"))) << "what is not known is not told";
  AccountInput unmeasured = streaming();
  unmeasured.drive_rate = 0;
  EXPECT_THAT(account(unmeasured), Not(HasSubstr("possible")));
}

}  // namespace
}  // namespace moetier
