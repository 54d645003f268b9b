// run_model MODEL.onnx INPUTS.npz: runs a model on arrays and prints what comes out.
#include <octavo/octavo.h>

#include <cstdio>
#include <utility>

namespace {

octavo::ir::Status Run(const char* path, const char* arrays) {
  OCTAVO_TRY(octavo::ir::Graph graph, octavo::ir::onnx::ReadFile(path));
  octavo::api::Opened opened = octavo::api::FuseToRun(std::move(graph));  // attention and its like become fused kernels
  if (!opened.note.empty()) std::fprintf(stderr, "note: %s\n", opened.note.c_str());
  OCTAVO_TRY(const auto model, octavo::runtime::Model::Compile(std::move(opened.graph), {.threads = 2}));
  OCTAVO_TRY(octavo::ir::TensorMap inputs, octavo::ir::ReadNpz(arrays));
  // A decoder's caches, from run to run, unless the arrays have them: then they are inputs like others.
  octavo::runtime::CacheState state;
  const auto& caches = model.caches();
  const bool kept = !caches.empty() && !inputs.contains(model.inputs()[caches[0].input].name);
  OCTAVO_TRY(const auto outputs, kept ? model.Run(std::move(inputs), state) : model.Run(std::move(inputs)));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) continue;  // a cache
    std::printf("%s %s, first %g\n", model.outputs()[i].name.c_str(), octavo::ir::ToString(outputs[i].shape()).c_str(),
                outputs[i].size() > 0 ? outputs[i].GetDouble(0) : 0.0);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: run_model MODEL.onnx INPUTS.npz\n"), 2;
  const auto done = Run(argv[1], argv[2]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
