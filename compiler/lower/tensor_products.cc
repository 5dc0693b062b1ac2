// Products on tensor cores by warps (mma.sync): lane 4 * g + q brings words q and q + 4 along k of rows g and g + 8 of
// one operand and of column g of the other, and holds the sums of rows g and g + 8 and columns 2q and 2q + 1
// (tensor_intrinsic.h). Operands in shared memory with k innermost come as whole matrices of 8 rows of 16 bytes
// (ldmatrix), those of 16 bits with rows or columns innermost as well (transposed), others element by element, which
// are packed into words.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/lower/fragments.h"

namespace diapason {
namespace {

// Sums of a lane that can be held twice, beside the fragments.
constexpr int64_t kMostSums = 64;

std::string NamesOfFactors(const TensorIntrinsic& intrinsic) {
  return absl::StrJoin(intrinsic.factors, " and ",
                       [](std::string* out, const FactorType& type) { absl::StrAppend(out, NameOf(type.dtype)); });
}

// Loads of two matrices each, two at a time where they are the same number of elements apart for all lanes: lanes from
// 16 on (`upper`: 1, else 0) then give the rows of the second.
std::vector<Stmt> InFours(std::vector<Stmt> loads, const Expr& upper, Analyzer* analyzer) {
  std::vector<Stmt> result;
  for (size_t i = 0; i < loads.size(); ++i) {
    const Stmt& one = loads[i];
    const Stmt two = i + 1 < loads.size() ? loads[i + 1] : nullptr;
    const auto is_pair = [](const Stmt& s) { return s && s->kind == StmtKind::kLoadMatrix && s->extent == 2; };
    const bool follows = is_pair(one) && is_pair(two) && one->buffer == two->buffer &&
                         one->transposed == two->transposed && one->value->buffer == two->value->buffer &&
                         IsInt(analyzer->Simplify(Sub(two->index, one->index)), 2);
    const Expr apart = follows ? analyzer->Simplify(Sub(two->value->args[0], one->value->args[0])) : Expr();
    if (!follows || apart->kind != ExprKind::kIntImm) {
      result.push_back(one);
      continue;
    }
    const Expr at = analyzer->Simplify(Add(one->value->args[0], Mul(upper, apart)));
    result.push_back(MakeLoadMatrix({.tensor = one->tensor,
                                     .buffer = one->buffer,
                                     .index = one->index,
                                     .matrices = 4,
                                     .value = Load(one->value->buffer, one->value->dtype, {at}),
                                     .transposed = one->transposed}));
    ++i;
  }
  return result;
}

}  // namespace

// True if a load of the stage's body moves with a lane loop.
bool NestBuilder::MovesWithLane(int id, const Expr& load, int lane) {
  const StageState& stage = state_.stage(id);
  const Access& access = *nest_.stages[id].access_of.at(load.get());
  bool found = false;
  IndexTerms terms;
  for (size_t d = 0; d < access.dims.size(); ++d) {
    const StageBounds& producer = bounds_.stages[access.producer];
    if (producer.region.empty() || producer.region[d].full ||
        !skeleton_.SplitIndex(bounds_, access, static_cast<int>(d), &terms)) {
      nest_.Refuse(absl::InvalidArgumentError(
          absl::StrCat("stage ", stage.op.name, ": operands of tensor cores are affine copies")));
      return false;
    }
    for (const Term& t : terms.inner) found |= t.stage == stage.lane_stage && t.loop == lane;
  }
  return found;
}

// The load of an operand with element k of its tile, by a lane that stands for row or column `line` of it (columns of
// rows: half 0 or 1 and lane; of columns: lane and pair).
Expr NestBuilder::OperandLoad(int id, const Fragments& operand, const Expr& k, const Expr& line, const Expr& half) {
  const StageState& stage = state_.stage(id);
  std::vector<Expr>& mine = nest_.stages[id].value;
  std::vector<Expr>& lanes = nest_.stages[stage.lane_stage].value;
  const Expr k_before = mine[stage.tensor_k], m = mine[stage.tensor_m], n = mine[stage.tensor_n];
  const Expr lane_m = lanes[stage.lane_m], lane_n = lanes[stage.lane_n];
  mine[stage.tensor_k] = analyzer_.Simplify(k);
  if (operand.rows) {
    mine[stage.tensor_m] = half;
    lanes[stage.lane_m] = analyzer_.Simplify(line);
  } else {
    mine[stage.tensor_n] = analyzer_.Simplify(FloorMod(line, 2));
    lanes[stage.lane_n] = analyzer_.Simplify(FloorDiv(line, 2));
  }
  bool unsafe = false;  // copies are zero where there is nothing
  const Expr load = parts_.expressions.Lower(id, operand.load, &unsafe);
  mine[stage.tensor_k] = k_before;
  mine[stage.tensor_m] = m;
  mine[stage.tensor_n] = n;
  lanes[stage.lane_m] = lane_m;
  lanes[stage.lane_n] = lane_n;
  return load;
}

// Where the registers begin that hold an operand's tile from k on; loads it if no product did before.
int64_t NestBuilder::FragmentAt(int id, Fragments* operand, int64_t k) {
  const StageState& stage = state_.stage(id);
  const std::vector<Expr>& lanes = nest_.stages[stage.lane_stage].value;
  const Expr g = lanes[stage.lane_m], q = lanes[stage.lane_n];
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(stage.tensor);
  const int64_t row_elements = intrinsic.row(), packed = intrinsic.factors_per_register();
  auto element = [&](int64_t half, int64_t offset) {
    return OperandLoad(id, *operand, Add(Mul(q, IntImm(packed)), IntImm(k + offset)), g, IntImm(half));
  };
  const Expr first = element(0, 0);
  for (const auto& [load, at] : operand->known)
    if (Equal(load, first)) return at;
  const int64_t at = operand->elements, count = operand->rows ? 4 : 2;
  operand->known.emplace_back(first, at);
  operand->elements += count;
  const auto by_elements = [&] {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t half = operand->rows ? i % 2 : 0, offset = (operand->rows ? i / 2 : i) * row_elements;
      std::vector<Expr> factors;
      for (int64_t f = 0; f < packed; ++f) factors.push_back(element(half, offset + f));
      operand->loads.push_back(packed == 1 ? MakeStore(operand->buffer, IntImm(at + i), factors[0])
                                           : MakePack(operand->buffer, IntImm(at + i), std::move(factors)));
    }
    return at;
  };
  if (kernel_.IsHeldByLanes(operand->load->buffer)) return by_elements();

  // Lane l gives the address of row l % 8 of matrix l / 8.
  const Expr line = Add(Mul(FloorMod(g, 2), IntImm(4)), q), eighth = FloorDiv(g, 2);
  const Expr quarter = operand->rows ? FloorDiv(g, 4) : FloorMod(eighth, 2);
  const Expr row =
      OperandLoad(id, *operand, Add(Mul(quarter, IntImm(row_elements)), IntImm(k)), line, FloorMod(eighth, 2));
  const Expr start = OperandLoad(id, *operand, IntImm(k), g, IntImm(0)),
             next = OperandLoad(id, *operand, IntImm(k + 1), g, IntImm(0));
  const auto are_rows = [&](const Expr& load) {
    return load->kind == ExprKind::kLoad && load->args.size() == 1 &&
           state_.stage(load->buffer).memory == Memory::kShared &&
           analyzer_.KnownDivisor(load->args[0]) % row_elements == 0;
  };
  if (are_rows(row) && IsInt(analyzer_.Simplify(Sub(next->args[0], start->args[0])), 1)) {
    operand->loads.push_back(MakeLoadMatrix({stage.tensor, operand->buffer, IntImm(at), count, row}));
    return at;
  }
  if (intrinsic.transposes() && LinesAreNeighbours(id, *operand, k)) {
    const Expr depth = Add(Add(Mul(quarter, IntImm(row_elements)), line), IntImm(k));
    const Expr across = OperandLoad(id, *operand, depth, IntImm(0), FloorMod(eighth, 2));
    if (are_rows(across)) {
      operand->loads.push_back(
          MakeLoadMatrix({stage.tensor, operand->buffer, IntImm(at), count, across, /*transposed=*/true}));
      return at;
    }
  }
  return by_elements();
}

// True if rows or columns of an operand, eight from the first of a tile on, are neighbours in memory.
bool NestBuilder::LinesAreNeighbours(int id, const Fragments& operand, int64_t k) {
  Expr before;
  for (int64_t line = 0; line < 8; ++line) {
    const Expr load = OperandLoad(id, operand, IntImm(k), IntImm(line), IntImm(0));
    if (load->kind != ExprKind::kLoad) return false;
    if (before && !IsInt(analyzer_.Simplify(Sub(load->args[0], before->args[0])), 1)) return false;
    before = load;
  }
  return true;
}

// What the layout of the instruction takes for granted, of a stage with tensor cores whose tiles' loops begin at
// position `first`.
absl::Status NestBuilder::CheckProducts(int id, size_t first) {
  const StageState& stage = state_.stage(id);
  const StageState& lanes = state_.stage(stage.lane_stage);
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": tensor cores take ", what));
  };
  const Expr& body = stage.op.body;
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(stage.tensor);
  if (stage.op.combiner != Combiner::kSum || body->kind != ExprKind::kMul ||
      LoadOfFactor(body->args[0])->kind != ExprKind::kLoad || LoadOfFactor(body->args[1])->kind != ExprKind::kLoad)
    return refuse("a sum of products of two copies");
  for (const Expr& factor : body->args) {
    const Expr& load = LoadOfFactor(factor);
    if (factor->dtype != intrinsic.sum || intrinsic.FindFactor(load->dtype) == nullptr ||
        state_.stage(load->buffer).op.dtype != load->dtype)
      return refuse(absl::StrCat(NamesOfFactors(intrinsic), " factors"));
  }
  if (stage.op.dtype != intrinsic.sum) return refuse(absl::StrCat(NameOf(intrinsic.sum), " sums"));
  if (bounds_.stages[id].extent[stage.tensor_k] % intrinsic.depth() != 0)
    return refuse(absl::StrCat("k in multiples of ", intrinsic.depth()));
  if (bounds_.stages[id].extent[stage.tensor_m] != 2 || bounds_.stages[id].extent[stage.tensor_n] != 2)
    return refuse("2 x 2 elements of a lane");
  const std::vector<int64_t>& extent = bounds_.stages[stage.lane_stage].extent;
  if (extent[stage.lane_m] != 8 || extent[stage.lane_n] != 4) return refuse("8 x 4 lanes");
  const int fused = lanes.loops[stage.lane_n].fused_into;
  const std::vector<int> none, &parts = fused < 0 ? none : lanes.loops[fused].fused;
  if (parts.size() < 2 || parts[parts.size() - 1] != stage.lane_n || parts[parts.size() - 2] != stage.lane_m ||
      lanes.loops[fused].annotation != Annotation::kThreadX)
    return refuse("lanes that are the innermost parts of the thread loop");
  double written = static_cast<double>(bounds_.stages[id].extent[stage.tensor_k] / intrinsic.depth());
  for (size_t p = first; p < stage.order.size() - 3; ++p)
    written *= static_cast<double>(bounds_.stages[id].extent[stage.order[p]]);
  if (written > kMostProducts)
    return absl::FailedPreconditionError(absl::StrCat("stage ", stage.op.name, " has ", written,
                                                      " products on tensor cores, the most are ", kMostProducts));
  for (int child : skeleton_.backwards())
    if (state_.stage(child).attach == StageState::Attach::kAt && state_.stage(child).attach_stage == id &&
        bounds_.stages[child].attach_position >= static_cast<int>(first))
      return refuse("copies that are computed outside of their tiles");
  return absl::OkStatus();
}

// Products of all tiles of a warp: loops of the stage from position `first` on, written out. Of factors in parts the
// tensor cores, which cut sums off, sum up to four products in a row along k where registers allow for those sums
// beside the stage's own, else float32 adds each; of others, whose own rounding is coarser, all.
Stmt NestBuilder::EmitProducts(int id, size_t first, int buffer, const Expr& place) {
  const StageState& stage = state_.stage(id);
  const StageBounds& b = bounds_.stages[id];
  const size_t end = stage.order.size() - 3;
  const Expr& body = stage.op.body;
  const int64_t extent = b.extent[stage.tensor_k];
  if (const absl::Status possible = CheckProducts(id, first); !possible.ok()) {
    nest_.Refuse(possible);
    return nullptr;
  }
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(stage.tensor);
  const int64_t depth = intrinsic.depth();
  const bool swapped = !MovesWithLane(id, LoadOfFactor(body->args[0]), stage.lane_m);
  if (swapped != MovesWithLane(id, LoadOfFactor(body->args[1]), stage.lane_m)) {
    nest_.Refuse(absl::InvalidArgumentError(absl::StrCat(
        "stage ", stage.op.name, ": tensor cores take one operand with the rows and one with the columns")));
    return nullptr;
  }
  Fragments operands[2];
  for (int o = 0; o < 2; ++o) {
    operands[o].load = LoadOfFactor(body->args[swapped ? 1 - o : o]);
    operands[o].rows = o == 0;
    operands[o].buffer = nest_.buffers.NewId();
  }
  int64_t tiles = 1;
  for (size_t p = first; p < end; ++p) tiles *= b.extent[stage.order[p]];  // CheckProducts: no overflow
  const bool together = tiles * kTileSums <= kMostSums;
  const int sums = intrinsic.parts ? nest_.buffers.NewId() : -1;
  std::vector<Expr>& mine = nest_.stages[id].value;
  const std::vector<Expr> before = mine;
  std::vector<Stmt> all, products;
  int64_t each[2] = {0, 0}, most[2] = {0, 0};
  for (int64_t k = 0; k < extent; k += depth) {
    // Operands are on their way while the products of those before are made.
    const std::vector<Stmt> before_these = std::move(products);
    products.clear();
    std::vector<int64_t> tile(end - first, 0);
    for (int64_t number = 0; number < tiles; ++number) {
      VarMap values;
      for (size_t p = first; p < end; ++p) {
        mine[stage.order[p]] = IntImm(tile[p - first]);
        values[nest_.stages[id].leaf[p].get()] = IntImm(tile[p - first]);
      }
      const auto place_of = [&](int64_t i) {
        values[nest_.stages[id].leaf[end + 1].get()] = IntImm(i / 2);
        values[nest_.stages[id].leaf[end + 2].get()] = IntImm(i % 2);
        return analyzer_.Simplify(Substitute(place, values));
      };
      std::vector<Expr> parts;
      for (int64_t i = 0; i < kTileSums; ++i)
        parts.push_back(intrinsic.parts ? IntImm(number * kTileSums + i) : place_of(i));
      for (Fragments& operand : operands) {
        const int64_t at = FragmentAt(id, &operand, k);
        for (int64_t i = 0; i < (operand.rows ? 4 : 2); ++i)
          parts.push_back(Load(operand.buffer, intrinsic.register_type(), {IntImm(at + i)}));
      }
      const int64_t run = together ? kLongestRunOfK : depth;
      products.push_back(MakeMma(stage.tensor, {operands[0].load->dtype, operands[1].load->dtype},
                                 intrinsic.parts ? sums : buffer, std::move(parts), intrinsic.parts && k % run == 0));
      const bool whole = intrinsic.parts && ((k + depth) % run == 0 || k + depth == extent);
      for (int64_t i = 0; i < kTileSums && whole; ++i) {
        const Expr at = place_of(i);
        const Expr sum = Load(sums, stage.op.dtype, {IntImm(number * kTileSums + i)});
        products.push_back(MakeStore(buffer, at, Add(Load(buffer, stage.op.dtype, {at}), sum)));
      }
      for (size_t p = end; p-- > first && ++tile[p - first] == b.extent[stage.order[p]];) tile[p - first] = 0;
    }
    const Expr lane_m = nest_.stages[stage.lane_stage].value[stage.lane_m];
    if (intrinsic.factors_per_register() > 1)
      operands[1].loads = InFours(std::move(operands[1].loads), FloorDiv(lane_m, 4), &analyzer_);
    for (int o = 0; o < 2; ++o) {
      all.insert(all.end(), operands[o].loads.begin(), operands[o].loads.end());
      if (k == 0) each[o] = operands[o].elements;
      most[o] = std::max(most[o], operands[o].elements);
      operands[o].loads.clear();
      operands[o].known.clear();
      // Two sets of registers take turns.
      operands[o].elements = k / depth % 2 == 0 ? each[o] : 0;
    }
    all.insert(all.end(), before_these.begin(), before_these.end());
  }
  all.insert(all.end(), products.begin(), products.end());
  mine = before;
  auto declare = [&](int id, const char* name, DType dtype, int64_t elements) {
    nest_.buffers.Declare({id, absl::StrCat(name, id), dtype, Scope::kLocal, elements, true, 0});
  };
  if (intrinsic.parts) declare(sums, "sums", stage.op.dtype, tiles * kTileSums);
  declare(operands[0].buffer, "rows", intrinsic.register_type(), most[0]);
  declare(operands[1].buffer, "columns", intrinsic.register_type(), most[1]);
  return MakeSeq(all);
}

}  // namespace diapason
