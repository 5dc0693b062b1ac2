// Tensor expressions: scalar expressions over loop variables and tensor elements (Halide, TVM's TE).
//
// An Expr is an immutable tree, shared freely between stages and threads. Index arithmetic is int64, affine plus
// FloorDiv and FloorMod; the constructors fold constants and trivial identities (x+0, x*1, select(true,...)), so that
// equal trees are built for equal sources. compiler/tensor/simplify.h does the real simplification.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/tensor/dtype.h"

namespace diapason {

// The numbers are stored (proto/diapason/v1/program.proto): never renumber.
enum class ExprKind : uint8_t {
  kIntImm = 1,    // value
  kFloatImm = 2,  // fvalue
  kVar = 3,       // identity is the node's address
  kAdd = 4,
  kSub = 5,
  kMul = 6,
  kDiv = 7,       // floating point division
  kFloorDiv = 8,  // integers, rounds towards minus infinity; the divisor is positive
  kFloorMod = 9,  // integers, result in [0, divisor)
  // Of floats: with a constant as second operand NaN where the first is; if both are computed, NaN where both are, and
  // where one is either of them, for which ops/emit.h has other functions. A minimum or maximum over axes starts from
  // its identity and so ignores NaN everywhere.
  kMin = 10,
  kMax = 11,
  kLt = 12,
  kLe = 13,
  kEq = 14,
  kNe = 15,
  kAnd = 16,
  kOr = 17,
  kNot = 18,
  kSelect = 19,  // condition, then, else: only the chosen branch's loads are performed
  kCast = 20,
  kCall = 21,  // name: one of exp log sqrt rsqrt tanh sigmoid erf pow abs floor ceil round (half to even); of floats.
               // Also bfloat16 and tf32, which round a float32 to the types of these names, and stay float32
  kLoad = 22,  // element of buffer `buffer` at the given indices
};

struct ExprNode;
using Expr = std::shared_ptr<const ExprNode>;  // shared: subtrees occur in many stages and are never changed

struct ExprNode {
  ExprKind kind;
  DType dtype;
  int64_t value = 0;   // kIntImm
  double fvalue = 0;   // kFloatImm
  std::string name{};  // kVar, kCall
  int buffer = -1;     // kLoad: id of a stage of the ComputeDag
  std::vector<Expr> args{};
};

Expr IntImm(int64_t value, DType dtype = DType::kInt64);
Expr FloatImm(double value, DType dtype = DType::kFloat32);
Expr MakeVar(std::string name);  // a fresh int64 variable

// Arithmetic. Operands have the same type; integers for FloorDiv and FloorMod, whose divisor is a positive constant.
Expr Add(Expr a, Expr b);
Expr Sub(Expr a, Expr b);
Expr Mul(Expr a, Expr b);
Expr Div(Expr a, Expr b);
Expr FloorDiv(Expr a, int64_t divisor);
Expr FloorMod(Expr a, int64_t divisor);
Expr Min(Expr a, Expr b);
Expr Max(Expr a, Expr b);

// Comparisons and logic give kBool.
Expr Lt(Expr a, Expr b);
Expr Le(Expr a, Expr b);
Expr Eq(Expr a, Expr b);
Expr Ne(Expr a, Expr b);
Expr And(Expr a, Expr b);
Expr And(const std::vector<Expr>& conditions);  // true if there are none
Expr Or(Expr a, Expr b);
Expr Not(Expr a);

Expr Select(Expr condition, Expr then_value, Expr else_value);
Expr Cast(DType dtype, Expr a);
Expr Call(std::string function, std::vector<Expr> args);
Expr Load(int buffer, DType dtype, std::vector<Expr> indices);

inline bool IsInt(const Expr& e, int64_t value) { return e->kind == ExprKind::kIntImm && e->value == value; }
// Whether all its bits are 0: not of -0.0.
bool IsZero(const Expr& e);
// The value of an integer literal. REQUIRES: e->kind == kIntImm.
int64_t IntValue(const Expr& e);

// A node like `e` with other arguments, through the constructors above: constants fold. `e` itself when nothing
// changes. REQUIRES: as many arguments as e has, of the same types.
Expr Rebuild(const Expr& e, std::vector<Expr> args);

using VarMap = std::unordered_map<const ExprNode*, Expr>;

// Replaces variables; shares what does not change.
Expr Substitute(const Expr& e, const VarMap& map);
// Rebuilds bottom-up: `fn` sees each node after its children were rebuilt and returns the replacement (or its
// argument).
Expr Rewrite(const Expr& e, const std::function<Expr(const Expr&)>& fn);
// Calls fn for each node, parents first.
void Visit(const Expr& e, const std::function<void(const ExprNode&)>& fn);
// The same tree, variables compared by address.
bool Equal(const Expr& a, const Expr& b);
bool UsesVar(const Expr& e, const ExprNode* var);
// int32(load) of an integer of 8 bits: the load. Null for anything else.
Expr ByteFactor(const Expr& e);
// C-like text for people: tests, explain. A load prints as T3[i, j] unless names are given.
std::string ToString(const Expr& e);
std::string ToString(const Expr& e, const std::function<std::string(int)>& buffer_name);

}  // namespace diapason
