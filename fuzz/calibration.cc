// A .calib file. No fuzzer guesses a checksum, so the bytes are also read with length and checksum put right.
#include <cstring>
#include <format>

#include "octavo/fuzz/targets.h"
#include "octavo/quant/calibrate.h"
#include "octavo/quant/plan.h"
#include "octavo/quant/range.h"

namespace octavo::fuzz {

namespace {

// The header of quant/calib_file.cc around `payload`.
std::string Sealed(std::string_view payload) {
  std::string file = std::format(
      "octavo calibration "
      "1\n{{\"bytes\":{},\"model\":\"m\",\"random_data\":false,\"samples\":3,\"skip_padding\":true}}\n",
      payload.size());
  file += payload;
  uint64_t sum = 1469598103934665603u;
  for (const char c : file) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211u;
  file.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  return file;
}

// Of a whole file what stands between header and checksum; other bytes are payload themselves.
std::string_view PayloadOf(std::string_view bytes) {
  if (!bytes.starts_with("octavo calibration ")) return bytes;
  for (int line = 0; line < 2; ++line) bytes.remove_prefix(std::min(bytes.find('\n'), bytes.size() - 1) + 1);
  bytes.remove_suffix(std::min(bytes.size(), sizeof(uint64_t)));
  return bytes;
}

// One of the calibrators a case: a search takes milliseconds, and the cases are many.
void Use(const ir::Result<quant::Calibration>& read, std::string_view file) {
  if (!read) return CheckSentence(read.error().message, file);
  const std::string written = read->ToBytes();
  const auto again = quant::Calibration::FromBytes(written, "the file");
  if (!again) Broken("octavo reads the calibration that it wrote", again.error().message);
  if (again->ToBytes() != written) Broken("same calibration, same bytes", "");
  static constexpr const char* kNames[] = {"minmax", "moving_average", "percentile", "entropy", "mse"};
  const quant::RangeOptions options{
      .calibrator = *quant::CalibratorFromName(kNames[std::hash<std::string>()(written) % std::size(kNames)])};
  if (const auto plan = quant::MakePlan(*read, options); !plan) CheckSentence(plan.error().message, file);
  quant::Calibration merged = *read;
  if (auto ok = merged.Merge(*again); !ok) CheckSentence(ok.error().message, file);
}

}  // namespace

void FuzzCalibration(std::string_view bytes) {
  Use(quant::Calibration::FromBytes(bytes, "the file"), bytes);
  if (!bytes.empty()) Use(quant::Calibration::FromBytes(Sealed(PayloadOf(bytes)), "the file"), bytes);
}

}  // namespace octavo::fuzz
