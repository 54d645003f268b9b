#ifndef OCTAVO_FUZZ_SHRINK_H_
#define OCTAVO_FUZZ_SHRINK_H_

#include <functional>
#include <string>

namespace octavo::fuzz {

// A model with as many fields taken away as `fails` allows; `model` itself where it is no ModelProto.
std::string Shrink(const std::string& model, const std::function<bool(const std::string&)>& fails);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_SHRINK_H_
