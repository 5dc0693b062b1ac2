#include "compiler/codegen/gpu/mma_functions.h"

#include "base/check.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

// The name of a factor's type in PTX.
std::string PtxName(DType dtype) {
  for (const TensorIntrinsic& intrinsic : TensorIntrinsics())
    if (const FactorType* type = intrinsic.FindFactor(dtype)) return type->ptx;
  DIAPASON_CHECK_MSG(false, NameOf(dtype));
  return "";
}

std::string OnceOrBoth(const std::string& rows, const std::string& columns) {
  return rows == columns ? rows : rows + "_" + columns;
}

// Sums that lie anywhere, as parameters and operands.
struct SumsText {
  std::string type, parameters, registers, constraints;
};
// `dtype`: float32 or int32.
SumsText TextOfSums(int64_t sums, DType dtype) {
  const bool is_float = IsFloat(dtype);
  SumsText text;
  text.type = is_float ? "f32" : "s32";
  for (int64_t i = 0; i < sums; ++i) {
    const std::string c = "c" + std::to_string(i), comma = i == 0 ? "" : ", ";
    text.parameters += comma + (is_float ? "float& " : "int& ") + c;
    text.registers += comma + "%" + std::to_string(i);
    text.constraints += comma + (is_float ? "\"+f\"(" : "\"+r\"(") + c + ")";
  }
  return text;
}

}  // namespace

std::string WarpMmaFunction(const StmtNode& mma, Helpers& helpers) {
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(mma.tensor);
  DIAPASON_CHECK_MSG(!intrinsic.groups, "no product by a warp");
  if (intrinsic.parts) {
    helpers.Use("low_part");
    return helpers.Use("add_three_tf32");
  }
  if (intrinsic.rounds_factors()) return helpers.Use("add_rounded_tf32");
  const std::string rows = PtxName(mma.factors.rows), columns = PtxName(mma.factors.columns);
  const std::string name = "add_" + OnceOrBoth(rows, columns), k = std::to_string(intrinsic.depth());
  const SumsText sums = TextOfSums(4, intrinsic.sum);
  helpers.DefineFunction(name, "// c += a * b, a 16x" + k + " and b " + k + "x8 in " +
                                   (intrinsic.transposes() ? "pairs" : "fours") +
                                   ".\n"
                                   "static __device__ __forceinline__ void " +
                                   name + "(" + sums.parameters +
                                   ", int a0, int a1, int a2, int a3, int b0, int b1) {\n"
                                   "  asm(\"mma.sync.aligned.m16n8k" +
                                   k + ".row.col." + sums.type + "." + rows + "." + columns + "." + sums.type +
                                   " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
                                   "      : " +
                                   sums.constraints +
                                   "\n"
                                   "      : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"r\"(b0), \"r\"(b1));\n"
                                   "}");
  return name;
}

std::string PackFunction(DType dtype, Helpers& helpers) {
  if (!IsFloat(dtype)) return helpers.Use("pack_bytes");
  const std::string type = PtxName(dtype), name = "pack_" + type;
  helpers.DefineFunction(name, "static __device__ __forceinline__ int " + name +
                                   "(float low, float high) {\n  int pair;\n  asm(\"cvt.rn." + type +
                                   "x2.f32 %0, %1, %2;\" : \"=r\"(pair) : \"f\"(high), \"f\"(low));\n"
                                   "  return pair;\n}");
  return name;
}

std::string Tf32GroupMmaFunction(int64_t columns, Helpers& helpers) {
  const std::string name = "group_mma_" + std::to_string(columns);
  const int64_t sums = columns / 2;
  std::string registers, constraints;
  for (int64_t i = 0; i < sums; ++i) {
    registers += (i == 0 ? "%" : ", %") + std::to_string(i);
    constraints += std::string(i == 0 ? "" : ", ") + "\"+f\"(c[" + std::to_string(i) + "])";
  }
  std::string factor_constraints;
  for (const char* factor : {"a0", "a1", "a2", "a3", "s0", "s1", "s2", "s3"})
    factor_constraints +=
        std::string(factor_constraints.empty() ? "" : ", ") + "\"r\"(__float_as_uint(" + factor + "))";
  const auto operand = [&](int64_t i) { return "%" + std::to_string(sums + i); };
  const auto factors = [&](int64_t i) {
    return "{" + operand(i) + ", " + operand(i + 1) + ", " + operand(i + 2) + ", " + operand(i + 3) + "}";
  };
  const auto product = [&](int64_t rows, int64_t column, const std::string& add) {
    return "    \"wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k8.f32.tf32.tf32 {" + registers +
           "}, " + factors(rows) + ", " + operand(column) + ", " + add + ", 1, 1;\\n\"\n";
  };
  helpers.DefineFunction(
      name,
      "// c += (a + s) * (b + t) without s * t, or c = that first: a and s in registers, core matrices b and t.\n"
      "static __device__ __forceinline__ void " +
          name +
          "(float* c, float a0, float a1, float a2, float a3, float s0, float s1, float s2, float s3,\n"
          "    unsigned long long b, unsigned long long t, int first) {\n"
          "  asm volatile(\"{\\n.reg .pred add, true_;\\nsetp.eq.s32 add, " +
          operand(10) + ", 0;\\nsetp.eq.s32 true_, 0, 0;\\n\"\n" + product(4, 8, "add") + product(0, 9, "true_") +
          product(0, 8, "true_") + "    \"}\"\n    : " + constraints + "\n    : " + factor_constraints +
          ", \"l\"(b), \"l\"(t), \"r\"(first));\n"
          "}");
  return name;
}

std::string GroupMmaFunction(const StmtNode& mma, Helpers& helpers) {
  const TensorIntrinsic& intrinsic = TensorIntrinsicOf(mma.tensor);
  const auto sums = static_cast<int64_t>(mma.sums.size());
  const bool shared = mma.rows.stride > 0;
  const std::string across = std::string(mma.rows.along_k ? "" : "_rows") + (mma.columns.along_k ? "" : "_columns");
  const std::string row_type = PtxName(mma.factors.rows), column_type = PtxName(mma.factors.columns);
  const std::string k = std::to_string(intrinsic.depth());
  const std::string name = "group_" + OnceOrBoth(row_type, column_type) + (shared ? "_shared_" : "_") +
                           std::to_string(2 * sums) + (across.empty() ? "" : across + "_across");
  const SumsText text = TextOfSums(sums, intrinsic.sum);
  const auto operand = [&](int64_t i) { return "%" + std::to_string(sums + i); };
  const std::string rows =
      shared ? operand(0) : "{" + operand(0) + ", " + operand(1) + ", " + operand(2) + ", " + operand(3) + "}";
  const bool packed = intrinsic.factors_per_register() > 1;
  std::string registers, row_constraints;
  for (const char* factor : {"a0", "a1", "a2", "a3"}) {
    const std::string comma = registers.empty() ? "" : ", ", bits = std::string("__float_as_uint(") + factor + ")";
    registers += comma + (packed ? "int " : "float ") + factor;
    row_constraints += comma + "\"r\"(" + (packed ? factor : bits) + ")";
  }
  // Signs of the factors, and whether they lie across: not to be chosen for integers.
  std::string order = IsFloat(intrinsic.sum) ? ", 1, 1" : "";
  if (intrinsic.transposes())
    order += (shared ? (mma.rows.along_k ? ", 0" : ", 1") : std::string()) + (mma.columns.along_k ? ", 0" : ", 1");
  helpers.DefineFunction(
      name, std::string("// c += a * b: a, ") +
                (shared ? "64x" + k + " of the group, and b"
                        : "16x" + k + " of each warp " +
                              (!packed                  ? ""
                               : intrinsic.transposes() ? "in pairs, "
                                                        : "in fours, ") +
                              "in registers, b") +
                " in core matrices.\n"
                "static __device__ __forceinline__ void " +
                name + "(" + text.parameters + (shared ? ", unsigned long long a" : ",\n    " + registers) +
                ", unsigned long long b) {\n"
                "  asm volatile(\"{\\n.reg .pred add;\\nsetp.eq.s32 add, 0, 0;\\n\"\n"
                "    \"wgmma.mma_async.sync.aligned.m64n" +
                std::to_string(2 * sums) + "k" + k + "." + text.type + "." + row_type + "." + column_type + " {" +
                text.registers + "}, " + rows + ", " + operand(shared ? 1 : 4) + ", add" + order +
                ";\\n}\"\n    : " + text.constraints + "\n    : " + (shared ? "\"l\"(a)" : row_constraints) +
                ", \"l\"(b));\n"
                "}");
  return name;
}

std::string GroupWaitFunction(int64_t sums, int64_t unfinished, DType dtype, Helpers& helpers) {
  const SumsText text = TextOfSums(sums, dtype);
  const std::string name =
      "group_wait_" + (IsFloat(dtype) ? "" : text.type + "_") + std::to_string(sums) + "_" + std::to_string(unfinished);
  helpers.DefineFunction(name, "static __device__ __forceinline__ void " + name + "(" + text.parameters +
                                   ") {\n  asm volatile(\"wgmma.wait_group.sync.aligned " + std::to_string(unfinished) +
                                   ";\" ::: \"memory\");\n  asm volatile(\"\"\n    : " + text.constraints +
                                   "\n    :: \"memory\");\n}");
  return name;
}

}  // namespace diapason
