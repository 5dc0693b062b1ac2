// Operators: what a node of a Network may be. One operator is one file of a few dozen lines in compiler/graph/ops/
// (shape inference and expression) and one line in ops/registry.cc.
//
// The operators, with their inputs (optional ones in brackets) and attributes (= default; the others are required).
// Attributes of windows: strides=1,1 pads=0,0,0,0 (top left bottom right) dilations=1,1. Axes may be negative.
//
// Convolutions, pools and sampling, of images in NCHW unless there is a layout attribute:
//   conv2d(x, w[, bias])            windows; group=1 layout="NCHW"
//   conv3d(x, w[, bias])            as conv2d without layout: NCDHW, w is OIDHW
//   conv_transpose(x, w[, bias])    1 to 3 dimensions, w is C x M/group x kernel: windows; output_padding group=1
//   deform_conv(x, w, offset[, mask[, bias]])
//                                   windows; group=1 offset_group=1
//   max_pool(x), avg_pool(x)        kernel; windows; ceil_mode=0 count_include_pad=0 (avg) layout="NCHW"
//   max_pool3d(x), avg_pool3d(x)    the same for NCDHW
//   sum_pool(x), sum_pool3d(x)      the sums of avg_pool's windows
//   max_pool_indices(x), max_pool3d_indices(x)
//                                   where in x the maxima are, counted by rows: column_major=0
//   fold(x)                         the reverse of im2col: image kernel; windows
//   grid_sample(x, grid)            NCHW or NCDHW: mode="linear"|"nearest"|"cubic"
//                                   padding="zeros"|"border"|"reflection" align_corners=0
//   roi_align(x, rois, batch_indices)
//                                   size; samples (0: as many as a bin is large) scale=1 mode="avg"|"max"
//                                   half_pixel=1
//
// Products and reductions:
//   gemm(a, b[, c])                 ONNX's Gemm of matrices: trans_a=0 trans_b=0 alpha=1 beta=1; c broadcasts
//   matmul(a, b)                    numpy.matmul: batch dimensions broadcast, 1-D operands as in numpy
//   reduce_sum|mean|max|min|prod(x) axes=all keepdims=1 (global pools are reductions over the image axes)
//   softmax(x), log_softmax(x)      axis=-1 (importers flatten first for opset < 13)
//   layer_norm(x), rms_norm(x)      over the axes from axis=-1 on: epsilon=1e-5; scale and bias are separate nodes
//   run_sums(x)                     over the last axis: run=64; of each run the sum and that of the squares (float32)
//   normalize_by_sums(x, sums)      count (of a row's elements) epsilon=1e-5 centred=1 (else RMS) shifts=0: x divided
//   by
//                                   the deviation of rows of which `sums` are, less their mean if it shifts
//   batch_norm(x, scale, bias, mean, variance)
//                                   axis=1 epsilon=1e-5
//   arg_max(x), arg_min(x)          axis=0 select_last_index=0; the axis stays, with extent 1
//   top_k_indices(x)                k=1 axis=0 largest=1
//   cumulative_sum(x), cumulative_product(x)
//                                   axis=0 exclusive=0 reverse=0
//
// Element-wise; two operands broadcast as in numpy:
//   add sub mul div pow mod fmod maximum minimum (a, b)
//                                   mod has the sign of b, fmod that of a
//   equal less less_equal (a, b)    give bool
//   and or xor (a, b)               of bool
//   bitwise_and bitwise_or bitwise_xor shift_left shift_right (a, b)
//                                   of integers
//   where(condition, a, b)
//   relu sigmoid tanh exp log sqrt rsqrt erf abs neg floor ceil round reciprocal (x)
//   sin cos tan asin acos atan sinh cosh asinh acosh atanh sign (x)
//   softsign mish gelu gelu_tanh softplus hard_swish not bitwise_not is_nan identity (x)
//   clip(x)                         min max (each optional)
//   leaky_relu(x) alpha=0.01, elu(x) alpha=1, celu(x) alpha=1, selu(x) alpha gamma, swish(x) alpha=1
//   thresholded_relu(x) alpha=1, hard_sigmoid(x) alpha=0.2 beta=0.5, shrink(x) lambd=0.5 bias=0
//   is_inf(x)                       negative=1 positive=1
//   cast(x)                         to="float32"
//   narrow(x)                       to ("bfloat16", "int16", ...) saturate=1: rounds or wraps to values of a narrower
//                                   type
//
// Shapes and indices:
//   reshape(x)                      shape (0 copies, -1 is inferred)
//   flatten(x)                      axis=1
//   squeeze(x)                      axes=all of extent 1
//   unsqueeze(x)                    axes (of the result)
//   expand(x)                       shape (numpy broadcasting of both shapes, as in ONNX)
//   transpose(x)                    perm=reversed
//   concat(x...)                    axis=0
//   slice(x)                        starts ends; axes=0,1,... steps=1,...
//   pad(x)                          pads (2 x rank: all begins, then all ends; negative crops) value=0
//                                   mode="constant"|"reflect"|"edge"|"wrap"
//   gather(x, indices)              axis=0; negative indices count from the end
//   gather_elements(x, indices)     axis=0
//   gather_nd(x, indices)           batch_dims=0
//   scatter_elements(x, indices, updates)
//                                   axis=0 reduction="none"|"add"|"mul"|"max"|"min"
//   scatter_nd(x, indices, updates) reduction, the same
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/network.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// How the partition treats an operator.
enum class OperatorKind {
  kAnchor,  // has a reduction or is the centre of its task: at most one a subgraph, but for reductions of the same rows
            // and attention
  kElementwise,  // one point of the result reads the same point (broadcast) of each input: an epilogue or a prologue
  kInjective,    // moves data (pad, transpose, concat, slice): one point reads one point of an input
};

// What an operator sees of a node.
struct OperatorArgs {
  std::vector<TensorType> inputs;
  std::vector<const Array*> values;  // constants among the inputs; null for others. Used by inference only.
  const Attributes* attributes = nullptr;
  TensorType output;  // set for `emit` and `is_view`
};

struct Operator {
  const char* name;
  OperatorKind kind;
  int min_inputs, max_inputs;  // max -1: any number
  // Type and shape of the result. InvalidArgument says what is wrong, without naming the node (the caller does).
  absl::StatusOr<TensorType> (*infer)(const OperatorArgs& args);
  // Adds the stages that compute the node to a dag; `stages` are those of the inputs. Returns the id of the result's.
  // Arithmetic on float16 is done in float32: emit loads through Wide() (ops/emit.h), and its result may be a float32
  // stage for a float16 tensor; whoever stores it casts. REQUIRES: infer succeeded on the same args.
  int (*emit)(DagBuilder& builder, const OperatorArgs& args, const std::vector<int>& stages);
  // True if the result has the same bytes in the same order as the first input: no kernel is needed. Null: never.
  bool (*is_view)(const OperatorArgs& args) = nullptr;
  // a op b = b op a: the partition may exchange the inputs, so that equal subgraphs get equal dags.
  bool commutative = false;
};

// The operator of that name, or null.
const Operator* FindOperator(const std::string& name);
// All names, in the order of the table.
std::vector<std::string> OperatorNames();

// The arguments of a node of a network.
OperatorArgs ArgsOf(const Network& network, const Node& node);
// Looks up the operator and infers. InvalidArgument names node, operator and reason.
absl::StatusOr<TensorType> InferNode(const Network& network, const Node& node);

}  // namespace diapason
