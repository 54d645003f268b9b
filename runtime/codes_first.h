// Attention of codes whose keys and values come as floats, as a cache of floats has them: they become codes at the beginning of its step,
// from where they lie, so that a cache with room for rows to come (room.h) is not copied first.
#ifndef OCTAVO_RUNTIME_CODES_FIRST_H_
#define OCTAVO_RUNTIME_CODES_FIRST_H_

#include <vector>

#include "octavo/runtime/build.h"

namespace octavo::runtime {

// The steps of QuantizeLinears that `attention` alone reads join it.
void TakeCodesOfOperands(const CompileContext& c, std::vector<Step>& steps, Step& attention);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_CODES_FIRST_H_
