// Sums as the simplifier works on them, and arithmetic that cannot overflow. Internal to compiler/tensor/simplify.
//
// Inside a run of the simplifier equal terms are one node (interner.h), so sums tell them apart by address.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/tensor/expr.h"
#include "compiler/tensor/simplify.h"

namespace diapason::simplify {

// Bounds beyond this are treated as unknown, so that sums of a few of them stay within int64.
inline constexpr int64_t kLimit = int64_t{1} << 60;

inline int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t WrappingMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
// a * b, if it is small enough to compute with.
std::optional<int64_t> SafeMul(int64_t a, int64_t b);
inline bool IsSmall(int64_t value) { return value <= kLimit && value >= -kLimit; }

inline int64_t FloorDivInt(int64_t a, int64_t b) { return a / b - (a % b < 0); }
inline int64_t FloorModInt(int64_t a, int64_t b) { return a - FloorDivInt(a, b) * b; }

// The interval, if both ends are small.
std::optional<Interval> Checked(Interval interval);
std::optional<Interval> Product(Interval a, Interval b);

inline bool IsKind(const Expr& e, ExprKind kind) { return e->kind == kind; }
inline bool IsFloorDiv(const Expr& e) { return IsKind(e, ExprKind::kFloorDiv); }
inline bool IsFloorMod(const Expr& e) { return IsKind(e, ExprKind::kFloorMod); }
inline int64_t DivisorOf(const Expr& e) { return e->args[1]->value; }
inline Expr Bool(bool value) { return IntImm(value, DType::kBool); }

// Index of a term, -1 if it is not there.
int FindTerm(const Affine& sum, const Expr& term);
void AddTerm(Affine& sum, const Expr& term, int64_t coefficient);
void AddScaled(Affine& sum, const Affine& other, int64_t factor);
Affine Scaled(const Affine& a, int64_t factor);
inline Affine TermOf(const Expr& term) { return Affine{0, {{term, 1}}}; }
inline Affine ConstantOf(int64_t value) { return Affine{value, {}}; }
// The sum that a canonical expression is.
Affine Decomposed(const Expr& e);
bool AllSmall(const Affine& a);
// True if `sum` contains factor * (the terms of `part`), coefficient by coefficient.
bool ContainsTerms(const Affine& sum, const Affine& part, int64_t factor);
// Numbers above 1 that divide some of the coefficients (and the modulus, unless it is 0), largest first.
std::vector<int64_t> FactorsOf(const Affine& a, int64_t modulus);
// Left and right sides of "a <op> 0" with positive coefficients.
std::pair<Affine, Affine> SidesOf(const Affine& a);
// The condition as "affine < 0", if it is an order of integers.
std::optional<Affine> AsLessThanZero(const Expr& condition);

}  // namespace diapason::simplify
