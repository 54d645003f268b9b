#include "octavo/api/loss.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "octavo/quant/calibrate.h"

namespace octavo::api {

void LeaveOutPadding(const ir::TensorMap& inputs, ir::TensorMap& outputs) {
  const std::string name = quant::OnlyMask(inputs);
  if (name.empty()) return;
  const ir::Tensor& mask = inputs.at(name);
  std::vector<size_t> real;
  for (int64_t i = 0; i < mask.size(); ++i) {
    if (mask.GetInt(i) != 0) real.push_back(static_cast<size_t>(i));
  }
  for (auto& [output, t] : outputs) {
    if (t.rank() < 3 || t.shape()[0] != mask.shape()[0] || t.shape()[1] != mask.shape()[1] || t.size() == 0) continue;
    ir::Shape shape(t.shape().begin() + 1, t.shape().end());
    shape[0] = static_cast<int64_t>(real.size());
    ir::Tensor left = ir::Tensor::Empty(t.dtype(), std::move(shape));
    const size_t bytes = t.byte_size() / static_cast<size_t>(mask.size());
    for (size_t i = 0; i < real.size(); ++i) {
      std::memcpy(left.mutable_data() + i * bytes, t.data() + real[i] * bytes, bytes);
    }
    t = std::move(left);
  }
}

ir::Result<ir::TensorMap> NamedOutputs(const runtime::Model& model,
                                       const std::vector<passes::quantize::CodedCache>& caches, ir::TensorMap inputs) {
  passes::quantize::EncodeCaches(caches, inputs);
  OCTAVO_TRY(std::vector<ir::Tensor> tensors, model.Run(std::move(inputs)));
  ir::TensorMap named;
  for (size_t i = 0; i < tensors.size(); ++i) named[model.outputs()[i].name] = std::move(tensors[i]);
  passes::quantize::DecodeCaches(caches, named);
  return named;
}

ir::Result<Losses> LossesOf(const ir::Graph& graph, const Sample& truth, const runtime::CompileOptions& options) {
  ir::TensorMap want = truth.outputs;
  std::erase_if(want, [](const auto& output) { return !quant::IsFloat(output.second.dtype()); });
  OCTAVO_TRY(const runtime::Model model, runtime::Model::Compile(graph, options));
  OCTAVO_TRY(ir::TensorMap got, NamedOutputs(model, passes::quantize::CodedCaches(graph), truth.inputs));
  LeaveOutPadding(truth.inputs, want);
  LeaveOutPadding(truth.inputs, got);
  Losses losses;
  OCTAVO_TRY_STATUS(quant::AddErrors(want, got, losses));
  return losses;
}

const Losses::value_type* Worst(const Losses& losses) {
  const auto distance = [](const Losses::value_type& l) {
    return l.second.mismatches() > 0 ? -std::numeric_limits<double>::infinity() : l.second.SqnrDb();
  };
  const auto it = std::ranges::min_element(losses, {}, distance);
  return it == losses.end() ? nullptr : &*it;
}

}  // namespace octavo::api
