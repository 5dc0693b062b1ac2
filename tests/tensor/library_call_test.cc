#include "compiler/tensor/library_call.h"

#include <gtest/gtest.h>

#include <limits>

namespace diapason {
namespace {

// A 3x3 convolution of stride 2 in two groups, with everything fused.
LibraryCall Convolution() {
  ConvolutionCall c;
  c.nhwc = true;
  c.batch = 2, c.channels = 8, c.height = 9, c.width = 7;
  c.filters = 16, c.kernel_h = c.kernel_w = 3, c.groups = 2;
  c.out_h = 5, c.out_w = 4;
  c.stride_h = c.stride_w = 2, c.pad_h = c.pad_w = 1;
  c.bias = c.residual = c.relu = true;
  return {1, c};
}

LibraryCall Product() {
  GemmCall g;
  g.in = DType::kFloat16;
  g.batch = 3, g.m = 4, g.n = 5, g.k = 6;
  g.transpose_b = true;
  g.lda = 6, g.ldb = 8, g.ldc = 5;
  g.stride_a = 24, g.stride_b = 0, g.stride_c = 20;
  return {0, g};
}

TEST(LibraryCall, ComesBackFromItsNumbers) {
  for (const LibraryCall& call : {Convolution(), Product()}) {
    ASSERT_TRUE(call.Check().ok()) << call.Check();
    const absl::StatusOr<LibraryCall> back = LibraryCall::FromNumbers(call.ToNumbers());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, call);
  }
  EXPECT_EQ(Convolution().library(), Library::kCudnn);
  EXPECT_EQ(Product().library(), Library::kCublas);
}

TEST(LibraryCall, NumbersThatAreNoCallAreDataLoss) {
  for (const LibraryCall& call : {Convolution(), Product()}) {
    const std::vector<int64_t> numbers = call.ToNumbers();
    for (size_t size = 0; size < numbers.size(); ++size)
      EXPECT_EQ(LibraryCall::FromNumbers(absl::MakeConstSpan(numbers.data(), size)).status().code(),
                absl::StatusCode::kDataLoss);
    std::vector<int64_t> longer = numbers;
    longer.push_back(0);
    EXPECT_FALSE(LibraryCall::FromNumbers(longer).ok());
    for (size_t at = 0; at < numbers.size(); ++at) {
      for (int64_t value : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
        std::vector<int64_t> wild = numbers;
        wild[at] = value;
        EXPECT_FALSE(LibraryCall::FromNumbers(wild).ok()) << at << " = " << value;
      }
    }
  }
}

TEST(LibraryCall, OperandsHaveTheSizesThatAreTouched) {
  const auto sizes = [](const LibraryCall& call) {
    std::vector<int64_t> sizes;
    for (const LibraryCall::Operand& operand : call.Operands()) sizes.push_back(operand.elements);
    return sizes;
  };
  // x, w, bias, residual, y
  EXPECT_EQ(sizes(Convolution()),
            (std::vector<int64_t>{2 * 9 * 7 * 8, 16 * 4 * 9, 16, 2 * 5 * 4 * 16, 2 * 5 * 4 * 16}));
  // b stands still; its last row has no padding behind it.
  EXPECT_EQ(sizes(Product()), (std::vector<int64_t>{72, 4 * 8 + 6, 60}));
}

TEST(LibraryCall, RefusesContradictions) {
  LibraryCall call = Convolution();
  std::get<ConvolutionCall>(call.what).out_h = 6;
  EXPECT_EQ(call.Check().ToString(), "INVALID_ARGUMENT: a library call has an output that its window does not make");
  call = Convolution();
  std::get<ConvolutionCall>(call.what).groups = 3;
  EXPECT_EQ(call.Check().ToString(), "INVALID_ARGUMENT: a library call has groups that do not divide its channels");
  call = Convolution();
  std::get<ConvolutionCall>(call.what).dtype = DType::kFloat64;
  EXPECT_EQ(call.Check().ToString(), "INVALID_ARGUMENT: a library call convolves neither float32 nor float16");
  call = Product();
  std::get<GemmCall>(call.what).ldb = 5;
  EXPECT_EQ(call.Check().ToString(), "INVALID_ARGUMENT: a library call has rows that overlap");
  call = Product();
  std::get<GemmCall>(call.what).stride_c = 19;
  EXPECT_EQ(call.Check().ToString(), "INVALID_ARGUMENT: a library call has results that overlap");
}

TEST(LibraryCall, ReadsAsALine) {
  EXPECT_EQ(Convolution().ToString(),
            "cudnn convolution float32 NHWC 2x9x7x8 with 16 filters 3x3 to 5x4, stride 2x2, padding 1x1, dilation 1x1, "
            "groups 2, bias, residual, relu, algorithm implicit_precomp_gemm");
  EXPECT_EQ(
      Product().ToString(),
      "cublas product float16 4x6 by 6x5 (transposed) to float32, leading dimensions 6 8 5, 3 of them 24 0 20 apart, "
      "algorithm default");
}

}  // namespace
}  // namespace diapason
