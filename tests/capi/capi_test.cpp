#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "moetier/moetier.h"

namespace {

const std::string kModel = std::string(MOETIER_TEST_DATA) + "/models/mini-qwen3moe-q8_0.gguf";

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    moetier_model_options options;
    moetier_model_options_init(&options, sizeof options);
    options.threads = 2;
    ASSERT_EQ(moetier_model_open(kModel.c_str(), &options, &model), MOETIER_OK) << moetier_last_error();
    moetier_context_options wanted;
    moetier_context_options_init(&wanted, sizeof wanted);
    wanted.context = 256;
    wanted.sequences = 2;
    ASSERT_EQ(moetier_context_new(model, &wanted, &context), MOETIER_OK) << moetier_last_error();
    ASSERT_EQ(moetier_sequence_new(context, &sequence), MOETIER_OK) << moetier_last_error();
  }
  void TearDown() override {
    moetier_sequence_free(sequence);
    moetier_context_free(context);
    moetier_model_free(model);
  }

  std::vector<int32_t> tokenize(const std::string& text) {
    size_t count = 0;
    EXPECT_EQ(moetier_tokenize(model, text.data(), text.size(), 1, 0, nullptr, 0, &count), MOETIER_TOO_SMALL);
    std::vector<int32_t> tokens(count);
    EXPECT_EQ(moetier_tokenize(model, text.data(), text.size(), 1, 0, tokens.data(), count, &count), MOETIER_OK);
    return tokens;
  }
  /// Appends tokens to a sequence; the logits after the last.
  std::vector<float> feed(moetier_sequence* to, const std::vector<int32_t>& tokens) {
    std::vector<moetier_row> rows;
    for (const int32_t t : tokens) rows.push_back({to, t, 0});
    rows.back().want_logits = 1;
    EXPECT_EQ(moetier_decode(context, rows.data(), rows.size()), MOETIER_OK) << moetier_last_error();
    EXPECT_EQ(moetier_logits_count(context), 1u);
    const float* logits = moetier_logits(context, 0);
    return {logits, logits + moetier_model_vocab_size(model)};
  }

  moetier_model* model = nullptr;
  moetier_context* context = nullptr;
  moetier_sequence* sequence = nullptr;
};

TEST_F(CApi, TellsVersionAndModel) {
  EXPECT_EQ(moetier_api_version(), MOETIER_API_VERSION);
  EXPECT_STREQ(moetier_version(), MOETIER_VERSION);
  EXPECT_STREQ(moetier_model_architecture(model), "qwen3moe");
  EXPECT_STRNE(moetier_model_name(model), "");
  EXPECT_GT(moetier_model_vocab_size(model), 100);
  EXPECT_EQ(moetier_model_context_length(model), 4096);
  EXPECT_GT(moetier_model_layers(model), 0);
  EXPECT_GT(moetier_model_experts(model), moetier_model_top_k(model));
  EXPECT_GT(moetier_model_dense_bytes(model), 0u);
  EXPECT_GT(moetier_model_expert_bytes(model), 0u);
  EXPECT_STRNE(moetier_model_chat_template(model), "");
  EXPECT_EQ(moetier_model_has_vocab(model), 1);
  EXPECT_EQ(moetier_token_is_end(model, moetier_token_eos(model)), 1);
  EXPECT_EQ(moetier_token_is_end(model, -1), 0);
  EXPECT_EQ(moetier_token_is_end(model, INT32_MAX), 0);
  EXPECT_EQ(moetier_context_length(context), 256);
}

TEST_F(CApi, ACancelledContextComputesNothingUntilItIsTakenBack) {
  const std::vector<int32_t> tokens = tokenize("The river ran");
  const std::vector<float> before = feed(sequence, tokens);
  ASSERT_EQ(moetier_context_cancel(context, 1), MOETIER_OK);
  const moetier_row row{sequence, tokens[0], 1};
  EXPECT_EQ(moetier_decode(context, &row, 1), MOETIER_CANCELLED);
  EXPECT_NE(std::string(moetier_last_error()).find("interrupted"), std::string::npos);
  EXPECT_EQ(moetier_sequence_length(sequence), static_cast<int64_t>(tokens.size()));
  ASSERT_EQ(moetier_context_cancel(context, 0), MOETIER_OK);
  moetier_sequence* other = nullptr;
  ASSERT_EQ(moetier_sequence_new(context, &other), MOETIER_OK);
  EXPECT_EQ(feed(other, tokens), before);
  moetier_sequence_free(other);
  EXPECT_EQ(moetier_context_cancel(nullptr, 1), MOETIER_INVALID);
}

TEST_F(CApi, AnotherThreadCancelsABatch) {
  // 2000 positions of attention take far more than 2 ms.
  moetier_context_options wanted;
  moetier_context_options_init(&wanted, sizeof wanted);
  wanted.context = 2048;
  moetier_context* longer = nullptr;
  ASSERT_EQ(moetier_context_new(model, &wanted, &longer), MOETIER_OK) << moetier_last_error();
  moetier_sequence* a = nullptr;
  ASSERT_EQ(moetier_sequence_new(longer, &a), MOETIER_OK);
  const std::vector<moetier_row> rows(2000, moetier_row{a, tokenize("river")[0], 0});
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    moetier_context_cancel(longer, 1);
  });
  const moetier_status status = moetier_decode(longer, rows.data(), rows.size());
  other.join();
  EXPECT_EQ(status, MOETIER_CANCELLED);
  EXPECT_EQ(moetier_sequence_length(a), 0) << "the batch left nothing behind";
  moetier_sequence_free(a);
  moetier_context_free(longer);
}

TEST_F(CApi, AFileCutShortIsAnErrorAndNotTheEnd) {
  const std::string path = testing::TempDir() + "capi_cut_" + std::to_string(getpid()) + ".gguf";
  std::filesystem::copy_file(kModel, path, std::filesystem::copy_options::overwrite_existing);
  moetier_model* cut = nullptr;
  moetier_context* c = nullptr;
  moetier_sequence* s = nullptr;
  moetier_model_options mapped;
  moetier_model_options_init(&mapped, sizeof mapped);
  mapped.experts = mapped.dense_weights = "mmap";  // elsewhere the file is not needed any more
  ASSERT_EQ(moetier_model_open(path.c_str(), &mapped, &cut), MOETIER_OK) << moetier_last_error();
  ASSERT_EQ(moetier_context_new(cut, nullptr, &c), MOETIER_OK) << moetier_last_error();
  ASSERT_EQ(moetier_sequence_new(c, &s), MOETIER_OK);
  const moetier_row row{s, 1, 1};
  EXPECT_EQ(moetier_decode(c, &row, 1), MOETIER_OK) << moetier_last_error();
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(moetier_decode(c, &row, 1), MOETIER_FAILED);
  EXPECT_THAT(moetier_last_error(), testing::HasSubstr(path + " was cut short or could not be read"));
  EXPECT_EQ(moetier_sequence_length(s), 1);
  EXPECT_EQ(moetier_logits_count(c), 0u);
  moetier_sequence_free(s);
  moetier_context_free(c);
  moetier_model_free(cut);
  std::filesystem::remove(path);
}

TEST_F(CApi, LeavesSigbusAloneIfToldTo) {
  const auto handler = [] {
    struct sigaction now {};
    EXPECT_EQ(sigaction(SIGBUS, nullptr, &now), 0);
    return now.sa_sigaction;
  };
  const auto with_model = handler();
  TearDown();
  const auto before = handler();
  EXPECT_NE(with_model, before);
  context = nullptr, sequence = nullptr;
  moetier_model_options options;
  moetier_model_options_init(&options, sizeof options);
  EXPECT_EQ(options.handle_sigbus, 1);
  options.handle_sigbus = 0;
  ASSERT_EQ(moetier_model_open(kModel.c_str(), &options, &model), MOETIER_OK) << moetier_last_error();
  EXPECT_EQ(handler(), before);
}

TEST_F(CApi, TextGoesThereAndBack) {
  const std::string text = "Once upon a time";
  const std::vector<int32_t> tokens = tokenize(text);
  ASSERT_GT(tokens.size(), 2u);
  char out[64];
  size_t size = 0;
  EXPECT_EQ(moetier_detokenize(model, tokens.data(), tokens.size(), 0, out, text.size(), &size), MOETIER_TOO_SMALL);
  EXPECT_EQ(size, text.size());
  EXPECT_EQ(moetier_detokenize(model, tokens.data(), tokens.size(), 0, out, text.size() + 1, &size), MOETIER_OK);
  EXPECT_EQ(out, text);
  EXPECT_EQ(moetier_detokenize(model, nullptr, 0, 0, out, 1, &size), MOETIER_OK);
  EXPECT_STREQ(out, "");
  const int32_t outside = moetier_model_vocab_size(model);
  EXPECT_EQ(moetier_detokenize(model, &outside, 1, 0, out, sizeof out, &size), MOETIER_FAILED);
  size_t count = 7;
  EXPECT_EQ(moetier_tokenize(model, nullptr, 0, 0, 0, nullptr, 0, &count), MOETIER_OK);
  EXPECT_EQ(count, 0u);
}

TEST_F(CApi, StreamsWholeCharacters) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC b";  // é and €: their bytes are several tokens in a small vocabulary
  moetier_stream* stream = nullptr;
  ASSERT_EQ(moetier_stream_new(model, 0, &stream), MOETIER_OK);
  for (int round = 0; round < 2; ++round) {  // finish() makes it new
    std::string all;
    const char* piece = nullptr;
    for (const int32_t t : tokenize(text)) {
      ASSERT_EQ(moetier_stream_push(stream, t, &piece), MOETIER_OK);
      all += piece;
    }
    ASSERT_EQ(moetier_stream_finish(stream, &piece), MOETIER_OK);
    EXPECT_EQ(all + piece, text);
  }
  const char* piece = nullptr;
  EXPECT_EQ(moetier_stream_push(stream, -5, &piece), MOETIER_FAILED);
  EXPECT_EQ(piece, nullptr);
  moetier_stream_free(stream);
}

TEST_F(CApi, LogitsAreTheSameHoweverTheRowsCome) {
  const std::vector<int32_t> tokens = tokenize("There was a king who had three daughters");
  const std::vector<float> want = feed(sequence, tokens);
  for (const float l : want) ASSERT_TRUE(std::isfinite(l));
  moetier_sequence* other = nullptr;
  ASSERT_EQ(moetier_sequence_new(context, &other), MOETIER_OK);
  std::vector<float> got;
  for (const int32_t t : tokens) got = feed(other, {t});
  EXPECT_EQ(got, want);
  EXPECT_EQ(moetier_sequence_length(other), static_cast<int64_t>(tokens.size()));
  moetier_sequence_free(other);
}

TEST_F(CApi, ForkTruncateSaveAndLoad) {
  const std::vector<int32_t> tokens = tokenize("There was a king who had three daughters");
  feed(sequence, tokens);
  moetier_sequence* branch = nullptr;
  ASSERT_EQ(moetier_sequence_fork(sequence, &branch), MOETIER_OK);
  const std::vector<float> want = feed(branch, {tokens[0]});
  size_t size = 0;
  ASSERT_EQ(moetier_sequence_save(sequence, nullptr, 0, &size), MOETIER_TOO_SMALL);
  std::vector<char> bytes(size);
  ASSERT_EQ(moetier_sequence_save(sequence, bytes.data(), size, &size), MOETIER_OK);
  EXPECT_EQ(moetier_sequence_truncate(branch, 1000), MOETIER_FAILED);
  ASSERT_EQ(moetier_sequence_truncate(branch, 2), MOETIER_OK);
  ASSERT_EQ(moetier_sequence_load(branch, bytes.data(), size), MOETIER_OK);
  EXPECT_EQ(moetier_sequence_length(branch), static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(feed(branch, {tokens[0]}), want);
  bytes[size / 2] ^= 1;
  EXPECT_EQ(moetier_sequence_load(branch, bytes.data(), size), MOETIER_FAILED);
  EXPECT_THAT(moetier_last_error(), testing::HasSubstr("damaged"));
  moetier_sequence_free(branch);
}

TEST_F(CApi, HandlesMayBeFreedInAnyOrder) {
  moetier_sequence* fork = nullptr;
  feed(sequence, {1, 2, 3});
  ASSERT_EQ(moetier_sequence_fork(sequence, &fork), MOETIER_OK);
  moetier_model_free(std::exchange(model, nullptr));
  moetier_context_free(std::exchange(context, nullptr));
  EXPECT_EQ(moetier_sequence_length(fork), 3);
  moetier_sequence_free(std::exchange(sequence, nullptr));
  EXPECT_EQ(moetier_sequence_truncate(fork, 1), MOETIER_OK);
  moetier_sequence_free(fork);
  moetier_model_free(nullptr);
  moetier_context_free(nullptr);
  moetier_sequence_free(nullptr);
  moetier_sampler_free(nullptr);
  moetier_stream_free(nullptr);
}

TEST_F(CApi, AnErrorUndoesTheBatch) {
  feed(sequence, {1, 2, 3});
  const moetier_row bad[] = {{sequence, 1, 1}, {sequence, -1, 1}};
  EXPECT_EQ(moetier_decode(context, bad, 2), MOETIER_FAILED);
  EXPECT_THAT(moetier_last_error(), testing::HasSubstr("token -1"));
  EXPECT_EQ(moetier_sequence_length(sequence), 3);
  EXPECT_EQ(moetier_logits_count(context), 0u);
  EXPECT_EQ(moetier_logits(context, 0), nullptr);
  const moetier_row none = {nullptr, 1, 1};
  EXPECT_EQ(moetier_decode(context, &none, 1), MOETIER_INVALID);
  EXPECT_EQ(moetier_decode(context, nullptr, 1), MOETIER_INVALID);
  EXPECT_EQ(moetier_decode(context, nullptr, 0), MOETIER_OK);
  const std::vector<moetier_row> many(300, moetier_row{sequence, 1, 0});
  EXPECT_EQ(moetier_decode(context, many.data(), many.size()), MOETIER_FAILED);
  EXPECT_THAT(moetier_last_error(), testing::HasSubstr("context is full"));
}

TEST_F(CApi, SamplesWhatTheOptionsSay) {
  const std::vector<float> logits{1, 4, 3, 2};
  moetier_sampler_options options;
  moetier_sampler_options_init(&options, sizeof options);
  EXPECT_FLOAT_EQ(options.temperature, 0.8f);
  EXPECT_EQ(options.top_k, 40);
  options.temperature = 0;
  const moetier_logit_bias bias{3, 10.0f};
  options.logit_bias = &bias;
  options.logit_bias_count = 1;
  moetier_sampler* sampler = nullptr;
  int32_t token = -1;
  ASSERT_EQ(moetier_sampler_new(nullptr, &options, &sampler), MOETIER_OK);
  ASSERT_EQ(moetier_sampler_sample(sampler, logits.data(), logits.size(), &token), MOETIER_OK);
  EXPECT_EQ(token, 3);
  moetier_sampler_free(sampler);

  const int32_t never[] = {1};
  options.logit_bias_count = 0;
  options.suppress = never;
  options.suppress_count = 1;
  options.presence_penalty = 5;
  ASSERT_EQ(moetier_sampler_new(model, &options, &sampler), MOETIER_OK);
  ASSERT_EQ(moetier_sampler_sample(sampler, logits.data(), logits.size(), &token), MOETIER_OK);
  EXPECT_EQ(token, 2);
  ASSERT_EQ(moetier_sampler_accept(sampler, 2), MOETIER_OK);
  ASSERT_EQ(moetier_sampler_sample(sampler, logits.data(), logits.size(), &token), MOETIER_OK);
  EXPECT_EQ(token, 3);
  ASSERT_EQ(moetier_sampler_reset(sampler), MOETIER_OK);
  ASSERT_EQ(moetier_sampler_sample(sampler, logits.data(), logits.size(), &token), MOETIER_OK);
  EXPECT_EQ(token, 2);
  EXPECT_EQ(moetier_sampler_accept(sampler, -1), MOETIER_INVALID);
  EXPECT_EQ(moetier_sampler_sample(sampler, nullptr, 0, &token), MOETIER_FAILED);
  EXPECT_EQ(moetier_sampler_sample(sampler, nullptr, 4, &token), MOETIER_INVALID);
  moetier_sampler_free(sampler);
  sampler = nullptr;
  options.temperature = -1;
  EXPECT_EQ(moetier_sampler_new(model, &options, &sampler), MOETIER_INVALID);
  EXPECT_EQ(sampler, nullptr);
}

TEST_F(CApi, NullsAreErrorsAndNotCrashes) {
  size_t n = 0;
  int32_t token = 0;
  moetier_model* m = nullptr;
  moetier_context* c = nullptr;
  moetier_sequence* s = nullptr;
  moetier_stream* stream = nullptr;
  const char* text = nullptr;
  EXPECT_EQ(moetier_model_open(nullptr, nullptr, &m), MOETIER_INVALID);
  EXPECT_EQ(moetier_model_open(kModel.c_str(), nullptr, nullptr), MOETIER_INVALID);
  EXPECT_EQ(moetier_context_new(nullptr, nullptr, &c), MOETIER_INVALID);
  EXPECT_EQ(moetier_context_new(model, nullptr, nullptr), MOETIER_INVALID);
  EXPECT_EQ(moetier_sequence_new(nullptr, &s), MOETIER_INVALID);
  EXPECT_EQ(moetier_sequence_new(context, nullptr), MOETIER_INVALID);
  EXPECT_EQ(moetier_sequence_fork(nullptr, &s), MOETIER_INVALID);
  EXPECT_EQ(moetier_sequence_truncate(nullptr, 0), MOETIER_INVALID);
  EXPECT_EQ(moetier_sequence_save(nullptr, nullptr, 0, &n), MOETIER_INVALID);
  EXPECT_EQ(moetier_sequence_load(nullptr, nullptr, 0), MOETIER_INVALID);
  EXPECT_EQ(moetier_sequence_load(sequence, nullptr, 5), MOETIER_INVALID);
  EXPECT_EQ(moetier_sequence_load(sequence, nullptr, 0), MOETIER_FAILED);
  EXPECT_EQ(moetier_decode(nullptr, nullptr, 0), MOETIER_INVALID);
  EXPECT_EQ(moetier_tokenize(nullptr, "x", 1, 0, 0, &token, 1, &n), MOETIER_INVALID);
  EXPECT_EQ(moetier_tokenize(model, nullptr, 1, 0, 0, &token, 1, &n), MOETIER_INVALID);
  EXPECT_EQ(moetier_tokenize(model, "x", 1, 0, 0, &token, 1, nullptr), MOETIER_INVALID);
  EXPECT_EQ(moetier_detokenize(model, nullptr, 1, 0, nullptr, 0, &n), MOETIER_INVALID);
  EXPECT_EQ(moetier_stream_new(nullptr, 0, &stream), MOETIER_INVALID);
  EXPECT_EQ(moetier_stream_push(nullptr, 0, &text), MOETIER_INVALID);
  EXPECT_EQ(moetier_stream_finish(nullptr, &text), MOETIER_INVALID);
  EXPECT_EQ(moetier_sampler_new(nullptr, nullptr, nullptr), MOETIER_INVALID);
  EXPECT_EQ(moetier_sampler_sample(nullptr, nullptr, 0, &token), MOETIER_INVALID);
  EXPECT_EQ(moetier_logits(nullptr, 0), nullptr);
  EXPECT_EQ(moetier_logits_count(nullptr), 0u);
  EXPECT_EQ(moetier_sequence_length(nullptr), 0);
  EXPECT_EQ(moetier_context_length(nullptr), 0);
  EXPECT_EQ(moetier_model_vocab_size(nullptr), 0);
  EXPECT_STREQ(moetier_model_name(nullptr), "");
  EXPECT_EQ(moetier_model_has_vocab(nullptr), 0);
  EXPECT_EQ(moetier_token_bos(nullptr), -1);
}

TEST_F(CApi, OpenErrorsSayWhy) {
  moetier_model* m = nullptr;
  EXPECT_EQ(moetier_model_open("/nowhere/m.gguf", nullptr, &m), MOETIER_FAILED);
  EXPECT_THAT(moetier_last_error(), testing::HasSubstr("/nowhere/m.gguf"));
  moetier_model_options options;
  moetier_model_options_init(&options, sizeof options);
  options.isa = "quantum";
  EXPECT_EQ(moetier_model_open(kModel.c_str(), &options, &m), MOETIER_INVALID);
  EXPECT_THAT(moetier_last_error(), testing::HasSubstr("quantum"));
  options.isa = nullptr;
  options.threads = -1;
  EXPECT_EQ(moetier_model_open(kModel.c_str(), &options, &m), MOETIER_INVALID);
  EXPECT_EQ(m, nullptr);
  moetier_context_options c;
  moetier_context_options_init(&c, sizeof c);
  c.kv_type = 9;
  moetier_context* none = nullptr;
  EXPECT_EQ(moetier_context_new(model, &c, &none), MOETIER_INVALID);
  c.kv_type = MOETIER_KV_Q8_0;  // this model's heads are too small for it
  EXPECT_EQ(moetier_context_new(model, &c, &none), MOETIER_INVALID);
  EXPECT_THAT(moetier_last_error(), testing::HasSubstr("multiples of 32"));
  c.kv_type = MOETIER_KV_F32;
  c.context = -1;
  EXPECT_EQ(moetier_context_new(model, &c, &none), MOETIER_INVALID);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(moetier_set_log_level(4), MOETIER_INVALID);
  EXPECT_EQ(moetier_set_log_level(1), MOETIER_OK);
}

TEST_F(CApi, LastErrorBelongsToTheThread) {
  EXPECT_EQ(moetier_set_log_level(-1), MOETIER_INVALID);
  const std::string mine = moetier_last_error();
  std::string theirs = "x";
  std::thread([&] { theirs = moetier_last_error(); }).join();
  EXPECT_EQ(theirs, "");
  EXPECT_EQ(moetier_last_error(), mine);
}

TEST_F(CApi, OptionsOfOtherVersionsAreUnderstood) {
  // An older program's struct ends before the later fields: those keep their defaults.
  moetier_context_options old;
  std::memset(&old, 0xff, sizeof old);
  moetier_context_options_init(&old, offsetof(moetier_context_options, ubatch));
  old.context = 128;
  EXPECT_EQ(old.ubatch, -1) << "init wrote past the end of the caller's struct";
  moetier_context* c = nullptr;
  ASSERT_EQ(moetier_context_new(model, &old, &c), MOETIER_OK) << moetier_last_error();
  EXPECT_EQ(moetier_context_length(c), 128);
  moetier_context_free(c);
  // A newer program's struct is longer: what this library does not know must be left at zero.
  struct {
    moetier_context_options known;
    int64_t later;
  } fresh;
  moetier_context_options_init(&fresh.known, sizeof fresh);
  EXPECT_EQ(fresh.known.size, sizeof fresh);
  EXPECT_EQ(fresh.later, 0);
  fresh.known.context = 64;
  ASSERT_EQ(moetier_context_new(model, &fresh.known, &c), MOETIER_OK) << moetier_last_error();
  moetier_context_free(std::exchange(c, nullptr));
  fresh.later = 1;
  EXPECT_EQ(moetier_context_new(model, &fresh.known, &c), MOETIER_INVALID);
  moetier_context_options never_init{};
  EXPECT_EQ(moetier_context_new(model, &never_init, &c), MOETIER_INVALID);
  EXPECT_EQ(c, nullptr);
}

}  // namespace
