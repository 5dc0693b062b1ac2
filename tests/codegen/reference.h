// Runs loop nests directly, in double: what printed kernels are compared with. The threads of a GPU kernel's block are
// threads here too, so that barriers do what they do there.
#pragma once

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <map>
#include <thread>
#include <unordered_map>
#include <vector>

#include "compiler/lower/stmt.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/check.h"

namespace diapason::testing {

// One thread of a kernel.
class ReferenceThread {
 public:
  int64_t block = 0, thread = 0;
  std::function<void()> barrier;
  std::map<int, std::vector<double>*> memory;  // global and shared buffers
  std::map<int, BufferDecl> decls;

  void Execute(const Stmt& s) {
    if (s == nullptr) return;
    switch (s->kind) {
      case StmtKind::kFor:
        return Loop(*s);
      case StmtKind::kSeq:
        for (const Stmt& child : s->body) Execute(child);
        return;
      case StmtKind::kStore:
        memory.at(s->buffer)->at(Int(s->index)) = Rounded(decls.at(s->buffer), Value(s->value));
        return;
      case StmtKind::kIf:
        if (Value(s->condition) != 0) Execute(s->body[0]);
        return;
      case StmtKind::kAlloc: {
        decls[s->decl.id] = s->decl;
        if (s->decl.scope == Scope::kShared) return Execute(s->body[0]);
        std::vector<double> contents(s->decl.elements, std::nan(""));
        memory[s->decl.id] = &contents;
        return Execute(s->body[0]);
      }
      case StmtKind::kLet:
        vars_[s->var.get()] = Int(s->value);
        return Execute(s->body[0]);
      case StmtKind::kBarrier:
        return barrier();
      case StmtKind::kComment:
        return;
    }
  }

 private:
  void Loop(const StmtNode& s) {
    const bool is_block = s.for_kind == ForKind::kBlockX, is_thread = s.for_kind == ForKind::kThreadX;
    if (is_block || is_thread) {
      vars_[s.var.get()] = is_block ? block : thread;
      return Execute(s.body[0]);
    }
    for (int64_t i = 0; i < s.extent; ++i) {
      vars_[s.var.get()] = i;
      Execute(s.body[0]);
    }
  }

  static double Rounded(const BufferDecl& decl, double value) {
    switch (decl.dtype) {
      case DType::kFloat32:
        return static_cast<float>(value);
      case DType::kFloat16:
        return decl.scope == Scope::kLocal ? value : HalfToFloat(FloatToHalf(static_cast<float>(value)));
      case DType::kBool:
        return value != 0;
      default:
        return value;
    }
  }

  int64_t Int(const Expr& e) { return static_cast<int64_t>(Value(e)); }

  double Value(const Expr& e) {
    auto arg = [&](size_t i) { return Value(e->args[i]); };
    switch (e->kind) {
      case ExprKind::kIntImm:
        return static_cast<double>(e->value);
      case ExprKind::kFloatImm:
        return e->fvalue;
      case ExprKind::kVar:
        return static_cast<double>(vars_.at(e.get()));
      case ExprKind::kAdd:
        return arg(0) + arg(1);
      case ExprKind::kSub:
        return arg(0) - arg(1);
      case ExprKind::kMul:
        return arg(0) * arg(1);
      case ExprKind::kDiv:
        return arg(0) / arg(1);
      case ExprKind::kFloorDiv:
        return std::floor(arg(0) / arg(1));
      case ExprKind::kFloorMod:
        return arg(0) - std::floor(arg(0) / arg(1)) * arg(1);
      case ExprKind::kMin:
        return std::min(arg(0), arg(1));
      case ExprKind::kMax:
        return std::max(arg(0), arg(1));
      case ExprKind::kLt:
        return arg(0) < arg(1);
      case ExprKind::kLe:
        return arg(0) <= arg(1);
      case ExprKind::kEq:
        return arg(0) == arg(1);
      case ExprKind::kNe:
        return arg(0) != arg(1);
      case ExprKind::kAnd:
        return arg(0) != 0 && arg(1) != 0;
      case ExprKind::kOr:
        return arg(0) != 0 || arg(1) != 0;
      case ExprKind::kNot:
        return arg(0) == 0;
      case ExprKind::kSelect:
        return arg(0) != 0 ? arg(1) : arg(2);
      case ExprKind::kCast:
        if (e->dtype == DType::kBool) return arg(0) != 0;
        return IsFloat(e->dtype) ? arg(0) : std::trunc(arg(0));
      case ExprKind::kCall:
        return Called(e);
      case ExprKind::kLoad:
        return memory.at(e->buffer)->at(Int(e->args[0]));
    }
    return 0;
  }

  double Called(const Expr& e) {
    const double x = Value(e->args[0]);
    const std::string& f = e->name;
    if (f == "exp") return std::exp(x);
    if (f == "log") return std::log(x);
    if (f == "sqrt") return std::sqrt(x);
    if (f == "rsqrt") return 1 / std::sqrt(x);
    if (f == "tanh") return std::tanh(x);
    if (f == "sigmoid") return 1 / (1 + std::exp(-x));
    if (f == "erf") return std::erf(x);
    if (f == "pow") return std::pow(x, Value(e->args[1]));
    if (f == "abs") return std::fabs(x);
    if (f == "floor") return std::floor(x);
    if (f == "ceil") return std::ceil(x);
    if (f == "round") return std::nearbyint(x);
    internal::CheckFailed(__FILE__, __LINE__, "known function", f);
  }

  std::unordered_map<const ExprNode*, int64_t> vars_;
};

class Reference {
 public:
  // Parameters by id, converted to double; stores round to the buffer's type.
  std::map<int, std::vector<double>> buffers;

  void Run(const KernelFunc& kernel) {
    ReferenceThread start;
    for (const BufferDecl& param : kernel.params) {
      start.decls[param.id] = param;
      start.memory[param.id] = &buffers.at(param.id);
    }
    start.barrier = [] {};
    if (kernel.body == nullptr) return;
    if (!OnGpu(kernel.body)) return start.Execute(kernel.body);
    for (start.block = 0; start.block < kernel.blocks; ++start.block) RunBlock(kernel, start);
  }

 private:
  static bool OnGpu(const Stmt& s) {
    if (s->kind == StmtKind::kFor && (s->for_kind == ForKind::kBlockX || s->for_kind == ForKind::kThreadX)) return true;
    return std::any_of(s->body.begin(), s->body.end(), OnGpu);
  }

  void RunBlock(const KernelFunc& kernel, ReferenceThread start) {
    std::map<int, std::vector<double>> shared;
    AllocateShared(kernel.body, shared);
    for (auto& [id, contents] : shared) start.memory[id] = &contents;
    std::barrier<> barrier(kernel.threads);
    start.barrier = [&] { barrier.arrive_and_wait(); };
    std::vector<std::thread> threads;
    for (start.thread = 0; start.thread < kernel.threads; ++start.thread)
      threads.emplace_back([copy = start, &kernel]() mutable { copy.Execute(kernel.body); });
    for (std::thread& thread : threads) thread.join();
  }

  static void AllocateShared(const Stmt& s, std::map<int, std::vector<double>>& shared) {
    if (s->kind == StmtKind::kAlloc && s->decl.scope == Scope::kShared)
      shared[s->decl.id].assign(s->decl.elements, std::nan(""));
    for (const Stmt& child : s->body) AllocateShared(child, shared);
  }
};

}  // namespace diapason::testing
