// `octavo completion` and `octavo man`: what the program itself parses, those options included that come from the table (api/options.h), as a script for
// a shell and as pages for man.
#include <algorithm>
#include <cstdio>
#include <format>

#include "octavo/cli/cli.h"
#include "octavo/cli/help.h"
#include "octavo/ir/json.h"
#include "octavo/ir/names.h"
#include "octavo/version.h"

namespace octavo::cli {

namespace {

using Apps = std::vector<CLI::App*>;

Apps CommandsOf(CLI::App& app) {
  return app.get_subcommands([](CLI::App* c) { return !c->get_group().empty(); });
}

std::vector<CLI::Option*> OptionsOf(CLI::App& app) {
  return app.get_options([](CLI::Option* o) { return !o->get_group().empty(); });
}

// "--recipe", "-o".
std::vector<std::string> FlagsOf(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_snames()) flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flags.push_back("--" + name);
  return flags;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::string Joined(const std::vector<std::string>& words, std::string_view between) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : std::string(between)) + word;
  return all;
}

// Names of all commands, or all flags of one.
std::vector<std::string> WordsOf(CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* command : CommandsOf(app)) words.push_back(command->get_name());
  return words;
}
std::vector<std::string> AllFlagsOf(CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : OptionsOf(app)) std::ranges::copy(FlagsOf(*option), std::back_inserter(flags));
  return flags;
}

std::string Bash(CLI::App& app) {
  std::string values, flags = std::format("    '') words='{}' ;;\n", Joined(AllFlagsOf(app), " "));
  for (CLI::App* command : CommandsOf(app)) {
    flags += std::format("    {}) words='{}' ;;\n", command->get_name(), Joined(AllFlagsOf(*command), " "));
    for (const CLI::Option* option : OptionsOf(*command)) {
      const std::string allowed = ValuesOf(*option);
      if (allowed.empty() || FlagsOf(*option).empty()) continue;
      std::vector<std::string> after;
      for (const std::string& flag : FlagsOf(*option)) after.push_back(command->get_name() + ":" + flag);
      values += std::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", Joined(after, " | "),
                            allowed);
    }
  }
  const std::vector<std::string> commands = WordsOf(app);
  return std::format(R"(_octavo() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= words= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in {}) command=${{COMP_WORDS[i]}}; break ;; esac
  done
  case $command:$before in
{}  esac
  case $command in
{}  esac
  case $command:$word in
    *:-*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    :*) COMPREPLY=($(compgen -W '{}' -- "$word")) ;;
    *) COMPREPLY=() ;;
  esac
}}
complete -o default -F _octavo octavo
)",
                     Joined(commands, " | "), values, flags, Joined(commands, " "));
}

// In single quotes, for fish.
std::string Quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string Fish(CLI::App& app) {
  std::string script;
  const std::string none = "not __fish_seen_subcommand_from " + Joined(WordsOf(app), " ");
  for (const CLI::App* command : CommandsOf(app))
    script += std::format("complete -c octavo -f -n {} -a {} -d {}\n", Quote(none), command->get_name(),
                          Quote(command->get_description()));
  for (CLI::App* command : CommandsOf(app)) {
    for (const CLI::Option* option : OptionsOf(*command)) {
      if (FlagsOf(*option).empty()) continue;
      script += std::format("complete -c octavo -n '__fish_seen_subcommand_from {}'", command->get_name());
      for (const std::string& name : option->get_snames()) script += " -s " + name;
      for (const std::string& name : option->get_lnames()) script += " -l " + name;
      if (const std::string allowed = ValuesOf(*option); !allowed.empty()) {
        script += " -x -a " + Quote(allowed);
      } else if (TakesValue(*option)) {
        script += " -r";
      }
      script += std::format(" -d {}\n", Quote(option->get_description()));
    }
  }
  return script;
}

// As troff reads it: one line, whatever it begins with.
std::string Troff(const std::string& text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) out += c == '\\' ? "\\e" : c == '-' ? "\\-" : c == '\n' ? " " : std::string(1, c);
  return out;
}

std::string Lines(const std::string& text) {
  std::string out;
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find('\n', from), text.size());
    out += Troff(text.substr(from, to - from)) + "\n";
    from = to + 1;
  }
  return out;
}

std::string Page(CLI::App& app, const std::string& name) {
  const std::string title = name.empty() ? "octavo" : "octavo-" + name;
  const std::string all = app.get_description(), what = name.empty() ? all.substr(all.find(": ") + 2) : all;
  std::string page = std::format(".TH {} 1 \"\" \"octavo {}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B octavo {}\n",
                                 Troff(title), OCTAVO_VERSION, Troff(title), Troff(what), name);
  for (const CLI::Option* option : OptionsOf(app)) {
    if (FlagsOf(*option).empty()) page += std::format("[{}]\n", Troff(TypeOf(*option)));
  }
  page += name.empty() ? "COMMAND [OPTIONS]\n" : "[OPTIONS]\n";
  if (name.empty()) page += ".SH COMMANDS\n";
  for (const CLI::App* command : CommandsOf(app))
    page += std::format(".TP\n.BR octavo\\-{} (1)\n{}\n", command->get_name(), Troff(command->get_description()));
  page += ".SH OPTIONS\n";
  for (const CLI::Option* option : OptionsOf(app)) {
    const std::string flags = Joined(FlagsOf(*option), ", "), type = Troff(TypeOf(*option));
    const std::string otherwise = option->get_default_str();
    page += flags.empty()         ? std::format(".TP\n.I {}\n", type)
            : TakesValue(*option) ? std::format(".TP\n.BI \"{} \" \"{}\"\n", Troff(flags), type)
                                  : std::format(".TP\n.B {}\n", Troff(flags));
    page += Troff(option->get_description()) + (otherwise.empty() ? "" : std::format(" [{}]", Troff(otherwise))) + "\n";
  }
  if (!app.get_footer().empty()) page += ".SH NOTES\n.nf\n" + Lines(app.get_footer()) + ".fi\n";
  return page + ".SH SEE ALSO\n" + (name.empty() ? "octavo COMMAND \\-\\-help\n" : ".BR octavo (1)\n");
}

// Commands and options that are not this program's but the caller's, as of Python's package, which runs this one: {"tune": {"what": "...", "options":
// [{"flags": "-o,--output", "value": "FILE", "what": "..."}]}}. A value of "": it takes none.
ir::Status AddOthers(CLI::App& app, const std::string& text) {
  if (text.empty()) return {};
  OCTAVO_TRY(const ir::Json commands, ir::ParseJson(text, "--also"));
  for (const auto& [name, command] : commands.items()) {
    const auto& known = app.get_subcommands({});
    const auto it = std::ranges::find(known, name, &CLI::App::get_name);
    CLI::App* const to =
        it != known.end() ? *it : app.add_subcommand(name, ir::Get<std::string>(command, "what").value_or(""));
    if (!command.is_object() || !command.contains("options")) continue;
    for (const ir::Json& option : command["options"]) {
      const std::string flags = ir::Get<std::string>(option, "flags").value_or(""),
                        value = ir::Get<std::string>(option, "value").value_or(""),
                        what = ir::Get<std::string>(option, "what").value_or("");
      if (to->get_option_no_throw(flags.substr(flags.rfind(',') + 1)) != nullptr) continue;
      if (value.empty()) {
        to->add_flag(flags, what);
      } else {
        to->add_option(flags, what)->type_name(value)->expected(1);
      }
    }
  }
  return {};
}

}  // namespace

void AddShell(Program& program) {
  const auto shell = std::make_shared<std::string>(), name = std::make_shared<std::string>(),
             also = std::make_shared<std::string>();
  CLI::App* c =
      program.app.add_subcommand("completion", "print a script that completes commands, options and values in a shell");
  c->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  c->footer("Example:\n  eval \"$(octavo completion bash)\"");
  c->add_option("--also", *also)->group("");
  c->callback([&program, shell, also] {
    program.run = [&app = program.app, shell, also]() -> int {
      if (const auto added = AddOthers(app, *also); !added) return Fail(added.error()), kUsage;
      if (*shell == "zsh") std::fputs("autoload -U +X bashcompinit && bashcompinit\n", stdout);
      std::fputs((*shell == "fish" ? Fish(app) : Bash(app)).c_str(), stdout);
      return kOk;
    };
  });
  CLI::App* m = program.app.add_subcommand("man", "print a page for man, of the program or of a command");
  m->add_option("command", *name, "a command")->type_name("COMMAND");
  m->footer("Example:\n  octavo man optimize | man -l -");
  m->add_option("--also", *also)->group("");
  m->callback([&program, name, also] {
    program.run = [&app = program.app, name, also]() -> int {
      if (const auto added = AddOthers(app, *also); !added) return Fail(added.error()), kUsage;
      const std::vector<std::string> words = WordsOf(app);
      if (!name->empty() && std::ranges::find(words, *name) == words.end())
        return Fail(std::format("there is no command {}; there are: {}", ir::Quoted(*name), Joined(words, ", "))),
               kUsage;
      CLI::App& of = name->empty() ? app : *app.get_subcommand(*name);
      std::fputs(Page(of, *name).c_str(), stdout);
      return kOk;
    };
  });
}

}  // namespace octavo::cli
