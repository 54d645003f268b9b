#include "octavo/cli/program.h"

#include <cstdio>

#include "octavo/api/version_text.h"
#include "octavo/cli/cli.h"
#include "octavo/cli/help.h"
#include "octavo/cli/usage.h"
#include "octavo/ir/closed.h"
#include "octavo/kernels/arch/arch.h"
#include "octavo/kernels/arch/quota.h"

namespace octavo::cli {

// The code, unless what was printed went nowhere.
static int Printed(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return Fail("cannot write to standard output: no room, or nobody reads it");
}

int Main(int argc, char** argv) {
  CatchInterrupts();
  SetCommandLine(argc, argv);
  Program program;
  program.app.formatter(HelpFormatter());
  program.app.set_version_flag("--version", api::VersionText());
  program.app.name("octavo");
  program.app.require_subcommand(1);
  program.app.fallthrough();  // options of the program may follow those of the command
  program.app.footer(
      "Example:\n"
      "  octavo optimize model.onnx -o model.int8.onnx --calib batches/ --report report.html\n"
      "  octavo compare model.onnx model.int8.onnx --data batches/\n"
      "  octavo bench model.int8.onnx --threads 2\n"
      "Exit codes: 0 done, 1 an input or the work failed (one sentence on stderr), 2 wrong usage, 3 optimize: "
      "something "
      "that --require-fused names was not fused, 130 interrupted.");
  AddOptimize(program);
  AddRun(program);
  AddBench(program);
  AddCompare(program);
  AddCalibrate(program);
  AddExplain(program);
  AddInspect(program);
  AddPrint(program);
  AddPasses(program);
  AddShell(program);
  AddReadOptions(program.app);
  for (CLI::App* command : program.app.get_subcommands({})) AddReadOptions(*command);
  try {
    program.app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return Printed(program.app.exit(e));  // --help, --version
    return Fail(WrongUsage(program.app, e)), kUsage;
  }
  std::string problem;  // a forced path that cannot be taken is said, whatever the command
  kernels::BestArch(&problem);
  if (!problem.empty()) Fail(problem);
  problem.clear();
  kernels::DefaultThreads(&problem);
  Note(problem);
  try {
    const int code = program.run();
    if (Interrupted()) return kInterrupted;
    return Printed(code);
  } catch (...) {  // out of memory and the like
    return Interrupted() ? kInterrupted : Fail(ir::ErrorOf(std::current_exception(), "octavo"));
  }
}

}  // namespace octavo::cli
