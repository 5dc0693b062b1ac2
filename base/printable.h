// Text of a model in our errors: a model is input from outside, and its names may hold any bytes.
#pragma once

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace diapason {

// Whether text has the form of UTF-8 (overlong forms and surrogates are not looked for).
inline bool IsUtf8(const std::string& text) {
  int open = 0;  // bytes of a character that are to come
  for (unsigned char byte : text) {
    bool continues = (byte & 0xc0) == 0x80;
    if (continues != (open > 0)) return false;
    if (continues) {
      --open;
    } else if (byte >= 0x80) {
      open = (byte & 0xe0) == 0xc0 ? 1 : (byte & 0xf0) == 0xe0 ? 2 : (byte & 0xf8) == 0xf0 ? 3 : -1;
      if (open < 0) return false;
    }
  }
  return open == 0;
}

// Control characters and what is no UTF-8 escaped; quotes stay.
inline std::string Printable(const std::string& text) {
  std::string escaped = IsUtf8(text) ? absl::Utf8SafeCEscape(text) : absl::CEscape(text);
  return absl::StrReplaceAll(escaped, {{"\\'", "'"}, {"\\\"", "\""}});
}

// A message of parts that do not know where their texts come from: control characters become '?'.
inline std::string WithoutControls(absl::string_view message) {
  std::string line(message);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

inline std::string Quoted(const std::string& name) { return absl::StrCat("'", Printable(name), "'"); }

}  // namespace diapason
