#include "compiler/codegen/cluster_passes.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "compiler/codegen/passes.h"
#include "compiler/lower/map_children.h"
#include "compiler/tensor/program.h"

namespace diapason {
namespace {

bool IsClusterBarrier(const StmtNode& s) {
  return s.kind == StmtKind::kClusterBarrier || s.kind == StmtKind::kClusterEnd;
}

bool HasClusterBarrier(const Stmt& stmt) { return stmt != nullptr && Contains(stmt, IsClusterBarrier); }

// Buffers that the expression or statement reads or writes.
void CollectBuffers(const Stmt& stmt, std::set<int>* all, std::set<int>* stored) {
  const auto loads = [&](const Expr& e) {
    if (!e) return;
    Visit(e, [&](const ExprNode& node) {
      if (node.kind == ExprKind::kLoad) all->insert(node.buffer);
    });
  };
  for (const Expr* e : {&stmt->index, &stmt->value, &stmt->condition}) loads(*e);
  for (const Expr& operand : stmt->operands) loads(operand);
  if (stmt->kind == StmtKind::kStore || stmt->kind == StmtKind::kMma || stmt->kind == StmtKind::kLoadMatrix ||
      stmt->kind == StmtKind::kFactorParts || stmt->kind == StmtKind::kGroupMma || stmt->kind == StmtKind::kBulkCopy ||
      stmt->kind == StmtKind::kTensorCopy || stmt->kind == StmtKind::kQuadStore) {
    all->insert(stmt->buffer);
    stored->insert(stmt->buffer);
  }
  for (const Stmt& child : stmt->body) CollectBuffers(child, all, stored);
}

class ClusterSplitter {
 public:
  explicit ClusterSplitter(const KernelFunc& kernel) : kernel_(kernel) {
    CollectRemote(kernel.body);
    FindIndices(kernel.body);
    CollectKept();
  }

  // The parts between the cluster barriers.
  std::vector<KernelFunc> Run() {
    std::vector<Stmt> bodies = Parts(kernel_.body);
    std::vector<KernelFunc> kernels;
    for (const Stmt& body : bodies) {
      KernelFunc part = kernel_;
      if (!kernels.empty()) part.name += "_part" + std::to_string(kernels.size() + 1);
      part.body = ToWorkspace(body);
      FinishParams(&part);
      kernels.push_back(std::move(part));
    }
    return kernels;
  }

  // Shared buffers that other blocks or the next part read, as what they are in the workspace.
  std::vector<BufferDecl> workspaces() const {
    std::vector<BufferDecl> result;
    for (const auto& [id, decl] : remote_) result.push_back(InWorkspace(decl));
    return result;
  }

 private:
  BufferDecl InWorkspace(const BufferDecl& decl) const {
    BufferDecl global = decl;
    global.scope = Scope::kGlobal;
    global.elements *= kernel_.blocks;
    global.written = true;
    global.overlay = false;
    return global;
  }

  void CollectRemote(const Stmt& stmt) {
    std::set<int> read;
    MapExprs(stmt, [&](const Expr& e) {
      Visit(e, [&](const ExprNode& node) {
        if (node.kind == ExprKind::kLoad && RankOf(node) != nullptr) read.insert(node.buffer);
      });
      return e;
    });
    FindDecls(stmt, read);
  }

  // What a block itself leaves in shared memory for the next part.
  void CollectKept() {
    std::map<int, int> parts;  // that use a buffer
    for (const Stmt& part : Parts(kernel_.body)) {
      std::set<int> used, stored;
      CollectBuffers(part, &used, &stored);
      for (int buffer : used) ++parts[buffer];
    }
    std::set<int> kept;
    Contains(kernel_.body, [&](const StmtNode& s) {
      const bool shared = s.kind == StmtKind::kAlloc && s.decl.scope == Scope::kShared;
      if (shared && parts[s.decl.id] > 1) kept.insert(s.decl.id);
      return false;
    });
    FindDecls(kernel_.body, kept);
  }

  void FindDecls(const Stmt& stmt, const std::set<int>& ids) {
    if (stmt->kind == StmtKind::kAlloc && ids.count(stmt->decl.id) > 0) remote_[stmt->decl.id] = stmt->decl;
    for (const Stmt& child : stmt->body) FindDecls(child, ids);
  }

  void FindIndices(const Stmt& stmt) {
    if (stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kBlockX) cluster_ = stmt->var;
    if (stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kCluster) rank_ = stmt->var;
    for (const Stmt& child : stmt->body) FindIndices(child);
  }

  // Cuts the sequence that holds the barriers, and gives each piece what is around it.
  std::vector<Stmt> Parts(const Stmt& stmt) {
    if (stmt->kind == StmtKind::kSeq) {
      std::vector<Stmt> parts, current;
      for (const Stmt& child : stmt->body) {
        if (!IsClusterBarrier(*child)) {
          DIAPASON_CHECK_MSG(!HasClusterBarrier(child), kernel_.name + ": a barrier of the cluster within a loop");
          current.push_back(child);
          continue;
        }
        current.insert(current.end(), child->body.begin(), child->body.end());
        if (Stmt part = MakeSeq(std::move(current))) parts.push_back(part);
        current.clear();
      }
      if (Stmt part = MakeSeq(std::move(current))) parts.push_back(part);
      return parts;
    }
    DIAPASON_CHECK_MSG(stmt->kind == StmtKind::kFor || stmt->kind == StmtKind::kAlloc || stmt->kind == StmtKind::kLet,
                       kernel_.name + ": a barrier of the cluster under a condition");
    std::vector<Stmt> parts = Parts(stmt->body[0]);
    for (Stmt& part : parts) part = Around(*stmt, part);
    return parts;
  }

  Stmt Around(const StmtNode& outer, const Stmt& body) const {
    if (outer.kind == StmtKind::kFor) return MakeFor(outer.for_kind, outer.var, outer.extent, body, outer.unroll);
    if (outer.kind == StmtKind::kLet) return MakeLet(outer.var, outer.value, body);
    std::set<int> used, stored;
    CollectBuffers(body, &used, &stored);
    return used.count(outer.decl.id) > 0 && remote_.count(outer.decl.id) == 0 ? MakeAlloc(outer.decl, body) : body;
  }

  // Element `index` of the buffer of a block: the blocks' buffers lie one behind the other.
  Expr Place(const BufferDecl& decl, const Expr& rank, const Expr& index) const {
    const Expr block = Add(Mul(cluster_, IntImm(kernel_.cluster)), rank);
    return Add(Mul(block, IntImm(decl.elements)), index);
  }

  Stmt ToWorkspace(const Stmt& stmt) const {
    if (stmt->kind == StmtKind::kStore) {
      const auto found = remote_.find(stmt->buffer);
      const Expr value = ToWorkspace(stmt->value), index = ToWorkspace(stmt->index);
      return MakeStore(stmt->buffer, found == remote_.end() ? index : Place(found->second, rank_, index), value,
                       stmt->async);
    }
    auto copy = std::make_shared<StmtNode>(*stmt);
    if (copy->condition) copy->condition = ToWorkspace(copy->condition);
    if (copy->value) copy->value = ToWorkspace(copy->value);
    for (Expr& operand : copy->operands) operand = ToWorkspace(operand);
    for (Stmt& child : copy->body) child = ToWorkspace(child);
    return copy;
  }

  Expr ToWorkspace(const Expr& e) const {
    return Rewrite(e, [&](const Expr& load) -> Expr {
      if (load->kind != ExprKind::kLoad) return load;
      const auto found = remote_.find(load->buffer);
      if (found == remote_.end()) return load;
      const Expr other = RankOf(*load), rank = other != nullptr ? other : rank_;
      return Load(load->buffer, load->dtype, {Place(found->second, rank, load->args[0])});
    });
  }

  void FinishParams(KernelFunc* part) const {
    std::set<int> used, stored;
    CollectBuffers(part->body, &used, &stored);
    std::vector<BufferDecl> params;
    for (BufferDecl param : part->params) {
      param.written = stored.count(param.id) > 0;
      if (used.count(param.id) > 0) params.push_back(param);
    }
    for (const auto& [id, decl] : remote_) {
      BufferDecl param = InWorkspace(decl);
      param.written = stored.count(id) > 0;
      if (used.count(id) > 0) params.push_back(param);
    }
    part->params = std::move(params);
  }

  const KernelFunc& kernel_;
  std::map<int, BufferDecl> remote_;
  Expr cluster_, rank_;
};

}  // namespace

LoweredProgram WithoutClusters(const LoweredProgram& program) {
  LoweredProgram result = program;
  result.kernels.clear();
  for (const KernelFunc& kernel : program.kernels) {
    if (!HasClusterBarrier(kernel.body)) {
      result.kernels.push_back(kernel);
      continue;
    }
    ClusterSplitter splitter(kernel);
    for (KernelFunc& part : splitter.Run()) result.kernels.push_back(std::move(part));
    for (const BufferDecl& decl : splitter.workspaces()) {
      LoweredProgram::Buffer buffer;
      buffer.decl = decl;
      buffer.role = static_cast<int>(BufferRole::kWorkspace);
      result.buffers[decl.id] = buffer;
    }
  }
  return result;
}

}  // namespace diapason
