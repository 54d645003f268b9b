#include "octavo/fuzz/targets.h"

namespace octavo::fuzz {

std::span<const Target> AllTargets() {
  static constexpr Target kTargets[] = {
      {"onnx", &FuzzOnnx}, {"text", &FuzzText},         {"npz", &FuzzNpz},       {"calibration", &FuzzCalibration},
      {"gguf", &FuzzGguf}, {"pipeline", &FuzzPipeline}, {"report", &FuzzReport}, {"model", &FuzzModel}};
  return kTargets;
}

}  // namespace octavo::fuzz
