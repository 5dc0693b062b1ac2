// How much a kernel has to do: what a profile divides by its time.
#pragma once

#include <cstdint>

#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {

struct KernelWork {
  // Arithmetic operations that the kernel's code executes, a multiply-add being two; index arithmetic is not counted.
  // 3xTF32 products count once. Winograd and Strassen have fewer than the operator that they stand for, recomputed
  // values more.
  double flops = 0;
  // The least that moves between the kernel and memory: each element of its parameters that it touches, once.
  double bytes = 0;
  TensorMode tensor = TensorMode::kNone;  // what most of its products are made with
  bool operator==(const KernelWork&) const = default;
};

}  // namespace diapason
