// GPU loop nests built by hand: each uses one feature of the GPU dialects.
#pragma once

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/codegen/kernels.h"

namespace diapason::testing {

inline Stmt BlockLoop(const Expr& var, int64_t extent, Stmt body) {
  return MakeFor(ForKind::kBlockX, var, extent, std::move(body));
}
inline Stmt ThreadLoop(const Expr& var, int64_t extent, Stmt body) {
  return MakeFor(ForKind::kThreadX, var, extent, std::move(body));
}

// C[rows, 64] = max(A[rows, depth] * B[depth, 64] + bias[64], 0): tiles of 32 x 32 in shared memory, copied together in
// vectors, 4 x 4 accumulators a thread, rows that need not divide by the tile.
inline KernelFunc SharedGemm(int64_t rows, int64_t depth, DType dtype = DType::kFloat32) {
  constexpr int64_t kTile = 32, kDepth = 8, kThreads = 64, kColumns = 64;
  const Expr b = MakeVar("b"), t = MakeVar("t"), k0 = MakeVar("k0"), k = MakeVar("k"), i = MakeVar("i"),
             j = MakeVar("j"), l = MakeVar("l"), l2 = MakeVar("l"), l3 = MakeVar("l");
  const Expr row0 = Mul(FloorDiv(b, kColumns / kTile), I(kTile)),
             column0 = Mul(FloorMod(b, kColumns / kTile), I(kTile));
  const Expr ty = FloorDiv(t, 8), tx = FloorMod(t, 8);
  // 256 elements of each tile, four a thread.
  const Expr a_at = Mad(t, 4, l), a_row = Add(row0, FloorDiv(a_at, kDepth));
  const Expr a_load = At(0, Add(Mul(a_row, I(depth)), Add(Mul(k0, I(kDepth)), FloorMod(a_at, kDepth))), dtype);
  const Stmt copy_a = Vectorize(l, 4, MakeStore(10, a_at, Select(Lt(a_row, I(rows)), a_load, FloatImm(0, dtype))));
  const Expr b_at = Mad(t, 4, l2);
  const Expr b_load =
      At(1, Add(Mul(Add(Mul(k0, I(kDepth)), FloorDiv(b_at, kTile)), I(kColumns)), Add(column0, FloorMod(b_at, kTile))),
         dtype);
  const Stmt copy_b = Vectorize(l2, 4, MakeStore(11, b_at, b_load));
  const Expr acc = Mad(i, 4, j);
  const Expr product =
      Mul(At(10, Add(Mul(Mad(ty, 4, i), I(kDepth)), k), dtype), At(11, Add(Mul(k, I(kTile)), Mad(tx, 4, j)), dtype));
  const Stmt multiply =
      Unroll(k, kDepth, Unroll(i, 4, Unroll(j, 4, MakeStore(12, acc, Add(At(12, acc, dtype), product)))));
  const Stmt loop = Serial(k0, depth / kDepth, MakeSeq({MakeBarrier(), copy_a, copy_b, MakeBarrier(), multiply}));
  const Stmt clear = Unroll(i, 4, Unroll(j, 4, MakeStore(12, acc, FloatImm(0, dtype))));
  const Expr row = Add(row0, Mad(ty, 4, i)), column = Add(column0, Mad(tx, 4, l3));
  const Expr sum = Max(Add(At(12, Mad(i, 4, l3), dtype), At(3, column, dtype)), FloatImm(0, dtype));
  const Stmt write =
      Unroll(i, 4, MakeIf(Lt(row, I(rows)), Vectorize(l3, 4, MakeStore(2, Mad(row, kColumns, column), sum))));
  Stmt body = MakeAlloc(Scoped(12, "acc", 16, Scope::kLocal, dtype), MakeSeq({clear, loop, write}));
  body = MakeAlloc(Scoped(10, "As", kTile * kDepth, Scope::kShared, dtype),
                   MakeAlloc(Scoped(11, "Bs", kTile * kDepth, Scope::kShared, dtype), body));
  const int64_t blocks = (rows + kTile - 1) / kTile * (kColumns / kTile);
  return KernelOf("gemm",
                  {Global(0, "A", rows * depth, false, dtype), Global(1, "B", depth * kColumns, false, dtype),
                   Global(2, "C", rows * kColumns, true, dtype), Global(3, "bias", kColumns, false, dtype)},
                  BlockLoop(b, blocks, ThreadLoop(t, kThreads, body)), blocks, kThreads);
}

// Y[b] = sum of 1,000 elements of row b: each thread its part, then a tree over shared memory.
inline KernelFunc TreeSum() {
  constexpr int64_t kThreads = 64, kRow = 1000;
  const Expr b = MakeVar("b"), t = MakeVar("t"), k = MakeVar("k");
  const Expr at = Mad(k, kThreads, t);
  std::vector<Stmt> steps = {
      MakeStore(11, I(0), F(0)),
      Serial(k, 16, MakeStore(11, I(0), Add(At(11, I(0)), Select(Lt(at, I(kRow)), At(0, Mad(b, kRow, at)), F(0))))),
      MakeStore(10, t, At(11, I(0)))};
  for (int64_t half = kThreads / 2; half > 0; half /= 2) {
    steps.push_back(MakeBarrier());
    steps.push_back(MakeIf(Lt(t, I(half)), MakeStore(10, t, Add(At(10, t), At(10, Add(t, I(half)))))));
  }
  steps.push_back(MakeIf(Eq(t, I(0)), MakeStore(1, b, At(10, I(0)))));
  Stmt body = MakeAlloc(Scoped(10, "parts", kThreads, Scope::kShared),
                        MakeAlloc(Scoped(11, "sum", 1, Scope::kLocal), MakeSeq(steps)));
  return KernelOf("tree_sum", {Global(0, "X", 5 * kRow), Global(1, "Y", 5, true)},
                  BlockLoop(b, 5, ThreadLoop(t, kThreads, body)), 5, kThreads);
}

// Rows reversed through `elements` floats of shared memory a block.
inline KernelFunc ThroughShared(int64_t elements) {
  constexpr int64_t kThreads = 128;
  const Expr b = MakeVar("b"), t = MakeVar("t"), k = MakeVar("k"), t2 = MakeVar("t"), k2 = MakeVar("k");
  const Expr in = Mad(k, kThreads, t), out = Mad(k2, kThreads, t2);
  const Stmt copy =
      ThreadLoop(t, kThreads, Serial(k, elements / kThreads, MakeStore(10, in, At(0, Mad(b, elements, in))), 2));
  const Stmt back = ThreadLoop(
      t2, kThreads,
      Serial(k2, elements / kThreads, MakeStore(1, Mad(b, elements, out), At(10, Sub(I(elements - 1), out)))));
  return KernelOf(
      "through_shared", {Global(0, "X", 2 * elements), Global(1, "Y", 2 * elements, true)},
      BlockLoop(b, 2, MakeAlloc(Scoped(10, "tile", elements, Scope::kShared), MakeSeq({copy, MakeBarrier(), back}))), 2,
      kThreads);
}

// Elements of ThroughShared with as much shared memory as may be static, and with the least that is dynamic on cuda.
inline constexpr int64_t kMostStaticElements = kMaxStaticSharedBytes / 4,
                         kLeastDynamicElements = kMostStaticElements + 128;

// Y[i] = value for each of 32 threads of 8 blocks, `lanes` at a time, from X[offset] on.
struct LaneTypes {
  DType from = DType::kFloat32, to = DType::kFloat32;
};
inline KernelFunc LanesOnGpu(std::string name, int64_t lanes,
                             const std::function<Expr(const Expr& at, const Expr& l)>& value,
                             const LaneTypes& types = {}, int64_t offset = 0) {
  const auto& [from, to] = types;
  const Expr b = MakeVar("b"), t = MakeVar("t"), l = MakeVar("l");
  const Expr at = Add(Mad(Mad(b, 32, t), lanes, l), I(offset));
  return KernelOf(
      std::move(name),
      {Global(0, "X", 4096, false, from), Global(1, "Y", 256 * lanes + offset, true, to), Global(2, "Z", 4096)},
      BlockLoop(b, 8, ThreadLoop(t, 32, Vectorize(l, lanes, MakeStore(1, at, value(at, l))))), 8, 32);
}

// Y[i] = 2 X[i] for each of 32 threads of 8 blocks, through registers that hold `lanes` elements as they are in memory.
inline KernelFunc ThroughPacked(int64_t lanes, DType dtype) {
  constexpr int kPacked = 3;
  const Expr b = MakeVar("b"), t = MakeVar("t"), l = MakeVar("l"), m = MakeVar("m");
  BufferDecl packed = Scoped(kPacked, "packed", lanes, Scope::kLocal, dtype);
  packed.packed = true;
  const Expr first = Mul(Mad(b, 32, t), I(lanes));
  const Stmt load = Vectorize(l, lanes, MakeStore(kPacked, l, At(0, Add(first, l), dtype)));
  const Stmt store =
      Unroll(m, lanes, MakeStore(1, Add(first, m), Mul(Cast(DType::kFloat32, At(kPacked, m, dtype)), F(2))));
  return KernelOf(absl::StrCat("packed_", NameOf(dtype), lanes),
                  {Global(0, "X", 4096, false, dtype), Global(1, "Y", 256 * lanes, true)},
                  BlockLoop(b, 8, ThreadLoop(t, 32, MakeAlloc(packed, MakeSeq({load, store})))), 8, 32);
}

// Activations of a number as they are written in networks: functions in a product.
inline Expr Activation(const std::string& function, const Expr& x) {
  if (function == "gelu") return Mul(Mul(x, F(0.5)), Add(Call("erf", {Mul(x, F(std::sqrt(0.5)))}), F(1)));
  if (function == "gelu_tanh") {
    const Expr inner = Mul(Add(x, Mul(Mul(Mul(x, x), x), F(0.044715))), F(std::sqrt(2 / std::acos(-1.0))));
    return Mul(Mul(x, F(0.5)), Add(Call("tanh", {inner}), F(1)));
  }
  const Expr called = Call(function, {x});
  return function == "sigmoid" ? Mul(x, called) : Mul(Mul(x, F(0.5)), Add(called, F(1)));
}

inline std::vector<KernelFunc> AllGpuKernels() {
  std::vector<KernelFunc> all = {
      SharedGemm(50, 32), SharedGemm(64, 8),  SharedGemm(50, 32, DType::kFloat16), SharedGemm(50, 32, DType::kBfloat16),
      TreeSum(),          ThroughShared(1024)};
  auto copy = [](const Expr& at, const Expr&) { return At(0, at); };
  all.push_back(LanesOnGpu("copy4", 4, copy));
  all.push_back(LanesOnGpu("copy8", 8, copy));
  all.push_back(LanesOnGpu("copy2", 2, copy));
  all.push_back(LanesOnGpu("copy3", 3, copy));
  all.push_back(LanesOnGpu("unaligned", 4, copy, {}, 1));
  for (int64_t lanes : {2, 4, 8, 16}) {
    auto same = [&](DType dtype) {
      return LanesOnGpu(std::string("copy_") + NameOf(dtype) + std::to_string(lanes), lanes,
                        [=](const Expr& at, const Expr&) { return At(0, at, dtype); }, {.from = dtype, .to = dtype});
    };
    for (DType dtype :
         {DType::kFloat16, DType::kBfloat16, DType::kInt8, DType::kInt32, DType::kInt64, DType::kBool, DType::kUint8})
      all.push_back(same(dtype));
  }
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (int64_t lanes : {2, 4, 8}) all.push_back(ThroughPacked(lanes, dtype));
    all.push_back(LanesOnGpu(std::string("widen_") + NameOf(dtype), 4,
                             [=](const Expr& at, const Expr&) { return Cast(DType::kFloat32, At(0, at, dtype)); },
                             {.from = dtype}));
    all.push_back(LanesOnGpu(std::string("narrow_") + NameOf(dtype), 4,
                             [=](const Expr& at, const Expr&) { return Cast(dtype, At(0, at)); }, {.to = dtype}));
    for (const char* function : {"sigmoid", "tanh", "erf", "gelu", "gelu_tanh"})
      all.push_back(LanesOnGpu(
          absl::StrCat("narrow_", function, "_", NameOf(dtype)), 4,
          [=](const Expr& at, const Expr&) { return Cast(dtype, Activation(function, Mul(At(0, at), F(2)))); },
          {.to = dtype}));
  }
  for (DType dtype : {DType::kInt8, DType::kUint8})
    all.push_back(LanesOnGpu(std::string("outside_") + NameOf(dtype), 4,
                             [=](const Expr& at, const Expr&) { return Cast(dtype, Mul(At(0, at), F(1000))); },
                             {.to = dtype}));
  all.push_back(LanesOnGpu("to_int", 4, [](const Expr& at, const Expr&) { return Cast(DType::kInt32, At(0, at)); },
                           {.to = DType::kInt32}));
  all.push_back(LanesOnGpu("gather_long", 1,
                           [](const Expr& at, const Expr&) {
                             return At(2,
                                       Add(FloorMod(At(0, at, DType::kInt64), 7), Max(At(0, at, DType::kInt64), I(3))));
                           },
                           {.from = DType::kInt64}));
  all.push_back(
      LanesOnGpu("padded", 4, [](const Expr& at, const Expr&) { return Select(Lt(at, I(512)), At(0, at), F(0)); }));
  all.push_back(
      LanesOnGpu("ragged", 4, [](const Expr& at, const Expr&) { return Select(Lt(at, I(511)), At(0, at), F(0)); }));
  all.push_back(
      LanesOnGpu("strided", 4, [](const Expr& at, const Expr& l) { return Add(At(0, Mul(at, I(2))), At(2, l)); }));
  all.push_back(LanesOnGpu("divided", 4, [](const Expr& at, const Expr&) {
    return At(0, Add(FloorDiv(Sub(at, I(100)), 7), Add(FloorMod(Sub(at, I(50)), 9), I(40))));
  }));
  all.push_back(LanesOnGpu("mixed", 4, [](const Expr& at, const Expr&) {
    return Max(Add(At(0, at), Mul(At(2, at), F(0.25))), Min(At(0, Add(at, I(4))), F(INFINITY)));
  }));
  all.push_back(LanesOnGpu("branches", 4, [](const Expr& at, const Expr&) {
    return Select(Lt(At(0, at), F(0)), At(2, at), At(2, Add(at, I(1))));
  }));
  for (const char* function :
       {"exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "abs", "floor", "ceil", "round"})
    all.push_back(LanesOnGpu(std::string("call_") + function, 4,
                             [=](const Expr& at, const Expr&) { return Call(function, {Add(At(0, at), F(5))}); }));
  all.push_back(LanesOnGpu("call_pow", 4, [](const Expr& at, const Expr&) {
    return Call("pow", {Add(At(0, at), F(5)), At(2, at)});
  }));
  for (size_t i = 0; i < all.size(); ++i) all[i].name += "_" + std::to_string(i);
  return all;
}

}  // namespace diapason::testing
