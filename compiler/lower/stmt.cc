#include "compiler/lower/stmt.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

Stmt Make(StmtNode node) { return std::make_shared<const StmtNode>(std::move(node)); }

void Flatten(std::vector<Stmt> body, std::vector<Stmt>& out) {
  for (Stmt& stmt : body) {
    if (stmt == nullptr) continue;
    if (stmt->kind == StmtKind::kSeq) {
      Flatten(stmt->body, out);
    } else {
      out.push_back(std::move(stmt));
    }
  }
}

}  // namespace

std::string Identifier(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

Stmt MakeFor(ForKind kind, Expr var, int64_t extent, Stmt body, int unroll) {
  DIAPASON_CHECK(var->kind == ExprKind::kVar);
  DIAPASON_CHECK_MSG(extent > 0, var->name + ": extent " + std::to_string(extent));
  if (body == nullptr) return nullptr;
  return Make({.kind = StmtKind::kFor,
               .for_kind = kind,
               .var = std::move(var),
               .extent = extent,
               .unroll = unroll,
               .body = {std::move(body)}});
}

Stmt MakeSeq(std::vector<Stmt> body) {
  std::vector<Stmt> flat;
  flat.reserve(body.size());
  Flatten(std::move(body), flat);
  if (flat.empty()) return nullptr;
  if (flat.size() == 1) return flat[0];
  return Make({.kind = StmtKind::kSeq, .body = std::move(flat)});
}

Stmt MakeStore(int buffer, Expr index, Expr value, bool async) {
  return Make({.kind = StmtKind::kStore,
               .buffer = buffer,
               .index = std::move(index),
               .value = std::move(value),
               .async = async});
}

Stmt MakeRemoteStore(int buffer, Expr index, Expr value, Expr rank) {
  return Make({.kind = StmtKind::kStore,
               .buffer = buffer,
               .index = std::move(index),
               .value = std::move(value),
               .operands = {std::move(rank)}});
}

Stmt MakeIf(Expr condition, Stmt body) {
  if (body == nullptr || IsInt(condition, 0)) return nullptr;
  if (condition->kind == ExprKind::kIntImm) return body;
  return Make({.kind = StmtKind::kIf, .condition = std::move(condition), .body = {std::move(body)}});
}

Stmt MakeRole(Expr condition, Stmt body) {
  if (body == nullptr) return nullptr;
  return Make({.kind = StmtKind::kIf, .condition = std::move(condition), .role = true, .body = {std::move(body)}});
}

Stmt MakeAlloc(BufferDecl decl, Stmt body) {
  if (body == nullptr) return nullptr;
  return Make({.kind = StmtKind::kAlloc, .decl = std::move(decl), .body = {std::move(body)}});
}

Stmt MakeMma(TensorMode tensor, FactorTypes factors, int buffer, std::vector<Expr> operands, bool from_zero) {
  DIAPASON_CHECK(operands.size() == 10);
  return Make({.kind = StmtKind::kMma,
               .buffer = buffer,
               .operands = std::move(operands),
               .tensor = tensor,
               .factors = factors,
               .from_zero = from_zero});
}

Stmt MakeLoadMatrix(MatrixLoad load) {
  DIAPASON_CHECK((load.matrices == 2 || load.matrices == 4) && load.value->kind == ExprKind::kLoad);
  DIAPASON_CHECK(!load.transposed || TensorIntrinsicOf(load.tensor).transposes());
  return Make({.kind = StmtKind::kLoadMatrix,
               .extent = load.matrices,
               .buffer = load.buffer,
               .index = std::move(load.index),
               .value = std::move(load.value),
               .tensor = load.tensor,
               .transposed = load.transposed});
}

Stmt MakeShuffle(int buffer, Expr index, Expr value, Expr lane) {
  return Make({.kind = StmtKind::kShuffle,
               .buffer = buffer,
               .index = std::move(index),
               .value = std::move(value),
               .operands = {std::move(lane)}});
}

Stmt MakeQuadStore(int buffer, Expr index, std::vector<Expr> values, int64_t lanes) {
  return Make({.kind = StmtKind::kQuadStore,
               .extent = lanes,
               .buffer = buffer,
               .index = std::move(index),
               .operands = std::move(values)});
}

Stmt MakeTransposedStore(int buffer, Expr index, std::vector<Expr> values, Expr condition) {
  return Make({.kind = StmtKind::kQuadStore,
               .extent = kLanesOfWarp,
               .buffer = buffer,
               .index = std::move(index),
               .condition = std::move(condition),
               .operands = std::move(values),
               .transposed = true});
}

Stmt MakePack(int buffer, Expr index, std::vector<Expr> factors) {
  return Make({.kind = StmtKind::kPack, .buffer = buffer, .index = std::move(index), .operands = std::move(factors)});
}

Stmt MakeFactorParts(FactorPart part, int buffer, Expr index, int64_t elements, Expr value) {
  DIAPASON_CHECK(value->kind == ExprKind::kLoad);
  return Make({.kind = StmtKind::kFactorParts,
               .extent = elements,
               .buffer = buffer,
               .index = std::move(index),
               .value = std::move(value),
               .part = part});
}

Stmt MakeGroupMma(GroupMma product) {
  const bool apart = product.sums.empty();  // 3xTF32
  const int64_t columns = apart ? product.columns : static_cast<int64_t>(2 * product.sums.size());
  const size_t operands = apart ? 10 : product.row_matrices.stride > 0 ? 2 : 5;
  DIAPASON_CHECK(apart == (product.tensor == TensorMode::kGroupThreeTf32) && product.operands.size() == operands);
  DIAPASON_CHECK(columns % 8 == 0 && columns >= 8 && columns <= 256);
  DIAPASON_CHECK(apart || TensorIntrinsicOf(product.tensor).HasColumns(columns));
  return Make({.kind = StmtKind::kGroupMma,
               .extent = columns,
               .buffer = product.buffer,
               .index = std::move(product.index),
               .operands = std::move(product.operands),
               .sums = std::move(product.sums),
               .tensor = product.tensor,
               .factors = product.factors,
               .from_zero = product.from_zero,
               .columns = product.column_matrices,
               .rows = product.row_matrices});
}

Stmt MakeGroupSync(GroupSync sync, int64_t unfinished) {
  return Make({.kind = StmtKind::kGroupSync, .extent = unfinished, .sync = sync});
}

Stmt MakeGroupWait(int64_t unfinished, int buffer, std::vector<Expr> sums) {
  return Make({.kind = StmtKind::kGroupSync,
               .extent = unfinished,
               .buffer = buffer,
               .sums = std::move(sums),
               .sync = GroupSync::kWait});
}

Stmt MakeBulkCopy(int buffer, Expr index, int64_t elements, Expr value, Expr arrival) {
  DIAPASON_CHECK(value->kind == ExprKind::kLoad && (!arrival || arrival->kind == ExprKind::kLoad));
  std::vector<Expr> operands;
  if (arrival) operands.push_back(std::move(arrival));
  return Make({.kind = StmtKind::kBulkCopy,
               .extent = elements,
               .buffer = buffer,
               .index = std::move(index),
               .value = std::move(value),
               .operands = std::move(operands)});
}

Stmt MakeTensorCopy(TensorCopy copy) {
  DIAPASON_CHECK(copy.from->kind == ExprKind::kLoad && copy.arrival->kind == ExprKind::kLoad);
  DIAPASON_CHECK(copy.coordinates.size() == copy.box->extents.size() + copy.box->windows.size());
  std::vector<Expr> operands = std::move(copy.coordinates);
  operands.insert(operands.begin(), std::move(copy.arrival));
  return Make({.kind = StmtKind::kTensorCopy,
               .buffer = copy.buffer,
               .index = std::move(copy.index),
               .value = std::move(copy.from),
               .condition = std::move(copy.condition),
               .operands = std::move(operands),
               .box = std::move(copy.box)});
}

Stmt MakeMbarrierInit(Expr first, int64_t barriers, int64_t arrivals) {
  DIAPASON_CHECK(first->kind == ExprKind::kLoad);
  return Make({.kind = StmtKind::kMbarrier,
               .extent = barriers,
               .value = IntImm(arrivals),
               .operands = {std::move(first)},
               .mbarrier = MbarrierOp::kInit});
}

Stmt MakeMbarrierArrive(Expr barrier, Expr condition) {
  DIAPASON_CHECK(barrier->kind == ExprKind::kLoad);
  return Make({.kind = StmtKind::kMbarrier,
               .condition = std::move(condition),
               .operands = {std::move(barrier)},
               .mbarrier = MbarrierOp::kArrive});
}

Stmt MakeMbarrierWait(Expr barrier, Expr parity) {
  DIAPASON_CHECK(barrier->kind == ExprKind::kLoad);
  return Make({.kind = StmtKind::kMbarrier,
               .value = std::move(parity),
               .operands = {std::move(barrier)},
               .mbarrier = MbarrierOp::kWait});
}

Stmt MakeLaunchDependents() { return Make({.kind = StmtKind::kLaunchDependents}); }
Stmt MakeCommit() { return Make({.kind = StmtKind::kCommit}); }

Stmt MakeWait(int64_t unfinished) { return Make({.kind = StmtKind::kWait, .extent = unfinished}); }

Stmt MakeBarrier(int64_t threads) { return Make({.kind = StmtKind::kBarrier, .extent = threads}); }
Stmt MakeSetRegisters(int64_t registers, bool more) {
  return Make({.kind = StmtKind::kSetRegisters, .extent = registers, .value = IntImm(more ? 1 : 0)});
}

Expr RankOf(const ExprNode& load) { return load.args.size() > 1 ? load.args[1] : nullptr; }

Expr RankOf(const StmtNode& store) { return store.operands.empty() ? nullptr : store.operands[0]; }

Stmt MakeClusterBarrier(Stmt meanwhile) {
  if (meanwhile == nullptr) return Make({.kind = StmtKind::kClusterBarrier});
  return Make({.kind = StmtKind::kClusterBarrier, .body = {std::move(meanwhile)}});
}

Stmt MakeClusterEnd() { return Make({.kind = StmtKind::kClusterEnd}); }

Stmt MakeLet(Expr var, Expr value, Stmt body) {
  DIAPASON_CHECK(var->kind == ExprKind::kVar);
  if (body == nullptr) return nullptr;
  return Make({.kind = StmtKind::kLet, .var = std::move(var), .value = std::move(value), .body = {std::move(body)}});
}

Stmt MakeComment(std::string text) { return Make({.kind = StmtKind::kComment, .text = std::move(text)}); }

namespace {

const char* NameOf(ForKind kind) {
  switch (kind) {
    case ForKind::kSerial: return "for";
    case ForKind::kParallel: return "parallel";
    case ForKind::kUnroll: return "unroll";
    case ForKind::kVectorize: return "vectorize";
    case ForKind::kBlockX: return "blockIdx.x";
    case ForKind::kThreadX: return "threadIdx.x";
    case ForKind::kCluster: return "cluster rank";
  }
  return "?";
}

const char* NameOf(Scope scope) {
  switch (scope) {
    case Scope::kGlobal: return "global";
    case Scope::kShared: return "shared";
    case Scope::kLocal: return "local";
  }
  return "?";
}

std::string TextOf(const CoreMatrices& matrices) {
  return (matrices.along_k ? " runs of " : " runs across k of ") + std::to_string(matrices.width) + ", stride " +
         std::to_string(matrices.stride);
}

std::string NameOf(GroupSync sync) {
  switch (sync) {
    case GroupSync::kBegin: return "group begin";
    case GroupSync::kCommit: return "group commit";
    case GroupSync::kWait: return "group wait";
    case GroupSync::kPublish: return "group publish";
  }
  return "?";
}

std::string ToString(const BufferDecl& decl) {
  return std::string(NameOf(decl.scope)) + " " + NameOf(decl.dtype) + " " + decl.name + "[" +
         std::to_string(decl.elements) + "]" + (decl.overlay ? " in place of the others" : "") +
         (decl.apart ? " apart" : "");
}

// Loops as indented text; buffers by the names of their declarations.
class Printer {
 public:
  void Declare(const BufferDecl& decl) { names_[decl.id] = decl.name; }

  void Print(const Stmt& stmt, int depth) {
    switch (stmt->kind) {
      case StmtKind::kFor:
        Line(depth, std::string(NameOf(stmt->for_kind)) + " " + stmt->var->name + " in " +
                        std::to_string(stmt->extent) +
                        (stmt->unroll != 0 ? " (unroll " + std::to_string(stmt->unroll) + ")" : "") + ":");
        return Print(stmt->body[0], depth + 1);
      case StmtKind::kSeq:
        for (const Stmt& child : stmt->body) Print(child, depth);
        return;
      case StmtKind::kStore:
        return Line(depth, Name(stmt->buffer) + (stmt->operands.empty() ? "" : " of " + Text(stmt->operands[0])) + "[" +
                               Text(stmt->index) + (stmt->async ? "] = async " : "] = ") + Text(stmt->value));
      case StmtKind::kIf: Line(depth, "if " + Text(stmt->condition) + ":"); return Print(stmt->body[0], depth + 1);
      case StmtKind::kAlloc:
        Declare(stmt->decl);
        Line(depth, ToString(stmt->decl));
        return Print(stmt->body[0], depth);
      case StmtKind::kBarrier:
        return Line(depth, stmt->extent > 0 ? "barrier of " + std::to_string(stmt->extent) + " threads" : "barrier");
      case StmtKind::kSetRegisters: return Line(depth, "set registers to " + std::to_string(stmt->extent));
      case StmtKind::kClusterBarrier:
        Line(depth, stmt->body.empty() ? "cluster barrier" : "cluster barrier, meanwhile:");
        for (const Stmt& child : stmt->body) Print(child, depth + 1);
        return;
      case StmtKind::kClusterEnd: return Line(depth, "cluster end");
      case StmtKind::kLet:
        Line(depth, "let " + stmt->var->name + " = " + Text(stmt->value));
        return Print(stmt->body[0], depth);
      case StmtKind::kComment: return Line(depth, "# " + stmt->text);
      case StmtKind::kMma: {
        std::string text = (stmt->from_zero ? "first mma " : "mma ") + Name(stmt->buffer);
        for (const Expr& operand : stmt->operands) text += ", " + Text(operand);
        return Line(depth, text);
      }
      case StmtKind::kLoadMatrix:
        return Line(depth, std::string(stmt->transposed ? "load transposed matrices " : "load matrices ") +
                               Name(stmt->buffer) + "[" + Text(stmt->index) + "] of " + std::to_string(stmt->extent) +
                               " from " + Text(stmt->value));
      case StmtKind::kShuffle:
        return Line(depth, Name(stmt->buffer) + "[" + Text(stmt->index) + "] = " + Text(stmt->value) + " of lane " +
                               Text(stmt->operands[0]));
      case StmtKind::kQuadStore:
        return Line(depth, std::string(stmt->transposed ? "transposed" : "quad") + " store " + Name(stmt->buffer) +
                               "[" + Text(stmt->index) + "] of " + Texts(stmt->operands) + " by " +
                               std::to_string(stmt->extent) + " lanes" +
                               (stmt->condition ? " if " + Text(stmt->condition) : ""));
      case StmtKind::kPack:
        return Line(depth, "pack " + Name(stmt->buffer) + "[" + Text(stmt->index) + "] of " + Texts(stmt->operands));
      case StmtKind::kFactorParts:
        return Line(depth, (stmt->part == FactorPart::kLow ? "low parts " : "rounded factors ") + Name(stmt->buffer) +
                               "[" + Text(stmt->index) + "] of " + std::to_string(stmt->extent) + " from " +
                               Text(stmt->value));
      case StmtKind::kGroupMma: {
        const std::string place = stmt->sums.empty() ? Text(stmt->index) : Texts(stmt->sums);
        std::string text = (stmt->from_zero ? "first group mma " : "group mma ") + Name(stmt->buffer) + "[" + place +
                           "] of " + std::to_string(stmt->extent) + " columns";
        for (const Expr& operand : stmt->operands) text += ", " + Text(operand);
        if (stmt->rows.stride > 0) text += ", rows'" + TextOf(stmt->rows);
        return Line(depth, text + "," + TextOf(stmt->columns));
      }
      case StmtKind::kGroupSync:
        return Line(
            depth,
            NameOf(stmt->sync) +
                (stmt->sync == GroupSync::kWait ? " until " + std::to_string(stmt->extent) + " unfinished" : "") +
                (stmt->sums.empty() ? "" : ", " + Name(stmt->buffer) + "[" + Texts(stmt->sums) + "]"));
      case StmtKind::kBulkCopy:
        return Line(depth, "bulk copy " + Name(stmt->buffer) + "[" + Text(stmt->index) + "] of " +
                               std::to_string(stmt->extent) + " from " + Text(stmt->value) +
                               (stmt->operands.empty() ? "" : ", arrives at " + Text(stmt->operands[0])));
      case StmtKind::kTensorCopy: {
        std::string text = "tensor copy " + Name(stmt->buffer) + "[" + Text(stmt->index) + "]";
        for (size_t d = stmt->box->box.size(); d-- > 0;)
          text += (d + 1 == stmt->box->box.size() ? " of " : "x") + std::to_string(stmt->box->box[d]);
        text += (stmt->box->windows.empty() ? "" : " of windows") + std::string(" from ") + Text(stmt->value) + " at (";
        for (size_t d = stmt->operands.size(); d-- > 1;) text += Text(stmt->operands[d]) + (d > 1 ? ", " : ")");
        text += ", arrives at " + Text(stmt->operands[0]);
        return Line(depth, text + (stmt->condition ? ", if " + Text(stmt->condition) : ""));
      }
      case StmtKind::kMbarrier:
        if (stmt->mbarrier == MbarrierOp::kInit)
          return Line(depth, "mbarrier init " + Text(stmt->operands[0]) + " of " + std::to_string(stmt->extent) +
                                 (IsInt(stmt->value, 1) ? "" : " for " + Text(stmt->value) + " arrivals"));
        if (stmt->mbarrier == MbarrierOp::kArrive)
          return Line(depth, "mbarrier arrive " + Text(stmt->operands[0]) +
                                 (stmt->condition ? ", if " + Text(stmt->condition) : ""));
        return Line(depth, "mbarrier wait " + Text(stmt->operands[0]) + " parity " + Text(stmt->value));
      case StmtKind::kCommit: return Line(depth, "commit");
      case StmtKind::kLaunchDependents: return Line(depth, "launch dependents");
      case StmtKind::kWait: return Line(depth, "wait until " + std::to_string(stmt->extent) + " unfinished");
    }
  }

  std::string Texts(const std::vector<Expr>& all) {
    std::string text;
    for (const Expr& e : all) text += (text.empty() ? "" : ", ") + Text(e);
    return text;
  }
  void Line(int depth, const std::string& text) { out_.append(2 * depth, ' ').append(text).append("\n"); }
  std::string TakeText() { return std::move(out_); }

 private:
  std::string Name(int buffer) const {
    auto it = names_.find(buffer);
    return it == names_.end() ? "B" + std::to_string(buffer) : it->second;
  }
  std::string Text(const Expr& e) const {
    return diapason::ToString(e, [this](int buffer) { return Name(buffer); });
  }

  std::map<int, std::string> names_;
  std::string out_;
};

}  // namespace

std::string ToString(const Stmt& stmt) {
  if (stmt == nullptr) return "";
  Printer printer;
  printer.Print(stmt, 0);
  return printer.TakeText();
}

std::string ToString(const KernelFunc& kernel) {
  Printer printer;
  std::string params;
  for (const BufferDecl& param : kernel.params) {
    printer.Declare(param);
    params += (params.empty() ? "" : ", ") + std::string(NameOf(param.dtype)) + (param.written ? " out " : " ") +
              param.name + "[" + std::to_string(param.elements) + "]";
  }
  if (kernel.library != nullptr) {
    printer.Line(0, "call " + kernel.name + "(" + params + "): " + kernel.library->ToString());
    return printer.TakeText();
  }
  printer.Line(0, "kernel " + kernel.name + "(" + params + ") blocks " + std::to_string(kernel.blocks) +
                      (kernel.cluster > 1 ? " in clusters of " + std::to_string(kernel.cluster) : "") + " threads " +
                      std::to_string(kernel.threads) + " shared " + std::to_string(kernel.shared_bytes) + ":");
  if (kernel.body != nullptr) printer.Print(kernel.body, 1);
  return printer.TakeText();
}

bool IsLoop(const Stmt& stmt, ForKind kind) { return stmt->kind == StmtKind::kFor && stmt->for_kind == kind; }

bool Contains(const Stmt& stmt, const std::function<bool(const StmtNode&)>& is) {
  if (is(*stmt)) return true;
  return std::any_of(stmt->body.begin(), stmt->body.end(), [&](const Stmt& child) { return Contains(child, is); });
}

std::vector<MappedTensor> MappedTensorsOf(const Stmt& body) {
  std::vector<MappedTensor> all;
  if (body == nullptr) return all;
  Contains(body, [&](const StmtNode& s) {
    if (s.kind != StmtKind::kTensorCopy) return false;
    const bool known = std::any_of(all.begin(), all.end(), [&](const MappedTensor& tensor) {
      return tensor.buffer == s.value->buffer && *tensor.box == *s.box;
    });
    if (!known) all.push_back({s.value->buffer, s.box});
    return false;
  });
  return all;
}

bool LoadsFrom(const Expr& e, const std::function<bool(int buffer)>& from) {
  bool loads = false;
  if (e) Visit(e, [&](const ExprNode& node) { loads |= node.kind == ExprKind::kLoad && from(node.buffer); });
  return loads;
}

bool LoadsAnything(const Expr& e) {
  return LoadsFrom(e, [](int) { return true; });
}

Stmt WithBody(const StmtNode& stmt, std::vector<Stmt> body) {
  if (stmt.kind == StmtKind::kSeq) return MakeSeq(std::move(body));
  StmtNode copy = stmt;
  copy.body = std::move(body);
  return std::make_shared<const StmtNode>(std::move(copy));
}

}  // namespace diapason
