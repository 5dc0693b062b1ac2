// Bits of integers, by arithmetic on each of them: expressions have no operators on bits. Negative numbers are two's
// complements.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferBits(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireInteger(args));
  if (args.inputs[0].dtype != args.inputs[1].dtype) return absl::InvalidArgumentError("inputs must have one type");
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, BroadcastShapes(args.inputs[0].shape, args.inputs[1].shape));
  return TensorType{args.inputs[0].dtype, shape};
}

enum class BitFunction { kAnd, kOr, kXor };

Expr OfBits(const Expr& a, const Expr& b, BitFunction function, int bits) {
  const auto bit = [](const Expr& x, int k) { return Eq(FloorMod(FloorDiv(x, int64_t{1} << k), 2), IntImm(1)); };
  const auto negative = [](const Expr& x) { return Lt(x, IntImm(0)); };
  const auto combined = [&](Expr x, Expr y) {
    return function == BitFunction::kAnd ? And(x, y) : function == BitFunction::kOr ? Or(x, y) : Ne(x, y);
  };
  Expr sum = Select(combined(negative(a), negative(b)), IntImm(-(int64_t{1} << (bits - 2)) * 2), IntImm(0));
  for (int k = 0; k < bits - 1; ++k)
    sum = Add(sum, Select(combined(bit(a, k), bit(b, k)), IntImm(int64_t{1} << k), IntImm(0)));
  return sum;
}

template <BitFunction kFunction>
int EmitBits(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const DType type = args.output.dtype;
  const int bits = type == DType::kUint8 ? 9 : 8 * BytesOf(type);
  return b.Compute("bits", args.output.shape, [&](const Vars& i) {
    const auto input = [&](int k) {
      return diapason::Cast(DType::kInt64, Raw(b, stages[k], BroadcastIndex(i, args.inputs[k].shape)));
    };
    return diapason::Cast(type, OfBits(input(0), input(1), kFunction, bits));
  });
}

// By a distance from 0 on; one beyond the type leaves no bit. Negative numbers shift their sign in from the left.
template <bool kLeft>
int EmitShift(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const DType type = args.output.dtype;
  const int bits = std::min(8 * BytesOf(type), 63);
  return b.Compute(kLeft ? "shift_left" : "shift_right", args.output.shape, [&](const Vars& i) {
    const auto input = [&](int k) {
      return diapason::Cast(DType::kInt64, Raw(b, stages[k], BroadcastIndex(i, args.inputs[k].shape)));
    };
    const Expr x = input(0), distance = input(1);
    Expr shifted = kLeft ? IntImm(0) : Select(Lt(x, IntImm(0)), IntImm(-1), IntImm(0));
    for (int k = bits - 1; k >= 0; --k) {
      const int64_t power = int64_t{1} << k;
      shifted = Select(Eq(distance, IntImm(k)), kLeft ? Mul(x, IntImm(power)) : FloorDiv(x, power), shifted);
    }
    return diapason::Cast(type, shifted);
  });
}

}  // namespace

std::vector<Operator> Bits() {
  return {{"bitwise_and", OperatorKind::kElementwise, 2, 2, InferBits, EmitBits<BitFunction::kAnd>, nullptr, true},
          {"bitwise_or", OperatorKind::kElementwise, 2, 2, InferBits, EmitBits<BitFunction::kOr>, nullptr, true},
          {"bitwise_xor", OperatorKind::kElementwise, 2, 2, InferBits, EmitBits<BitFunction::kXor>, nullptr, true},
          {"shift_left", OperatorKind::kElementwise, 2, 2, InferBits, EmitShift<true>},
          {"shift_right", OperatorKind::kElementwise, 2, 2, InferBits, EmitShift<false>}};
}

}  // namespace diapason::ops
