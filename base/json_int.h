// Integers of JSON without silent wrap-around.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace diapason {

// The value of a JSON number without fraction that lies from `min` to `max`; nothing otherwise. For any nlohmann type.
template <typename Json>
std::optional<int64_t> JsonInt(const Json& item, int64_t min = std::numeric_limits<int64_t>::min(),
                               int64_t max = std::numeric_limits<int64_t>::max()) {
  if (!item.is_number_integer()) return std::nullopt;
  if (item.is_number_unsigned() &&
      item.template get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  const int64_t value = item.template get<int64_t>();
  if (value < min || value > max) return std::nullopt;
  return value;
}

}  // namespace diapason
