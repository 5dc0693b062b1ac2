// Normalizations that are written out in arithmetic.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../testing.h"
#include "compiler/graph/passes.h"

namespace diapason {
namespace {

constexpr int64_t kTokens = 3, kFeatures = 8;

// Parts of normalizations of rows of x.
struct Arithmetic : GraphBuilder {
  int x = In({1, kTokens, kFeatures});

  int Number(double value) {
    Array array(DType::kFloat32, {});
    array.set(0, value);
    return n.AddConstant("number", std::move(array));
  }
  int Mean(int of, int64_t axis = -1, int64_t keepdims = 1) {
    return Op("reduce_mean", {of}, {{"axes", std::vector<int64_t>{axis}}, {"keepdims", keepdims}});
  }
  int Squares(int of) { return Op("pow", {of, Number(2)}); }
  int Variance(int of) { return Op("add", {Mean(Squares(of)), Number(1e-5)}); }
  int Centred() { return Op("sub", {x, Mean(x)}); }
};

// How many layer and RMS normalizations there are then.
using Found = std::pair<int64_t, int64_t>;

Found Recognized(const std::string& what, const std::function<int(Arithmetic&)>& make) {
  SCOPED_TRACE(what);
  Arithmetic a;
  const int result = make(a);
  const Network before = a.Out({result});
  Network after = before;
  RecognizeNorms(after);
  EXPECT_TRUE(EliminateDeadCode(after).ok());
  EXPECT_TRUE(after.Validate().ok());
  const std::vector<Array> inputs = RandomInputs(before, 7);
  ExpectNear(EvaluateNetwork(after, inputs).value()[0], EvaluateNetwork(before, inputs).value()[0], 1e-5);
  const Found found(CountOps(after, "layer_norm"), CountOps(after, "rms_norm"));
  if (found != Found(0, 0)) {
    EXPECT_EQ(CountOps(after, "reduce_mean"), 0);
  } else {
    EXPECT_EQ(CountOps(after, "reduce_mean"), CountOps(before, "reduce_mean"));
  }
  return found;
}

TEST(RecognizeNorms, InAllFormsInWhichTheyAreWritten) {
  const Found rms(0, 1), layer(1, 0);
  EXPECT_EQ(Recognized("rsqrt",
                       [](Arithmetic& a) {
                         return a.Op("mul", {a.x, a.Op("rsqrt", {a.Variance(a.x)})});
                       }),
            rms);
  EXPECT_EQ(Recognized("a reciprocal root in front",
                       [](Arithmetic& a) {
                         return a.Op("mul", {a.Op("reciprocal", {a.Op("sqrt", {a.Variance(a.x)})}), a.x});
                       }),
            rms);
  EXPECT_EQ(Recognized("a quotient",
                       [](Arithmetic& a) {
                         return a.Op("div", {a.x, a.Op("sqrt", {a.Variance(a.x)})});
                       }),
            rms);
  EXPECT_EQ(Recognized("powers",
                       [](Arithmetic& a) {
                         return a.Op("mul", {a.x, a.Op("pow", {a.Variance(a.x), a.Number(-0.5)})});
                       }),
            rms);
  EXPECT_EQ(Recognized("one divided by a root, squares as products, the axis as a number, and epsilon in front",
                       [](Arithmetic& a) {
                         const int mean = a.Mean(a.Op("mul", {a.x, a.x}), 2);
                         const int root = a.Op("pow", {a.Op("add", {a.Number(1e-6), mean}), a.Number(0.5)});
                         return a.Op("mul", {a.x, a.Op("div", {a.Number(1), root})});
                       }),
            rms);
  EXPECT_EQ(Recognized("without epsilon",
                       [](Arithmetic& a) {
                         return a.Op("div", {a.x, a.Op("sqrt", {a.Mean(a.Squares(a.x))})});
                       }),
            rms);
  EXPECT_EQ(Recognized("less the mean",
                       [](Arithmetic& a) {
                         const int centred = a.Centred();
                         return a.Op("div", {centred, a.Op("sqrt", {a.Variance(centred)})});
                       }),
            layer);
  EXPECT_EQ(Recognized("with scale and shift",
                       [](Arithmetic& a) {
                         const int centred = a.Centred();
                         const int normal = a.Op("mul", {centred, a.Op("rsqrt", {a.Variance(centred)})});
                         return a.Op("add", {a.Op("mul", {a.Const({kFeatures}), normal}), a.Const({kFeatures})});
                       }),
            layer);
}

TEST(RecognizeNorms, OtherArithmeticStays) {
  const Found none(0, 0);
  EXPECT_EQ(Recognized("another row",
                       [](Arithmetic& a) {
                         return a.Op("div", {a.In({1, kTokens, kFeatures}), a.Op("sqrt", {a.Variance(a.x)})});
                       }),
            none);
  EXPECT_EQ(Recognized("the row that is not centred",
                       [](Arithmetic& a) {
                         return a.Op("div", {a.x, a.Op("sqrt", {a.Variance(a.Centred())})});
                       }),
            none);
  EXPECT_EQ(Recognized("cubes",
                       [](Arithmetic& a) {
                         const int mean = a.Mean(a.Op("pow", {a.x, a.Number(3)}));
                         return a.Op("mul", {a.x, a.Op("rsqrt", {a.Op("add", {mean, a.Number(2)})})});
                       }),
            none);
  EXPECT_EQ(
      Recognized("another axis",
                 [](Arithmetic& a) {
                   return a.Op("div", {a.x, a.Op("sqrt", {a.Op("add", {a.Mean(a.Squares(a.x), 1), a.Number(1)})})});
                 }),
      none);
  EXPECT_EQ(Recognized("the mean of a mean",
                       [](Arithmetic& a) {
                         const int rows = a.Mean(a.Squares(a.x), -1, 0);  // of 1 x 3: along the rows where it is read
                         return a.Op("div", {a.x, a.Op("sqrt", {a.Op("add", {a.Mean(rows), a.Number(1)})})});
                       }),
            none);
  EXPECT_EQ(Recognized("an epsilon for each row",
                       [](Arithmetic& a) {
                         const int epsilon = a.n.AddConstant("epsilon", Counting({kTokens, 1}));
                         return a.Op("div", {a.x, a.Op("sqrt", {a.Op("add", {a.Mean(a.Squares(a.x)), epsilon})})});
                       }),
            none);
  EXPECT_EQ(Recognized("an epsilon that repeats the rows",
                       [](Arithmetic& a) {
                         Array same(DType::kFloat32, {2, 1, 1});
                         for (int64_t i = 0; i < same.elements(); ++i) same.set(i, 1e-5);
                         const int epsilon = a.n.AddConstant("epsilon", std::move(same));
                         return a.Op("div", {a.x, a.Op("sqrt", {a.Op("add", {a.Mean(a.Squares(a.x)), epsilon})})});
                       }),
            none);
  EXPECT_EQ(
      Recognized("less than nothing",
                 [](Arithmetic& a) {
                   const int square = a.Op("add", {a.Mean(a.Squares(a.Op("add", {a.x, a.Number(3)}))), a.Number(-1)});
                   return a.Op("div", {a.Op("add", {a.x, a.Number(3)}), a.Op("sqrt", {square})});
                 }),
      none);
  EXPECT_EQ(Recognized("a quotient the other way round",
                       [](Arithmetic& a) {
                         return a.Op("div", {a.Op("sqrt", {a.Variance(a.x)}), a.x});
                       }),
            none);
}

}  // namespace
}  // namespace diapason
