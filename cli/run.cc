#include <cstdio>
#include <format>
#include <optional>

#include "octavo/api/open.h"
#include "octavo/api/version_text.h"
#include "octavo/cli/cli.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/whole_file.h"
#include "octavo/kernels/arch/numa.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/packed_file.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string model, inputs, outputs, trace;
  int threads = 0;
  std::optional<int> numa_node;
  bool as_is = false;
  PackedFlags packed;
};

// Name, type, and what a person checks first: the range.
void PrintOutputs(const runtime::Model& model, const std::vector<ir::Tensor>& outputs) {
  std::vector<std::vector<std::string>> rows{{"output", "dtype", "shape", "min", "mean", "max"}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ir::Tensor& t = outputs[i];
    double lo = 0, hi = 0, sum = 0;
    const bool numeric = t.dtype() != ir::DType::kString && t.size() > 0;
    for (int64_t e = 0; numeric && e < t.size(); ++e) {
      const double x = t.GetDouble(e);
      lo = e == 0 ? x : std::min(lo, x);
      hi = e == 0 ? x : std::max(hi, x);
      sum += x;
    }
    const auto show = [&](double x) { return numeric ? std::format("{:.6g}", x) : std::string("-"); };
    rows.push_back({model.outputs()[i].name, std::string(quant::Name(t.dtype())), ir::ToString(t.shape()), show(lo),
                    show(numeric ? sum / static_cast<double>(t.size()) : 0), show(hi)});
  }
  std::fputs(Table(rows, {3, 4, 5}).c_str(), stdout);
}

int Run(const Flags& flags) {
  std::vector<NamedFile> read{{flags.model, "the model that is read"}, {flags.inputs, "the inputs"}};
  const std::vector<NamedFile> written{
      {flags.outputs, "--outputs"}, {flags.trace, "--trace"}, {flags.packed.PathFor(flags.model), "--packed"}};
  if (const auto files = CheckFiles(read, written); !files) return Fail(files.error());
  auto graph = ReadModel(flags.model, &read, !flags.packed.PathFor(flags.model).empty());
  if (!graph) return Fail(graph.error());
  if (const auto files = CheckFiles(read, written); !files) return Fail(files.error());
  auto inputs = ReadInputs(*graph, flags.inputs);
  if (!inputs) return Fail(inputs.error());
  api::Opened opened = flags.as_is ? api::Opened{std::move(*graph), {}} : api::FuseToRun(std::move(*graph));
  Progress progress(true);
  const runtime::PackingWatch watch([&progress](int64_t done, int64_t total) { progress.Show(kPacking, done, total); });
  std::optional<kernels::OnNumaNode> on_node;
  if (flags.numa_node) on_node.emplace(*flags.numa_node);
  auto model = runtime::Model::Compile(std::move(opened.graph), {.threads = flags.threads,
                                                                 .interrupted = [] { return Interrupted().load(); },
                                                                 .packed_file = flags.packed.PathFor(flags.model),
                                                                 .packed_by = api::VersionText()});
  progress.Done();
  if (!model) return Fail(model.error());
  Note(opened.note);
  Note(model->packed().note);
  runtime::Profile profile;
  const Patience patience(2);
  auto outputs = model->Run(*inputs);
  // The first run prepares what depends on shapes: memory, oneDNN's primitives. Nobody wants to see that.
  if (outputs && !flags.trace.empty()) outputs = model->Run(*inputs, &profile);
  if (!outputs) return Fail(outputs.error()), Interrupted() ? kInterrupted : kFailed;
  if (!flags.outputs.empty()) {
    ir::TensorMap named;
    for (size_t i = 0; i < outputs->size(); ++i) named[model->outputs()[i].name] = (*outputs)[i];
    if (auto ok = ir::WriteNpz(flags.outputs, named); !ok) return Fail(ok.error());
  }
  if (!flags.trace.empty()) {
    if (auto ok = ir::WriteWholeFile(flags.trace, runtime::ToChromeTrace(profile)); !ok) return Fail(ok.error());
  }
  PrintOutputs(*model, *outputs);
  return Interrupted() ? kInterrupted : kOk;
}

}  // namespace

void AddRun(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = program.app.add_subcommand("run", "run a model on one batch");
  c->add_option("model", flags->model, "ONNX model")->required()->type_name("MODEL.onnx");
  c->add_option("--inputs,--input", flags->inputs, "arrays named as the model's inputs")
      ->required()
      ->type_name("X.npz");
  c->add_option("--outputs,--output", flags->outputs, "write the outputs here")->type_name("Y.npz");
  c->add_option("--threads", flags->threads, "threads; 0: all")->check(CLI::Range(0, 1024));
  c->add_option("--numa-node", flags->numa_node, "threads and memory on this node of memory")
      ->check(CLI::Range(0, 1023));
  c->add_flag("--as-is", flags->as_is, "do not fuse the graph before it runs");
  AddPacked(*c, flags->packed);
  c->add_option("--trace", flags->trace,
                "write a Chrome trace of a second run: every kernel with its source ONNX nodes")
      ->type_name("T.json");
  c->footer("Example:\n  octavo run model.int8.onnx --inputs batch.npz --outputs out.npz --trace trace.json");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

}  // namespace octavo::cli
