#include "compiler/codegen/byte_dots.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/codegen/passes.h"
#include "compiler/tensor/processor.h"

namespace diapason {
namespace {

// The index at lane 0 and byte 0 if it moves by one with the byte and by so many elements with the lane; else null.
Expr Base(const Expr& index, const Expr& byte, const Expr& lane, int64_t per_lane, Analyzer& analyzer) {
  const Stride bytes = StrideOf(index, byte, analyzer);
  if (!bytes.affine || bytes.stride != 1) return nullptr;
  const Stride lanes = StrideOf(bytes.base, lane, analyzer);
  return lanes.affine && lanes.stride == per_lane ? lanes.base : nullptr;
}

// `fits`: what is asked of the vector loops besides.
bool HoldDots(const Expr& byte, const Stmt& stmt, Analyzer& analyzer, bool (*fits)(const StmtNode& vector_loop)) {
  switch (stmt->kind) {
    case StmtKind::kSeq:
      return std::all_of(stmt->body.begin(), stmt->body.end(),
                         [&](const Stmt& child) { return HoldDots(byte, child, analyzer, fits); });
    case StmtKind::kIf: return !UsesVar(stmt->condition, byte.get()) && HoldDots(byte, stmt->body[0], analyzer, fits);
    case StmtKind::kFor:
      return stmt->for_kind == ForKind::kVectorize && fits(*stmt) && FindByteDot(byte, *stmt, analyzer).has_value();
    default: return false;
  }
}

bool AnyLanes(const StmtNode& /*vector_loop*/) { return true; }
bool AsFunctionsHaveThem(const StmtNode& loop) {
  const bool lanes = loop.extent == 4 || loop.extent == 8 || loop.extent == 16;
  return lanes && loop.body[0]->kind == StmtKind::kStore;
}

// The even or odd bytes of a vector as 16-bit integers.
std::string Words(const std::string& bytes, bool is_signed, bool even) {
  if (is_signed) return even ? "(s16x{W})((u16x{W})" + bytes + " << 8) >> 8" : "(s16x{W})" + bytes + " >> 8";
  return "(s16x{W})((u16x{W})" + bytes + (even ? " & 255)" : " >> 8)");
}

// Byte q of each lane as an int.
std::string ByteOfLanes(const std::string& bytes, bool is_signed, int q) {
  if (is_signed) return absl::StrCat("(", bytes, " << ", 24 - 8 * q, " >> 24)");
  return absl::StrCat("(", bytes, " >> ", 8 * q, " & 255)");
}

// vpdpbusd takes unsigned by signed bytes. Others are moved by 128, and what that adds is taken off again.
std::string ByDots(bool left_signed, bool right_signed) {
  if (!left_signed && right_signed) return "{V}_dots(sum, x, y)";
  if (left_signed && !right_signed) return "{V}_dots(sum, y, x)";
  const std::string by128 = "{V}_set((int)0x80808080)", zero = "({V}){0}";
  if (left_signed) return "{V}_dots(sum, x ^ " + by128 + ", y) - {V}_dots(" + zero + ", " + by128 + ", y)";
  return "{V}_dots(sum, x, y ^ " + by128 + ") - {V}_dots(" + zero + ", x, " + by128 + ")";
}

// ARM's instruction, whose first factor is the unsigned one where only one is.
std::string ByArm(bool left_signed, bool right_signed) {
  const bool mixed = left_signed != right_signed;
  const std::string name = mixed ? "usdot" : left_signed ? "sdot" : "udot";
  const std::string factors = left_signed && mixed ? "\"w\"(y), \"w\"(x)" : "\"w\"(x), \"w\"(y)";
  return std::string("#elif defined(") + (mixed ? "__ARM_FEATURE_MATMUL_INT8" : "__ARM_FEATURE_DOTPROD") +
         ")\n  asm(\"" + name + " %0.4s, %1.16b, %2.16b\" : \"+w\"(sum) : " + factors + ");\n  return sum;\n";
}

// vpdpbusd by GCC's own function, or else by `assembly`: GCC 12 may keep sums that assembly changes in memory.
std::string DotsFunction(const std::string& assembly) {
  return R"(
static inline {V} {V}_dots({V} sum, {V} u, {V} s) {
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#if __has_builtin(__builtin_ia32_vpdpbusd_v{N}si)
  return __builtin_ia32_vpdpbusd_v{N}si(sum, u, s);
#else
  )" + assembly +
         R"(
  return sum;
#endif
}
#define {V}_HAS_DOTS
)";
}

// {V} vector of int, {N} lanes, {W} 16-bit integers, {B} bytes.
std::string Filled(const std::string& text, int64_t lanes) {
  return absl::StrReplaceAll(text, {{"{V}", absl::StrCat("i32x", lanes)},
                                    {"{N}", absl::StrCat(lanes)},
                                    {"{W}", absl::StrCat(2 * lanes)},
                                    {"{B}", absl::StrCat(4 * lanes)}});
}

}  // namespace

std::optional<ByteDot> FindByteDot(const Expr& byte, const StmtNode& vector_loop, Analyzer& analyzer) {
  Stmt store = vector_loop.body[0];
  while (store->kind == StmtKind::kIf && !UsesVar(store->condition, byte.get())) store = store->body[0];
  const Expr& lane = vector_loop.var;
  if (store->kind != StmtKind::kStore || store->value->dtype != DType::kInt32 || store->value->kind != ExprKind::kAdd ||
      UsesVar(store->index, byte.get()))
    return std::nullopt;
  Expr sum = store->value->args[0], product = store->value->args[1];
  if (sum->kind != ExprKind::kLoad) std::swap(sum, product);
  if (sum->kind != ExprKind::kLoad || sum->buffer != store->buffer || !Equal(sum->args[0], store->index) ||
      product->kind != ExprKind::kMul)
    return std::nullopt;
  const Stride to = StrideOf(store->index, lane, analyzer);
  if (!to.affine || to.stride != 1) return std::nullopt;
  ByteDot dot{store.get(), sum, ByteFactor(product->args[0]), ByteFactor(product->args[1]), nullptr, nullptr};
  if (dot.left == nullptr || dot.right == nullptr) return std::nullopt;
  if (UsesVar(dot.left->args[0], lane.get())) std::swap(dot.left, dot.right);
  dot.left_at = Base(dot.left->args[0], byte, lane, 0, analyzer);
  dot.right_at = Base(dot.right->args[0], byte, lane, kDotBytes, analyzer);
  if (dot.left_at == nullptr || dot.right_at == nullptr) return std::nullopt;
  return dot;
}

Stmt KeepByteDots(const Stmt& stmt, Analyzer& analyzer) {
  if (stmt == nullptr || stmt->body.empty()) return stmt;
  if (stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kUnroll && stmt->extent == kDotBytes &&
      HoldDots(stmt->var, stmt->body[0], analyzer, AnyLanes))
    return MakeFor(ForKind::kSerial, stmt->var, stmt->extent, stmt->body[0]);
  auto copy = std::make_shared<StmtNode>(*stmt);
  for (Stmt& child : copy->body) child = KeepByteDots(child, analyzer);
  return copy;
}

bool HoldsByteDots(const StmtNode& loop, Analyzer& analyzer) {
  return loop.kind == StmtKind::kFor && loop.for_kind == ForKind::kSerial && loop.extent == kDotBytes &&
         HoldDots(loop.var, loop.body[0], analyzer, AsFunctionsHaveThem);
}

ByteDotFunctions ByteDotFunctionsFor(bool left_signed, bool right_signed, int64_t lanes) {
  ByteDotFunctions f;
  f.types = R"(typedef short s16x{W} __attribute__((vector_size({B})));
typedef unsigned short u16x{W} __attribute__((vector_size({B})));)";
  f.dots_name = "{V}_dots";
  const std::string evex = lanes == 16 ? "defined(__AVX512VNNI__)" : "defined(__AVX512VNNI__) && defined(__AVX512VL__)";
  f.dots = "#if " + evex + DotsFunction(R"(asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s));)");
  if (lanes < 16) {
    f.dots += "#elif defined(__AVXVNNI__)" +
              DotsFunction(R"(asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(u), "x"(s));)");
  }
  f.dots += "#endif";
  f.pairs_name = "{V}_pairs";
  const std::string avx = lanes == 16 ? "__AVX512BW__" : lanes == 8 ? "__AVX2__" : "__AVX__";
  f.pairs = "#ifdef " + avx + R"(
static inline {V} {V}_pairs(s16x{W} a, s16x{W} b) {
  {V} r;
  asm("vpmaddwd %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
  return r;
}
#define {V}_HAS_PAIRS
)";
  if (lanes == 4) {
    f.pairs += R"(#elif defined(__SSE2__)
static inline {V} {V}_pairs(s16x{W} a, s16x{W} b) {
  asm("pmaddwd %1, %0" : "+x"(a) : "x"(b));
  return ({V})a;
}
#define {V}_HAS_PAIRS
)";
  }
  f.pairs += "#endif";
  f.name = absl::StrCat("{V}_sum_", left_signed ? "i8" : "u8", right_signed ? "i8" : "u8");
  f.text = "static inline {V} " + f.name + R"(({V} sum, int left, const void* right) {
  const {V} x = {V}_set(left);
  {V} y;
  __builtin_memcpy(&y, right, sizeof y);
#if defined({V}_HAS_DOTS)
  return )" +
           ByDots(left_signed, right_signed) + R"(;
#elif defined({V}_HAS_PAIRS)
  const {V} even = {V}_pairs()" +
           Words("x", left_signed, true) + ", " + Words("y", right_signed, true) + R"();
  const {V} odd = {V}_pairs()" +
           Words("x", left_signed, false) + ", " + Words("y", right_signed, false) + R"();
  return sum + even + odd;
)";
  if (lanes == 4) f.text += ByArm(left_signed, right_signed);
  f.text += "#else\n";
  for (int q = 0; q < kDotBytes; ++q)
    f.text += "  sum += " + ByteOfLanes("x", left_signed, q) + " * " + ByteOfLanes("y", right_signed, q) + ";\n";
  f.text += "  return sum;\n#endif\n}";
  for (std::string* part : {&f.types, &f.dots_name, &f.dots, &f.pairs_name, &f.pairs, &f.name, &f.text})
    *part = Filled(*part, lanes);
  return f;
}

}  // namespace diapason
