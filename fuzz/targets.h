// The fuzz targets: each takes any bytes and ends the process where octavo breaks a law. Errors of octavo are welcome, what they say is
// looked at. libfuzzer.cc makes a libFuzzer program of each; tests/fuzz replays the committed cases without any fuzzer.
#ifndef OCTAVO_FUZZ_TARGETS_H_
#define OCTAVO_FUZZ_TARGETS_H_

#include <span>
#include <string_view>

#include "octavo/ir/status.h"

namespace octavo::fuzz {

// Readers; no kernel is linked into their programs.
void FuzzOnnx(std::string_view bytes);         // an ONNX file: read, infer, print, write, read again
void FuzzText(std::string_view bytes);         // the text form: its law, and Graphviz
void FuzzNpz(std::string_view bytes);          // .npy and .npz: read, write, read again
void FuzzCalibration(std::string_view bytes);  // a .calib file, also with the checksum put right
void FuzzGguf(std::string_view bytes);         // a GGUF file: its tensors as codes and as floats
// These need all of octavo.
void FuzzPipeline(std::string_view bytes);  // a pipeline's JSON, run on a small model in whatever order
void FuzzReport(std::string_view bytes);    // the writers of HTML and JSON: names and numbers of any kind
void FuzzModel(std::string_view bytes);     // an ONNX file the whole way (way.h), mutated by structure (mutate.h)

struct Target {
  std::string_view name;
  void (*run)(std::string_view bytes);
};
// The readers, and all of them.
std::span<const Target> ReaderTargets();
std::span<const Target> AllTargets();

// Ends the process: `law` does not hold.
[[noreturn]] void Broken(std::string_view law, std::string_view detail);
// Error sentences of octavo about `file`: Broken if anything is wrong with them (sentence.h).
void CheckSentence(std::string_view sentence, std::string_view file);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_TARGETS_H_
