// Lane 4 * g + q brings words q and q + 4 along k of rows g and g + 8 of one operand and of column g of the other
// (tensor_intrinsic.h). Operands in shared memory with k innermost come as whole matrices of 8 rows of 16 bytes
// (ldmatrix), those of 16 bits with rows or columns innermost as well (transposed), others element by element, which
// are packed into words. Where lanes hold the rows as the sums of products before, of factors of 32 bits they have
// elements 2q and 2q + 1 along k: these are then words q and q + 4 of both operands, as sums do not mind the order.
#include "compiler/lower/fragments.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace diapason {
namespace {

constexpr double kMostProducts = 16384;  // of one stage: they are written out

std::string NamesOfFactors(const TensorIntrinsic& intrinsic) {
  return absl::StrJoin(intrinsic.factors, " and ",
                       [](std::string* out, const FactorType& type) { absl::StrAppend(out, NameOf(type.dtype)); });
}

absl::Status RefuseProducts(const StageState& stage, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": tensor cores take ", what));
}

absl::Status CheckBody(const State& state, const StageState& stage, const TensorIntrinsic& intrinsic) {
  const Expr& body = stage.op.body;
  if (stage.op.combiner != Combiner::kSum || body->kind != ExprKind::kMul ||
      LoadOfFactor(body->args[0])->kind != ExprKind::kLoad || LoadOfFactor(body->args[1])->kind != ExprKind::kLoad)
    return RefuseProducts(stage, "a sum of products of two copies");
  for (const Expr& factor : body->args) {
    const Expr& load = LoadOfFactor(factor);
    if (factor->dtype != intrinsic.sum || intrinsic.FindFactor(load->dtype) == nullptr ||
        state.stage(load->buffer).op.dtype != load->dtype)
      return RefuseProducts(stage, absl::StrCat(NamesOfFactors(intrinsic), " factors"));
  }
  if (stage.op.dtype != intrinsic.sum) return RefuseProducts(stage, absl::StrCat(NameOf(intrinsic.sum), " sums"));
  return absl::OkStatus();
}

bool ReadsLanes(const KernelContext& kernel, const StageState& stage) {
  return std::any_of(stage.op.body->args.begin(), stage.op.body->args.end(), [&](const Expr& factor) {
    const Expr& load = LoadOfFactor(factor);
    return load->kind == ExprKind::kLoad && kernel.IsHeldByLanes(load->buffer);
  });
}

absl::Status CheckTileLoops(const KernelContext& kernel, const StageState& stage, const std::vector<int64_t>& own,
                            int64_t depth) {
  const StageState& lanes = kernel.state.stage(stage.lane_stage);
  if (own[stage.tensor_k] % depth != 0) return RefuseProducts(stage, absl::StrCat("k in multiples of ", depth));
  if (own[stage.tensor_m] != 2 || own[stage.tensor_n] != 2) return RefuseProducts(stage, "2 x 2 elements of a lane");
  const std::vector<int64_t>& extent = kernel.bounds.stages[stage.lane_stage].extent;
  if (extent[stage.lane_m] != 8 || extent[stage.lane_n] != 4) return RefuseProducts(stage, "8 x 4 lanes");
  const int fused = lanes.loops[stage.lane_n].fused_into;
  const std::vector<int> none, &parts = fused < 0 ? none : lanes.loops[fused].fused;
  if (parts.size() < 2 || parts[parts.size() - 1] != stage.lane_n || parts[parts.size() - 2] != stage.lane_m ||
      lanes.loops[fused].annotation != Annotation::kThreadX)
    return RefuseProducts(stage, "lanes that are the innermost parts of the thread loop");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProducts(const KernelContext& kernel, const TileProducts& products) {
  const StageState& stage = kernel.state.stage(products.id);
  const std::vector<int64_t>& extent = kernel.bounds.stages[products.id].extent;
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(stage.tensor);
  RETURN_IF_ERROR(CheckBody(kernel.state, stage, intrinsic));
  RETURN_IF_ERROR(CheckTileLoops(kernel, stage, extent, intrinsic.depth()));
  double written = static_cast<double>(extent[stage.tensor_k] / intrinsic.depth());
  for (size_t p = products.first; p < stage.order.size() - 3; ++p)
    written *= static_cast<double>(extent[stage.order[p]]);
  if (written > kMostProducts)
    return absl::FailedPreconditionError(absl::StrCat("stage ", stage.op.name, " has ", written,
                                                      " products on tensor cores, the most are ", kMostProducts));
  for (int child : kernel.skeleton.backwards())
    if (kernel.state.stage(child).attach == StageState::Attach::kAt &&
        kernel.state.stage(child).attach_stage == products.id &&
        kernel.bounds.stages[child].attach_position >= static_cast<int>(products.first))
      return RefuseProducts(stage, "copies that are computed outside of their tiles");
  return absl::OkStatus();
}

FragmentLoader::FragmentLoader(NestParts* parts, int id)
    : parts_(*parts),
      nest_(parts->state),
      id_(id),
      stage_(nest_.kernel.state.stage(id)),
      intrinsic_(TensorIntrinsicOf(stage_.tensor)),
      held_in_pairs_(intrinsic_.factors_per_register() == 1 && ReadsLanes(nest_.kernel, stage_)) {}

absl::StatusOr<bool> FragmentLoader::MovesWithLane(const Expr& load, int lane) const {
  const KernelContext& kernel = nest_.kernel;
  const Access& access = *nest_.stages[id_].access_of.at(load.get());
  bool found = false;
  IndexTerms terms;
  for (size_t d = 0; d < access.dims.size(); ++d) {
    const StageBounds& producer = kernel.bounds.stages[access.producer];
    if (producer.region.empty() || producer.region[d].full ||
        !kernel.skeleton.SplitIndex(kernel.bounds, access, static_cast<int>(d), &terms))
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", stage_.op.name, ": operands of tensor cores are affine copies"));
    for (const Term& t : terms.inner) found |= t.stage == stage_.lane_stage && t.loop == lane;
  }
  return found;
}

absl::StatusOr<FragmentLoader::Factors> FragmentLoader::FindFactors() const {
  const Expr &first = LoadOfFactor(stage_.op.body->args[0]), &second = LoadOfFactor(stage_.op.body->args[1]);
  ASSIGN_OR_RETURN(const bool first_moves, MovesWithLane(first, stage_.lane_m));
  ASSIGN_OR_RETURN(const bool second_moves, MovesWithLane(second, stage_.lane_m));
  if (first_moves == second_moves)
    return absl::InvalidArgumentError(absl::StrCat(
        "stage ", stage_.op.name, ": tensor cores take one operand with the rows and one with the columns"));
  return first_moves ? Factors{first, second} : Factors{second, first};
}

Expr FragmentLoader::LoadOf(const Fragments& operand, const Expr& k, const Expr& line, const Expr& half) {
  std::vector<Expr>& mine = nest_.stages[id_].value;
  std::vector<Expr>& lanes = nest_.stages[stage_.lane_stage].value;
  const Expr k_before = mine[stage_.tensor_k], m = mine[stage_.tensor_m], n = mine[stage_.tensor_n];
  const Expr lane_m = lanes[stage_.lane_m], lane_n = lanes[stage_.lane_n];
  mine[stage_.tensor_k] = nest_.analyzer.Simplify(k);
  if (operand.rows) {
    mine[stage_.tensor_m] = half;
    lanes[stage_.lane_m] = nest_.analyzer.Simplify(line);
  } else {
    mine[stage_.tensor_n] = nest_.analyzer.Simplify(FloorMod(line, 2));
    lanes[stage_.lane_n] = nest_.analyzer.Simplify(FloorDiv(line, 2));
  }
  bool unsafe = false;  // copies are zero where there is nothing
  const Expr load = parts_.expressions.Lower(id_, operand.load, &unsafe);
  mine[stage_.tensor_k] = k_before;
  mine[stage_.tensor_m] = m;
  mine[stage_.tensor_n] = n;
  lanes[stage_.lane_m] = lane_m;
  lanes[stage_.lane_n] = lane_n;
  return load;
}

// Of this lane's factors of an operand's tile from k on: one of its first or second word.
Expr FragmentLoader::ElementOf(const Fragments& operand, int64_t k, int64_t half, int64_t word, int64_t factor) {
  const std::vector<Expr>& lanes = nest_.stages[stage_.lane_stage].value;
  const Expr g = lanes[stage_.lane_m], q = lanes[stage_.lane_n];
  const int64_t apart = held_in_pairs_ ? 2 : intrinsic_.factors_per_register();
  const int64_t offset = held_in_pairs_ ? word : word * intrinsic_.row() + factor;
  return LoadOf(operand, Add(Mul(q, IntImm(apart)), IntImm(k + offset)), g, IntImm(half));
}

int64_t FragmentLoader::RegistersAt(Fragments* operand, int64_t k) {
  const Expr first = ElementOf(*operand, k, 0, 0, 0);
  for (const auto& [load, at] : operand->known)
    if (Equal(load, first)) return at;
  const int64_t at = operand->elements, count = operand->rows ? 4 : 2;
  operand->known.emplace_back(first, at);
  operand->elements += count;
  if (!held_in_pairs_ && !nest_.kernel.IsHeldByLanes(operand->load->buffer)) {
    if (Stmt matrices = MatricesOf(*operand, k, at, count)) {
      operand->loads.push_back(std::move(matrices));
      return at;
    }
  }
  const int64_t packed = intrinsic_.factors_per_register();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t half = operand->rows ? i % 2 : 0, word = operand->rows ? i / 2 : i;
    std::vector<Expr> factors;
    for (int64_t f = 0; f < packed; ++f) factors.push_back(ElementOf(*operand, k, half, word, f));
    operand->loads.push_back(packed == 1 ? MakeStore(operand->buffer, IntImm(at + i), factors[0])
                                         : MakePack(operand->buffer, IntImm(at + i), std::move(factors)));
  }
  return at;
}

bool FragmentLoader::IsRowOfMatrix(const Expr& load) {
  return load->kind == ExprKind::kLoad && load->args.size() == 1 &&
         nest_.kernel.state.stage(load->buffer).memory == Memory::kShared &&
         nest_.analyzer.KnownDivisor(load->args[0]) % intrinsic_.row() == 0;
}

// Lane l gives the address of row l % 8 of matrix l / 8.
Stmt FragmentLoader::MatricesOf(const Fragments& operand, int64_t k, int64_t at, int64_t count) {
  const std::vector<Expr>& lanes = nest_.stages[stage_.lane_stage].value;
  const Expr g = lanes[stage_.lane_m], q = lanes[stage_.lane_n];
  const Expr line = Add(Mul(FloorMod(g, 2), IntImm(4)), q), eighth = FloorDiv(g, 2);
  const Expr quarter = operand.rows ? FloorDiv(g, 4) : FloorMod(eighth, 2);
  const Expr first_k = Mul(quarter, IntImm(intrinsic_.row()));
  const Expr row = LoadOf(operand, Add(first_k, IntImm(k)), line, FloorMod(eighth, 2));
  const Expr start = LoadOf(operand, IntImm(k), g, IntImm(0)), next = LoadOf(operand, IntImm(k + 1), g, IntImm(0));
  if (IsRowOfMatrix(row) && IsInt(nest_.analyzer.Simplify(Sub(next->args[0], start->args[0])), 1))
    return MakeLoadMatrix({stage_.tensor, operand.buffer, IntImm(at), count, row});
  if (!intrinsic_.transposes() || !LinesAreNeighbours(operand, k)) return nullptr;
  const Expr across = LoadOf(operand, Add(Add(first_k, line), IntImm(k)), IntImm(0), FloorMod(eighth, 2));
  if (!IsRowOfMatrix(across)) return nullptr;
  return MakeLoadMatrix({stage_.tensor, operand.buffer, IntImm(at), count, across, /*transposed=*/true});
}

// True if rows or columns of an operand, eight from the first of a tile on, are neighbours in memory.
bool FragmentLoader::LinesAreNeighbours(const Fragments& operand, int64_t k) {
  Expr before;
  for (int64_t line = 0; line < 8; ++line) {
    const Expr load = LoadOf(operand, IntImm(k), IntImm(line), IntImm(0));
    if (load->kind != ExprKind::kLoad) return false;
    if (before && !IsInt(nest_.analyzer.Simplify(Sub(load->args[0], before->args[0])), 1)) return false;
    before = load;
  }
  return true;
}

}  // namespace diapason
