// inspect: what a GGUF file holds.
#include "base/progress.h"
#include "cli/command.h"
#include "cli/inspect_report.h"
#include "cli/support.h"
#include "gguf/check.h"

namespace moetier::cli {

int run_inspect(const Settings& settings) {
  const GgufFile file = open_model_file(settings);
  if (settings.flag("check")) {
    Progress progress("checking weights");
    check_tensor_data(file, [&](uint64_t done, uint64_t total) { progress.update(done, total); });
  }
  constexpr int64_t kShownElements = 8;
  const bool json = settings.flag("json");
  const auto report = inspect_report(file, settings.flag("full") ? -1 : kShownElements);
  if (json) {
    print_json(report);
  } else {
    print_out(inspect_text(report));
  }
  return 0;
}

}  // namespace moetier::cli
