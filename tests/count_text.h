// Counts words of generated sources.
#pragma once

#include <string>

namespace diapason::testing {

// How often `part` occurs in a text, overlapping ones included.
inline int CountText(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace diapason::testing
