// Memory that a model takes, told by processes of their own: what this one holds says nothing of the model.
#ifndef OCTAVO_API_PEAK_H_
#define OCTAVO_API_PEAK_H_

#include <filesystem>
#include <functional>
#include <string>

#include "octavo/api/measured.h"
#include "octavo/ir/interpret.h"

namespace octavo::api {

// A folder that goes with its end. path is empty where there is no room for one.
struct TemporaryFolder {
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path path;
};

struct PeakFiles {
  std::string program;        // octavo's, which runs both
  std::string before, after;  // models
};
// What processes hold at most that open each file and run it once; 0 stays where that cannot be told.
void MeasurePeaks(const PeakFiles& files, const ir::TensorMap& inputs, const std::function<bool()>& interrupted,
                  Measured& measured);

}  // namespace octavo::api

#endif  // OCTAVO_API_PEAK_H_
