// /metrics: every series that is promised, in a form that a strict reader takes, with numbers that are right.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "server/prometheus.h"
#include "server/serve_meters.h"
#include "server/served.h"
#include "server/serving.h"

namespace moetier {
namespace {

using namespace testing_support;

SchedulerOptions quiet() {
  SchedulerOptions o;
  o.parallel = 2;
  o.log_requests = false;
  return o;
}

ContextOptions two() {
  return small_context(TensorType::f16, 16, 2);
}

const std::map<std::string, std::string> kServer = {
    {"llamacpp:prompt_tokens_total", "counter"},    {"llamacpp:prompt_seconds_total", "counter"},
    {"llamacpp:tokens_predicted_total", "counter"}, {"llamacpp:tokens_predicted_seconds_total", "counter"},
    {"llamacpp:n_decode_total", "counter"},         {"llamacpp:n_tokens_max", "gauge"},
    {"llamacpp:n_busy_slots_per_decode", "gauge"},  {"llamacpp:prompt_tokens_seconds", "gauge"},
    {"llamacpp:predicted_tokens_seconds", "gauge"}, {"llamacpp:requests_processing", "gauge"},
    {"llamacpp:requests_deferred", "gauge"},
};

// As the reference gives them: name and type.
const std::map<std::string, std::string> kCache = {
    {"llamacpp:moe_cache_hits_total", "counter"},
    {"llamacpp:moe_cache_hits_profile_total", "counter"},
    {"llamacpp:moe_cache_misses_total", "counter"},
    {"llamacpp:moe_cache_upload_bytes_total", "counter"},
    {"llamacpp:moe_cache_cpu_bytes_total", "counter"},
    {"llamacpp:moe_cache_copies_total", "counter"},
    {"llamacpp:moe_cache_swaps_total", "counter"},
    {"llamacpp:moe_cache_hit_ratio", "gauge"},
    {"llamacpp:moe_cache_slots", "gauge"},
    {"llamacpp:moe_cache_prefilled", "gauge"},
    {"llamacpp:moe_cache_bytes", "gauge"},
    {"llamacpp:moe_cache_hybrid", "gauge"},
    {"llamacpp:moe_cache_layer_hits_total", "counter"},
    {"llamacpp:moe_cache_layer_hits_profile_total", "counter"},
    {"llamacpp:moe_cache_layer_misses_total", "counter"},
};

const std::map<std::string, std::string> kHttp = {
    {"moetier:http_connections", "gauge"},
    {"moetier:http_connections_refused_total", "counter"},
    {"moetier:http_requests_active", "gauge"},
    {"moetier:http_generating", "gauge"},
};

void expect_families(const PrometheusReader& metrics, const std::map<std::string, std::string>& wanted) {
  for (const auto& [name, type] : wanted) {
    ASSERT_TRUE(metrics.families.contains(name)) << name;
    EXPECT_EQ(metrics.families.at(name).type, type) << name;
  }
}

TEST(Metrics, TellWhatWasServed) {
  const auto engine = load_streaming("small-qwen3moe-q4_k_m", 400 << 10);
  Context context(*engine, two());
  Scheduler scheduler(context, quiet());
  PrometheusReader before(scheduler.metrics_text());
  expect_families(before, kServer);
  expect_families(before, kCache);
  Request r = request_of(some_tokens(*engine, 30, 1), 10);
  r.ignore_eog = true;
  const RequestResult a = scheduler.submit(r)->wait(), b = scheduler.submit(r)->wait();
  scheduler.stop();  // so that the numbers are the last
  const PrometheusReader after(scheduler.metrics_text());
  EXPECT_EQ(after.value("llamacpp:prompt_tokens_total"), static_cast<double>(a.computed_tokens + b.computed_tokens));
  EXPECT_EQ(after.value("moetier:cached_prompt_tokens_total"), 29);
  EXPECT_EQ(after.value("llamacpp:tokens_predicted_total"), 20);
  EXPECT_EQ(after.value("llamacpp:requests_processing"), 0);
  EXPECT_EQ(after.value("moetier:requests_total", "{finish=\"length\"}"), 2);
  EXPECT_EQ(after.value("moetier:request_seconds", "_count"), 2);
  EXPECT_EQ(after.value("moetier:token_gap_seconds", "_count"), 18);
  const double hits = after.value("llamacpp:moe_cache_hits_total"),
               misses = after.value("llamacpp:moe_cache_misses_total");
  EXPECT_EQ(hits, static_cast<double>(a.hits + b.hits));
  EXPECT_EQ(misses, static_cast<double>(a.misses + b.misses));
  EXPECT_GT(misses, 0);
  EXPECT_DOUBLE_EQ(after.value("llamacpp:moe_cache_hit_ratio"), hits / (hits + misses));
  double layers = 0;
  for (const auto& [labels, value] : after.families.at("llamacpp:moe_cache_layer_misses_total").samples)
    layers += value;
  EXPECT_EQ(layers, misses);
  EXPECT_EQ(after.families.at("llamacpp:moe_cache_layer_hits_total").samples.size(),
            engine->store()->map().layers.size());
  EXPECT_GT(after.value("llamacpp:moe_cache_slots"), 0);
  EXPECT_LE(after.value("llamacpp:moe_cache_bytes"), 400 << 10);
  EXPECT_GT(after.value("moetier:tier_read_bytes_total", "{tier=\"host\"}"), 0);
  for (const auto& [name, family] : before.families) {
    if (family.type != "counter") continue;
    for (const auto& [labels, value] : family.samples) EXPECT_GE(after.value(name, labels), value) << name << labels;
  }
}

/// /metrics as a server sends it: the scheduler's series and those of HTTP.
std::string served_metrics(Engine& engine, Scheduler& scheduler) {
  server::ServedModel model(engine, "small", server::kTestTemplate);
  server::HttpOptions http;
  http.port = 0;
  server::ApiServer api(model, scheduler, {}, http);
  api.start();
  const server::Reply reply = server::get(api.port(), "/metrics");
  api.stop();
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.body;
}

TEST(Metrics, AreAllInTheDocumentation) {
  const std::string docs = read_file(MOETIER_SOURCE_DIR "/docs/server.md");
  const auto engine = load_streaming("small-qwen3moe-q4_k_m", 400 << 10);
  Context context(*engine, two());
  Scheduler scheduler(context, quiet());
  const PrometheusReader metrics(served_metrics(*engine, scheduler));
  expect_families(metrics, kServer);
  expect_families(metrics, kHttp);
  for (const auto& [name, family] : metrics.families) {
    EXPECT_THAT(docs, testing::HasSubstr("`" + name + "`"));
  }
}

TEST(Metrics, OfNoCacheAreAbsent) {
  const auto engine = load("mini-qwen3moe-q8_0");
  Context context(*engine, two());
  Scheduler scheduler(context, quiet());
  const PrometheusReader metrics(scheduler.metrics_text());
  expect_families(metrics, kServer);
  for (const auto& [name, type] : kCache) EXPECT_FALSE(metrics.families.contains(name)) << name;
  const auto dense = load("mini-qwen3-f32");
  Context plain(*dense, two());
  Scheduler other(plain, quiet());
  expect_families(PrometheusReader(other.metrics_text()), kServer);
}

TEST(Metrics, PromtoolTakesThem) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "promtool (Debian: prometheus) is not here";
  const auto engine = load_streaming("small-qwen3moe-q4_k_m", 400 << 10);
  Context context(*engine, two());
  Scheduler scheduler(context, quiet());
  scheduler.submit(request_of(some_tokens(*engine, 30, 1), 10))->wait();
  const std::string dir = test_dir("promtool"), file = dir + "/metrics", said = dir + "/said";
  std::ofstream(file) << served_metrics(*engine, scheduler);
  // Exit 1: it cannot be parsed. 3: it can, but the linter has wishes; the only one may be about colons, which the
  // reference's names have.
  const int status = std::system(fmt::format("promtool check metrics < {} > {} 2>&1", file, said).c_str());
  std::ifstream lines(said);
  for (std::string line; std::getline(lines, line);) EXPECT_THAT(line, testing::HasSubstr("should not contain ':'"));
  EXPECT_THAT(WEXITSTATUS(status), testing::AnyOf(0, 3));
  std::filesystem::remove_all(dir);
}

TEST(Metrics, TextIsEscaped) {
  MetricsText out;
  out.family("a", MetricsText::Type::gauge, "two\nlines \\ \"x\"");
  out.sample(1.5, {{"l", "q\"b\\n\n"}});
  const std::string text = out.take();
  EXPECT_EQ(text, "# HELP a two\\nlines \\\\ \"x\"\n# TYPE a gauge\na{l=\"q\\\"b\\\\n\\n\"} 1.5\n");
  const PrometheusReader parsed(text);
  EXPECT_EQ(parsed.value("a", "{l=\"q\\\"b\\\\n\\n\"}"), 1.5);
}

TEST(Metrics, TheReaderIsStrict) {
  for (const char* text :
       {"a 1\n", "# HELP a x\n# TYPE a gauge\na 1", "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a x\n# TYPE a gauge\na x\n", "# HELP a x\n# TYPE a gauge\na{b=\"c} 1\n",
        "# HELP a x\n# TYPE a counter\na 1\n", "# HELP a_total x\n# TYPE a_total counter\na_total -1\n",
        "# TYPE a gauge\na 1\n", "# HELP a x\n# TYPE a gauge\n",
        "# HELP a x\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n"}) {
    EXPECT_THROW(PrometheusReader{text}, std::exception) << text;
  }
}

TEST(Metrics, TheLineOfARequest) {
  RequestResult r;
  r.hits = 931;
  r.misses = 69;
  r.hits_profile = 12;
  r.bytes_read = uint64_t{3} << 30;
  r.total_seconds = 5;
  r.queue_seconds = 2;
  EXPECT_EQ(hits_line(r), "MoE cache hits = 93.1 % (931 hit, 12 from the profile, 69 read: 3072.0 MiB, 1.00 GiB/s)");
}

}  // namespace
}  // namespace moetier
