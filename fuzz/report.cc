// The writers of HTML and JSON, given names and numbers of any kind: JSON that parses, HTML whose tags are those that it has with harmless
// names.
#include <cstring>
#include <nlohmann/json.hpp>

#include "octavo/api/report_html.h"
#include "octavo/api/report_json.h"
#include "octavo/fuzz/sentence.h"
#include "octavo/fuzz/targets.h"
#include "octavo/runtime/profile.h"

namespace octavo::fuzz {

namespace {

// Takes what it makes off the front of the input, then zeros.
class Source {
 public:
  explicit Source(std::string_view bytes) : bytes_(bytes) {}
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const auto b = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return b;
  }
  std::string Word() {
    const std::string_view word = bytes_.substr(0, Byte() % 32);
    bytes_.remove_prefix(word.size());
    return std::string(word);
  }
  float Number() {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits = bits << 8 | Byte();
    float f = 0;
    std::memcpy(&f, &bits, sizeof(f));
    return f;
  }
  std::vector<std::string> Words() {
    std::vector<std::string> words(Byte() % 4);
    for (std::string& w : words) w = Word();
    return words;
  }

 private:
  std::string_view bytes_;
};

struct Names {
  bool harmless;
  std::string operator()(std::string word) const { return harmless ? std::string(word.size(), 'x') : word; }
  std::vector<std::string> operator()(std::vector<std::string> words) const {
    for (std::string& w : words) w = (*this)(std::move(w));
    return words;
  }
};

quant::ErrorStats Stats(Source& source) {
  quant::ErrorStats stats;
  const std::vector<float> want{source.Number(), source.Number()}, got{source.Number(), source.Number()};
  (void)stats.Add(ir::Tensor::F32({2}, want), ir::Tensor::F32({2}, got));
  return stats;
}

api::Optimized Make(Source source, const Names& name) {
  static constexpr const char* kStatus[] = {"fused", "quantized", "left"};
  api::Optimized r;
  r.report.attention = {source.Byte(), source.Byte()};
  for (int n = source.Byte() % 4; n > 0; --n)
    r.report.candidates.push_back(
        {"linear", name(source.Words()), kStatus[source.Byte() % 3], name(source.Word()), name(source.Word())});
  for (int n = source.Byte() % 3; n > 0; --n)
    r.report.in_float.push_back({name(source.Word()), source.Byte(), source.Byte()});
  for (int n = source.Byte() % 3; n > 0; --n) {
    r.ranges.push_back(
        {name(source.Word()), {source.Number(), source.Number()}, {source.Number(), source.Number()}, {}});
    r.ranges.back().params.scale = source.Number();
  }
  for (int n = source.Byte() % 3; n > 0; --n)
    r.timings.push_back({name(source.Word()), source.Byte() % 2 == 0, source.Number()});
  for (int n = source.Byte() % 3; n > 0; --n) r.losses["o" + std::to_string(n) + name(source.Word())] = Stats(source);
  for (int n = source.Byte() % 3; n > 0; --n) {
    r.layers.push_back(
        {.node = name(source.Word()), .output = name(source.Word()), .stats = Stats(source), .share = source.Number()});
  }
  r.notes = name(source.Words());
  r.pipeline.keep_float = name(source.Words());
  r.data = name(source.Word());
  r.graph.AddOpaque("", name(source.Word()), {}, 1, {}, "n");
  return r;
}

// Everything between < and >.
std::string Tags(std::string_view html) {
  std::string tags;
  bool inside = false;
  for (const char c : html) {
    inside = inside || c == '<';
    if (inside) tags += c;
    if (c == '>') inside = false;
  }
  return tags;
}

}  // namespace

void FuzzReport(std::string_view bytes) {
  const api::Optimized result = Make(Source(bytes), Names{false});
  const api::FileSizes sizes{1000, 300};
  const std::string json = api::ReportJson(result, sizes);
  if (!nlohmann::json::accept(json)) Broken("the report is JSON", json);
  const std::string word = Source(bytes).Word();
  const std::string html = api::ReportHtml(result, sizes, word);
  if (!IsUtf8(html)) Broken("the report is UTF-8", "HTML");
  const std::string plain = api::ReportHtml(Make(Source(bytes), Names{true}), sizes, Names{true}(word));
  if (Tags(html) != Tags(plain)) Broken("names make no markup", html);
  const runtime::Profile profile{{{word, word, {word}, 0, 1}}};
  if (!nlohmann::json::accept(runtime::ToChromeTrace(profile))) Broken("the trace is JSON", word);
}

}  // namespace octavo::fuzz
