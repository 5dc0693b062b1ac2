#include "compiler/tensor/compute_dag.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace diapason {
namespace {

// Of a stage, over its axes and reduce axes together: indices are walked by recursion. Tensors of models have no more
// than 8.
constexpr size_t kMaxAxes = 64;

absl::Status Invalid(const Stage& stage, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("stage '", stage.name, "': ", why));
}

// Checks one stage of a dag, and the expressions in it, before anything is computed from them: what passes here can be
// printed, simplified and lowered without further checks.
class StageChecker {
 public:
  StageChecker(const std::vector<Stage>& stages, int id, std::unordered_set<const ExprNode*>& seen_vars)
      : stages_(stages), stage_(stages[id]), id_(id), seen_vars_(seen_vars) {}

  absl::Status Run() {
    RETURN_IF_ERROR(CheckName());
    RETURN_IF_ERROR(CheckAxes(stage_.axes));
    RETURN_IF_ERROR(CheckAxes(stage_.reduce_axes));
    RETURN_IF_ERROR(CheckSize());
    if (stage_.placeholder) return CheckPlaceholder();
    if (stage_.constant) return Invalid(stage_, "only a placeholder can be constant");
    if (stage_.reduces() == (stage_.combiner == Combiner::kNone))
      return Invalid(stage_, "a stage has a combiner if and only if it has reduce axes");
    if (stage_.body == nullptr) return Invalid(stage_, "it has no body");
    if (stage_.body->dtype != stage_.dtype)
      return Invalid(stage_,
                     absl::StrCat("it is ", NameOf(stage_.dtype), " but its body is ", NameOf(stage_.body->dtype)));
    return CheckExpr(*stage_.body);
  }

 private:
  absl::Status CheckName() const {
    auto good = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    };
    if (stage_.name.empty() || !std::all_of(stage_.name.begin(), stage_.name.end(), good))
      return Invalid(stage_, "a name consists of letters, digits, '_' and '.'");
    return absl::OkStatus();
  }

  absl::Status CheckAxes(const std::vector<Axis>& axes) {
    for (const Axis& axis : axes) {
      if (axis.var == nullptr || axis.var->kind != ExprKind::kVar || axis.var->dtype != DType::kInt64)
        return Invalid(stage_, "an axis is no int64 variable");
      if (!seen_vars_.insert(axis.var.get()).second)
        return Invalid(stage_, absl::StrCat("the variable ", axis.var->name, " is the axis of two loops"));
      if (axis.extent < 1) return Invalid(stage_, absl::StrCat("axis ", axis.var->name, " has extent ", axis.extent));
      own_vars_.insert(axis.var.get());
    }
    return absl::OkStatus();
  }

  absl::Status CheckSize() const {
    const size_t axes = stage_.axes.size() + stage_.reduce_axes.size();
    if (axes > kMaxAxes) return Invalid(stage_, absl::StrCat("it has ", axes, " axes, more than ", kMaxAxes));
    int64_t size = 16;  // room for the largest element, and for sums of a few indices
    for (const std::vector<Axis>* axes : {&stage_.axes, &stage_.reduce_axes})
      for (const Axis& axis : *axes)
        if (__builtin_mul_overflow(size, axis.extent, &size)) return Invalid(stage_, "it is too large");
    return absl::OkStatus();
  }

  absl::Status CheckPlaceholder() const {
    if (stage_.body != nullptr || stage_.reduces() || stage_.combiner != Combiner::kNone)
      return Invalid(stage_, "a placeholder computes nothing");
    if (stage_.valid_min > stage_.valid_max) return Invalid(stage_, "valid_min is above valid_max");
    return absl::OkStatus();
  }

  absl::Status CheckExpr(const ExprNode& e) {
    if (!checked_.insert(&e).second) return absl::OkStatus();
    for (const Expr& arg : e.args) {
      if (arg == nullptr) return Invalid(stage_, "an expression is incomplete");
      RETURN_IF_ERROR(CheckExpr(*arg));
    }
    if (const char* why = TypeError(e)) return Invalid(stage_, why);
    if (e.kind == ExprKind::kVar && own_vars_.count(&e) == 0)
      return Invalid(stage_, absl::StrCat("it uses the variable ", e.name, ", which is none of its axes"));
    return e.kind == ExprKind::kLoad ? CheckLoad(e) : absl::OkStatus();
  }

  absl::Status CheckLoad(const ExprNode& e) const {
    if (e.buffer < 0 || e.buffer >= id_)
      return Invalid(stage_, absl::StrCat("it reads stage ", e.buffer, ", which does not come before it"));
    const Stage& producer = stages_[e.buffer];
    if (e.dtype != producer.dtype)
      return Invalid(stage_, absl::StrCat("it reads '", producer.name, "' as ", NameOf(e.dtype), ", which is ",
                                          NameOf(producer.dtype)));
    if (e.args.size() != producer.axes.size())
      return Invalid(stage_, absl::StrCat("it reads '", producer.name, "' with ", e.args.size(), " indices, which has ",
                                          producer.axes.size(), " axes"));
    for (const Expr& index : e.args)
      if (index->dtype != DType::kInt64) return Invalid(stage_, "an index is not int64");
    return absl::OkStatus();
  }

  // What is wrong with the number and the types of the arguments, or null.
  static const char* TypeError(const ExprNode& e) {
    const std::vector<Expr>& args = e.args;
    auto same = [&](size_t first, size_t count) {
      for (size_t i = first; i < args.size(); ++i)
        if (args[i]->dtype != args[first]->dtype) return false;
      return args.size() == count;
    };
    switch (e.kind) {
      case ExprKind::kIntImm: return args.empty() && !IsFloat(e.dtype) ? nullptr : "an integer literal is malformed";
      case ExprKind::kFloatImm: return args.empty() && IsFloat(e.dtype) ? nullptr : "a float literal is malformed";
      case ExprKind::kVar: return args.empty() && e.dtype == DType::kInt64 ? nullptr : "a variable is malformed";
      case ExprKind::kAdd:
      case ExprKind::kSub:
      case ExprKind::kMul:
      case ExprKind::kMin:
      case ExprKind::kMax:
        return same(0, 2) && args[0]->dtype == e.dtype ? nullptr : "the operands of arithmetic differ in type";
      case ExprKind::kDiv:
        return same(0, 2) && args[0]->dtype == e.dtype && IsFloat(e.dtype) ? nullptr : "a division is not of floats";
      case ExprKind::kFloorDiv:
      case ExprKind::kFloorMod:
        return same(0, 2) && args[0]->dtype == e.dtype && !IsFloat(e.dtype) && args[1]->kind == ExprKind::kIntImm &&
                       args[1]->value > 0
                   ? nullptr
                   : "floordiv and floormod take an integer and a positive literal";
      case ExprKind::kLt:
      case ExprKind::kLe:
      case ExprKind::kEq:
      case ExprKind::kNe:
        return same(0, 2) && e.dtype == DType::kBool ? nullptr : "the operands of a comparison differ in type";
      case ExprKind::kAnd:
      case ExprKind::kOr:
        return same(0, 2) && args[0]->dtype == DType::kBool && e.dtype == DType::kBool ? nullptr
                                                                                       : "logic is not of bools";
      case ExprKind::kNot:
        return same(0, 1) && args[0]->dtype == DType::kBool && e.dtype == DType::kBool ? nullptr
                                                                                       : "logic is not of bools";
      case ExprKind::kSelect:
        return args.size() == 3 && args[0]->dtype == DType::kBool && same(1, 3) && args[1]->dtype == e.dtype
                   ? nullptr
                   : "a select takes a bool and two values of one type";
      case ExprKind::kCast: return args.size() == 1 ? nullptr : "a cast takes one value";
      case ExprKind::kCall:
        return !args.empty() && same(0, CallArity(e.name)) && args[0]->dtype == e.dtype && IsFloat(e.dtype)
                   ? nullptr
                   : "a call has an unknown function or the wrong arguments";
      case ExprKind::kLoad: return nullptr;
    }
    return "an expression is of an unknown kind";
  }

  static size_t CallArity(const std::string& function) {
    if (function == "pow") return 2;
    for (const char* name :
         {"exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf",  "abs",   "floor", "ceil",  "round",    "sin",
          "cos", "tan", "asin", "acos",  "atan", "sinh",    "cosh", "asinh", "acosh", "atanh", "bfloat16", "tf32"})
      if (function == name) return 1;
    return 0;
  }

  const std::vector<Stage>& stages_;
  const Stage& stage_;
  const int id_;
  std::unordered_set<const ExprNode*>& seen_vars_;  // axes of all stages so far
  std::unordered_set<const ExprNode*> own_vars_;
  std::unordered_set<const ExprNode*> checked_;
};

absl::Status CheckOutputs(const std::vector<Stage>& stages, const std::vector<int>& outputs) {
  if (outputs.empty()) return absl::InvalidArgumentError("a dag has at least one output");
  std::unordered_set<int> seen;
  for (int output : outputs) {
    if (output < 0 || output >= static_cast<int>(stages.size()))
      return absl::InvalidArgumentError(absl::StrCat("output ", output, " is none of the ", stages.size(), " stages"));
    if (stages[output].placeholder) return Invalid(stages[output], "a placeholder cannot be an output");
    if (!seen.insert(output).second) return Invalid(stages[output], "it is an output twice");
  }
  return absl::OkStatus();
}

std::string ShapeText(const Stage& stage) {
  return absl::StrCat(NameOf(stage.dtype), "[", absl::StrJoin(stage.shape(), ", "), "]");
}

const char* NameOf(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum: return "sum";
    case Combiner::kMax: return "max";
    case Combiner::kMin: return "min";
    case Combiner::kProd: return "prod";
    case Combiner::kNone: break;
  }
  return "";
}

std::string VarNames(const std::vector<Axis>& axes) {
  return absl::StrJoin(axes, ", ", [](std::string* out, const Axis& axis) { out->append(axis.var->name); });
}

}  // namespace

std::vector<int64_t> Stage::shape() const {
  std::vector<int64_t> shape;
  for (const Axis& axis : axes) shape.push_back(axis.extent);
  return shape;
}

int64_t Stage::elements() const {
  int64_t elements = 1;
  for (const Axis& axis : axes) elements *= axis.extent;
  return elements;
}

int64_t Stage::terms() const {
  int64_t terms = 1;
  for (const Axis& axis : reduce_axes) terms *= axis.extent;
  return terms;
}

absl::StatusOr<ComputeDag> ComputeDag::Create(std::vector<Stage> stages, std::vector<int> outputs) {
  std::unordered_set<std::string> names;
  std::unordered_set<const ExprNode*> vars;
  for (size_t id = 0; id < stages.size(); ++id) {
    RETURN_IF_ERROR(StageChecker(stages, static_cast<int>(id), vars).Run());
    if (!names.insert(stages[id].name).second) return Invalid(stages[id], "the name is taken by another stage");
  }
  RETURN_IF_ERROR(CheckOutputs(stages, outputs));

  ComputeDag dag;
  dag.stages_ = std::move(stages);
  dag.outputs_ = std::move(outputs);
  dag.consumers_.resize(dag.stages_.size());
  for (int id = 0; id < dag.size(); ++id) {
    const std::vector<int> producers = dag.producers(id);
    for (int producer : producers) dag.consumers_[producer].push_back(id);
    const Stage& stage = dag.stages_[id];
    bool constant = stage.placeholder
                        ? stage.constant
                        : std::all_of(producers.begin(), producers.end(), [&](int p) { return dag.prologue_[p]; });
    dag.prologue_.push_back(constant && !dag.is_output(id));
  }
  return dag;
}

bool ComputeDag::is_output(int id) const { return std::count(outputs_.begin(), outputs_.end(), id) > 0; }

std::vector<int> ComputeDag::inputs() const {
  std::vector<int> inputs;
  for (int id = 0; id < size(); ++id)
    if (stages_[id].placeholder) inputs.push_back(id);
  return inputs;
}

std::vector<int> ComputeDag::producers(int id) const {
  std::vector<int> producers;
  if (stages_[id].body == nullptr) return producers;
  Visit(stages_[id].body, [&](const ExprNode& e) {
    if (e.kind == ExprKind::kLoad && std::count(producers.begin(), producers.end(), e.buffer) == 0)
      producers.push_back(e.buffer);
  });
  return producers;
}

double FlopsOf(const Expr& e, DType dtype) {
  double sum = 0;
  switch (e->kind) {
    case ExprKind::kLoad: return 0;  // index arithmetic is not counted
    case ExprKind::kSelect:
      return FlopsOf(e->args[0], dtype) + std::max(FlopsOf(e->args[1], dtype), FlopsOf(e->args[2], dtype));
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul:
    case ExprKind::kDiv:
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod:
    case ExprKind::kMin:
    case ExprKind::kMax: sum = e->dtype == dtype || IsFloat(e->dtype); break;
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kEq:
    case ExprKind::kNe: sum = IsFloat(e->args[0]->dtype); break;
    default: break;
  }
  for (const Expr& arg : e->args) sum += FlopsOf(arg, dtype);
  return sum;
}

double ComputeDag::flops() const {
  double total = 0;
  for (int id = 0; id < size(); ++id) {
    const Stage& stage = stages_[id];
    if (stage.placeholder || is_prologue(id)) continue;
    double points = static_cast<double>(stage.elements());
    for (const Axis& axis : stage.reduce_axes) points *= static_cast<double>(axis.extent);
    total += points * (FlopsOf(stage.body, stage.dtype) + (stage.reduces() ? 1 : 0));
  }
  return total;
}

std::string ComputeDag::ToString() const {
  std::string out;
  const auto name_of = [&](int id) { return stages_[id].name; };
  for (const Stage& stage : stages_) {
    if (stage.placeholder) {
      absl::StrAppend(&out, stage.name, ": ", ShapeText(stage), stage.constant ? " constant\n" : " placeholder\n");
      continue;
    }
    absl::StrAppend(&out, stage.name, ": ", ShapeText(stage), "\n  ", stage.name, "[", VarNames(stage.axes), "] = ");
    const std::string body = diapason::ToString(stage.body, name_of);
    if (stage.reduces()) {
      absl::StrAppend(&out, NameOf(stage.combiner), "(", body, " over ",
                      absl::StrJoin(stage.reduce_axes, ", ",
                                    [](std::string* text, const Axis& axis) {
                                      absl::StrAppend(text, axis.var->name, " < ", axis.extent);
                                    }),
                      ")\n");
    } else {
      absl::StrAppend(&out, body, "\n");
    }
  }
  absl::StrAppend(&out, "outputs: ",
                  absl::StrJoin(outputs_, ", ", [&](std::string* text, int id) { text->append(name_of(id)); }), "\n");
  return out;
}

Expr IdentityOf(Combiner combiner, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  auto limits = [dtype]() -> std::pair<int64_t, int64_t> {
    switch (dtype) {
      case DType::kInt32: return {INT32_MIN, INT32_MAX};
      case DType::kInt8: return {INT8_MIN, INT8_MAX};
      case DType::kUint8: return {0, UINT8_MAX};
      case DType::kBool: return {0, 1};
      default: return {INT64_MIN, INT64_MAX};
    }
  };
  const bool is_float = IsFloat(dtype);
  switch (combiner) {
    case Combiner::kSum: return is_float ? FloatImm(0, dtype) : IntImm(0, dtype);
    case Combiner::kProd: return is_float ? FloatImm(1, dtype) : IntImm(1, dtype);
    case Combiner::kMax: return is_float ? FloatImm(-infinity, dtype) : IntImm(limits().first, dtype);
    case Combiner::kMin: return is_float ? FloatImm(infinity, dtype) : IntImm(limits().second, dtype);
    case Combiner::kNone: break;
  }
  DIAPASON_CHECK_MSG(false, "no combiner");
  return nullptr;
}

Expr Combine(Combiner combiner, Expr a, Expr b) {
  switch (combiner) {
    case Combiner::kSum: return Add(std::move(a), std::move(b));
    case Combiner::kMax: return Max(std::move(a), std::move(b));
    case Combiner::kMin: return Min(std::move(a), std::move(b));
    case Combiner::kProd: return Mul(std::move(a), std::move(b));
    case Combiner::kNone: break;
  }
  DIAPASON_CHECK_MSG(false, "no combiner");
  return nullptr;
}

}  // namespace diapason
