// The program as scripts call it: the fixed command lines, standard output and exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/process.h"

namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";
const std::string kMini = MOETIER_TEST_DATA "/models/mini-qwen3moe-f32.gguf";

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

TEST(Cli, HelpAndVersionGoToStandardOutput) {
  EXPECT_EQ(run_moetier({"--version"}).code, 0);
  EXPECT_THAT(run_moetier({"--version"}).out, HasSubstr("moetier "));
  const ProcessResult help = run_moetier({"run", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--temp"));
  EXPECT_EQ(run_moetier({}).code, 2);
}

TEST(Cli, WrongUsageExitsWithTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"fly"},
                                             {"run", "--wings"},
                                             {"run", "-m", kMini, "-n", "many"},
                                             {"run"},
                                             {"logits", "-m", kMini},
                                             {"inspect"},
                                             {"quantize", "a"},
                                             {"tokenize", "-m", kDemo, "-f", "a", "-p", "b"},
                                             {"docs", "poem"}}) {
    const ProcessResult result = run_moetier(arguments);
    EXPECT_EQ(result.code, 2) << arguments[0] << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("moetier")) << arguments[0];
    EXPECT_EQ(result.out, "");
  }
}

TEST(Cli, WhatFailsExitsWithOneAndOneSentence) {
  const TemporaryFolder folder;
  const std::string torn = folder.write("torn.gguf", slurp(kMini).substr(0, 5000));
  const std::string text = folder.write("note.txt", "not a model");
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"run", "-m", folder.file("none.gguf"), "-p", "x"},
           {"run", "-m", torn, "-p", "x"},
           {"inspect", text},
           {"logits", "-m", kMini, "--tokens", "1,2,99999999", "-o", folder.file("l")},
           {"logits", "-m", kMini, "--tokens", "1,2", "-o", "/nonexistent/dir/l"},
           {"logits", "-m", kMini, "--tokens", "1,2", "-o", "/dev/full/l"}}) {
    const ProcessResult result = run_moetier(arguments);
    EXPECT_EQ(result.code, 1) << arguments[0] << ": " << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(Cli, LogitsWritesPositionsTimesVocabulary) {
  const TemporaryFolder folder;
  const std::string out = folder.file("logits.f32");
  const ProcessResult result = run_moetier({"logits", "-m", kMini, "--tokens", "5,17,300", "-o", out, "--kv-type",
                                            "f32", "--threads", "1", "--ubatch", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto first = floats(slurp(out));
  ASSERT_EQ(first.size(), 3u * 512u);
  ASSERT_EQ(run_moetier({"logits", "-m", kMini, "--tokens", "5,17,300", "-o", out, "--kv-type", "f32", "--threads", "3",
                         "--isa", "portable"})
                .code,
            0);
  EXPECT_EQ(std::memcmp(floats(slurp(out)).data(), first.data(), first.size() * 4), 0)
      << "neither threads, ubatch nor isa may change a bit";
}

TEST(Cli, RunPrintsTheTextAndNothingElse) {
  const ProcessResult result = run_moetier({"run", "-m", kDemo, "-p", "Once upon a time", "-n", "12", "--temp", "0"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(result.out.empty());
  EXPECT_THAT(result.err, HasSubstr("tok/s"));
  EXPECT_THAT(result.err, HasSubstr("experts"));
  const ProcessResult record =
      run_moetier({"run", "-m", kDemo, "-p", "Once upon a time", "-n", "12", "--temp", "0", "--json", "-t", "1"});
  ASSERT_EQ(record.code, 0) << record.err;
  const json parsed = json::parse(record.out);
  EXPECT_EQ(parsed["text"], result.out) << "the same text whatever the threads";
  EXPECT_EQ(parsed["tokens"].size(), 12u);
  const ProcessResult piped = run_moetier({"run", "-m", kDemo, "-n", "12", "--temp", "0", "-q"}, "Once upon a time");
  EXPECT_EQ(piped.out, result.out) << "a prompt from standard input";
  EXPECT_EQ(piped.err, "");
}

TEST(Cli, APromptsLastNewlineIsTheEditors) {
  const TemporaryFolder folder;
  const std::string file = folder.write("p.txt", "Once upon a time\n");
  const ProcessResult plain = run_moetier({"run", kDemo, "-p", "Once upon a time", "-n", "8", "--temp", "0"});
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(run_moetier({"run", kDemo, "-f", file, "-n", "8", "--temp", "0"}).out, plain.out);
  const ProcessResult piped = run_moetier({"run", kDemo, "-n", "8", "--temp", "0"}, "Once upon a time\n");
  EXPECT_EQ(piped.out, plain.out);
  EXPECT_THAT(piped.err, HasSubstr("the prompt comes from standard input"));
}

TEST(Cli, AMistypedCommandIsNamed) {
  EXPECT_THAT(run_moetier({"rnu"}).err, HasSubstr("did you mean run?"));
  EXPECT_THAT(run_moetier({"server"}).err, HasSubstr("did you mean serve?"));
  EXPECT_THAT(run_moetier({"x"}).err, testing::Not(HasSubstr("did you mean")));
}

TEST(Cli, ABiasIsTakenInBothNotations) {
  for (const char* good : {"13=-2.5", "13+1", "13-0.5", "13-inf"}) {
    EXPECT_EQ(run_moetier({"run", kDemo, "-p", "Once", "-n", "1", "-l", good}).code, 0) << good;
  }
  EXPECT_EQ(run_moetier({"run", kDemo, "-p", "Once", "-n", "1", "-l", "13"}).code, 2);
}

TEST(Cli, RunStopsBeforeAStopText) {
  const ProcessResult whole = run_moetier({"run", "-m", kDemo, "-p", "Once upon a time", "-n", "30", "--temp", "0"});
  ASSERT_GT(whole.out.size(), 20u);
  const std::string stop = whole.out.substr(10, 5);
  const ProcessResult cut =
      run_moetier({"run", "-m", kDemo, "-p", "Once upon a time", "-n", "30", "--temp", "0", "--stop", stop});
  EXPECT_EQ(cut.out, whole.out.substr(0, whole.out.find(stop)));
}

TEST(Cli, ChatKeepsTheHistory) {
  const TemporaryFolder folder;
  const std::string chat =
      folder.write("chat.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:");
  const ProcessResult result =
      run_moetier({"run", "-m", kDemo, "--chat", "--chat-template", chat, "-n", "6", "--temp", "0", "--json"},
                  "Hello\n\nAnd then?\n");
  ASSERT_EQ(result.code, 0) << result.err;
  const json messages = json::parse(result.out)["messages"];
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[2]["content"], "And then?");
  EXPECT_EQ(messages[3]["role"], "assistant");
  EXPECT_EQ(run_moetier({"run", "-m", kDemo, "--chat"}, "Hello\n").code, 2)
      << "the demo model has no template, and that is said";
}

TEST(Cli, BenchPrintsWhatItMeasured) {
  const ProcessResult result = run_moetier(
      {"bench", "--no-read-bandwidth", "-m", kDemo, "-p", "16", "-n", "4", "-r", "3", "--threads", "1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json parsed = json::parse(result.out);
  for (const char* key : {"prompt_tok_s", "decode_tok_s"}) {
    EXPECT_EQ(parsed[key]["samples"].size(), 3u);
    EXPECT_LE(parsed[key]["min"].get<double>(), parsed[key]["median"].get<double>());
    EXPECT_LE(parsed[key]["median"].get<double>(), parsed[key]["max"].get<double>());
    EXPECT_GT(parsed[key]["min"].get<double>(), 0.0);
  }
  EXPECT_EQ(run_moetier({"bench", "-m", kDemo, "-p", "0", "-n", "0"}).code, 2);
}

TEST(Cli, BenchMeasuresBehindPositionsThatAreHeld) {
  for (const char* depth : {"64", "100"}) {
    const ProcessResult result = run_moetier({"bench", "-m", kDemo, "-p", "30", "-n", "4", "-r", "2", "--depth", depth,
                                              "--kv-type", "q8_0", "--threads", "1", "--json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const json parsed = json::parse(result.out);
    EXPECT_EQ(parsed["depth"], std::stoi(depth));
    EXPECT_GT(parsed["prompt_tok_s"]["min"].get<double>(), 0.0);
    EXPECT_GT(parsed["decode_tok_s"]["min"].get<double>(), 0.0);
  }
  // The filled positions count: what does not fit behind them is an error.
  EXPECT_EQ(run_moetier({"bench", "-m", kDemo, "-p", "30", "-n", "0", "-r", "1", "--depth", "200", "-c", "128"}).code,
            1);
}

TEST(Cli, BenchMeasuresSequencesThatDecodeTogether) {
  const ProcessResult result = run_moetier({"bench", "-m", kDemo, "-p", "0", "-n", "6", "-r", "2", "--depth", "20",
                                            "--parallel", "3", "--threads", "1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json parsed = json::parse(result.out);
  EXPECT_EQ(parsed["parallel"], 3);
  EXPECT_GT(parsed["decode_tok_s"]["min"].get<double>(), 0.0);
  EXPECT_EQ(parsed["stats"]["decode"]["tokens"], 2 * 6 * 3);
  const ProcessResult traced = run_moetier({"bench", "-m", kDemo, "--parallel", "2", "--route-trace", "-"});
  EXPECT_EQ(traced.code, 2);
  EXPECT_NE(traced.err.find("--parallel"), std::string::npos) << traced.err;
}

TEST(Cli, PerplexityIsTheSameBatchedAndTokenByToken) {
  const TemporaryFolder folder;
  const std::string text = folder.write(
      "t.txt",
      "Once upon a time there was a king who had three daughters, and the youngest was so fair that the sun wondered. "
      "She went into the wood, and sat by the well, and played with a golden ball.");
  const std::vector<std::string> base = {"perplexity", "-m", kDemo, "-f", text, "--window", "16", "--json"};
  auto stepwise = base;
  stepwise.emplace_back("--token-by-token");
  const ProcessResult a = run_moetier(base), b = run_moetier(stepwise);
  ASSERT_EQ(a.code, 0) << a.err;
  ASSERT_EQ(b.code, 0) << b.err;
  EXPECT_EQ(json::parse(a.out)["mean_nll"], json::parse(b.out)["mean_nll"]);
  EXPECT_GT(json::parse(a.out)["perplexity"].get<double>(), 1.0);
  EXPECT_GT(json::parse(a.out)["perplexity_error"].get<double>(), 0.0);
}

TEST(Cli, InspectTellsEntriesAndTheTokenCycle) {
  const ProcessResult result = run_moetier({"inspect", kMini, "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["architecture"], "qwen3moe");
  EXPECT_EQ(report["runs"], true) << report["reason"];
  uint64_t cycle = 0, bank = 0;
  for (const json& layer : report["layers"]) {
    uint64_t entry = 0;
    for (const json& slice : layer["slices"]) entry += slice["bytes"].get<uint64_t>();
    EXPECT_EQ(layer["entry_bytes"], entry);
    cycle += entry * std::min(layer["top_k"].get<uint64_t>(), layer["experts"].get<uint64_t>());
    bank += entry * layer["experts"].get<uint64_t>();
  }
  EXPECT_EQ(report["token_cycle_bytes"], cycle);
  EXPECT_EQ(report["entry_bytes_total"], bank);
  uint64_t all = 0;
  for (const json& tensor : report["tensors"]) all += tensor["bytes"].get<uint64_t>();
  EXPECT_EQ(report["dense_bytes"], all - bank);
  uint64_t by_type = 0;
  for (const auto& [name, n] : report["types"].items()) by_type += n.get<uint64_t>();
  EXPECT_EQ(by_type, all);
  EXPECT_EQ(report["text"]["readable"], true) << report["text"]["reason"];
  // A small model fits anywhere.
  EXPECT_EQ(report["tiers"]["mode"], "resident");
  EXPECT_EQ(report["tiers"]["host_entry_bytes"], bank);
  EXPECT_EQ(report["tiers"]["file_entry_bytes"], 0);
  const ProcessResult text = run_moetier({"inspect", kMini, "--check"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("token cycle"));
  EXPECT_THAT(text.out, HasSubstr("of entries in host memory"));
}

TEST(Cli, TokenizeAndDetokenizeAreInverse) {
  const TemporaryFolder folder;
  const std::string words = "The king's  daughter\nsaid: caf\xc3\xa9 <|endoftext|>!";
  const std::string text = folder.write("t.txt", words);
  const ProcessResult plain = run_moetier({"tokenize", "-m", kDemo, "-f", text, "--no-special"});
  ASSERT_EQ(plain.code, 0) << plain.err;
  const ProcessResult back = run_moetier({"detokenize", "-m", kDemo, "-f", "-"}, plain.out);
  EXPECT_EQ(back.out, words);
  const json with = json::parse(run_moetier({"tokenize", "-m", kDemo, "-f", text}).out),
             without = json::parse(plain.out);
  EXPECT_LT(with.size(), without.size() + 1) << "the control token is one id, and BOS is added";
  EXPECT_NE(with[0], without[0]);
}

TEST(Cli, TemplateRendersThePromptAndNothingElse) {
  const TemporaryFolder folder;
  const std::string file = folder.write("c.jinja",
                                        "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% "
                                        "endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  const std::string messages = folder.write("m.json", R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(run_moetier({"template", "-f", file, "--messages", messages, "--bos", "<s>", "--eos", "</s>"}).out,
            "<s>[user] hi\n");
  const std::string object =
      folder.write("o.json", R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true})");
  EXPECT_EQ(run_moetier({"template", "-f", file, "--messages", object}).out, "[user] hi\n[assistant]");
  EXPECT_EQ(run_moetier({"template", "-f", file, "--messages", folder.write("bad.json", "{")}).code, 1);
}

TEST(Cli, SynthMakesAModelThatRunsAndQuantizes) {
  const TemporaryFolder folder;
  const std::string made = folder.file("made.gguf"), small = folder.file("small.gguf");
  const ProcessResult synth =
      run_moetier({"synth", "--like", "tiny", "--arch", "qwen3moe", "--type", "f16", "-o", made});
  ASSERT_EQ(synth.code, 0) << synth.err;
  ASSERT_EQ(run_moetier({"run", "-m", made, "-p", "hello", "-n", "4", "--temp", "0"}).code, 0);
  const ProcessResult quantize = run_moetier({"quantize", made, small, "q8_0"});
  ASSERT_EQ(quantize.code, 0) << quantize.err;
  EXPECT_LT(slurp(small).size(), slurp(made).size());
  EXPECT_EQ(run_moetier({"quantize", small, folder.file("x.gguf"), "q4_0"}).code, 1) << "a second loss is refused";
  EXPECT_EQ(run_moetier({"quantize", made, made, "q8_0"}).code, 1) << "a file is never written over itself";
  EXPECT_EQ(run_moetier({"synth", "--like", "unicorn", "-o", folder.file("u")}).code, 2);
}

TEST(Cli, IdsComeAsAListOrAsJsonAndNothingElse) {
  for (const char* good : {"1,2", " 1 , 2 ", "1 2", "[1, 2]", "[1,2]\n"}) {
    EXPECT_EQ(run_moetier({"detokenize", "-m", kDemo, "--tokens", good}).code, 0) << good;
  }
  for (const char* bad : {"1,,2", ",1", "1,", "[1]]]", "[1,2", "1]", "1.5", "[1.5]", "[\"1\"]", "x"}) {
    EXPECT_NE(run_moetier({"detokenize", "-m", kDemo, "--tokens", bad}).code, 0) << bad;
  }
}

TEST(Cli, WhatWouldChangeNothingIsSaid) {
  EXPECT_EQ(run_moetier({"run", "-m", kDemo, "-p", "Once", "-n", "1", "--system", "Be kind."}).code, 2);
  const ProcessResult typo =
      run_moetier({"run", "-m", kDemo, "-p", "Once", "-n", "1", "--override-kv", "qwen3moe.expert_usedcount=int:1"});
  EXPECT_EQ(typo.code, 0);
  EXPECT_THAT(typo.err, HasSubstr("qwen3moe.expert_usedcount"));
  EXPECT_EQ(run_moetier({"perplexity", "-m", kDemo, "-f", "x", "--windows", "0"}).code, 2);
}

TEST(Cli, AnInputIsNeverOverwritten) {
  const TemporaryFolder folder;
  const std::string model = folder.write("m.gguf", slurp(kMini)), story = folder.write("s.txt", "Once");
  EXPECT_EQ(run_moetier({"logits", "-m", model, "--tokens", "1", "-o", model}).code, 2);
  EXPECT_EQ(run_moetier({"run", "-m", kDemo, "-f", story, "-n", "1", "--record", story}).code, 2);
  EXPECT_EQ(slurp(model), slurp(kMini));
  EXPECT_EQ(slurp(story), "Once");
}

TEST(Cli, DeeplyNestedJsonIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.write("t.jinja", "{{ messages }}");
  const std::string deep = folder.write("deep.json", std::string(100000, '[') + std::string(100000, ']'));
  const ProcessResult result = run_moetier({"template", "-f", file, "--messages", deep});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("levels deep"));
}

TEST(Cli, DamagedWeightsAreAnErrorAndNotAText) {
  const TemporaryFolder folder;
  const json report = json::parse(run_moetier({"inspect", kMini, "--json"}).out);
  std::string bytes = slurp(kMini);
  for (const json& tensor : report["tensors"]) {
    if (tensor["name"] != "output_norm.weight") continue;
    bytes.replace(tensor["offset"].get<size_t>(), 4, std::string("\x00\x00\xc0\x7f", 4));  // a NaN
  }
  const std::string damaged = folder.write("nan.gguf", bytes);
  const ProcessResult run = run_moetier({"logits", "-m", damaged, "--tokens", "1,2", "-o", folder.file("l")});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("weights are damaged"));
  const ProcessResult check = run_moetier({"inspect", damaged, "--check"});
  EXPECT_EQ(check.code, 1);
  EXPECT_THAT(check.err, HasSubstr("output_norm.weight"));
}

TEST(Cli, TheGeneratedDocsAreUpToDate) {
  EXPECT_EQ(run_moetier({"docs", "cli"}).out, slurp(MOETIER_SOURCE_DIR "/docs/cli.md")) << "run 'make docs'";
  EXPECT_EQ(run_moetier({"docs", "models"}).out, slurp(MOETIER_SOURCE_DIR "/docs/models.md")) << "run 'make docs'";
}

}  // namespace
