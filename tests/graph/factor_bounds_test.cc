#include "compiler/graph/factor_bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/passes.h"
#include "tests/graph/testing.h"

namespace diapason {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Layers : GraphBuilder {
  int Filled(Ints shape, double value) {
    Array array(DType::kFloat32, std::move(shape));
    for (int64_t i = 0, size = array.elements(); i < size; ++i) array.set(i, value);
    return n.AddConstant("filled", std::move(array));
  }
  int Normalized(int x) { return Op("layer_norm", {x}); }
  int Linear(int x, int64_t in, int64_t out) { return Op("add", {Op("matmul", {x, Const({in, out})}), Const({out})}); }
  bool Bounded(int tensor) const {
    const FactorBounds bounds = FindFactorBounds(n);
    const auto found = bounds.find(tensor);
    if (found == bounds.end()) return false;
    if (n.tensor(tensor).constant()) {
      EXPECT_EQ(found->second, kMostOfWeight);
    } else {
      EXPECT_TRUE(found->second == kMostOfActivation || found->second == kMostOfSmallActivation);
    }
    return true;
  }
  // The limit, or 0.
  int64_t LimitOf(int tensor) const {
    const FactorBounds bounds = FindFactorBounds(n);
    const auto found = bounds.find(tensor);
    return found == bounds.end() ? 0 : found->second;
  }
};

// An encoder layer: x of `tokens` rows of `width`, `heads` heads.
int EncoderLayer(Layers& b, int x, int64_t tokens, int64_t width, int64_t heads) {
  const int64_t size = width / heads;
  const int normalized = b.Op("add", {b.Op("mul", {b.Normalized(x), b.Const({width})}), b.Const({width})});
  const auto head = [&](const Ints& perm) {
    const int y = b.Op("reshape", {b.Linear(normalized, width, width)}, {{"shape", Ints{tokens, heads, size}}});
    return b.Op("transpose", {y}, {{"perm", perm}});
  };
  const int scores = b.Op("matmul", {head({1, 0, 2}), head({1, 2, 0})});
  const int values = b.Op("matmul", {b.Op("softmax", {scores}), head({1, 0, 2})});
  const int joined =
      b.Op("reshape", {b.Op("transpose", {values}, {{"perm", Ints{1, 0, 2}}})}, {{"shape", Ints{tokens, width}}});
  const int sum = b.Op("add", {b.Linear(joined, width, width), x});
  const int hidden = b.Op("gelu", {b.Linear(b.Normalized(sum), width, 2 * width)});
  return b.Op("add", {b.Linear(hidden, 2 * width, width), sum});
}

TEST(FactorBounds, FollowNormalizationsThroughALayer) {
  Layers b;
  const int x = b.In({6, 16});
  const int y = EncoderLayer(b, x, 6, 16, 2);
  b.Out({EncoderLayer(b, y, 6, 16, 2)});
  EXPECT_FALSE(b.Bounded(x));
  EXPECT_FALSE(b.Bounded(y)) << "x is added to it";
  int factors = 0;
  for (const Node& node : b.n.nodes) {
    if (node.op != "matmul") continue;
    EXPECT_TRUE(b.Bounded(node.inputs[0])) << node.name;
    EXPECT_TRUE(b.Bounded(node.inputs[1])) << node.name;
    ++factors;
  }
  EXPECT_EQ(factors, 16);
}

// Whatever the input is, all elements that are numbers keep to the limits.
TEST(FactorBounds, HoldForAllInputs) {
  Layers b;
  const int x = b.In({6, 16});
  b.Out({EncoderLayer(b, EncoderLayer(b, x, 6, 16, 2), 6, 16, 2)});
  Network all = b.n;
  all.outputs.clear();
  const FactorBounds bounds = FindFactorBounds(all);
  for (const auto& [tensor, bound] : bounds)
    if (!all.tensor(tensor).constant()) all.outputs.push_back(tensor);
  ASSERT_GE(all.outputs.size(), 30u);
  for (const double scale : {1e-30, 1e-3, 1.0, 1e6, 1e15, 1e30}) {
    for (const bool spiky : {false, true}) {
      Array input = RandomArray({DType::kFloat32, {6, 16}}, 3);
      for (int64_t i = 0; i < input.elements(); ++i)
        input.set(i, spiky ? (i % 16 == i / 16 ? scale : 0) : scale * input.at(i));
      const auto outputs = EvaluateNetwork(all, {input});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      for (size_t o = 0; o < outputs->size(); ++o)
        for (int64_t i = 0; i < (*outputs)[o].elements(); ++i) {
          const double value = (*outputs)[o].at(i);
          ASSERT_TRUE(std::isnan(value) || std::abs(value) <= static_cast<double>(bounds.at(all.outputs[o])))
              << all.tensor(all.outputs[o]).name << " " << value;
        }
    }
  }
}

TEST(FactorBounds, AreThoseOfRowsNotOfElementsAlone) {
  Layers b;
  const int64_t width = 4096;
  // Columns of norm 30: 64 * 30 is within the limit, and 64 * 4096 * 0.47, what elements alone give, far beyond it.
  const int y = b.Op("matmul", {b.Normalized(b.In({2, width})), b.Filled({width, 4}, 30.0 / 64)});
  EXPECT_TRUE(b.Bounded(y));
  const int z = b.Op("matmul", {b.Normalized(b.In({2, width})), b.Filled({width, 4}, 40.0 / 64)});
  EXPECT_FALSE(b.Bounded(z)) << "64 * 40 is not";
}

// As exporters write RMS normalizations.
TEST(FactorBounds, OfRowsDividedByTheirMeanSquares) {
  enum class Way { kRsqrt, kReciprocal, kPower, kQuotient };
  struct Form {
    Way way = Way::kRsqrt;
    bool power = false;  // x^2 in place of x * x
    double epsilon = 1e-6;
    int64_t axis = -1;
    bool of_another = false;  // the mean square is that of another tensor
  };
  const auto bounded = [](const Form& form) {
    Layers b;
    const int x = b.In({5, 16}), other = b.In({5, 16}), y = form.of_another ? other : x;
    const int square = form.power ? b.Op("pow", {y, b.Filled({1}, 2)}) : b.Op("mul", {y, y});
    const int mean = b.Op("reduce_mean", {square}, {{"axes", Ints{form.axis}}});
    const int sum = b.Op("add", {mean, b.Filled({1}, form.epsilon)});
    switch (form.way) {
      case Way::kRsqrt: return b.Bounded(b.Op("mul", {b.Op("rsqrt", {sum}), x}));
      case Way::kReciprocal: return b.Bounded(b.Op("mul", {x, b.Op("reciprocal", {b.Op("sqrt", {sum})})}));
      case Way::kPower: return b.Bounded(b.Op("mul", {x, b.Op("pow", {sum, b.Filled({1}, -0.5)})}));
      case Way::kQuotient: return b.Bounded(b.Op("div", {x, b.Op("sqrt", {sum})}));
    }
    return false;
  };
  for (const Way way : {Way::kRsqrt, Way::kReciprocal, Way::kPower, Way::kQuotient})
    for (const bool power : {false, true}) {
      EXPECT_TRUE(bounded({.way = way, .power = power}));
      EXPECT_TRUE(bounded({.way = way, .power = power, .axis = 1}));
      EXPECT_FALSE(bounded({.way = way, .power = power, .epsilon = 0}));
      EXPECT_FALSE(bounded({.way = way, .power = power, .axis = 0})) << "columns";
      EXPECT_FALSE(bounded({.way = way, .power = power, .of_another = true}));
    }
}

TEST(FactorBounds, LimitsAreNotExceeded) {
  Layers b;
  const int x = b.In({3, 64});
  EXPECT_TRUE(b.Bounded(b.Op("mul", {b.Normalized(x), b.Filled({64}, 200)})));
  EXPECT_FALSE(b.Bounded(b.Op("mul", {b.Normalized(x), b.Filled({64}, 300)})));
  const auto weights = [&](double value) {
    const int w = b.Filled({64, 4}, value);
    b.Op("matmul", {b.Normalized(x), w});
    return b.Bounded(w);
  };
  EXPECT_TRUE(weights(7.9));
  EXPECT_FALSE(weights(8.1));
  EXPECT_FALSE(weights(std::nan(""))) << "says nothing";
  EXPECT_FALSE(weights(kInfinity));
  EXPECT_FALSE(b.Bounded(b.Filled({3}, 1))) << "no factor";
  EXPECT_FALSE(b.Bounded(b.Op("layer_norm", {x}, {{"epsilon", 0.0}}))) << "0 / 0";
  EXPECT_FALSE(b.Bounded(b.Op("exp", {b.Normalized(x)}))) << "exp(8)";
  EXPECT_TRUE(b.Bounded(b.Op("clip", {x}, {{"min", -6.0}, {"max", 6.0}})));
  EXPECT_FALSE(b.Bounded(b.Op("clip", {x}, {{"max", 6.0}})));
  EXPECT_TRUE(b.Bounded(b.Op("sigmoid", {x})));
  EXPECT_FALSE(b.Bounded(b.Op("matmul", {x, b.Const({64, 8})})));
}

// Parts of what is far below its limit have fewer digits.
TEST(FactorBounds, AreCloseToWhatTheyLimit) {
  Layers b;
  const int x = b.In({3, 64});
  const auto scaled = [&](double by) { return b.LimitOf(b.Op("mul", {b.Normalized(x), b.Filled({64}, by)})); };
  EXPECT_EQ(scaled(1), kMostOfActivation);  // to 8
  EXPECT_EQ(scaled(0.1), kMostOfSmallActivation);
  EXPECT_EQ(scaled(0.001), kMostOfSmallActivation);
  EXPECT_EQ(scaled(1e-4), 0);
  EXPECT_EQ(b.LimitOf(b.Op("softmax", {x})), kMostOfSmallActivation);
  // Of weights the columns count, in whatever way they lie.
  Array values = RandomArray({DType::kFloat32, {64, 8}}, 3);
  const auto limit = [&](bool transposed) {
    const int w = b.n.AddConstant("w", values);
    transposed ? b.Op("gemm", {b.Op("softmax", {b.In({3, 8})}), w}, {{"trans_b", int64_t{1}}})
               : b.Op("matmul", {b.Normalized(x), w});
    return b.LimitOf(w);
  };
  EXPECT_EQ(limit(false), kMostOfWeight);
  EXPECT_EQ(limit(true), kMostOfWeight);
  for (int64_t k = 0; k < 64; ++k) values.set(8 * k + 5, 0);
  EXPECT_EQ(limit(false), kMostOfWeight) << "what is 0 stays 0";
  for (int64_t k = 0; k < 64; ++k) values.set(8 * k + 5, 1e-5);
  EXPECT_EQ(limit(false), 0);
  EXPECT_EQ(limit(true), kMostOfWeight) << "a column of 64 rows, each of which has other elements";
}

// Networks that had too small bounds once.
TEST(FactorBounds, DoNotForgetWhatIsNotKnown) {
  Layers b;
  const int x = b.In({3, 16});
  // 0 times anything is no bound: the sum is x.
  const int sum = b.Op("add", {b.Op("mul", {x, b.Filled({16}, 0)}), x});
  EXPECT_EQ(b.LimitOf(b.Concat({sum, b.Op("softmax", {x})}, 0)), 0);
  EXPECT_EQ(b.LimitOf(b.Concat({sum, b.Op("softmax", {x})}, -1)), 0);
  const int product = b.Op("gemm", {b.Normalized(x), b.Const({16, 16}), x}, {{"beta", 0.0}});
  EXPECT_EQ(b.LimitOf(b.Concat({product, b.Op("softmax", {x})}, 0)), 0);
  // Integers wrap.
  const int bytes = b.Op("cast", {b.Op("sigmoid", {x})}, {{"to", std::string("uint8")}});
  const int negative = b.Op("cast", {b.Op("neg", {bytes})}, {{"to", std::string("float32")}});
  EXPECT_EQ(b.LimitOf(b.Op("mul", {negative, b.Filled({1}, 1000)})), 0);
  // A mean along another axis than it seems.
  const int tall = b.In({8192, 2});
  const int square = b.Op("pow", {tall, b.Filled({1, 1, 1}, 2)});
  const int mean = b.Op("reduce_mean", {square}, {{"axes", Ints{1}}});
  EXPECT_EQ(b.LimitOf(b.Op("mul", {tall, b.Op("rsqrt", {b.Op("add", {mean, b.Filled({1}, 1e-6)})})})), 0);
  // Limits of clip in the wrong order: the upper one holds.
  const int high = b.Op("clip", {x}, {{"min", 5e5}, {"max", 0.0}}),
            low = b.Op("clip", {x}, {{"min", -5e5}, {"max", 0.0}});
  EXPECT_EQ(b.LimitOf(b.Op("add", {high, low})), 0);
  // Steps are not missed by a rounding error.
  const int almost = b.Op("floor", {b.Op("clip", {x}, {{"min", 0.0}, {"max", 0.99999999}})});
  EXPECT_EQ(b.LimitOf(b.Op("mul", {almost, b.Filled({1}, 1e6)})), 0);
  // Differences of large numbers have their rounding errors.
  const int large = b.Op("add", {b.Op("mul", {b.Op("sigmoid", {x}), b.Filled({1}, 4.1)}), b.Filled({1}, 1e8)});
  EXPECT_EQ(b.LimitOf(b.Op("mul", {b.Op("sub", {large, b.Filled({1}, 1e8)}), b.Filled({1}, 480)})), 0);
  EXPECT_EQ(b.LimitOf(b.Op("rms_norm", {x}, {{"epsilon", 1e-46}})), 0) << "0 in float32";
}

TEST(FactorBounds, OfConvolutions) {
  Layers b;
  const int x = b.Op("clip", {b.In({1, 8, 5, 5})}, {{"min", 0.0}, {"max", 6.0}});
  EXPECT_TRUE(b.Bounded(b.Conv(x, 8, 4)));  // 6 * 72 terms
  const int wide = b.Op("mul", {x, b.Filled({1}, 100)});
  EXPECT_FALSE(b.Bounded(b.Conv(wide, 8, 4)));
}

TEST(FactorBounds, AreOfProductsOfMatricesAlone) {
  const auto bounded = [](const Network& network) {
    const FusionChoices fusion = FindFusionChoices(network, {.find_factor_bounds = true}).value();
    int tasks = 0;
    for (const Task& task : fusion.partition.tasks) tasks += !task.unbounded_key.empty();
    return tasks;
  };
  const auto convolution = [&](int64_t kernel, int64_t channels, int64_t group) {
    Layers b;
    const int x = b.Op("clip", {b.In({1, channels, 9, 9})}, {{"min", 0.0}, {"max", 6.0}});
    const int weights = b.Const({16, channels / group, kernel, kernel});
    return bounded(b.Out({b.Op("conv2d", {x, weights}, {{"group", group}})}));
  };
  EXPECT_EQ(convolution(1, 16, 1), 1);
  EXPECT_EQ(convolution(3, 16, 1), 0) << "reads each pixel nine times";
  EXPECT_EQ(convolution(3, 16, 16), 0) << "is no matrix product";
  const auto product = [&](int64_t rows, DType dtype) {
    Layers b;
    const int x = b.Op("sigmoid", {b.In({rows, 16})});
    const int y = b.Op("matmul", {x, b.Const({16, 24})});
    Network n = b.Out({y});
    if (dtype != DType::kFloat32) {
      EXPECT_TRUE(ConvertToNarrow(n, dtype).ok());
    }
    return bounded(n);
  };
  EXPECT_EQ(product(16, DType::kFloat32), 1);
  EXPECT_EQ(product(1, DType::kFloat32), 0) << "a vector";
  EXPECT_EQ(product(16, DType::kFloat16), 0);
}

TEST(FactorBounds, AreInTheTasksThatAreAskedToHaveThem) {
  Layers b;
  const int x = b.In({12, 16});
  const Network network = Optimize(b.Out({EncoderLayer(b, x, 12, 16, 2)}), ModelOptions()).value();
  const FusionChoices plain = FindFusionChoices(network).value();
  const FusionChoices fusion = FindFusionChoices(network, {.find_factor_bounds = true}).value();
  EXPECT_TRUE(plain.factor_bounds.empty());
  ASSERT_EQ(fusion.partition.tasks.size(), plain.partition.tasks.size());
  int bounded = 0;
  for (size_t t = 0; t < fusion.partition.tasks.size(); ++t) {
    const Task &got = fusion.partition.tasks[t], &want = plain.partition.tasks[t];
    EXPECT_EQ(want.unbounded_key, "");
    if (got.unbounded_key.empty()) {
      EXPECT_EQ(got.workload_key, want.workload_key);
      continue;
    }
    ++bounded;
    EXPECT_EQ(got.unbounded_key, want.workload_key);
    EXPECT_NE(got.workload_key, want.workload_key);
    for (int id : got.dag.inputs()) {
      const Stage& stage = got.dag.stage(id);
      const std::vector<int>& readers = got.dag.consumers(id);
      const bool factor = got.dag.stage(readers[0]).reduces();
      const bool weights = got.name.find("matmul_2x") == std::string::npos;  // attention's scores and values have none
      EXPECT_EQ(stage.valid_max > 0, factor) << got.name;
      if (factor && weights) {
        EXPECT_EQ(stage.valid_max, stage.constant ? kMostOfWeight : kMostOfActivation) << got.name;
      }
      EXPECT_EQ(stage.valid_min, -stage.valid_max);
    }
  }
  EXPECT_GE(bounded, 3);
  // The partition that is made of the choices has the same tasks.
  const Partition chosen = PartitionAs(network, fusion, std::vector<int>(fusion.choice_points.size(), 0)).value();
  for (const Task& task : chosen.tasks)
    EXPECT_TRUE(std::any_of(fusion.partition.tasks.begin(), fusion.partition.tasks.end(), [&](const Task& one) {
      return one.workload_key == task.workload_key;
    })) << task.name;
}

}  // namespace
}  // namespace diapason
