// Values of a wider type rounded, or wrapped around, to those that a narrow type has: bfloat16 and floats of 8 and 4
// bits in float32, integers of fewer bits in int8, uint8, int32 and int64. Ties go to even. Beyond the largest float is
// the largest one where `saturate` is 1, else infinity, or NaN where the type has none (ONNX's rules of Cast).
#include <cmath>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

struct NarrowInteger {
  const char* name;
  DType storage;
  int bits;
  bool is_signed;
};

constexpr NarrowInteger kIntegers[] = {{"int16", DType::kInt32, 16, true},   {"uint16", DType::kInt32, 16, false},
                                       {"uint32", DType::kInt64, 32, false}, {"uint64", DType::kInt64, 64, false},
                                       {"int4", DType::kInt8, 4, true},      {"uint4", DType::kUint8, 4, false},
                                       {"int2", DType::kInt8, 2, true},      {"uint2", DType::kUint8, 2, false}};

// Numbers m * 2^(e - mantissa) with a mantissa m of mantissa + 1 bits; e of the smallest normal ones and of the
// largest.
struct NarrowFloat {
  const char* name;
  int mantissa, smallest, largest;
  double most;
  bool has_infinity, has_nan;
};

constexpr NarrowFloat kFloats[] = {{"float8e4m3fn", 3, -6, 8, 448, false, true},
                                   {"float8e4m3fnuz", 3, -7, 7, 240, false, true},
                                   {"float8e5m2", 2, -14, 15, 57344, true, true},
                                   {"float8e5m2fnuz", 2, -15, 15, 57344, false, true},
                                   {"float4e2m1", 1, 0, 2, 6, false, false}};

template <typename Type, size_t kCount>
const Type* Find(const Type (&types)[kCount], std::string_view name) {
  for (const Type& type : types)
    if (name == type.name) return &type;
  return nullptr;
}

absl::StatusOr<TensorType> InferNarrow(const OperatorArgs& args) {
  const std::string to = args.attributes->String("to", "");
  const NarrowInteger* integer = Find(kIntegers, to);
  const bool known = integer || Find(kFloats, to) || to == "bfloat16";
  if (!known) return absl::InvalidArgumentError(absl::StrCat("results of type '", to, "' are not supported"));
  const DType storage = integer ? integer->storage : DType::kFloat32;
  if (args.inputs[0].dtype == storage) return args.inputs[0];
  return absl::InvalidArgumentError(
      absl::StrCat(to, " is kept in ", NameOf(storage), ", not in ", NameOf(args.inputs[0].dtype)));
}

Expr Wrapped(const Expr& x, const NarrowInteger& type) {
  if (type.bits == 64) return x;
  const int64_t count = int64_t{1} << type.bits, half = type.is_signed ? count / 2 : 0;
  const Expr wide = diapason::Cast(DType::kInt64, x);
  return diapason::Cast(x->dtype, Sub(FloorMod(Add(wide, IntImm(half)), count), IntImm(half)));
}

Expr Rounded(const Expr& x, const NarrowFloat& type, bool saturate) {
  const auto number = [](double value) { return FloatImm(value, DType::kFloat32); };
  const Expr size = Max(x, Sub(number(0), x));
  Expr step = number(std::ldexp(1.0, type.largest - type.mantissa));
  for (int e = type.largest - 1; e >= type.smallest; --e)
    step = Select(Lt(size, number(std::ldexp(1.0, e + 1))), number(std::ldexp(1.0, e - type.mantissa)), step);
  const Expr rounded = Mul(Call("round", {Div(size, step)}), step);
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const Expr beyond = number(saturate || !type.has_nan ? type.most : type.has_infinity ? kInfinity : kNan);
  const Expr bounded = Select(Lt(number(type.most), rounded), beyond, rounded);
  // NaN is 0 where the type has none.
  return Select(Ne(x, x), type.has_nan ? x : number(0), Select(Lt(x, number(0)), Sub(number(0), bounded), bounded));
}

int EmitNarrow(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::string to = args.attributes->String("to", "");
  const bool saturate = args.attributes->Int("saturate", 1) != 0;
  return b.Compute("narrow", args.output.shape, [&](const Vars& i) {
    const Expr x = Raw(b, stages[0], i);
    if (const NarrowInteger* integer = Find(kIntegers, to)) return Wrapped(x, *integer);
    if (const NarrowFloat* small = Find(kFloats, to)) return Rounded(x, *small, saturate);
    return Call("bfloat16", {x});
  });
}

}  // namespace

std::vector<Operator> Narrow() { return {{"narrow", OperatorKind::kElementwise, 1, 1, InferNarrow, EmitNarrow}}; }

}  // namespace diapason::ops
