// A library on the host: the calls that cuDNN and cuBLAS are asked for as plain loops, so that what a program gives to
// a library can be run where there is no GPU.
#pragma once

#include <memory>
#include <vector>

#include "compiler/runtime/cuda/library_calls.h"
#include "compiler/tensor/array.h"

namespace diapason {

class HostLibrary : public LibraryCalls {
 public:
  absl::StatusOr<std::shared_ptr<PreparedCall>> Prepare(const LibraryCall& call) override {
    if (const absl::Status ok = call.Check(); !ok.ok()) return ok;
    return std::make_shared<Call>(call);
  }

 private:
  // Elements of memory of a type.
  struct Tensor {
    void* data;
    DType dtype;
    double at(int64_t i) const {
      return dtype == DType::kFloat16 ? HalfToFloat(static_cast<uint16_t*>(data)[i]) : static_cast<float*>(data)[i];
    }
    void set(int64_t i, double value) const {
      if (dtype == DType::kFloat16)
        static_cast<uint16_t*>(data)[i] = FloatToHalf(static_cast<float>(value));
      else
        static_cast<float*>(data)[i] = static_cast<float>(value);
    }
  };

  class Call : public PreparedCall {
   public:
    explicit Call(const LibraryCall& call) : call_(call) {}
    int64_t workspace_bytes() const override { return 64; }
    absl::Status Enqueue(absl::Span<void* const> pointers, void* workspace) override {
      static_cast<char*>(workspace)[63] = 1;
      std::vector<Tensor> tensors;
      const std::vector<LibraryCall::Operand> operands = call_.Operands();
      for (size_t i = 0; i < operands.size(); ++i) tensors.push_back({pointers[i], operands[i].dtype});
      if (const auto* g = std::get_if<GemmCall>(&call_.what))
        Multiply(*g, tensors);
      else
        Convolve(std::get<ConvolutionCall>(call_.what), tensors);
      return absl::OkStatus();
    }

   private:
    static void Multiply(const GemmCall& g, const std::vector<Tensor>& t) {
      const auto place = [](bool transposed, int64_t ld, int64_t row, int64_t column) {
        return transposed ? column * ld + row : row * ld + column;
      };
      for (int64_t e = 0; e < g.batch * g.m * g.n; ++e) {
        const int64_t b = e / (g.m * g.n), i = e / g.n % g.m, j = e % g.n;
        double sum = 0;
        for (int64_t l = 0; l < g.k; ++l)
          sum += t[0].at(b * g.stride_a + place(g.transpose_a, g.lda, i, l)) *
                 t[1].at(b * g.stride_b + place(g.transpose_b, g.ldb, l, j));
        t[2].set(b * g.stride_c + i * g.ldc + j, sum);
      }
    }

    static void Convolve(const ConvolutionCall& c, const std::vector<Tensor>& t) {
      const auto image = [&](int64_t n, int64_t channel, int64_t y, int64_t x, int64_t channels, int64_t h, int64_t w) {
        return c.nhwc ? ((n * h + y) * w + x) * channels + channel : ((n * channels + channel) * h + y) * w + x;
      };
      const int64_t group_in = c.channels / c.groups, group_out = c.filters / c.groups;
      for (int64_t e = 0; e < c.batch * c.filters * c.out_h * c.out_w; ++e) {
        const int64_t x = e % c.out_w, y = e / c.out_w % c.out_h, k = e / (c.out_w * c.out_h) % c.filters,
                      n = e / (c.out_w * c.out_h * c.filters), to = image(n, k, y, x, c.filters, c.out_h, c.out_w);
        double sum = 0;
        for (int64_t r = 0; r < group_in * c.kernel_h * c.kernel_w; ++r) {
          const int64_t s = r % c.kernel_w, q = r / c.kernel_w % c.kernel_h, ci = r / (c.kernel_w * c.kernel_h);
          const int64_t iy = y * c.stride_h - c.pad_h + q * c.dilation_h,
                        ix = x * c.stride_w - c.pad_w + s * c.dilation_w;
          if (iy < 0 || iy >= c.height || ix < 0 || ix >= c.width) continue;
          const int64_t weight = c.nhwc ? ((k * c.kernel_h + q) * c.kernel_w + s) * group_in + ci
                                        : ((k * group_in + ci) * c.kernel_h + q) * c.kernel_w + s;
          sum +=
              t[0].at(image(n, k / group_out * group_in + ci, iy, ix, c.channels, c.height, c.width)) * t[1].at(weight);
        }
        if (c.bias) sum += t[2].at(k);
        if (c.residual) sum += t[3].at(to);
        t.back().set(to, c.relu && sum < 0 ? 0 : sum);
      }
    }

    const LibraryCall call_;
  };
};

}  // namespace diapason
