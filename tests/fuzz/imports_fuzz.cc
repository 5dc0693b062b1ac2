// Imports of many lines into a history that holds records: all or nothing, or, with skip_damaged, the good ones. The
// history is whole afterwards.
#include <cstdio>
#include <cstdlib>

#include "db/integrity.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/histories.h"

namespace diapason {

std::vector<std::string> FuzzSeeds() {
  const std::string lines = GoodLines();
  return {lines, lines + "\n\r\n" + lines, lines + "{\"format\":1}\n"};
}

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace diapason;
  static const std::string& good = *new std::string(GoodLines());
  const std::string lines(reinterpret_cast<const char*>(data), size);
  FuzzHistory history;
  FUZZ_EXPECT(history.Import(good).ok());
  const std::string before = history.Export();
  const auto strict = history.Import(lines);
  if (!strict.ok()) {
    FUZZ_EXPECT(history.Export() == before);
    (void)history.Import(lines, /*skip_damaged=*/true);
  }
  FUZZ_EXPECT(CheckHistory(history.path()).value().ok());
  FUZZ_EXPECT(history->Info().ok());
  return 0;
}
