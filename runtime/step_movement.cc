// Transpose, Slice, Concat and Split: what is contiguous in its operand is a view of it, the rest is copied by all threads.
#include <algorithm>

#include "octavo/ir/interpret/movement.h"
#include "octavo/runtime/room.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

using ir::interpret::Move;

constexpr int64_t kBytesOfTask = 65536;  // about 5 us from L3

// Whether the elements of the operand lie one after the other.
bool IsContiguous(const Move& move) {
  int64_t step = 1;
  for (size_t d = move.shape.size(); d-- > 0;) {
    if (move.shape[d] != 1 && move.from_strides[d] != step) return false;
    step *= move.shape[d];
  }
  return true;
}

// Appends `move` in parts along its first axis that is no 1.
void Cut(const Move& move, int64_t element, int threads, std::vector<Move>& tasks) {
  const int64_t size = ir::ElementCount(move.shape);
  if (size == 0) return;
  const auto it = std::ranges::find_if(move.shape, [](int64_t dim) { return dim != 1; });
  if (it == move.shape.end()) return tasks.push_back(move);
  const auto axis = static_cast<size_t>(it - move.shape.begin());
  const int64_t rows = *it, row_bytes = size / rows * element;
  const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kBytesOfTask / row_bytes), threads);
  for (int64_t i = 0; i < parts; ++i) {
    const Part p = PartOf(rows, parts, i, 1);
    Move part = move;
    part.shape[axis] = p.end - p.begin;
    part.from_offset += p.begin * move.from_strides[axis], part.to_offset += p.begin * move.to_strides[axis];
    tasks.push_back(std::move(part));
  }
}

class MovementKernel : public Kernel {
 public:
  MovementKernel(const Graph& graph, const Node& node, ir::interpret::MovementPlanner plan, KernelPtr fallback)
      : node_(node), plan_(plan), fallback_(std::move(fallback)) {
    // What leaves the run shall not keep a larger tensor alive.
    for (const ValueId v : node.outputs) copied_.push_back(v.valid() && graph.IsGraphOutput(v));
    takes_rooms = node.op == Op::kConcat;
  }
  std::string name() const override { return "move " + std::string(ir::InfoOf(node_.op).name); }

  Status Execute(StepCall& call) const override {
    const DType dtype = call.T(0).dtype();
    const bool codes = std::ranges::any_of(call.in, [](const RtValue& v) { return v.quant != nullptr; });
    if (codes || dtype == DType::kString || quant::BitsOf(dtype) < 8)
      return fallback_->Run(call);  // which takes no rooms
    OCTAVO_TRY(const ir::interpret::Movement m, plan_(node_, call.in));
    if (Appends(call)) {
      call.out[0].tensor = AppendRows(call.T(0), call.T(1), *call.threads);
      return {};
    }
    if (call.rooms) {
      for (RtValue& v : call.in) v.tensor = Dense(v.tensor);
    }
    const int64_t element = quant::BitsOf(dtype) / 8;
    std::vector<std::byte*> to(m.results.size());
    std::vector<Move> tasks;
    for (const Move& move : m.moves) {
      const Tensor& x = call.T(move.from);
      const bool whole = m.moves.size() == m.results.size();  // one move makes the result
      if (whole && !copied_[move.to] && IsContiguous(move) && x.buffer() != nullptr) {
        const auto offset = static_cast<size_t>(x.data() - x.buffer()->data() + move.from_offset * element);
        call.out[move.to].tensor = Tensor::View(dtype, m.results[move.to], x.buffer(), offset);
        continue;
      }
      if (to[move.to] == nullptr) to[move.to] = call.Allocate(move.to, dtype, m.results[move.to]).mutable_data();
      Cut(move, element, call.threads->count(), tasks);
    }
    call.threads->For(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
      const Move& task = tasks[static_cast<size_t>(i)];
      MakeMove(task, call.T(task.from).data(), to[task.to], static_cast<size_t>(element));
    });
    return {};
  }

 private:
  // A Concat of a cache, in a room, and rows along its axis.
  bool Appends(const StepCall& call) const {
    if (!call.rooms || call.in.size() != 2 || !takes_rooms || StridesOf(call.T(1)) != nullptr) return false;
    const int64_t axis = node_.attrs.Int("axis", 0), rank = call.T(0).rank();
    return IsInRoom(call.T(0), static_cast<size_t>(axis < 0 ? axis + rank : axis));
  }

  const Node& node_;
  ir::interpret::MovementPlanner plan_;
  KernelPtr fallback_;
  std::vector<bool> copied_;  // by output
};

}  // namespace

KernelPtr MakeMovement(const Node& node, const CompileContext& c) {
  const auto plan = ir::interpret::MovementPlannerOf(node.op);
  const auto output = std::ranges::find_if(node.outputs, [](ValueId v) { return v.valid(); });
  if (plan == nullptr || output == node.outputs.end()) return nullptr;
  return std::make_unique<MovementKernel>(c.graph, node, plan,
                                          MakeInterpreted(c.graph, c.graph.value(*output).producer));
}

}  // namespace octavo::runtime
