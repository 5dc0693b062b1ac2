// Dags that several tests of tensor use.
#pragma once

#include "compiler/tensor/compute_dag.h"

namespace diapason::testing_dags {

inline ComputeDag Matmul(int64_t m, int64_t n, int64_t k, bool constant_weight = true) {
  DagBuilder b;
  const int x = b.Placeholder("x", {m, k});
  const int w = constant_weight ? b.Constant("w", {k, n}) : b.Placeholder("w", {k, n});
  const int c = b.Reduce("c", {m, n}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  return b.Build({c}).value();
}

struct ConvShape {
  int64_t size;    // of the image's sides
  int64_t ci, co;  // channels
  int64_t kernel, stride, pad;
};

// NHWC convolution with padding, bias and relu.
inline ComputeDag ConvBiasRelu(const ConvShape& shape) {
  const int64_t size = shape.size, ci = shape.ci, co = shape.co;
  const int64_t kernel = shape.kernel, stride = shape.stride, pad = shape.pad;
  const int64_t out = (size + 2 * pad - kernel) / stride + 1;
  const int64_t padded = size + 2 * pad;
  DagBuilder b;
  const int x = b.Placeholder("x", {1, size, size, ci});
  const int w = b.Constant("w", {kernel, kernel, ci, co});
  const int bias = b.Constant("bias", {co});
  const int p = b.Compute("pad", {1, padded, padded, ci}, [&](auto& i) {
    Expr inside = IntImm(1, DType::kBool);
    for (int d : {1, 2}) {
      inside = And(inside, Le(IntImm(pad), i[d]));
      inside = And(inside, Lt(i[d], IntImm(size + pad)));
    }
    return Select(inside, b.At(x, {i[0], Sub(i[1], IntImm(pad)), Sub(i[2], IntImm(pad)), i[3]}), FloatImm(0));
  });
  const int conv = b.Reduce("conv", {1, out, out, co}, {kernel, kernel, ci}, Combiner::kSum, [&](auto& i, auto& r) {
    const Expr h = Add(Mul(i[1], IntImm(stride)), r[0]), v = Add(Mul(i[2], IntImm(stride)), r[1]);
    return Mul(b.At(p, {i[0], h, v, r[2]}), b.At(w, {r[0], r[1], r[2], i[3]}));
  });
  const int biased =
      b.Compute("biased", {1, out, out, co}, [&](auto& i) { return Add(b.At(conv, i), b.At(bias, {i[3]})); });
  const int relu = b.Compute("relu", {1, out, out, co}, [&](auto& i) { return Max(b.At(biased, i), FloatImm(0)); });
  return b.Build({relu}).value();
}

}  // namespace diapason::testing_dags
