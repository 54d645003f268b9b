#include "octavo/fuzz/targets.h"

namespace octavo::fuzz {

std::span<const Target> ReaderTargets() {
  static constexpr Target kTargets[] = {{"onnx", &FuzzOnnx},
                                        {"text", &FuzzText},
                                        {"npz", &FuzzNpz},
                                        {"calibration", &FuzzCalibration},
                                        {"gguf", &FuzzGguf}};
  return kTargets;
}

}  // namespace octavo::fuzz
