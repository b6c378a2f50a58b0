// What several subcommands need: reading their input, loading a model, printing results.
#pragma once

#include <atomic>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/settings.h"
#include "engine/context.h"
#include "experts/trace.h"

namespace moetier::cli {

/// Writes to standard output and flushes; fails if that cannot be done.
void print_out(std::string_view text);
void print_json(const nlohmann::ordered_json& json);

/// A file whole, of at most kMaxInputBytes; "-" is standard input.
std::string read_input(const std::string& path);
inline constexpr uint64_t kMaxInputBytes = uint64_t{256} << 20;

/// A usage error if the file that --`out` names is one that the run reads (--model, --file).
void refuse_overwriting(const Settings& settings, std::string_view out, std::initializer_list<std::string_view> inputs);

/// Parses JSON nested at most kMaxJsonDepth levels; `name` stands in errors.
nlohmann::ordered_json parse_json(const std::string& text, const std::string& name);
inline constexpr int kMaxJsonDepth = 200;

/// The parameter's text, or a usage error that names the flag.
const std::string& need(const Settings& settings, std::string_view name);

/// A trace whose first --prompt-tokens tokens are the prompt (in a CSV trace, those that it says are); a usage error if
/// it has fewer tokens.
RoutingTrace read_prompted_trace(const std::string& path, const Settings& settings);

/// Ids separated by commas or white space, or a JSON array of them. An error (usage) names what is not an id.
std::vector<TokenId> parse_ids(std::string_view text);

/// What --threads asks for; auto is the CPUs that this process may use.
int thread_count(const Settings& settings);

GgufFile open_model_file(const Settings& settings);
/// `wanted`: positions per sequence that its context will be made for, as for context_options(). `top_k`: experts that
/// a token uses, whatever the model and --n-expert-used say; 0 = as they say.
std::unique_ptr<Engine> load_engine(const Settings& settings, int64_t wanted = 0, int64_t top_k = 0);

/// For `wanted` positions per sequence when --ctx leaves it open (0: as the context decides). Prompts pass layer by
/// layer where the engine streams entries.
ContextOptions context_options(const Settings& settings, Engine& engine, int64_t wanted = 0);

/// What the flags say about the context's routing: --drop-cold-experts.
void apply_routing(const Settings& settings, Context& context);

/// Turns true at the first Ctrl-C (from the first call of this function on); a second one ends the process.
const std::atomic<bool>& interrupted();
/// Forgets a Ctrl-C that has done its work, so that the next one is a first one again.
void forget_interrupt();

}  // namespace moetier::cli
