#include "base/rfc3339.h"

#include <ctime>

#include "absl/strings/str_format.h"

namespace diapason {

std::string Rfc3339(int64_t unix_nanoseconds) {
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t seconds = unix_nanoseconds / kSecond, rest = unix_nanoseconds % kSecond;
  if (rest < 0) {
    --seconds;
    rest += kSecond;
  }
  const std::time_t time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char day[32];
  std::strftime(day, sizeof day, "%FT%T", &parts);
  return absl::StrFormat("%s.%03dZ", day, rest / 1'000'000);
}

}  // namespace diapason
