// quantize: a model in another tensor type.
#include <fmt/format.h>

#include "base/log.h"
#include "base/progress.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/support.h"
#include "model/quantize.h"

namespace moetier::cli {

int run_quantize(const Settings& settings) {
  QuantizeReport report;
  {
    Progress progress("quantizing");
    QuantizeOptions options;
    options.threads = thread_count(settings);
    options.allow_requantize = settings.flag("allow-requantize");
    options.pure = settings.flag("pure");
    options.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
    report = quantize_file(need(settings, "model"), need(settings, "out"), need(settings, "type"), options);
  }
  log::info("{}: {} in {} tensors, {:.2f} bits per weight (was {})", settings.text("out"),
            format_bytes(report.output_bytes), report.tensors, report.bits_per_weight,
            format_bytes(report.input_bytes));
  return 0;
}

}  // namespace moetier::cli
