// Decoders of the zoo and of com.microsoft, one run after the other: caches that a state keeps give the bits of caches that are fed by hand.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "octavo/api/optimize.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"
#include "octavo/tests/unpacked.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ir::Tensor;
using runtime::CachePort;
using runtime::Model;

Tensor Ints(const Tensor& like, ir::Shape shape, const std::function<int64_t(int64_t)>& value) {
  Tensor t = Tensor::Zeros(like.dtype(), std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) {
    if (t.dtype() == ir::DType::kS64) t.mutable_as<int64_t>()[static_cast<size_t>(i)] = value(i);
    if (t.dtype() == ir::DType::kS32) t.mutable_as<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(value(i));
  }
  return t;
}

// Of [batch, rows, ...] the first `rows`.
Tensor FirstRows(const Tensor& t, int64_t rows) {
  ir::Shape shape = t.shape();
  const size_t from = t.byte_size() / static_cast<size_t>(shape[0]);
  shape[1] = rows;
  Tensor part = Tensor::Zeros(t.dtype(), shape);
  const size_t to = part.byte_size() / static_cast<size_t>(shape[0]);
  for (int64_t b = 0; b < shape[0]; ++b) {
    std::memcpy(part.mutable_data() + static_cast<size_t>(b) * to, t.data() + static_cast<size_t>(b) * from, to);
  }
  return part;
}

// What the case of the file gives, for `rows` tokens behind `before`; without the caches.
ir::TensorMap InputsFor(const Model& model, const ir::TensorMap& file, int64_t before, int64_t rows) {
  ir::TensorMap inputs;
  std::set<std::string> caches;
  for (const CachePort& port : model.caches()) caches.insert(model.inputs()[port.input].name);
  for (const auto& port : model.inputs()) {
    if (caches.contains(port.name)) continue;
    const Tensor& given = file.at("0/in/" + port.name);
    const int64_t all = before + rows;
    if (port.name == "attention_mask") {
      inputs[port.name] = Ints(given, {given.shape()[0], all}, [](int64_t) { return 1; });
    } else if (port.name == "position_ids") {
      inputs[port.name] = Ints(given, {given.shape()[0], rows}, [&](int64_t i) { return before + i % rows; });
    } else if (port.name == "seqlens_k") {
      inputs[port.name] = Ints(given, given.shape(), [&](int64_t) { return all - 1; });
    } else if (port.name == "total") {
      inputs[port.name] = Ints(given, given.shape(), [&](int64_t) { return all; });
    } else if (port.name == "input_ids" || port.name == "x") {
      inputs[port.name] = FirstRows(given, rows);
    } else {
      inputs[port.name] = given;
    }
  }
  return inputs;
}

// The caches without rows, as a caller would make them.
ir::TensorMap EmptyCaches(const Model& model, int64_t batch) {
  ir::TensorMap caches;
  for (const CachePort& port : model.caches()) {
    const auto& info = model.inputs()[port.input];
    ir::Shape shape;
    for (const ir::Dim& d : *info.type.shape) shape.push_back(d.is_number() ? d.number() : 0);
    shape[0] = batch;
    caches[info.name] = Tensor::Zeros(info.type.dtype, shape);
  }
  return caches;
}

// int8: with caches of codes.
ir::Result<ir::Graph> Opened(const fs::path& file, const std::string& recipe) {
  OCTAVO_TRY(ir::Graph graph, ir::onnx::ReadFile(file.string()));
  api::OptimizeOptions options;
  options.recipe = recipe, options.threads = 1;
  const auto arrays = ir::ReadNpz(fs::path(file).replace_extension(".npz").string());
  ir::TensorMap inputs;
  for (const ir::ValueId v : graph.inputs()) {
    const std::string& name = graph.value(v).name;
    if (arrays && arrays->contains("0/in/" + name)) inputs[name] = arrays->at("0/in/" + name);
  }
  const auto data = quant::InMemoryData({inputs}, quant::InputsOf(graph));
  if (recipe == "int8") options.data = data.get(), options.quantize_kv_cache = true;
  OCTAVO_TRY(auto result, api::Optimize(std::move(graph), options));
  return std::move(result.graph);
}

// How many of the caches are appended to where they lie.
int64_t Compare(const fs::path& file, const std::string& recipe, int threads) {
  SCOPED_TRACE(file.filename().string() + " " + recipe);
  auto graph = Opened(file, recipe);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  if (!graph) return 0;
  auto model = Model::Compile(std::move(*graph), {.threads = threads});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  const auto arrays = ir::ReadNpz(fs::path(file).replace_extension(".npz").string());
  EXPECT_TRUE(arrays.has_value());
  if (!model || !arrays) return 0;
  const Tensor& tokens = arrays->contains("0/in/x") ? arrays->at("0/in/x") : arrays->at("0/in/input_ids");
  const int64_t most = tokens.shape()[1], batch = tokens.shape()[0];
  ir::TensorMap by_hand = EmptyCaches(*model, batch);
  runtime::CacheState state;
  int64_t before = 0;
  for (const int64_t rows : {most, int64_t{1}, int64_t{1}, std::min<int64_t>(most, 2), int64_t{1}}) {
    const ir::TensorMap given = InputsFor(*model, *arrays, before, rows);
    ir::TensorMap all = given;
    all.insert(by_hand.begin(), by_hand.end());
    auto want = model->Run(all);
    const auto got = model->Run(given, state);
    EXPECT_TRUE(want.has_value()) << want.error().message;
    EXPECT_TRUE(got.has_value()) << got.error().message;
    if (!want || !got) return 0;
    const std::vector<Tensor> kept = state.Tensors();
    for (size_t i = 0; i < kept.size(); ++i) {
      const CachePort& port = model->caches()[i];
      EXPECT_TRUE(kept[i].SameBits((*want)[port.output])) << "cache " << i << " at " << before;
      EXPECT_FALSE((*got)[port.output].defined());
      by_hand[model->inputs()[port.input].name] = std::exchange((*want)[port.output], Tensor());
    }
    for (size_t i = 0; i < want->size(); ++i) {
      const bool cache = !(*want)[i].defined();
      EXPECT_TRUE(cache || (*want)[i].SameBits((*got)[i])) << "output " << i << " at " << before;
    }
    before += rows;
    EXPECT_EQ(state.length(), before);
  }
  int64_t rooms = 0;
  for (const CachePort& port : model->caches()) rooms += port.in_room ? 1 : 0;
  return rooms;
}

TEST(State, EveryDecoderOfTheZooGivesTheBitsOfCachesFedByHand) {
  std::map<std::string, int64_t> rooms;
  for (const char* folder : {"float", "extra"}) {
    for (const auto& entry : fs::directory_iterator(tests::Unpacked() / "zoo" / folder)) {
      const std::string name = entry.path().stem().string();
      if (entry.path().extension() != ".onnx" || name.find("_past") == std::string::npos) continue;
      const int64_t some = Compare(entry.path(), "float", 1);
      EXPECT_GT(some, 0) << name;
      if (name.find("llama_kv2") != std::string::npos) {
        for (const char* recipe : {"dynamic", "dynamic4", "int8"})
          EXPECT_EQ(Compare(entry.path(), recipe, 2), some) << recipe;
      }
      rooms[name] = some;
    }
  }
  EXPECT_GE(rooms.size(), 15u);
  EXPECT_EQ(rooms["llama_kv2_past.dyn18.sdpa"], 4);
  EXPECT_EQ(rooms["gpt2_past.ts14.eager"], 4);
  EXPECT_EQ(rooms["v_gqa_past"], 2);
}

}  // namespace
}  // namespace octavo
