// Requests, and what they give when nobody else is served.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/fixtures.h"
#include "engine/generate.h"
#include "server/scheduler.h"

namespace moetier::testing_support {

inline std::string test_dir(const std::string& name) {
  const std::string path = testing::TempDir() + "serve_" + name + "_" + std::to_string(::getpid());
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

inline std::unique_ptr<Engine> load_streaming(const std::string& name, uint64_t cache_bytes, int threads = 1) {
  EngineOptions options;
  options.cpu.threads = threads;
  options.residency.mode = ExpertMode::stream;
  options.residency.cache_bytes = cache_bytes;
  return Engine::load(model_path(name), options);
}

inline Request request_of(std::vector<TokenId> prompt, int64_t max_tokens, float temperature = 0, uint64_t seed = 0) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampler.temperature = temperature;
  r.sampler.seed = seed;
  return r;
}

/// Allows everything, slowly, so that a request keeps its slot for a while.
class SlowConstraint : public TokenConstraint {
 public:
  explicit SlowConstraint(std::chrono::milliseconds each) : each_(each) {}
  void mask(std::span<float>) override {}
  void accept(TokenId) override { std::this_thread::sleep_for(each_); }
  bool complete() const override { return true; }
  bool finished() const override { return false; }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<SlowConstraint>(each_); }

 private:
  std::chrono::milliseconds each_;
};

/// What generate() makes of a request on a context of its own.
inline GenerateResult alone(Engine& engine, const ContextOptions& options, const Request& r) {
  ContextOptions own = options;
  own.sequences = 1;
  Context context(engine, own);
  SequenceState sequence = context.new_sequence();
  std::vector<TokenId> held;
  GenerateOptions o;
  o.max_tokens = r.max_tokens;
  o.sampler = r.sampler;
  o.stop = r.stop;
  o.ignore_eog = r.ignore_eog;
  o.special = r.special;
  return generate(context, sequence, held, r.prompt, o);
}

inline Finish finish_of(StopReason reason) {
  switch (reason) {
    case StopReason::end_of_generation:
      return Finish::end_of_generation;
    case StopReason::length:
      return Finish::length;
    case StopReason::stop_text:
      return Finish::stop_text;
    case StopReason::context_full:
      return Finish::context_full;
    case StopReason::cancelled:
      return Finish::cancelled;
  }
  return Finish::failed;
}

/// Everything a stream gives until it ends.
struct Received {
  std::string text;
  std::vector<TokenOut> tokens;
  RequestResult result;
  std::string error;
  int progress = 0;
};
inline Received receive(Stream& stream) {
  Received all;
  while (!stream.ended()) {
    const auto event = stream.next(std::chrono::seconds(20));
    if (!event) {
      ADD_FAILURE() << "nothing came for 20 s";
      return all;
    }
    all.text += event->text;
    all.tokens.insert(all.tokens.end(), event->tokens.begin(), event->tokens.end());
    if (event->kind == StreamEvent::Kind::progress) ++all.progress;
    if (event->kind == StreamEvent::Kind::error) all.error = event->message;
    if (event->result != nullptr) all.result = *event->result;
  }
  return all;
}

inline std::vector<TokenId> ids_of(const std::vector<TokenOut>& tokens) {
  std::vector<TokenId> ids;
  for (const TokenOut& t : tokens) ids.push_back(t.token);
  return ids;
}

}  // namespace moetier::testing_support
