// Every operator by its fallback schedule, compiled and run on a device, against the interpreter.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/graph/operator.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/executable.h"
#include "compiler/tensor/accesses.h"
#include "compiler/tensor/interpret.h"
#include "gtest/gtest.h"
#include "scheduler/space.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

// A tensor of numbers spread over [low, high]; every third is NaN where `nan` is.
struct OperandSpec {
  Shape shape;
  DType dtype = DType::kFloat32;
  double low = -2, high = 2;
  bool nan = false;
};

struct OperatorCase {
  std::string op;
  std::vector<OperandSpec> inputs;
  Attributes attributes = {};
  double tolerance = 2e-5;
};

// Numbers in no order, each of its own: results that depend on an order have one.
Array Spread(const OperandSpec& spec, int64_t seed) {
  Array array(spec.dtype, spec.shape);
  const int64_t n = array.elements();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t k = (i * 7919 + seed * 104729 + 13) % 9973;
    if (IsFloat(spec.dtype)) {
      const double number = spec.low + (spec.high - spec.low) * static_cast<double>(k) / 9973;
      array.set(i, spec.nan && k % 3 == 0 ? std::numeric_limits<double>::quiet_NaN() : number);
    } else {
      const int64_t low = static_cast<int64_t>(spec.low), count = static_cast<int64_t>(spec.high) - low + 1;
      array.set_int(i, low + k % count);
    }
  }
  return array;
}

OperandSpec F(Shape shape, double low = -2, double high = 2) { return {std::move(shape), DType::kFloat32, low, high}; }
OperandSpec WithNan(Shape shape) { return {std::move(shape), DType::kFloat32, -2, 2, true}; }
OperandSpec I(Shape shape, double low, double high, DType dtype = DType::kInt64) {
  return {std::move(shape), dtype, low, high};
}

constexpr DType kI32 = DType::kInt32, kU8 = DType::kUint8, kBool = DType::kBool;

std::vector<OperatorCase> UnaryCases() {
  std::vector<OperatorCase> cases;
  for (const char* op : {"relu",   "sigmoid",  "tanh",   "exp",        "erf",  "abs",          "neg",
                         "floor",  "ceil",     "round",  "leaky_relu", "elu",  "hard_sigmoid", "hard_swish",
                         "gelu",   "softplus", "sin",    "cos",        "atan", "sinh",         "cosh",
                         "asinh",  "sign",     "is_nan", "is_inf",     "celu", "selu",         "thresholded_relu",
                         "shrink", "softsign", "swish",  "gelu_tanh",  "mish"})
    cases.push_back({op, {F({37})}});
  for (const char* op : {"log", "sqrt", "rsqrt", "reciprocal"}) cases.push_back({op, {F({37}, 0.1, 3)}});
  for (const char* op : {"asin", "acos", "atanh", "tan"}) cases.push_back({op, {F({37}, -0.9, 0.9)}});
  cases.push_back({"acosh", {F({37}, 1.1, 3)}});
  cases.push_back({"clip", {F({37})}, {{"min", -1.0}, {"max", 0.5}}});
  cases.push_back({"not", {I({37}, 0, 1, kBool)}});
  cases.push_back({"bitwise_not", {I({37}, -100, 100, kI32)}});
  cases.push_back({"cast", {F({37})}, {{"to", std::string("int32")}}});
  cases.push_back({"narrow", {F({37}, -500, 500)}, {{"to", std::string("float8e4m3fn")}}});
  cases.push_back({"narrow", {F({37}, -0.01, 0.01)}, {{"to", std::string("float8e5m2")}}});
  cases.push_back({"narrow", {F({37})}, {{"to", std::string("bfloat16")}}, 0});
  cases.push_back({"narrow", {I({37}, -100000, 100000, kI32)}, {{"to", std::string("int16")}}});
  return cases;
}

std::vector<OperatorCase> BinaryCases() {
  std::vector<OperatorCase> cases;
  for (const char* op : {"add", "sub", "mul", "maximum", "minimum", "less", "less_equal", "equal"})
    cases.push_back({op, {F({3, 5}), F({5})}});
  for (const char* op : {"div", "mod", "fmod"}) cases.push_back({op, {F({3, 5}), F({5}, 0.5, 2)}});
  for (const char* op : {"div", "mod", "fmod"}) cases.push_back({op, {I({3, 5}, -20, 20), I({5}, 1, 7)}});
  cases.push_back({"pow", {F({3, 5}, 0.1, 2), F({5})}});
  for (const char* op : {"and", "or", "xor"}) cases.push_back({op, {I({3, 5}, 0, 1, kBool), I({5}, 0, 1, kBool)}});
  for (const char* op : {"bitwise_and", "bitwise_or", "bitwise_xor"}) {
    cases.push_back({op, {I({3, 5}, -100, 100, kI32), I({5}, -100, 100, kI32)}});
    cases.push_back({op, {I({3, 5}, 0, 255, kU8), I({5}, 0, 255, kU8)}});
  }
  for (const char* op : {"shift_left", "shift_right"})
    cases.push_back({op, {I({3, 5}, 0, 255, kU8), I({5}, 0, 9, kU8)}});
  cases.push_back({"where", {I({3, 5}, 0, 1, kBool), F({5}), F({3, 1})}});
  return cases;
}

// Where targets' own minimum and maximum differ.
std::vector<OperatorCase> NanCases() {
  std::vector<OperatorCase> cases;
  for (const char* op : {"relu", "sign", "abs", "hard_sigmoid", "softplus", "leaky_relu", "elu"})
    cases.push_back({op, {WithNan({37})}});
  cases.push_back({"clip", {WithNan({37})}, {{"min", -1.0}, {"max", 0.5}}});
  for (const char* op : {"maximum", "minimum"}) cases.push_back({op, {WithNan({4, 37}), WithNan({37})}});
  for (const char* op : {"reduce_max", "reduce_min", "arg_max", "arg_min"})
    for (const int64_t axis : {0, 1})
      cases.push_back({op, {WithNan({9, 40})}, {{"axes", Shape{axis}}, {"axis", axis}}});
  for (const int64_t largest : {0, 1})
    cases.push_back(
        {"top_k_indices", {WithNan({3, 9})}, {{"axis", int64_t{1}}, {"k", int64_t{9}}, {"largest", largest}}});
  return cases;
}

std::vector<OperatorCase> MovementCases() {
  return {{"concat", {F({2, 3}), F({2, 4})}, {{"axis", int64_t{1}}}},
          {"transpose", {F({2, 3, 4})}, {{"perm", Shape{2, 0, 1}}}},
          {"pad", {F({3, 4})}, {{"pads", Shape{1, 2, 0, 1}}, {"value", 0.5}}},
          {"pad", {F({5})}, {{"pads", Shape{2, 3}}, {"mode", std::string("reflect")}}},
          {"pad", {F({5})}, {{"pads", Shape{2, 3}}, {"mode", std::string("edge")}}},
          {"pad", {F({5})}, {{"pads", Shape{2, 3}}, {"mode", std::string("wrap")}}},
          {"reshape", {F({2, 6})}, {{"shape", Shape{3, 4}}}},
          {"flatten", {F({2, 3, 2})}},
          {"squeeze", {F({1, 5})}, {{"axes", Shape{0}}}},
          {"unsqueeze", {F({5})}, {{"axes", Shape{0}}}},
          {"identity", {F({5})}},
          {"gather", {F({4, 3}), I({5}, -4, 3)}},
          {"gather_elements", {F({4, 3}), I({2, 3}, -4, 3)}},
          {"gather_nd", {F({4, 3, 2}), I({5, 2}, -3, 2)}},
          {"slice", {F({7})}, {{"starts", Shape{6}}, {"ends", Shape{-1000}}, {"steps", Shape{-2}}}},
          {"expand", {F({3, 1})}, {{"shape", Shape{2, 3, 4}}}}};
}

std::vector<OperatorCase> ReductionCases() {
  std::vector<OperatorCase> cases;
  for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"})
    cases.push_back({op, {F({3, 5, 4})}, {{"axes", Shape{1}}}});
  for (const char* op : {"cumulative_sum", "cumulative_product"})
    cases.push_back({op, {F({3, 6})}, {{"axis", int64_t{1}}, {"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}});
  for (const char* op : {"arg_max", "arg_min"}) cases.push_back({op, {F({3, 6})}, {{"axis", int64_t{1}}}});
  cases.push_back({"top_k_indices", {F({3, 6})}, {{"axis", int64_t{1}}, {"k", int64_t{3}}}});
  for (const char* op : {"softmax", "log_softmax", "layer_norm", "rms_norm"}) cases.push_back({op, {F({3, 9})}});
  cases.push_back({"run_sums", {F({3, 12})}, {{"run", int64_t{4}}}});
  for (int64_t shifts : {0, 1})
    cases.push_back({"normalize_by_sums",
                     {F({3, 8}), F({2, 3, 2}, 1, 2)},
                     {{"count", int64_t{8}}, {"centred", shifts}, {"shifts", shifts}}});
  cases.push_back({"batch_norm", {F({2, 3, 4}), F({3}), F({3}), F({3}), F({3}, 0.5, 2)}});
  cases.push_back({"scatter_elements", {F({5, 3}), I({2, 3}, 0, 4), F({2, 3})}, {{"reduction", std::string("add")}}});
  // Fewer columns of updates than the result has.
  for (const char* reduction : {"none", "add", "min"})
    cases.push_back(
        {"scatter_elements", {F({5, 4}), I({2, 3}, 0, 4), F({2, 3})}, {{"reduction", std::string(reduction)}}});
  cases.push_back({"scatter_nd", {F({5, 3}), I({2, 1}, 0, 4), F({2, 3})}});
  return cases;
}

std::vector<OperatorCase> WindowCases() {
  std::vector<OperatorCase> cases;
  const Attributes image{{"kernel", Shape{3, 2}}, {"strides", Shape{2, 1}}, {"pads", Shape{1, 1, 1, 0}}};
  const Attributes volume{{"kernel", Shape{2, 2, 2}}, {"strides", Shape{2, 1, 2}}, {"pads", Shape{1, 0, 0, 0, 1, 1}}};
  for (const char* op : {"max_pool", "avg_pool", "sum_pool", "max_pool_indices"})
    cases.push_back({op, {F({1, 2, 6, 5})}, image});
  for (const char* op : {"max_pool3d", "avg_pool3d", "sum_pool3d", "max_pool3d_indices"})
    cases.push_back({op, {F({1, 2, 4, 3, 4})}, volume});
  cases.push_back(
      {"conv2d", {F({1, 4, 6, 6}), F({4, 2, 3, 3}), F({4})}, {{"pads", Shape{1, 1, 1, 1}}, {"group", int64_t{2}}}});
  cases.push_back({"conv3d", {F({1, 2, 3, 4, 4}), F({3, 2, 2, 2, 2}), F({3})}, {{"strides", Shape{1, 2, 1}}}});
  cases.push_back(
      {"conv_transpose", {F({1, 2, 4, 4}), F({2, 3, 3, 3})}, {{"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}}});
  cases.push_back({"gemm", {F({4, 5}), F({5, 3}), F({3})}, {{"alpha", 0.5}}});
  cases.push_back({"matmul", {F({2, 3, 5}), F({5, 4})}});
  cases.push_back({"matmul", {I({2, 3, 40}, -100000, 100000), I({40, 17}, -100000, 100000)}, {}, 0});
  cases.push_back({"fold", {F({1, 8, 12})}, {{"image", Shape{4, 5}}, {"kernel", Shape{2, 2}}}});
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      // Places between points, so that a rounding decides nothing.
      cases.push_back(
          {"grid_sample",
           {F({1, 2, 5, 4}), F({1, 3, 3, 2}, -1.6, 1.7)},
           {{"mode", std::string(mode)}, {"padding", std::string(padding)}, {"align_corners", int64_t{mode[0] == 'l'}}},
           1e-4});
    }
  }
  cases.push_back(
      {"grid_sample", {F({1, 2, 3, 3, 3}), F({1, 2, 2, 2, 3}, -1.2, 1.3)}, {{"align_corners", int64_t{1}}}, 1e-4});
  cases.push_back({"deform_conv",
                   {F({1, 2, 5, 5}), F({2, 2, 3, 3}), F({1, 18, 3, 3}, -1, 1), F({1, 9, 3, 3}, 0, 1), F({2})},
                   {},
                   1e-4});
  for (const char* mode : {"avg", "max"})
    cases.push_back(
        {"roi_align",
         {F({2, 2, 6, 6}), F({3, 4}, 0, 6), I({3}, 0, 1)},
         {{"size", Shape{2, 2}}, {"samples", int64_t{2}}, {"mode", std::string(mode)}, {"half_pixel", int64_t{0}}},
         1e-4});
  for (int64_t images : {1, 2})
    cases.push_back({"roi_align",
                     {F({images, 24, 9, 12}), F({5, 4}, -4, 40), I({5}, 0, images - 1)},
                     {{"size", Shape{3, 2}}, {"samples", int64_t{0}}, {"scale", 0.25}},
                     1e-4});
  // As of a detector: a tile of such reads is more than compilers take, were it unrolled and places computed in it.
  cases.push_back({"roi_align",
                   {F({1, 64, 16, 16}), F({40, 4}, 0, 128), I({40}, 0, 0)},
                   {{"size", Shape{7, 7}}, {"samples", int64_t{2}}, {"scale", 0.125}, {"half_pixel", int64_t{0}}},
                   1e-4});
  return cases;
}

// Integer products are exact.
std::vector<OperatorCase> QuantisedCases() {
  const OperandSpec bytes = I({5, 40}, 0, 255, kU8), weights = I({40, 24}, -128, 127, DType::kInt8);
  return {{"dequantize", {I({3, 37}, 0, 255, kU8), F({37}, 0.01, 0.1), I({37}, 0, 255, kU8)}},
          {"dequantize", {I({3, 37}, -100000, 100000, kI32), F({}, 0.01, 0.1), I({}, 7, 7, kI32)}},
          {"quantize",
           {F({3, 37}), F({37}, 0.01, 0.02), I({37}, 100, 130, kU8)},
           {{"to", std::string("uint8")}, {"min", 0.0}, {"max", 255.0}}},
          {"quantize", {F({3, 37}), F({}, 0.01, 0.02)}, {{"to", std::string("int8")}, {"min", -128.0}, {"max", 127.0}}},
          {"matmul", {bytes, weights}, {}, 0},
          {"gemm", {bytes, weights, I({24}, -1000, 1000, kI32)}, {}, 0},
          {"matmul", {I({5, 40}, -255, 255, kI32), weights}, {}, 0},
          {"conv2d",
           {I({1, 6, 6, 8}, 0, 255, kU8), I({3, 3, 8, 16}, -128, 127, DType::kInt8), I({16}, -1000, 1000, kI32)},
           {{"pads", Shape{1, 1, 1, 1}}, {"layout", std::string("NHWC")}},
           0},
          {"conv2d",
           {I({1, 6, 6, 8}, -255, 255, kI32), I({3, 3, 1, 8}, -128, 127, DType::kInt8)},
           {{"group", int64_t{8}}, {"layout", std::string("NHWC")}},
           0}};
}

std::vector<OperatorCase> AllCases() {
  std::vector<OperatorCase> all;
  for (const auto& list :
       {UnaryCases(), BinaryCases(), NanCases(), MovementCases(), ReductionCases(), WindowCases(), QuantisedCases()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

// A program of one operator.
struct OperatorProgram {
  ComputeDag dag;
  std::map<int, Array> values;  // of placeholders
};

absl::StatusOr<OperatorProgram> ProgramOf(const OperatorCase& c) {
  OperatorProgram program;
  DagBuilder builder;
  OperatorArgs args;
  std::vector<int> stages;
  args.attributes = &c.attributes;
  for (const OperandSpec& spec : c.inputs) {
    args.inputs.push_back({spec.dtype, spec.shape});
    args.values.push_back(nullptr);
    stages.push_back(builder.Placeholder("x", spec.shape, spec.dtype));
    program.values[stages.back()] = Spread(spec, stages.back());
  }
  const absl::StatusOr<TensorType> type = FindOperator(c.op)->infer(args);
  if (!type.ok()) return type.status();
  args.output = *type;
  int result = FindOperator(c.op)->emit(builder, args, stages);
  // Not what it was given: a program computes its outputs.
  if (builder.stage(result).placeholder)
    result = builder.Compute(c.op, type->shape, [&](const auto& i) { return builder.At(result, i); });
  absl::StatusOr<ComputeDag> dag = builder.Build({result});
  if (!dag.ok()) return dag.status();
  program.dag = *std::move(dag);
  return program;
}

void ExpectRight(const OperatorCase& c, const OperatorProgram& program, const Array& got) {
  const absl::StatusOr<std::vector<Array>> want = Interpret(program.dag, program.values);
  ASSERT_TRUE(want.ok()) << want.status();
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double a = got.at(i), b = (*want)[0].at(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ASSERT_LE(std::abs(a - b), c.tolerance * (1 + std::abs(b))) << "element " << i << ": " << a << ", not " << b;
  }
}

absl::StatusOr<Program> Compiled(const ComputeDag& dag, const Target& target) {
  const DeviceFacts facts = ResolveFacts(target);
  const absl::StatusOr<Schedule> schedule = DefaultSchedule(dag, target, facts);
  if (!schedule.ok()) return schedule.status();
  const absl::StatusOr<LoweredProgram> lowered = Lower(dag, *schedule, target, facts);
  if (!lowered.ok()) return lowered.status();
  return CompileProgram(*lowered, target, 300);
}

// What a dag's fallback schedule computes on a device from values by stage.
absl::StatusOr<Array> RunOn(Device& device, const Target& target, const ComputeDag& dag,
                            const std::map<int, Array>& values) {
  const absl::StatusOr<Program> program = Compiled(dag, target);
  if (!program.ok()) return program.status();
  absl::StatusOr<std::unique_ptr<Executable>> executable = Executable::Create(device, *program);
  if (!executable.ok()) return executable.status();
  if (absl::Status status = (*executable)->AllocateRest(); !status.ok()) return status;
  for (const auto& [stage, value] : values) {
    const int buffer = (*executable)->BufferOfStage(stage);
    if (buffer < 0) return absl::InternalError("an input has no buffer");
    const absl::Status copied = device.CopyIn(*(*executable)->buffer(buffer), value.data.data(), value.data.size());
    if (!copied.ok()) return copied;
  }
  if (absl::Status status = (*executable)->RunPrologue(); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Plan>> plan = (*executable)->MakePlan();
  if (!plan.ok()) return plan.status();
  if (absl::Status status = (*plan)->Run(); !status.ok()) return status;
  const int output = dag.outputs()[0];
  Array got(dag.stage(output).dtype, dag.stage(output).shape());
  DeviceBuffer* buffer = (*executable)->buffer((*executable)->BufferOfStage(output));
  if (absl::Status status = device.CopyOut(got.data.data(), *buffer, got.data.size()); !status.ok()) return status;
  return got;
}

void RunAndCompare(Device& device, const Target& target, const OperatorCase& c) {
  const absl::StatusOr<OperatorProgram> source = ProgramOf(c);
  ASSERT_TRUE(source.ok()) << source.status();
  const absl::StatusOr<Array> got = RunOn(device, target, source->dag, source->values);
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectRight(c, *source, *got);
}

class OperatorsOnDevice : public ::testing::TestWithParam<TargetKind> {};

TEST_P(OperatorsOnDevice, ComputeWhatTheInterpreterDoes) {
  const Target target = TestTarget(GetParam());
  const absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(target);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  size_t compared = 0;
  for (const OperatorCase& c : AllCases()) {
    SCOPED_TRACE(c.op);
    RunAndCompare(**device, target, c);
    ++compared;
  }
  EXPECT_EQ(compared, AllCases().size());
}

// Each element is 0.1. A loop that adds them one by one in float32 is off by 3% after four million (and by half after
// 160 million, from where on it stands still: sums of 2^24 times an addend are as far apart as two of them).
TEST_P(OperatorsOnDevice, AddManyNumbersWithFewRoundingErrors) {
  const Target target = TestTarget(GetParam());
  const absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(target);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const std::vector<std::pair<Shape, std::vector<int64_t>>> sums = {
      {{1 << 22}, {0}}, {{4000037}, {0}}, {{3, 1 << 20}, {1}}, {{1 << 20, 3}, {0}}, {{1009, 63, 65}, {0, 1, 2}}};
  for (const auto& [shape, axes] : sums) {
    NetworkMaker maker;
    const int sum = maker.Op("reduce_sum", {maker.In("x", shape)}, {{"axes", axes}, {"keepdims", int64_t{0}}});
    const absl::StatusOr<Partition> partition = PartitionNetwork(maker.Out({sum}));
    ASSERT_TRUE(partition.ok()) << partition.status();
    const ComputeDag& dag = partition->tasks[0].dag;
    SCOPED_TRACE(dag.ToString());
    Array x(DType::kFloat32, shape);
    for (int64_t i = 0, n = x.elements(); i < n; ++i) x.set(i, 0.1);
    const absl::StatusOr<Array> got = RunOn(**device, target, dag, {{dag.inputs()[0], x}});
    ASSERT_TRUE(got.ok()) << got.status();
    const double want = static_cast<double>(0.1F) * static_cast<double>(x.elements() / got->elements());
    for (int64_t i = 0; i < got->elements(); ++i) EXPECT_NEAR(got->at(i) / want, 1, 1e-5) << i;
  }
}

// All elements are on one side of zero, and each of some places has the extreme one in turns: the first, the last,
// others.
TEST_P(OperatorsOnDevice, FindTheExtremesOfManyNumbers) {
  const Target target = TestTarget(GetParam());
  const absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(target);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  for (const auto& [shape, axes] :
       std::vector<std::pair<Shape, std::vector<int64_t>>>{{{128, 768}, {0, 1}}, {{100003}, {0}}, {{40000, 3}, {0}}}) {
    for (const double sign : {1.0, -1.0}) {
      NetworkMaker maker;
      const int extreme = maker.Op(sign > 0 ? "reduce_max" : "reduce_min", {maker.In("x", shape)},
                                   {{"axes", axes}, {"keepdims", int64_t{0}}});
      const absl::StatusOr<Partition> partition = PartitionNetwork(maker.Out({extreme}));
      ASSERT_TRUE(partition.ok()) << partition.status();
      const ComputeDag& dag = partition->tasks[0].dag;
      Array x(DType::kFloat32, shape);
      const int64_t count = x.elements();
      for (const int64_t place : {int64_t{0}, count / 3, count - 1}) {
        for (int64_t i = 0; i < count; ++i) x.set(i, sign * (static_cast<double>(i % 7) - 20));
        x.set(place, sign * -3);
        const absl::StatusOr<Array> got = RunOn(**device, target, dag, {{dag.inputs()[0], x}});
        ASSERT_TRUE(got.ok()) << got.status();
        for (int64_t i = 0; i < got->elements(); ++i)
          EXPECT_EQ(got->at(i), sign * (i == place % got->elements() ? -3 : -14)) << place << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OperatorsOnDevice,
                         ::testing::Values(TargetKind::kCpu, TargetKind::kOpenCl, TargetKind::kCuda),
                         [](const auto& info) -> std::string {
                           return info.param == TargetKind::kCpu      ? "cpu"
                                  : info.param == TargetKind::kOpenCl ? "opencl"
                                                                      : "cuda";
                         });

TEST(OperatorTable, HasACaseOfEachOperator) {
  std::set<std::string> covered;
  for (const OperatorCase& c : AllCases()) covered.insert(c.op);
  for (const std::string& name : OperatorNames()) EXPECT_EQ(covered.count(name), 1u) << name;
}

// A worker takes only programs whose reads are proven; those by indices are, within the ranges of the indices.
TEST(OperatorTable, ReadsNothingOutside) {
  for (const OperatorCase& c : AllCases()) {
    const absl::StatusOr<OperatorProgram> program = ProgramOf(c);
    ASSERT_TRUE(program.ok()) << c.op << ": " << program.status();
    EXPECT_EQ(CheckAccesses(program->dag), absl::OkStatus()) << c.op << "\n" << program->dag.ToString();
  }
}

// Without a device: NVRTC takes a third of a second each, so that this is for a machine with time
// (DIAPASON_ALL_OPERATORS=1).
TEST(OperatorTable, CompilesForCuda) {
  if (std::getenv("DIAPASON_ALL_OPERATORS") == nullptr) GTEST_SKIP() << "DIAPASON_ALL_OPERATORS is not set";
  Target target = TestTarget(TargetKind::kCuda);
  target.arch = "sm_90";
  for (const OperatorCase& c : AllCases()) {
    const absl::StatusOr<OperatorProgram> source = ProgramOf(c);
    ASSERT_TRUE(source.ok()) << c.op << ": " << source.status();
    const absl::StatusOr<Program> program = Compiled(source->dag, target);
    if (absl::IsUnavailable(program.status())) GTEST_SKIP() << program.status().message();
    EXPECT_TRUE(program.ok()) << c.op << ": " << program.status();
  }
}

}  // namespace
}  // namespace diapason
