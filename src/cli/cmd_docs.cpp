#include <fmt/format.h>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/support.h"
#include "model/model.h"

namespace moetier::cli {
namespace {

std::string models_page() {
  std::string out =
      "# Models\n\nThis page is made by `moetier docs models` from the registry (`src/model/registry.cpp`); do not "
      "edit it.\n\n"
      "| `general.architecture` | what it is |\n|---|---|\n";
  for (const Architecture& a : architectures()) out += fmt::format("| `{}` | {} |\n", a.name, a.description);
  return out;
}

}  // namespace

int run_docs(const Settings& settings) {
  const std::string& kind = settings.text("kind");
  std::string text;
  if (kind == "cli") text = markdown_reference();
  if (kind == "models") text = models_page();
  if (kind == "man") text = man_page();
  if (kind == "bash") text = bash_completion();
  if (kind == "zsh") text = zsh_completion();
  if (kind == "fish") text = fish_completion();
  print_out(text);
  return 0;
}

}  // namespace moetier::cli
