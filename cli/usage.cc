#include "octavo/cli/usage.h"

#include <algorithm>
#include <format>
#include <string_view>
#include <vector>

#include "octavo/cli/help.h"
#include "octavo/ir/names.h"
#include "octavo/ir/near.h"

namespace octavo::cli {

namespace {

// What the package for Python adds to this program, which hands on the rest: python_bindings/octavo/_completion.py.
constexpr std::string_view kOfPython[] = {"generate",      "perplexity",     "tune",           "--calib-text",
                                          "--tokenizer",   "--calib-tokens", "--calib-images", "--processor",
                                          "--calib-batch", "--calib-keep",   "--against"};

std::vector<std::string> Split(std::string text, char at) {
  std::vector<std::string> words;
  for (size_t end = 0; !text.empty(); text.erase(0, std::min(end, text.size() - 1) + 1)) {
    end = text.find(at);
    words.push_back(text.substr(0, end));
  }
  return words;
}

// "a whole number from 0 to 1024".
std::string Taken(const CLI::Option& option) {
  const std::string values = ValuesOf(option), all = option.get_type_name(), type = TypeOf(option);
  if (!values.empty()) return ir::Listed(Split(values, ' '), "or");
  const size_t range = all.find(" in ["), to = all.find(" - ", range == std::string::npos ? 0 : range);
  const std::string number = all.contains("INT") ? "a whole number" : "a number";
  if (range != std::string::npos && to != std::string::npos)
    return std::format("{} from {} to {}", number, all.substr(range + 5, to - range - 5),
                       all.substr(to + 3, all.find(']') - to - 3));
  if (all.ends_with("POSITIVE")) return number + " above 0";
  if (type == "BYTES") return "a number of bytes, as 512MB or 4GB";
  return type == "INT" || type == "FLOAT" ? number : type;
}

CLI::App& CommandOf(CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : *parsed.front();
}
std::string CallOf(const CLI::App& app, const CLI::App& command) {
  return &command == &app ? "octavo" : "octavo " + command.get_name();
}

std::string Unexpected(CLI::App& app, CLI::App& command) {
  const std::vector<std::string> rest = app.remaining(true);
  const std::string word = rest.empty() ? "" : rest[0], call = CallOf(app, command);
  if (std::ranges::contains(kOfPython, word.substr(0, word.find('='))))
    return std::format("{} is of octavo's package for Python alone: python3 -m octavo {} --help", word,
                       word.starts_with('-') ? command.get_name() : word);
  if (word.starts_with('-')) {
    std::vector<std::string> flags;
    for (const CLI::Option* o : command.get_options()) {
      for (const std::string& name : o->get_lnames()) flags.push_back("--" + name);
    }
    return std::format("{} has no option {}{}; {} --help lists those that there are", call, ir::Quoted(word),
                       ir::Near(word, flags), call);
  }
  if (&command != &app)
    return std::format("{} is one word too many for {}; {} --help says what it takes", ir::Quoted(word), call, call);
  std::vector<std::string> commands;
  for (const CLI::App* c : app.get_subcommands([](CLI::App* c) { return !c->get_group().empty(); }))
    commands.push_back(c->get_name());
  if (word.empty()) return std::format("octavo needs a command: {}", ir::Listed(commands, "or"));
  return std::format("there is no command {}{}; there are: {}", ir::Quoted(word), ir::Near(word, commands),
                     ir::Listed(commands, "and"));
}

std::string Missing(CLI::App& app, CLI::App& command, const std::string& name) {
  const CLI::Option* option = command.get_option_no_throw(name);
  const std::string call = CallOf(app, command);
  const std::string what = option == nullptr       ? name
                           : name.starts_with('-') ? std::format("{} {}", name, TypeOf(*option))
                           : option->get_description().empty()
                               ? TypeOf(*option)
                               : std::format("{} ({})", TypeOf(*option), option->get_description());
  return std::format("{} needs {}; {} --help has an example", call, what, call);
}

// Of an option's value, or that there is none.
std::string WrongValue(CLI::App& app, CLI::App& command, const std::string& text, bool lacks) {
  for (CLI::App* const a : {&command, &app}) {
    for (const CLI::Option* option : a->get_options()) {
      const std::string name = option->get_name();
      if (!text.starts_with(name + ":") && !text.contains(": " + name + " = ")) continue;
      const std::vector<std::string>& given = option->results();
      if (lacks) return std::format("{} needs a value: {}", name, Taken(*option));
      if (given.empty() || given.back().empty()) return std::format("{} takes {}", name, Taken(*option));
      const auto is_it = [&](const std::string& v) { return text.contains(" " + v + " ") || text.ends_with(" " + v); };
      const auto wrong = std::ranges::find_if(given, is_it);
      return std::format("{} takes {}, not {}", name, Taken(*option),
                         ir::Quoted(wrong == given.end() ? given.back() : *wrong));
    }
  }
  return std::format("{}; {} --help says what it takes", text, CallOf(app, command));
}

}  // namespace

std::string WrongUsage(CLI::App& app, const CLI::ParseError& error) {
  CLI::App& command = CommandOf(app);
  const std::string text = error.what();
  constexpr std::string_view kRequired = " is required";
  const bool lacks = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || (lacks && &command == &app))
    return Unexpected(app, command);
  if (lacks && text.ends_with(kRequired)) {
    // A word that nobody knows is what is wrong first: a misspelt option leaves another one out.
    const std::vector<std::string> rest = app.remaining(true);
    if (!rest.empty() && rest[0].starts_with('-')) return Unexpected(app, command);
    return Missing(app, command, text.substr(0, text.size() - kRequired.size()));
  }
  return WrongValue(app, command, text, dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr);
}

}  // namespace octavo::cli
