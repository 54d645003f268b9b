// Pipelines as text, and what a pipeline must be for a registry to run it.
#include <algorithm>
#include <charconv>
#include <format>

#include "octavo/ir/closed.h"
#include "octavo/ir/json.h"
#include "octavo/passes/pipelines.h"

namespace octavo::passes {

namespace {

// "true or false", for sentences.
const char* KindOf(const OptionValue& v) {
  static constexpr const char* kKinds[] = {"true or false", "a whole number", "a number", "a text"};
  return kKinds[v.index()];
}

std::optional<OptionValue> ValueOf(const ir::Json& json) {
  if (const auto b = ir::As<bool>(json)) return *b;
  if (const auto i = ir::As<int64_t>(json)) return *i;
  if (const auto d = ir::As<double>(json)) return *d;
  if (auto s = ir::As<std::string>(json)) return std::move(*s);
  return std::nullopt;
}

Status ReadOptions(const ir::Json& json, Pipeline& pipeline) {
  constexpr const char* kWrong = "the pipeline's \"options\" must be {\"PASS\": {\"OPTION\": value}}";
  if (!json.is_object()) return ir::Fail("{}", kWrong);
  for (const auto& [pass, options] : json.items()) {
    if (!options.is_object()) return ir::Fail("{}", kWrong);
    for (const auto& [name, value] : options.items()) {
      auto read = ValueOf(value);
      if (!read) return ir::Fail("{}", kWrong);
      pipeline.options[pass][name] = std::move(*read);
    }
  }
  return {};
}

Result<Pipeline> FromJson(std::string_view text) {
  OCTAVO_TRY(const ir::Json parsed, ir::ParseJson(text, "the pipeline"));
  if (!parsed.is_object()) return ir::Fail("the pipeline is not a JSON object");
  if (ir::Get<int64_t>(parsed, "octavo_pipeline") != 1)
    return ir::Fail("the pipeline does not say \"octavo_pipeline\": 1; make it with this octavo");
  Pipeline pipeline;
  for (const auto& [key, names] :
       {std::pair{"passes", &pipeline.passes}, {"keep_float", &pipeline.keep_float}, {"dynamic", &pipeline.dynamic}}) {
    if (names != &pipeline.passes && !parsed.contains(key)) continue;
    auto list = ir::Get<std::vector<std::string>>(parsed, key);
    if (!list) return ir::Fail("the pipeline's \"{}\" must be a list of names", key);
    *names = std::move(*list);
  }
  for (std::string& name : pipeline.passes) {
    if (const Pass* pass = Registry::Own().Find(name)) name = pass->info().name;  // an old name
  }
  if (parsed.contains("options")) OCTAVO_TRY_STATUS(ReadOptions(parsed["options"], pipeline));
  if (parsed.contains("foreign")) {
    if (!parsed["foreign"].is_object()) return ir::Fail("the pipeline's \"foreign\" must be {{\"PASS\": \"version\"}}");
    for (const auto& [name, version] : parsed["foreign"].items()) {
      auto read = ir::As<std::string>(version);
      if (!read) return ir::Fail("the pipeline's \"foreign\" must be {{\"PASS\": \"version\"}}");
      pipeline.foreign[name] = std::move(*read);
    }
  }
  for (const std::string& name : pipeline.passes) {
    if (name != kCalibrate && Registry::Own().Find(name) == nullptr && !pipeline.foreign.contains(name))
      return ir::Fail("there is no pass {}; there are: {}", ir::Quoted(name), Registry::Own().Names());
  }
  if (std::ranges::count(pipeline.passes, kCalibrate) > 1) return ir::Fail("the pipeline calibrates more than once");
  return pipeline;
}

// A whole number where a number is wanted is one.
std::optional<OptionValue> AsKind(const OptionValue& value, const OptionValue& kind) {
  if (value.index() == kind.index()) return value;
  const auto* whole = std::get_if<int64_t>(&value);
  if (whole != nullptr && std::holds_alternative<double>(kind)) return static_cast<double>(*whole);
  return std::nullopt;
}

std::optional<OptionValue> Parsed(std::string_view text, const OptionValue& kind) {
  const auto number = [text](auto n) -> std::optional<OptionValue> {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return n;
  };
  if (std::holds_alternative<std::string>(kind)) return std::string(text);
  if (std::holds_alternative<int64_t>(kind)) return number(int64_t{0});
  if (std::holds_alternative<double>(kind)) return number(0.0);
  if (text == "true" || text == "false") return text == "true";
  return std::nullopt;
}

}  // namespace

Result<Pipeline> PipelineFromJson(std::string_view json) {
  return ir::Closed("the pipeline", [&] { return FromJson(json); });
}

std::string PipelineToJson(const Pipeline& pipeline) {
  nlohmann::ordered_json json{{"octavo_pipeline", 1}, {"passes", pipeline.passes}};
  if (!pipeline.keep_float.empty()) json["keep_float"] = pipeline.keep_float;
  if (!pipeline.dynamic.empty()) json["dynamic"] = pipeline.dynamic;
  for (const auto& [pass, options] : pipeline.options) {
    for (const auto& [name, value] : options)
      std::visit([&](const auto& v) { json["options"][pass][name] = v; }, value);
  }
  for (const auto& [name, version] : pipeline.foreign) json["foreign"][name] = version;
  return ir::Dump(json);
}

Result<PassOptions> OptionsOf(const PassInfo& pass, const Pipeline& pipeline) {
  PassOptions all;
  for (const OptionInfo& o : pass.options) all[o.name] = o.otherwise;
  const auto given = pipeline.options.find(pass.name);
  if (given == pipeline.options.end()) return all;
  for (const auto& [name, value] : given->second) {
    const auto known = all.find(name);
    if (known == all.end()) {
      std::string names;
      for (const OptionInfo& o : pass.options) names += (names.empty() ? "" : ", ") + o.name;
      return ir::Fail("the pass {} has no option {}; it has {}", pass.name, ir::Quoted(name),
                      names.empty() ? "none" : names);
    }
    const auto typed = AsKind(value, known->second);
    if (!typed) return ir::Fail("the option {} of the pass {} is {}", name, pass.name, KindOf(known->second));
    known->second = *typed;
  }
  return all;
}

Status CheckPasses(const Pipeline& pipeline, const Registry& registry) {
  for (const std::string& name : pipeline.passes) {
    if (name == kCalibrate) continue;
    const Pass* pass = registry.Find(name);
    const auto foreign = pipeline.foreign.find(name);
    const std::string version = foreign == pipeline.foreign.end() ? "" : foreign->second;
    if (pass == nullptr) {
      return version.empty() ? ir::Fail("there is no pass {}; there are: {}", ir::Quoted(name), registry.Names())
                             : ir::Fail(
                                   "the pipeline has the pass {}, version {}, which is not octavo's own: load the "
                                   "plugin or give the rule that brings it",
                                   ir::Quoted(name), ir::Quoted(version));
    }
    if (foreign != pipeline.foreign.end() && version != pass->info().version) {
      return ir::Fail(
          "the pipeline was made with version {} of the pass {}, and version {} is loaded: load that one, or "
          "write yours into the pipeline",
          ir::Quoted(version), ir::Quoted(name), ir::Quoted(pass->info().version));
    }
    OCTAVO_TRY_STATUS(OptionsOf(pass->info(), pipeline).transform([](const auto&) {}));
  }
  for (const auto& [pass, options] : pipeline.options) {
    if (std::ranges::find(pipeline.passes, pass) == pipeline.passes.end())
      return ir::Fail("there are options for the pass {}, which this pipeline does not run", ir::Quoted(pass));
  }
  return {};
}

Status SetOption(const Registry& registry, std::string_view pass, std::string_view name_and_value, Pipeline& pipeline) {
  const size_t equal = name_and_value.find('=');
  const Pass* known = registry.Find(pass);
  if (known == nullptr) return ir::Fail("there is no pass {}; there are: {}", ir::Quoted(pass), registry.Names());
  const std::string name(name_and_value.substr(0, equal));
  const auto& options = known->info().options;
  const auto option = std::ranges::find(options, name, &OptionInfo::name);
  if (option == options.end()) {  // for its sentence
    Pipeline asked;
    asked.options[std::string(pass)][name] = true;
    return OptionsOf(known->info(), asked).transform([](const auto&) {});
  }
  const auto value =
      equal == std::string_view::npos ? std::nullopt : Parsed(name_and_value.substr(equal + 1), option->otherwise);
  if (!value) return ir::Fail("the option {} of the pass {} is {}", name, pass, KindOf(option->otherwise));
  pipeline.options[std::string(pass)][name] = *value;
  return {};
}

}  // namespace octavo::passes
