// cuDNN's functions, found at run time, and convolutions made by them. Declarations are our own: what cudnn.h of
// version 9 says of the functions used, with handles as void* and enums as int.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/library_calls.h"

namespace diapason {

#define DIAPASON_CUDNN_FUNCTIONS(F)                                                                                    \
  F(size_t, GetVersion, "cudnnGetVersion")                                                                             \
  F(const char*, GetErrorString, "cudnnGetErrorString", int)                                                           \
  F(int, Create, "cudnnCreate", void**)                                                                                \
  F(int, Destroy, "cudnnDestroy", void*)                                                                               \
  F(int, SetStream, "cudnnSetStream", void*, void*)                                                                    \
  F(int, CreateTensor, "cudnnCreateTensorDescriptor", void**)                                                          \
  F(int, SetTensor, "cudnnSetTensor4dDescriptor", void*, int, int, int, int, int, int)                                 \
  F(int, DestroyTensor, "cudnnDestroyTensorDescriptor", void*)                                                         \
  F(int, CreateFilter, "cudnnCreateFilterDescriptor", void**)                                                          \
  F(int, SetFilter, "cudnnSetFilter4dDescriptor", void*, int, int, int, int, int, int)                                 \
  F(int, DestroyFilter, "cudnnDestroyFilterDescriptor", void*)                                                         \
  F(int, CreateConvolution, "cudnnCreateConvolutionDescriptor", void**)                                                \
  F(int, SetConvolution, "cudnnSetConvolution2dDescriptor", void*, int, int, int, int, int, int, int, int)             \
  F(int, SetGroups, "cudnnSetConvolutionGroupCount", void*, int)                                                       \
  F(int, SetMathType, "cudnnSetConvolutionMathType", void*, int)                                                       \
  F(int, DestroyConvolution, "cudnnDestroyConvolutionDescriptor", void*)                                               \
  F(int, CreateActivation, "cudnnCreateActivationDescriptor", void**)                                                  \
  F(int, SetActivation, "cudnnSetActivationDescriptor", void*, int, int, double)                                       \
  F(int, DestroyActivation, "cudnnDestroyActivationDescriptor", void*)                                                 \
  F(int, GetWorkspaceSize, "cudnnGetConvolutionForwardWorkspaceSize", void*, void*, void*, void*, void*, int, size_t*) \
  F(int, Forward, "cudnnConvolutionForward", void*, const void*, void*, const void*, void*, const void*, void*, int,   \
    void*, size_t, const void*, void*, void*)                                                                          \
  F(int, BiasActivationForward, "cudnnConvolutionBiasActivationForward", void*, const void*, void*, const void*,       \
    void*, const void*, void*, int, void*, size_t, const void*, void*, const void*, void*, const void*, void*, void*,  \
    void*)

struct CudnnApi {
#define DIAPASON_DECLARE(result, member, symbol, ...) result (*member)(__VA_ARGS__) = nullptr;
  DIAPASON_CUDNN_FUNCTIONS(DIAPASON_DECLARE)
#undef DIAPASON_DECLARE

  // Opened once per process, and kept. Unavailable says what is missing and how to fix it.
  static absl::StatusOr<const CudnnApi*> Get();

  // What the library cannot do is FailedPrecondition, lack of memory ResourceExhausted, others Internal.
  absl::Status ToStatus(int result, const std::string& doing) const;
};

// Convolutions by one handle of cuDNN. `api` outlives it; a test may give one of its own functions.
class CudnnCalls : public LibraryCalls {
 public:
  static absl::StatusOr<std::unique_ptr<CudnnCalls>> Create(const CudnnApi& api, void* stream);
  ~CudnnCalls() override;
  absl::StatusOr<std::shared_ptr<PreparedCall>> Prepare(const LibraryCall& call) override;

 private:
  explicit CudnnCalls(const CudnnApi& api) : api_(api) {}
  const CudnnApi& api_;
  void* handle_ = nullptr;
};

}  // namespace diapason
