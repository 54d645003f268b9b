#include "octavo/ir/status.h"

namespace octavo::ir {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  throw CheckError(std::format("{}:{}: {}{}{}", file, line, condition, message.empty() ? "" : ": ", message));
}

}  // namespace octavo::ir
