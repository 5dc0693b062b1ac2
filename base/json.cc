#include "base/json.h"

namespace diapason {

Json ParseJson(const std::string& text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

std::string JsonText(const Json& json, const JsonStyle& style) {
  return json.dump(style.indent, ' ', style.ascii, Json::error_handler_t::replace);
}

std::optional<int64_t> JsonInt(const Json& item, int64_t min, int64_t max) {
  if (!item.is_number_integer()) return std::nullopt;
  if (item.is_number_unsigned() && item.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  const int64_t value = item.get<int64_t>();
  if (value < min || value > max) return std::nullopt;
  return value;
}

std::optional<std::vector<int32_t>> JsonInt32List(const Json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<int32_t> values;
  for (const Json& item : list) {
    const std::optional<int64_t> value =
        JsonInt(item, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    if (!value.has_value()) return std::nullopt;
    values.push_back(static_cast<int32_t>(*value));
  }
  return values;
}

}  // namespace diapason
