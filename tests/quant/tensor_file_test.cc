// ONNX's test_data_set folders through the tensor reader of ir/onnx.
#include "octavo/ir/onnx/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "octavo/ir/whole_file.h"
#include "octavo/quant/dataset.h"

namespace octavo::quant {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(TensorFile, IsReadAsData) {
  const fs::path dir = fs::temp_directory_path() / std::format("octavo_tensor_file_{}", getpid());
  const fs::path set = dir / "test_data_set_0";
  fs::create_directories(set);
  // TensorProto by hand: dims 2 (field 1), data_type 1 = float (field 2), name "x" (field 8), raw_data (field 9).
  const std::string x("\x08\x02\x10\x01\x42\x01x\x4a\x08\x00\x00\x80\x3f\x00\x00\x00\xc0", 17);
  ASSERT_TRUE(ir::WriteWholeFile(set / "input_0.pb", x));
  const auto r = ir::onnx::ReadTensorFile(set / "input_0.pb");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->first, "x");
  EXPECT_EQ(r->second, ir::Tensor::F32({2}, {1, -2}));
  auto data =
      OpenData(dir.string(), {{"x", {DType::kF32, ir::SymShape{2}}}}, {.read_tensor_file = ir::onnx::ReadTensorFile});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ((*data)->Next().value()->inputs.at("x"), ir::Tensor::F32({2}, {1, -2}));

  const auto error = [&](std::string_view bytes) {
    EXPECT_TRUE(ir::WriteWholeFile(set / "bad.pb", bytes));
    const auto bad = ir::onnx::ReadTensorFile(set / "bad.pb");
    return bad ? "no error" : bad.error().message;
  };
  EXPECT_THAT(error(""), HasSubstr("bad.pb' is empty"));
  for (size_t n = 1; n < x.size(); ++n) EXPECT_THAT(error(x.substr(0, n)), HasSubstr("bad.pb'")) << n;
  EXPECT_THAT(ir::onnx::ReadTensorFile(set / "none.pb").error().message, HasSubstr("no such file"));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace octavo::quant
