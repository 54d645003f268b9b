#include "octavo/ir/status.h"

#include <cstdio>
#include <cstdlib>

namespace octavo::ir {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "octavo: internal error at %s:%d: %s%s%s\n", file, line, condition, message.empty() ? "" : ": ",
               message.c_str());
  std::abort();
}

}  // namespace octavo::ir
