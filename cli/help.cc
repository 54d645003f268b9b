#include "octavo/cli/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace octavo::cli {

namespace {

constexpr size_t kMost = 140;  // a longer line is hard to read, however wide the terminal is

class Formatter : public CLI::Formatter {
 public:
  Formatter() : columns_(std::min(Columns(), kMost)) { column_width(columns_ < 70 ? 20 : 30); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return Wrapped(CLI::Formatter::make_option_desc(option), Room());
  }
  // "{md,csv}" instead of "TEXT:{md,csv}".
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option), type = option->get_type_name();
    const size_t at = type.ends_with('}') ? text.find(type) : std::string::npos;
    return at == std::string::npos ? text : std::string(text).replace(at, type.size(), TypeOf(*option));
  }
  std::string make_description(const CLI::App* app) const override {
    return Lines(CLI::Formatter::make_description(app));
  }
  std::string make_footer(const CLI::App* app) const override { return Lines(CLI::Formatter::make_footer(app)); }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream line;
    CLI::detail::format_help(line, command->get_display_name(true), Wrapped(command->get_description(), Room()),
                             get_column_width());
    return line.str();
  }

 private:
  // Each line wrapped; those that begin with spaces are commands, which can be pasted: their lines but the last end with a backslash.
  std::string Lines(const std::string& text) const {
    std::string out;
    for (size_t from = 0, to = 0; from < text.size(); from = to + 1) {
      to = std::min(text.find('\n', from), text.size());
      const std::string line = text.substr(from, to - from);
      const bool command = line.starts_with("  ");
      constexpr size_t kIndent = 6, kBackslash = 2;
      const std::string wrapped = command ? Wrapped(line, columns_ - kIndent - kBackslash) : Wrapped(line, columns_);
      out += command ? "  " + CLI::detail::find_and_replace(wrapped, "\n", " \\\n      ") : wrapped;
      if (to < text.size()) out += "\n";
    }
    return out;
  }
  size_t Room() const {
    return std::max<size_t>(columns_ > get_column_width() ? columns_ - get_column_width() : 0, 20);
  }
  size_t columns_;
};

}  // namespace

size_t Columns() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const long said = columns == nullptr ? 0 : std::strtol(columns, nullptr, 10);
  return said > 0 ? static_cast<size_t>(said) : 100;
}

std::string Wrapped(std::string_view text, size_t width) {
  std::string out;
  size_t used = 0;
  while (true) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    if (text.empty()) return out;
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    const bool fits = used + 1 + word.size() <= width;
    if (used > 0) out += fits ? ' ' : '\n';
    out += word;
    used = used > 0 && fits ? used + 1 + word.size() : word.size();
  }
}

std::string ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.rfind('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  std::string values = type.substr(open + 1, close - open - 1);
  std::ranges::replace(values, ',', ' ');
  return values;
}

std::string TypeOf(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  if (colon == std::string::npos) return type;
  return type.ends_with('}') ? type.substr(colon + 1) : type.substr(0, colon);
}

std::shared_ptr<CLI::FormatterBase> HelpFormatter() { return std::make_shared<Formatter>(); }

}  // namespace octavo::cli
