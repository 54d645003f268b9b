// The way of one ONNX file through octavo: inspect, optimize (float, int8, one more recipe), run, export, read, run again; with what every
// station must keep. The graph as it stands, run by the interpreter, is the truth.
#ifndef OCTAVO_FUZZ_WAY_H_
#define OCTAVO_FUZZ_WAY_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::fuzz {

struct Finding {
  std::string kind;    // "fused fails", "sentence", ...: what cases are counted and shrunk by
  std::string detail;  // for a person
};

struct Passage {
  std::string station;              // the last one that was reached; "end": the whole way
  std::string refusal;              // the sentence that ended the way; empty: none
  std::vector<std::string> counts;  // what was compared: "float equal", "int8 equal", ...
  std::vector<Finding> findings;
  int64_t kept = 0;  // bytes of outputs that the walk itself held at once, so as to compare them
};

struct WayOptions {
  // An empty folder that takes the model and what is written; nothing else may be left in it. Empty: all in memory.
  std::filesystem::path folder = {};
  uint64_t seed = 0;   // with the model's bytes: of the inputs and the recipe
  double seconds = 8;  // of CPU time; a run that takes longer, as a Loop may, is given up; that is no finding
};

Passage Walk(std::string_view model, const WayOptions& options);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_WAY_H_
