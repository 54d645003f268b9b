// What the commands share. A command is a function that adds itself to the program; a flag maps to one library call.
#ifndef OCTAVO_CLI_CLI_H_
#define OCTAVO_CLI_CLI_H_

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/passes/registry.h"
#include "octavo/quant/dataset.h"

namespace octavo::cli {

// Exit codes, documented in `octavo --help`.
enum ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kNotFused = 3, kInterrupted = 130 };

// Every command parses into its own state and sets `run`.
struct Program {
  CLI::App app{"octavo: fused int8 transformers for x86 CPUs"};
  std::function<int()> run;
};

// Where a command that runs a model keeps its packed weights (runtime/packed_file.h).
struct PackedFlags {
  bool beside = false;
  std::string file;
  std::string PathFor(const std::string& model) const;  // empty: nowhere
};
void AddPacked(CLI::App& command, PackedFlags& flags);
inline constexpr std::string_view kPacking = "write packed weights, MB";  // a stage of Progress
void AddReadOptions(CLI::App& command);                                   // of every command that reads a model
void AddOptimize(Program& program);
void AddRun(Program& program);
void AddBench(Program& program);
int BenchKernels(double seconds, int threads, bool json);  // octavo bench --kernels
void AddCompare(Program& program);
void AddCalibrate(Program& program);
void AddExplain(Program& program);
void AddInspect(Program& program);
void AddPrint(Program& program);
void AddPasses(Program& program);
void AddShell(Program& program);  // octavo completion, octavo man

// What was typed, for a shell; SetCommandLine comes first.
void SetCommandLine(int argc, char** argv);
const std::string& CommandLine();

// A sentence of the library, which calls options as Python does, with the flags of this program: "keep_float: no Linear" -> "--keep-float: no Linear".
std::string InFlags(std::string sentence);
// "octavo: <sentence>" on stderr; returns kFailed.
int Fail(const ir::Error& error);
int Fail(const std::string& sentence);
// The same and the work goes on; empty: nothing.
void Note(const std::string& sentence);

// For standard output: wrapped at words where a terminal shows it, lines but the first behind so many spaces; else as it stands.
std::string Paragraph(std::string_view text, size_t indent);

// A terminal that shows colours, and nobody asked for none by NO_COLOR.
bool HasColours(std::FILE* stream);

// For standard output: rows of cells as aligned columns; the first row is the heading. Cells in columns of `right` are right-aligned.
std::string Table(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& right = {});

// A stage of work; its `nth` counts those that are no part of another one.
struct ProgressStage {
  std::string name;
  int nth = 1;
  int64_t done = 0, total = -1, since = 0;  // since: done when it was first seen
  double seconds = 0;                       // that it has taken
  std::chrono::steady_clock::time_point began;
};
// A progress line on stderr, redrawn in place on a terminal, silent otherwise: the second stage, the time of all of them, the stage's rate, what is
// left of it, and what is done within it: "2. quantize [####......] 12/36, 8 s, 1.5/s, 16 s left (calibrate 3/7)".
class Progress {
 public:
  explicit Progress(bool enabled);
  ~Progress();
  void Show(std::string_view stage, int64_t done, int64_t total);
  void Done();

 private:
  using Clock = std::chrono::steady_clock;
  bool enabled_;
  bool drawn_ = false;
  std::vector<ProgressStage> stages_;  // each is a part of the one before
  int nth_ = 0;
  Clock::time_point began_ = Clock::now(), shown_;  // the whole; the last drawing
};
// In at most `width` columns; elapsed: seconds of the whole.
std::string ProgressLine(const ProgressStage& stage, double elapsed, std::string_view within, size_t width);

// Ctrl-C ends the program with kInterrupted, at once and without a trace, since files get their names when they are complete. Where what was done so
// far is worth something, a Patience stands: then work hears it from Interrupted, and the program goes on for at most so many seconds. 0: until a
// second Ctrl-C.
const std::atomic<bool>& Interrupted();
void CatchInterrupts();
class Patience {
 public:
  explicit Patience(int seconds);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
};

// Octavo's own passes and those of every --plugin, which are loaded once.
ir::Result<const passes::Registry*> LoadedPasses();

struct NamedFile;
// The model of a file. `files`: gets the files of its external data.
ir::Result<ir::Graph> ReadModel(const std::string& path, std::vector<NamedFile>* files = nullptr,
                                bool map_data = false);
// Ranks of ids that random data may draw come from the model's embedding tables.
ir::Result<std::unique_ptr<quant::DataSource>> OpenDataFor(const ir::Graph& graph, const std::string& where);
// Reads one .npz and brings it into the form the model's inputs want.
ir::Result<ir::TensorMap> ReadInputs(const ir::Graph& graph, const std::string& path);
// A file that a command reads, or a folder of them, or one that it will write; empty and "-": none.
struct NamedFile {
  std::string path, what;
  bool may_replace = false;  // a model that is read, and -o: one takes the place of the other when it is complete
};
// Before long work: all can be written, and none over another one of the same call, by whatever path or link.
ir::Status CheckFiles(const std::vector<NamedFile>& read, const std::vector<NamedFile>& written);
bool SameFile(const std::string& a, const std::string& b);
int64_t FileBytes(const std::string& path);
std::string HumanBytes(int64_t bytes);

}  // namespace octavo::cli

#endif  // OCTAVO_CLI_CLI_H_
