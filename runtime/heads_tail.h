// What becomes of a product by heads as the end of its step: a norm of each head, a rotary embedding (rotate_half.h), the place behind the
// rows of a cache. So q, k and v of a decoder are stored where attention reads them. Bits are those of the single nodes.
#ifndef OCTAVO_RUNTIME_HEADS_TAIL_H_
#define OCTAVO_RUNTIME_HEADS_TAIL_H_

#include <array>
#include <optional>
#include <vector>

#include "octavo/runtime/tail.h"

namespace octavo::runtime {

// Heads side by side in a product, and what stands behind them.
struct HeadsPart {
  int64_t heads = 0, size = 0;
  bool rows = false;                   // read as [B,S,n], beside parts that are not
  std::vector<ir::NodeId> nodes = {};  // which the step serves
  const Node* norm = nullptr;          // RMSNormalization of each head
  ValueId cos = {}, sin = {};          // of a rotary embedding
  const Node* codes = nullptr;         // QuantizeLinear
  ValueId past = {};                   // rows in front of these
  ValueId out = {};

  bool is_more() const { return norm != nullptr || cos.valid() || codes != nullptr || past.valid(); }  // than heads
  int64_t columns() const { return heads * size; }
};

// Of a value [B,S,n] that a product makes, the parts of a Split each; empty where something is read otherwise, comes behind `product` or is
// plain heads (by_heads.h).
std::vector<HeadsPart> FindHeadsParts(const CompileContext& c, ir::NodeId product, ValueId y,
                                      const ChainsByNode& chains);

class HeadsTail {
 public:
  // Adds operands to `inputs`, which are those of the step, and outputs.
  HeadsTail(std::vector<HeadsPart> parts, const CompileContext& c, Made& made);

  int64_t columns() const;
  // Column blocks that end where heads do.
  int64_t unit() const;
  std::string name() const;
  // The activation is [B,S,k] of this type, in slot 0.
  void Need(Needs& needs, DType x, int64_t k) const;

  // Where lines go, in elements from one batch entry, head and row to the next.
  struct Place {
    std::byte* y = nullptr;
    int64_t batch = 0, head = 0, row = 0;
    const float *cos = nullptr, *sin = nullptr;  // tables of a rotary embedding, and their steps by [b, h, s]
    std::array<int64_t, 3> cos_strides = {}, sin_strides = {};
  };
  // Slots of operands whose rooms it reads, and of all that each of several runs has for itself.
  std::vector<size_t> Pasts() const;
  std::vector<size_t> Apart() const;
  // Memory of the outputs, in which the rows of the past lie; of several runs one behind the other.
  std::vector<Place> Open(StepCall& call) const;
  // Rows and columns, whole heads, of a product [rows, columns()].
  void Store(const StepCall& call, const std::vector<Place>& places, const float* product, kernels::Range rows,
             kernels::Range columns) const;

 private:
  struct Part {
    int64_t first, heads, size;  // column
    bool rows;
    std::vector<float> gamma;  // of a norm
    float epsilon = 0;
    size_t cos = 0, sin = 0, past = 0;  // slots; 0: none
    DType dtype = DType::kF32;
    float scale = 1;  // of codes
    int32_t zero_point = 0;

    int64_t bytes(int64_t elements) const { return elements * quant::BitsOf(dtype) / 8; }
  };
  Place OpenOne(StepCall& call, size_t i) const;
  void StoreLine(const Part& p, const float* cos, const float* sin, const float* x, std::byte* y, float* scratch) const;

  kernels::Arch arch_;
  std::vector<Part> parts_;
  size_t first_output_;
};

// All operands but these, where the run has rooms.
void MakeDenseBut(StepCall& call, std::span<const size_t> slots);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_HEADS_TAIL_H_
