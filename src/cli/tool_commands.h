// The tables of the commands that look ahead: what a trace says, what a machine could do.
#pragma once

#include "cli/command.h"

namespace moetier::cli {

Command trace_show_command();
Command plan_command();
Command predict_command();
Command bench_grid_command();
Command compare_command();
Command eval_code_command();
Command check_all_command();

}  // namespace moetier::cli
