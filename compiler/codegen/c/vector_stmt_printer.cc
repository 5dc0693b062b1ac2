#include "compiler/codegen/c/vector_stmt_printer.h"

#include <optional>

namespace diapason {
namespace {

// A store is split on conditions of its lanes this deep; what is left is decided lane by lane.
constexpr int kMaxSplits = 2;

}  // namespace

void CVectorStmtPrinter::Print(const Stmt& stmt) {
  switch (stmt->kind) {
    case StmtKind::kSeq:
      for (const Stmt& child : stmt->body) Print(child);
      return;
    case StmtKind::kFor: {
      const std::string var = access_.VarName(stmt->var);
      if (stmt->unroll > 0) out_.Line("#pragma GCC unroll " + std::to_string(stmt->unroll));
      return PrintBlock(
          "for (int64 " + var + " = 0; " + var + " < " + std::to_string(stmt->extent) + "; ++" + var + ")",
          stmt->body[0]);
    }
    case StmtKind::kLet:
      out_.Open();
      out_.Line("const int64 " + access_.VarName(stmt->var) + " = " + access_.Text(stmt->value) + ";");
      Print(stmt->body[0]);
      return out_.Close();
    case StmtKind::kIf: return PrintIf(*stmt);
    case StmtKind::kStore: return PrintStore(*stmt);
    case StmtKind::kComment: return out_.Comment(stmt->text);
    case StmtKind::kBarrier:
    case StmtKind::kSetRegisters:
    case StmtKind::kCommit:
    case StmtKind::kLaunchDependents:
    case StmtKind::kWait:
    case StmtKind::kClusterBarrier:
    case StmtKind::kClusterEnd: return;
    case StmtKind::kAlloc:
    case StmtKind::kMma:
    case StmtKind::kLoadMatrix:
    case StmtKind::kShuffle:
    case StmtKind::kQuadStore:
    case StmtKind::kPack:
    case StmtKind::kFactorParts:
    case StmtKind::kGroupMma:
    case StmtKind::kGroupSync:
    case StmtKind::kBulkCopy:
    case StmtKind::kTensorCopy:
    case StmtKind::kMbarrier: break;
  }
  PrintLaneByLane(stmt);
}

void CVectorStmtPrinter::PrintByteDot(const ByteDot& dot) {
  const std::string function =
      library_.ByteDots(dot.left->dtype == DType::kInt8, dot.right->dtype == DType::kInt8, lanes_.count());
  const std::string left = library_.LoadFourBytes() + "(" + access_.AddressText(dot.left->buffer, dot.left_at) + ")";
  WriteVector(*dot.store, lanes_.StrideAlong(dot.store->index),
              function + "(" + values_.Text(dot.sum) + ", " + left + ", " +
                  access_.AddressText(dot.right->buffer, dot.right_at) + ")");
}

void CVectorStmtPrinter::PrintBlock(const std::string& head, const Stmt& body) {
  out_.Open(head);
  Print(body);
  out_.Close();
}

void CVectorStmtPrinter::PrintIf(const StmtNode& s) {
  if (!lanes_.Differ(s.condition)) return PrintBlock("if (" + access_.Text(s.condition) + ")", s.body[0]);
  const Stmt whole = MakeIf(s.condition, s.body[0]);
  const std::optional<VectorLanes::AllOrNone> decided = lanes_.Decide(s.condition);
  if (!decided || IsInt(decided->all, 0)) return PrintLaneByLane(whole);
  PrintBlock("if (" + access_.Text(decided->all) + ")", s.body[0]);
  out_.Open("else if (" + access_.Text(access_.analyzer().Simplify(Not(decided->none))) + ")");
  PrintLaneByLane(whole);
  out_.Close();
}

void CVectorStmtPrinter::PrintSplitStore(const StmtNode& store, const Expr& condition) {
  const VectorLanes::AllOrNone lanes = *lanes_.Decide(condition);
  const auto decided = [&](bool outcome) {
    const Expr value = Rewrite(store.value, [&](const Expr& e) {
      if (e->kind != ExprKind::kSelect || !Equal(e->args[0], condition)) return e;
      return e->args[outcome ? 1 : 2];
    });
    StmtNode result = store;
    result.value = value;
    return result;
  };
  if (IsInt(lanes.all, 1)) return PrintStore(decided(true));
  if (IsInt(lanes.none, 1)) return PrintStore(decided(false));
  out_.Open("if (" + access_.Text(lanes.all) + ")");
  PrintStore(decided(true));
  out_.Close();
  if (!IsInt(lanes.none, 0)) {
    out_.Open("else if (" + access_.Text(lanes.none) + ")");
    PrintStore(decided(false));
    out_.Close();
  }
  out_.Open("else");
  PrintLaneByLane(MakeStore(store.buffer, store.index, store.value));
  out_.Close();
}

void CVectorStmtPrinter::PrintStore(const StmtNode& store) {
  const Stride stride = lanes_.StrideAlong(store.index);
  const DType dtype = access_.decl(store.buffer).dtype;
  if (IsByte(dtype) && store.value->dtype == dtype && !access_.HasSlots(store.buffer) && stride.affine &&
      stride.stride == 1 && values_.bytes().HaveForm(store.value))
    return PrintByteStore(store, stride);
  const bool has_vectors = CVectorLibrary::HoldsAlike(dtype, store.value->dtype);
  if (!has_vectors || !stride.affine || stride.stride == 0)
    return PrintLaneByLane(MakeStore(store.buffer, store.index, store.value));
  if (splits_ < kMaxSplits) {
    if (const Expr condition = lanes_.FindDecidable(store.value)) {
      ++splits_;
      PrintSplitStore(store, condition);
      --splits_;
      return;
    }
  }
  WriteVector(store, stride, values_.Text(store.value));
}

void CVectorStmtPrinter::PrintByteStore(const StmtNode& store, const Stride& stride) {
  const Expr& value = store.value;
  const std::string to = access_.AddressText(store.buffer, stride.base), count = std::to_string(lanes_.count());
  if (!lanes_.Differ(value))
    return out_.Line("__builtin_memset(" + to + ", " + access_.Text(value) + ", " + count + ");");
  if (value->kind == ExprKind::kSelect) {
    StmtNode branch = store;
    out_.Open("if (" + access_.Text(value->args[0]) + ")");
    branch.value = value->args[1];
    PrintByteStore(branch, stride);
    out_.Close();
    out_.Open("else");
    branch.value = value->args[2];
    PrintByteStore(branch, stride);
    return out_.Close();
  }
  if (value->kind == ExprKind::kLoad) {
    const std::string from = access_.AddressText(value->buffer, values_.bytes().From(value));
    return out_.Line("__builtin_memcpy(" + to + ", " + from + ", " + count + ");");
  }
  const std::string function = library_.ByteStore(lanes_.count());
  // The low bytes of what is cast are those of the result.
  const std::string ints = value->kind == ExprKind::kCast ? values_.IntText(value->args[0]) : values_.Text(value);
  out_.Line(function + "((unsigned char*)(" + to + "), " + ints + ");");
}

void CVectorStmtPrinter::WriteVector(const StmtNode& store, const Stride& stride, const std::string& value) {
  const int to = store.buffer;
  const DType dtype = access_.decl(to).dtype;
  const std::string type = library_.Type(dtype, lanes_.count());
  const bool narrow = access_.IsNarrowInMemory(to);
  if (stride.stride == 1 && access_.HasSlots(to)) {
    out_.Line(access_.SlotName(to, IntValue(stride.base)) + " = " + value + ";");
  } else if (stride.stride == 1 && narrow) {
    out_.Line(library_.NarrowAccess(dtype, lanes_.count(), false) + "(" + access_.AddressText(to, stride.base) + ", " +
              value + ");");
  } else if (stride.stride == 1) {
    out_.Line("*(" + type + "u*)(" + access_.AddressText(to, stride.base) + ") = " + value + ";");
  } else {
    out_.Open();
    out_.Line("const " + type + " lanes = " + value + ";");
    for (int64_t i = 0; i < lanes_.count(); ++i) {
      const std::string element = "lanes[" + std::to_string(i) + "]";
      const std::string target = access_.ElementText(to, lanes_.At(store.index, i));
      out_.Line(target + " = " + (narrow ? access_.Narrowed(dtype, element) : element) + ";");
    }
    out_.Close();
  }
}

bool CVectorStmtPrinter::TouchesSlots(const Stmt& stmt) const {
  bool touches = stmt->kind == StmtKind::kStore && access_.HasSlots(stmt->buffer);
  const auto look = [&](const ExprNode& e) { touches |= e.kind == ExprKind::kLoad && access_.HasSlots(e.buffer); };
  for (const Expr* e : {&stmt->index, &stmt->value, &stmt->condition})
    if (*e != nullptr) Visit(*e, look);
  for (const Stmt& child : stmt->body) touches = touches || TouchesSlots(child);
  return touches;
}

void CVectorStmtPrinter::PrintLaneByLane(const Stmt& stmt) {
  if (!TouchesSlots(stmt)) {
    const std::string var = access_.VarName(lanes_.var());
    out_.Open("for (int64 " + var + " = 0; " + var + " < " + std::to_string(lanes_.count()) + "; ++" + var + ")");
    print_(stmt);
    return out_.Close();
  }
  for (int64_t i = 0; i < lanes_.count(); ++i) {
    const Stmt copy = SubstituteAndSimplify(stmt, {{lanes_.var().get(), IntImm(i)}}, access_.analyzer());
    if (copy != nullptr) print_(copy);
  }
}

}  // namespace diapason
