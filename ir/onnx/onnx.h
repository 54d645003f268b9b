// ONNX files in and out. No protobuf type appears in any header outside this folder; its exceptions end here.
#ifndef OCTAVO_IR_ONNX_ONNX_H_
#define OCTAVO_IR_ONNX_ONNX_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "octavo/ir/graph.h"

namespace octavo::ir::onnx {

struct ReadOptions {
  // Folder that external data is looked up in when reading from memory.
  std::filesystem::path external_dir;
};

// Opset 7 to 23 (25 where nothing changed). Older op forms are rewritten to the form ops.def states. Initializers become
// Constant nodes (mapped, not copied, when external). Unknown ops become Opaque nodes and are written back as they came.
// Errors name the file, the node and the reason: truncated, cycle, missing external file, external path that leaves the
// folder, offset beyond the file, wrong dtype, duplicate name, opset unknown.
Result<Graph> ReadFile(const std::filesystem::path& path, const ReadOptions& options = {});
Result<Graph> ReadBytes(std::string_view bytes, const ReadOptions& options = {});

struct WriteOptions {
  // Constants of at least this many bytes go to "<model>.data" beside the model when the model would exceed
  // `inline_limit` bytes; -1: only what does not fit in 2 GB.
  int64_t inline_limit = 1800000000;
  // Write octavo's fused ops as model-local functions with standard bodies (true), or expand them into the graph (false).
  bool functions = true;
};

// Written to a temporary file beside the target and renamed: whole or not at all. Same graph, same bytes.
Status WriteFile(const Graph& graph, const std::filesystem::path& path, const WriteOptions& options = {});
Result<std::string> WriteBytes(const Graph& graph, const WriteOptions& options = {});

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_ONNX_H_
