// The other side of the kernel benchmarks: oneDNN's int8 and float products on the calling thread, and the rate of the
// dot product instruction itself.
#ifndef OCTAVO_BENCHMARKS_PEERS_H_
#define OCTAVO_BENCHMARKS_PEERS_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace octavo::benchmarks {

// u8 x s8 -> u8 with source zero point, column scales, bias and destination scale: what one branch of ours does.
// Weights are reordered before, as ours are packed before.
class OneDnnInt8 {
 public:
  OneDnnInt8(int64_t m, int64_t k, int64_t n);
  ~OneDnnInt8();
  void Run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Multiply-accumulates that the vpdpbusd (or, without VNNI, vpmaddwd + vpaddd) instructions of this CPU do in a
// register-only loop, and that loop. 0 without AVX-512 VNNI.
int64_t DotPeakMacs();
void DotPeakLoop();

}  // namespace octavo::benchmarks

#endif  // OCTAVO_BENCHMARKS_PEERS_H_
