// Pieces of text that the report's parts share.
#ifndef OCTAVO_API_REPORT_TEXT_H_
#define OCTAVO_API_REPORT_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::api {

// For HTML; what is no UTF-8 or no text is replaced.
std::string Escape(std::string_view text);
// A heading over its figure.
std::string Card(std::string_view what, const std::string& figure);
// "23.2 MB".
std::string Bytes(int64_t bytes);

}  // namespace octavo::api

#endif  // OCTAVO_API_REPORT_TEXT_H_
