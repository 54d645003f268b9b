// Passes and rules of one's own: what a registry takes, where recipes run them, what files record of them, what the report says.
#include "octavo/passes/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "octavo/passes/pipelines.h"
#include "octavo/passes/plugin.h"
#include "octavo/passes/report.h"
#include "octavo/tests/passes/maker.h"

namespace octavo::passes {
namespace {

using ir::DType;
using pattern::Match;
using pattern::Rule;
using pattern::RuleBuilder;
using pattern::Var;
using ::testing::HasSubstr;

// x * Sigmoid(1.702 x) -> Gelu by tanh.
Rule QuickGelu() {
  RuleBuilder r("my_quick_gelu", "x * Sigmoid(1.702 x) -> Gelu");
  const Var x = r.Input("x");
  const Var gate = r.Op("gate", Op::kSigmoid, {r.AnyOrder("steeper", Op::kMul, x, r.Scalar("slope", 1.702, 1e-6))});
  r.Root(r.AnyOrder("product", Op::kMul, x, gate));
  r.Build(
      [=](Rewriter& b, const Match& m) { return b.Create(Op::kGelu, {m[x]}, {{"approximate", std::string("tanh")}}); });
  return r.Finish();
}

Graph Gated(float slope) {
  Maker m(1);
  const ValueId x = m.g.AddInput("x", {DType::kF32, ir::SymShape{2, 3}});
  const ValueId y = m.Node(Op::kMul, {x, m.Node(Op::kSigmoid, {m.Node(Op::kMul, {m.Real(slope), x})})});
  m.g.SetNodeName(m.g.value(y).producer, "act");
  m.g.AddOutput("y", y);
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return std::move(m.g);
}

class Renames : public Pass {
 public:
  Renames()
      : Pass({.name = "renames",
              .what = "names the last node",
              .options = {{"to", std::string("last"), "the name"}},
              .version = "2"}) {}
  Result<Changes> Run(Graph& graph, PassRun& run) const override {
    const std::string to = run.Option("to", std::string());
    if (to == "throw") throw std::runtime_error("it does not want to");
    if (to == "throw a number") throw 7;
    graph.SetNodeName(graph.last(), to);
    return Changes{.graph = true};
  }
};

TEST(Registry, KnowsItsOwn) {
  const Registry& own = Registry::Own();
  EXPECT_NE(own.Find("fuse_float"), nullptr);
  EXPECT_EQ(own.Find("fuse_flaot"), nullptr);
  for (const auto& pass : own.passes()) {
    EXPECT_TRUE(pass->own());
    EXPECT_FALSE(pass->info().what.empty()) << pass->info().name;
  }
  EXPECT_GT(own.rules().size(), 20u);
  for (const Recipe& recipe : Recipes()) {
    for (const std::string& name : recipe.passes) EXPECT_TRUE(name == kCalibrate || own.Find(name) != nullptr) << name;
  }
}

TEST(Registry, RunsARuleOfOnesOwn) {
  Registry registry;
  ASSERT_TRUE(registry.Add(QuickGelu(), {.version = "1.0", .after = "canonical"}));
  ASSERT_TRUE(registry.Add(QuickGelu(), {.version = "1.0", .after = "canonical"}));  // the same twice
  const auto pipeline = PipelineOfRecipe("float", registry);
  ASSERT_TRUE(pipeline);
  EXPECT_EQ(pipeline->passes[1], "my_quick_gelu");
  EXPECT_EQ(pipeline->foreign.at("my_quick_gelu"), "1.0");
  for (const float slope : {1.702f, 1.7f}) {
    Graph g = Gated(slope);
    PassRun run;
    std::vector<NearMiss> misses;
    run.misses = &misses;
    ASSERT_TRUE(RunPasses(pipeline->passes, g, run, {.registry = &registry, .after = {}}));
    EXPECT_EQ(g.node(g.last()).op == Op::kGelu, slope == 1.702f);
    const std::string names[] = {"my_quick_gelu"};
    const std::vector<Candidate> told = RewritesOf(names, run);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].nodes[0], "act");
    EXPECT_EQ(told[0].status, slope == 1.702f ? "fused" : "left");
    EXPECT_THAT(told[0].reason, slope == 1.702f
                                    ? testing::Eq("")
                                    : testing::Matcher<std::string>(HasSubstr("'slope' is 1.7, not 1.702")));
  }
}

TEST(Registry, FilesRecordWhatIsNotOctavos) {
  Registry registry;
  ASSERT_TRUE(registry.Add(QuickGelu(), {.version = "1.0", .after = "canonical"}));
  Graph g = Gated(1.702f);
  RecordPipeline(*PipelineOfRecipe("float", registry), g);
  EXPECT_THAT(g.info.metadata["octavo.pipeline"], HasSubstr(R"("foreign":{"my_quick_gelu":"1.0"})"));
  const auto read = PipelineOfGraph(g);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->foreign.at("my_quick_gelu"), "1.0");
  EXPECT_TRUE(CheckPasses(*read, registry));
  EXPECT_EQ(CheckPasses(*read, Registry::Own()).error().message,
            "the pipeline has the pass 'my_quick_gelu', version '1.0', which is not octavo's own: load the plugin "
            "or give the rule that brings it");
  Registry newer;
  ASSERT_TRUE(newer.Add(QuickGelu(), {.version = "1.1"}));
  EXPECT_THAT(CheckPasses(*read, newer).error().message,
              HasSubstr("was made with version '1.0' of the pass 'my_quick_gelu'"));
  // A pipeline without any is written as 0.1.0 wrote it.
  EXPECT_THAT(PipelineToJson(*PipelineOfRecipe("float")), testing::Not(HasSubstr("foreign")));
}

TEST(Registry, RefusesPipelinesThatAreNone) {
  const auto error = [](const char* more) {
    return PipelineFromJson(std::string(R"({"octavo_pipeline": 1, "passes": [], )") + more + "}").error().message;
  };
  for (const char* wrong : {R"("foreign": [])", R"("foreign": {"a": 1})"})
    EXPECT_EQ(error(wrong), "the pipeline's \"foreign\" must be {\"PASS\": \"version\"}");
  for (const char* wrong : {R"("options": [])", R"("options": {"a": 1})", R"("options": {"a": {"b": []}})"})
    EXPECT_EQ(error(wrong), "the pipeline's \"options\" must be {\"PASS\": {\"OPTION\": value}}");
}

TEST(Registry, RefusesPluginsThatAreNone) {
  Registry registry;
  EXPECT_THAT(LoadPlugin("/nowhere/libmine.so", registry).error().message,
              HasSubstr("plugin '/nowhere/libmine.so' cannot be loaded: "));
  // The C library has no function octavo_plugin.
  EXPECT_THAT(LoadPlugin("/lib/x86_64-linux-gnu/libc.so.6", registry).error().message,
              HasSubstr("is no plugin of octavo: it has no function octavo_plugin (OCTAVO_PLUGIN in "
                        "octavo/passes/plugin.h makes it)"));
  EXPECT_EQ(registry.passes().size(), Registry::Own().passes().size());
}

TEST(Registry, RefusesPluginsThatGoWrong) {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libodd_plugin.so";
  const auto load = [&](const char* way) -> std::string {
    setenv("OCTAVO_ODD_PLUGIN", way, 1);
    Registry registry;
    const auto loaded = LoadPlugin(path, registry);
    unsetenv("OCTAVO_ODD_PLUGIN");
    EXPECT_EQ(registry.passes().size(), Registry::Own().passes().size());
    if (loaded) return *loaded;
    const std::string message = loaded.error().message;
    return message.substr(0, message.find(path)) + message.substr(message.find(path) + path.size());
  };
  EXPECT_EQ(load(""), "odd");
  for (const char* way : {"is nothing", "has no version"})
    EXPECT_THAT(load(way), HasSubstr("was built for another octavo or another compiler: build it with the octavo"));
  for (const char* way : {"has no name", "adds nothing"}) {
    EXPECT_EQ(load(way), "plugin '' has no name or no function that adds its passes; give OCTAVO_PLUGIN both");
  }
  EXPECT_EQ(
      load("throws"),
      "plugin '' throws an exception (it does not want\\x0ato) when it is loaded; it should set the status instead");
  EXPECT_THAT(load("throws a number"),
              HasSubstr("throws an exception (of a type that has no words) when it is loaded"));
  EXPECT_THAT(load("throws at once"), HasSubstr("throws an exception (not now) when it is loaded"));
  EXPECT_EQ(load("fails"), "plugin '': nothing\\x1b to add");
}

TEST(Registry, SaysOfARuleThatNothingLooksLikeIt) {
  const std::string names[] = {"mine"};
  EXPECT_EQ(RewritesOf(names, PassRun())[0].reason, "nothing in the model looks like it");
}

TEST(Registry, RefusesWhatItCannotTell) {
  Registry registry;
  const auto error = [&registry](PassInfo info, Placement where) {
    return registry
        .Add(std::make_shared<FunctionPass>(std::move(info), [](Graph&, PassRun&) { return Result<bool>(false); }),
             std::move(where))
        .error()
        .message;
  };
  EXPECT_EQ(error({}, {}), "a pass needs a name");
  EXPECT_EQ(error({.name = "mine"}, {}), "the pass 'mine' has no version, which files record: give it one");
  EXPECT_THAT(error({.name = "cse", .version = "1"}, {}), HasSubstr("there is a pass 'cse' already"));
  EXPECT_THAT(error({.name = "mine", .version = "1"}, {.after = "nothing"}),
              HasSubstr("'mine' cannot stand beside 'nothing', which is no pass"));
}

TEST(Registry, TakesOnePlaceAlone) {
  Registry registry;
  const Status added = registry.Add(QuickGelu(), {.version = "1", .after = "canonical", .before = "fold"});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().message,
            "the pass 'my_quick_gelu' has two places, after 'canonical' and before 'fold': give one");
}

TEST(Registry, PlacesThoseOfOnePlaceInOrder) {
  Registry registry;
  const auto add = [&registry](const char* name, Placement where) {
    ASSERT_TRUE(registry.Add(std::make_shared<FunctionPass>(PassInfo{.name = name, .version = "1"},
                                                            [](Graph&, PassRun&) { return Result<bool>(false); }),
                             std::move(where)));
  };
  add("a", {.after = "canonical"});
  add("b", {.after = "canonical"});
  add("c", {.before = "dce"});
  add("d", {});
  add("e", {.after = "a"});
  EXPECT_THAT(registry.Placed({"canonical", "cse", "dce"}),
              testing::ElementsAre("canonical", "a", "e", "b", "cse", "c", "dce"));
}

TEST(Registry, PassesHaveTypedOptions) {
  Registry registry;
  ASSERT_TRUE(registry.Add(std::make_shared<Renames>(), {}));
  Pipeline pipeline{{"renames"}};
  const auto run = [&](std::vector<std::string>* notes = nullptr) {
    Graph g = Gated(1);
    PassRun context;
    const Status s =
        RunPasses(pipeline.passes, g, context, {.registry = &registry, .after = {}, .pipeline = &pipeline});
    if (notes != nullptr) *notes = context.notes;
    return s ? g.node(g.last()).name : s.error().message;
  };
  EXPECT_EQ(run(), "last");
  ASSERT_TRUE(SetOption(registry, "renames", "to=first", pipeline));
  EXPECT_EQ(run(), "first");
  const auto back = PipelineFromJson(
      R"({"octavo_pipeline":1,"passes":["renames"],"options":{"renames":{"to":"first"}},"foreign":{"renames":"2"}})");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->options, pipeline.options);
  pipeline.options["renames"]["to"] = int64_t{1};
  EXPECT_EQ(run(), "the option to of the pass renames is a text");
  EXPECT_EQ(SetOption(registry, "renames", "too=1", pipeline).error().message,
            "the pass renames has no option 'too'; it has to");
  EXPECT_EQ(SetOption(registry, "weights4", "block=x", pipeline).error().message,
            "the option block of the pass weights4 is a whole number");
  pipeline.options = {{"dce", {}}};
  EXPECT_EQ(CheckPasses(pipeline, registry).error().message,
            "there are options for the pass 'dce', which this pipeline does not run");
  // What it throws undoes it and is told; the model goes on.
  pipeline.options = {{"renames", {{"to", std::string("throw")}}}};
  std::vector<std::string> notes;
  EXPECT_EQ(run(&notes), "act");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "the pass renames was undone, since it went wrong on this model: it does not want to");
  pipeline.options = {{"renames", {{"to", std::string("throw a number")}}}};
  notes.clear();
  EXPECT_EQ(run(&notes), "act");
  EXPECT_THAT(notes, testing::ElementsAre(HasSubstr("it threw an exception of a type that has no words")));
}

// What a pattern does not name must not be there.
TEST(Patterns, AreStrict) {
  const auto matches = [](bool open, std::optional<ir::Attrs> named, ir::Attrs attrs, bool second) {
    RuleBuilder r("softmax", "");
    const Var x = r.Input("x");
    Var op = second ? r.Op("node", Op::kReduceMax, {x}) : r.Op("node", Op::kSoftmax, {x});
    if (open) op = r.Open(op);
    if (named) op = r.Named(op, *named);
    r.Root(op);
    r.Build([=](Rewriter&, const Match& m) { return m[x]; });
    const Rule rule = r.Finish();
    Maker m(1);
    const ValueId in = m.g.AddInput("x", {DType::kF32, ir::SymShape{2, 3}});
    const ValueId y = second ? m.Node(Op::kReduceMax, {in, m.Ints({1})}, std::move(attrs))
                             : m.Node(Op::kSoftmax, {in}, std::move(attrs));
    m.g.AddOutput("y", y);
    const pattern::Attempt a = pattern::TryMatch(rule, m.g, y, true);
    return a.match ? "" : a.reason;
  };
  EXPECT_EQ(matches(false, {}, {}, false), "");
  EXPECT_EQ(matches(false, {}, {{"axis", int64_t{-1}}}, false), "");  // says its default
  EXPECT_THAT(matches(false, {}, {{"axis", int64_t{0}}}, false),
              HasSubstr("it has the attribute axis, which the pattern does not name"));
  EXPECT_EQ(matches(true, {}, {{"axis", int64_t{0}}}, false), "");
  EXPECT_EQ(matches(false, ir::Attrs{{"axis", int64_t{0}}}, {{"axis", int64_t{0}}}, false), "");
  EXPECT_EQ(matches(false, ir::Attrs{{"axis", int64_t{-1}}}, {}, false), "");
  EXPECT_THAT(matches(false, ir::Attrs{{"axis", int64_t{0}}}, {}, false),
              HasSubstr("its attribute axis is another one"));
  EXPECT_THAT(matches(false, {}, {}, true), HasSubstr("it has an operand 1, which the pattern does not name"));
  EXPECT_EQ(matches(true, {}, {}, true), "");
}

// Exp(x) and x - y: the second root is found among the readers of what the first one reads.
TEST(Patterns, SayWhatCanMatchNothing) {
  const auto wrong = [](const std::function<Var(RuleBuilder&, Var)>& declare) {
    RuleBuilder r("odd", "a rule");
    const Var x = r.Input("x");
    r.Root(declare(r, x));
    return r.WhyWrong();
  };
  EXPECT_EQ(wrong([](RuleBuilder& r, Var x) { return r.Op("sum", Op::kAdd, {x}); }),
            "'sum' has 1 operand, and Add takes 2");
  EXPECT_EQ(wrong([](RuleBuilder& r, Var x) { return r.Op("sum", Op::kAdd, {x, pattern::Absent()}); }),
            "'sum' has 1 operand, and Add takes 2");
  EXPECT_EQ(wrong([](RuleBuilder& r, Var x) { return r.Open(r.Op("sum", Op::kAdd, {x})); }), "");
  EXPECT_EQ(wrong([](RuleBuilder& r, Var x) { return r.Op("y", Op::kRelu, {x, x}); }),
            "'y' has 2 operands, and Relu takes 1");
  EXPECT_EQ(wrong([](RuleBuilder& r, Var x) { return r.Op("y", Op::kClip, {x, x, x, x}); }),
            "'y' has 4 operands, and Clip takes at most 3");
  EXPECT_EQ(wrong([](RuleBuilder& r, Var x) { return r.Named(r.Op("y", Op::kRelu, {x}), {{"axis", int64_t{1}}}); }),
            "'y' can match nothing: it has the attribute 'axis', which Relu does not know");
  EXPECT_EQ(wrong([](RuleBuilder&, Var x) { return x; }), "its root 'x' is no op");
  EXPECT_EQ(wrong([](RuleBuilder& r, Var x) { return r.Op("sum", Op::kAdd, {x, r.Input("x")}); }),
            "it has two inputs 'x'; where the same value is meant, it is one");
  RuleBuilder r("odd", "a rule");
  r.Root(r.Op("sum", Op::kAdd, {r.Input("x")}));
  r.Build([](Rewriter&, const Match&) { return ValueId(); });
  EXPECT_THROW(r.Finish(), ir::CheckError);
}

TEST(Patterns, HaveSeveralRoots) {
  RuleBuilder r("exp_and_difference", "Exp(x), x - y -> y, x");
  const Var x = r.Input("x"), y = r.Input("y");
  const Var exp = r.Op("exp", Op::kExp, {x}), difference = r.Op("difference", Op::kSub, {x, y});
  r.Root(exp);
  r.Beside(difference);
  r.Guard([=](const Match& m) {
    return m.graph().value(m[y]).name == "no" ? pattern::NotWorth("not this one") : pattern::Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    b.Replace(m[difference], m[x]);
    b.EraseDead(m.node(difference));
    return m[y];
  });
  const Rule rule = r.Finish();
  EXPECT_NE(pattern::Picture(rule).find("beside it: Sub (difference)"), std::string::npos) << pattern::Picture(rule);
  const auto attempt = [&](const std::function<void(Maker&, ValueId, ValueId)>& build) {
    Maker m(3);
    const ValueId of = m.g.AddInput("x", {DType::kF32, ir::SymShape{4}}),
                  no = m.g.AddInput("no", {DType::kF32, ir::SymShape{4}}),
                  yes = m.g.AddInput("yes", {DType::kF32, ir::SymShape{4}});
    m.g.AddOutput("exp", m.Node(Op::kExp, {of}));
    m.g.AddOutput("abs", m.Node(Op::kAbs, {of}));
    build(m, no, yes);
    EXPECT_TRUE(ir::Inference::Run(m.g).has_value());
    PassRun run;
    std::vector<NearMiss> misses;
    run.misses = &misses;
    const bool fired = pattern::ApplyRules({rule}, m.g, run).value_or(false);
    if (!fired) return misses.empty() ? std::string("nothing") : misses.back().reason;
    return m.g.value(m.g.outputs()[0].value).name + " " + m.g.value(m.g.outputs().back().value).name;
  };
  const auto x_of = [](Maker& m) { return m.g.inputs()[0]; };
  EXPECT_EQ(attempt([&](Maker& m, ValueId, ValueId yes) { m.g.AddOutput("d", m.Node(Op::kSub, {x_of(m), yes})); }),
            "yes x");
  // The guard refuses the first one, and the second is tried; that reads x second, and is no such root.
  EXPECT_EQ(attempt([&](Maker& m, ValueId no, ValueId yes) {
              m.g.AddOutput("n", m.Node(Op::kSub, {x_of(m), no}));
              m.g.AddOutput("d", m.Node(Op::kSub, {x_of(m), yes}));
            }),
            "yes x");
  EXPECT_EQ(attempt([&](Maker& m, ValueId no, ValueId) { m.g.AddOutput("n", m.Node(Op::kSub, {x_of(m), no})); }),
            "not this one");
  EXPECT_EQ(attempt([&](Maker& m, ValueId no, ValueId) { m.g.AddOutput("n", m.Node(Op::kSub, {no, x_of(m)})); }),
            "'x' is graph input 'x' here but graph input 'no' there");
  EXPECT_EQ(attempt([](Maker&, ValueId, ValueId) {}), "nothing");
  Maker alone(3);
  const ValueId only = alone.Node(Op::kExp, {alone.g.AddInput("x", {DType::kF32, ir::SymShape{4}})});
  EXPECT_EQ(pattern::TryMatch(rule, alone.g, only, true).reason, "there is no 'difference' beside it");
}

TEST(Patterns, DrawThemselves) {
  EXPECT_EQ(Picture(QuickGelu()),
            "my_quick_gelu: x * Sigmoid(1.702 x) -> Gelu\n"
            "Mul (product, operands in any order)\n"
            "├─ x\n"
            "└─ Sigmoid (gate)\n"
            "   └─ Mul (steeper, operands in any order)\n"
            "      ├─ x\n"
            "      └─ slope: 1.702\n");
  for (const Rule* rule : Registry::Own().rules()) EXPECT_THAT(Picture(*rule), HasSubstr(rule->name));
}

}  // namespace
}  // namespace octavo::passes
