// One block of each type of GGUF as codes and scales.
#ifndef OCTAVO_IR_GGUF_SUPER_BLOCKS_H_
#define OCTAVO_IR_GGUF_SUPER_BLOCKS_H_

#include <cstdint>

#include "octavo/ir/gguf/gguf.h"

namespace octavo::ir::gguf {

struct Block {
  int8_t codes[256];
  float scales[16];     // one for each group
  int8_t mins[16];      // one for 16 elements
  float min_scale = 0;  // what is taken off is min * min_scale
};

// 16 bits of a float.
float Half(const uint8_t* at);
// A block of 32, and of 256, of a type that has groups.
void ReadBlock(Type type, const uint8_t* in, Block& out);
void ReadSuperBlock(Type type, const uint8_t* in, Block& out);

}  // namespace octavo::ir::gguf

#endif  // OCTAVO_IR_GGUF_SUPER_BLOCKS_H_
