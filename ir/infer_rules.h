// Internal to ir/infer*.cc: the state of one run of inference, and what a rule sees of the node at hand.
// A rule is a plain function; one table maps an Op to its rule, another to what it does to contents.
#ifndef OCTAVO_IR_INFER_RULES_H_
#define OCTAVO_IR_INFER_RULES_H_

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/infer.h"

namespace octavo::ir {

using MaybeShape = std::optional<SymShape>;

// What one run of inference spends on the graph and all graphs within. Bodies are looked at until the types of what they carry stand
// still; nested, that would be exponential, so beyond kMost repeated visits carried shapes are given up at once.
struct InferenceWork {
  static constexpr int64_t kMost = 30'000;
  size_t nesting = 0;
  int repeating = 0;     // rounds after the first that are under way, one a nested body
  int64_t repeated = 0;  // nodes visited in such rounds
  // What symbolic sizes take as text, over all values: long names in long sums would be more than the file by far.
  static constexpr size_t kMostText = 32'000'000;
  size_t text = 0;
  bool spent() const { return repeated > kMost; }
};

class Inferrer {
 public:
  Inferrer(Graph& graph, Inference& inference, InferenceWork& work)
      : graph_(graph), inference_(inference), work_(work) {}
  Status Run();
  // Sizes that nobody knows get symbols without a name. For the graph itself: in the body of a Loop a value has another size in each iteration.
  void NameSizes() { names_sizes_ = true; }
  // From here on a declared shape that contradicts its node is dropped instead of an error.
  struct FalseShape {
    std::string sentence;
    ValueId value;
    std::optional<size_t> output;  // of the graph, where that declares it
    std::vector<std::pair<NodeId, std::string>>
        within;  // from the outermost graph on: node, attribute of the graph inside
  };
  void Forgive(std::vector<FalseShape>* found) { false_shapes_ = found; }
  bool forgives() const { return false_shapes_ != nullptr; }
  // What was found in a graph of the node at hand.
  void TellWithin(std::string_view attr, std::vector<FalseShape> found);
  // `product`, of a quotient and what it was divided by, is `whole`: a Reshape proves it, which fails where the quotient does not come out even.
  void ComesOutEven(Dim product, Dim whole);
  // What a caller knows of a graph input's elements (captures of a subgraph).
  void Seed(ValueId input, SymContents contents);
  const SymContents* ContentsOf(ValueId v) const;
  const Graph& graph() const { return graph_; }
  InferenceWork& work() const { return work_; }

  // --- the node at hand ------------------------------------------------------------------------------------------
  const Node& node() const { return *node_; }
  bool Has(size_t input) const { return node_->input(input).valid(); }
  DType DtypeOf(size_t input) const { return Has(input) ? graph_.value(node_->inputs[input]).type.dtype : DType(); }
  // Null: the input is absent or its rank is not known.
  const SymShape* ShapeOf(size_t input) const;
  MaybeShape CopyOf(size_t input) const { return ShapeOf(input) ? MaybeShape(*ShapeOf(input)) : std::nullopt; }
  const SymContents* Contents(size_t input) const { return Has(input) ? ContentsOf(node_->inputs[input]) : nullptr; }
  const Tensor* Constant(size_t input) const;  // of numbers; null for texts
  // The elements where all are known numbers.
  std::optional<std::vector<int64_t>> Numbers(size_t input) const;

  void Set(size_t output, DType dtype, MaybeShape shape);
  void SetContents(size_t output, SymContents contents);
  const MaybeShape& InferredShape(size_t output) const { return types_[output].shape; }

  // "node 'n' (Op): ..."
  template <typename... Args>
  std::unexpected<Error> Refuse(std::format_string<Args...> fmt, Args&&... args) const {
    return std::unexpected(Error{Label() + ": " + std::format(fmt, std::forward<Args>(args)...)});
  }
  std::string Label() const;
  // The axis as an index below `rank`.
  Result<int64_t> Axis(int64_t axis, int64_t rank) const;

 private:
  Status Visit(const Node& node);
  Status Store(size_t output);
  void Spend(std::vector<Dim>& dims);
  Status Forgiven(Type& inferred, const Type& declared, FalseShape found);
  Status MergeDeclared(size_t output);

  Graph& graph_;
  Inference& inference_;
  InferenceWork& work_;
  NodeId at_;
  const Node* node_ = nullptr;
  bool names_sizes_ = false;
  std::vector<FalseShape>* false_shapes_ = nullptr;
  std::vector<std::pair<Dim, Dim>> even_;                 // ComesOutEven
  std::vector<Type> types_;                               // of the node's outputs
  std::vector<std::optional<SymContents>> new_contents_;  // of the node's outputs
  // Contents that are not for the passes, which ask for integers of rank 0 and 1: whole numbers in float tensors (Cast
  // of a size to float and back), and rank 2 in row-major order (the pads that torch reverses in pairs).
  std::vector<std::optional<SymContents>> own_contents_;
};

using Rule = Status (*)(Inferrer&);
// Null where the file has no rule for the op.
Rule ElementwiseRule(Op op);
Rule MovementRule(Op op);
Rule IndexingRule(Op op);
Rule ReduceRule(Op op);
Rule ProductRule(Op op);
Rule ConvRule(Op op);
Rule AttentionRule(Op op);
Rule QuantRule(Op op);
Rule ControlRule(Op op);
Rule VisionRule(Op op);
Rule SignalRule(Op op);
Rule OpaqueRule(const Node& node);

// Contents of the node's outputs; called after its rule, when the inferred shapes stand.
void InferContents(Inferrer& c);

// --- helpers of several rules --------------------------------------------------------------------------------------
constexpr size_t kMaxContents = 64;
constexpr size_t kMaxRank = 64;     // of a value that a node makes: Gather of a tensor by itself doubles the rank
constexpr size_t kMaxNesting = 64;  // graphs within graphs

// A size below zero is an error of the run, or of a branch never taken; here it says nothing.
void ForgetNegative(MaybeShape& shape);

// The two sizes must be equal: `into` becomes the one that says more. False where they are different numbers.
bool Meet(Dim& into, const Dim& other);
// The element type that these inputs must have in common; those of which none is known count for nothing.
Result<DType> CommonType(const Inferrer& c, std::span<const size_t> inputs);
// Numpy broadcasting of the shapes of these inputs; nullopt where a rank is not known.
Result<MaybeShape> Broadcast(const Inferrer& c, std::span<const size_t> inputs);
Result<MaybeShape> BroadcastShapes(const Inferrer& c, const SymShape* a, const SymShape* b);
Dim ProductOf(std::span<const Dim> dims);
// a / b without the fraction, for sizes: a number, an exact quotient, or for b a number a symbol without a name that is the same wherever a and b are. The
// caller knows that a is not negative in any run that succeeds.
Dim Quotient(const Dim& a, const Dim& b);
// Sizes without a name that must be others, or the run fails: the inner sizes of products, parts of a Concat. True: types have changed.
bool UnifySizes(Graph& graph);
// The element type that an attribute names by ONNX's number; undefined where it names none that octavo has.
DType DTypeOfAttr(const Inferrer& c, std::string_view attr);
// ceil(n / d) for d > 0; 0 where n is not positive.
constexpr int64_t CeilDiv(int64_t n, int64_t d) { return n <= 0 ? 0 : (n - 1) / d + 1; }
// Output 0: dtype and shape of input 0.
Status SameAsFirst(Inferrer& c);
// Result size of a slice of one dim, ONNX rules; unknown bounds give an unknown size.
Dim SliceLength(const Dim& size, const Dim& start, const Dim& end, int64_t step);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_INFER_RULES_H_
