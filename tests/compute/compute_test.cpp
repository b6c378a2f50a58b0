// Memory, names and options of the CPU backend.
#include "base/error.h"
#include "base/thread_pool.h"
#include "compute_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

TEST(CpuCompute, ParsesInstructionSets) {
  EXPECT_EQ(parse_isa("auto"), Isa::automatic);
  EXPECT_EQ(parse_isa("portable"), Isa::portable);
  EXPECT_EQ(parse_isa("Portable"), Isa::portable);
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::neon}) {
    const std::string name(isa_name(isa));
    if (isa_available(isa)) {
      EXPECT_EQ(parse_isa(name), isa);
      continue;
    }
    try {
      parse_isa(name);
      FAIL() << name << " cannot run here, and was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(e.what()).find("cannot run the " + name), std::string::npos) << e.what();
    }
    EXPECT_THROW(resolve_isa(isa), Error);
  }
  EXPECT_EQ(resolve_isa(Isa::automatic), available_isas().back());
  for (const char* wrong : {"", "avx", "avx2 ", "sse"}) {
    try {
      parse_isa(wrong);
      FAIL() << "'" << wrong << "' was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
    }
  }
}

TEST(CpuCompute, SaysWhatItIs) {
  EXPECT_EQ(make_cpu_compute({1, Isa::portable})->name(), "cpu (portable, 1 thread)");
  EXPECT_EQ(make_cpu_compute({3, Isa::portable})->name(), "cpu (portable, 3 threads)");
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(make_cpu_compute({2, isa})->name(), "cpu (" + std::string(isa_name(isa)) + ", 2 threads)");
  }
  const std::string automatic = make_cpu_compute({})->name();
  EXPECT_NE(automatic.find(std::to_string(available_cpus())), std::string::npos) << automatic;
  EXPECT_THROW(make_cpu_compute({-1, Isa::portable}), Error);
}

TEST(CpuCompute, MemoryIsZeroedAlignedAndReservedOnly) {
  Rig rig;
  const size_t large = size_t{1} << 34;  // 16 GiB, of which two bytes are looked at
  const auto buffer = rig->allocate(large);
  EXPECT_EQ(buffer->bytes(), large);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->host()) % 64, 0u);
  EXPECT_EQ(buffer->host()[0], std::byte{0});
  EXPECT_EQ(buffer->host()[large - 1], std::byte{0});
  EXPECT_EQ(rig->allocate(0)->bytes(), 0u);
  EXPECT_THROW(rig->allocate(SIZE_MAX / 2), Error);
}

TEST(CpuCompute, UploadAndDownloadWalkViews) {
  Rig rig;
  Floats all(6 * 4);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  const Tensor t = rig.floats({6, 4, 1, 1}, all);
  const Tensor view = t.slice_rows(1, 2).slice_columns(2, 3);
  EXPECT_EQ(rig.read(view), (Floats{8, 9, 10, 14, 15, 16}));
  const Floats fresh = {-1, -2, -3, -4, -5, -6};
  rig->upload(view, fresh.data());
  Floats want = all;
  for (size_t i = 0; i < 3; ++i) want[8 + i] = fresh[i], want[14 + i] = fresh[3 + i];
  EXPECT_EQ(rig.read(t), want);
}

TEST(CpuCompute, WrappedMemoryIsReadOnly) {
  Rig rig;
  const Floats mine = {1, 2, 3, 4};
  const auto buffer = rig->wrap(mine.data(), mine.size() * sizeof(float));
  const Tensor t = Tensor::packed(buffer.get(), 0, TensorType::f32, {4, 1, 1, 1});
  EXPECT_EQ(rig.read(t), mine);
  const Tensor out = rig.floats({4, 1, 1, 1});
  rig->add(t, t, out);
  EXPECT_EQ(rig.read(out), (Floats{2, 4, 6, 8}));
  EXPECT_THROW(rig->add(out, out, t), Error);
  EXPECT_THROW(rig->upload(t, mine.data()), Error);
  const Tensor skewed = Tensor::packed(buffer.get(), 2, TensorType::f32, {2, 1, 1, 1});
  EXPECT_THROW(rig->add(skewed, skewed, rig.floats({2, 1, 1, 1})), Error);
  const Tensor past = Tensor::packed(buffer.get(), 8, TensorType::f32, {3, 1, 1, 1});
  EXPECT_THROW(rig.read(past), Error);
}

TEST(CpuCompute, NoRowsIsNoWork) {
  Rig rig(Isa::automatic, 2);
  const Tensor x = rig.floats({8, 1, 1, 1}).head_rows(0), w = rig.floats({8, 1, 1, 1});
  rig->rms_norm(x, w, 1e-6f, x);
  rig->add(x, x, x);
  rig->glu(Activation::silu, x, x, x);
  EXPECT_EQ(rig.read(x).size(), 0u);
}

}  // namespace
}  // namespace moetier
