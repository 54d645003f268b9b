// The second peer of attention: oneDNN's Graph API, whose backend makes one partition of the whole chain and runs it head by
// head (its sdp_decomp kernel), so that the scores of a head stay in cache.
#ifndef OCTAVO_KERNELS_BENCH_ONEDNN_GRAPH_H_
#define OCTAVO_KERNELS_BENCH_ONEDNN_GRAPH_H_

#include <memory>
#include <string>

#include "octavo/kernels/sdpa/sdpa.h"

namespace octavo::kernels::bench {

// The attention of `args`, which must outlive it: one batch, as many kv heads as heads, u8 everywhere, no mask or one number
// a key. float: of the dequantized operands. Its output has its own place.
class OneDnnGraphAttention {
 public:
  OneDnnGraphAttention(const SdpaInt8Args& args, bool int8);
  ~OneDnnGraphAttention();

  // Empty: one partition came back, it is compiled, and its results are those of attention. Otherwise the sentence that
  // says why there is no such peer; Run does nothing then.
  const std::string& problem() const;
  void Run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo::kernels::bench

#endif  // OCTAVO_KERNELS_BENCH_ONEDNN_GRAPH_H_
