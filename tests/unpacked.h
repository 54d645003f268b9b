// What tests/data holds as archives, unpacked by the build.
#ifndef OCTAVO_TESTS_UNPACKED_H_
#define OCTAVO_TESTS_UNPACKED_H_

#include <filesystem>

namespace octavo::tests {

// The folder with one folder for each archive: zoo, onnx-1.20.1, onnx-1.22.0, onnx-1.23.2.
std::filesystem::path Unpacked();

}  // namespace octavo::tests

#endif  // OCTAVO_TESTS_UNPACKED_H_
