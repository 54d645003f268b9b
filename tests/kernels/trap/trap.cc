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
std::mutex problem_mutex;
std::string first_problem;
thread_local TileFile tiles;

constexpr int kGregs[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// The XSAVE area of a signal frame, in its standard form: xmm registers at 160, the header (XSTATE_BV) at 512, the
// upper halves of the ymm registers where CPUID says.
class SavedVectors {
 public:
  explicit SavedVectors(void* area) : area_(static_cast<uint8_t*>(area)) {}

  bool HasYmm() const {
    uint32_t magic, size;
    std::memcpy(&magic, area_ + 464, 4);
    std::memcpy(&size, area_ + 464 + 16, 4);
    return magic == 0x46505853u && size >= UpperAt() + 256;  // FP_XSTATE_MAGIC1
  }
  void Read(uint8_t (*ymm)[32]) const {
    const uint64_t in_use = InUse();
    for (int i = 0; i < 16; ++i) {
      if ((in_use & 2) != 0) std::memcpy(ymm[i], area_ + 160 + 16 * i, 16);
      if ((in_use & 4) != 0) std::memcpy(ymm[i] + 16, area_ + UpperAt() + 16 * static_cast<size_t>(i), 16);
    }
  }
  void Write(const uint8_t (*ymm)[32]) const {
    for (int i = 0; i < 16; ++i) {
      std::memcpy(area_ + 160 + 16 * i, ymm[i], 16);
      std::memcpy(area_ + UpperAt() + 16 * static_cast<size_t>(i), ymm[i] + 16, 16);
    }
    const uint64_t in_use = InUse() | 6;
    std::memcpy(area_ + 512, &in_use, 8);
  }

 private:
  uint64_t InUse() const {
    uint64_t v;
    std::memcpy(&v, area_ + 512, 8);
    return v;
  }
  static size_t UpperAt() {
    static const size_t at = [] {
      uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
      __get_cpuid_count(0xD, 2, &eax, &ebx, &ecx, &edx);
      return size_t{ebx};
    }();
    return at;
  }
  uint8_t* area_;
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
  const bool has_ymm = vectors.HasYmm();
  if (has_ymm) vectors.Read(m.ymm);
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
  if (m.ymm_changed) vectors.Write(m.ymm);
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

std::string TakeProblem() {
  const std::lock_guard lock(problem_mutex);
  std::string problem;
  problem.swap(first_problem);
  return problem;
}

bool TilesReleased() { return !tiles.configured; }

}  // namespace octavo::trap
