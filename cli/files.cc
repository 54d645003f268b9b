// Which files a command reads and writes, and that none of them is written over.
#include <sys/stat.h>

#include <filesystem>
#include <format>
#include <map>

#include "octavo/cli/cli.h"
#include "octavo/ir/names.h"

namespace octavo::cli {

namespace {

namespace fs = std::filesystem;

std::string command_line;

// One file by whatever path: device and inode where it is there, else the path without links.
std::string IdentityOf(const fs::path& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0) return std::format("{}:{}", info.st_dev, info.st_ino);
  std::error_code ec;
  const fs::path real = fs::weakly_canonical(path, ec);
  return ec ? path.string() : real.string();
}

using Taken = std::map<std::string, const NamedFile*>;  // by identity

// A folder of batches is all files in it.
void Take(const NamedFile& file, Taken& taken) {
  taken.try_emplace(IdentityOf(file.path), &file);
  std::error_code ec;
  for (fs::recursive_directory_iterator it(file.path, ec), end; !ec && it != end; it.increment(ec)) {
    if (it.depth() >= 1) it.disable_recursion_pending();
    taken.try_emplace(IdentityOf(it->path()), &file);
  }
}

}  // namespace

ir::Status CheckFiles(const std::vector<NamedFile>& read, const std::vector<NamedFile>& written) {
  Taken taken;
  for (const NamedFile& file : read) {
    if (!file.path.empty()) Take(file, taken);
  }
  for (const NamedFile& file : written) {
    if (file.path.empty() || file.path == "-") continue;
    const std::string name = ir::Quoted(file.path);
    std::error_code ec;
    const fs::path parent = fs::absolute(file.path, ec).parent_path();
    if (!fs::is_directory(parent, ec))
      return ir::Fail("cannot write {}: there is no folder {}", name, ir::Quoted(parent.string()));
    const fs::file_status status = fs::status(file.path, ec);
    if (fs::is_directory(status)) return ir::Fail("cannot write {}: it is a folder; name a file", name);
    if (fs::exists(status) && !fs::is_regular_file(status)) continue;  // a pipe takes more than one
    const auto [it, fresh] = taken.try_emplace(IdentityOf(file.path), &file);
    if (!fresh && !(file.may_replace && it->second->may_replace))
      return ir::Fail("cannot write {} for {}: it is {} too; give each its own file", name, file.what,
                      it->second->what);
    it->second = &file;
  }
  return {};
}

void SetCommandLine(int argc, char** argv) {
  command_line = "octavo";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-./:=,+%@") == std::string_view::npos;
    command_line += ' ';
    if (plain) {
      command_line += word;
      continue;
    }
    command_line += '\'';
    for (const char c : word) command_line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command_line += '\'';
  }
}
const std::string& CommandLine() { return command_line; }

bool SameFile(const std::string& a, const std::string& b) { return IdentityOf(a) == IdentityOf(b); }

}  // namespace octavo::cli
