// Each operator against loops written by hand, or values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "compiler/graph/operator.h"
#include "compiler/tensor/tree_size.h"
#include "testing.h"

namespace diapason {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct ValueCase {
  std::string label;
  std::string op;
  std::vector<Array> inputs;
  Attributes attributes;
  Array want;
};

Array F(std::vector<int64_t> shape, std::vector<float> values) { return Array::FromFloats(std::move(shape), values); }

Array I(std::vector<int64_t> shape, std::vector<int64_t> values, DType dtype = DType::kInt64) {
  Array array(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) array.set_int(i, values[i]);
  return array;
}

std::vector<ValueCase> DataMovementCases() {
  return {
      {"concat",
       "concat",
       {F({2, 1}, {1, 2}), F({2, 2}, {3, 4, 5, 6})},
       {{"axis", int64_t{-1}}},
       F({2, 3}, {1, 3, 4, 2, 5, 6})},
      {"transpose", "transpose", {Counting({2, 3})}, {}, F({3, 2}, {1, 4, 2, 5, 3, 6})},
      {"transpose_perm",
       "transpose",
       {Counting({1, 2, 3})},
       {{"perm", Ints{2, 0, 1}}},
       F({3, 1, 2}, {1, 4, 2, 5, 3, 6})},
      {"pad_constant", "pad", {Counting({2})}, {{"pads", Ints{1, 2}}, {"value", 9.0}}, F({5}, {9, 1, 2, 9, 9})},
      {"pad_reflect",
       "pad",
       {Counting({3})},
       {{"pads", Ints{2, 1}}, {"mode", std::string("reflect")}},
       F({6}, {3, 2, 1, 2, 3, 2})},
      {"pad_edge",
       "pad",
       {Counting({3})},
       {{"pads", Ints{2, 1}}, {"mode", std::string("edge")}},
       F({6}, {1, 1, 1, 2, 3, 3})},
      {"pad_crop_wrap",
       "pad",
       {Counting({5})},
       {{"pads", Ints{-1, 4}}, {"mode", std::string("wrap")}},
       F({8}, {2, 3, 4, 5, 2, 3, 4, 5})},
      {"pad_crop_edge",
       "pad",
       {Counting({4})},
       {{"pads", Ints{2, -1}}, {"mode", std::string("edge")}},
       F({5}, {1, 1, 1, 2, 3})},
      {"pad_crop_reflect",
       "pad",
       {Counting({5})},
       {{"pads", Ints{-2, 1}}, {"mode", std::string("reflect")}},
       F({4}, {3, 4, 5, 4})},
      {"pad_reflect_crop",
       "pad",
       {Counting({4})},
       {{"pads", Ints{2, -1}}, {"mode", std::string("reflect")}},
       F({5}, {3, 2, 1, 2, 3})},
      {"pad_crop", "pad", {Counting({4})}, {{"pads", Ints{-1, 1}}}, F({4}, {2, 3, 4, 0})},
      {"reshape", "reshape", {Counting({2, 3})}, {{"shape", Ints{3, -1}}}, F({3, 2}, {1, 2, 3, 4, 5, 6})},
      {"reshape_copy", "reshape", {Counting({2, 3})}, {{"shape", Ints{0, 3, 1}}}, F({2, 3, 1}, {1, 2, 3, 4, 5, 6})},
      {"flatten", "flatten", {Counting({2, 1, 3})}, {}, F({2, 3}, {1, 2, 3, 4, 5, 6})},
      {"flatten_0", "flatten", {Counting({2, 3})}, {{"axis", int64_t{0}}}, F({1, 6}, {1, 2, 3, 4, 5, 6})},
      {"squeeze", "squeeze", {Counting({1, 3, 1})}, {{"axes", Ints{-1}}}, F({1, 3}, {1, 2, 3})},
      {"unsqueeze", "unsqueeze", {Counting({3})}, {{"axes", Ints{0, 2}}}, F({1, 3, 1}, {1, 2, 3})},
      {"identity", "identity", {Counting({3})}, {}, F({3}, {1, 2, 3})},
      {"gather", "gather", {Counting({2, 3}), I({2}, {2, -3})}, {{"axis", int64_t{1}}}, F({2, 2}, {3, 1, 6, 4})},
      {"gather_scalar", "gather", {Counting({2, 3}), I({}, {1})}, {}, F({3}, {4, 5, 6})},
      {"slice",
       "slice",
       {Counting({5})},
       {{"starts", Ints{1}}, {"ends", Ints{1000}}, {"steps", Ints{2}}},
       F({2}, {2, 4})},
      {"slice_back",
       "slice",
       {Counting({4})},
       {{"starts", Ints{-1}}, {"ends", Ints{-1000}}, {"steps", Ints{-1}}},
       F({4}, {4, 3, 2, 1})},
      {"expand", "expand", {F({2, 1}, {1, 2})}, {{"shape", Ints{1, 3}}}, F({2, 3}, {1, 1, 1, 2, 2, 2})},
      {"where", "where", {I({2}, {1, 0}, DType::kBool), F({2}, {1, 2}), F({1}, {7})}, {}, F({2}, {1, 7})},
      {"cast", "cast", {F({3}, {1.7f, -1.7f, 0})}, {{"to", std::string("int64")}}, I({3}, {1, -1, 0})},
      {"cast_bool", "cast", {F({3}, {0.5f, -1, 0})}, {{"to", std::string("bool")}}, I({3}, {1, 1, 0}, DType::kBool)},
  };
}

std::vector<ValueCase> ArithmeticCases() {
  Array x = F({4}, {-2, -0.5f, 0, 3});
  auto map = [&](const std::string& op, Attributes attributes, const std::function<double(double)>& f) {
    Array want(DType::kFloat32, {4});
    for (int i = 0; i < 4; ++i) want.set(i, f(x.at(i)));
    return ValueCase{op, op, {x}, std::move(attributes), want};
  };
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  return {
      map("relu", {}, [](double v) { return v > 0 ? v : 0; }),
      map("sigmoid", {}, sigmoid),
      map("tanh", {}, [](double v) { return std::tanh(v); }),
      map("exp", {}, [](double v) { return std::exp(v); }),
      map("erf", {}, [](double v) { return std::erf(v); }),
      map("abs", {}, [](double v) { return std::abs(v); }),
      map("neg", {}, [](double v) { return -v; }),
      map("floor", {}, [](double v) { return std::floor(v); }),
      map("ceil", {}, [](double v) { return std::ceil(v); }),
      map("clip", {{"min", -1.0}, {"max", 2.0}}, [](double v) { return std::min(std::max(v, -1.0), 2.0); }),
      map("clip", {{"max", 0.0}}, [](double v) { return std::min(v, 0.0); }),
      map("leaky_relu", {{"alpha", 0.1}}, [](double v) { return v < 0 ? 0.1 * v : v; }),
      map("elu", {}, [](double v) { return v < 0 ? std::exp(v) - 1 : v; }),
      map("hard_sigmoid", {}, [](double v) { return std::min(std::max(0.2 * v + 0.5, 0.0), 1.0); }),
      map("hard_swish", {}, [](double v) { return v * std::min(std::max(v / 6 + 0.5, 0.0), 1.0); }),
      map("gelu", {}, [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }),
      map("softplus", {}, [](double v) { return std::log1p(std::exp(v)); }),
      {"log", "log", {F({2}, {1, 4})}, {}, F({2}, {0, std::log(4.0f)})},
      {"sqrt", "sqrt", {F({2}, {1, 4})}, {}, F({2}, {1, 2})},
      {"rsqrt", "rsqrt", {F({2}, {1, 4})}, {}, F({2}, {1, 0.5f})},
      {"reciprocal", "reciprocal", {F({2}, {1, 4})}, {}, F({2}, {1, 0.25f})},
      {"add", "add", {F({2, 1}, {1, 2}), F({2}, {10, 20})}, {}, F({2, 2}, {11, 21, 12, 22})},
      {"sub", "sub", {F({2}, {1, 2}), F({}, {5})}, {}, F({2}, {-4, -3})},
      {"mul", "mul", {F({1, 2}, {1, 2}), F({2, 1}, {3, 4})}, {}, F({2, 2}, {3, 6, 4, 8})},
      {"div", "div", {F({2}, {1, 2}), F({2}, {4, 8})}, {}, F({2}, {0.25f, 0.25f})},
      {"div_int", "div", {I({3}, {7, -7, 6}), I({}, {2})}, {}, I({3}, {3, -3, 3})},
      {"pow", "pow", {F({2}, {2, 3}), F({}, {2})}, {}, F({2}, {4, 9})},
      {"maximum", "maximum", {F({2}, {1, 5}), F({2}, {3, 2})}, {}, F({2}, {3, 5})},
      {"minimum", "minimum", {F({2}, {1, 5}), F({2}, {3, 2})}, {}, F({2}, {1, 2})},
      {"maximum_nan", "maximum", {F({3}, {kNan, 1, 0}), F({3}, {1, kNan, 0})}, {}, F({3}, {kNan, kNan, 0})},
      {"minimum_nan", "minimum", {F({3}, {kNan, 1, 0}), F({3}, {1, kNan, 0})}, {}, F({3}, {kNan, kNan, 0})},
      {"sign_nan", "sign", {F({4}, {kNan, -3, 0, 2})}, {}, F({4}, {kNan, -1, 0, 1})},
      {"relu_nan", "relu", {F({2}, {kNan, -1})}, {}, F({2}, {kNan, 0})},
      {"clip_nan", "clip", {F({3}, {kNan, -1, 9})}, {{"min", 0.0}, {"max", 6.0}}, F({3}, {kNan, 0, 6})},
      {"clip_nan_limit", "clip", {F({2}, {-1, 9})}, {{"min", double{kNan}}, {"max", 6.0}}, F({2}, {-1, 6})},
      {"batch_norm",
       "batch_norm",
       {F({1, 2, 1}, {3, 5}), F({2}, {2, 1}), F({2}, {1, 0}), F({2}, {1, 1}), F({2}, {3, 15})},
       {{"epsilon", 1.0}},
       F({1, 2, 1}, {3, 1})},
      {"dequantize",
       "dequantize",
       {I({3}, {0, 10, 255}, DType::kUint8), F({}, {0.5f}), I({}, {10}, DType::kUint8)},
       {},
       F({3}, {-5, 0, 122.5f})},
      {"dequantize_int32",
       "dequantize",
       {I({2}, {16777217, -3}, DType::kInt32), F({2}, {1, 2}), I({}, {16777216}, DType::kInt32)},
       {},
       F({2}, {1, -33554440.0f})},
      {"quantize",
       "quantize",
       {F({4}, {-1, 0.25f, 0.75f, 1000}), F({}, {0.5f}), I({}, {1}, DType::kUint8)},
       {{"to", std::string("uint8")}, {"min", 0.0}, {"max", 255.0}},
       I({4}, {0, 1, 3, 255}, DType::kUint8)},
      {"matmul_bytes",
       "matmul",
       {I({1, 2}, {255, 3}, DType::kUint8), I({2, 1}, {-128, 5}, DType::kInt8)},
       {},
       I({1, 1}, {-32625}, DType::kInt32)},
      {"gemm_bytes",
       "gemm",
       {I({1, 2}, {-128, 3}, DType::kInt8), I({2, 1}, {-128, 5}, DType::kInt32), I({1}, {1}, DType::kInt32)},
       {},
       I({1, 1}, {16400}, DType::kInt32)},
      {"gemm", "gemm", {Counting({2, 2}), Counting({2, 2}), F({2}, {1, -1})}, {}, F({2, 2}, {8, 9, 16, 21})},
      {"gemm_all",
       "gemm",
       {Counting({2, 2}), Counting({2, 2}), F({}, {10})},
       {{"trans_a", int64_t{1}}, {"trans_b", int64_t{1}}, {"alpha", 2.0}, {"beta", 0.5}},
       F({2, 2}, {19, 35, 25, 49})},
      {"matmul_batch", "matmul", {Counting({2, 1, 2}), Counting({2, 1})}, {}, F({2, 1, 1}, {5, 11})},
      {"matmul_vector", "matmul", {Counting({2}), Counting({2, 3})}, {}, F({3}, {9, 12, 15})},
      {"matmul_dot", "matmul", {Counting({3}), Counting({3})}, {}, F({}, {14})},
      {"softmax", "softmax", {F({2, 2}, {0, std::log(3.0f), 1000, 1000})}, {}, F({2, 2}, {0.25f, 0.75f, 0.5f, 0.5f})},
      {"softmax_0",
       "softmax",
       {F({2, 2}, {0, 5, std::log(3.0f), 5})},
       {{"axis", int64_t{0}}},
       F({2, 2}, {0.25f, 0.5f, 0.75f, 0.5f})},
      {"log_softmax", "log_softmax", {F({2}, {1, 1})}, {}, F({2}, {std::log(0.5f), std::log(0.5f)})},
      {"reduce_mean",
       "reduce_mean",
       {Counting({2, 2, 2})},
       {{"axes", Ints{0, -1}}, {"keepdims", int64_t{0}}},
       F({2}, {3.5f, 5.5f})},
      {"reduce_sum", "reduce_sum", {Counting({2, 3})}, {}, F({1, 1}, {21})},
      {"reduce_max", "reduce_max", {F({2, 2}, {-1, -2, -4, -3})}, {{"axes", Ints{1}}}, F({2, 1}, {-1, -3})},
      {"reduce_min", "reduce_min", {Counting({2, 2})}, {{"axes", Ints{0}}, {"keepdims", int64_t{0}}}, F({2}, {1, 2})},
      {"reduce_prod", "reduce_prod", {Counting({4})}, {}, F({1}, {24})},
  };
}

std::vector<ValueCase> IndexCases() {
  auto b = [](std::vector<int64_t> shape, std::vector<int64_t> values) { return I(shape, values, DType::kBool); };
  return {
      {"pad_wrap",
       "pad",
       {Counting({3})},
       {{"pads", Ints{2, 4}}, {"mode", std::string("wrap")}},
       F({9}, {2, 3, 1, 2, 3, 1, 2, 3, 1})},
      {"equal", "equal", {I({3}, {1, 2, 3}), I({}, {2})}, {}, b({3}, {0, 1, 0})},
      {"less", "less", {F({3}, {1, 2, 3}), F({}, {2})}, {}, b({3}, {1, 0, 0})},
      {"less_equal", "less_equal", {F({3}, {1, 2, 3}), F({}, {2})}, {}, b({3}, {1, 1, 0})},
      {"and", "and", {b({4}, {0, 0, 1, 1}), b({4}, {0, 1, 0, 1})}, {}, b({4}, {0, 0, 0, 1})},
      {"or", "or", {b({4}, {0, 0, 1, 1}), b({4}, {0, 1, 0, 1})}, {}, b({4}, {0, 1, 1, 1})},
      {"xor", "xor", {b({4}, {0, 0, 1, 1}), b({4}, {0, 1, 0, 1})}, {}, b({4}, {0, 1, 1, 0})},
      {"not", "not", {b({2}, {0, 1})}, {}, b({2}, {1, 0})},
      {"mod", "mod", {I({4}, {7, -7, 7, -7}), I({4}, {3, 3, -3, -3})}, {}, I({4}, {1, 2, -2, -1})},
      {"fmod", "fmod", {I({4}, {7, -7, 7, -7}), I({4}, {3, 3, -3, -3})}, {}, I({4}, {1, -1, 1, -1})},
      {"gather_elements",
       "gather_elements",
       {Counting({2, 3}), I({2, 2}, {2, 0, -1, 1})},
       {{"axis", int64_t{1}}},
       F({2, 2}, {3, 1, 6, 5})},
      {"gather_nd", "gather_nd", {Counting({2, 2, 2}), I({2, 2}, {0, 1, -1, 0})}, {}, F({2, 2}, {3, 4, 5, 6})},
      {"gather_nd_batch",
       "gather_nd",
       {Counting({2, 3}), I({2, 1}, {2, 0})},
       {{"batch_dims", int64_t{1}}},
       F({2}, {3, 4})},
      {"scatter_elements",
       "scatter_elements",
       {Counting({2, 3}), I({1, 2}, {1, 1}), F({1, 2}, {10, 20})},
       {{"axis", int64_t{1}}},
       F({2, 3}, {1, 20, 3, 4, 5, 6})},
      {"scatter_elements_add",
       "scatter_elements",
       {Counting({3}), I({3}, {0, 0, -1}), F({3}, {10, 20, 5})},
       {{"reduction", std::string("add")}},
       F({3}, {31, 2, 8})},
      {"scatter_nd",
       "scatter_nd",
       {Counting({3, 2}), I({2, 1}, {2, 0}), F({2, 2}, {7, 8, 9, 10})},
       {},
       F({3, 2}, {9, 10, 3, 4, 7, 8})},
      {"scatter_nd_max",
       "scatter_nd",
       {Counting({2, 2}), I({1, 2}, {1, 0}), F({1}, {9})},
       {{"reduction", std::string("max")}},
       F({2, 2}, {1, 2, 9, 4})},
      {"cumulative_sum", "cumulative_sum", {Counting({4})}, {}, F({4}, {1, 3, 6, 10})},
      {"cumulative_sum_back",
       "cumulative_sum",
       {Counting({4})},
       {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}},
       F({4}, {9, 7, 4, 0})},
      {"arg_max", "arg_max", {F({2, 3}, {1, 5, 5, 7, 2, 7})}, {{"axis", int64_t{1}}}, I({2, 1}, {1, 0})},
      {"arg_max_last",
       "arg_max",
       {F({2, 3}, {1, 5, 5, 7, 2, 7})},
       {{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}},
       I({2, 1}, {2, 2})},
      {"arg_min", "arg_min", {F({3}, {2, -1, 3})}, {}, I({1}, {1})},
      // Values of ONNX Runtime 1.32: NaN counts where it is first (arg, reduce), is the largest (top_k), or spreads.
      {"arg_max_nan",
       "arg_max",
       {F({3, 3}, {kNan, 1, 2, 1, kNan, 2, 1, 2, kNan})},
       {{"axis", int64_t{1}}},
       I({3, 1}, {0, 2, 1})},
      {"arg_min_nan", "arg_min", {F({3}, {2, kNan, 1})}, {}, I({1}, {2})},
      {"arg_max_all_nan", "arg_max", {F({2}, {kNan, kNan})}, {{"select_last_index", int64_t{1}}}, I({1}, {0})},
      {"reduce_max_nan",
       "reduce_max",
       {F({3, 2}, {kNan, 1, 1, kNan, 2, 0})},
       {{"axes", Ints{0}}},
       F({1, 2}, {kNan, 1})},
      {"reduce_min_nan",
       "reduce_min",
       {F({3, 2}, {kNan, 1, 1, kNan, 2, 0})},
       {{"axes", Ints{0}}},
       F({1, 2}, {kNan, 0})},
      {"top_k_nan", "top_k_indices", {F({5}, {3, kNan, 1, kNan, 5})}, {{"k", int64_t{4}}}, I({4}, {1, 3, 4, 0})},
      {"top_k_smallest_nan",
       "top_k_indices",
       {F({5}, {3, kNan, 1, kNan, 5})},
       {{"k", int64_t{5}}, {"largest", int64_t{0}}},
       I({5}, {2, 0, 4, 1, 3})},
      {"top_k", "top_k_indices", {F({5}, {3, 9, 3, 1, 8})}, {{"k", int64_t{4}}}, I({4}, {1, 4, 0, 2})},
      {"top_k_smallest",
       "top_k_indices",
       {F({4}, {3, 9, 3, 1})},
       {{"k", int64_t{2}}, {"largest", int64_t{0}}},
       I({2}, {3, 0})},
  };
}

std::vector<ValueCase> WindowAndNormCases() {
  return {
      {"layer_norm",
       "layer_norm",
       {F({2, 2}, {1, 3, 5, 5})},
       {{"epsilon", 0.0625}},
       F({2, 2}, {-0.9701425f, 0.9701425f, 0, 0})},
      {"run_sums", "run_sums", {F({1, 4}, {1, 2, 3, 4})}, {{"run", int64_t{2}}}, F({2, 1, 2}, {3, 5, 7, 25})},
      {"normalize_by_sums",
       "normalize_by_sums",
       {F({1, 2}, {3, 1}), F({1, 1, 2}, {4, 10})},
       {{"count", int64_t{2}}, {"epsilon", 0.0}},
       F({1, 2}, {3, 1})},
      {"normalize_by_sums_shifts",
       "normalize_by_sums",
       {F({1, 2}, {5, 1}), F({1, 1, 2}, {6, 26})},
       {{"count", int64_t{2}}, {"epsilon", 0.0}, {"shifts", int64_t{1}}},
       F({1, 2}, {1, -1})},
      {"normalize_by_sums_rms",
       "normalize_by_sums",
       {F({1, 2}, {3, 4}), F({1, 1, 2}, {7, 25})},
       {{"count", int64_t{2}}, {"epsilon", 0.0}, {"centred", int64_t{0}}},
       F({1, 2}, {0.8485281f, 1.1313708f})},
      {"rms_norm", "rms_norm", {F({1, 2}, {3, 4})}, {{"epsilon", 0.0}}, F({1, 2}, {0.8485281f, 1.1313708f})},
      {"conv_transpose",
       "conv_transpose",
       {F({1, 1, 2}, {1, 2}), F({1, 1, 3}, {1, 10, 100})},
       {{"strides", Ints{2}}},
       F({1, 1, 5}, {1, 10, 102, 20, 200})},
      {"conv_transpose_pads",
       "conv_transpose",
       {F({1, 1, 2}, {1, 2}), F({1, 1, 3}, {1, 10, 100})},
       {{"strides", Ints{2}}, {"pads", Ints{1, 1}}, {"output_padding", Ints{1}}},
       F({1, 1, 4}, {10, 102, 20, 200})},
      {"conv_transpose_groups",
       "conv_transpose",
       {F({1, 2, 1}, {1, 2}), F({2, 1, 2}, {1, 10, 100, 1000})},
       {{"group", int64_t{2}}},
       F({1, 2, 2}, {1, 10, 200, 2000})},
      {"conv3d",
       "conv3d",
       {Counting({1, 1, 2, 1, 2}), F({1, 1, 2, 1, 1}, {1, 10}), F({1}, {5})},
       {},
       F({1, 1, 1, 1, 2}, {36, 47})},
      {"max_pool3d",
       "max_pool3d",
       {Counting({1, 1, 2, 2, 2})},
       {{"kernel", Ints{2, 1, 2}}},
       F({1, 1, 1, 2, 1}, {6, 8})},
      {"avg_pool3d",
       "avg_pool3d",
       {Counting({1, 1, 2, 2, 2})},
       {{"kernel", Ints{2, 1, 2}}},
       F({1, 1, 1, 2, 1}, {3.5f, 5.5f})},
  };
}

std::vector<ValueCase> BitAndNarrowCases() {
  auto i32 = [](std::vector<int64_t> values) {
    return I({static_cast<int64_t>(values.size())}, values, DType::kInt32);
  };
  auto to = [](const char* type) { return Attributes{{"to", std::string(type)}}; };
  return {
      {"bitwise_and", "bitwise_and", {i32({12, -1, -8}), i32({10, 5, -4})}, {}, i32({8, 5, -8})},
      {"bitwise_or", "bitwise_or", {i32({12, -8}), i32({10, 3})}, {}, i32({14, -5})},
      {"bitwise_xor", "bitwise_xor", {i32({12, -1}), i32({10, 5})}, {}, i32({6, -6})},
      {"bitwise_and_bytes",
       "bitwise_and",
       {I({2}, {255, 129}, DType::kUint8), I({2}, {128, 131}, DType::kUint8)},
       {},
       I({2}, {128, 129}, DType::kUint8)},
      {"shift_left", "shift_left", {i32({3, 1}), i32({2, 40})}, {}, i32({12, 0})},
      {"shift_right", "shift_right", {i32({13, -8, -1}), i32({2, 1, 40})}, {}, i32({3, -4, -1})},
      // Ties to even: 17 lies between 16 and 18 in steps of 2. The smallest number is 2^-9.
      {"e4m3",
       "narrow",
       {F({5}, {17, 19, 500, -0.003f, 1})},
       to("float8e4m3fn"),
       F({5}, {16, 20, 448, -0.00390625f, 1})},
      {"e5m2", "narrow", {F({3}, {9, 1e6f, 1e-9f})}, to("float8e5m2"), F({3}, {8, 57344, 0})},
      {"e2m1", "narrow", {F({4}, {2.4f, 5, -0.2f, 100})}, to("float4e2m1"), F({4}, {2, 4, 0, 6})},
      {"bfloat16", "narrow", {F({3}, {257, 259, -1})}, to("bfloat16"), F({3}, {256, 260, -1})},
      {"int4", "narrow", {I({3}, {9, -9, 7}, DType::kInt8)}, to("int4"), I({3}, {-7, 7, 7}, DType::kInt8)},
      {"uint16", "narrow", {i32({-1, 65537})}, to("uint16"), i32({65535, 1})},
  };
}

std::vector<ValueCase> SamplingCases() {
  return {
      {"cumulative_product", "cumulative_product", {Counting({4})}, {}, F({4}, {1, 2, 6, 24})},
      {"sum_pool", "sum_pool", {Counting({1, 1, 2, 2})}, {{"kernel", Ints{1, 2}}}, F({1, 1, 2, 1}, {3, 7})},
      {"max_pool_indices",
       "max_pool_indices",
       {Counting({1, 1, 2, 2})},
       {{"kernel", Ints{2, 1}}},
       I({1, 1, 1, 2}, {2, 3})},
      {"max_pool_indices_columns",
       "max_pool_indices",
       {Counting({1, 1, 2, 2})},
       {{"kernel", Ints{2, 1}}, {"column_major", int64_t{1}}},
       I({1, 1, 1, 2}, {1, 3})},
      {"fold", "fold", {Counting({1, 2, 3})}, {{"image", Ints{4}}, {"kernel", Ints{2}}}, F({1, 1, 4}, {1, 6, 8, 6})},
      // 0.5 is three quarters of the way from -1 to 1, so between points 1 and 2 of three.
      {"grid_sample",
       "grid_sample",
       {Counting({1, 1, 1, 3}), F({1, 1, 2, 2}, {0.5f, 0, -1, 0})},
       {{"align_corners", int64_t{1}}},
       F({1, 1, 1, 2}, {2.5f, 1})},
      {"grid_sample_border",
       "grid_sample",
       {Counting({1, 1, 1, 3}), F({1, 1, 1, 2}, {3, 0})},
       {{"mode", std::string("nearest")}, {"padding", std::string("border")}},
       F({1, 1, 1, 1}, {3})},
      // 0.9 in front of the first point: the last of four taps is point 2, of weight -0.00675, the others are point 1.
      {"grid_sample_cubic_border",
       "grid_sample",
       {Counting({1, 1, 1, 4}), F({1, 1, 1, 2}, {-1.2f, 0})},
       {{"mode", std::string("cubic")}, {"padding", std::string("border")}},
       F({1, 1, 1, 1}, {0.99325f})},
      // All points moved half a point to the right; behind the last one is 0.
      {"deform_conv",
       "deform_conv",
       {Counting({1, 1, 2, 2}), F({1, 1, 1, 1}, {2}), F({1, 2, 2, 2}, {0, 0, 0, 0, 0.5f, 0.5f, 0.5f, 0.5f})},
       {},
       F({1, 1, 2, 2}, {3, 2, 7, 4})},
      {"roi_align",
       "roi_align",
       {Counting({1, 1, 2, 2}), F({1, 4}, {0, 0, 1, 1}), I({1}, {0})},
       {{"size", Ints{1, 1}}, {"samples", int64_t{1}}, {"half_pixel", int64_t{0}}},
       F({1, 1, 1, 1}, {2.5f})},
      // Of 4 points of a side 4 samples, at 0.5, 1.5, 2.5 and the last point: 1.875 in the mean.
      {"roi_align_of_as_many_samples_as_points",
       "roi_align",
       {Counting({1, 1, 4, 4}), F({1, 4}, {0, 0, 4, 4}), I({1}, {0})},
       {{"size", Ints{1, 1}}, {"samples", int64_t{0}}, {"half_pixel", int64_t{0}}},
       F({1, 1, 1, 1}, {10.375f})},
      // Rows at -1.5 (outside: 0) and -0.5 (the border), then 0.5 and 1.5; columns at all four of these. The second
      // region is of the second image, the third of no extent.
      {"roi_align_of_samples_outside",
       "roi_align",
       {Counting({2, 1, 4, 4}), F({3, 4}, {-1.5f, -1.5f, 2.5f, 2.5f, 0.5f, 0.5f, 0.75f, 0.75f, 1, 1, 1, 3}),
        I({3}, {0, 1, 0})},
       {{"size", Ints{2, 1}}, {"samples", int64_t{0}}},
       F({3, 1, 2, 1}, {0.625f, 4.25f, 17.375f, 17.875f, 0, 0})},
      // The largest of all points times their shares. Samples at 0.25 and 1.25 of each axis: shares of 0.75 and 0.25.
      {"roi_align_largest",
       "roi_align",
       {Counting({1, 1, 4, 4}), F({1, 4}, {0.75f, 0.75f, 2.75f, 2.75f}), I({1}, {0})},
       {{"size", Ints{2, 1}}, {"samples", int64_t{0}}, {"mode", std::string("max")}},
       F({1, 1, 2, 1}, {3.9375f, 6.1875f})},
      // Of negative points the smallest share. Bins of half a point; then with samples outside, which are 0; of no
      // extent; and with a sample at a point, whose share of the next one is 0.
      {"roi_align_largest_of_negative_points",
       "roi_align",
       {F({1, 1, 4, 4}, {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14, -15, -16}),
        F({5, 4}, {0.75f, 0.75f, 1.25f, 1.25f, 0.75f, 0.75f, 2.75f, 2.75f, -1.5f, -1.5f,
                   2.5f,  2.5f,  1,     1,     1,     3,     1,     1,     4.5f,  4}),
        I({5}, {0, 0, 0, 0, 0})},
       {{"size", Ints{2, 1}}, {"samples", int64_t{0}}, {"mode", std::string("max")}},
       F({5, 1, 2, 1}, {-0.3125f, -0.1875f, -0.0625f, -0.3125f, 0, 0, 0, 0, 0, 0})},
  };
}

std::vector<ValueCase> AllCases() {
  std::vector<ValueCase> all = DataMovementCases();
  for (ValueCase& c : BitAndNarrowCases()) all.push_back(std::move(c));
  for (ValueCase& c : SamplingCases()) all.push_back(std::move(c));
  for (ValueCase& c : IndexCases()) all.push_back(std::move(c));
  for (ValueCase& c : WindowAndNormCases()) all.push_back(std::move(c));
  for (ValueCase& c : ArithmeticCases()) all.push_back(std::move(c));
  return all;
}

TEST(Operators, GiveTheValuesWorkedOutByHand) {
  for (const ValueCase& c : AllCases()) {
    SCOPED_TRACE(c.label);
    auto got = EvaluateOperator(c.op, c.inputs, c.attributes);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNear(*got, c.want, 1e-6);
  }
}

TEST(Operators, DivisionsOfIntegersByZeroAreZero) {
  for (DType dtype : {DType::kInt32, DType::kInt64, DType::kInt8, DType::kUint8}) {
    Array x(dtype, {4}), y(dtype, {4});
    for (int i = 0; i < 4; ++i) {
      x.set_int(i, i == 1 ? 0 : 7);
      y.set_int(i, i == 3 ? 2 : 0);
    }
    for (const auto& [op, last] : std::map<std::string, int>{{"div", 3}, {"mod", 1}, {"fmod", 1}}) {
      SCOPED_TRACE(op + " " + NameOf(dtype));
      const auto got = EvaluateOperator(op, {x, y}, {});
      ASSERT_TRUE(got.ok()) << got.status();
      for (int i = 0; i < 4; ++i) EXPECT_EQ(got->int_at(i), i == 3 ? last : 0) << i;
    }
  }
}

TEST(Operators, CalculateInFloat32ForFloat16) {
  // 2048 + 1 + 1 - 2048 in float16 steps would be 0: accumulating in float32 gives 2.
  Array x(DType::kFloat16, {1, 4});
  const double values[] = {2048, 1, 1, -2048};
  for (int i = 0; i < 4; ++i) x.set(i, values[i]);
  auto sum = EvaluateOperator("reduce_sum", {x}, {});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->dtype, DType::kFloat16);
  EXPECT_EQ(sum->at(0), 2);
}

struct ConvCase {
  const char* label;
  int64_t h, w, in, out, kernel, group;
  Ints strides, pads, dilations;
};

const ConvCase kConvCases[] = {
    {"plain", 4, 5, 3, 2, 3, 1, {1, 1}, {0, 0, 0, 0}, {1, 1}},
    {"same", 4, 4, 2, 3, 3, 1, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {"strided", 7, 6, 2, 2, 3, 1, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {"asymmetric", 5, 4, 2, 2, 3, 1, {2, 1}, {0, 2, 1, 0}, {1, 1}},
    {"dilated", 7, 7, 1, 2, 3, 1, {1, 1}, {2, 2, 2, 2}, {2, 2}},
    {"groups", 4, 4, 4, 6, 3, 2, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {"depthwise", 4, 4, 3, 3, 3, 3, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {"multiplier", 4, 4, 2, 6, 3, 2, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {"pointwise", 3, 3, 3, 4, 1, 1, {2, 2}, {0, 0, 0, 0}, {1, 1}},
};

// The convolution by seven loops, NCHW and OIHW.
Array ReferenceConv(const ConvCase& c, const Array& x, const Array& w, const Array& bias) {
  auto extent = [&](int64_t size, int d) {
    return (size + c.pads[d] + c.pads[d + 2] - c.dilations[d] * (c.kernel - 1) - 1) / c.strides[d] + 1;
  };
  int64_t oh = extent(c.h, 0), ow = extent(c.w, 1), per_group = c.in / c.group;
  Array y(DType::kFloat32, {1, c.out, oh, ow});
  for (int64_t o = 0; o < c.out; ++o)
    for (int64_t p = 0; p < oh; ++p)
      for (int64_t q = 0; q < ow; ++q) {
        double sum = bias.at(o);
        for (int64_t i = 0; i < per_group; ++i)
          for (int64_t ky = 0; ky < c.kernel; ++ky)
            for (int64_t kx = 0; kx < c.kernel; ++kx) {
              int64_t row = p * c.strides[0] + ky * c.dilations[0] - c.pads[0];
              int64_t column = q * c.strides[1] + kx * c.dilations[1] - c.pads[1];
              if (row < 0 || row >= c.h || column < 0 || column >= c.w) continue;
              int64_t channel = o / (c.out / c.group) * per_group + i;
              sum += x.at((channel * c.h + row) * c.w + column) *
                     w.at(((o * per_group + i) * c.kernel + ky) * c.kernel + kx);
            }
        y.set((o * oh + p) * ow + q, sum);
      }
  return y;
}

Array Permuted(const Array& x, const Ints& perm) {
  return EvaluateOperator("transpose", {x}, {{"perm", perm}}).value();
}

TEST(Operators, Conv2dIsTheSumOverItsWindowInBothLayouts) {
  for (const ConvCase& c : kConvCases) {
    SCOPED_TRACE(c.label);
    Array x = RandomArray({DType::kFloat32, {1, c.in, c.h, c.w}}, 1);
    Array w = RandomArray({DType::kFloat32, {c.out, c.in / c.group, c.kernel, c.kernel}}, 2);
    Array bias = RandomArray({DType::kFloat32, {c.out}}, 3);
    Array want = ReferenceConv(c, x, w, bias);
    Attributes attributes{{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"group", c.group}};
    auto nchw = EvaluateOperator("conv2d", {x, w, bias}, attributes);
    ASSERT_TRUE(nchw.ok()) << nchw.status();
    ExpectNear(*nchw, want, 1e-5);
    attributes.Set("layout", std::string("NHWC"));
    auto nhwc = EvaluateOperator("conv2d", {Permuted(x, {0, 2, 3, 1}), Permuted(w, {2, 3, 1, 0}), bias}, attributes);
    ASSERT_TRUE(nhwc.ok()) << nhwc.status();
    ExpectNear(Permuted(*nhwc, {0, 3, 1, 2}), want, 1e-5);
  }
}

struct PoolCase {
  const char* label;
  int64_t size, kernel, stride;
  Ints pads;
  int64_t dilation, ceil_mode, include_pad, output;
};

const PoolCase kPoolCases[] = {
    {"plain", 6, 2, 2, {0, 0, 0, 0}, 1, 0, 0, 3},
    {"padded", 7, 3, 2, {1, 1, 1, 1}, 1, 0, 0, 4},
    {"include_pad", 7, 3, 2, {1, 1, 1, 1}, 1, 0, 1, 4},
    {"ceil", 6, 3, 2, {0, 0, 0, 0}, 1, 1, 0, 3},
    {"ceil_include_pad", 6, 3, 2, {1, 1, 1, 1}, 1, 1, 1, 4},
    {"no_window_in_padding", 3, 1, 2, {0, 0, 1, 1}, 1, 1, 0, 2},
    {"asymmetric", 5, 3, 2, {0, 1, 2, 1}, 1, 0, 0, 3},
    {"dilated", 7, 2, 1, {1, 1, 1, 1}, 3, 0, 0, 6},
};

// One channel, max and average at once.
void ReferencePool(const PoolCase& c, const Array& x, Array& top, Array& mean) {
  for (int64_t p = 0; p < c.output; ++p)
    for (int64_t q = 0; q < c.output; ++q) {
      double best = -std::numeric_limits<double>::infinity(), sum = 0;
      int count = 0;
      for (int64_t ky = 0; ky < c.kernel; ++ky)
        for (int64_t kx = 0; kx < c.kernel; ++kx) {
          int64_t row = p * c.stride + ky * c.dilation - c.pads[0], column = q * c.stride + kx * c.dilation - c.pads[1];
          bool padding = row < c.size + c.pads[2] && column < c.size + c.pads[3];
          bool inside = row >= 0 && row < c.size && column >= 0 && column < c.size;
          count += c.include_pad ? padding : inside;
          if (!inside) continue;
          best = std::max(best, x.at(row * c.size + column));
          sum += x.at(row * c.size + column);
        }
      top.set(p * c.output + q, best);
      mean.set(p * c.output + q, sum / count);
    }
}

TEST(Operators, PoolsCoverTheirWindows) {
  for (const PoolCase& c : kPoolCases) {
    SCOPED_TRACE(c.label);
    Array x = RandomArray({DType::kFloat32, {1, 1, c.size, c.size}}, 4);
    Array top(DType::kFloat32, {1, 1, c.output, c.output}), mean = top;
    ReferencePool(c, x, top, mean);
    Attributes attributes{{"kernel", Ints{c.kernel, c.kernel}},
                          {"strides", Ints{c.stride, c.stride}},
                          {"pads", c.pads},
                          {"dilations", Ints{c.dilation, c.dilation}},
                          {"ceil_mode", c.ceil_mode},
                          {"count_include_pad", c.include_pad}};
    auto max_pool = EvaluateOperator("max_pool", {x}, attributes);
    ASSERT_TRUE(max_pool.ok()) << max_pool.status();
    ExpectNear(*max_pool, top, 1e-6);
    auto avg_pool = EvaluateOperator("avg_pool", {x}, attributes);
    ASSERT_TRUE(avg_pool.ok()) << avg_pool.status();
    ExpectNear(*avg_pool, mean, 1e-6);
  }
}

struct ErrorCase {
  std::string op;
  std::vector<Array> inputs;
  Attributes attributes;
  std::string message;
};

TEST(Operators, SayWhatIsWrongWithTheirInputs) {
  const ErrorCase cases[] = {
      {"no_such", {Counting({1})}, {}, "node 'no_such' (no_such): there is no such operator"},
      {"add", {Counting({2})}, {}, "node 'add' (add): takes 2 inputs, not 1"},
      {"conv2d", {Counting({1})}, {}, "node 'conv2d' (conv2d): takes 2 to 3 inputs, not 1"},
      {"add", {Counting({2}), Counting({3})}, {}, "node 'add' (add): shapes 2 and 3 do not broadcast to each other"},
      {"add",
       {Counting({2}), Counting({2}, DType::kInt64)},
       {},
       "node 'add' (add): inputs must have one type, not float32 and int64"},
      {"sigmoid",
       {Counting({2}, DType::kInt64)},
       {},
       "node 'sigmoid' (sigmoid): works on floating point numbers, not on int64"},
      {"softmax",
       {Counting({2})},
       {{"axis", int64_t{1}}},
       "node 'softmax' (softmax): axis 1 is outside of a tensor with 1 dimensions"},
      {"gemm", {Counting({2, 3}), Counting({2, 3})}, {}, "node 'gemm' (gemm): matrices 2x3 and 2x3 do not multiply"},
      {"conv2d",
       {Counting({1, 3, 4, 4}), Counting({2, 2, 3, 3})},
       {},
       "node 'conv2d' (conv2d): weights for 2 to 2 channels in 1 groups do not fit an image of 3 channels"},
      {"max_pool",
       {Counting({1, 1, 2, 2})},
       {{"kernel", Ints{3, 3}}},
       "node 'max_pool' (max_pool): a kernel of 3 (dilation 1) does not fit an image of 2 with padding 0 and 0"},
      {"reshape", {Counting({4})}, {{"shape", Ints{3, -1}}}, "node 'reshape' (reshape): cannot reshape 4 to 3x-1"},
      {"slice",
       {Counting({4})},
       {{"starts", Ints{2}}, {"ends", Ints{2}}},
       "node 'slice' (slice): the result would be empty (float32 0)"},
      {"cast", {Counting({1})}, {{"to", std::string("float8")}}, "node 'cast' (cast): unknown type 'float8'"},
      {"matmul",
       {I({1, 2}, {1, 2}, DType::kUint8), F({2, 1}, {1, 2})},
       {},
       "node 'matmul' (matmul): inputs must have one type, not uint8 and float32"},
      {"matmul",
       {I({1, 1}, {1}, DType::kBool), I({1, 1}, {1}, DType::kBool)},
       {},
       "node 'matmul' (matmul): works on floating point numbers, not on bool"},
      {"matmul",
       {I({1, 1}, {1}), I({1, 1}, {1}, DType::kInt8)},
       {},
       "node 'matmul' (matmul): inputs must have one type, not int64 and int8"},
      {"gemm",
       {I({1, 1}, {1}, DType::kInt8), I({1, 1}, {1}, DType::kInt8)},
       {{"alpha", 0.5}},
       "node 'gemm' (gemm): works on floating point numbers, not on int8"},
      {"conv_transpose",
       {F({1, 1, 1}, {1}), I({1, 1, 1}, {1}, DType::kInt8)},
       {},
       "node 'conv_transpose' (conv_transpose): inputs must have one type, not float32 and int8"},
      {"quantize",
       {F({1}, {1}), F({2}, {1, 1})},
       {},
       "node 'quantize' (quantize): a parameter of float32 2 does not fit float32 1"},
      {"dequantize",
       {I({1}, {1}, DType::kInt8), F({}, {1}), I({}, {1}, DType::kUint8)},
       {},
       "node 'dequantize' (dequantize): the zero point must be int8, not uint8"},
      {"roi_align",
       {Counting({1, 1, 2, 2}), F({1, 4}, {0, 0, 1, 1}), I({1}, {0})},
       {{"size", Ints{1, 1}}, {"samples", int64_t{-1}}},
       "node 'roi_align' (roi_align): regions of float32 1x4 of batch elements of int64 1 do not fit float32 1x1x2x2, "
       "or "
       "a size or samples is not positive"},
  };
  for (const ErrorCase& c : cases) {
    auto got = EvaluateOperator(c.op, c.inputs, c.attributes);
    ASSERT_FALSE(got.ok()) << c.op;
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(got.status().message()), c.message);
  }
}

// 256 channels are read at each place: one that is computed there makes kernels that no compiler takes.
TEST(Operators, RegionsAreReadAtPlacesThatAreStages) {
  for (const char* mode : {"avg", "max"}) {
    OperatorArgs args;
    args.inputs = {{DType::kFloat32, {1, 256, 16, 16}}, {DType::kFloat32, {40, 4}}, {DType::kInt64, {40}}};
    const Attributes attributes{{"size", Ints{7, 7}}, {"samples", int64_t{2}}, {"mode", std::string(mode)}};
    args.attributes = &attributes;
    const Operator& op = *FindOperator("roi_align");
    args.output = op.infer(args).value();
    DagBuilder b;
    std::vector<int> inputs;
    for (const TensorType& type : args.inputs) inputs.push_back(b.Placeholder("x", type.shape, type.dtype));
    const ComputeDag dag = b.Build({op.emit(b, args, inputs)}).value();
    for (const Stage& stage : dag.stages())
      if (stage.reduces()) {
        EXPECT_LT(TreeSizeOf(stage.body).nodes, 200) << dag.ToString();
      }
  }
}

TEST(Operators, ManyPartsOfAConcatenationAreNoDeepExpression) {
  for (const auto& [parts, depth] : {std::pair(32, 34), {33, 10}, {1000, 16}}) {
    GraphBuilder b;
    std::vector<int> all;
    for (int p = 0; p < parts; ++p) all.push_back(b.In({1 + p % 3}));
    const Network n = b.Out({b.Concat(all, 0)});
    const Partition partition = PartitionNetwork(n).value();
    EXPECT_LE(TreeSizeOf(partition.tasks[0].dag.stages().back().body).depth, depth) << parts;
    const std::vector<Array> inputs = RandomInputs(n, 1);
    const Array got = EvaluatePartition(n, partition, inputs).value()[0];
    int64_t at = 0;
    for (const Array& part : inputs)
      for (int64_t i = 0; i < part.elements(); ++i) ASSERT_EQ(got.at(at++), part.at(i)) << parts;
  }
}

TEST(Operators, EachNameStandsOnceInTheTable) {
  std::vector<std::string> names = OperatorNames();
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(FindOperator(names[i])->name, names[i]);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(names[i], names[j]);
  }
}

}  // namespace
}  // namespace diapason
