// Linears become products of codes whose rows are quantized at run time.
//   Before: y = MatMul(x, W)
//   After:  q, s, z = QuantizeTokens(x)   y = QuantizedLinear(q, s, z, codes, scale; per_token = 1)
// Linears that read the same x share its codes, those that read the same W the weights.
#ifndef OCTAVO_PASSES_QUANTIZE_TOKEN_LINEARS_H_
#define OCTAVO_PASSES_QUANTIZE_TOKEN_LINEARS_H_

#include <map>
#include <string>

#include "octavo/passes/pass.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

// Why no kernel takes a weight of this shape; empty: one does.
std::string WhyNoTokens(const ir::Shape& w);

class TokenLinears {
 public:
  TokenLinears(Graph& graph, Rewriter& rewriter) : g_(graph), b_(rewriter) {}

  // Constants of a weight, with names of their own. Steps and their zeros are those of codes of 4 bits; null: there are none.
  struct Weight {
    ir::Tensor codes, scale;
    const ir::Tensor *step = nullptr, *zero = nullptr;
  };
  // The linear is a MatMul of the weight; `weight` is asked once for all Linears that read it.
  template <class F>
  void Replace(NodeId linear, const F& weight) {
    const ValueId w = g_.node(linear).input(1);
    b_.At(linear, {linear});
    auto [at, fresh] = weights_.try_emplace(w);
    if (fresh) at->second = Put(g_.value(w).name, weight());
    Put(linear, at->second);
  }

 private:
  struct Tokens {
    ValueId codes, scale, zero;
  };
  struct Operands {
    ValueId codes, scale, step, zero;
  };
  Operands Put(const std::string& name, const Weight& weight);
  void Put(NodeId linear, const Operands& weight);

  Graph& g_;
  Rewriter& b_;
  std::map<ValueId, Tokens> tokens_;     // of an activation
  std::map<ValueId, Operands> weights_;  // of the matrix that they were
};

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_TOKEN_LINEARS_H_
