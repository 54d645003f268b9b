// Everything that a program needs of octavo. The headers named here are public; those that they include come with them, and no other is installed.
#ifndef OCTAVO_OCTAVO_H_
#define OCTAVO_OCTAVO_H_

// Read, check, print and write graphs.
#include "octavo/ir/graph.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/onnx/tensor_file.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/ir/whole_file.h"
// Optimize, with a report.
#include "octavo/api/open.h"
#include "octavo/api/optimize.h"
#include "octavo/api/passes_json.h"
#include "octavo/api/report_html.h"
#include "octavo/api/report_json.h"
// Run.
#include "octavo/api/logits_to_keep.h"
#include "octavo/kernels/arch/numa.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"
// Extend: rules and passes of one's own.
#include "octavo/passes/pattern/pattern.h"
#include "octavo/passes/plugin.h"
#include "octavo/passes/registry.h"
// Hear what it does.
#include "octavo/ir/log.h"
#include "octavo/version.h"

namespace octavo {

using ir::LogLevel, ir::LogSink, ir::SetLog;

}  // namespace octavo

#endif  // OCTAVO_OCTAVO_H_
