#include "compiler/codegen/reference.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "compiler/codegen/compile.h"

// This file prints expressions by itself, on purpose: it shares nothing with the printers that it is there to check.
namespace diapason {
namespace {

constexpr int kGpuThreads = 128;
constexpr int64_t kMostNeighbours = 64, kVector = 8;

int64_t RoundedUpQuotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// On cpu, neighbours along the last axis of a stage that reduces are summed side by side, each in the same order as
// alone: in a single chain, each addition would wait for the one before, and the compiler makes vectors of neighbours.
// Blocks of a row are equally large; the last one overlaps the one before where they do not fit evenly, and computes
// elements of both once more, in the same way.
struct Neighbours {
  int64_t count = 0;   // in a block; 0 where elements are computed one by one
  int64_t blocks = 0;  // of a row
};

Neighbours NeighboursOf(const Stage& stage, TargetKind kind) {
  const int64_t extent = stage.axes.empty() ? 1 : stage.axes.back().extent;
  if (kind != TargetKind::kCpu || !stage.reduces() || extent < 2) return {};
  const int64_t blocks = RoundedUpQuotient(extent, kMostNeighbours);
  const int64_t rounded = RoundedUpQuotient(RoundedUpQuotient(extent, blocks), kVector) * kVector;
  return {std::min(rounded, extent), blocks};
}

// Helpers in each dialect: i64, floor division, float16 (as bits) and the few functions that C lacks. FLOAT and INT
// stand for the value types; on cpu every floating point value is a double.
constexpr char kCommonPrelude[] = R"(
INLINE i64 floor_div(i64 a, i64 b) { i64 q = a / b; return q * b > a ? q - 1 : q; }
INLINE i64 floor_mod(i64 a, i64 b) { i64 r = a % b; return r < 0 ? r + b : r; }
INLINE i64 i_min(i64 a, i64 b) { return b < a ? b : a; }
INLINE i64 i_max(i64 a, i64 b) { return a < b ? b : a; }
INLINE i64 i_abs(i64 a) { return a < 0 ? -a : a; }
INLINE real r_min(real a, real b) { return b < a ? b : a; }
INLINE real r_max(real a, real b) { return a < b ? b : a; }
INLINE real bfloat16(real x) {
  union { float f; unsigned u; } v;
  v.f = (float)x;
  if (x != x) return x;
  v.u = (v.u + 0x7fffu + ((v.u >> 16) & 1u)) & 0xffff0000u;
  return v.f;
}
INLINE real tf32(real x) {
  union { float f; unsigned u; } v;
  v.f = (float)x;
  if (x != x) return x;
  v.u = (v.u + 0x1000u) & 0xffffe000u;
  return v.f;
}
INLINE real bfloat16_value(unsigned short bits) {
  union { unsigned u; float f; } v;
  v.u = (unsigned)bits << 16;
  return v.f;
}
INLINE unsigned short bfloat16_bits(real x) {
  union { float f; unsigned u; } v;
  v.f = (float)bfloat16(x);
  return (unsigned short)(v.u >> 16 | (x != x ? 0x40u : 0u));
}
)";

constexpr char kCPrelude[] = R"(typedef long long i64;
typedef double real;
#if defined(__GNUC__) && !defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define VECTORIZED __attribute__((optimize("O3", "tree-loop-vectorize")))
#else
#define INLINE static inline
#define VECTORIZED
#endif
double exp(double), log(double), sqrt(double), tanh(double), erf(double), pow(double, double);
double sin(double), cos(double), tan(double), asin(double), acos(double), atan(double);
double sinh(double), cosh(double), asinh(double), acosh(double), atanh(double);
double fabs(double), floor(double), ceil(double), rint(double);
INLINE double load_half(const unsigned short* p, i64 i) {
  const unsigned h = p[i], sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
  if (exponent == 0) return (sign ? -1.0 : 1.0) * fraction * 0x1p-24;
  union { unsigned u; float f; } v;
  v.u = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
  return v.f;
}
INLINE void store_half(unsigned short* p, i64 i, double value) {
  union { float f; unsigned u; } v = {(float)value};
  const unsigned sign = (v.u >> 16) & 0x8000u, magnitude = v.u & 0x7fffffffu;
  unsigned half;
  if (magnitude > 0x7f800000u) half = 0x7e00u;
  else if (magnitude >= 0x477ff000u) half = 0x7c00u;
  else if (magnitude < 0x38800000u) { v.u = magnitude; half = (unsigned)rint(v.f * 0x1p24); }
  else half = (magnitude + 0xfffu + ((magnitude >> 13) & 1) - 0x38000000u) >> 13;
  p[i] = (unsigned short)(sign | half);
}
)";

constexpr char kOpenClPrelude[] = R"(#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
typedef long i64;
typedef float real;
#define INLINE static inline
)";

constexpr char kCudaPrelude[] = R"(typedef long long i64;
typedef float real;
#define INLINE static __device__ __forceinline__
INLINE float load_half(const unsigned short* p, i64 i) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(p[i]));
  return f;
}
INLINE void store_half(unsigned short* p, i64 i, float value) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(value));
  p[i] = h;
}
)";

class ReferencePrinter {
 public:
  ReferencePrinter(const ComputeDag& dag, TargetKind kind) : dag_(dag), kind_(kind) {}

  // Stages that differ in the tensors that they read and write alone have one kernel: the steps of a recurrence are
  // alike.
  std::string Source() {
    std::string out = kind_ == TargetKind::kCpu      ? kCPrelude
                      : kind_ == TargetKind::kOpenCl ? kOpenClPrelude
                                                     : kCudaPrelude;
    out += kCommonPrelude;
    std::unordered_map<std::string, std::string> names;  // by text without the name
    for (int id = 0; id < dag_.size(); ++id) {
      if (dag_.stage(id).placeholder) continue;
      const std::string name = "stage" + std::to_string(id);
      const auto [known, is_new] = names.emplace(KernelText(id, ""), name);
      if (is_new) out += "\n// " + dag_.stage(id).name + "\n" + KernelText(id, name);
      name_of_[id] = known->second;
    }
    return out;
  }

  // The kernel of a stage, once the source was printed.
  const std::string& NameOf(int stage) const { return name_of_.at(stage); }

 private:
  std::string Storage(DType dtype) const {
    switch (dtype) {
      case DType::kFloat32: return "float";
      case DType::kFloat16: return kind_ == TargetKind::kOpenCl ? "half" : "unsigned short";
      case DType::kBfloat16: return "unsigned short";
      case DType::kFloat64: return "double";
      case DType::kInt32: return "int";
      case DType::kInt64: return "i64";
      case DType::kInt8: return kind_ == TargetKind::kOpenCl ? "char" : "signed char";
      case DType::kBool:
      case DType::kUint8: return "unsigned char";
    }
    return "?";
  }

  // The type that values of a stage are computed in.
  std::string ValueType(DType dtype) const {
    if (!IsFloat(dtype)) return "i64";
    return kind_ != TargetKind::kCpu && dtype == DType::kFloat64 ? "double" : "real";
  }

  std::string Parameter(int stage, bool written) const {
    const std::string space = kind_ == TargetKind::kOpenCl ? "__global " : "";
    return (written ? space : space + "const ") + Storage(dag_.stage(stage).dtype) + "* " + buffer_of_.at(stage);
  }

  std::string KernelText(int id, const std::string& name) {
    const Stage& stage = dag_.stage(id);
    std::vector<int> params = dag_.producers(id);
    params.push_back(id);
    buffer_of_.clear();
    for (int param : params) buffer_of_.emplace(param, "b" + std::to_string(buffer_of_.size()));
    std::string list, unpack;
    for (size_t i = 0; i < params.size(); ++i) {
      const std::string param = Parameter(params[i], params[i] == id);
      list += (i == 0 ? "" : ", ") + param;
      unpack += "  " + param + " = args[" + std::to_string(i) + "];\n";
    }
    const std::string elements = std::to_string(stage.elements());
    const std::string threads = std::to_string(kGpuThreads);
    switch (kind_) {
      case TargetKind::kCpu: {
        const std::string head = "void " + name + "(void* const* args, i64 begin, i64 end) {\n" + unpack;
        if (const Neighbours neighbours = NeighboursOf(stage, kind_); neighbours.count > 0)
          return "VECTORIZED " + head + "  for (i64 block = begin; block < end; ++block) {\n" + Block(id, neighbours) +
                 "  }\n}\n";
        return head + "  for (i64 e = begin; e < end; ++e) {\n" + Element(id) + "  }\n}\n";
      }
      case TargetKind::kOpenCl:
        return "__kernel __attribute__((reqd_work_group_size(" + threads + ", 1, 1))) void " + name + "(" + list +
               ") {\n  const i64 e = get_global_id(0);\n  if (e < " + elements + ") {\n" + Element(id) + "  }\n}\n";
      case TargetKind::kCuda:
        return "extern \"C\" __global__ void __launch_bounds__(" + threads + ") " + name + "(" + list +
               ") {\n  const i64 e = (i64)blockIdx.x * " + threads + " + threadIdx.x;\n  if (e < " + elements +
               ") {\n" + Element(id) + "  }\n}\n";
    }
    return "";
  }

  // Computes element e of the stage and stores it.
  std::string Element(int id) {
    const Stage& stage = dag_.stage(id);
    vars_.clear();
    std::string out = "    i64 rest = e;\n" + Coordinates(stage, stage.axes.size());
    if (!stage.reduces()) return out + "    " + StoreText(id, Text(stage.body)) + "\n";
    return out + Sum(id);
  }

  // Computes a block of neighbours side by side.
  std::string Block(int id, const Neighbours& neighbours) {
    const Stage& stage = dag_.stage(id);
    const Axis& last = stage.axes.back();
    const std::string count = std::to_string(neighbours.count), blocks = std::to_string(neighbours.blocks),
                      extent = std::to_string(last.extent), type = ValueType(stage.dtype);
    vars_.clear();
    std::string out = "    i64 rest = block / " + blocks + ";\n    const i64 row = rest * " + extent +
                      ", first = i_min(block % " + blocks + " * " + count + ", " + extent + " - " + count + ");\n";
    out += Coordinates(stage, stage.axes.size() - 1);
    const std::string x = Bind(last);
    const std::string each = "    for (i64 j = 0; j < " + count + "; ++j) ";
    out += "    " + type + " acc[" + count + "];\n" + each +
           "acc[j] = " + Text(IdentityOf(stage.combiner, stage.dtype)) + ";\n" + ReduceLoops(stage);
    out += each + "{\n    const i64 " + x + " = first + j;\n" + Accumulate(stage, "acc[j]") + "    }\n";
    return out + each + "{\n    const i64 e = row + first + j;\n    " + StoreText(id, "acc[j]") + "\n    }\n";
  }

  // The first `count` axes, from `rest`.
  std::string Coordinates(const Stage& stage, size_t count) {
    std::string out;
    for (size_t d = count; d-- > 0;) {
      const std::string extent = std::to_string(stage.axes[d].extent);
      out += "    const i64 " + Bind(stage.axes[d]) + " = rest % " + extent + "; rest /= " + extent + ";\n";
    }
    return out;
  }

  std::string ReduceLoops(const Stage& stage) {
    std::string out;
    for (const Axis& axis : stage.reduce_axes) {
      const std::string var = Bind(axis);
      out += "    for (i64 " + var + " = 0; " + var + " < " + std::to_string(axis.extent) + "; ++" + var + ")\n";
    }
    return out;
  }

  // The reduction of element e, whose coordinates are bound.
  std::string Sum(int id) {
    const Stage& stage = dag_.stage(id);
    std::string out =
        "    " + ValueType(stage.dtype) + " acc = " + Text(IdentityOf(stage.combiner, stage.dtype)) + ";\n";
    if (Compensated(stage)) out += "    real lost = 0;\n";
    out += ReduceLoops(stage);
    return out + "    {\n" + Accumulate(stage, "acc") + "    }\n    " + StoreText(id, "acc") + "\n";
  }

  bool Compensated(const Stage& stage) const {
    return kind_ != TargetKind::kCpu && stage.combiner == Combiner::kSum && ValueType(stage.dtype) == "real";
  }

  std::string Accumulate(const Stage& stage, const std::string& acc) {
    const std::string value = Text(stage.body);
    if (Compensated(stage)) {
      return "      const real term = " + value +
             " - lost, sum = acc + term;\n      lost = (sum - acc) - term;\n      acc = sum;\n";
    }
    const std::string type = ValueType(stage.dtype);
    const std::string out = "      const " + type + " v = " + value + ";\n      " + acc;
    switch (stage.combiner) {
      case Combiner::kSum: return out + " += v;\n";
      case Combiner::kProd: return out + " *= v;\n";
      case Combiner::kMax: return out + " = " + acc + " < v ? v : " + acc + ";\n";
      case Combiner::kMin: return out + " = v < " + acc + " ? v : " + acc + ";\n";
      case Combiner::kNone: break;
    }
    return out;
  }

  std::string StoreText(int id, const std::string& value) const {
    const DType dtype = dag_.stage(id).dtype;
    const std::string& buffer = buffer_of_.at(id);
    if (dtype == DType::kFloat16) {
      return kind_ == TargetKind::kOpenCl ? "vstore_half(" + value + ", e, " + buffer + ");"
                                          : "store_half(" + buffer + ", e, " + value + ");";
    }
    if (dtype == DType::kBfloat16) return buffer + "[e] = bfloat16_bits(" + value + ");";
    return buffer +
           "[e] = " + (dtype == DType::kBool ? "(" + value + ") != 0;" : "(" + Storage(dtype) + ")(" + value + ");");
  }

  std::string Bind(const Axis& axis) {
    std::string name = "x" + std::to_string(vars_.size());
    vars_[axis.var.get()] = name;
    return name;
  }

  std::string LoadText(const ExprNode& e) {
    const Stage& from = dag_.stage(e.buffer);
    std::string index = "0";
    for (size_t d = 0; d < e.args.size(); ++d)
      index = d == 0 ? Text(e.args[0])
                     : "(" + index + " * " + std::to_string(from.axes[d].extent) + " + " + Text(e.args[d]) + ")";
    const std::string& buffer = buffer_of_.at(e.buffer);
    if (from.dtype == DType::kFloat16)
      return (kind_ == TargetKind::kOpenCl ? "vload_half(" + index + ", " + buffer
                                           : "load_half(" + buffer + ", " + index) +
             ")";
    if (from.dtype == DType::kBfloat16) return "bfloat16_value(" + buffer + "[" + index + "])";
    return "(" + ValueType(from.dtype) + ")" + buffer + "[" + index + "]";
  }

  std::string FloatText(const ExprNode& e) const {
    const bool is_double = kind_ == TargetKind::kCpu || e.dtype == DType::kFloat64;
    const std::string sign = std::signbit(e.fvalue) ? "-" : "";
    if (std::isinf(e.fvalue) || std::isnan(e.fvalue)) {
      const bool inf = std::isinf(e.fvalue);
      if (kind_ == TargetKind::kCpu) return inf ? "(" + sign + "__builtin_inf())" : "__builtin_nan(\"\")";
      if (kind_ == TargetKind::kOpenCl) return inf ? "(" + sign + "INFINITY)" : "NAN";
      return inf ? "(" + sign + "__int_as_float(0x7f800000))" : "__int_as_float(0x7fffffff)";
    }
    char text[48];
    std::snprintf(text, sizeof text, is_double ? "(%.17e)" : "(%.9ef)", e.fvalue);
    return text;
  }

  std::string CallText(const ExprNode& e) {
    if (!IsFloat(e.dtype)) {
      DIAPASON_CHECK_MSG(e.name == "abs", e.name + " of integers");
      return "i_abs(" + Text(e.args[0]) + ")";
    }
    const bool single = kind_ == TargetKind::kCuda && ValueType(e.dtype) == "real";
    auto call = [&](const std::string& function, const std::string& args) {
      return function + (single ? "f(" : "(") + args + ")";
    };
    const std::string x = Text(e.args[0]), one = "(" + ValueType(e.dtype) + ")1";
    if (e.name == "rsqrt") return "(" + one + " / " + call("sqrt", x) + ")";
    if (e.name == "sigmoid") return "(" + one + " / (" + one + " + " + call("exp", "-(" + x + ")") + "))";
    if (e.name == "abs") return call("fabs", x);
    if (e.name == "bfloat16" || e.name == "tf32") return e.name + "(" + x + ")";
    if (e.name == "round") return call("rint", x);
    if (e.name == "pow") return call("pow", x + ", " + Text(e.args[1]));
    return call(e.name, x);
  }

  std::string Extremum(DType dtype, const std::string& name) const {
    const std::string type = ValueType(dtype);
    return (type == "i64" ? "i_" : type == "real" ? "r_" : "f") + name;
  }
  std::string Binary(const ExprNode& e, const char* op) {
    return "(" + Text(e.args[0]) + " " + op + " " + Text(e.args[1]) + ")";
  }
  std::string Function(const ExprNode& e, const std::string& name) {
    return name + "(" + Text(e.args[0]) + ", " + Text(e.args[1]) + ")";
  }

  std::string Text(const Expr& expr) {
    const ExprNode& e = *expr;
    switch (e.kind) {
      case ExprKind::kIntImm:
        if (e.value == INT64_MIN) return "(-9223372036854775807 - 1)";
        return "((i64)" + std::to_string(e.value) + ")";
      case ExprKind::kFloatImm: return FloatText(e);
      case ExprKind::kVar: return vars_.at(&e);
      case ExprKind::kAdd: return Binary(e, "+");
      case ExprKind::kSub: return Binary(e, "-");
      case ExprKind::kMul: return Binary(e, "*");
      case ExprKind::kDiv: return Binary(e, "/");
      case ExprKind::kFloorDiv: return Function(e, "floor_div");
      case ExprKind::kFloorMod: return Function(e, "floor_mod");
      case ExprKind::kMin: return Function(e, Extremum(e.dtype, "min"));
      case ExprKind::kMax: return Function(e, Extremum(e.dtype, "max"));
      case ExprKind::kLt: return Binary(e, "<");
      case ExprKind::kLe: return Binary(e, "<=");
      case ExprKind::kEq: return Binary(e, "==");
      case ExprKind::kNe: return Binary(e, "!=");
      case ExprKind::kAnd: return Binary(e, "&&");
      case ExprKind::kOr: return Binary(e, "||");
      case ExprKind::kNot: return "!" + Text(e.args[0]);
      case ExprKind::kSelect: return "(" + Text(e.args[0]) + " ? " + Text(e.args[1]) + " : " + Text(e.args[2]) + ")";
      case ExprKind::kCast:
        if (e.dtype == DType::kBool) return "(" + Text(e.args[0]) + " != 0)";
        if (IsFloat(e.dtype)) return "((" + ValueType(e.dtype) + ")" + Text(e.args[0]) + ")";
        return "((i64)(" + Storage(e.dtype) + ")" + (IsFloat(e.args[0]->dtype) ? "(i64)" : "") + Text(e.args[0]) + ")";
      case ExprKind::kCall: return CallText(e);
      case ExprKind::kLoad: return "(" + LoadText(e) + ")";
    }
    return "?";
  }

  const ComputeDag& dag_;
  TargetKind kind_;
  std::map<int, std::string> name_of_;                     // of kernels, by stage
  std::map<int, std::string> buffer_of_;                   // of parameters of the kernel being printed, by stage
  std::unordered_map<const ExprNode*, std::string> vars_;  // of the stage being printed
};

ProgramBuffer BufferOf(const ComputeDag& dag, int id) {
  const Stage& stage = dag.stage(id);
  const bool output = dag.is_output(id);
  ProgramBuffer buffer{.name = stage.name, .dtype = stage.dtype, .elements = stage.elements()};
  buffer.valid_min = stage.valid_min;
  buffer.valid_max = stage.valid_max;
  buffer.stage = stage.placeholder || output ? id : -1;
  buffer.role = stage.placeholder ? (stage.constant ? BufferRole::kConstant : BufferRole::kInput)
                : output          ? BufferRole::kOutput
                                  : BufferRole::kWorkspace;
  return buffer;
}

Kernel KernelOf(const ComputeDag& dag, int id, TargetKind kind) {
  Kernel kernel;
  kernel.args = dag.producers(id);
  kernel.args.push_back(id);
  const int64_t elements = dag.stage(id).elements();
  kernel.grid[0] = kind == TargetKind::kCpu ? elements : (elements + kGpuThreads - 1) / kGpuThreads;
  if (const Neighbours neighbours = NeighboursOf(dag.stage(id), kind); neighbours.count > 0)
    kernel.grid[0] = elements / dag.stage(id).axes.back().extent * neighbours.blocks;
  kernel.block[0] = kind == TargetKind::kCpu ? 1 : kGpuThreads;
  return kernel;
}

}  // namespace

absl::StatusOr<Program> CompileReference(const ComputeDag& dag, const Target& target) {
  Program program;
  program.target = target;
  ReferencePrinter printer(dag, target.kind);
  program.source = printer.Source();
  for (int id = 0; id < dag.size(); ++id) {
    program.buffers.push_back(BufferOf(dag, id));  // a buffer's index is its stage's id
    if (dag.stage(id).placeholder) continue;
    program.kernels.push_back(KernelOf(dag, id, target.kind));
    program.kernels.back().name = printer.NameOf(id);
  }
  constexpr double kTimeoutSeconds = 120;  // a whole network is one source
  RETURN_IF_ERROR(CompileSource(program, kTimeoutSeconds));
  return program;
}

}  // namespace diapason
