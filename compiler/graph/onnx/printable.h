// Text of a model in our errors: a model is input from outside, and its names may hold any bytes.
#pragma once

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace diapason {

// Control characters and broken UTF-8 escaped; quotes stay.
inline std::string Printable(const std::string& text) {
  return absl::StrReplaceAll(absl::Utf8SafeCEscape(text), {{"\\'", "'"}, {"\\\"", "\""}});
}

inline std::string Quoted(const std::string& name) { return absl::StrCat("'", Printable(name), "'"); }

}  // namespace diapason
