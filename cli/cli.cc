#include "octavo/cli/cli.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <format>
#include <map>

#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/onnx/tensor_file.h"
#include "octavo/passes/quantize/caches.h"

namespace octavo::cli {

namespace {

ir::onnx::ReadOptions read_options;  // of this run of the program
std::atomic<bool> interrupted = false;
void OnSignal(int) {
  if (interrupted.exchange(true)) _exit(kInterrupted);  // the second Ctrl-C ends at once
}

// Characters that a terminal shows for `s` (UTF-8 continuation bytes take no column).
size_t Width(const std::string& s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

int Fail(const std::string& sentence) {
  std::fprintf(stderr, "octavo: %s\n", sentence.c_str());
  return kFailed;
}
int Fail(const ir::Error& error) { return Fail(error.message); }

void Note(const std::string& sentence) {
  if (!sentence.empty()) std::fprintf(stderr, "octavo: note: %s\n", sentence.c_str());
}

std::string Table(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    if (widths.size() < row.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - Width(row[i]), ' ');
      const bool at_right = std::find(right.begin(), right.end(), i) != right.end();
      const bool last = i + 1 == row.size();
      out += at_right ? pad + row[i] : row[i] + (last ? "" : pad);
      out += last ? "\n" : "  ";
    }
  }
  return out;
}

Progress::Progress(bool enabled) : enabled_(enabled && isatty(STDERR_FILENO) != 0) {}
Progress::~Progress() { Done(); }
void Progress::Show(std::string_view stage, int64_t done, int64_t total) {
  if (!enabled_) return;
  std::string bar;
  if (total > 0) {
    constexpr int64_t kWidth = 30;
    const int64_t filled = kWidth * done / total;
    bar = " [" + std::string(static_cast<size_t>(filled), '#') +
          std::string(static_cast<size_t>(kWidth - filled), '.') + "]";
  }
  std::fprintf(stderr, "\r\033[K%s%s %lld%s", std::string(stage).c_str(), bar.c_str(), static_cast<long long>(done),
               total > 0 ? std::format("/{}", total).c_str() : "");
  std::fflush(stderr);
  drawn_ = true;
}
void Progress::Done() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

const std::atomic<bool>& Interrupted() { return interrupted; }
void CatchInterrupts() {
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
}

void AddReadOptions(Program& program) {
  using ir::onnx::AttentionOrder;
  program.app
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
}

ir::Result<ir::Graph> ReadModel(const std::string& path) {
  auto graph = ir::onnx::ReadFile(path, read_options);
  if (graph) {
    for (const std::string& note : graph->info.notes) Note(std::format("{}: {}", path, note));
  }
  return graph;
}

ir::Result<std::unique_ptr<quant::DataSource>> OpenDataFor(const ir::Graph& graph, const std::string& where) {
  quant::DataOptions options;
  options.read_tensor_file = ir::onnx::ReadTensorFile;
  options.random.limits = quant::IdLimits(graph);
  return quant::OpenData(where, quant::InputsOf(graph), options);
}

ir::Result<ir::TensorMap> ReadInputs(const ir::Graph& graph, const std::string& path) {
  OCTAVO_TRY(ir::TensorMap arrays, ir::ReadNpz(path));
  passes::quantize::EncodeCaches(passes::quantize::CodedCaches(graph), arrays);
  return quant::FitInputs(std::move(arrays), quant::InputsOf(graph), path, quant::Numbers::kMayBeNaN);
}

ir::Status CheckFiles(const std::vector<NamedFile>& read, const std::vector<NamedFile>& written) {
  namespace fs = std::filesystem;
  std::map<fs::path, std::string> taken;
  for (const NamedFile& f : read) taken.try_emplace(fs::weakly_canonical(f.path), f.what);
  for (const auto& [path, what, may_replace] : written) {
    if (path.empty() || path == "-") continue;
    const fs::path parent = fs::absolute(path).parent_path();
    if (!fs::is_directory(parent)) return ir::Fail("cannot write '{}': there is no folder '{}'", path, parent.string());
    if (fs::is_directory(path)) return ir::Fail("cannot write '{}': it is a folder; name a file", path);
    if (fs::exists(path) && !fs::is_regular_file(path)) continue;  // a pipe takes more than one
    const auto [it, fresh] = taken.try_emplace(fs::weakly_canonical(path), what);
    if (!fresh && !may_replace)
      return ir::Fail("cannot write '{}' for {}: it is {} too; give each its own file", path, what, it->second);
    it->second = what;
  }
  return {};
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
