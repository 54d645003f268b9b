// The peer of every benchmark: oneDNN's int8 and float products and attention on the calling thread.
#ifndef OCTAVO_KERNELS_BENCH_ONEDNN_H_
#define OCTAVO_KERNELS_BENCH_ONEDNN_H_

#include <cstdint>
#include <memory>

#include "octavo/kernels/arch/arch.h"

namespace octavo::kernels::bench {

// Keeps oneDNN to the instructions of `arch`. Only before its first use in a process; false: too late.
bool LimitOneDnn(Arch arch);

// u8 x s8 -> u8 with source zero point, column scales, bias and destination scale: what one branch of ours does.
// Weights are reordered before, as ours are packed before.
class OneDnnInt8 {
 public:
  // weight: the value of all of them; up to 64 no sum of a pair can saturate.
  OneDnnInt8(int64_t m, int64_t k, int64_t n, int8_t weight = 127);
  ~OneDnnInt8();
  void Run();
  // The worst code of the last Run against the right one: 0, or, where sums of pairs saturate (vpmaddubsw), many. All inputs
  // stand at the upper end of their range; time does not depend on that.
  int CodesOff() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// f32 x f32 -> f32, with a bias or none. Weights lie as oneDNN likes them for m rows.
class OneDnnFloat {
 public:
  OneDnnFloat(int64_t m, int64_t k, int64_t n, bool bias);
  ~OneDnnFloat();
  void Run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// matmul, softmax, matmul on [heads, s, d], scale and a float mask as post-operations of the first. int8: u8 queries and
// probabilities, s8 keys and values (the only weights it takes), u8 output.
class OneDnnAttention {
 public:
  OneDnnAttention(int64_t heads, int64_t s, int64_t d, bool int8);
  ~OneDnnAttention();
  void Run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo::kernels::bench

#endif  // OCTAVO_KERNELS_BENCH_ONEDNN_H_
