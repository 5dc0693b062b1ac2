#include "compiler/tensor/serialize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "diapason/v1/program.pb.h"
#include "tests/tensor/dags.h"

namespace diapason {
namespace {

using testing_dags::ConvBiasRelu;
using testing_dags::Matmul;

TEST(Serialize, RoundTripGivesTheSameDagAndTheSameBytes) {
  for (const ComputeDag& dag : {Matmul(4, 5, 6), ConvBiasRelu({8, 3, 4, 3, 2, 1})}) {
    const std::string bytes = SerializeDag(dag);
    const auto back = ParseDag(bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->ToString(), dag.ToString());
    EXPECT_EQ(back->workload_key(), dag.workload_key());
    EXPECT_EQ(SerializeDag(*back), bytes);
  }
}

TEST(Serialize, BytesDoNotDependOnSharingOfNodes) {
  auto build = [](bool shared) {
    DagBuilder b;
    const int x = b.Placeholder("x", {8});
    const int y = b.Compute("y", {8}, [&](auto& i) {
      const Expr once = Call("exp", {b.At(x, {i[0]})});
      return Mul(once, shared ? once : Call("exp", {b.At(x, {i[0]})}));
    });
    return b.Build({y}).value();
  };
  EXPECT_EQ(SerializeDag(build(true)), SerializeDag(build(false)));
}

TEST(Serialize, KeepsEveryFieldAndSpecialFloats) {
  DagBuilder b;
  const int table = b.Constant("table", {10}, DType::kFloat16);
  const int index = b.Placeholder("index", {4}, DType::kInt64);
  b.stage(index).valid_min = -3;
  b.stage(index).valid_max = 9;
  const int picked = b.Compute("picked", {4}, [&](auto& i) { return b.At(table, {b.At(index, {i[0]})}); });
  b.stage(picked).unroll_axes = {"i0"};
  const int top = b.Reduce("top", {1}, {4}, Combiner::kMax, [&](auto&, auto& r) {
    return Max(b.At(picked, {r[0]}), FloatImm(-INFINITY, DType::kFloat16));
  });
  const int out = b.Compute("out", {1}, [&](auto& i) {
    return Select(Lt(b.At(top, i), FloatImm(0, DType::kFloat16)), FloatImm(-0.0, DType::kFloat16),
                  FloatImm(NAN, DType::kFloat16));
  });
  const ComputeDag dag = b.Build({out, top}).value();
  const ComputeDag back = ParseDag(SerializeDag(dag)).value();
  EXPECT_EQ(back.ToString(), dag.ToString());
  EXPECT_EQ(back.outputs(), dag.outputs());
  EXPECT_EQ(back.stage(index).valid_min, -3);
  EXPECT_EQ(back.stage(index).valid_max, 9);
  EXPECT_TRUE(back.stage(table).constant);
  EXPECT_EQ(back.stage(picked).unroll_axes, std::vector<std::string>{"i0"});
  EXPECT_TRUE(std::signbit(back.stage(out).body->args[1]->fvalue));
  EXPECT_TRUE(std::isnan(back.stage(out).body->args[2]->fvalue));
}

TEST(Serialize, CutOffBytesAreAnErrorOrAValidDag) {
  const std::string bytes = SerializeDag(ConvBiasRelu({8, 3, 4, 3, 1, 1}));
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto dag = ParseDag(bytes.substr(0, length));
    EXPECT_FALSE(dag.ok()) << "a prefix of " << length << " bytes was accepted";
  }
}

TEST(Serialize, FlippedBytesNeverCrash) {
  const std::string bytes = SerializeDag(ConvBiasRelu({8, 3, 4, 3, 1, 1}));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      const auto dag = ParseDag(damaged);
      if (!dag.ok()) continue;
      dag->ToString();  // what is accepted can be worked with
      dag->workload_key();
      dag->flops();
    }
  }
}

TEST(Serialize, RandomBytesNeverCrash) {
  std::mt19937 random(7);
  const std::string bytes = SerializeDag(Matmul(4, 5, 6));
  for (int trial = 0; trial < 20000; ++trial) {
    std::string damaged = bytes;
    for (int n = 1 + static_cast<int>(random() % 6); n > 0; --n)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto dag = ParseDag(damaged);
    if (dag.ok()) dag->workload_key();
  }
}

TEST(Serialize, RefusesANewerVersion) {
  v1::ComputeDag message;
  message.set_version(2);
  EXPECT_EQ(
      ParseDag(message.SerializeAsString()).status().ToString(),
      "INVALID_ARGUMENT: the tensor program has format version 2, this program reads up to 1: use a newer diapason");
}

TEST(Serialize, RefusesTreesThatAreExponentiallyLarge) {
  v1::ComputeDag message;
  message.set_version(1);
  message.add_nodes()->set_kind(static_cast<uint32_t>(ExprKind::kIntImm));
  message.mutable_nodes(0)->set_dtype(static_cast<uint32_t>(DType::kInt64));
  for (uint32_t i = 0; i < 60; ++i) {
    v1::Expr& sum = *message.add_nodes();
    sum.set_kind(static_cast<uint32_t>(ExprKind::kAdd));
    sum.set_dtype(static_cast<uint32_t>(DType::kInt64));
    sum.add_args(i);
    sum.add_args(i);
  }
  EXPECT_EQ(ParseDag(message.SerializeAsString()).status().ToString(),
            "DATA_LOSS: the stored tensor program is damaged: an expression is too large");
}

}  // namespace
}  // namespace diapason
