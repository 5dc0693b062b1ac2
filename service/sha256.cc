#include "service/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "base/check.h"

namespace diapason {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

// Fails for want of memory alone, or where OpenSSL is set up to allow no SHA-256.
Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  DIAPASON_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::Add(const void* data, size_t size) { DIAPASON_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1); }

std::string Sha256::Hex() {
  std::string sum(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  DIAPASON_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(sum.data()), &size) == 1);
  sum.resize(size);
  return absl::BytesToHexString(sum);
}

}  // namespace diapason
