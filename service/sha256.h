// SHA-256 (FIPS 180-4), in pieces: names of models by their content.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace diapason {

class Sha256 {
 public:
  void Add(const void* data, size_t size);
  // 64 hexadecimal digits. To be called once.
  std::string Hex();

 private:
  void Block(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  size_t buffered_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace diapason
