// The law of the runtime: no kernel is entered unless dtype, rank and every size that it relies on were found to be what it was made
// for. A kernel reads memory by what it expects, and what a step before it hands on is known for sure only when it is there. So what
// a kernel relies on is data, written down where the kernel is made (Kernel::needs), and Kernel::Run compares, the one way in.
#ifndef OCTAVO_RUNTIME_NEEDS_H_
#define OCTAVO_RUNTIME_NEEDS_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
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
  // The same of results; what is said of operands comes before.
  void Makes(size_t slot, const ir::Type& type);

  // The first operand, or result, that is something else.
  ir::Status Check(std::span<const ir::RtValue> operands) const { return Compare(operands, 0, results_, "input"); }
  ir::Status CheckMade(std::span<const ir::RtValue> results) const {
    return Compare(results, results_, words_.size(), "output");
  }

 private:
  enum class Form : uint8_t { kTyped, kExactly, kEndsIn, kCount, kBroadcastsTo };
  // Before its sizes. All lines lie in one piece of memory: between two steps the caches have seen megabytes of weights.
  struct Line {
    uint64_t slot : 24, count : 24, dtype : 8, form : 8;
  };
  // What the names and the leading dims were found to be so far.
  struct Found {
    int64_t sizes[kNames] = {-1, -1, -1, -1};
    const ir::Shape* leading = nullptr;
    size_t rank = 0;  // of what leads
  };
  void Add(size_t slot, ir::DType dtype, Form form, std::span<const Size> dims);
  void AddType(size_t slot, const ir::Type& type);
  void Operand(size_t slot, ir::DType dtype, Form form, Sizes dims);
  ir::Status Compare(std::span<const ir::RtValue> values, size_t begin, size_t end, const char* what) const;
  static bool Fits(int64_t code, int64_t dim, Found& found);
  static bool FitsShape(const Line& line, const int64_t* codes, const ir::Shape& shape, Found& found);
  static std::string Describe(const Line& line, const int64_t* codes, const Found& found);

  std::vector<int64_t> words_;  // lines of operands, then of results
  size_t results_ = 0;          // where those begin
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_NEEDS_H_
