#include <cmath>
#include <random>

#include "compiler/codegen/reference.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/executable.h"
#include "compiler/tensor/interpret.h"
#include "gtest/gtest.h"

namespace diapason {
namespace {

std::map<int, Array> RandomInputs(const ComputeDag& dag, std::mt19937& random) {
  std::map<int, Array> inputs;
  for (int id : dag.inputs()) {
    const Stage& stage = dag.stage(id);
    Array array(stage.dtype, stage.shape());
    for (int64_t i = 0; i < array.elements(); ++i) {
      const int64_t span = stage.valid_max - stage.valid_min + 1;
      if (IsFloat(stage.dtype))
        array.set(i, (static_cast<int>(random() % 33) - 16) / 8.0);
      else
        array.set_int(i, stage.valid_min + static_cast<int64_t>(random() % span));
    }
    inputs.emplace(id, std::move(array));
  }
  return inputs;
}

// Compiles the reference of the dag for the target, runs it there and compares the outputs with Interpret.
void ExpectSameAsInterpret(const ComputeDag& dag, const Target& target, Device& device, double tolerance = 1e-5) {
  SCOPED_TRACE(dag.ToString());
  std::mt19937 random(11);
  const std::map<int, Array> inputs = RandomInputs(dag, random);
  const absl::StatusOr<std::vector<Array>> expected = Interpret(dag, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  absl::StatusOr<Program> program = CompileReference(dag, target);
  ASSERT_TRUE(program.ok()) << program.status();
  SCOPED_TRACE(program->source);
  auto executable = Executable::Create(device, *program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  ASSERT_TRUE((*executable)->AllocateRest().ok());
  for (const auto& [id, array] : inputs)
    ASSERT_TRUE(
        device.CopyIn(*(*executable)->buffer((*executable)->BufferOfStage(id)), array.data.data(), array.data.size())
            .ok());
  auto plan = (*executable)->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE((*plan)->Run().ok());
  for (size_t o = 0; o < expected->size(); ++o) {
    const Array& want = (*expected)[o];
    Array got(want.dtype, want.shape);
    ASSERT_TRUE(device
                    .CopyOut(got.data.data(), *(*executable)->buffer((*executable)->BufferOfStage(dag.outputs()[o])),
                             got.data.size())
                    .ok());
    for (int64_t i = 0; i < want.elements(); ++i)
      ASSERT_NEAR(got.at(i), want.at(i), tolerance * (1 + std::fabs(want.at(i)))) << "output " << o << " [" << i << "]";
  }
}

// Dags of a few stages, each with a random body over those before it.
class RandomDag {
 public:
  explicit RandomDag(int seed) : random_(seed) {}

  ComputeDag Make() {
    ids_ = {builder_.Placeholder("x", {3, 5, 4}),
            builder_.Constant("w", {3, 5, 4}, Pick(0, 1) ? DType::kFloat16 : DType::kFloat32)};
    for (int stage = 0; stage < 4; ++stage) ids_.push_back(Pick(0, 2) == 0 ? Reduction() : ElementWise());
    return builder_.Build({ids_.back(), ids_[3]}).value();
  }

 private:
  int64_t Pick(int64_t low, int64_t high) { return low + static_cast<int64_t>(random_() % (high - low + 1)); }

  Expr In(const std::vector<Expr>& at) {
    const int id = ids_[Pick(0, static_cast<int64_t>(ids_.size()) - 1)];
    return Cast(DType::kFloat32, builder_.At(id, at));
  }
  // Somewhere inside [3, 5, 4].
  std::vector<Expr> Inside(const std::vector<Expr>& v) {
    auto clamp = [&](Expr e, int64_t extent) {
      return Min(Max(Add(e, IntImm(Pick(-2, 2))), IntImm(0)), IntImm(extent - 1));
    };
    if (Pick(0, 2) == 0)
      return {FloorMod(Add(v[1], v[0]), 3), FloorDiv(Add(Mul(v[1], IntImm(3)), v[2]), 4),
              FloorMod(Sub(v[2], IntImm(7)), 4)};
    return {clamp(v[0], 3), clamp(v[1], 5), clamp(v[2], 4)};
  }
  Expr Body(const std::vector<Expr>& v, int depth) {
    if (depth == 0) return Pick(0, 4) == 0 ? FloatImm(Pick(-3, 3) / 4.0) : In(Pick(0, 1) ? v : Inside(v));
    const Expr a = Body(v, depth - 1), b = Body(v, depth - 1);
    switch (Pick(0, 9)) {
      case 0: return Add(a, b);
      case 1: return Sub(a, b);
      case 2: return Mul(a, FloatImm(0.5));
      case 3: return Div(a, Add(FloatImm(2), Call("abs", {b})));
      case 4: return Max(a, b);
      case 5: return Min(a, b);
      case 6: return Select(And(Le(IntImm(1), v[1]), Lt(v[1], IntImm(4))), a, b);
      case 7: return Select(Or(Lt(a, b), Not(Lt(v[0], IntImm(2)))), a, FloatImm(1));
      case 8: {
        const char* functions[] = {"exp", "tanh", "sigmoid", "erf", "abs", "floor", "ceil", "round"};
        const int64_t which = Pick(0, 4);  // the others jump, where one rounding decides
        return Call(functions[which], {Min(a, FloatImm(3))});
      }
      default: return Call("sqrt", {Add(Mul(a, a), FloatImm(0.25))});
    }
  }
  int ElementWise() {
    return builder_.Compute("e", {3, 5, 4}, [&](const auto& v) { return Body(v, 2); });
  }
  int Reduction() {
    static constexpr Combiner kAll[] = {Combiner::kSum, Combiner::kMax, Combiner::kMin, Combiner::kProd};
    return builder_.Reduce("r", {3, 5, 4}, {3, 2}, kAll[Pick(0, 3)], [&](const auto& v, const auto& r) {
      return Add(Mul(In({r[0], v[1], v[2]}), In({v[0], v[1], Add(r[1], FloorMod(v[2], 3))})), FloatImm(0.5));
    });
  }

  std::mt19937 random_;
  DagBuilder builder_;
  std::vector<int> ids_;
};

class CompileReferenceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    target_ = Target::Parse(GetParam()).value();
    absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(target_);
    if (absl::IsUnavailable(device.status())) GTEST_SKIP() << device.status();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  Target target_;
  std::unique_ptr<Device> device_;
};

TEST_P(CompileReferenceTest, RandomDagsGiveWhatInterpretGives) {
  for (int seed = 0; seed < 12 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    ExpectSameAsInterpret(RandomDag(seed).Make(), target_, *device_, 1e-4);
  }
}

TEST_P(CompileReferenceTest, PaddedConvolutionWithEpilogue) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1, 7, 7, 3}), w = b.Constant("w", {3, 3, 3, 8}), bias = b.Constant("bias", {8});
  const int y = b.Reduce("conv", {1, 7, 7, 8}, {3, 3, 3}, Combiner::kSum, [&](const auto& v, const auto& r) {
    const Expr h = Sub(Add(v[1], r[0]), IntImm(1)), u = Sub(Add(v[2], r[1]), IntImm(1));
    const Expr inside = And(And(Le(IntImm(0), h), Lt(h, IntImm(7))), And(Le(IntImm(0), u), Lt(u, IntImm(7))));
    return Mul(Select(inside, b.At(x, {v[0], h, u, r[2]}), FloatImm(0)), b.At(w, {r[0], r[1], r[2], v[3]}));
  });
  const int out = b.Compute("relu", {1, 7, 7, 8},
                            [&](const auto& v) { return Max(Add(b.At(y, v), b.At(bias, {v[3]})), FloatImm(0)); });
  ExpectSameAsInterpret(b.Build({out}).value(), target_, *device_);
}

TEST_P(CompileReferenceTest, IntegersBooleansAndHalves) {
  DagBuilder b;
  const int i = b.Placeholder("i", {10}, DType::kInt64), x = b.Placeholder("x", {6}, DType::kFloat16);
  b.stage(i).valid_min = 0;
  b.stage(i).valid_max = 5;
  const int gather = b.Compute("gather", {10}, [&](const auto& v) { return b.At(x, {b.At(i, {v[0]})}); });
  const int sign =
      b.Compute("sign", {10}, [&](const auto& v) { return Lt(b.At(gather, {v[0]}), FloatImm(0, DType::kFloat16)); });
  const int count = b.Compute("count", {10}, [&](const auto& v) {
    return Add(Cast(DType::kInt32, b.At(sign, {v[0]})),
               Cast(DType::kInt32, FloorMod(Sub(b.At(i, {v[0]}), IntImm(9)), 4)));
  });
  const int most =
      b.Reduce("most", {1}, {10}, Combiner::kMax, [&](const auto&, const auto& r) { return b.At(count, {r[0]}); });
  ExpectSameAsInterpret(b.Build({gather, sign, count, most}).value(), target_, *device_);
}

TEST_P(CompileReferenceTest, NumbersOutsideOfAByteWrap) {
  DagBuilder b;
  const int x = b.Placeholder("x", {64});
  const auto of = [&](DType dtype) {
    return b.Compute(NameOf(dtype), {64},
                     [&](const auto& v) { return Cast(dtype, Mul(b.At(x, {v[0]}), FloatImm(1000))); });
  };
  ExpectSameAsInterpret(b.Build({of(DType::kUint8), of(DType::kInt8)}).value(), target_, *device_);
}

TEST_P(CompileReferenceTest, LongSumsStayAccurate) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1});
  const int sum = b.Reduce("sum", {1}, {200000}, Combiner::kSum, [&](const auto&, const auto& r) {
    return Add(Mul(b.At(x, {IntImm(0)}), FloatImm(0)), Select(Eq(r[0], IntImm(0)), FloatImm(16777216), FloatImm(0.25)));
  });
  ExpectSameAsInterpret(b.Build({sum}).value(), target_, *device_, 1e-7);  // a plain float sum would be off by 0.3%
}

// Rows are computed in blocks, of which the last one may overlap the one before.
TEST_P(CompileReferenceTest, ReductionsOfRowsOfAnyLength) {
  for (const int64_t extent : {1, 2, 7, 63, 64, 65, 130, 200}) {
    SCOPED_TRACE(extent);
    for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kInt32}) {
      DagBuilder b;
      const int x = b.Placeholder("x", {3, 11}, type), w = b.Placeholder("w", {11, extent}, type);
      const int sum = b.Reduce("sum", {3, extent}, {11}, Combiner::kSum, [&](const auto& v, const auto& r) {
        return Mul(b.At(x, {v[0], r[0]}), b.At(w, {r[0], v[1]}));
      });
      const int most = b.Reduce("most", {extent, extent}, {11}, Combiner::kMax, [&](const auto& v, const auto& r) {
        return Sub(b.At(w, {r[0], v[1]}), Select(Lt(v[1], v[0]), b.At(w, {r[0], v[0]}), b.At(x, {IntImm(1), r[0]})));
      });
      ExpectSameAsInterpret(b.Build({sum, most}).value(), target_, *device_);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CompileReferenceTest, ::testing::Values("cpu", "opencl", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ReferenceProgram, BuffersHaveTheRolesOfTheirStages) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4}), w = b.Constant("w", {4});
  const int t = b.Compute("t", {4}, [&](const auto& v) { return Add(b.At(x, v), b.At(w, v)); });
  const int y = b.Compute("y", {4}, [&](const auto& v) { return Mul(b.At(t, v), FloatImm(2)); });
  const absl::StatusOr<Program> program = CompileReference(b.Build({y}).value(), Target());
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->buffers.size(), 4u);
  EXPECT_EQ(program->buffers[x].role, BufferRole::kInput);
  EXPECT_EQ(program->buffers[w].role, BufferRole::kConstant);
  EXPECT_EQ(program->buffers[t].role, BufferRole::kWorkspace);
  EXPECT_EQ(program->buffers[t].stage, -1);
  EXPECT_EQ(program->buffers[y].role, BufferRole::kOutput);
  EXPECT_EQ(program->buffers[y].stage, y);
  ASSERT_EQ(program->kernels.size(), 2u);
  EXPECT_EQ(program->kernels[1].args, (std::vector<int>{t, y}));
}

}  // namespace
}  // namespace diapason
