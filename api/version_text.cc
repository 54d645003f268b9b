// The only file that knows the commit, so that a commit compiles one file anew.
#include "octavo/api/version_text.h"

#include "commit.h"  // made by the build (platform/cmake/commit.cmake)
#include "octavo/version.h"

namespace octavo::api {

std::string VersionText() {
  const std::string commit = OCTAVO_COMMIT;
  return "octavo " OCTAVO_VERSION + (commit.empty() ? commit : " (" + commit + ")");
}

}  // namespace octavo::api
