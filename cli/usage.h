// What a wrong command line is told.
#ifndef OCTAVO_CLI_USAGE_H_
#define OCTAVO_CLI_USAGE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace octavo::cli {

// One sentence: what was written, why it is wrong, what is right. app: after it has thrown the error.
std::string WrongUsage(CLI::App& app, const CLI::ParseError& error);

}  // namespace octavo::cli

#endif  // OCTAVO_CLI_USAGE_H_
