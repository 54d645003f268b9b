#ifndef OCTAVO_API_PASSES_JSON_H_
#define OCTAVO_API_PASSES_JSON_H_

#include <string>

#include "octavo/passes/pipelines.h"

namespace octavo::api {

// What `octavo passes --json` prints (cli/JSON.md): every pass with what it needs and makes, and the passes of every recipe in order.
std::string PassesJson(const passes::Registry& registry);

}  // namespace octavo::api

#endif  // OCTAVO_API_PASSES_JSON_H_
