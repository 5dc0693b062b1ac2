// JSON, by nlohmann's library, whose parser and serializer are compiled once here rather than in each source that uses
// them.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace diapason {

using Json = nlohmann::ordered_json;  // the fields of an object stay in the order in which they were added

// A discarded value (is_discarded()) for text that is no JSON.
Json ParseJson(const std::string& text);

struct JsonStyle {
  int indent = -1;     // spaces for each level; -1: all on one line
  bool ascii = false;  // other characters are written as \uXXXX
};

// Bytes that are no UTF-8 become replacement characters.
std::string JsonText(const Json& json, const JsonStyle& style = {});

// The value of a JSON number without fraction that lies from `min` to `max`; nothing otherwise.
std::optional<int64_t> JsonInt(const Json& item, int64_t min = std::numeric_limits<int64_t>::min(),
                               int64_t max = std::numeric_limits<int64_t>::max());

// The elements of a JSON list of 32-bit integers; nothing where it is anything else.
std::optional<std::vector<int32_t>> JsonInt32List(const Json& list);

}  // namespace diapason
