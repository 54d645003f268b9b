// What `octavo optimize --report` measures: time in this process, memory in processes of their own.
#ifndef OCTAVO_CLI_MEASURE_H_
#define OCTAVO_CLI_MEASURE_H_

#include <string>

#include "octavo/api/measured.h"
#include "octavo/quant/dataset.h"

namespace octavo::cli {

struct ToMeasure {
  ir::Graph came;                     // as it was read
  std::string before, after;          // the files, for their memory
  quant::DataSource* data = nullptr;  // its first batch; null: random inputs
};
ir::Result<api::Measured> MeasureHere(ToMeasure what, const ir::Graph& made);

}  // namespace octavo::cli

#endif  // OCTAVO_CLI_MEASURE_H_
