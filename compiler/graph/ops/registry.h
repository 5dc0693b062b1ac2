// Where operators are listed: each file of this folder defines one function below, and registry.cc calls it.
#pragma once

#include <vector>

#include "compiler/graph/operator.h"

namespace diapason::ops {

std::vector<Operator> BatchNorm();
std::vector<Operator> Binary();  // add sub ... pow mod, equal less less_equal, and or xor
std::vector<Operator> Bits();    // bitwise_and bitwise_or bitwise_xor shift_left shift_right
std::vector<Operator> Cast();
std::vector<Operator> Concat();
std::vector<Operator> Conv2d();
std::vector<Operator> Conv3d();
std::vector<Operator> ConvTranspose();
std::vector<Operator> Expand();
std::vector<Operator> Fold();
std::vector<Operator> Gather();
std::vector<Operator> GatherNd();  // gather_elements gather_nd scatter_elements scatter_nd
std::vector<Operator> Gemm();
std::vector<Operator> ImageSampling();  // grid_sample deform_conv roi_align
std::vector<Operator> Matmul();
std::vector<Operator> Narrow();
std::vector<Operator> RunSums();    // run_sums normalize_by_sums
std::vector<Operator> Normalize();  // layer_norm rms_norm
std::vector<Operator> Pad();
std::vector<Operator> Pool();         // max_pool avg_pool sum_pool max_pool_indices
std::vector<Operator> Pool3d();       // max_pool3d avg_pool3d sum_pool3d max_pool3d_indices
std::vector<Operator> Reduce();       // reduce_sum reduce_mean reduce_max reduce_min reduce_prod
std::vector<Operator> SelectAlong();  // cumulative_sum cumulative_product arg_max arg_min top_k_indices
std::vector<Operator> Slice();
std::vector<Operator> Softmax();  // softmax log_softmax
std::vector<Operator> Transpose();
std::vector<Operator> Unary();  // relu sigmoid ... clip hard_sigmoid
std::vector<Operator> View();   // reshape flatten squeeze unsqueeze identity
std::vector<Operator> Where();

}  // namespace diapason::ops
