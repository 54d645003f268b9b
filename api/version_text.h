// Which octavo this is. In a library of its own (octavo::commit), which each commit makes anew.
#ifndef OCTAVO_API_VERSION_TEXT_H_
#define OCTAVO_API_VERSION_TEXT_H_

#include <string>

namespace octavo::api {

// "octavo 0.1.0 (1a2b3c4d5e)": the version and the commit, with a + where files differ from it.
std::string VersionText();

}  // namespace octavo::api

#endif  // OCTAVO_API_VERSION_TEXT_H_
