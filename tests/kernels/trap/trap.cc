#include "trap.h"

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "machine.h"

namespace octavo::trap {
namespace {

std::atomic<uint64_t> tile_count{0}, vector_count{0};
std::atomic<PairOrder> pair_order{PairOrder::kManual};
std::mutex problem_mutex;
std::string first_problem;
thread_local TileFile tiles;

constexpr int kGregs[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// The XSAVE area of a signal frame, in its standard form: xmm registers at 160, the header (XSTATE_BV) at 512; the upper
// halves of ymm, the upper halves of zmm and the registers from zmm16 on where CPUID says. The words that Linux leaves at 464
// name the size and the parts that are there (struct _fpx_sw_bytes).
class SavedVectors {
 public:
  explicit SavedVectors(void* area) : area_(static_cast<uint8_t*>(area)) {
    uint32_t magic;
    std::memcpy(&magic, area_ + 464, 4);
    if (magic == 0x46505853u) std::memcpy(&there_, area_ + 464 + 8, 8);  // FP_XSTATE_MAGIC1
  }

  bool HasYmm() const { return (there_ & 4) != 0; }
  bool HasZmm() const { return (there_ & 0xC0) == 0xC0; }
  void Read(uint8_t (*zmm)[64]) const {
    const uint64_t in_use = InUse();
    ForParts([&](uint64_t bit, uint8_t* saved, size_t first, size_t count, size_t at, size_t bytes) {
      for (size_t i = 0; i < count && (in_use & bit) != 0; ++i)
        std::memcpy(zmm[first + i] + at, saved + bytes * i, bytes);
    });
  }
  void Write(const uint8_t (*zmm)[64]) const {
    uint64_t in_use = InUse();
    ForParts([&](uint64_t bit, uint8_t* saved, size_t first, size_t count, size_t at, size_t bytes) {
      for (size_t i = 0; i < count; ++i) std::memcpy(saved + bytes * i, zmm[first + i] + at, bytes);
      in_use |= bit;
    });
    std::memcpy(area_ + 512, &in_use, 8);
  }

 private:
  uint64_t InUse() const {
    uint64_t v;
    std::memcpy(&v, area_ + 512, 8);
    return v;
  }
  // f(bit of XSTATE_BV, where it lies, first register, registers, first byte of each, bytes of each).
  template <class F>
  void ForParts(F f) const {
    static const size_t upper_ymm = PartAt(2), upper_zmm = PartAt(6), last_zmm = PartAt(7);
    f(2, area_ + 160, 0, 16, 0, 16);
    if (HasYmm()) f(4, area_ + upper_ymm, 0, 16, 16, 16);
    if (!HasZmm()) return;
    f(0x40, area_ + upper_zmm, 0, 16, 32, 32);
    f(0x80, area_ + last_zmm, 16, 16, 0, 64);
  }
  static size_t PartAt(uint32_t part) {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
    __get_cpuid_count(0xD, part, &eax, &ebx, &ecx, &edx);
    return ebx;
  }
  uint8_t* area_;
  uint64_t there_ = 0;
};

void Record(const std::string& problem) {
  const std::lock_guard lock(problem_mutex);
  if (first_problem.empty()) first_problem = problem;
}

void OnIllegalInstruction(int, siginfo_t*, void* context) {
  auto& frame = static_cast<ucontext_t*>(context)->uc_mcontext;
  const SavedVectors vectors(frame.fpregs);
  Machine m;
  for (int i = 0; i < 16; ++i) m.gpr[i] = static_cast<uint64_t>(frame.gregs[kGregs[i]]);
  m.rip = reinterpret_cast<const uint8_t*>(frame.gregs[REG_RIP]);
  m.tiles = &tiles;
  m.pair_order = pair_order.load();
  const bool has_ymm = vectors.HasYmm();
  m.has_zmm = vectors.HasZmm();
  if (has_ymm) vectors.Read(m.zmm);
  // Neighbours of the same kind are executed too: a signal costs more than they do.
  uint64_t tile = 0, vector = 0;
  for (;;) {
    const Outcome outcome = Execute(m);
    if (!outcome.known || (!outcome.is_tile && !has_ymm)) break;
    if (!outcome.problem.empty()) Record(outcome.problem);
    m.rip += outcome.length;
    outcome.is_tile ? ++tile : ++vector;
  }
  if (tile + vector == 0) {  // not ours: the instruction is repeated and ends the process as it would have
    signal(SIGILL, SIG_DFL);
    return;
  }
  tile_count += tile;
  vector_count += vector;
  frame.gregs[REG_RIP] = reinterpret_cast<greg_t>(m.rip);
  if (m.vectors_changed) vectors.Write(m.zmm);
}

}  // namespace

void Install() {
  static const bool once = [] {
    struct sigaction action{};
    action.sa_sigaction = &OnIllegalInstruction;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGILL, &action, nullptr) == 0;
  }();
  static_cast<void>(once);
}

Counts Executed() { return {tile_count.load(), vector_count.load()}; }

void SetPairOrder(PairOrder order) { pair_order = order; }

std::string TakeProblem() {
  const std::lock_guard lock(problem_mutex);
  std::string problem;
  problem.swap(first_problem);
  return problem;
}

bool TilesReleased() {
  if (__builtin_cpu_supports(
          "amx-tile")) {  // XGETBV tells which parts of the state are in use; bit 17: the tiles' configuration
    uint32_t low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    if ((low & (1U << 17)) != 0) return false;
  }
  return !tiles.configured;
}

}  // namespace octavo::trap
