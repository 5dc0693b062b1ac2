// A product with a small constant matrix (Winograd transforms): the named axes and the reduction are unrolled whole, so
// that the constants vanish into additions; the other axes are spread over threads (Ansor's
// SimplifyComputeWithConstTensor).
#include <algorithm>

#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class SimplifyConstTensor : public SketchRule {
 public:
  std::string name() const override { return "simplify_const_tensor"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!s.computes() || s.op.unroll_axes.empty() || s.attach != StageState::Attach::kRoot || s.prologue)
      return Answer::kSkip;
    if (IsBound(draft.state(), stage) || static_cast<int>(s.loops.size()) != s.axis_count()) return Answer::kSkip;
    return Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    const std::vector<std::string> names = next.state().stage(stage).op.unroll_axes;
    auto unrolled = [&](int owner, int axis) {
      const std::string& name = next.state().stage(owner).axis(axis).var->name;
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    int consumer = ElementwiseConsumer(next.state(), stage);
    int reduction = stage;
    std::vector<bool> whole;
    for (int axis : SpatialAxes(next.state(), stage)) whole.push_back(unrolled(stage, axis));
    if (consumer < 0) {
      reduction = next.CacheWrite(stage, Memory::kLocal);
      consumer = stage;
    }
    std::vector<int> spread, inner;
    for (int axis : SpatialAxes(next.state(), consumer)) (whole[axis] ? inner : spread).push_back(axis);
    std::vector<int> order = spread;
    order.insert(order.end(), inner.begin(), inner.end());
    next.Reorder(consumer, order);
    const int loop = Bind(&next, consumer, spread, &inner);
    for (int axis : inner) next.Annotate(consumer, axis, Annotation::kUnroll);
    next.ComputeAt(reduction, consumer, {loop});
    order.clear();
    std::vector<int> rest;
    for (int axis : SpatialAxes(next.state(), reduction)) (whole[axis] ? order : rest).push_back(axis);
    for (int axis : ReduceAxes(next.state(), reduction)) order.push_back(axis);
    // What is left of the other axes is one point, or a vector.
    order.insert(order.end(), rest.begin(), rest.end());
    next.Reorder(reduction, order);
    for (int axis : order) {
      const bool vector = !next.gpu() && !rest.empty() && axis == rest.back();
      next.Annotate(reduction, axis, vector ? Annotation::kVectorize : Annotation::kUnroll);
    }
    TileInfo info;
    info.stage = reduction;
    info.consumer = consumer;
    info.attach = {loop};
    next.AddTile(info);
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }

 private:
  // Threads over the spread axes; on CPUs the innermost of them is cut into vectors. Returns the loop around one
  // thread's work.
  static int Bind(Draft* draft, int stage, const std::vector<int>& spread, std::vector<int>* inner) {
    const std::string name = draft->state().stage(stage).op.name;
    if (draft->gpu()) {
      const int all = draft->Fuse(stage, spread);
      const Factor threads = draft->OptionParameter(name + ".threads", {32, 64, 128, 256}, 128);
      const std::vector<int> pieces = draft->Split(stage, all, {threads});
      draft->Annotate(stage, pieces[0], Annotation::kBlockX);
      draft->Annotate(stage, pieces[1], Annotation::kThreadX);
      return pieces[1];
    }
    const int32_t lanes = draft->context().facts.vector_bytes / 4;
    const std::vector<int> pieces = draft->Split(stage, spread.back(), {Factor::Of(lanes)});
    std::vector<int> outer(spread.begin(), spread.end() - 1);
    outer.push_back(pieces[0]);
    std::vector<int> order = outer;
    order.insert(order.end(), inner->begin(), inner->end());
    order.push_back(pieces[1]);
    draft->Reorder(stage, order);
    draft->Annotate(stage, pieces[1], Annotation::kVectorize);
    const int all = draft->Fuse(stage, outer);
    draft->Annotate(stage, all, Annotation::kParallel);
    return all;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeSimplifyConstTensor() { return std::make_unique<SimplifyConstTensor>(); }

}  // namespace diapason
