// What weights are fitted to: second moments of what Linears read, from the data or from a file that calibrate wrote. Both look at the graph as
// ranges were gathered in, so that one and the other give the same codes.
#include "octavo/passes/quantize/moments.h"

#include <map>

#include "octavo/api/attempt.h"
#include "octavo/runtime/threads.h"

namespace octavo::api {

using ir::Result;
using ir::Status;
using passes::quantize::Columns;
using passes::quantize::SecondMoments;

namespace {

// Of a value of the graph at hand: the one that was calibrated, and which columns of it.
struct Source {
  std::string name;
  const Columns* columns = nullptr;
};

Source SourceOf(const MomentsAsked& asked, ir::ValueId value) {
  const std::string& name = asked.at_hand.value(value).name;
  const auto made = asked.run.columns.find(name);
  return made == asked.run.columns.end() ? Source{name} : Source{made->second.of, &made->second};
}

// As far as there is room: BERT-base has 300 to 600 MB of them.
void Keep(const std::string& value, SecondMoments& moments, std::map<std::string, quant::Moments>& kept) {
  constexpr size_t kMostBytes = size_t{1} << 29;
  size_t bytes = 0;
  for (const auto& [name, known] : kept) bytes += known.bytes();
  quant::Moments copy = moments.Copy();
  if (bytes + copy.bytes() <= kMostBytes) kept.emplace(value, std::move(copy));
}

}  // namespace

Status MomentsOfFile(const MomentsAsked& asked, const quant::Calibration& file) {
  for (size_t i = 0; i < asked.values.size(); ++i) {
    const Source source = SourceOf(asked, asked.values[i]);
    const auto found = file.moments.find(source.name);
    const int64_t k = source.columns != nullptr ? source.columns->channels : asked.into[i].k();
    if (found == file.moments.end() || found->second.k() != k) continue;
    if (source.columns != nullptr) asked.into[i].Through(*source.columns);
    asked.into[i].Borrow(found->second);
  }
  return {};
}

Status MomentsOfData(const MomentsAsked& asked, const OptimizeOptions& options) {
  std::vector<Source> sources;
  bool known = true;
  for (const ir::ValueId value : asked.values) {
    sources.push_back(SourceOf(asked, value));
    known = known && asked.calibrated.FindValue(sources.back().name).valid();
  }
  // A pass of someone else's may have made values that no calibrated one tells of.
  const ir::Graph& graph = known ? asked.calibrated : asked.at_hand;
  std::map<std::string, quant::Moments>* const kept = known ? asked.kept : nullptr;
  CalibrationTask task{graph, {}, {}};
  std::vector<size_t> seen;
  for (size_t i = 0; i < sources.size(); ++i) {
    SecondMoments& moments = asked.into[i];
    if (known && sources[i].columns != nullptr) moments.Through(*sources[i].columns);
    if (kept != nullptr && kept->contains(sources[i].name)) {
      moments.Borrow(kept->at(sources[i].name));
      continue;
    }
    task.taps.push_back(quant::MakeTap(graph, known ? graph.FindValue(sources[i].name) : asked.values[i]));
    task.taps.back().rows = [&moments](std::span<const float> rows, size_t) { moments.Add(rows); };
    seen.push_back(i);
  }
  if (task.taps.empty()) return {};
  task.fingerprint = Fingerprint(graph);
  OCTAVO_TRY_STATUS(Calibrated(task, *options.data, options).transform([](const auto&) {}));
  if (options.stop != nullptr && options.stop->load()) return ir::Fail("interrupted");
  if (kept == nullptr) return {};
  for (const size_t i : seen) Keep(sources[i].name, asked.into[i], *kept);
  return {};
}

Result<quant::Calibration> CalibratedWithMoments(const CalibrationTask& task, quant::DataSource& data,
                                                 const OptimizeOptions& options, const quant::Calibration* resume) {
  if (resume != nullptr && resume->moments.empty())
    return ir::Fail("the calibration to go on with has no moments, so go on without moments=True, or begin anew");
  runtime::Threads threads(options.threads);
  const passes::ParallelFor parallel = [&threads](int64_t n, const auto& one) { threads.For(n, one); };
  std::map<std::string, SecondMoments> gathered;
  CalibrationTask tapped = task;
  for (quant::Tap& tap : tapped.taps) {
    if (!tap.moments) continue;
    tap.rows = [&gathered, &parallel, name = tap.value](std::span<const float> rows, size_t width) {
      gathered.try_emplace(name, static_cast<int64_t>(width), parallel).first->second.Add(rows);
    };
  }
  OCTAVO_TRY(quant::Calibration result, Calibrated(tapped, data, options, resume));
  for (const quant::Tap& tap : tapped.taps) {
    if (!tap.moments) continue;
    const auto of = gathered.find(tap.value);
    quant::Moments& moments = result.moments[tap.value];
    if (of != gathered.end()) moments = of->second.Take(), gathered.erase(of);
    if (resume == nullptr) continue;
    const auto before = resume->moments.find(tap.value);
    if (before == resume->moments.end())
      return ir::Fail("the calibration to go on with has no moments of value '{}'; begin anew", tap.value);
    OCTAVO_TRY_STATUS(moments.Merge(before->second));
  }
  return result;
}

}  // namespace octavo::api
