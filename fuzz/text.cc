// The text form: whatever parses prints, and what it prints parses to what prints the same.
#include "octavo/ir/text.h"

#include "octavo/fuzz/targets.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/verify.h"

namespace octavo::fuzz {

void FuzzText(std::string_view bytes) {
  auto graph = ir::ParseText(bytes);
  if (!graph) return CheckSentence(graph.error().message, bytes);
  const std::string text = ir::ToText(*graph);
  const auto again = ir::ParseText(text);
  if (!again) Broken("what is printed parses", again.error().message);
  if (ir::ToText(*again) != text) Broken("Parse(ToText(g)) prints the same text", text);
  ir::ToDot(*graph);
  if (!ir::VerifyStatus(*graph)) return;
  if (auto types = ir::Inference::Run(*graph); !types) CheckSentence(types.error().message, bytes);
}

}  // namespace octavo::fuzz
