#include "octavo/tests/unpacked.h"

namespace octavo::tests {

std::filesystem::path Unpacked() { return OCTAVO_UNPACKED; }

}  // namespace octavo::tests
