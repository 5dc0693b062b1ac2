// Where operators are listed: each file of this folder defines one function below, and registry.cc calls it.
#pragma once

#include <vector>

#include "compiler/graph/operator.h"

namespace diapason::ops {

std::vector<Operator> BatchNorm();
std::vector<Operator> Binary();  // add sub mul div pow maximum minimum
std::vector<Operator> Cast();
std::vector<Operator> Concat();
std::vector<Operator> Conv2d();
std::vector<Operator> Expand();
std::vector<Operator> Gather();
std::vector<Operator> Gemm();
std::vector<Operator> Matmul();
std::vector<Operator> Pad();
std::vector<Operator> Pool();    // max_pool avg_pool
std::vector<Operator> Reduce();  // reduce_sum reduce_mean reduce_max reduce_min reduce_prod
std::vector<Operator> Slice();
std::vector<Operator> Softmax();  // softmax log_softmax
std::vector<Operator> Transpose();
std::vector<Operator> Unary();  // relu sigmoid ... clip hard_sigmoid
std::vector<Operator> View();   // reshape flatten squeeze unsqueeze identity
std::vector<Operator> Where();

}  // namespace diapason::ops
