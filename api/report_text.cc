#include "octavo/api/report_text.h"

#include <format>

#include "octavo/ir/names.h"

namespace octavo::api {

std::string Escape(std::string_view text) {
  const std::string s = ir::Clean(text, text.size());
  std::string out;
  for (char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Card(std::string_view what, const std::string& figure) {
  return std::format("<div class=card><span>{}</span><b>{}</b></div>\n", what, figure);
}

std::string Bytes(int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  return b < 1e6 ? std::format("{:.1f} KB", b / 1e3) : std::format("{:.1f} MB", b / 1e6);
}

}  // namespace octavo::api
