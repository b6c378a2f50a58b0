// What breaks while it is served: the requests end with an error, the process and its other requests live on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "server/serving.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using namespace testing_support;
using testing::HasSubstr;
namespace fs = std::filesystem;

SchedulerOptions quiet(int parallel) {
  SchedulerOptions o;
  o.parallel = parallel;
  o.log_requests = false;
  o.stream_events = 100000;
  return o;
}

class BrokenModel : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    path = testing::TempDir() + "served_" + std::to_string(::getpid()) + ".gguf";
    fs::copy_file(model_path("small-qwen3moe-q4_k_m"), path, fs::copy_options::overwrite_existing);
    EngineOptions options;
    options.cpu.threads = 2;
    options.residency.mode = GetParam() ? ExpertMode::stream : ExpertMode::mmap;
    options.residency.dense = DensePolicy::mmap;
    if (GetParam()) options.residency.cache_bytes = 0;  // every expert is read anew
    engine = Engine::load(path, options);
  }
  void TearDown() override {
    engine.reset();
    fs::remove(path);
  }
  std::string path;
  std::unique_ptr<Engine> engine;
};

TEST_P(BrokenModel, EndsItsRequestsWithAnErrorThatNamesTheFile) {
  ContextOptions options = small_context(TensorType::f16, 32, 2);
  options.context = 4096;
  Context context(*engine, options);
  Scheduler scheduler(context, quiet(2));
  Request endless = request_of(some_tokens(*engine, 10, 1), 4000);
  endless.ignore_eog = true;
  Request other = endless;
  other.prompt = some_tokens(*engine, 12, 2);
  const auto first = scheduler.submit(endless), second = scheduler.submit(other);
  while (first->next(std::chrono::seconds(20))->kind != StreamEvent::Kind::text) {
  }
  fs::resize_file(path, 0);
  for (const auto& stream : {first, second}) {
    const Received got = receive(*stream);
    EXPECT_EQ(got.result.finish, Finish::failed);
    EXPECT_THAT(got.error, HasSubstr(path));
  }
  // The next is told, too, and nothing hangs.
  EXPECT_THAT(error_of([&] { scheduler.submit(endless)->wait(); }), HasSubstr(path));
  EXPECT_EQ(scheduler.busy_slots(), 0);
  EXPECT_THAT(scheduler.metrics_text(), HasSubstr("moetier:requests_total{finish=\"failed\"} 3\n"));
}

INSTANTIATE_TEST_SUITE_P(Modes, BrokenModel, testing::Bool(),
                         [](const auto& mode) { return std::string(mode.param ? "streamed" : "mapped"); });

/// Fails for one answer only.
class Failing : public TokenConstraint {
 public:
  void mask(std::span<float>) override {
    if (++calls_ == 4) fail("the constraint broke");
  }
  void accept(TokenId) override {}
  bool complete() const override { return false; }
  bool finished() const override { return false; }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<Failing>(*this); }

 private:
  int calls_ = 0;
};

TEST(Faults, OfOneRequestAreItsOwn) {
  const auto engine = load("mini-qwen3moe-q8_0");
  Context context(*engine, small_context(TensorType::f16, 32, 2));
  Scheduler scheduler(context, quiet(2));
  Request good = request_of(some_tokens(*engine, 10, 1), 30), bad = good;
  good.ignore_eog = bad.ignore_eog = true;
  bad.constraint = std::make_shared<Failing>();
  const auto a = scheduler.submit(bad), b = scheduler.submit(good);
  const Received failed = receive(*a), whole = receive(*b);
  EXPECT_THAT(failed.error, HasSubstr("the constraint broke"));
  EXPECT_EQ(failed.result.sampled_tokens, 3);
  EXPECT_EQ(whole.result.finish, Finish::length);
  EXPECT_EQ(whole.result.tokens, alone(*engine, small_context(TensorType::f16, 32, 1), good).tokens);
  EXPECT_EQ(scheduler.submit(good)->wait().tokens, whole.result.tokens);
}

}  // namespace
}  // namespace moetier
