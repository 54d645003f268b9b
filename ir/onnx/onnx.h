// ONNX files in and out. No protobuf type appears in any header outside this folder; its exceptions end here.
#ifndef OCTAVO_IR_ONNX_ONNX_H_
#define OCTAVO_IR_ONNX_ONNX_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::ir::onnx {

// The meaning of ONNX Attention changed in place, without a new opset:
//   ONNX 1.18 to 1.21  the mask is added before the soft cap; qk_matmul_output_mode 1 is after the mask, 2 after the cap
//   ONNX 1.22          the cap comes first; mode 1 is after the cap, 2 after the mask
//   ONNX 1.23          as 1.22, and a wholly masked row gives zeros, not NaN; octavo gives zeros in every case, as PyTorch does
// A file does not say which it means. kByProducer: 1.18's for PyTorch before 2.13, whose exporter was written against it, 1.22's
// for everybody else. It matters only for nodes with a soft cap and a mask, or with the output of the scores.
enum class AttentionOrder { kByProducer, kOnnx118, kOnnx122 };

// Metadata of files that say: octavo writes it beside Attention nodes, whoever made the model first.
inline constexpr const char* kAttentionOrderKey = "octavo.attention_order";

struct ReadOptions {
  // Folder that external data is looked up in when reading from memory.
  std::filesystem::path external_dir = {};
  AttentionOrder attention_order = AttentionOrder::kByProducer;
  Limits limits = {};  // kept in the graph (info.limits), for all that is done with it
  std::vector<std::filesystem::path>* files =
      nullptr;  // gets the files of the external data that was found, whether the model is read or not
  // Large initializers stay where the file has them: it is mapped, as external data is, until the graph and all that was made of it are gone.
  bool map_data = false;
};

// What a file declares is paid for by its bytes: reading takes time in proportion to them and at most MemoryLimit (limits.h).
// External data is mapped, not read: until the graph and all that was made of it are gone, nobody may write to these files or cut them
// short. Their sizes are checked here; a file that is cut later ends the process by SIGBUS when its pages are touched. Replacing a file
// by renaming another one to its name, as WriteFile does, is safe.
//
// Opset 7 to 28. Older op forms are rewritten to the form ops.def states, and info.opsets says 18 or what the ops need.
// Initializers and Constant nodes become Constant nodes that stand first (mapped, not copied, when external); an
// initializer that is also an input is a constant, the input is dropped. Model-local functions are inlined, octavo's
// own become octavo ops. Unknown ops become Opaque nodes and are written back as they came. Nodes need not be sorted.
// Errors name the file, the node and the reason: truncated, cycle, missing external file, external path that leaves the
// folder, offset beyond the file, wrong dtype, duplicate name, opset unknown.
Result<Graph> ReadFile(const std::filesystem::path& path, const ReadOptions& options = {});
Result<Graph> ReadBytes(std::string_view bytes, const ReadOptions& options = {});

// What attention in float is written as. kOnnx23: ONNX Attention (opset 23) wherever it means the same, standard ops elsewhere.
enum class AttentionForm { kStandard, kOnnx23 };

struct WriteOptions {
  // When all constants together take more than this many bytes, those of 1 KB and more go to "<model>.data" beside the
  // model, page-aligned, equal memory once. -1: only when they do not fit in the 2 GB of an ONNX file.
  int64_t inline_limit = 1800000000;
  // Write octavo's fused ops as model-local functions with standard bodies (true), or expand them into the graph
  // (false).
  bool functions = true;
  AttentionForm attention = AttentionForm::kStandard;
};

// Written to a temporary file beside the target and renamed: whole or not at all. Same graph, same bytes. Constants
// become initializers, outputs keep their names, the opset is raised to what the ops need. A device or pipe is written
// through.
Status WriteFile(const Graph& graph, const std::filesystem::path& path, const WriteOptions& options = {});
Result<std::string> WriteBytes(const Graph& graph, const WriteOptions& options = {});

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_ONNX_H_
