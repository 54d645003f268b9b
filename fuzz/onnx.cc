// Any bytes as an ONNX file. What is read is legal unless its types contradict each other, can be printed and written, and what was written is read as the same.
#include "octavo/ir/onnx/onnx.h"

#include "octavo/fuzz/targets.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"

namespace octavo::fuzz {

void FuzzOnnx(std::string_view bytes) {
  auto graph = ir::onnx::ReadBytes(bytes);
  if (!graph) return CheckSentence(graph.error().message, bytes);
  for (const std::string& note : graph->info.notes) CheckSentence(note, bytes);
  ir::ToText(*graph, {.elide_constants_above = 16});
  ir::ToDot(*graph);
  ir::Graph typed = *graph;
  if (auto types = ir::Inference::Run(typed); !types)
    CheckSentence(types.error().message, bytes);
  else if (auto legal = ir::VerifyStatus(typed); !legal)
    Broken("what is read is legal", legal.error().message);
  const auto written = ir::onnx::WriteBytes(*graph);
  if (!written) return CheckSentence(written.error().message, bytes);
  const auto again = ir::onnx::ReadBytes(*written);
  if (!again) Broken("octavo reads what it writes", again.error().message);
  const auto twice = ir::onnx::WriteBytes(*again);
  if (!twice) Broken("octavo writes again what it wrote", twice.error().message);
  const auto thrice = ir::onnx::ReadBytes(*twice);
  if (!thrice) Broken("octavo reads again what it wrote twice", thrice.error().message);
}

}  // namespace octavo::fuzz
