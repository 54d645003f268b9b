// What becomes of a product by heads as the end of its step: a norm of each head, a rotary embedding (rotation.h), the place in a
// cache. So q, k and v of a decoder are stored where attention reads them. Bits are those of the single nodes.
#ifndef OCTAVO_RUNTIME_HEADS_TAIL_H_
#define OCTAVO_RUNTIME_HEADS_TAIL_H_

#include <string>
#include <vector>

#include "octavo/ir/interpret/cache_write.h"
#include "octavo/runtime/heads_parts.h"

namespace octavo::runtime {

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

  // Where lines go, in bytes from one batch entry, head and row to the next.
  struct Place {
    std::byte* y = nullptr;
    int64_t batch = 0, head = 0, row = 0;
    int64_t rows = 0;              // of a head
    std::vector<int64_t> at = {};  // row 0 of each batch entry; empty: 0. Rows that are not among `rows` are left out
    bool circular = false;         // they are counted from the first one on
    std::vector<int64_t> of_row = {};  // where each row goes, of all batch entries, in place of `at`; -1: nowhere
    int bits = 0;                      // rows of codes of so many (room.h); 0: of floats
    Angles angles = {};
  };
  // Slots of operands whose rooms it reads, and of all that each of several runs has for itself.
  std::vector<size_t> Pasts() const;
  std::vector<size_t> Apart() const;
  // Memory of the outputs, in which the rows of the past lie; of several runs one behind the other.
  Result<std::vector<Place>> Open(StepCall& call) const;
  // Rows and columns, whole heads, of a product [rows, columns()].
  void Store(const StepCall& call, const std::vector<Place>& places, const float* product, kernels::Range rows,
             kernels::Range columns) const;

 private:
  struct Part {
    int64_t first, heads, size;  // column
    bool rows;
    std::vector<float> gamma;  // of a norm
    float epsilon = 0;
    Rotation rotation = {};
    bool rows_first = false;                 // of its tables
    size_t cos = 0, sin = 0, positions = 0;  // slots; 0: none
    const Node* append = nullptr;
    size_t past = 0, append_at = 0, append_rows = 0;
    DType dtype = DType::kF32;
    float scale = 1;  // of codes
    int32_t zero_point = 0;

    int64_t bytes(int64_t elements) const { return elements * quant::BitsOf(dtype) / 8; }
  };
  // Of one run.
  Result<Place> OpenOne(StepCall& call, size_t i) const;
  Result<Angles> AnglesOf(const StepCall& call, const Part& p) const;
  Result<Place> PlaceInCache(StepCall& call, const Part& p, size_t slot) const;
  Place CopyOfCache(StepCall& call, const Part& p, size_t slot, Place place) const;
  void StoreLine(const Part& p, const float* cos, const float* sin, const float* x, std::byte* y, float* scratch) const;

  kernels::Arch arch_;
  std::vector<Part> parts_;
  size_t first_output_;
};

// All operands but these, where the run has rooms.
void MakeDenseBut(StepCall& call, std::span<const size_t> slots);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_HEADS_TAIL_H_
