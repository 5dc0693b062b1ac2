// cuBLAS's functions, found at run time, and products made by them. Declarations are our own: what cublas_api.h of
// versions 12 and 13 says of the functions used, with handles as void* and enums as int.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/library_calls.h"

namespace diapason {

#define DIAPASON_CUBLAS_FUNCTIONS(F)                                                                             \
  F(const char*, GetStatusString, "cublasGetStatusString", int)                                                  \
  F(int, Create, "cublasCreate_v2", void**)                                                                      \
  F(int, Destroy, "cublasDestroy_v2", void*)                                                                     \
  F(int, SetStream, "cublasSetStream_v2", void*, void*)                                                          \
  F(int, SetWorkspace, "cublasSetWorkspace_v2", void*, void*, size_t)                                            \
  F(int, SetMathMode, "cublasSetMathMode", void*, int)                                                           \
  F(int, Gemm, "cublasGemmStridedBatchedEx", void*, int, int, int, int, int, const void*, const void*, int, int, \
    long long, const void*, int, int, long long, const void*, void*, int, int, long long, int, int, int)

struct CublasApi {
#define DIAPASON_DECLARE(result, member, symbol, ...) result (*member)(__VA_ARGS__) = nullptr;
  DIAPASON_CUBLAS_FUNCTIONS(DIAPASON_DECLARE)
#undef DIAPASON_DECLARE

  // As CudnnApi's.
  static absl::StatusOr<const CublasApi*> Get();
  absl::Status ToStatus(int result, const std::string& doing) const;
};

// Products by one handle of cuBLAS. `api` outlives it; a test may give one of its own functions.
class CublasCalls : public LibraryCalls {
 public:
  static absl::StatusOr<std::unique_ptr<CublasCalls>> Create(const CublasApi& api, void* stream);
  ~CublasCalls() override;
  absl::StatusOr<std::shared_ptr<PreparedCall>> Prepare(const LibraryCall& call) override;

 private:
  explicit CublasCalls(const CublasApi& api) : api_(api) {}
  const CublasApi& api_;
  void* handle_ = nullptr;
};

}  // namespace diapason
