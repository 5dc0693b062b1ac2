// JSON documents for programs. Each begins with its schema, "diapason.NAME/VERSION", which is docs/schema/NAME.json: a
// change of meaning or a field that is gone is a new version, a new field is not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace diapason {

// NAME and VERSION.
struct DocumentSchema {
  const char* name;
  int version;
};

// The document's text, which ends in a line break. `fields` is an object. Text that is no UTF-8 gets replacement
// characters.
std::string DocumentText(const DocumentSchema& schema, const Json& fields);

// Null for a value that is not there.
template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

// RFC 3339 text of an instant in Unix nanoseconds; null for 0, an instant that is not known or not yet there.
Json Instant(int64_t unix_nanoseconds);

}  // namespace diapason
