// Node tests of an ONNX release (tests/data/onnx-RELEASE/node.tar.xz) in a folder that vanishes with the object.
#ifndef OCTAVO_TESTS_IR_NODE_TESTS_H_
#define OCTAVO_TESTS_IR_NODE_TESTS_H_

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace octavo::ir {

class NodeTests {
 public:
  explicit NodeTests(const std::string& release = "1.22.0") {
    namespace fs = std::filesystem;
    const fs::path archive =
        fs::absolute(fs::path(OCTAVO_SOURCE_DIR) / ("tests/data/onnx-" + release + "/node.tar.xz"));
    folder_ = fs::temp_directory_path() / ("octavo_node_tests_" + release + "_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    // CMake built this program, so it is there, and it reads the format without other tools.
    const std::string command = "cd '" + folder_.string() + "' && cmake -E tar xf '" + archive.string() + "'";
    if (std::system(command.c_str()) != 0) problem_ = "cmake cannot unpack " + archive.string();
  }
  ~NodeTests() {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  NodeTests(const NodeTests&) = delete;
  NodeTests& operator=(const NodeTests&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& problem() const { return problem_; }  // empty: unpacked

 private:
  std::filesystem::path folder_;
  std::string problem_;
};

}  // namespace octavo::ir

#endif  // OCTAVO_TESTS_IR_NODE_TESTS_H_
