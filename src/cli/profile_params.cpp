#include "cli/profile_params.h"

#include "cli/param_groups.h"
#include "cli/residency_params.h"

namespace moetier::cli {
namespace {

using T = ParamType;

Param profile_file(bool several = false) {
  return {.name = "profile", .type = T::path, .value = "FILE", .help = "The profile (STRP).", .repeated = several};
}

Param out_file(std::string_view help) {
  return {.name = "out", .aliases = {"-o"}, .type = T::path, .value = "FILE", .help = help};
}

Param json_flag() {
  return {.name = "json", .type = T::flag, .help = "Prints JSON."};
}

Command profile_command() {
  return {
      .name = "profile",
      .summary = "Rank a model's experts, hottest first",
      .description =
          "Counts how often each entry (one expert of one layer) is picked, over a text that is run through the model "
          "or over recorded traces, and writes the ranking (STRP, docs/formats.md). A run fills its cache from it with "
          "--moe-cache-profile.",
      .positionals =
          {{.name = "MODEL", .help = "The model.", .param = "model", .required = false},
           {.name = "TEXT", .help = "The text to run; - is standard input.", .param = "file", .required = false}},
      .params = join({model_params(),
                      {{.name = "file",
                        .aliases = {"-f"},
                        .type = T::path,
                        .value = "FILE",
                        .help = "The text to run; - is standard input."},
                       {.name = "trace",
                        .type = T::path,
                        .value = "FILE",
                        .help = "Counts the picks of routing traces instead of running a text. CSV traces tell the "
                                "model's layers and experts themselves; others need the model.",
                        .repeated = true,
                        .many = true},
                       out_file("Where the profile goes. Left out: the model's name with .strp, in this folder."),
                       {.name = "slots",
                        .type = T::integer,
                        .value = "N",
                        .fallback = "0",
                        .help = "The number of slots that the file says it was made for, for information only; 0 = as "
                                "many as are ranked.",
                        .min = 0,
                        .max = 4294967295}},
                      compute_params(),
                      residency_params(),
                      log_params()}),
      .examples = {"moetier profile MODEL corpus.txt -o corpus.strp",
                   "moetier profile MODEL --trace a.bin b.bin -o ab.strp",
                   "moetier run -m MODEL --experts stream --moe-cache-profile corpus.strp -p \"Once\""},
      .run = run_profile};
}

Command show_command() {
  return {.name = "profile show",
          .summary = "Show what a profile ranks",
          .description = "Prints a profile's shape, how many entries of each layer it ranks, and the hottest.",
          .positionals = {{.name = "FILE", .help = "The profile.", .param = "profile"}},
          .params = join({{profile_file(),
                           {.name = "top",
                            .type = T::integer,
                            .value = "N",
                            .fallback = "24",
                            .help = "How many of the hottest entries to list.",
                            .min = 0,
                            .max = 16777216},
                           json_flag()},
                          log_params()}),
          .examples = {"moetier profile show corpus.strp --top 100"},
          .run = run_profile_show};
}

Command merge_command() {
  return {.name = "profile merge",
          .summary = "Make one profile of several",
          .description =
              "Ranks entries by the sum of what their places are worth: the first of n ranked places 1, the last 1/n. "
              "All profiles must be of the same shape and weigh alike.",
          .positionals = {{.name = "FILE", .help = "The profiles.", .param = "profile"}},
          .params = join({{profile_file(true), out_file("Where the merged profile goes.")}, log_params()}),
          .examples = {"moetier profile merge english.strp code.strp -o both.strp"},
          .run = run_profile_merge};
}

Command compare_command() {
  return {
      .name = "profile compare",
      .summary = "Tell how alike two profiles are",
      .description =
          "Of the hottest tenth, two, three, five and ten tenths of the shorter ranking, prints the share that both "
          "have, beside what chance would give, and the rank correlation (Spearman) of what both rank.",
      .positionals = {{.name = "A", .help = "A profile.", .param = "profile"},
                      {.name = "B", .help = "Another one.", .param = "other"}},
      .params = join({{profile_file(),
                       {.name = "other", .type = T::path, .value = "FILE", .help = "The profile to compare with."},
                       json_flag()},
                      log_params()}),
      .examples = {"moetier profile compare english.strp code.strp"},
      .run = run_profile_compare};
}

Command validate_command() {
  return {
      .name = "profile validate",
      .summary = "Check a profile against the format and a model",
      .description =
          "Checks every rule of the format: the header, the range of every pair, that none is ranked twice, and the "
          "rank table. With a model, its shape too. Exit code 1 if one is broken.",
      .positionals = {{.name = "FILE", .help = "The profile.", .param = "profile"},
                      {.name = "MODEL", .help = "The model it is for.", .param = "model", .required = false}},
      .params = join({{profile_file()}, model_params(), log_params()}),
      .examples = {"moetier profile validate corpus.strp MODEL"},
      .run = run_profile_validate};
}

}  // namespace

std::vector<Command> profile_commands() {
  return {profile_command(), show_command(), merge_command(), compare_command(), validate_command()};
}

}  // namespace moetier::cli
