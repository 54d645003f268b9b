// External data: files beside the model, mapped once each, never outside the model's folder.
#ifndef OCTAVO_IR_ONNX_EXTERNAL_H_
#define OCTAVO_IR_ONNX_EXTERNAL_H_

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "octavo/ir/tensor.h"

namespace octavo::ir::onnx {

// The whole file, mapped read-only.
Result<std::shared_ptr<const Buffer>> MapFile(const std::filesystem::path& path, std::string label);

class ExternalFiles {
 public:
  // An empty folder: the model came from memory and nobody said where its data lies.
  explicit ExternalFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Result<std::shared_ptr<const Buffer>> Open(const std::string& location);

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<const Buffer>> open_;
};

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_EXTERNAL_H_
