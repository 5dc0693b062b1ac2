// Which sums of recurrences can be products on tensor cores, and how large their states may become.
#include "compiler/schedule/recurrent_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/tensor/recurrent_dags.h"

namespace diapason {
namespace {

using testing::CellKind;
using testing::Recurrent;
using testing::RecurrentShape;

RecurrentSchedule ScheduleOf(ComputeDag dag) {
  RecurrentSchedule schedule{std::move(dag), {}};
  schedule.recurrence = FindRecurrence(schedule.dag).value();
  return schedule;
}

RecurrentSchedule ScheduleOf(const RecurrentShape& shape) { return ScheduleOf(Recurrent(shape)); }

double LargestState(const RecurrentSchedule& schedule) {
  double largest = 0;
  for (const ExchangedStage& e : schedule.Exchanged()) largest = std::max(largest, LargestElement(schedule, e.stage));
  return largest;
}

// h = relu(x + h r), whose state has no bound.
ComputeDag Rectified(int64_t steps, int64_t units, DType dtype) {
  DagBuilder b;
  const int x = b.Placeholder("x", {steps, 1, units}, dtype);
  const int r = b.Constant("r", {units, units}, dtype);
  const auto wide = [](const Expr& e) { return Cast(DType::kFloat32, e); };
  int h = b.Compute("h0", {1, units}, [&](const auto& i) { return wide(b.At(x, {IntImm(0), i[0], i[1]})); });
  for (int64_t t = 1; t < steps; ++t) {
    const int before = h;
    const int sum = b.Reduce("sum" + std::to_string(t), {1, units}, {units}, Combiner::kSum, [&](auto& i, auto& k) {
      return Mul(b.At(before, {i[0], k[0]}), wide(b.At(r, {k[0], i[1]})));
    });
    h = b.Compute("h" + std::to_string(t), {1, units}, [&](const auto& i) {
      return Max(Add(b.At(sum, i), wide(b.At(x, {IntImm(t), i[0], i[1]}))), FloatImm(0));
    });
  }
  const int y = b.Compute("y", {1, units}, [&](const auto& i) { return Cast(dtype, b.At(h, i)); });
  return b.Build({y}).value();
}

TEST(RecurrentProducts, StatesOfCellsHaveBounds) {
  EXPECT_EQ(LargestState(ScheduleOf({.cell = CellKind::kLstm})), 1);
  EXPECT_EQ(LargestState(ScheduleOf({.cell = CellKind::kRnn})), 1);
  EXPECT_EQ(LargestState(ScheduleOf({.cell = CellKind::kGru})), 1);
  // A state that is given is bounded by its type, and stays a weighted mean.
  EXPECT_EQ(LargestState(ScheduleOf({.cell = CellKind::kGru, .initial = true, .dtype = DType::kFloat16, .wide = true})),
            65504);
  EXPECT_TRUE(std::isinf(LargestState(ScheduleOf({.cell = CellKind::kGru, .initial = true}))));
  EXPECT_TRUE(std::isinf(LargestState(ScheduleOf(Rectified(6, 16, DType::kFloat16)))));
}

// h = (h - n) z + n, as layers of PyTorch become it, and n - n z without a state before.
TEST(RecurrentProducts, OtherFormsOfMeansHaveBounds) {
  constexpr int64_t kSteps = 6, kUnits = 16;
  DagBuilder b;
  const int x = b.Placeholder("x", {kSteps, 1, kUnits});
  const int r = b.Constant("r", {kUnits, kUnits});
  int h = -1;
  for (int64_t t = 0; t < kSteps; ++t) {
    const std::string k = std::to_string(t);
    const auto each = [&](const std::string& name, const auto& body) {
      return b.Compute(name + k, {1, kUnits}, [&](const auto& i) { return body(i); });
    };
    const auto input = [&](const auto& i) { return b.At(x, {IntImm(t), i[0], i[1]}); };
    const int before = h;
    const int sum = before < 0 ? -1 : b.Reduce("sum" + k, {1, kUnits}, {kUnits}, Combiner::kSum, [&](auto& i, auto& j) {
      return Mul(b.At(before, {i[0], j[0]}), b.At(r, {j[0], i[1]}));
    });
    const auto gate = [&](const auto& i) { return before < 0 ? input(i) : Add(b.At(sum, i), input(i)); };
    const int z = each("z", [&](const auto& i) { return Call("sigmoid", {gate(i)}); });
    const int n = each("n", [&](const auto& i) { return Call("tanh", {gate(i)}); });
    const int difference =
        before < 0 ? n : each("difference", [&](const auto& i) { return Sub(b.At(before, i), b.At(n, i)); });
    const int product = each("product", [&](const auto& i) { return Mul(b.At(difference, i), b.At(z, i)); });
    h = each("h", [&](const auto& i) {
      return before < 0 ? Sub(b.At(n, i), b.At(product, i)) : Add(b.At(product, i), b.At(n, i));
    });
  }
  EXPECT_EQ(LargestState(ScheduleOf(b.Build({h}).value())), 1);
}

TEST(RecurrentProducts, FactorsAreNarrowAndFillProducts) {
  const auto why = [](const RecurrentShape& shape) {
    return std::string(CheckRecurrentProducts(ScheduleOf(shape)).message());
  };
  EXPECT_EQ(why({.rows = 2, .units = 32, .dtype = DType::kFloat16, .wide = true}), "");
  EXPECT_EQ(why({.rows = 2, .units = 32, .dtype = DType::kFloat16}), "");
  EXPECT_EQ(why({.cell = CellKind::kResetFirst, .units = 16, .dtype = DType::kBfloat16, .wide = true}), "");
  EXPECT_NE(why({.units = 32}).find("neither float16 nor bfloat16"), std::string::npos);
  EXPECT_NE(why({.units = 40, .dtype = DType::kFloat16}).find("40 units are no multiple of 16"), std::string::npos);
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const auto rectified = CheckRecurrentProducts(ScheduleOf(Rectified(6, 16, dtype)));
    EXPECT_NE(std::string(rectified.message()).find("too large for " + std::string(NameOf(dtype))), std::string::npos)
        << rectified;
  }
}

TEST(RecurrentProducts, AStateInFloat32HasTwoParts) {
  for (bool wide : {false, true}) {
    const RecurrentSchedule schedule = ScheduleOf({.units = 32, .dtype = DType::kFloat16, .wide = wide});
    for (size_t i = 0; i < schedule.recurrence.body.size(); ++i) {
      if (!schedule.dag.stage(schedule.recurrence.body[i]).reduces()) continue;
      const auto product = ProductOf(schedule, i);
      ASSERT_TRUE(product.ok()) << product.status();
      EXPECT_EQ(product->parts, wide ? 2 : 1);
      EXPECT_EQ(product->mode, TensorMode::kHalf);
    }
  }
}

}  // namespace
}  // namespace diapason
