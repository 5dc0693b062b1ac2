// A fuzz target: one .cc file with these two functions. It is linked twice: with libFuzzer (-DDIAPASON_FUZZ=ON,
// run.sh), and with driver.cc, which every build has and CI runs for a few seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Takes any bytes; a crash, an abort or a hang is a find.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace diapason {

// Inputs to begin with, beside those in corpus/. Good ones: most changes to them are nearly good.
std::vector<std::string> FuzzSeeds();

// Ends the process, which is how a target tells that what it checked does not hold.
#define FUZZ_EXPECT(condition)                                                            \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

}  // namespace diapason
