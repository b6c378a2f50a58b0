#include "cli/command.h"

int main(int argc, char** argv) {
  return moetier::cli::run_program({argv + 1, argv + argc});
}
