#include "octavo/quant/plan.h"

#include <charconv>
#include <cmath>
#include <format>

#include "octavo/quant/calibrate.h"

namespace octavo::quant {

namespace {

using ir::Fail;
using ir::Result;

constexpr std::string_view kFirstLine = "octavo plan 1";

// A name or a reason as one word of a line: in quotes, with \" \\ \n and \xNN for control characters.
std::string Quoted(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 32) {
      out += std::format("\\x{:02x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The words of one line; a quoted word is taken without its quotes.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  bool AtEnd() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
    return rest_.empty();
  }
  bool NextIsQuoted() { return !AtEnd() && rest_[0] == '"'; }

  std::optional<std::string> TakeQuoted() {
    if (!NextIsQuoted()) return std::nullopt;
    std::string out;
    for (size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        rest_.remove_prefix(i + 1);
        return out;
      }
      if (rest_[i] != '\\') {
        out += rest_[i];
        continue;
      }
      if (++i == rest_.size()) return std::nullopt;
      if (rest_[i] == 'n') {
        out += '\n';
      } else if (rest_[i] == 'x') {
        int code = 0;
        if (i + 2 >= rest_.size()) return std::nullopt;
        const auto [end, error] = std::from_chars(rest_.data() + i + 1, rest_.data() + i + 3, code, 16);
        if (error != std::errc() || end != rest_.data() + i + 3) return std::nullopt;
        out += static_cast<char>(code);
        i += 2;
      } else {
        out += rest_[i];
      }
    }
    return std::nullopt;
  }
  std::string_view TakeWord() {
    if (AtEnd()) return {};
    const size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return word;
  }
  template <typename T>
  std::optional<T> TakeNumber() {
    const std::string_view word = TakeWord();
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    return value;
  }

 private:
  std::string_view rest_;
};

bool Usable(const QParams& p) {
  if (!std::isfinite(p.scale) || p.scale < FLT_MIN) return false;
  if (IsFp8(p.dtype)) return p.zero_point == 0;
  const auto [lo, hi] = RangeOf(p.dtype);
  return p.zero_point >= lo && p.zero_point <= hi;
}

Result<std::pair<std::string, PlanEntry>> ParseLine(std::string_view line) {
  LineReader in(line);
  auto name = in.TakeQuoted();
  if (!name) return Fail("a line begins with the name of a value in quotes");
  const std::string_view type = in.TakeWord();
  PlanEntry entry;
  if (type != "float") {
    QParams p{.dtype = DTypeFromName(type)};
    if (!(IsFp8(p.dtype) || (IsInteger(p.dtype) && BitsOf(p.dtype) <= 16))) {
      return Fail("'{}' is neither float nor a type to quantize to", type);
    }
    if (in.TakeWord() != "scale") return Fail("'scale' and a number must follow the type");
    const auto scale = in.TakeNumber<float>();
    if (in.TakeWord() != "zero_point") return Fail("'zero_point' and a number must follow the scale");
    const auto zero_point = in.TakeNumber<int32_t>();
    if (!scale || !zero_point) return Fail("scale or zero point is no number");
    p.scale = *scale;
    p.zero_point = *zero_point;
    if (!Usable(p)) return Fail("scale {} and zero point {} cannot be used with {}", p.scale, p.zero_point, type);
    entry.params = p;
    if (!in.AtEnd() && !in.NextIsQuoted()) {
      if (in.TakeWord() != "range") return Fail("only 'range' or a reason in quotes can follow the zero point");
      const auto lo = in.TakeNumber<float>(), hi = in.TakeNumber<float>();
      if (!lo || !hi || !(*lo <= *hi)) return Fail("'range' must be followed by its two ends");
      entry.range = Range{*lo, *hi};
    }
  }
  if (!in.AtEnd()) {
    auto reason = in.TakeQuoted();
    if (!reason || !in.AtEnd()) return Fail("a line ends with one reason in quotes");
    entry.reason = std::move(*reason);
  }
  return std::pair(std::move(*name), std::move(entry));
}

}  // namespace

const PlanEntry* QuantPlan::Find(std::string_view value) const {
  const auto it = entries_.find(std::string(value));
  return it == entries_.end() ? nullptr : &it->second;
}

const QParams* QuantPlan::ParamsOf(std::string_view value) const {
  const PlanEntry* entry = Find(value);
  return entry != nullptr && entry->params ? &*entry->params : nullptr;
}

void QuantPlan::Quantize(std::string value, QParams params, std::optional<Range> range, std::string reason) {
  entries_.insert_or_assign(std::move(value), PlanEntry{params, std::move(reason), range});
}

void QuantPlan::KeepFloat(std::string value, std::string reason) {
  entries_.insert_or_assign(std::move(value), PlanEntry{{}, std::move(reason), {}});
}

std::string QuantPlan::ToText() const {
  std::string out = std::string(kFirstLine) + "\n";
  for (const auto& [name, entry] : entries_) {
    out += Quoted(name);
    if (entry.params) {
      out += std::format(" {} scale {} zero_point {}", Name(entry.params->dtype), entry.params->scale,
                         entry.params->zero_point);
      if (entry.range) out += std::format(" range {} {}", entry.range->lo, entry.range->hi);
    } else {
      out += " float";
    }
    if (!entry.reason.empty()) out += " " + Quoted(entry.reason);
    out += '\n';
  }
  return out;
}

Result<QuantPlan> QuantPlan::Parse(std::string_view text) {
  QuantPlan plan;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1) {
      if (line != kFirstLine) return Fail("this is no plan: the first line must be '{}'", kFirstLine);
      continue;
    }
    if (line.empty() || line[0] == '#') continue;
    auto entry = ParseLine(line);
    if (!entry) return Fail("line {} of the plan: {}", number, entry.error().message);
    if (plan.entries_.contains(entry->first))
      return Fail("line {} of the plan: '{}' is there twice", number, entry->first);
    plan.entries_.insert(std::move(*entry));
  }
  return plan;
}

Result<QuantPlan> MakePlan(const Calibration& calibration, const RangeOptions& options) {
  QuantPlan plan;
  for (const auto& [name, observer] : calibration.values) {
    if (observer.count() == 0) {
      plan.KeepFloat(name, "no value was seen in calibration");
      continue;
    }
    auto range = ChooseRange(observer, options);
    if (!range) return Fail("value '{}': {}", name, range.error().message);
    plan.Quantize(name, quant::ParamsOf(*range, options), *range);
  }
  return plan;
}

}  // namespace octavo::quant
