// The program as a function: `octavo` is nothing else, wherever it is linked (a wheel has all of octavo in one library).
#ifndef OCTAVO_CLI_PROGRAM_H_
#define OCTAVO_CLI_PROGRAM_H_

namespace octavo::cli {

int Main(int argc, char** argv);

}  // namespace octavo::cli

#endif  // OCTAVO_CLI_PROGRAM_H_
