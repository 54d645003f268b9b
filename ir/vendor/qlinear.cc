// com.microsoft QLinearWhere, QLinearReduceMean and the average pools: DequantizeLinear, float op, QuantizeLinear. The
// others of the family: ir/onnx/vendor_quant.cc.
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

Status QLinearWhere(Site& s) {
  const ValueId x = s.Dequantize(s.In(1), s.In(2), s.In(3));
  const ValueId y = s.Dequantize(s.In(4), s.In(5), s.In(6));
  s.Return(0, s.Quantize(s.Make(Op::kWhere, {s.In(0), x, y}), s.In(7), s.In(8)));
  return {};
}

Status QLinearReduceMean(Site& s) {
  const ValueId x = s.Dequantize(s.In(0), s.In(1), s.In(2));
  const std::vector<int64_t> axes = s.attrs().Ints("axes");
  std::vector<ValueId> inputs = {x};
  if (!axes.empty()) inputs.push_back(s.Ints(axes));
  const ValueId mean = s.Make(Op::kReduceMean, std::move(inputs), {{"keepdims", s.attrs().Int("keepdims", 1)}});
  s.Return(0, s.Quantize(mean, s.In(3), s.In(4)));
  return {};
}

Status QLinearPool(Site& s) {
  if (s.attrs().Int("channels_last", 0) != 0)
    return s.Refuse("channels_last is set; export with the channels on axis 1");
  const ValueId x = s.Dequantize(s.In(0), s.In(1), s.In(2));
  ValueId y;
  if (s.op() == "QLinearGlobalAveragePool") {
    y = s.Make(Op::kGlobalAveragePool, {x});
  } else {
    Attrs attrs = s.attrs();
    attrs.Erase("channels_last");
    y = s.Make(Op::kAveragePool, {x}, std::move(attrs));
  }
  s.Return(0, s.Quantize(y, s.In(3), s.In(4)));
  return {};
}

}  // namespace octavo::ir::vendor
