// How --help looks: descriptions are wrapped at words, to the width of the terminal.
#ifndef OCTAVO_CLI_HELP_H_
#define OCTAVO_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace octavo::cli {

// Lines of at most `width` columns; a word that is longer stands alone.
std::string Wrapped(std::string_view text, size_t width);
// For the program, before it has commands. Columns are the terminal's, else COLUMNS, else 100.
std::shared_ptr<CLI::FormatterBase> HelpFormatter();

}  // namespace octavo::cli

#endif  // OCTAVO_CLI_HELP_H_
