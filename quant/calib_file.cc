// The .calib format: see calibrate.h.
#include <cstring>

#include "octavo/ir/closed.h"
#include "octavo/ir/json.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/names.h"
#include "octavo/ir/whole_file.h"
#include "octavo/quant/calibrate.h"
#include "octavo/quant/varint.h"

namespace octavo::quant {

namespace {

using ir::Fail;
using ir::Json;
using ir::Result;
using ir::Status;

constexpr std::string_view kMark = "octavo calibration ";
constexpr std::string_view kVersion = "2", kWithoutRows = "1", kWithMoments = "3";

// FNV-1a: finds accidents, not attacks; every number is checked again when it is parsed.
uint64_t Checksum(std::string_view bytes) {
  uint64_t h = 1469598103934665603u;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

std::string_view TakeLine(std::string_view& in) {
  const size_t end = in.find('\n');
  const std::string_view line = in.substr(0, end);
  in.remove_prefix(end == std::string_view::npos ? in.size() : end + 1);
  return line;
}

// Everything a reader needs but the observers; the list of values is for people only.
std::string HeaderLine(const Calibration& c, size_t payload) {
  Json values = Json::array();
  for (const auto& [name, o] : c.values) {
    values.push_back(
        {{"name", name}, {"count", o.count()}, {"samples", o.samples()}, {"min", o.min()}, {"max", o.max()}});
  }
  Json header = {{"bytes", payload},
                 {"model", c.model},
                 {"random_data", c.random_data},
                 {"samples", c.samples},
                 {"skip_padding", c.skip_padding},
                 {"values", std::move(values)}};
  if (!c.ids.empty()) header["ids"] = ToText(c.ids);
  if (!c.shard.empty()) header["shard"] = c.shard;
  if (!c.moments.empty()) {
    Json& moments = header["moments"] = Json::array();
    for (const auto& [name, m] : c.moments)
      moments.push_back({{"name", name}, {"channels", m.k()}, {"rows", m.rows()}});
  }
  return ir::Dump(header);
}

Result<Calibration> ParseHeader(std::string_view line, size_t payload, std::string_view place) {
  constexpr size_t kMostHeader = 20'000'000;
  const auto header = ir::ParseJson(line, "the header", kMostHeader);
  if (!header) return Fail("{} is damaged: {}", place, header.error().message);
  const auto bytes = ir::Get<uint64_t>(*header, "bytes"), samples = ir::Get<uint64_t>(*header, "samples");
  auto model = ir::Get<std::string>(*header, "model");
  const auto random = ir::Get<bool>(*header, "random_data"), skip_padding = ir::Get<bool>(*header, "skip_padding");
  if (!bytes || !samples || !model || !random || !skip_padding)
    return Fail("{} is damaged: its header cannot be understood; calibrate again", place);
  if (*bytes != payload) {
    return Fail("{} is cut off or has something added: {} bytes of data, {} expected", place, payload, *bytes);
  }
  std::optional<IdRanges> ids = IdRanges();
  if (header->contains("ids"))
    ids = IdRangesOf(ir::Get<std::string>(*header, "ids").value_or(""));  // files of before have none
  if (!ids) return Fail("{} is damaged: the ids in its header cannot be understood; calibrate again", place);
  std::string shard = header->contains("shard") ? ir::Get<std::string>(*header, "shard").value_or("?") : "";
  return Calibration{.model = std::move(*model),
                     .skip_padding = *skip_padding,
                     .random_data = *random,
                     .samples = *samples,
                     .shard = std::move(shard),
                     .ids = std::move(*ids)};
}

}  // namespace

std::string Calibration::ToBytes() const {
  std::string payload;
  size_t room = 0;  // so that it is not copied to grow; what stays unused is no memory
  for (const auto& [name, m] : moments) room += m.bytes();
  payload.reserve(room);
  const auto append = [&payload](const auto& named) {
    AppendVarint(payload, named.size());
    for (const auto& [name, state] : named) {
      AppendVarint(payload, name.size());
      payload += name;
      state.AppendTo(payload);
    }
  };
  append(values);
  if (!moments.empty()) append(moments);
  payload.insert(0, std::format("{}{}\n{}\n", kMark, moments.empty() ? kVersion : kWithMoments,
                                HeaderLine(*this, payload.size())));
  const uint64_t sum = Checksum(payload);
  payload.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  return payload;
}

namespace {

Result<Calibration> Parse(std::string_view bytes, std::string_view place) {
  std::string_view in = bytes;
  const std::string_view first = TakeLine(in);
  if (!first.starts_with(kMark)) return Fail("{} is no calibration file of octavo", place);
  const std::string_view version = first.substr(kMark.size());
  const bool has_rows = version != kWithoutRows, has_moments = version == kWithMoments;
  if (has_rows && !has_moments && version != kVersion) {
    return Fail("{} has format {}, this octavo reads format {}; calibrate again", place, ir::Quoted(version),
                kWithMoments);
  }
  const std::string_view header = TakeLine(in);
  uint64_t sum = 0;
  if (in.size() < sizeof(sum)) return Fail("{} is cut off", place);
  OCTAVO_TRY(Calibration result, ParseHeader(header, in.size() - sizeof(sum), place));
  std::memcpy(&sum, in.data() + in.size() - sizeof(sum), sizeof(sum));
  if (sum != Checksum(bytes.substr(0, bytes.size() - sizeof(sum)))) return Fail("{} is damaged: wrong checksum", place);
  in.remove_suffix(sizeof(sum));
  std::vector<ir::MemoryCharge> held;  // a histogram of a few bytes takes kilobytes
  const auto parse = [&](auto& named, auto&& parse_one) -> Status {
    for (uint64_t left = TakeVarint(in).value_or(0); left > 0; --left) {
      const auto length = TakeVarint(in);
      if (!length || *length > in.size()) return Fail("{} is damaged: a name ends early", place);
      std::string name(in.substr(0, *length));
      in.remove_prefix(*length);
      auto state = parse_one(in);
      if (!state) return Fail("{} is damaged at value {}: {}", place, ir::Quoted(name), state.error().message);
      held.emplace_back(state->bytes());
      named.insert_or_assign(std::move(name), std::move(*state));
    }
    return {};
  };
  OCTAVO_TRY_STATUS(parse(result.values, [&](std::string_view& from) { return Observer::Parse(from, has_rows); }));
  if (has_moments) OCTAVO_TRY_STATUS(parse(result.moments, Moments::Parse));
  if (!in.empty()) return Fail("{} is damaged: {} bytes too many", place, in.size());
  return result;
}

}  // namespace

Result<Calibration> Calibration::FromBytes(std::string_view bytes, std::string_view place) {
  return ir::Closed(place, ir::MemoryLimit(ir::Limits{}, static_cast<int64_t>(bytes.size())),
                    [&] { return Parse(bytes, place); });
}

Status CheckEachOnce(std::span<const std::string> paths) {
  for (size_t i = 1; i < paths.size(); ++i) {
    for (size_t before = 0; before < i; ++before) {
      std::error_code none;
      if (!std::filesystem::equivalent(paths[before], paths[i], none)) continue;
      return Fail("{} is there twice, and its batches would count twice: name each file once", ir::Quoted(paths[i]));
    }
  }
  return {};
}

Status Calibration::Save(const std::filesystem::path& path) const {
  return ir::Closed("writing a calibration", [&] { return ir::WriteWholeFile(path, ToBytes()); });
}

Result<Calibration> Calibration::Load(const std::filesystem::path& path) {
  return ir::Closed("reading a calibration", [&]() -> Result<Calibration> {
    OCTAVO_TRY(const std::string bytes, ir::ReadWholeFile(path, {.begins = kMark}));
    return FromBytes(bytes, ir::Quoted(path.string()));
  });
}

}  // namespace octavo::quant
