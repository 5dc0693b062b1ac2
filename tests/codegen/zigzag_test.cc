#include "compiler/codegen/zigzag.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace diapason {
namespace {

constexpr int kSums = 0, kA = 1, kB = 2;

struct Case {
  int64_t m = 8, n = 4, k = 2;
  int64_t a_m = 16, a_k = 1, b_n = 1, b_k = 32;  // strides
  bool times_n = false;                          // a moves with n too
  ForKind kind = ForKind::kUnroll;
};

// acc[m * N + n] += a[..] * b[..] in the order m, k, n.
class Nest {
 public:
  explicit Nest(const Case& c) : m_(MakeVar("m")), n_(MakeVar("n")), k_(MakeVar("k")) {
    analyzer.Bind(m_, c.m);
    analyzer.Bind(n_, c.n);
    analyzer.Bind(k_, c.k);
    const Expr place = Add(Mul(m_, IntImm(c.n)), n_);
    Expr a_at = Add(Mul(m_, IntImm(c.a_m)), Mul(k_, IntImm(c.a_k)));
    if (c.times_n) a_at = Add(a_at, n_);
    const Expr b_at = Add(Mul(n_, IntImm(c.b_n)), Mul(k_, IntImm(c.b_k)));
    const Expr product = Mul(Load(kA, DType::kFloat32, {a_at}), Load(kB, DType::kFloat32, {b_at}));
    Stmt body = MakeStore(kSums, place, Add(Load(kSums, DType::kFloat32, {place}), product));
    body = MakeFor(ForKind::kUnroll, n_, c.n, body);
    body = MakeFor(c.kind, k_, c.k, body);
    stmt = MakeFor(ForKind::kUnroll, m_, c.m, body);
  }
  Analyzer analyzer;
  Stmt stmt;

 private:
  Expr m_, n_, k_;
};

// "k m n_t n": loops and lets from the outside to the inside.
std::string OrderOf(const Stmt& stmt) {
  std::string order;
  for (const StmtNode* node = stmt.get(); node->kind != StmtKind::kStore; node = node->body[0].get())
    order += (order.empty() ? "" : " ") + node->var->name;
  return order;
}

std::string OrderAfter(const Case& c) {
  Nest nest(c);
  return OrderOf(ZigzagProducts(nest.stmt, nest.analyzer));
}

// Where a product is made: the values of m, n and k, in the order of execution.
void Execute(const StmtNode& node, VarMap values, std::vector<std::vector<int64_t>>* places) {
  Analyzer analyzer;
  const auto value = [&](const Expr& e) { return analyzer.Simplify(Substitute(e, values)); };
  if (node.kind == StmtKind::kFor) {
    for (int64_t i = 0; i < node.extent; ++i) {
      values[node.var.get()] = IntImm(i);
      Execute(*node.body[0], values, places);
    }
  } else if (node.kind == StmtKind::kLet) {
    values[node.var.get()] = value(node.value);
    Execute(*node.body[0], values, places);
  } else {
    const ExprNode& product = *node.value->args[1];
    places->push_back({value(node.index)->value, value(product.args[0]->args[0])->value, value(product.args[1]->args[0])->value});
  }
}

TEST(Zigzag, TheSideAlongKIsInside) {
  EXPECT_EQ(OrderAfter({}), "k n m_t m");
  EXPECT_EQ(OrderAfter({.a_k = 8, .b_n = 8, .b_k = 1}), "k m n_t n");
}

TEST(Zigzag, ElseTheShorterSide) {
  EXPECT_EQ(OrderAfter({.m = 8, .n = 4, .a_k = 8}), "k m n_t n");
  EXPECT_EQ(OrderAfter({.m = 4, .n = 8, .a_k = 8}), "k n m_t m");
}

// Every product once, those of a sum in the order of k, and from one to the next one factor stays unless k moves.
TEST(Zigzag, OnlyOneFactorChanges) {
  for (const Case& c : {Case{}, Case{.m = 5, .n = 6, .k = 3}, Case{.m = 4, .n = 12, .a_k = 8}}) {
    Nest nest(c);
    std::vector<std::vector<int64_t>> before, after;
    Execute(*nest.stmt, {}, &before);
    Execute(*ZigzagProducts(nest.stmt, nest.analyzer), {}, &after);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 1; i < after.size(); ++i) {
      if (static_cast<int64_t>(i) % (c.m * c.n) == 0) continue;
      EXPECT_TRUE(after[i][1] == after[i - 1][1] || after[i][2] == after[i - 1][2]) << i;
    }
    const auto by_sum = [](const auto& p, const auto& q) { return p[0] < q[0]; };
    std::stable_sort(before.begin(), before.end(), by_sum);
    std::stable_sort(after.begin(), after.end(), by_sum);
    EXPECT_EQ(after, before);
  }
}

TEST(Zigzag, OtherNestsStayAsTheyAre) {
  EXPECT_EQ(OrderAfter({.times_n = true}), "m k n");                // n is in both factors
  EXPECT_EQ(OrderAfter({.kind = ForKind::kSerial}), "m k n");       // not unrolled
  EXPECT_EQ(OrderAfter({.m = 2}), "m k n");                         // few sums
  Nest nest({});
  EXPECT_EQ(ZigzagProducts(nullptr, nest.analyzer), nullptr);
}

}  // namespace
}  // namespace diapason
