#include "octavo/cli/cli.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <map>
#include <numeric>

#include "octavo/api/open.h"
#include "octavo/api/words.h"
#include "octavo/cli/help.h"
#include "octavo/ir/names.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/onnx/tensor_file.h"
#include "octavo/passes/plugin.h"
#include "octavo/passes/quantize/caches.h"

namespace octavo::cli {

namespace {

ir::onnx::ReadOptions read_options;  // of this run of the program
std::vector<std::string> plugins;
std::atomic<bool> interrupted = false;
std::atomic<int> patience = -1;  // seconds; none: -1
void OnSignal(int) {
  const int seconds = patience;
  if (interrupted.exchange(true) || seconds < 0) _exit(kInterrupted);
  alarm(static_cast<unsigned>(seconds));
}
void OnAlarm(int) { _exit(kInterrupted); }

// Characters that a terminal shows for `s` (UTF-8 continuation bytes take no column).
size_t Width(const std::string& s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// Headings, and what became of a node.
std::string Coloured(const std::string& cell, bool heading) {
  const char* const colour = heading                                  ? "1"
                             : cell == "fused" || cell == "quantized" ? "32"
                             : cell == "left"                         ? "31"
                                                                      : nullptr;
  return colour == nullptr ? cell : std::format("\033[{}m{}\033[0m", colour, cell);
}

// A name without its middle.
std::string Elided(const std::string& s, size_t width) {
  std::vector<size_t> starts;  // of characters
  for (size_t i = 0; i < s.size(); ++i) {
    if ((s[i] & 0xc0) != 0x80) starts.push_back(i);
  }
  if (starts.size() <= width) return s;
  const size_t head = (width - 1) / 2, tail = width - 1 - head;
  return s.substr(0, starts[head]) + "…" + s.substr(starts[starts.size() - tail]);
}

constexpr size_t kLeastOfLast = 20;

// Where a table is wider than the terminal that shows it: what stands last is wrapped, and names in the widest columns before it lose their middle.
void FitToTerminal(std::vector<std::vector<std::string>>& rows, std::vector<size_t>& widths,
                   const std::vector<size_t>& right) {
  constexpr size_t kLeast = 12;
  const size_t columns = isatty(STDOUT_FILENO) != 0 ? Columns() : 0, n = widths.size();
  const auto is_text = [&right](size_t i) { return std::ranges::find(right, i) == right.end(); };
  const auto total = [&widths, n] { return std::accumulate(widths.begin(), widths.end(), 2 * (n - 1)); };
  if (columns == 0 || n == 0 || total() <= columns) return;
  if (is_text(n - 1)) widths[n - 1] = std::min(widths[n - 1], std::max(kLeastOfLast, columns / 3));
  while (total() > columns) {
    size_t widest = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (is_text(i) && widths[i] > kLeast && (widest == n || widths[i] > widths[widest])) widest = i;
    }
    if (widest == n) break;
    --widths[widest];
  }
  size_t before = 2 * (n - 1);
  for (size_t i = 0; i + 1 < n; ++i) before += widths[i];
  if (is_text(n - 1)) widths[n - 1] = std::max(kLeastOfLast, columns > before ? columns - before : 0);
  for (auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) row[i] = Elided(row[i], widths[i]);
    if (row.size() != n || !is_text(n - 1)) continue;
    std::string wrapped;
    for (const char c : Wrapped(row[n - 1], widths[n - 1])) {
      wrapped += c;
      if (c == '\n') wrapped.append(before, ' ');
    }
    row[n - 1] = std::move(wrapped);
  }
}

bool IsOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.'; }

}  // namespace

std::string InFlags(std::string sentence) {
  static const auto words = api::WordsOfProgram();
  for (const auto& [name, flag] : words) {
    for (size_t at = 0; (at = sentence.find(name, at)) != std::string::npos; at += flag.size()) {
      const std::string_view before = std::string_view(sentence).substr(0, at),
                             after = std::string_view(sentence).substr(at + name.size());
      const bool whole = (before.empty() || !IsOfName(before.back())) && (after.empty() || !IsOfName(after.front())) &&
                         (!name.ends_with('=') || after.empty() || std::string_view(" ,;:)").contains(after.front()));
      const bool quoted = std::ranges::count(before, '\'') % 2 == 1;  // out of the model, or what the caller wrote
      // A word that people use as well is meant where it begins a sentence of its own or a bracket, or is said to do something.
      const bool meant = name.find_first_of("_=(.") != std::string::npos ||
                         (before.empty() && after.starts_with(": ")) || before.ends_with(" by ") ||
                         before.ends_with('(');
      // A pass may have the option's name, and stands in a list of passes.
      const bool listed = before.ends_with(", ") && (after.empty() || after.starts_with(", "));
      if (whole && !quoted && meant && !listed) sentence.replace(at, name.size(), flag);
    }
  }
  return sentence;
}

bool HasColours(std::FILE* stream) {
  const auto set = [](const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
  };
  return set("NO_COLOR").empty() && set("TERM") != "dumb" && !set("TERM").empty() && isatty(fileno(stream)) == 1;
}

namespace {
constexpr size_t kMostSaid = 4000;  // of a sentence; as the library's own calls have it
}  // namespace

int Fail(const std::string& sentence) {
  const bool red = HasColours(stderr);
  std::fprintf(stderr, "%soctavo:%s %s\n", red ? "\033[31m" : "", red ? "\033[0m" : "",
               ir::Clean(sentence, kMostSaid).c_str());
  return kFailed;
}
int Fail(const ir::Error& error) { return Fail(InFlags(error.message)); }

void Note(const std::string& sentence) {
  if (sentence.empty()) return;
  const bool yellow = HasColours(stderr);
  std::fprintf(stderr, "octavo: %snote:%s %s\n", yellow ? "\033[33m" : "", yellow ? "\033[0m" : "",
               ir::Clean(InFlags(sentence), kMostSaid).c_str());
}

std::string Paragraph(std::string_view text, size_t indent) {
  if (isatty(STDOUT_FILENO) == 0) return std::string(text);
  const std::string wrapped = Wrapped(text, std::max(Columns(), indent + kLeastOfLast) - indent);
  return CLI::detail::find_and_replace(wrapped, "\n", "\n" + std::string(indent, ' '));
}

std::string Table(const std::vector<std::vector<std::string>>& cells, const std::vector<size_t>& right) {
  std::vector<std::vector<std::string>> rows = cells;
  for (auto& row : rows) {
    for (std::string& cell : row) cell = ir::Clean(cell, cell.size());
  }
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    if (widths.size() < row.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  FitToTerminal(rows, widths, right);
  std::string out;
  const bool colours = HasColours(stdout);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - std::min(widths[i], Width(row[i])), ' ');
      const bool at_right = std::find(right.begin(), right.end(), i) != right.end();
      const bool last = i + 1 == row.size();
      const std::string cell = colours ? Coloured(row[i], &row == &rows.front()) : row[i];
      out += at_right ? pad + cell : cell + (last ? "" : pad);
      out += last ? "\n" : "  ";
    }
  }
  return out;
}

const std::atomic<bool>& Interrupted() { return interrupted; }
void CatchInterrupts() {
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  std::signal(SIGALRM, OnAlarm);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of file sizes fails
}
Patience::Patience(int seconds) { patience = seconds; }
Patience::~Patience() {
  patience = -1;
  alarm(0);
}

std::string PackedFlags::PathFor(const std::string& model) const {
  return !file.empty() ? file : beside ? api::PackedBeside(model) : std::string();
}

void AddPacked(CLI::App& command, PackedFlags& flags) {
  command.add_flag(
      "--packed", flags.beside,
      "keep the weights as products read them in MODEL.octavo-packed, from which the next start maps them");
  command.add_option("--packed-file", flags.file, "the same in this file")->type_name("FILE")->excludes("--packed");
}

void AddReadOptions(CLI::App& command) {
  using ir::onnx::AttentionOrder;
  command
      .add_option(
          "--attention-order", read_options.attention_order,
          "what ONNX Attention means, which changed in place: 1.18, mask before soft cap; 1.22, soft cap before mask; "
          "producer: 1.18 for PyTorch before 2.13, else 1.22")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, AttentionOrder>{{"producer", AttentionOrder::kByProducer},
                                                                        {"1.18", AttentionOrder::kOnnx118},
                                                                        {"1.22", AttentionOrder::kOnnx122}})
              .description(""))
      ->type_name("{producer,1.18,1.22}");
  ir::Limits& limits = read_options.limits;
  command
      .add_option("--max-memory", limits.max_memory,
                  std::format("bytes of all tensors that reading, optimizing, compiling or one run may hold at once, "
                              "as 4GB or 512MB; unless given {} MB, and "
                              "four and a sixteenth of the number of elements of the inputs for each byte of the model",
                              ir::kDefaultMemory / 1'000'000))
      ->transform(CLI::AsSizeValue(true).description(""))
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("BYTES");
  command
      .add_option("--max-nodes", limits.max_nodes,
                  std::format("nodes that a model may have with its functions inlined; unless given {}, and one for "
                              "every 16 bytes of the model",
                              ir::kDefaultNodes))
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("N");
  command
      .add_option(
          "--plugin", plugins,
          "a shared object with passes or rules of your own (docs/extending.md), which then stand in recipes and "
          "pipelines; may be given more than once")
      ->type_name("FILE.so")
      ->allow_extra_args(false);
}

ir::Result<const passes::Registry*> LoadedPasses() {
  static auto* const registry = new passes::Registry;
  static std::vector<std::string> loaded;
  for (const std::string& path : plugins) {
    if (std::ranges::find(loaded, path) != loaded.end()) continue;
    OCTAVO_TRY_STATUS(passes::LoadPlugin(path, *registry).transform([](const auto&) {}));
    loaded.push_back(path);
  }
  return registry;
}

ir::Result<ir::Graph> ReadModel(const std::string& path, std::vector<NamedFile>* files, bool map_data) {
  std::vector<std::filesystem::path> external;
  ir::onnx::ReadOptions options = read_options;
  options.files = &external;
  options.map_data = map_data;
  auto graph = ir::onnx::ReadFile(path, options);
  if (files != nullptr) {
    for (const auto& file : external) files->push_back({file.string(), "data of the model " + ir::Quoted(path)});
  }
  if (graph) {
    for (const std::string& note : graph->info.notes) Note(std::format("{}: {}", path, note));
  }
  return graph;
}

ir::Result<std::unique_ptr<quant::DataSource>> OpenDataFor(const ir::Graph& graph, const std::string& where) {
  quant::DataOptions options;
  options.read_tensor_file = ir::onnx::ReadTensorFile;
  options.random.limits = quant::IdLimits(graph);
  options.limits = read_options.limits;
  return quant::OpenData(where, quant::InputsOf(graph), options);
}

ir::Result<ir::TensorMap> ReadInputs(const ir::Graph& graph, const std::string& path) {
  OCTAVO_TRY(ir::TensorMap arrays, ir::ReadNpz(path, read_options.limits));
  passes::quantize::EncodeCaches(passes::quantize::CodedCaches(graph), arrays);
  return quant::FitInputs(std::move(arrays), quant::InputsOf(graph), path, quant::Numbers::kMayBeNaN);
}

int64_t FileBytes(const std::string& path) {
  std::error_code ec;
  const auto size = std::filesystem::file_size(path, ec);
  return ec ? 0 : static_cast<int64_t>(size);
}

std::string HumanBytes(int64_t bytes) {
  if (bytes < 10'000) return std::format("{} B", bytes);
  if (bytes < 10'000'000) return std::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
  return std::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

}  // namespace octavo::cli
