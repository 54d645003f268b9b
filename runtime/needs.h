// The law of the runtime: no kernel is entered unless dtype, rank and every size that it relies on were found to be what it was made
// for. A kernel reads memory by what it expects, and what a step before it hands on is known for sure only when it is there. So what
// a kernel relies on is data, written down where the kernel is made (Kernel::needs), and Kernel::Run compares, the one way in.
#ifndef OCTAVO_RUNTIME_NEEDS_H_
#define OCTAVO_RUNTIME_NEEDS_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::runtime {

class Needs {
 public:
  // A dim as it must be: a number, any, or the same wherever its name stands within one kernel's needs.
  class Size {
   public:
    Size(int64_t number) : code_(number) {}  // NOLINT: a number is a size
    static Size Any() { return Size(-1); }
    static Size Same(int name) { return Size(-2 - name); }  // of kNames

   private:
    friend class Needs;
    int64_t code_;
  };
  using Sizes = std::initializer_list<Size>;
  static constexpr int kNames = 4;

  // What operand `slot` must be. Undefined dtype: any. An operand that may be absent has a line only where its node has it.
  void Typed(size_t slot, ir::DType dtype);                     // of any shape
  void Exactly(size_t slot, ir::DType dtype, Sizes dims);       // [dims]
  void EndsIn(size_t slot, ir::DType dtype, Sizes dims);        // [..., dims]; what leads is the same in all such lines
  void Count(size_t slot, ir::DType dtype, Size elements);      // so many in all, in any shape
  void BroadcastsTo(size_t slot, ir::DType dtype, Sizes dims);  // each dim, from the last on, 1 or this
  // What inference says; symbols are any.
  void Of(size_t slot, const ir::Type& type);

  // The first operand that is something else, named by `what` and its slot.
  ir::Status Check(std::span<const ir::RtValue> operands, std::string_view what) const;

 private:
  enum class Form : uint8_t { kTyped, kExactly, kEndsIn, kCount, kBroadcastsTo };
  struct Line {
    uint32_t slot;
    ir::DType dtype;
    Form form;
    uint32_t first, count;  // of codes_
  };
  // What the names and the leading dims were found to be so far.
  struct Found {
    int64_t sizes[kNames] = {-1, -1, -1, -1};
    const ir::Shape* leading = nullptr;
    size_t rank = 0;  // of what leads
  };
  void Add(size_t slot, ir::DType dtype, Form form, Sizes dims);
  static bool Fits(int64_t code, int64_t dim, Found& found);
  bool FitsShape(const Line& line, const ir::Shape& shape, Found& found) const;
  std::string Describe(const Line& line, const Found& found) const;

  std::vector<Line> lines_;
  std::vector<int64_t> codes_;  // of the sizes of all lines
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_NEEDS_H_
