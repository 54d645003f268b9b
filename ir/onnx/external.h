// External data: files beside the model, mapped once each, never outside the model's folder.
#ifndef OCTAVO_IR_ONNX_EXTERNAL_H_
#define OCTAVO_IR_ONNX_EXTERNAL_H_

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "octavo/ir/tensor.h"

namespace octavo::ir::onnx {

class ExternalFiles {
 public:
  struct File {
    std::shared_ptr<const Buffer> data;
    uint64_t named = 0;    // bytes of all its tensors
    bool counted = false;  // by FirstSize
  };
  // An empty folder: the model came from memory and nobody said where its data lies.
  explicit ExternalFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // For a tensor of so many bytes. Tensors may share bytes, but a file that they name over and over again is refused: whoever
  // walks the graph would look at it as often.
  Result<std::shared_ptr<const Buffer>> Open(const std::string& location, size_t bytes);
  // One that is mapped already, under this name. It counts as counted.
  void Add(const std::string& location, std::shared_ptr<const Buffer> data);
  // Size of the file when it is asked for the first time, else 0; 0 where it cannot be opened, of which Open gives the reason.
  int64_t FirstSize(const std::string& location);
  std::vector<std::filesystem::path> Paths() const;  // of all that were opened

 private:
  Result<File*> Find(const std::string& location);

  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<File>> by_location_, by_path_;  // one file may be named in many ways
};

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_EXTERNAL_H_
