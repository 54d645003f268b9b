#include "octavo/api/bench.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <format>
#include <ranges>

#include "octavo/ir/names.h"
#include "octavo/quant/dataset.h"

namespace octavo::api {

using nlohmann::ordered_json;

namespace {

std::map<std::string, double> TimeByKernel(const Timing& t) {
  runtime::Profile profile;
  std::map<std::string, double> by_kernel;
  if (!t.compiled.Run(t.inputs, &profile)) return by_kernel;
  for (const auto& e : profile.events) by_kernel[e.kernel] += e.duration_us / 1e3;
  return by_kernel;
}

ir::Result<ir::Shape> ShapeFromText(std::string_view text) {
  ir::Shape shape;
  for (const auto part : std::views::split(text, 'x')) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
    if (error != std::errc() || end != part.data() + part.size() || size < 0)
      return ir::Fail("a shape is sizes with x between them, as 1x128, not {}", ir::Quoted(text));
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

ir::Result<std::vector<Shapes>> ParseShapes(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<ir::Shape>> lists;
  size_t count = 1;
  for (const std::string& text : texts) {
    const size_t equal = text.rfind('=');
    if (equal == std::string::npos)
      return ir::Fail("a shape is INPUT=SIZES, as input_ids=1x128, not {}", ir::Quoted(text));
    auto& list = lists[text.substr(0, equal)];
    for (const auto part : std::views::split(std::string_view(text).substr(equal + 1), ',')) {
      OCTAVO_TRY(ir::Shape shape, ShapeFromText(std::string_view(part.begin(), part.end())));
      list.push_back(std::move(shape));
    }
    count = std::max(count, list.size());
  }
  std::vector<Shapes> all(count);
  for (const auto& [name, list] : lists) {
    if (list.size() != 1 && list.size() != count)
      return ir::Fail("{} has {} shapes where another input has {}; give each input one, or as many", ir::Quoted(name),
                      list.size(), count);
    for (size_t i = 0; i < count; ++i) all[i][name] = list[list.size() == 1 ? 0 : i];
  }
  return all;
}

ir::Result<ir::TensorMap> RandomInputs(const ir::Graph& graph, const Shapes& shapes) {
  std::vector<quant::InputSpec> specs = quant::InputsOf(graph);
  quant::RandomOptions options;
  options.limits = quant::IdLimits(graph);
  options.memory = graph.info.limits;
  for (const auto& [name, shape] : shapes) {
    const auto spec = std::ranges::find(specs, name, &quant::InputSpec::name);
    if (spec == specs.end())
      return ir::Fail("the model has no input {} to give a shape; its inputs are: {}", ir::Quoted(name),
                      quant::NamesOf(specs));
    std::optional<ir::SymShape>& declared = spec->type.shape;
    if (declared && declared->size() != shape.size())
      return ir::Fail("input {} is {}, which has {} dims, and the shape given has {}", ir::Quoted(name),
                      ToString(spec->type), declared->size(), shape.size());
    ir::SymShape sizes;
    for (size_t i = 0; i < shape.size(); ++i) {
      const ir::Dim dim = declared ? (*declared)[i] : ir::Dim::Unknown();
      if (dim.is_number() && dim.number() != shape[i])
        return ir::Fail("input {} is {}: its dim {} cannot be {}", ir::Quoted(name), ToString(spec->type), i, shape[i]);
      if (const std::string symbol = dim.symbol(); !symbol.empty()) options.dims[symbol] = shape[i];
      sizes.emplace_back(shape[i]);
    }
    declared = std::move(sizes);
  }
  OCTAVO_TRY(const auto data, quant::RandomData(1, std::move(specs), options));
  OCTAVO_TRY(auto batch, data->Next());
  return batch ? std::move(batch->inputs) : ir::TensorMap();
}

ir::Status Bench(std::vector<Timing>& timings, const BenchOptions& options) {
  const auto interrupted = [&] { return options.interrupted && options.interrupted(); };
  if (!(options.seconds >= 0)) return ir::Fail("seconds is {}; it is a number from 0 on", options.seconds);
  for (Timing& t : timings) {
    for (int warm = 0; warm < 2; ++warm) OCTAVO_TRY_STATUS(t.compiled.Run(t.inputs).transform([](const auto&) {}));
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const double most = options.seconds * static_cast<double>(timings.size());
  constexpr int64_t kFewest = 5;
  for (int64_t round = 0; !interrupted(); ++round) {
    if (round >= kFewest && std::chrono::duration<double>(Clock::now() - start).count() >= most) break;
    for (Timing& t : timings) {
      const auto begin = Clock::now();
      OCTAVO_TRY_STATUS(t.compiled.Run(t.inputs).transform([](const auto&) {}));
      t.ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    if (options.progress) options.progress("bench", round + 1, -1);
  }
  for (Timing& t : timings) t.ms_by_kernel = TimeByKernel(t);
  return {};
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

std::string ShapesOf(const ir::TensorMap& inputs) {
  std::string all;
  for (const auto& [name, t] : inputs) {
    std::string dims;
    for (const int64_t d : t.shape()) dims += std::format("{}{}", dims.empty() ? "" : "x", d);
    all += std::format("{}{} {}", all.empty() ? "" : ", ", name, dims.empty() ? "scalar" : dims);
  }
  return all;
}

int64_t RowsOf(const ir::TensorMap& inputs) {
  int64_t rows = 1;
  size_t rank = 0;
  for (const auto& [name, t] : inputs) {
    if (t.shape().size() <= rank) continue;
    rank = t.shape().size();
    rows = t.shape()[0];
  }
  return rows;
}

ordered_json ToJson(const std::vector<Timing>& timings) {
  ordered_json json = {{"schema", 1}, {"cpu", kernels::CpuDescription()}, {"results", ordered_json::array()}};
  const double base = timings.empty() ? 0 : Quantile(timings[0].ms, 0.5);
  for (const Timing& t : timings) {
    if (t.ms.empty()) continue;
    const double median = Quantile(t.ms, 0.5);
    ordered_json shapes = ordered_json::object();
    for (const auto& [name, tensor] : t.inputs) shapes[name] = tensor.shape();
    json["results"].push_back({{"model", t.model},
                               {"threads", t.threads},
                               {"shapes", shapes},
                               {"runs", t.ms.size()},
                               {"min_ms", Quantile(t.ms, 0)},
                               {"median_ms", median},
                               {"p90_ms", Quantile(t.ms, 0.9)},
                               {"p99_ms", Quantile(t.ms, 0.99)},
                               {"samples_per_s", 1e3 * static_cast<double>(RowsOf(t.inputs)) / median},
                               {"speedup", base / median},
                               {"kernels_ms", t.ms_by_kernel}});
  }
  return json;
}

}  // namespace octavo::api
