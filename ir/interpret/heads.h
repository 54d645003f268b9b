// Head layouts of attention operands.
#ifndef OCTAVO_IR_INTERPRET_HEADS_H_
#define OCTAVO_IR_INTERPRET_HEADS_H_

#include "octavo/ir/interpret/call.h"

namespace octavo::ir::interpret {

// [B,S,H*D] to [B,H,S,D]; rank 4 is returned as it is. Fails where `heads` does not divide the last dim.
Result<Tensor> SplitHeads(const Tensor& x, int64_t heads, std::string_view what);
// [B,H,S,D] to [B,S,H*D].
Tensor MergeHeads(const Tensor& x);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_HEADS_H_
