// A call of a vendor's library (cuDNN, cuBLAS) that stands in a program where a kernel would: plain numbers, so that it
// is recorded, sent and replayed like everything else. compiler/runtime makes the call.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/tensor/dtype.h"

namespace diapason {

// The numbers are stored in schedules: never renumber.
enum class Library : uint8_t { kCudnn = 1, kCublas = 2 };

const char* NameOf(Library library);   // "cudnn", as in -libs=cudnn
const char* TitleOf(Library library);  // "cuDNN", for people
// All there are, in order of their numbers.
const std::vector<Library>& AllLibraries();

// y = activation(convolution(x, w) + bias + residual), in two dimensions, a cross-correlation as networks mean it. Sums
// in float32. Tensors are dense: x, y and the residual in the layout, w as [filters, channels / groups, kernel_h,
// kernel_w] for NCHW and [filters, kernel_h, kernel_w, channels / groups] for NHWC, the bias as [filters].
struct ConvolutionCall {
  DType dtype = DType::kFloat32;  // of all tensors: float32 or float16
  bool nhwc = false;
  int64_t batch = 1, channels = 1, height = 1, width = 1;  // of x
  int64_t filters = 1, kernel_h = 1, kernel_w = 1, groups = 1;
  int64_t out_h = 1, out_w = 1;
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  bool bias = false, residual = false, relu = false;
  bool operator==(const ConvolutionCall&) const = default;
};

// c[i, j] = sum over l of a[i, l] * b[l, j], row-major: element (i, j) of a matrix is at i * ld + j, or at j * ld + i
// of one that is transposed; `batch` products, each so many elements behind the one before. Sums in float32.
struct GemmCall {
  DType in = DType::kFloat32, out = DType::kFloat32;  // float32 or float16 of a and b; float32 of c
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transpose_a = false, transpose_b = false;
  int64_t lda = 1, ldb = 1, ldc = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  bool operator==(const GemmCall&) const = default;
};

struct LibraryCall {
  // Which of the library's ways: cuDNN's cudnnConvolutionFwdAlgo_t; cuBLAS 0, its own choice.
  int64_t algorithm = 0;
  std::variant<ConvolutionCall, GemmCall> what;

  Library library() const { return std::holds_alternative<ConvolutionCall>(what) ? Library::kCudnn : Library::kCublas; }

  // A tensor of the call and how many elements of it are touched.
  struct Operand {
    const char* name;
    DType dtype;
    int64_t elements;
  };
  // In order of the arguments: x, w, [bias,] [residual,] y; a, b, c. The last one is written. REQUIRES: Check() is OK.
  std::vector<Operand> Operands() const;
  // InvalidArgument for numbers that contradict each other, or that the libraries' 32-bit interfaces cannot take.
  absl::Status Check() const;
  // One line for people: "cudnn convolution float32 NHWC 1x56x56x64 with 64 filters 3x3 ...".
  std::string ToString() const;

  // As numbers, for programs and their files. FromNumbers: DataLoss for numbers that are no call or do not pass Check.
  std::vector<int64_t> ToNumbers() const;
  static absl::StatusOr<LibraryCall> FromNumbers(absl::Span<const int64_t> numbers);

  bool operator==(const LibraryCall&) const = default;
};

// What an algorithm is called: "implicit_precomp_gemm"; its number where it has no name.
std::string AlgorithmName(Library library, int64_t algorithm);

}  // namespace diapason
