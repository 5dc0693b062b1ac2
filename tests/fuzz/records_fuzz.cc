// A record from anywhere, as a line of JSON: refused, or stored so that it comes out as it went in.
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/histories.h"

namespace diapason {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  std::istringstream lines(GoodLines());
  for (std::string line; std::getline(lines, line);) seeds.push_back(line);
  return seeds;
}

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace diapason;
  static std::optional<FuzzHistory> history;  // empty between inputs: a new one costs more than what is tried
  if (!history.has_value()) history.emplace();
  const auto report = history->Import(std::string(reinterpret_cast<const char*>(data), size));
  if (!report.ok()) {
    FUZZ_EXPECT(report.status().message().find("\n") == absl::string_view::npos);
    return 0;
  }
  const std::string lines = history->Export();
  if (lines.empty()) return 0;
  FUZZ_EXPECT(history->Import(lines).value().added == 0);
  FuzzHistory copy;
  FUZZ_EXPECT(copy.Import(lines).ok());
  FUZZ_EXPECT(copy.Export() == lines);
  history.reset();
  return 0;
}
