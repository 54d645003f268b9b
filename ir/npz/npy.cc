#include "octavo/ir/npz/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>

#include "octavo/ir/closed.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/names.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/whole_file.h"

namespace octavo::ir {

static_assert(std::endian::native == std::endian::little, "octavo runs on x86 only");

namespace internal {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

// The header is the text of a Python dict of a string, a bool and a tuple of ints: exactly that is parsed.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  std::optional<Header> Parse() {
    Header h;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!Take('{')) return std::nullopt;
    while (!Take('}')) {
      const auto key = String();
      if (!key || !Take(':')) return std::nullopt;
      bool ok = false;
      if (*key == "descr") {
        ok = has_descr = Descr(h.descr);
      } else if (*key == "fortran_order") {
        ok = has_order = Bool(h.fortran_order);
      } else if (*key == "shape") {
        ok = has_shape = Tuple(h.shape);
      }
      if (!ok) return std::nullopt;
      if (!Take(',') && !Peek('}')) return std::nullopt;
    }
    Space();
    if (!text_.empty() || !has_descr || !has_order || !has_shape) return std::nullopt;
    return h;
  }

 private:
  void Space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n' || text_[0] == '\t' || text_[0] == '\r')) {
      text_.remove_prefix(1);
    }
  }
  bool Peek(char c) {
    Space();
    return !text_.empty() && text_[0] == c;
  }
  bool Take(char c) {
    if (!Peek(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::optional<std::string> String() {
    Space();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string s(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return s;
  }
  // A structured dtype is a list; its text is kept to be named in the refusal.
  bool Descr(std::string& out) {
    if (Peek('[')) {
      const size_t end = text_.find(']');
      if (end == std::string_view::npos) return false;
      out = text_.substr(0, end + 1);
      text_.remove_prefix(end + 1);
      return true;
    }
    auto s = String();
    if (s) out = std::move(*s);
    return s.has_value();
  }
  bool Bool(bool& out) {
    Space();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        out = value;
        return true;
      }
    }
    return false;
  }
  bool Tuple(Shape& out) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      Space();
      int64_t v = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), v);
      if (error != std::errc() || v < 0 || out.size() >= 64) return false;
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      Take('L');  // Python 2 wrote long integers so
      out.push_back(v);
      if (!Take(',') && !Peek(')')) return false;
    }
    return true;
  }

  std::string_view text_;
};

struct Kind {
  DType dtype = DType::kUndefined;
  uint64_t item_bytes = 0;
  bool swapped = false;  // big endian
  bool utf32 = false;    // 'U', else 'S' where dtype is kString
};

std::optional<Kind> KindOf(std::string_view descr) {
  if (descr.size() < 3 || std::string_view("<>|=").find(descr[0]) == std::string_view::npos) return std::nullopt;
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), n);
  if (error != std::errc() || end != descr.data() + descr.size() || n > (1u << 24)) return std::nullopt;
  Kind k{.item_bytes = n, .swapped = descr[0] == '>'};
  const auto pick = [&](DType t1, DType t2, DType t4, DType t8) {
    k.dtype = n == 1 ? t1 : n == 2 ? t2 : n == 4 ? t4 : n == 8 ? t8 : DType::kUndefined;
  };
  constexpr DType kNo = DType::kUndefined;
  switch (descr[1]) {
    case 'b':
      pick(DType::kBool, kNo, kNo, kNo);
      break;
    case 'u':
      pick(DType::kU8, DType::kU16, DType::kU32, DType::kU64);
      break;
    case 'i':
      pick(DType::kS8, DType::kS16, DType::kS32, DType::kS64);
      break;
    case 'f':
      pick(kNo, DType::kF16, DType::kF32, DType::kF64);
      break;
    case 'U':
      k = {.dtype = DType::kString, .item_bytes = 4 * n, .swapped = k.swapped, .utf32 = true};
      break;
    case 'S':
      k.dtype = DType::kString;
      break;
    default:
      break;
  }
  if (k.dtype == kNo) return std::nullopt;
  return k;
}

void SwapBytes(std::byte* data, uint64_t bytes, uint64_t item) {
  for (uint64_t i = 0; i + item <= bytes; i += item) std::reverse(data + i, data + i + item);
}

void AppendUtf8(std::string& s, uint32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;  // not a character
  if (c < 0x80) {
    s += static_cast<char>(c);
  } else if (c < 0x800) {
    s += static_cast<char>(0xc0 | (c >> 6));
    s += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    s += static_cast<char>(0xe0 | (c >> 12));
    s += static_cast<char>(0x80 | ((c >> 6) & 63));
    s += static_cast<char>(0x80 | (c & 63));
  } else {
    s += static_cast<char>(0xf0 | (c >> 18));
    s += static_cast<char>(0x80 | ((c >> 12) & 63));
    s += static_cast<char>(0x80 | ((c >> 6) & 63));
    s += static_cast<char>(0x80 | (c & 63));
  }
}

// Fixed-width strings, padded with zeros.
std::vector<std::string> ToStrings(std::string_view bytes, int64_t count, const Kind& kind) {
  std::vector<std::string> strings(static_cast<size_t>(count));
  for (size_t i = 0; i < strings.size(); ++i) {
    std::string_view item = bytes.substr(i * kind.item_bytes, kind.item_bytes);
    if (!kind.utf32) {
      strings[i] = item.substr(0, item.find_last_not_of('\0') + 1);
      continue;
    }
    for (size_t at = 0; at + 4 <= item.size(); at += 4) {
      uint32_t c;
      std::memcpy(&c, item.data() + at, 4);
      if (c == 0) break;
      AppendUtf8(strings[i], c);
    }
  }
  return strings;
}

// First index runs fastest in `t`; the result is in C order.
Tensor FromFortranOrder(const Tensor& t) {
  const size_t item = t.byte_size() / static_cast<size_t>(std::max<int64_t>(1, t.size()));
  Tensor out = Tensor::Empty(t.dtype(), t.shape());
  const auto rank = static_cast<size_t>(t.rank());
  Shape stride(rank), index(rank, 0);
  int64_t step = 1;
  for (size_t i = 0; i < rank; ++i) {
    stride[i] = step;
    step *= t.shape()[i];
  }
  int64_t from = 0;
  for (int64_t to = 0; to < t.size(); ++to) {
    std::memcpy(out.mutable_data() + static_cast<size_t>(to) * item, t.data() + static_cast<size_t>(from) * item, item);
    for (size_t d = rank; d-- > 0;) {
      from += stride[d];
      if (++index[d] < t.shape()[d]) break;
      from -= stride[d] * t.shape()[d];
      index[d] = 0;
    }
  }
  return out;
}

Result<Header> ReadHeader(ByteSource& source, std::string_view place) {
  unsigned char start[12] = {};
  if (source.remaining() < 10) return Fail("{} is not a numpy array: it has only {} bytes", place, source.remaining());
  OCTAVO_TRY_STATUS(source.Read(start, 8));
  if (std::memcmp(start, kMagic.data(), kMagic.size()) != 0) {
    return Fail("{} is not a numpy array: it does not begin with the mark of one", place);
  }
  const int major = start[6];
  if (major < 1 || major > 3) return Fail("{} has numpy header version {}, octavo knows 1 to 3", place, major);
  const size_t length_bytes = major == 1 ? 2 : 4;
  OCTAVO_TRY_STATUS(source.Read(start + 8, length_bytes));
  uint32_t length = 0;
  std::memcpy(&length, start + 8, length_bytes);
  if (length > source.remaining()) {
    return Fail("{} is cut off: its header is said to have {} bytes, only {} are there", place, length,
                source.remaining());
  }
  if (length > (1u << 20)) return Fail("{} has a numpy header of {} bytes, which no array needs", place, length);
  std::string text(length, '\0');
  OCTAVO_TRY_STATUS(source.Read(text.data(), length));
  auto header = HeaderParser(text).Parse();
  if (!header) return Fail("{} has a numpy header that cannot be understood", place);
  return std::move(*header);
}

Result<uint64_t> BytesNeeded(const Header& header, const Kind& kind, std::string_view place) {
  // The dims beside a 0 count too: whoever multiplies them in another order must not overflow.
  int64_t bytes = std::max<int64_t>(1, static_cast<int64_t>(kind.item_bytes));
  bool empty = false;
  for (const int64_t d : header.shape) {
    empty |= d == 0;
    if (d != 0 && __builtin_mul_overflow(bytes, d, &bytes)) {
      return Fail("{} declares shape {}, which is more than any memory holds", place, ToString(header.shape));
    }
  }
  return empty || kind.item_bytes == 0 ? 0 : static_cast<uint64_t>(bytes);
}

}  // namespace

Result<Tensor> ReadNpyFrom(ByteSource& source, std::string_view place) {
  OCTAVO_TRY(const Header header, ReadHeader(source, place));
  const auto kind = KindOf(header.descr);
  if (!kind) {
    return Fail("{} has numpy type {}, which is no tensor type; save it as a plain bool, integer or float array", place,
                Clean(header.descr));
  }
  OCTAVO_TRY(const uint64_t bytes, BytesNeeded(header, *kind, place));
  if (bytes != source.remaining()) {
    return Fail("{} declares shape {} of {}, that is {} bytes, but holds {}", place, ToString(header.shape),
                header.descr, bytes, source.remaining());
  }
  if (kind->dtype == DType::kString) {
    const int64_t count = ElementCount(header.shape);
    // Empty strings take no bytes, so the file does not bound their number; a million is beyond any use.
    if (kind->item_bytes == 0 && count > (1 << 20)) {
      return Fail("{} declares {} empty strings", place, ToString(header.shape));
    }
    const MemoryCharge enough(BytesToMake(DType::kString, header.shape) + bytes);
    std::string data(bytes, '\0');
    OCTAVO_TRY_STATUS(source.Read(data.data(), bytes));
    if (kind->utf32 && kind->swapped) SwapBytes(reinterpret_cast<std::byte*>(data.data()), bytes, 4);
    if (header.fortran_order && header.shape.size() > 1) return Fail("{} holds strings in Fortran order", place);
    return Tensor::Strings(header.shape, ToStrings(data, count, *kind));
  }
  Tensor t = Tensor::Empty(kind->dtype, header.shape);
  OCTAVO_TRY_STATUS(source.Read(t.mutable_data(), bytes));
  if (kind->swapped && kind->item_bytes > 1) SwapBytes(t.mutable_data(), bytes, kind->item_bytes);
  if (kind->dtype == DType::kBool) {
    for (auto& b : t.mutable_as<uint8_t>()) b = b != 0;
  }
  if (header.fortran_order && t.rank() > 1) return FromFortranOrder(t);
  return t;
}

}  // namespace internal

namespace {

class MemorySource : public internal::ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}
  Status Read(void* to, size_t n) override {
    if (n > bytes_.size()) return Fail("the bytes of an array end early");
    if (n != 0) std::memcpy(to, bytes_.data(), n);
    bytes_.remove_prefix(n);
    return {};
  }
  uint64_t remaining() const override { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

// The characters of UTF-8 text; a byte that is none becomes U+FFFD.
std::vector<uint32_t> FromUtf8(std::string_view s) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < s.size();) {
    const auto b = static_cast<unsigned char>(s[i]);
    const size_t extra = b < 0x80 ? 0 : b >= 0xf0 && b < 0xf8 ? 3 : b >= 0xe0 ? 2 : b >= 0xc0 ? 1 : 4;
    uint32_t c = extra == 0 ? b : extra == 1 ? b & 31u : extra == 2 ? b & 15u : b & 7u;
    bool ok = extra < 4 && i + extra < s.size();
    for (size_t k = 1; ok && k <= extra; ++k) {
      const auto n = static_cast<unsigned char>(s[i + k]);
      ok = (n & 0xc0) == 0x80;
      c = (c << 6) | (n & 63u);
    }
    out.push_back(ok ? c : 0xfffdu);
    i += ok ? extra + 1 : 1;
  }
  return out;
}

std::string HeaderBytes(std::string_view descr, const Shape& shape) {
  std::string dims;
  for (const int64_t d : shape) dims += (dims.empty() ? "" : ", ") + std::to_string(d);
  if (shape.size() == 1) dims += ",";
  std::string text = std::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, dims);
  // numpy leaves room for the first dim to grow to 21 digits, then pads so that the data starts at a multiple of 64.
  if (!shape.empty()) text.append(21 - std::to_string(shape[0]).size(), ' ');
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(text.size() & 255);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

std::string_view DescrOf(DType t) {
  switch (t) {
    case DType::kBool:
      return "|b1";
    case DType::kU8:
    case DType::kU4:
    case DType::kU2:
      return "|u1";
    case DType::kS8:
    case DType::kS4:
    case DType::kS2:
      return "|i1";
    case DType::kU16:
      return "<u2";
    case DType::kS16:
      return "<i2";
    case DType::kU32:
      return "<u4";
    case DType::kS32:
      return "<i4";
    case DType::kU64:
      return "<u8";
    case DType::kS64:
      return "<i8";
    case DType::kF16:
      return "<f2";
    case DType::kF32:
    case DType::kBF16:
    case DType::kE4M3FN:
    case DType::kE5M2:
    case DType::kE4M3FNUZ:
    case DType::kE5M2FNUZ:
    case DType::kE2M1:
    case DType::kE8M0:
      return "<f4";
    case DType::kF64:
      return "<f8";
    default:
      return {};
  }
}

std::string StringBytes(const Tensor& tensor) {
  std::vector<std::vector<uint32_t>> items;
  size_t width = 1;  // numpy has no type of width 0
  for (const auto& s : tensor.strings()) {
    items.push_back(FromUtf8(s));
    width = std::max(width, items.back().size());
  }
  std::string out = HeaderBytes(std::format("<U{}", width), tensor.shape());
  for (auto& item : items) {
    item.resize(width, 0);
    out.append(reinterpret_cast<const char*>(item.data()), width * 4);
  }
  return out;
}

}  // namespace

Result<Tensor> ParseNpy(std::string_view bytes, std::string_view place) {
  return Closed(place, MemoryLimit(Limits{}, static_cast<int64_t>(bytes.size())), [&] {
    MemorySource source(bytes);
    return internal::ReadNpyFrom(source, place);
  });
}

Result<Tensor> ReadNpy(const std::filesystem::path& path) {
  return Closed("reading an array", [&]() -> Result<Tensor> {
    OCTAVO_TRY(const std::string bytes, ReadWholeFile(path));
    return ParseNpy(bytes, Quoted(path.string()));
  });
}

namespace {

Result<std::string> BytesOf(const Tensor& tensor) {
  if (tensor.dtype() == DType::kString) return StringBytes(tensor);
  const auto descr = DescrOf(tensor.dtype());
  if (descr.empty()) return Fail("a tensor of type {} cannot be written as a numpy array", quant::Name(tensor.dtype()));
  std::string out = HeaderBytes(descr, tensor.shape());
  const DType t = tensor.dtype();
  if (t == DType::kBF16 || quant::IsFp8(t) || quant::IsStoredFloat(t)) {
    const auto floats = tensor.ToFloats();
    out.append(reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float));
  } else if (quant::IsPacked(t)) {
    for (int64_t i = 0; i < tensor.size(); ++i) out += static_cast<char>(tensor.GetInt(i));
  } else {
    out.append(reinterpret_cast<const char*>(tensor.data()), tensor.byte_size());
  }
  return out;
}

}  // namespace

Result<std::string> NpyBytes(const Tensor& tensor) {
  return Closed("a tensor as a numpy array", [&] { return BytesOf(tensor); });
}

Status WriteNpy(const std::filesystem::path& path, const Tensor& tensor) {
  return Closed("writing an array", [&]() -> Status {
    OCTAVO_TRY(const std::string bytes, BytesOf(tensor));
    return WriteWholeFile(path, bytes);
  });
}

}  // namespace octavo::ir
