#include "cli/settings.h"
#include "cli/sampling.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/parse.h"

namespace moetier::cli {
namespace {

const Command& run_it() {
  return *find_command("run");
}

std::string complaint(const Command& command, const std::vector<std::string>& arguments) {
  try {
    return validate(command.params, parse_arguments(command, arguments).given);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
}

Settings settings_of(const Command& command, const std::vector<std::string>& arguments) {
  const Parsed parsed = parse_arguments(command, arguments);
  EXPECT_EQ(validate(command.params, parsed.given), "");
  return {command.params, parsed.given};
}

TEST(ParamTable, NamesAndAliasesAreUniqueWithinACommand) {
  for (const Command& command : commands()) {
    std::set<std::string> seen = {"--help", "-h"};
    for (const Param& p : command.params) {
      std::vector<std::string> names = {"--" + std::string(p.name)};
      if (p.type == ParamType::flag) names.push_back("--no-" + std::string(p.name));
      for (const auto alias : p.aliases) names.emplace_back(alias);
      for (const auto name : p.negations) names.emplace_back(name);
      for (const std::string& name : names) EXPECT_TRUE(seen.insert(name).second) << command.name << " " << name;
      EXPECT_TRUE(!p.help.empty() || p.handling != Handling::active) << command.name << " " << p.name;
      EXPECT_TRUE(p.handling == Handling::active || !p.note.empty()) << p.name;
    }
    for (const Positional& positional : command.positionals) {
      bool found = false;
      for (const Param& p : command.params) found = found || p.name == positional.param;
      EXPECT_TRUE(found) << command.name << " " << positional.name;
    }
  }
}

TEST(ParamTable, DefaultsPassTheirOwnChecks) {
  for (const Command& command : commands()) {
    GivenValues given;
    for (const Param& p : command.params) {
      if (!p.fallback.empty() && p.handling == Handling::active)
        given[std::string(p.name)] = {{std::string(p.fallback)}, Source::typed};
    }
    EXPECT_EQ(validate(command.params, given), "") << command.name;
  }
}

TEST(Parse, TakesLongShortAndJoinedForms) {
  const Settings s = settings_of(run_it(), {"-m", "a.gguf", "--prompt=hi there", "-n", "5", "-t2", "--temp", "0.5"});
  EXPECT_EQ(s.text("model"), "a.gguf");
  EXPECT_EQ(s.text("prompt"), "hi there");
  EXPECT_EQ(s.integer("n"), 5);
  EXPECT_EQ(s.integer("threads"), 2);
  EXPECT_DOUBLE_EQ(s.real("temp"), 0.5);
  EXPECT_EQ(s.integer("ubatch"), 512) << "the default";
  EXPECT_FALSE(s.is_set("ubatch"));
}

TEST(Parse, TakesTheFieldsSingleDashAliases) {
  const Settings s = settings_of(run_it(), {"-m", "a", "-ub", "64", "-ctk", "f32", "-ngl", "99", "-fit", "off"});
  EXPECT_EQ(s.integer("ubatch"), 64);
  EXPECT_EQ(s.text("kv-type"), "f32");
  const auto notes = noop_notes(run_it().params, parse_arguments(run_it(), {"-ngl", "99"}).given);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("-ngl changes nothing"), std::string::npos);
}

TEST(Parse, TakesNegativeNumbersAndTextsWithDashes) {
  EXPECT_EQ(settings_of(run_it(), {"-n", "-1"}).integer("n"), -1);
  EXPECT_DOUBLE_EQ(settings_of(run_it(), {"--presence-penalty", "-0.5"}).real("presence-penalty"), -0.5);
  EXPECT_EQ(settings_of(run_it(), {"--prompt=--help me"}).text("prompt"), "--help me");
  EXPECT_EQ(settings_of(run_it(), {"-p", "- a list"}).text("prompt"), "- a list");
}

TEST(Parse, RepeatsOnlyWhatMayBeRepeated) {
  EXPECT_EQ(settings_of(run_it(), {"--stop", "a", "--stop", "b"}).texts("stop"), (std::vector<std::string>{"a", "b"}));
  EXPECT_NE(complaint(run_it(), {"-n", "1", "-n", "2"}).find("--n is given more than once"), std::string::npos);
}

TEST(Parse, SwitchesFlagsOff) {
  EXPECT_TRUE(settings_of(run_it(), {}).flag("bos"));
  EXPECT_FALSE(settings_of(run_it(), {"--no-bos"}).flag("bos"));
  EXPECT_NE(complaint(run_it(), {"--bos", "--no-bos"}).find("exclude each other"), std::string::npos);
}

TEST(Parse, GarbageWhereANumberBelongsIsAnErrorThatNamesTheFlag) {
  for (const char* bad : {"abc", "5x", "1e3", "0x10", "99999999999999999999", " 5"}) {
    const std::string text = complaint(run_it(), {std::string("--n=") + bad});
    EXPECT_NE(text.find("--n takes a whole number"), std::string::npos) << "'" << bad << "' gave: " << text;
  }
  EXPECT_NE(complaint(run_it(), {"--n="}).find("--n needs a value"), std::string::npos);
  EXPECT_NE(complaint(run_it(), {"-n"}).find("-n needs a value"), std::string::npos);
  for (const char* bad : {"abc", "0.5f", "nan", "inf", "-1", "101"}) {
    const std::string text = complaint(run_it(), {std::string("--temp=") + bad});
    EXPECT_NE(text.find("--temp takes a number from 0 to 100"), std::string::npos) << bad << " gave: " << text;
  }
  EXPECT_NE(complaint(run_it(), {"--threads", "0"}).find("--threads takes a whole number from 1 to 1024"),
            std::string::npos);
  EXPECT_NE(complaint(run_it(), {"--kv-type", "q2"}).find("--kv-type takes one of f16, q8_0, f32, not 'q2'"),
            std::string::npos);
}

TEST(Parse, AnUnknownFlagNamesTheNearestOne) {
  const std::string text = complaint(run_it(), {"--promt", "x"});
  EXPECT_NE(text.find("unknown flag --promt"), std::string::npos);
  EXPECT_NE(text.find("did you mean --prompt?"), std::string::npos);
  EXPECT_NE(complaint(run_it(), {"model", "stray"}).find("does not take the argument 'stray'"), std::string::npos);
  const std::string both = complaint(run_it(), {"--promt", "x", "-xyz", "-Q", "--sead=1"});
  EXPECT_NE(both.find("unknown flags --promt, -xyz, -Q, --sead for"), std::string::npos) << both;
  EXPECT_NE(both.find("did you mean --prompt, --seed?"), std::string::npos) << both;
}

TEST(Parse, SeveralLettersBehindOneDashAreOneName) {
  const Command& serve = *find_command("serve");
  for (const char* name : {"-xb", "-rex", "-ag", "-a4x", "-cx", "-t4x"}) {
    EXPECT_NE(complaint(serve, {name, "1"}).find(std::string("unknown flag ") + name), std::string::npos) << name;
  }
  EXPECT_EQ(settings_of(serve, {"-t4", "-c512", "-n-1"}).integer("ctx"), 512);
  for (const std::vector<std::string>& pasted :
       std::vector<std::vector<std::string>>{{"-cb"},
                                             {"-nocb"},
                                             {"-sps", "0.5"},
                                             {"-cram", "100"},
                                             {"-sm", "none"},
                                             {"-mg", "0"},
                                             {"-ts", "1,1"},
                                             {"-nkvo"},
                                             {"-kvu"},
                                             {"-fa"},
                                             {"-fa", "on"},
                                             {"--no-context-shift"},
                                             {"--offline"},
                                             {"--metrics"},
                                             {"--embedding"},
                                             {"--mirostat", "0"},
                                             {"--dry-multiplier", "0.00"},
                                             {"--typical", "1.0"},
                                             {"-np", "-1", "-t", "-1", "-s", "-1"},
                                             {"-n", "5"}}) {
    EXPECT_EQ(complaint(serve, pasted), "") << pasted[0];
  }
  EXPECT_EQ(settings_of(serve, {"-np", "-1"}).integer("parallel"), 1);
  EXPECT_EQ(settings_of(serve, {"-t", "-1"}).text("threads"), "auto");
  EXPECT_EQ(settings_of(serve, {"-fa", "-c", "512"}).integer("ctx"), 512);
  EXPECT_FALSE(settings_of(run_it(), {"-no-cnv"}).flag("chat"));
}

TEST(Parse, SamplersAreSetByFlags) {
  const SamplerOptions s = generate_options(settings_of(run_it(), {"--typical-p", "0.9", "--xtc-probability", "0.5",
                                                                   "--top-nsigma", "1.5", "--samplers", "xtc;temp"}))
                               .sampler;
  EXPECT_FLOAT_EQ(s.typical_p, 0.9f);
  EXPECT_FLOAT_EQ(s.xtc_probability, 0.5f);
  EXPECT_FLOAT_EQ(s.top_n_sigma, 1.5f);
  EXPECT_EQ(s.order, (std::vector{SamplerStep::xtc, SamplerStep::temperature}));
  EXPECT_EQ(generate_options(settings_of(run_it(), {})).sampler.order, default_sampler_order());
  EXPECT_EQ(generate_options(settings_of(run_it(), {"--sampler-seq", "edskypmxt"})).sampler.order,
            default_sampler_order());
  EXPECT_THROW(generate_options(settings_of(run_it(), {"--samplers", "top_k;nothing"})), Error);
}

TEST(Parse, ValuesAreKeptAsKeysAre) {
  EXPECT_EQ(complaint(run_it(), {"-ctk", "q8_0", "-ctv", "q8_0"}), "");
  EXPECT_EQ(complaint(run_it(), {"-ctv", "q8_0"}).find("-ctv q8_0: values are kept as keys are, which is f16"), 0u);
}

TEST(Parse, AFlagIsNoValue) {
  EXPECT_NE(complaint(run_it(), {"--prompt", "--echo"}).find("--prompt needs a value, and the flag --echo follows"),
            std::string::npos);
}

TEST(Parse, WhatWouldChangeTheAnswerIsRefusedAsItWasTyped) {
  const Command& serve = *find_command("serve");
  for (const std::vector<std::string>& pasted : std::vector<std::vector<std::string>>{{"--context-shift"},
                                                                                      {"--no-slots"},
                                                                                      {"--rerank"},
                                                                                      {"--reranking"},
                                                                                      {"--api-prefix", "/x"},
                                                                                      {"--rope-scale", "2"},
                                                                                      {"-mu", "http://x"},
                                                                                      {"--grammar", "x"},
                                                                                      {"-j", "{}"},
                                                                                      {"--no-jinja"},
                                                                                      {"--log-file", "x"}}) {
    EXPECT_EQ(complaint(serve, pasted).find(pasted[0] + " is not supported: "), 0u) << complaint(serve, pasted);
  }
  EXPECT_EQ(complaint(serve, {"--mirostat", "2"}).find("--mirostat 2 is not supported: "), 0u);
  EXPECT_NE(complaint(run_it(), {"-st"}).find("-st is not supported"), std::string::npos);
}

TEST(Parse, AllThatChangesNothingIsOneSentence) {
  const Command& serve = *find_command("serve");
  const auto notes =
      noop_notes(serve.params, parse_arguments(serve, {"-ngl", "9", "--no-mmap", "-cmoe", "-cb", "--metrics"}).given);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("-ngl, -cmoe change nothing here"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("--no-mmap changes nothing here"), std::string::npos) << notes[0];
  EXPECT_EQ(notes[0].find("metrics"), std::string::npos) << "it is so anyway";
}

TEST(Parse, VariablesOfOtherToolsAreKnownNegatedOrNamed) {
  const Command& serve = *find_command("serve");
  ::setenv("LLAMA_ARG_NO_WEBUI", "1", 1);
  EXPECT_FALSE(settings_of(serve, {}).flag("webui"));
  ::setenv("LLAMA_ARG_NO_MMAP", "1", 1);
  const auto notes = noop_notes(serve.params, parse_arguments(serve, {}).given);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].find("LLAMA_ARG_NO_MMAP changes nothing"), 0u) << notes[0];
  EXPECT_TRUE(parse_arguments(serve, {}).notes.empty());
  ::setenv("LLAMA_ARG_WINGS", "1", 1);
  ASSERT_EQ(parse_arguments(serve, {}).notes.size(), 1u);
  EXPECT_EQ(parse_arguments(serve, {}).notes[0].find("LLAMA_ARG_WINGS in the environment"), 0u);
  EXPECT_TRUE(parse_arguments(*find_command("docs"), {"man"}).notes.empty());
  ::setenv("LLAMA_ARG_RERANKING", "1", 1);
  EXPECT_NE(complaint(serve, {}).find("(from LLAMA_ARG_RERANKING) is not supported"), std::string::npos);
  for (const char* name : {"LLAMA_ARG_NO_WEBUI", "LLAMA_ARG_NO_MMAP", "LLAMA_ARG_WINGS", "LLAMA_ARG_RERANKING"}) {
    ::unsetenv(name);
  }
}

TEST(Parse, RefusedFlagsSayWhy) {
  EXPECT_NE(complaint(run_it(), {"--lora", "x"}).find("--lora is not supported: "), std::string::npos);
  EXPECT_NE(complaint(run_it(), {"-hf", "a/b"}).find("downloads nothing"), std::string::npos);
}

TEST(Parse, TheEnvironmentSetsAndATypedFlagWins) {
  ::setenv("LLAMA_ARG_UBATCH", "33", 1);
  EXPECT_EQ(settings_of(run_it(), {}).integer("ubatch"), 33);
  EXPECT_EQ(settings_of(run_it(), {}).json()["ubatch"]["source"], "environment");
  EXPECT_EQ(settings_of(run_it(), {"-ub", "44"}).integer("ubatch"), 44);
  ::setenv("LLAMA_ARG_UBATCH", "many", 1);
  EXPECT_NE(complaint(run_it(), {}).find("(from LLAMA_ARG_UBATCH)"), std::string::npos);
  ::unsetenv("LLAMA_ARG_UBATCH");
}

TEST(Parse, PositionalsFillTheirParameters) {
  const Command& quantize = *find_command("quantize");
  const Settings s = settings_of(quantize, {"in.gguf", "out.gguf", "q4_0"});
  EXPECT_EQ(s.text("model"), "in.gguf");
  EXPECT_EQ(s.text("out"), "out.gguf");
  EXPECT_EQ(s.text("type"), "q4_0");
  EXPECT_NE(complaint(quantize, {"in.gguf"}).find("needs OUT"), std::string::npos);
  EXPECT_NE(complaint(quantize, {"a", "b", "c", "d"}).find("'d'"), std::string::npos);
}

TEST(Help, NamesEveryFlagOfEveryCommand) {
  const std::string man = man_page(), reference = markdown_reference();
  for (const Command& command : commands()) {
    const std::string help = command_help(command);
    for (const Param& p : command.params) {
      EXPECT_NE(help.find("--" + std::string(p.name)), std::string::npos) << command.name << " " << p.name;
      EXPECT_NE(reference.find("--" + std::string(p.name)), std::string::npos);
    }
    EXPECT_NE(program_help().find(command.name), std::string::npos);
    std::string name(command.name);  // a hyphen is a minus there, so that it can be copied
    for (size_t at = 0; (at = name.find('-', at)) != std::string::npos; at += 2) name.insert(at, 1, '\\');
    EXPECT_NE(man.find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace moetier::cli
