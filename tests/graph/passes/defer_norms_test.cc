// Normalizations behind the products that read them: what moves, what stays, and that results are the same.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "../testing.h"
#include "compiler/graph/passes.h"

namespace diapason {
namespace {

constexpr int64_t kRows = 40, kMostRows = 2 * kRows, kWidth = 128;

// x times a matrix plus x, which is normalized: what a layer of a transformer begins with.
struct Layer : GraphBuilder {
  int Product(int x, int64_t from, int64_t to) {
    return Op("add", {Op("matmul", {x, Const({from, to})}), Const({to})});
  }
  int Sum(Ints shape) {
    const int64_t width = shape.back();
    const int x = In(std::move(shape));
    return Op("add", {Op("matmul", {x, Const({width, width})}), x});
  }
  int Norm(int x, bool rms = false, bool shift = true) {
    const int64_t width = n.tensors[x].type.shape.back();
    const int normal = Op("mul", {Op(rms ? "rms_norm" : "layer_norm", {x}), Const({width})});
    return shift ? Op("add", {normal, Const({width})}) : normal;
  }
  Network Half(std::vector<int> outputs) {
    Network network = Out(std::move(outputs));
    EXPECT_TRUE(ConvertToNarrow(network, DType::kFloat16).ok());
    return network;
  }
};

Network Deferred(Network network, int count) {
  EXPECT_EQ(DeferNorms(network, kMostRows), count);
  EXPECT_TRUE(EliminateDeadCode(network).ok());
  return network;
}

TEST(DeferNorms, LayerNormsGoBehindProductsAndIntoAdditions) {
  Layer l;
  const int norm = l.Norm(l.Sum({1, kRows, kWidth}));
  const int wide = l.Op("gelu", {l.Product(norm, kWidth, 192)});
  const int query = l.Op("matmul", {norm, l.Const({kWidth, 64})});
  const int next = l.Op("add", {l.Product(wide, 192, kWidth), norm});
  const Network before = l.Half({query, next}), after = Deferred(before, 1);
  EXPECT_EQ(CountOps(after, "layer_norm"), 0);
  EXPECT_EQ(CountOps(after, "run_sums"), 1);
  EXPECT_EQ(CountOps(after, "normalize_by_sums"), 3);
  // The product with a bias has the shift in it, the other one gets an addition.
  EXPECT_EQ(CountOps(after, "add"), CountOps(before, "add") + 1);
  ExpectSameResults(before, after, 0.2);  // of numbers around 50
  const Partition partition = PartitionNetwork(after).value();
  int with_sums = 0;
  for (const Subgraph& subgraph : partition.subgraphs) {
    if (subgraph.outputs.size() == 1) continue;
    ++with_sums;
    EXPECT_EQ(subgraph.outputs.size(), 2u);
    EXPECT_EQ(subgraph.dag.outputs().size(), 2u);
    EXPECT_TRUE(partition.tasks[subgraph.task].name.ends_with("_sums")) << partition.tasks[subgraph.task].name;
  }
  EXPECT_EQ(with_sums, 1);
}

TEST(DeferNorms, RootMeanSquareNormsHaveNoMean) {
  Layer l;
  const int norm = l.Norm(l.Sum({2, kRows, kWidth}), true, false);
  const Network before = l.Half({l.Op("matmul", {norm, l.Const({kWidth, 64})})}), after = Deferred(before, 1);
  EXPECT_EQ(CountOps(after, "rms_norm"), 0);
  ExpectSameResults(before, after, 2e-2);
}

// One behind the other: the second one's row is a sum with the first one.
TEST(DeferNorms, NormsFollowEachOther) {
  Layer l;
  const int first = l.Norm(l.Sum({kRows, kWidth}));
  const int second = l.Norm(l.Op("add", {l.Op("matmul", {l.In({kRows, kWidth}), l.Const({kWidth, kWidth})}), first}));
  const int product = l.Op("matmul", {second, l.Const({kWidth, 64})});
  const Network before = l.Half({product, l.Op("matmul", {first, l.Const({kWidth, 64})})});
  ExpectSameResults(before, Deferred(before, 2), 4e-2);
}

// As PyTorch exports linear layers: rows of two dimensions, and a bias in the product.
TEST(DeferNorms, ViewsOfRowsAndProductsWithABiasAreNoObstacle) {
  Layer l;
  const auto view = [&](int x, Ints shape) { return l.Op("reshape", {x}, {{"shape", std::move(shape)}}); };
  const auto linear = [&](int x, int64_t from, int64_t to) {
    return l.Op("gemm", {x, l.Const({from, to}), l.Const({to})});
  };
  const int rows = view(l.Sum({1, kRows, kWidth}), {kRows, kWidth});
  const int norm = l.Norm(rows);
  const int wide = l.Op("relu", {linear(norm, kWidth, 192)});
  const int sum = view(l.Op("add", {linear(wide, 192, kWidth), rows}), {1, kRows, kWidth});
  const int result = l.Product(l.Norm(sum), kWidth, 64);
  const Network before = l.Half({result}), after = Deferred(before, 2);
  EXPECT_EQ(CountOps(after, "layer_norm"), 0);
  ExpectSameResults(before, after, 0.2);
  int with_sums = 0;
  const Partition partition = PartitionNetwork(after).value();
  for (const Subgraph& subgraph : partition.subgraphs) with_sums += subgraph.outputs.size() == 2;
  EXPECT_EQ(with_sums, 2) << "both are made with the rows";
}

// The sums are there once.
TEST(DeferNorms, TwoNormsOfARowShareItsSums) {
  Layer l;
  const int sum = l.Sum({kRows, kWidth});
  const int first = l.Op("matmul", {l.Norm(sum), l.Const({kWidth, 64})});
  const int second = l.Op("matmul", {l.Norm(sum), l.Const({kWidth, 64})});
  const Network before = l.Half({first, second}), after = Deferred(before, 2);
  EXPECT_EQ(CountOps(after, "run_sums"), 1);
  ExpectSameResults(before, after, 4e-2);
}

TEST(DeferNorms, OthersStay) {
  const auto stays = [](const std::string& why, const std::function<int(Layer&)>& make, bool half = true) {
    SCOPED_TRACE(why);
    Layer l;
    const int result = make(l);
    Network network = half ? l.Half({result}) : l.Out({result});
    EXPECT_EQ(DeferNorms(network, why == "a transposed row" ? kWidth : kMostRows), 0);
    EXPECT_EQ(CountOps(network, "run_sums"), 0);
  };
  const auto product = [](Layer& l, int norm) { return l.Op("matmul", {norm, l.Const({kWidth, 64})}); };
  stays(
      "float32",
      [&](Layer& l) {
        return product(l, l.Norm(l.Sum({kRows, kWidth})));
      },
      false);
  stays("few rows", [&](Layer& l) { return product(l, l.Norm(l.Sum({1, kWidth}))); });
  stays("more rows than are wanted", [&](Layer& l) { return product(l, l.Norm(l.Sum({3, kRows, kWidth}))); });
  stays("no whole runs", [&](Layer& l) { return l.Op("matmul", {l.Norm(l.Sum({kRows, 96})), l.Const({96, 64})}); });
  stays("of no product", [&](Layer& l) { return product(l, l.Norm(l.In({kRows, kWidth}))); });
  stays("given out", [&](Layer& l) { return l.Norm(l.Sum({kRows, kWidth})); });
  stays("read by others", [&](Layer& l) {
    const int norm = l.Norm(l.Sum({kRows, kWidth}));
    return l.Op("add", {l.Op("softmax", {norm}), l.Op("matmul", {norm, l.Const({kWidth, kWidth})})});
  });
  stays("a transposed row", [&](Layer& l) {
    return l.Op("gemm", {l.Norm(l.Sum({kWidth, kWidth}), false), l.Const({kWidth, 64})}, {{"trans_a", int64_t{1}}});
  });
  stays("a bias for each row", [&](Layer& l) {
    return l.Op("gemm", {l.Norm(l.Sum({kRows, kWidth})), l.Const({kWidth, 64}), l.Const({kRows, 1})});
  });
  stays("both factors are computed", [&](Layer& l) {
    return l.Op("matmul", {l.Norm(l.Sum({kRows, kWidth})), l.In({kWidth, 64})});
  });
}

}  // namespace
}  // namespace diapason
