// tokenize and detokenize: what a model's vocabulary makes of a text, and back.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

std::string input_text(const Settings& settings, std::string_view inline_name) {
  if (settings.is_set("file") && settings.is_set(inline_name))
    usage_error("--file and --{} exclude each other", inline_name);
  if (settings.is_set(inline_name)) return settings.text(inline_name);
  return read_input(settings.is_set("file") ? settings.text("file") : "-");
}

}  // namespace

int run_tokenize(const Settings& settings) {
  const GgufFile file = open_model_file(settings);
  const auto tokenizer = Tokenizer::load(file);
  const bool special = settings.flag("special");
  const auto ids =
      tokenizer->encode(input_text(settings, "prompt"), {.add_special = special, .parse_special = special});
  if (settings.flag("pieces")) {
    std::string out;
    for (const TokenId id : ids) {
      const nlohmann::json piece = tokenizer->piece(id, true);
      out += fmt::format("{:>7}  {}\n", id, piece.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
    print_out(out);
  } else {
    print_out(nlohmann::json(ids).dump() + "\n");
  }
  return 0;
}

int run_detokenize(const Settings& settings) {
  const GgufFile file = open_model_file(settings);
  const auto tokenizer = Tokenizer::load(file);
  print_out(tokenizer->decode(parse_ids(input_text(settings, "tokens")), settings.flag("special")));
  return 0;
}

}  // namespace moetier::cli
