// Random numbers that are the same on every machine and with every standard library: a seed reproduces a search.
#pragma once

#include <cstdint>

namespace diapason {

// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): each output bit depends on each input bit.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// SplitMix64. Streams are cheap: one for each slot of a population makes the result independent of threads.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0)
      : state_(Mix(Mix(Mix(Mix(seed) ^ a) ^ b) ^ c)) {}
  uint64_t Next() {
    const uint64_t out = Mix(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return out;
  }
  // In [0, n). REQUIRES: n >= 1. (Multiply and shift: the bias is below n / 2^32.)
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(((Next() >> 32) * n) >> 32); }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace diapason
