#include "compiler/lower/kernel_work.h"

#include <algorithm>
#include <map>
#include <variant>

#include "base/check.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

constexpr int64_t kLongestUnrolled = 8;

class Counter {
 public:
  explicit Counter(const KernelFunc& kernel) {
    for (const BufferDecl& param : kernel.params) traffic_[param.id].decl = &param;
  }

  void Walk(const Stmt& stmt, double times);
  KernelWork work() const;

 private:
  struct Traffic {
    const BufferDecl* decl = nullptr;
    double reads = 0, writes = 0;  // elements
  };

  void Read(const Expr& value, double times, double elements = 1);
  void Write(int buffer, double elements);
  void Product(const StmtNode& stmt, double times);
  double FlopsOfValue(const Expr& value) const;

  double flops_ = 0, products_ = 0;
  TensorMode tensor_ = TensorMode::kNone;
  std::map<int, Traffic> traffic_;  // by buffer id; parameters alone
  VarMap known_;                    // loop variables that are walked one value at a time
};

// Whether a value that is stored in the body, a transform of Winograd's for instance, is chosen by the variable: what
// is chosen may be 0 or 1, and the compiler, which unrolls short loops, leaves out the product with it.
bool Chooses(const Stmt& body, const ExprNode* var) {
  bool chooses = false;
  if (body->kind == StmtKind::kStore)
    Visit(body->value, [&](const ExprNode& node) {
      chooses = chooses || (node.kind == ExprKind::kSelect && UsesVar(node.args[0], var));
    });
  for (const Stmt& inner : body->body) chooses = chooses || Chooses(inner, var);
  return chooses;
}

void Counter::Read(const Expr& value, double times, double elements) {
  Visit(value, [&](const ExprNode& node) {
    if (node.kind != ExprKind::kLoad) return;
    if (const auto found = traffic_.find(node.buffer); found != traffic_.end()) found->second.reads += times * elements;
  });
}

void Counter::Write(int buffer, double elements) {
  if (const auto found = traffic_.find(buffer); found != traffic_.end()) found->second.writes += elements;
}

// Each lane of the warp or warpgroup gets here, and does its share.
void Counter::Product(const StmtNode& stmt, double times) {
  const auto depth = static_cast<double>(TensorIntrinsicOf(stmt.tensor).depth());
  const double flops = stmt.kind == StmtKind::kMma ? 2 * 16 * 8 * depth / kLanesOfWarp
                                                   : 2 * 64 * static_cast<double>(stmt.extent) * depth / kLanesOfGroup;
  flops_ += times * flops;
  products_ += times * flops;
  tensor_ = stmt.tensor;
}

double Counter::FlopsOfValue(const Expr& value) const {
  return FlopsOf(known_.empty() ? value : Substitute(value, known_), value->dtype);
}

void Counter::Walk(const Stmt& stmt, double times) {
  if (stmt->kind == StmtKind::kFor && stmt->extent <= kLongestUnrolled && Chooses(stmt->body[0], stmt->var.get())) {
    for (int64_t i = 0; i < stmt->extent; ++i) {
      known_[stmt->var.get()] = IntImm(i);
      Walk(stmt->body[0], times);
    }
    known_.erase(stmt->var.get());
    return;
  }
  switch (stmt->kind) {
    case StmtKind::kFor: times *= static_cast<double>(stmt->extent); break;
    case StmtKind::kStore:
      flops_ += times * FlopsOfValue(stmt->value);
      Read(stmt->value, times);
      Read(stmt->index, times);
      Write(stmt->buffer, times);
      break;
    case StmtKind::kIf: Read(stmt->condition, times); break;
    case StmtKind::kLet: Read(stmt->value, times); break;
    case StmtKind::kMma:
    case StmtKind::kGroupMma: Product(*stmt, times); break;
    case StmtKind::kQuadStore:
      for (const Expr& operand : stmt->operands) flops_ += times * FlopsOfValue(operand);
      Write(stmt->buffer, times * static_cast<double>(stmt->operands.size()));
      [[fallthrough]];
    case StmtKind::kPack:
      for (const Expr& operand : stmt->operands) Read(operand, times);
      break;
    case StmtKind::kTensorCopy: Read(stmt->value, times, static_cast<double>(stmt->box->elements())); break;
    case StmtKind::kBulkCopy: Read(stmt->value, times, static_cast<double>(stmt->extent)); break;
    default: break;
  }
  for (const Stmt& inner : stmt->body) Walk(inner, times);
}

KernelWork Counter::work() const {
  KernelWork work{flops_, 0, 2 * products_ > flops_ ? tensor_ : TensorMode::kNone};
  for (const auto& [id, traffic] : traffic_) {
    const double touched = traffic.writes > 0 ? traffic.writes : traffic.reads;
    work.bytes += std::min(touched, static_cast<double>(traffic.decl->elements)) *
                  static_cast<double>(BytesOf(traffic.decl->dtype));
  }
  return work;
}

KernelWork WorkOf(const LibraryCall& call) {
  KernelWork work;
  if (const auto* c = std::get_if<ConvolutionCall>(&call.what))
    work.flops = 2.0 * static_cast<double>(c->batch * c->filters) * static_cast<double>(c->out_h * c->out_w) *
                 static_cast<double>(c->kernel_h * c->kernel_w) * static_cast<double>(c->channels / c->groups);
  if (const auto* g = std::get_if<GemmCall>(&call.what))
    work.flops = 2.0 * static_cast<double>(g->batch * g->m) * static_cast<double>(g->n) * static_cast<double>(g->k);
  for (const LibraryCall::Operand& operand : call.Operands())
    work.bytes += static_cast<double>(operand.elements * BytesOf(operand.dtype));
  return work;
}

}  // namespace

KernelWork WorkOf(const KernelFunc& kernel) {
  if (kernel.library != nullptr) return WorkOf(*kernel.library);
  Counter counter(kernel);
  if (kernel.body != nullptr) counter.Walk(kernel.body, 1);
  return counter.work();
}

}  // namespace diapason
