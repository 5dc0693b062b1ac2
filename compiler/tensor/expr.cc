#include "compiler/tensor/expr.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compiler/tensor/array.h"

namespace diapason {
namespace {

bool IsIntLiteral(const Expr& e) { return e->kind == ExprKind::kIntImm; }
bool IsFloatLiteral(const Expr& e) { return e->kind == ExprKind::kFloatImm; }

int64_t WrapTo(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kInt32: return static_cast<int32_t>(value);
    case DType::kInt8: return static_cast<int8_t>(value);
    case DType::kUint8: return static_cast<uint8_t>(value);
    case DType::kBool: return value != 0;
    default: return value;
  }
}

Expr Node(ExprKind kind, DType dtype, std::vector<Expr> args) {
  return std::make_shared<const ExprNode>(ExprNode{.kind = kind, .dtype = dtype, .args = std::move(args)});
}

Expr Bool(bool value) {
  static const Expr kFalse = IntImm(0, DType::kBool);
  static const Expr kTrue = IntImm(1, DType::kBool);
  return value ? kTrue : kFalse;
}

void CheckSameType(const Expr& a, const Expr& b) {
  DIAPASON_CHECK_MSG(a->dtype == b->dtype,
                     ToString(a) + " is " + NameOf(a->dtype) + ", " + ToString(b) + " is " + NameOf(b->dtype));
}

void CheckInteger(const Expr& a) { DIAPASON_CHECK_MSG(!IsFloat(a->dtype), ToString(a)); }
void CheckBool(const Expr& a) { DIAPASON_CHECK_MSG(a->dtype == DType::kBool, ToString(a)); }

// Signed overflow wraps around: the sums of literals are defined for any input.
int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrappingMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

int64_t FloorDivInt(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// Literals with a float or an integer operation, whichever their type calls for; null if one is no literal.
template <typename IntOp, typename FloatOp>
Expr Fold(const Expr& a, const Expr& b, IntOp int_op, FloatOp float_op) {
  if (IsIntLiteral(a) && IsIntLiteral(b)) return IntImm(int_op(a->value, b->value), a->dtype);
  if (IsFloatLiteral(a) && IsFloatLiteral(b)) return FloatImm(float_op(a->fvalue, b->fvalue), a->dtype);
  return nullptr;
}

template <typename Op>
Expr FoldComparison(const Expr& a, const Expr& b, Op op) {
  if (IsIntLiteral(a) && IsIntLiteral(b)) return Bool(op(a->value, b->value));
  if (IsFloatLiteral(a) && IsFloatLiteral(b)) return Bool(op(a->fvalue, b->fvalue));
  return nullptr;
}

bool IsFloatValue(const Expr& e, double value) { return IsFloatLiteral(e) && e->fvalue == value; }

// x of (x op literal), if e has that shape with an integer literal.
bool HasLiteral(const Expr& e, ExprKind kind) { return e->kind == kind && IsIntLiteral(e->args[1]); }

}  // namespace

bool IsZero(const Expr& e) {
  return IsInt(e, 0) || (e->kind == ExprKind::kFloatImm && std::bit_cast<uint64_t>(e->fvalue) == 0);
}

Expr IntImm(int64_t value, DType dtype) {
  return std::make_shared<const ExprNode>(
      ExprNode{.kind = ExprKind::kIntImm, .dtype = dtype, .value = WrapTo(dtype, value)});
}

Expr FloatImm(double value, DType dtype) {
  return std::make_shared<const ExprNode>(
      ExprNode{.kind = ExprKind::kFloatImm, .dtype = dtype, .fvalue = RoundTo(dtype, value)});
}

Expr MakeVar(std::string name) {
  return std::make_shared<const ExprNode>(
      ExprNode{.kind = ExprKind::kVar, .dtype = DType::kInt64, .name = std::move(name)});
}

int64_t IntValue(const Expr& e) {
  DIAPASON_CHECK_MSG(IsIntLiteral(e), ToString(e));
  return e->value;
}

Expr Add(Expr a, Expr b) {
  CheckSameType(a, b);
  if (Expr folded = Fold(a, b, WrappingAdd, std::plus<double>())) return folded;
  if (IsIntLiteral(a)) std::swap(a, b);
  if (IsInt(b, 0) || IsFloatValue(b, 0)) return a;
  if (IsFloatValue(a, 0)) return b;
  if (IsIntLiteral(b) && HasLiteral(a, ExprKind::kAdd))
    return Add(a->args[0], IntImm(WrappingAdd(a->args[1]->value, b->value), a->dtype));
  const DType dtype = a->dtype;
  return Node(ExprKind::kAdd, dtype, {std::move(a), std::move(b)});
}

Expr Sub(Expr a, Expr b) {
  CheckSameType(a, b);
  if (IsFloatLiteral(a) && IsFloatLiteral(b)) return FloatImm(a->fvalue - b->fvalue, a->dtype);
  if (IsIntLiteral(b)) return Add(std::move(a), IntImm(WrappingMul(b->value, -1), b->dtype));
  if (IsFloatValue(b, 0)) return a;
  if (a == b && !IsFloat(a->dtype)) return IntImm(0, a->dtype);
  const DType dtype = a->dtype;
  return Node(ExprKind::kSub, dtype, {std::move(a), std::move(b)});
}

Expr Mul(Expr a, Expr b) {
  CheckSameType(a, b);
  if (Expr folded = Fold(a, b, WrappingMul, std::multiplies<double>())) return folded;
  if (IsIntLiteral(a)) std::swap(a, b);
  if (IsInt(b, 0)) return b;
  if (IsInt(b, 1) || IsFloatValue(b, 1)) return a;
  if (IsFloatValue(a, 1)) return b;
  if (IsIntLiteral(b) && HasLiteral(a, ExprKind::kMul))
    return Mul(a->args[0], IntImm(WrappingMul(a->args[1]->value, b->value), a->dtype));
  const DType dtype = a->dtype;
  return Node(ExprKind::kMul, dtype, {std::move(a), std::move(b)});
}

Expr Div(Expr a, Expr b) {
  CheckSameType(a, b);
  DIAPASON_CHECK_MSG(IsFloat(a->dtype), "Div of integers: " + ToString(a));
  if (IsFloatLiteral(a) && IsFloatLiteral(b)) return FloatImm(a->fvalue / b->fvalue, a->dtype);
  if (IsFloatValue(b, 1)) return a;
  const DType dtype = a->dtype;
  return Node(ExprKind::kDiv, dtype, {std::move(a), std::move(b)});
}

Expr FloorDiv(Expr a, int64_t divisor) {
  CheckInteger(a);
  DIAPASON_CHECK_MSG(divisor > 0, "floordiv by " + std::to_string(divisor));
  if (divisor == 1) return a;
  if (IsIntLiteral(a)) return IntImm(FloorDivInt(a->value, divisor), a->dtype);
  int64_t product;
  if (a->kind == ExprKind::kFloorDiv && !__builtin_mul_overflow(a->args[1]->value, divisor, &product))
    return FloorDiv(a->args[0], product);
  const DType dtype = a->dtype;
  return Node(ExprKind::kFloorDiv, dtype, {std::move(a), IntImm(divisor, dtype)});
}

Expr FloorMod(Expr a, int64_t divisor) {
  CheckInteger(a);
  DIAPASON_CHECK_MSG(divisor > 0, "floormod by " + std::to_string(divisor));
  if (divisor == 1) return IntImm(0, a->dtype);
  if (IsIntLiteral(a)) return IntImm(a->value - FloorDivInt(a->value, divisor) * divisor, a->dtype);
  if (a->kind == ExprKind::kFloorMod && a->args[1]->value == divisor) return a;
  const DType dtype = a->dtype;
  return Node(ExprKind::kFloorMod, dtype, {std::move(a), IntImm(divisor, dtype)});
}

Expr Min(Expr a, Expr b) {
  CheckSameType(a, b);
  auto min = [](auto x, auto y) { return y < x ? y : x; };
  if (Expr folded = Fold(a, b, min, min)) return folded;
  if (a == b) return a;
  if (IsIntLiteral(a)) std::swap(a, b);
  const DType dtype = a->dtype;
  return Node(ExprKind::kMin, dtype, {std::move(a), std::move(b)});
}

Expr Max(Expr a, Expr b) {
  CheckSameType(a, b);
  auto max = [](auto x, auto y) { return x < y ? y : x; };
  if (Expr folded = Fold(a, b, max, max)) return folded;
  if (a == b) return a;
  if (IsIntLiteral(a)) std::swap(a, b);
  const DType dtype = a->dtype;
  return Node(ExprKind::kMax, dtype, {std::move(a), std::move(b)});
}

Expr Lt(Expr a, Expr b) {
  CheckSameType(a, b);
  if (Expr folded = FoldComparison(a, b, [](auto x, auto y) { return x < y; })) return folded;
  if (a == b) return Bool(false);
  return Node(ExprKind::kLt, DType::kBool, {std::move(a), std::move(b)});
}

Expr Le(Expr a, Expr b) {
  CheckSameType(a, b);
  if (Expr folded = FoldComparison(a, b, [](auto x, auto y) { return x <= y; })) return folded;
  if (a == b && !IsFloat(a->dtype)) return Bool(true);  // NaN <= NaN is false
  return Node(ExprKind::kLe, DType::kBool, {std::move(a), std::move(b)});
}

Expr Eq(Expr a, Expr b) {
  CheckSameType(a, b);
  if (Expr folded = FoldComparison(a, b, [](auto x, auto y) { return x == y; })) return folded;
  if (a == b && !IsFloat(a->dtype)) return Bool(true);
  return Node(ExprKind::kEq, DType::kBool, {std::move(a), std::move(b)});
}

Expr Ne(Expr a, Expr b) {
  CheckSameType(a, b);
  if (Expr folded = FoldComparison(a, b, [](auto x, auto y) { return x != y; })) return folded;
  if (a == b && !IsFloat(a->dtype)) return Bool(false);
  return Node(ExprKind::kNe, DType::kBool, {std::move(a), std::move(b)});
}

Expr And(Expr a, Expr b) {
  CheckBool(a);
  CheckBool(b);
  if (IsInt(a, 0) || IsInt(b, 1) || a == b) return a;
  if (IsInt(b, 0) || IsInt(a, 1)) return b;
  return Node(ExprKind::kAnd, DType::kBool, {std::move(a), std::move(b)});
}

Expr And(const std::vector<Expr>& conditions) {
  Expr result = IntImm(1, DType::kBool);
  for (const Expr& condition : conditions) result = And(result, condition);
  return result;
}

Expr Or(Expr a, Expr b) {
  CheckBool(a);
  CheckBool(b);
  if (IsInt(a, 1) || IsInt(b, 0) || a == b) return a;
  if (IsInt(b, 1) || IsInt(a, 0)) return b;
  return Node(ExprKind::kOr, DType::kBool, {std::move(a), std::move(b)});
}

Expr Not(Expr a) {
  CheckBool(a);
  if (IsIntLiteral(a)) return Bool(a->value == 0);
  if (a->kind == ExprKind::kNot) return a->args[0];
  if (a->kind == ExprKind::kEq) return Ne(a->args[0], a->args[1]);
  if (a->kind == ExprKind::kNe) return Eq(a->args[0], a->args[1]);
  // Only for integers: with a NaN neither x < y nor y <= x holds.
  if (a->kind == ExprKind::kLt && !IsFloat(a->args[0]->dtype)) return Le(a->args[1], a->args[0]);
  if (a->kind == ExprKind::kLe && !IsFloat(a->args[0]->dtype)) return Lt(a->args[1], a->args[0]);
  return Node(ExprKind::kNot, DType::kBool, {std::move(a)});
}

Expr Select(Expr condition, Expr then_value, Expr else_value) {
  CheckBool(condition);
  CheckSameType(then_value, else_value);
  if (IsIntLiteral(condition)) return condition->value != 0 ? then_value : else_value;
  if (Equal(then_value, else_value)) return then_value;
  const DType dtype = then_value->dtype;
  return Node(ExprKind::kSelect, dtype, {std::move(condition), std::move(then_value), std::move(else_value)});
}

Expr Cast(DType dtype, Expr a) {
  if (dtype == a->dtype) return a;
  if (IsIntLiteral(a)) {
    return IsFloat(dtype) ? FloatImm(static_cast<double>(a->value), dtype) : IntImm(a->value, dtype);
  }
  if (IsFloatLiteral(a) && IsFloat(dtype)) return FloatImm(a->fvalue, dtype);
  return Node(ExprKind::kCast, dtype, {std::move(a)});
}

Expr Call(std::string function, std::vector<Expr> args) {
  DIAPASON_CHECK_MSG(!args.empty(), function);
  for (const Expr& arg : args) CheckSameType(arg, args[0]);
  const DType dtype = args[0]->dtype;
  return std::make_shared<const ExprNode>(
      ExprNode{.kind = ExprKind::kCall, .dtype = dtype, .name = std::move(function), .args = std::move(args)});
}

Expr Load(int buffer, DType dtype, std::vector<Expr> indices) {
  for (const Expr& index : indices) CheckInteger(index);
  return std::make_shared<const ExprNode>(
      ExprNode{.kind = ExprKind::kLoad, .dtype = dtype, .buffer = buffer, .args = std::move(indices)});
}

Expr Rebuild(const Expr& e, std::vector<Expr> args) {
  DIAPASON_CHECK(args.size() == e->args.size());
  if (args == e->args) return e;
  switch (e->kind) {
    case ExprKind::kAdd: return Add(std::move(args[0]), std::move(args[1]));
    case ExprKind::kSub: return Sub(std::move(args[0]), std::move(args[1]));
    case ExprKind::kMul: return Mul(std::move(args[0]), std::move(args[1]));
    case ExprKind::kDiv: return Div(std::move(args[0]), std::move(args[1]));
    case ExprKind::kFloorDiv: return FloorDiv(std::move(args[0]), IntValue(args[1]));
    case ExprKind::kFloorMod: return FloorMod(std::move(args[0]), IntValue(args[1]));
    case ExprKind::kMin: return Min(std::move(args[0]), std::move(args[1]));
    case ExprKind::kMax: return Max(std::move(args[0]), std::move(args[1]));
    case ExprKind::kLt: return Lt(std::move(args[0]), std::move(args[1]));
    case ExprKind::kLe: return Le(std::move(args[0]), std::move(args[1]));
    case ExprKind::kEq: return Eq(std::move(args[0]), std::move(args[1]));
    case ExprKind::kNe: return Ne(std::move(args[0]), std::move(args[1]));
    case ExprKind::kAnd: return And(std::move(args[0]), std::move(args[1]));
    case ExprKind::kOr: return Or(std::move(args[0]), std::move(args[1]));
    case ExprKind::kNot: return Not(std::move(args[0]));
    case ExprKind::kSelect: return Select(std::move(args[0]), std::move(args[1]), std::move(args[2]));
    case ExprKind::kCast: return Cast(e->dtype, std::move(args[0]));
    case ExprKind::kCall: return Call(e->name, std::move(args));
    case ExprKind::kLoad: return Load(e->buffer, e->dtype, std::move(args));
    case ExprKind::kIntImm:
    case ExprKind::kFloatImm:
    case ExprKind::kVar: return e;
  }
  return e;
}

namespace {

// One bottom-up walk. Results of shared nodes are remembered, so that a tree with sharing costs its distinct nodes.
template <typename Fn>
class Rewriter {
 public:
  explicit Rewriter(const Fn& fn) : fn_(fn) {}

  Expr Run(const Expr& e) {
    const bool shared = e.use_count() > 1 && !e->args.empty();
    if (shared) {
      if (auto it = done_.find(e.get()); it != done_.end()) return it->second;
    }
    Expr result = fn_(RebuildChildren(e));
    if (shared) done_.emplace(e.get(), result);
    return result;
  }

 private:
  Expr RebuildChildren(const Expr& e) {
    std::vector<Expr> args;  // empty while all are as they were, which most are
    for (size_t i = 0; i < e->args.size(); ++i) {
      Expr arg = Run(e->args[i]);
      if (arg == e->args[i]) continue;
      if (args.empty()) args = e->args;
      args[i] = std::move(arg);
    }
    return args.empty() ? e : Rebuild(e, std::move(args));
  }

  const Fn& fn_;
  std::unordered_map<const ExprNode*, Expr> done_;
};

}  // namespace

Expr Rewrite(const Expr& e, const std::function<Expr(const Expr&)>& fn) { return Rewriter(fn).Run(e); }

Expr Substitute(const Expr& e, const VarMap& map) {
  if (map.empty()) return e;
  const auto value = [&](const Expr& node) {
    if (node->kind != ExprKind::kVar) return node;
    auto it = map.find(node.get());
    return it == map.end() ? node : it->second;
  };
  return Rewriter(value).Run(e);
}

void Visit(const Expr& e, const std::function<void(const ExprNode&)>& fn) {
  fn(*e);
  for (const Expr& arg : e->args) Visit(arg, fn);
}

bool Equal(const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (a->kind != b->kind || a->dtype != b->dtype || a->args.size() != b->args.size()) return false;
  switch (a->kind) {
    case ExprKind::kVar: return false;  // identity is the address
    case ExprKind::kIntImm: return a->value == b->value;
    case ExprKind::kFloatImm: return std::memcmp(&a->fvalue, &b->fvalue, sizeof a->fvalue) == 0;
    case ExprKind::kCall:
      if (a->name != b->name) return false;
      break;
    case ExprKind::kLoad:
      if (a->buffer != b->buffer) return false;
      break;
    default: break;
  }
  for (size_t i = 0; i < a->args.size(); ++i)
    if (!Equal(a->args[i], b->args[i])) return false;
  return true;
}

Expr ByteFactor(const Expr& e) {
  if (e->kind != ExprKind::kCast || e->dtype != DType::kInt32 || e->args[0]->kind != ExprKind::kLoad) return nullptr;
  return IsByte(e->args[0]->dtype) ? e->args[0] : nullptr;
}

bool UsesVar(const Expr& e, const ExprNode* var) {
  if (e.get() == var) return true;
  for (const Expr& arg : e->args)
    if (UsesVar(arg, var)) return true;
  return false;
}

namespace {

// Binding strength of the operators that are printed infix; calls and leaves bind strongest.
int PrecedenceOf(const ExprNode& e) {
  switch (e.kind) {
    case ExprKind::kSelect: return 1;
    case ExprKind::kOr: return 2;
    case ExprKind::kAnd: return 3;
    case ExprKind::kEq:
    case ExprKind::kNe: return 4;
    case ExprKind::kLt:
    case ExprKind::kLe: return 5;
    case ExprKind::kAdd:
    case ExprKind::kSub: return 6;
    case ExprKind::kMul:
    case ExprKind::kDiv: return 7;
    case ExprKind::kNot: return 8;
    default: return 9;
  }
}

const char* InfixOf(ExprKind kind) {
  switch (kind) {
    case ExprKind::kAdd: return " + ";
    case ExprKind::kSub: return " - ";
    case ExprKind::kMul: return " * ";
    case ExprKind::kDiv: return " / ";
    case ExprKind::kLt: return " < ";
    case ExprKind::kLe: return " <= ";
    case ExprKind::kEq: return " == ";
    case ExprKind::kNe: return " != ";
    case ExprKind::kAnd: return " && ";
    case ExprKind::kOr: return " || ";
    default: return nullptr;
  }
}

std::string FloatText(const ExprNode& e) {
  char text[64];
  auto end = e.dtype == DType::kFloat64 ? std::to_chars(text, text + sizeof text, e.fvalue)
                                        : std::to_chars(text, text + sizeof text, static_cast<float>(e.fvalue));
  std::string out(text, end.ptr);
  const bool looks_integral = out.find_first_not_of("-0123456789") == std::string::npos;
  return looks_integral ? out + ".0" : out;
}

class Printer {
 public:
  explicit Printer(const std::function<std::string(int)>& buffer_name) : buffer_name_(buffer_name) {}

  std::string Print(const Expr& e, int outer = 0) const {
    const int precedence = PrecedenceOf(*e);
    std::string text = Text(*e, precedence);
    return precedence < outer ? "(" + text + ")" : text;
  }

 private:
  std::string Text(const ExprNode& e, int precedence) const {
    if (const char* infix = InfixOf(e.kind)) return Infix(e, infix, precedence);
    switch (e.kind) {
      case ExprKind::kIntImm:
        if (e.dtype == DType::kBool) return e.value != 0 ? "true" : "false";
        return std::to_string(e.value);
      case ExprKind::kFloatImm: return FloatText(e);
      case ExprKind::kVar: return e.name;
      case ExprKind::kFloorDiv: return "floordiv(" + List(e.args) + ")";
      case ExprKind::kFloorMod: return "floormod(" + List(e.args) + ")";
      case ExprKind::kMin: return "min(" + List(e.args) + ")";
      case ExprKind::kMax: return "max(" + List(e.args) + ")";
      case ExprKind::kNot: return "!" + Print(e.args[0], precedence);
      case ExprKind::kSelect:
        return Print(e.args[0], precedence + 1) + " ? " + Print(e.args[1], precedence + 1) + " : " +
               Print(e.args[2], precedence);
      case ExprKind::kCast: return std::string(NameOf(e.dtype)) + "(" + List(e.args) + ")";
      case ExprKind::kCall: return e.name + "(" + List(e.args) + ")";
      case ExprKind::kLoad: return buffer_name_(e.buffer) + "[" + List(e.args) + "]";
      default: return "?";
    }
  }

  std::string Infix(const ExprNode& e, const char* infix, int precedence) const {
    const Expr& right = e.args[1];
    if (e.kind == ExprKind::kAdd && IsIntLiteral(right) && right->value < 0 && right->value != INT64_MIN)
      return Print(e.args[0], precedence) + " - " + std::to_string(-right->value);
    return Print(e.args[0], precedence) + infix + Print(right, precedence + 1);
  }

  std::string List(const std::vector<Expr>& args) const {
    std::string out;
    for (const Expr& arg : args) {
      if (!out.empty()) out += ", ";
      out += Print(arg);
    }
    return out;
  }

  const std::function<std::string(int)>& buffer_name_;
};

}  // namespace

std::string ToString(const Expr& e) {
  return ToString(e, [](int buffer) { return "T" + std::to_string(buffer); });
}

std::string ToString(const Expr& e, const std::function<std::string(int)>& buffer_name) {
  return Printer(buffer_name).Print(e);
}

}  // namespace diapason
