#include "octavo/fuzz/way.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <format>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "octavo/api/open.h"
#include "octavo/api/optimize.h"
#include "octavo/api/report_html.h"
#include "octavo/api/report_json.h"
#include "octavo/fuzz/compare.h"
#include "octavo/fuzz/random.h"
#include "octavo/fuzz/sentence.h"
#include "octavo/fuzz/work.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/kernels/arch/arch.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/bodies.h"
#include "octavo/passes/vendor/vendor.h"
#include "octavo/runtime/model.h"

namespace octavo::fuzz {

namespace {

namespace fs = std::filesystem;
using ir::Graph;
using ir::Op;
using ir::Result;

// In the graph or in one of If, Loop and Scan.
bool HasValueOf(const Graph& g, std::initializer_list<ir::DType> types) {
  for (uint32_t i = 0; i < g.value_capacity(); ++i) {
    const ir::ValueId v{i};
    if (g.IsAlive(v) && std::ranges::count(types, g.value(v).type.dtype) != 0) return true;
  }
  for (const ir::NodeId id : g.NodesInOrder()) {
    for (const auto& [name, attr] : g.node(id).attrs.entries()) {
      const auto* body = std::get_if<ir::GraphRef>(&attr);
      if (body != nullptr && HasValueOf(**body, types)) return true;
    }
  }
  return false;
}

// fp8 sums have one order everywhere but on AMX (kernels/fp8/fp8.h).
bool HasFp8Tiles(const Graph& g) {
  return kernels::BestArch() == kernels::Arch::kAmx && HasValueOf(g, {ir::DType::kE4M3FN, ir::DType::kE5M2});
}

// Float products and Resize, whose sums have no one order.
bool HasFloatProducts(const Graph& g) {
  static constexpr Op kProducts[] = {Op::kMatMul, Op::kGemm,      Op::kConv,          Op::kEinsum,
                                     Op::kSdpa,   Op::kAttention, Op::kLinearBlocked, Op::kResize};
  return passes::AnyNode(g, [](const ir::Node& n) { return std::ranges::count(kProducts, n.op) != 0; });
}

// Attention that leaves out keys by their place: a NaN in their K reaches no row then, where a mask of -inf that is added lets it (docs/recipes.md).
bool HasWindows(const Graph& g) {
  return passes::AnyNode(
      g, [](const ir::Node& n) { return n.attrs.Int("window_right", -1) >= 0 || n.attrs.Int("window_left", -1) >= 0; });
}
// A NaN or an infinity among the weights times the padding of an image: kernels leave the padding out, where the interpreter multiplies zeros.
bool HasPadding(const Graph& g) {
  return passes::AnyNode(g, [](const ir::Node& n) {
    return n.op == Op::kConv && (n.attrs.Str("auto_pad", "NOTSET").starts_with("SAME") ||
                                 std::ranges::any_of(n.attrs.Ints("pads"), [](int64_t pad) { return pad != 0; }));
  });
}
// The truth, with numbers of `got` where it has NaN.
Tensors WithNaNOf(Tensors truth, const Tensors& got) {
  for (size_t i = 0; i < truth.size() && i < got.size(); ++i) {
    if (truth[i].dtype() != ir::DType::kF32 || got[i].dtype() != ir::DType::kF32 || truth[i].shape() != got[i].shape())
      continue;
    const auto to = truth[i].mutable_as<float>();
    const auto from = got[i].as<float>();
    for (size_t e = 0; e < to.size(); ++e) to[e] = std::isnan(to[e]) ? from[e] : to[e];
  }
  return truth;
}

uint64_t Hash(std::string_view bytes) {
  uint64_t h = 1469598103934665603u;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

class Walker {
 public:
  Walker(std::string_view model, const WayOptions& options)
      : model_(model), options_(options), random_(SeedOf(options.seed, Hash(model))) {}

  Passage Go() {
    for (const auto& [name, station] : {std::pair{"read", &Walker::Read},
                                        {"inspect", &Walker::Inspect},
                                        {"inputs", &Walker::Inputs},
                                        {"truth", &Walker::Truth},
                                        {"as is", &Walker::AsIs},
                                        {"float", &Walker::Float},
                                        {"int8", &Walker::Int8},
                                        {"recipe", &Walker::Recipe}}) {
      passage_.station = name;
      try {
        if (!(this->*station)()) return Done();
      } catch (const std::exception& e) {
        Find("exception", std::format("{}: {}", name, e.what()));
        return Done();
      }
    }
    passage_.station = "end";
    return Done();
  }

 private:
  // Whether the way goes on.
  bool Read() {
    ir::onnx::ReadOptions options{.external_dir = options_.folder};
    Result<Graph> graph = ir::Fail("");
    if (options_.folder.empty()) {
      graph = ir::onnx::ReadBytes(model_, options);
    } else {
      files_ = {"model.onnx"};
      const fs::path path = options_.folder / "model.onnx";
      std::ofstream(path, std::ios::binary).write(model_.data(), static_cast<std::streamsize>(model_.size()));
      graph = ir::onnx::ReadFile(path, options);
    }
    if (!graph) return Refuse(graph.error());
    graph_ = std::move(*graph);
    for (const std::string& note : graph_.info.notes) Sentence(note);
    return true;
  }

  bool Inspect() {
    ir::ToText(graph_, {.elide_constants_above = 16});
    ir::ToDot(graph_);
    passes::FindAttentionCores(graph_);
    typed_ = graph_;
    if (auto types = ir::Inference::Run(typed_); !types) return Refuse(types.error());
    if (auto legal = ir::VerifyStatus(typed_); !legal) Find("illegal graph", legal.error().message);
    half_ = HasValueOf(typed_, {ir::DType::kF16, ir::DType::kBF16});
    return true;
  }

  bool Inputs() {
    quant::RandomOptions options{.limits = quant::IdLimits(graph_), .seed = 1 + random_.Bits() % 1000};
    auto data = quant::RandomData(1, quant::InputsOf(graph_), options);
    if (!data) return Refuse(data.error());
    auto batch = (*data)->Next();
    if (!batch) return Refuse(batch.error());
    inputs_ = (*batch)->inputs;
    if (DeclaredWork(typed_, inputs_) <= kMostWork) return true;
    Count("too much work to be run");
    return false;
  }

  bool Truth() {
    auto truth = Run(graph_, false);
    if (!truth) return Refuse(truth.error());
    truth_ = std::move(*truth);
    double work = 0;  // of sizes that only the inputs tell, as a Resize's; twice, since they are compared too
    for (const ir::Tensor& t : truth_) work += 20 * static_cast<double>(t.size());
    if (work > kMostWork) return Count("too much work to be run"), false;
    // Up to four at once: these, a recipe's, the same interpreted, and the first of two runs.
    for (const ir::Tensor& t : truth_) passage_.kept += 4 * static_cast<int64_t>(t.byte_size());
    return true;
  }

  bool AsIs() {
    const auto got = Run(graph_, true);
    if (!got) return Failed("as is", got.error());
    Judge("as is", graph_, HasPadding(graph_) ? WithNaNOf(truth_, *got) : truth_, *got);
    Threads("as is", graph_, *got);
    return true;
  }

  bool Float() {
    auto result = Optimize("float");
    if (!result) return Failed("float", result.error());
    const auto got = Run(result->graph, true);
    if (!got) return Failed("float", got.error());
    const bool less = HasWindows(result->graph) || HasPadding(result->graph);
    Judge("float", graph_, less ? WithNaNOf(truth_, *got) : truth_, *got);
    Threads("float", result->graph, *got);
    Export("float", result->graph, *got);
    Report(*result);
    return true;
  }

  bool Int8() {
    auto result = Optimize("int8");
    if (!result) return Sentence(result.error().message), true;
    Report(*result);
    const auto got = Run(result->graph, true);
    if (!got) return Failed("int8", got.error());
    const auto fused = Run(result->graph, false);
    if (!fused) return Failed("int8, interpreted", fused.error());
    if (HasFloatProducts(result->graph) || HasFp8Tiles(result->graph))
      Judge("int8", result->graph, *fused, *got);
    else if (SameBits(*fused, *got))
      Count("int8 equal");
    else
      Find("int8 bits", Apart(*fused, *got));
    Export("int8", result->graph, *got);
    if (result->unfused.node_count() == 0) return true;
    const auto unfused = Run(result->unfused, false);
    if (!unfused) return Sentence(unfused.error().message), true;
    if (SameBits(*unfused, *fused)) return Count("int8 fused as unfused"), true;
    if (HasFloatProducts(result->unfused))
      Judge("int8 fused", result->unfused, *unfused, *fused);
    else
      Find("int8 fused bits", Apart(*unfused, *fused));
    return true;
  }

  // One more, for its errors and crashes; what quantizing loses is not judged here.
  bool Recipe() {
    static constexpr const char* kRecipes[] = {"fp8", "dynamic", "dynamic4", "weights4", "weights8", "quantized"};
    const char* recipe = random_.Of(kRecipes);
    auto result = Optimize(recipe);
    if (!result) return Sentence(result.error().message), true;
    const auto got = Run(result->graph, true);
    if (!got) return Failed(recipe, got.error());
    Threads(recipe, result->graph, *got);
    Export(recipe, result->graph, *got);
    return true;
  }

  Result<api::Optimized> Optimize(const std::string& recipe) {
    api::OptimizeOptions options;
    options.recipe = recipe;
    options.threads = 1;
    const auto data = quant::InMemoryData({inputs_}, quant::InputsOf(graph_));
    if (recipe != "float" && recipe != "quantized") options.data = data.get();
    auto result = api::Optimize(graph_, options);
    if (!result) return result;
    for (const std::string& note : result->notes) Sentence(note);
    for (const auto& candidate : result->report.candidates) {
      if (!candidate.reason.empty()) Sentence(candidate.reason);
    }
    if (auto legal = ir::VerifyStatus(result->graph); !legal)
      Find("illegal graph", recipe + ": " + legal.error().message);
    return result;
  }

  // In one case of two: what several threads share.
  void Threads(const std::string& what, const Graph& graph, const Tensors& alone) {
    if (random_.OneIn(2)) return;
    const auto got = Run(graph, true, 3);
    if (!got) return (void)Failed(what + ", three threads", got.error());
    if (SameBits(alone, *got)) return Count(what + " by three threads equal");
    Find(what + " by three threads", Apart(alone, *got));
  }

  // Two runs: the second lies in the memory that the first planned.
  Result<Tensors> Run(const Graph& graph, bool kernels, int threads = 1) {
    const std::clock_t end = std::clock() + static_cast<std::clock_t>(options_.seconds * CLOCKS_PER_SEC);
    const auto late = [&] { return std::clock() > end; };
    OCTAVO_TRY(const runtime::Model model,
               runtime::Model::Compile(graph, {.threads = threads, .kernels = kernels, .interrupted = late}));
    OCTAVO_TRY(Tensors first, model.Run(inputs_));
    if (!kernels) return first;
    OCTAVO_TRY(const Tensors second, model.Run(inputs_));
    if (!SameBits(first, second)) Find("second run", Apart(first, second));
    return first;
  }

  void Judge(const std::string& what, const Graph& graph, const Tensors& truth, const Tensors& got) {
    std::string detail;
    switch (Compare(graph, truth, got, half_, [&](const Graph& changed) { return Run(changed, false); }, &detail)) {
      case Verdict::kEqual:
        return Count(what + " equal");
      case Verdict::kWithin:
        return Count(what + " within the bound");
      case Verdict::kUnstable:
        return Count(what + " not to be compared");
      case Verdict::kApart:
        return Find(what + " differs", detail);
    }
  }

  void Export(const std::string& what, const Graph& graph, const Tensors& before) {
    Result<Graph> again = ir::Fail("");
    if (options_.folder.empty()) {
      const auto bytes = ir::onnx::WriteBytes(graph);
      if (!bytes) return (void)Sentence(bytes.error().message);
      again = ir::onnx::ReadBytes(*bytes);
    } else {
      const fs::path path = options_.folder / "out.onnx";
      const auto written = ir::onnx::WriteFile(graph, path);
      if (!written) Sentence(written.error().message), CheckFolder();
      if (!written) return;
      again = ir::onnx::ReadFile(path);
      files_.insert("out.onnx");
      CheckFolder();
    }
    if (!again) return Find("export unreadable", what + ": " + again.error().message);
    const auto after = Run(*again, true);
    if (!after) return Find("export fails", what + ": " + after.error().message);
    if (SameBits(before, *after)) return Count(what + " exported equal");
    Judge(what + " exported", graph, before, *after);
  }

  void Report(const api::Optimized& result) {
    const std::string json = api::ReportJson(result, {100, 50});
    if (!nlohmann::json::accept(json)) Find("report", "JSON that does not parse");
    if (!IsUtf8(api::ReportHtml(result, {100, 50}, "model"))) Find("report", "HTML that is no UTF-8");
  }

  void CheckFolder() {
    for (const auto& entry : fs::directory_iterator(options_.folder)) {
      const std::string name = entry.path().filename();
      if (!files_.contains(name)) Find("file left behind", name), files_.insert(name);
    }
  }

  static std::string Apart(const Tensors& a, const Tensors& b) {
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (a[i].SameBits(b[i])) continue;
      std::string where =
          std::format("output {} differs, {} {}", i, quant::Name(a[i].dtype()), ir::ToString(a[i].shape()));
      if (a[i].shape() != b[i].shape() || quant::BitsOf(a[i].dtype()) == 0) return where;
      for (int64_t e = 0; e < a[i].size(); ++e) {
        const double x = a[i].GetDouble(e), y = b[i].GetDouble(e);
        if (x != y && !(std::isnan(x) && std::isnan(y))) return where + std::format(", element {}: {} and {}", e, x, y);
      }
      return where + " in the bits of zeros or NaN alone";
    }
    return "another number of outputs";
  }

  void Count(std::string what) { passage_.counts.push_back(std::move(what)); }
  void Find(std::string kind, std::string detail) { passage_.findings.push_back({std::move(kind), std::move(detail)}); }
  bool Sentence(const std::string& sentence) {
    if (const std::string wrong = WhatIsWrongWith(sentence, model_); !wrong.empty())
      Find("sentence", wrong + ": " + sentence);
    return true;
  }
  bool Refuse(const ir::Error& error) {
    Sentence(error.message);
    passage_.refusal = error.message;
    return false;
  }
  // What runs as it stands failed.
  bool Failed(const std::string& what, const ir::Error& error) {
    Sentence(error.message);
    if (error.message.find("interrupted") != std::string::npos) return Refuse(error);
    Find(what + " fails", error.message);
    return true;
  }
  Passage Done() {
    if (!options_.folder.empty()) CheckFolder();
    for (const std::string& name : files_) fs::remove(options_.folder / name);
    return std::move(passage_);
  }

  std::string_view model_;
  const WayOptions& options_;
  Random random_;
  Passage passage_;
  std::set<std::string> files_;
  Graph graph_, typed_;
  bool half_ = false;
  ir::TensorMap inputs_;
  Tensors truth_;
};

}  // namespace

Passage Walk(std::string_view model, const WayOptions& options) { return Walker(model, options).Go(); }

}  // namespace octavo::fuzz
