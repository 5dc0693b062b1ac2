#include "compiler/codegen/c/vector_expr_printer.h"

#include <algorithm>
#include <functional>

namespace diapason {

std::string CVectorExprPrinter::Text(const Expr& e) {
  SharedValues::Value* shared = CVectorLibrary::Holds(e->dtype) ? shared_.Find(e, lanes_.count()) : nullptr;
  if (shared == nullptr) return UnsharedText(e);
  // Inside braces or a branch, the variable would not be there for all that use it.
  if (shared->name.empty() && conditional_ == 0 && out_.depth() == shared->depth) {
    const std::string text = UnsharedText(e);
    shared->name = access_.UniqueName("v");
    out_.Line("const " + VectorType(e->dtype) + " " + shared->name + " = " + text + ";");
  }
  return shared->name.empty() ? UnsharedText(e) : shared->name;
}

std::string CVectorExprPrinter::UnsharedText(const Expr& e) {
  if (!lanes_.Differ(e)) return Broadcast(access_.Text(e), e->dtype);
  if (IsByte(e->dtype) && !bytes_.HaveForm(e)) return PerLane(e);
  switch (e->kind) {
    case ExprKind::kAdd: return Infix(e, " + ");
    case ExprKind::kSub: return Infix(e, " - ");
    case ExprKind::kMul: return Infix(e, " * ");
    case ExprKind::kDiv: return Infix(e, " / ");
    case ExprKind::kMin:
    case ExprKind::kMax: return Extremum(e);
    case ExprKind::kSelect: return Select(e);
    case ExprKind::kCast: return Cast(e);
    case ExprKind::kCall: return Call(e);
    case ExprKind::kLoad: return Load(e);
    default: return PerLane(e);
  }
}

std::string CVectorExprPrinter::IntText(const Expr& e) {
  if (e->dtype == DType::kInt32 || IsByte(e->dtype)) return Text(e);
  return "__builtin_convertvector(" + Text(e) + ", " + VectorType(DType::kInt32) + ")";
}

std::string CVectorExprPrinter::Broadcast(const std::string& scalar, DType dtype) {
  return library_.Set(dtype, lanes_.count()) + "(" + scalar + ")";
}

std::string CVectorExprPrinter::PerLane(const Expr& e) {
  std::string out = "(" + VectorType(e->dtype) + "){";
  for (int64_t i = 0; i < lanes_.count(); ++i) out += (i == 0 ? "" : ", ") + access_.Text(lanes_.At(e, i));
  return out + "}";
}

std::string CVectorExprPrinter::Infix(const Expr& e, const char* op) {
  return "(" + Operand(e->args[0]) + op + Operand(e->args[1]) + ")";
}

// A number stands for a vector of it beside a vector.
std::string CVectorExprPrinter::Operand(const Expr& e) {
  return e->kind == ExprKind::kFloatImm ? access_.Text(e) : Text(e);
}

std::string CVectorExprPrinter::Load(const Expr& e) {
  const Stride stride = lanes_.StrideAlong(e->args[0]);
  if (!stride.affine || (stride.stride != 1 && stride.stride != 0)) return PerLane(e);
  if (stride.stride == 0) return Broadcast(access_.Text(lanes_.At(e, 0)), e->dtype);  // a variable that cancels
  if (IsByte(e->dtype))                                                               // HaveForm
    return library_.ByteLoad(e->dtype == DType::kInt8, lanes_.count()) + "(" +
           access_.AddressText(e->buffer, stride.base) + ")";
  if (access_.HasSlots(e->buffer)) return access_.SlotName(e->buffer, IntValue(stride.base));
  if (access_.IsNarrowInMemory(e->buffer))
    return library_.NarrowAccess(access_.decl(e->buffer).dtype, lanes_.count(), true) + "(" +
           access_.AddressText(e->buffer, stride.base) + ")";
  // The cast drops the alignment from the type, which the branches of a conditional have to agree on.
  const std::string type = VectorType(e->dtype);
  return "(" + type + ")*(const " + type + "u*)(" + access_.AddressText(e->buffer, stride.base) + ")";
}

std::string CVectorExprPrinter::Extremum(const Expr& e) {
  return library_.Extremum(e->kind == ExprKind::kMin, e->dtype, lanes_.count()) + "(" + Text(e->args[0]) + ", " +
         Text(e->args[1]) + ")";
}

std::string CVectorExprPrinter::MaskText(const Expr& condition, int width) {
  if (!lanes_.Differ(condition))
    return width == 4 ? Broadcast("-(" + access_.Text(condition) + ")", DType::kInt32) : "";
  const char* op = nullptr;
  switch (condition->kind) {
    case ExprKind::kLt: op = " < "; break;
    case ExprKind::kLe: op = " <= "; break;
    case ExprKind::kEq: op = " == "; break;
    case ExprKind::kNe: op = " != "; break;
    case ExprKind::kAnd: op = " & "; break;
    case ExprKind::kOr: op = " | "; break;
    case ExprKind::kNot: {
      const std::string inner = MaskText(condition->args[0], width);
      return inner.empty() ? "" : "~" + inner;
    }
    default: return "";
  }
  if (condition->kind == ExprKind::kAnd || condition->kind == ExprKind::kOr) {
    if (!SafeOnAllLanes(condition->args[1], condition->args[0])) return "";  // the first operand may guard the second
    const std::string a = MaskText(condition->args[0], width), b = MaskText(condition->args[1], width);
    return a.empty() || b.empty() ? "" : "(" + a + op + b + ")";
  }
  const DType dtype = condition->args[0]->dtype;
  if (!CVectorLibrary::Holds(dtype) || CVectorLibrary::ElementBytes(dtype) != width) return "";
  return "(" + library_.MaskType(width, lanes_.count()) + ")" + Infix(condition, op);
}

bool CVectorExprPrinter::SafeOnAllLanes(const Expr& branch, const Expr& condition) const {
  if (branch->kind == ExprKind::kLoad && !access_.HasSlots(branch->buffer)) {
    bool found = false;
    const std::function<void(const Expr&)> look = [&](const Expr& e) {
      found = found || Equal(e, branch);
      if (e->kind == ExprKind::kSelect || e->kind == ExprKind::kAnd || e->kind == ExprKind::kOr)
        return look(e->args[0]);
      for (const Expr& arg : e->args) look(arg);
    };
    look(condition);
    return found;
  }
  return std::all_of(branch->args.begin(), branch->args.end(),
                     [&](const Expr& arg) { return SafeOnAllLanes(arg, condition); });
}

std::string CVectorExprPrinter::Select(const Expr& e) {
  const Expr& condition = e->args[0];
  if (!lanes_.Differ(condition)) {
    ++conditional_;
    const std::string text = "(" + access_.Text(condition, CAccessPrinter::kOrLevel) + " ? " + Text(e->args[1]) +
                             " : " + Text(e->args[2]) + ")";
    --conditional_;
    return text;
  }
  if (!SafeOnAllLanes(e->args[1], condition) || !SafeOnAllLanes(e->args[2], condition)) return PerLane(e);
  const std::string mask = MaskText(condition, CVectorLibrary::ElementBytes(e->dtype));
  if (mask.empty()) return PerLane(e);
  return library_.Select(e->dtype, lanes_.count()) + "(" + mask + ", " + Text(e->args[1]) + ", " + Text(e->args[2]) +
         ")";
}

std::string CVectorExprPrinter::Cast(const Expr& e) {
  const Expr& from = e->args[0];
  if (IsByte(e->dtype)) {  // HaveForm
    if (from->dtype == e->dtype) return Text(from);
    return e->dtype == DType::kInt8 ? "(" + IntText(from) + " << 24 >> 24)" : "(" + IntText(from) + " & 255)";
  }
  if (!CVectorLibrary::Holds(from->dtype) && !bytes_.HaveForm(from)) return PerLane(e);
  if (e->dtype == DType::kInt32) return IntText(from);
  if (CVectorLibrary::HoldsAlike(from->dtype, e->dtype)) return Text(from);
  return "__builtin_convertvector(" + Text(from) + ", " + VectorType(e->dtype) + ")";
}

std::string CVectorExprPrinter::Call(const Expr& e) {
  if (!IsFloat(e->dtype)) return PerLane(e);
  std::string args;
  for (size_t i = 0; i < e->args.size(); ++i) args += (i == 0 ? "" : ", ") + Text(e->args[i]);
  std::string name = library_.MathFunction(e->name, e->dtype, lanes_.count());
  if (!name.empty()) return name + "(" + args + ")";
  const std::string function = access_.CallName(e->name, e->dtype);
  name = library_.InstructionFunction(e->name, function, e->dtype, lanes_.count());
  if (name.empty()) name = library_.CallEachLane(e->name, function, e->args.size(), e->dtype, lanes_.count());
  return name + "(" + args + ")";
}

}  // namespace diapason
