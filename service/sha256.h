// SHA-256 (FIPS 180-4) by OpenSSL, in pieces: names of models by their content.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct evp_md_ctx_st;

namespace diapason {

class Sha256 {
 public:
  Sha256();
  void Add(const void* data, size_t size);
  // 64 hexadecimal digits. To be called once.
  std::string Hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace diapason
