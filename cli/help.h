// How --help looks: descriptions are wrapped at words, to the width of the terminal.
#ifndef OCTAVO_CLI_HELP_H_
#define OCTAVO_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace octavo::cli {

// Of the terminal that stdout is, else what COLUMNS says, else 100.
size_t Columns();
// Lines of at most `width` columns; a word that is longer stands alone.
std::string Wrapped(std::string_view text, size_t width);
// What stands between the last braces of an option's type: "TEXT:{md,csv,json}" has "md csv json".
std::string ValuesOf(const CLI::Option& option);
// What help writes for people without what it writes for itself: "TEXT:{md,csv}" is {md,csv}, "INT:INT in [0 - 1024]" is INT.
std::string TypeOf(const CLI::Option& option);
// For the program, before it has commands.
std::shared_ptr<CLI::FormatterBase> HelpFormatter();

}  // namespace octavo::cli

#endif  // OCTAVO_CLI_HELP_H_
