#include "compiler/lower/tensor_copies.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "compiler/lower/early_start.h"
#include "compiler/lower/loop_values.h"
#include "compiler/lower/tensor_box_of_copy.h"
#include "compiler/schedule/tensor_of_copy.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

// Tensor copies that make one of the stage.
int64_t BoxesOf(const StageBounds& b) { return b.buffer.back() / b.core_row; }

// Where the windows from `row` on begin, and which element of them has the column.
std::vector<Expr> CoordinatesOfWindows(const TensorBox& box, Expr row, const Expr& column) {
  const int64_t channels = box.extents[0];
  std::vector<Expr> coordinates = {FloorMod(column, channels)}, elements;
  Expr element = FloorDiv(column, channels);
  for (const WindowDim& dim : box.windows) {
    coordinates.push_back(Add(Mul(FloorMod(row, dim.windows), IntImm(dim.step)), IntImm(dim.first)));
    elements.push_back(Mul(FloorMod(element, dim.elements), IntImm(dim.apart)));
    row = FloorDiv(row, dim.windows);
    element = FloorDiv(element, dim.elements);
  }
  // What is left of a column behind the last one leads out of the images: zeros arrive.
  coordinates.push_back(Add(row, Mul(element, IntImm(box.extents.back()))));
  coordinates.insert(coordinates.end(), elements.begin(), elements.end());
  return coordinates;
}

}  // namespace

std::vector<int> TensorCopies::CopiesOf(const SoftwarePipeline& p) const {
  std::vector<int> copies = nest_.kernel.StagesAt(p.id, p.last);
  std::erase_if(copies, [this](int copy) { return !Makes(copy); });
  return copies;
}

bool TensorCopies::HasCopiesByThreads(const SoftwarePipeline& p) const {
  const std::vector<int> stages = nest_.kernel.StagesAt(p.id, p.last);
  return std::any_of(stages.begin(), stages.end(),
                     [this](int copy) { return nest_.kernel.bounds.stages[copy].slots > 1 && !Makes(copy); });
}

Expr TensorCopies::IsFirstThread(int copy) const {
  if (nest_.buffers.leavings(copy) >= 0) return nullptr;  // the producer is one
  const Expr thread = ThreadOf(nest_, nest_.kernel.state.stage(copy).attach_stage);
  const Expr first = thread ? Eq(thread, IntImm(0)) : nullptr;
  if (nest_.kernel.split.thread_sets == 1) return first;
  const Expr of_first_set = Eq(nest_.thread_set, IntImm(0));
  return first ? And(first, of_first_set) : of_first_set;
}

Expr TensorCopies::LeavingsAt(int copy, const SoftwarePipeline& p, const Expr& slot) const {
  return Load(nest_.buffers.leavings(copy), DType::kInt64, {nest_.analyzer.Simplify(Add(slot, IntImm(p.slots)))});
}

Stmt TensorCopies::CopyInto(int copy) {
  const KernelContext& kernel = nest_.kernel;
  const StageState& stage = kernel.state.stage(copy);
  const StageBounds& b = kernel.bounds.stages[copy];
  const auto box = std::make_shared<const TensorBox>(*BoxOfCopy(kernel, copy));
  std::vector<Expr> coordinates;
  for (size_t d = b.buffer.size(); d-- > 0;) {
    if (box->windows.empty() && stage.op.axes[d].extent == 1 && d + 1 < b.buffer.size()) continue;
    const Region& region = b.region[d];
    coordinates.push_back(region.full ? IntImm(0) : Add(AtomSum(nest_, region.outer, 1), IntImm(region.constant_min)));
  }
  const Expr slot = nest_.stages[copy].write_slot, row = coordinates[0];
  std::vector<Stmt> all;
  for (int64_t i = 0; i < BoxesOf(b); ++i) {
    coordinates[0] = Add(row, IntImm(i * b.core_row));
    std::vector<Expr> at =
        box->windows.empty() ? coordinates : CoordinatesOfWindows(*box, coordinates[1], coordinates[0]);
    for (Expr& coordinate : at) coordinate = nest_.analyzer.Simplify(coordinate);
    const Expr place = Add(Mul(slot, IntImm(b.slot_stride())), IntImm(i * b.core_stride()));
    all.push_back(MakeTensorCopy({.box = box,
                                  .from = Load(LoadOfCopy(stage.op)->buffer, stage.op.dtype, {IntImm(box->offset)}),
                                  .buffer = copy,
                                  .index = nest_.analyzer.Simplify(place),
                                  .arrival = Load(nest_.buffers.arrivals(copy), DType::kInt64, {slot}),
                                  .coordinates = std::move(at),
                                  .condition = IsFirstThread(copy)}));
  }
  return MakeSeq(std::move(all));
}

Stmt TensorCopies::Init(const SoftwarePipeline& p) {
  std::vector<Stmt> all;
  for (int copy : CopiesOf(p)) {
    const Stmt init = MakeMbarrierInit(Load(nest_.buffers.arrivals(copy), DType::kInt64, {IntImm(0)}), p.slots,
                                       BoxesOf(nest_.kernel.bounds.stages[copy]));
    const Expr first = IsFirstThread(copy);
    all.push_back(first ? MakeIf(first, init) : init);
    if (nest_.buffers.leavings(copy) >= 0)
      all.push_back(MakeMbarrierInit(LeavingsAt(copy, p, IntImm(0)), p.slots, nest_.kernel.threads / kLanesOfWarp));
  }
  return MakeSeq(std::move(all));
}

Stmt TensorCopies::Await(const SoftwarePipeline& p, const Expr& iteration, const std::vector<int>& copies) {
  std::vector<Stmt> all;
  for (int copy : copies) {
    const Expr slot = nest_.analyzer.Simplify(FloorMod(iteration, p.slots));
    all.push_back(MakeMbarrierWait(Load(nest_.buffers.arrivals(copy), DType::kInt64, {slot}),
                                   nest_.analyzer.Simplify(FloorMod(FloorDiv(iteration, p.slots), 2))));
  }
  return MakeSeq(std::move(all));
}

Stmt TensorCopies::Leave(const SoftwarePipeline& p, const Expr& iteration, const std::vector<int>& copies,
                         const Expr& condition) {
  const Expr first = Eq(FloorMod(ThreadOf(nest_, p.id), kLanesOfWarp), IntImm(0));
  const Expr slot = nest_.analyzer.Simplify(FloorMod(iteration, p.slots));
  std::vector<Stmt> all;
  for (int copy : copies)
    all.push_back(MakeMbarrierArrive(LeavingsAt(copy, p, slot), condition ? And(first, condition) : first));
  return MakeSeq(std::move(all));
}

bool TensorCopies::IsOfConstant(int copy) const {
  const State& state = nest_.kernel.state;
  return state.stage(LoadOfCopy(state.stage(copy).op)->buffer).prologue;
}

int64_t TensorCopies::ConstantsFirst(const SoftwarePipeline& p, const std::vector<int>& copies) const {
  const State& state = nest_.kernel.state;
  if (!state.has_overlap() || static_cast<EarlyStart>(state.overlap().Eval({})) == EarlyStart::kNever) return 0;
  const int64_t constants =
      std::count_if(copies.begin(), copies.end(), [this](int copy) { return IsOfConstant(copy); });
  if (constants == 0 || constants == static_cast<int64_t>(copies.size())) return 0;
  const int64_t room = std::min(p.slots, p.iterations);
  switch (static_cast<Producer>(state.stage(p.id).producer.Eval({}))) {
    case Producer::kNone:
    case Producer::kInOrder: return 0;
    case Producer::kOneConstantFirst: return 1;
    case Producer::kHalfOfConstantsFirst: return (room + 1) / 2;
    case Producer::kConstantsFirst: return room;
  }
  return 0;
}

// The slot of iteration t is left by that of t - slots, in the phase of its barrier of that number.
void TensorCopies::Produce(const SoftwarePipeline& p) {
  const std::vector<int> copies = CopiesOf(p);
  const int64_t constants_first = ConstantsFirst(p, copies);
  const auto loop = [&](int64_t iterations, const std::function<Stmt(const Expr&)>& body) {
    const Expr iteration = MakeVar("asked");
    nest_.analyzer.Bind(iteration, iterations);
    return MakeFor(
        ForKind::kSerial, iteration, iterations,
        MakeLet(p.fill, nest_.analyzer.Simplify(FloorMod(iteration, p.slots)), p.at(iteration, body(iteration))), 1);
  };
  const auto constants = [&](const Expr&) {
    std::vector<Stmt> all;
    for (int copy : copies)
      if (IsOfConstant(copy)) all.push_back(CopyInto(copy));
    return MakeSeq(std::move(all));
  };
  const auto rest = [&](const Expr& iteration) {
    const Expr phase = nest_.analyzer.Simplify(FloorMod(Add(FloorDiv(iteration, p.slots), IntImm(1)), 2));
    std::vector<Stmt> all;
    for (int copy : copies) {
      const Stmt wait = MakeIf(Le(IntImm(p.slots), iteration), MakeMbarrierWait(LeavingsAt(copy, p, p.fill), phase));
      const Stmt asks = MakeSeq({wait, CopyInto(copy)});
      const bool is_there = constants_first > 0 && IsOfConstant(copy);
      all.push_back(is_there ? MakeIf(nest_.analyzer.Simplify(Le(IntImm(constants_first), iteration)), asks) : asks);
    }
    return MakeSeq(std::move(all));
  };
  nest_.producer = loop(p.iterations, rest);
  if (constants_first > 0) nest_.producer = MakeSeq({loop(constants_first, constants), nest_.producer});
  nest_.constants_first = constants_first > 0;
  nest_.before_roles = Init(p);
}

}  // namespace diapason
