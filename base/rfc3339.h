// Instants as text.
#pragma once

#include <cstdint>
#include <string>

namespace diapason {

// "2026-11-25T03:59:04.123Z" of Unix nanoseconds, in UTC.
std::string Rfc3339(int64_t unix_nanoseconds);

}  // namespace diapason
