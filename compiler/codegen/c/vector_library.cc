#include "compiler/codegen/c/vector_library.h"

#include <map>

#include "compiler/codegen/byte_dots.h"

namespace diapason {
namespace {

struct Element {
  const char* name;
  const char* type;
  const char* mask_type;
  int bytes;
};
constexpr Element kF32 = {"f32", "float", "int", 4};
constexpr Element kF64 = {"f64", "double", "long long", 8};
constexpr Element kI32 = {"i32", "int", "int", 4};

// How values of a type are held in vectors; null: never. Narrow floats are computed in float.
const Element* ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return &kF32;
    case DType::kFloat64: return &kF64;
    case DType::kInt32: return &kI32;
    default: return IsNarrowFloat(dtype) ? &kF32 : nullptr;
  }
}

// The same of values that are computed: of bytes they are lanes of int that hold a byte's values.
const Element* ValueElementOf(DType dtype) { return IsByte(dtype) ? &kI32 : ElementOf(dtype); }

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// {V} vector type, {E} element type, {M} mask vector type, {N} lanes, {B} bytes.
std::string Filled(std::string text, const Element& element, int64_t lanes) {
  const std::string n = std::to_string(lanes);
  text = Replaced(text, "{V}", element.name + ("x" + n));
  text = Replaced(text, "{M}", (element.bytes == 8 ? "m64x" : "i32x") + n);
  text = Replaced(text, "{E}", element.type);
  text = Replaced(text, "{N}", n);
  return Replaced(text, "{B}", std::to_string(element.bytes * lanes));
}

std::string Repeated(const std::string& item, int64_t times) {
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += (i == 0 ? "" : ", ") + item;
  return out;
}

// x86's own minimum and maximum are one instruction; comparing and blending takes three. They give the second operand
// when one is NaN, so the operands are swapped.
std::string ExtremumHelper(bool is_min, const Element& element, int64_t lanes) {
  const std::string op = is_min ? "min" : "max", builtin = "__builtin_ia32_" + op + (element.bytes == 8 ? "pd" : "ps");
  std::string out = "static inline {V} {V}_" + op + "({V} a, {V} b) {\n";
  const bool is_float = element.name[0] == 'f';
  const int64_t bytes = element.bytes * lanes;
  const std::string plain = std::string("  const {M} m = ({M})(") + (is_min ? "b < a" : "a < b") +
                            ");\n  return ({V})((m & ({M})b) | (~m & ({M})a));\n";
  if (is_float && bytes == 64) {
    out += "#if defined(__AVX512F__) && defined(__clang__)\n  return " + builtin + "512(b, a, 4);\n" +
           "#elif defined(__AVX512F__)\n  return " + builtin + "512_mask(b, a, a, -1, 4);\n#else\n" + plain +
           "#endif\n";
  } else if (is_float && (bytes == 32 || bytes == 16)) {
    out += std::string("#ifdef ") + (bytes == 32 ? "__AVX__" : "__SSE2__") + "\n  return " + builtin +
           (bytes == 32 ? "256" : "") + "(b, a);\n#else\n" + plain + "#endif\n";
  } else if (element.name == kI32.name && (bytes == 32 || bytes == 16)) {
    out += std::string("#if defined(") + (bytes == 32 ? "__AVX2__" : "__SSE4_1__") +
           ") && !defined(__clang__)\n  return ({V})__builtin_ia32_p" + op + "sd" + (bytes == 32 ? "256" : "128") +
           "(a, b);\n#else\n" + plain + "#endif\n";
  } else {
    out += plain;
  }
  return out + "}";
}

// exp, sigmoid, tanh and erf of float vectors, within 2 units in the last place (Cephes' polynomials: e^x = 2^n * e^r
// with |r| at most ln(2) / 2; 2^n by an instruction or in two factors, so that results below the normal range and
// infinities come out; min and max keep a NaN). Null for other functions, which are called for each lane.
const char* VectorFunction(const std::string& name) {
  if (name == "exp") {
    return R"(static inline {V} {V}_max({V} a, {V} b);
static inline {V} {V}_min({V} a, {V} b);
static inline {V} {V}_exp({V} x) {
  const {V} clamped = {V}_min({V}_max(x, {V}_set(-104.0f)), {V}_set(89.0f));
  const {V} shifted = clamped * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
  const {V} r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
  {V} p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
#if defined(__AVX512F__) && {N} == 16
  return __builtin_ia32_scalefps512_mask(p, n, p, -1, 4);
#else
  const {M} exponent = ({M})shifted - 0x4b400000, half = exponent >> 1;
  return p * ({V})((half + 127) << 23) * ({V})((exponent - half + 127) << 23);
#endif
})";
  }
  if (name == "sigmoid") return "static inline {V} {V}_sigmoid({V} x) { return 1.0f / (1.0f + {V}_exp(-x)); }";
  if (name == "tanh") {
    return R"(static inline {V} {V}_tanh({V} x) {
  const {M} sign = ({M})x & (int)0x80000000, small = ({M})(({V})(({M})x ^ sign) < 0.625f);
  const {V} a = ({V})(({M})x ^ sign), large = 1.0f - 2.0f / ({V}_exp(a + a) + 1.0f), z = x * x;
  {V} p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  p = p * z * x + x;
  return ({V})((small & ({M})p) | (~small & (({M})large | sign)));
})";
  }
  // Juffa's two polynomials, of x and of the logarithm of 1 - erf.
  if (name == "erf") {
    return R"(static inline {V} {V}_erf({V} x) {
  const {M} sign = ({M})x & (int)0x80000000;
  const {V} a = ({V})(({M})x ^ sign), z = x * x;
  const {M} large = ({M})(a > 0.927734375f);
  {V} q = (a * -1.72853470e-5f + 3.83197126e-4f) * z + (a * -3.88396438e-3f + 2.42546219e-2f);
  q = q * a - 1.06777877e-1f;
  q = q * a - 6.34846687e-1f;
  q = q * a - 1.28717512e-1f;
  q = 1.0f - {V}_exp(q * a - a);
  {V} p = z * -5.96761703e-4f + 4.99119423e-3f;
  p = p * z - 2.67681349e-2f;
  p = p * z + 1.12819925e-1f;
  p = p * z - 3.76125336e-1f;
  p = p * z + 1.28379166e-1f;
  p = p * x + x;
  return ({V})((large & (({M})q | sign)) | (~large & ({M})p));
})";
  }
  return nullptr;
}

// round, floor, ceil and sqrt of float vectors by the processor's instruction, which gives what the scalar function
// does. `scalar` is that function. Empty for other functions.
std::string InstructionHelper(const std::string& name, const std::string& scalar, int64_t lanes) {
  static const auto& kRounding =
      *new std::map<std::string, std::string>{{"round", "4"}, {"floor", "9"}, {"ceil", "10"}};
  const auto mode = kRounding.find(name);
  if (mode == kRounding.end() && name != "sqrt") return "";
  std::string needs, fast;
  const bool root = name == "sqrt";
  if (lanes == 16) {
    needs = "defined(__AVX512F__) && !defined(__clang__)";
    fast = root ? "__builtin_ia32_sqrtps512_mask(x, x, -1, 4)"
                : "__builtin_ia32_rndscaleps_mask(x, " + mode->second + ", x, -1, 4)";
  } else if (lanes == 8) {
    needs = root ? "defined(__AVX__) && !defined(__clang__)" : "defined(__AVX__)";
    fast = root ? "__builtin_ia32_sqrtps256(x)" : "__builtin_ia32_roundps256(x, " + mode->second + ")";
  } else if (lanes == 4) {
    needs = root ? "defined(__SSE2__) && !defined(__clang__)" : "defined(__SSE4_1__)";
    fast = root ? "__builtin_ia32_sqrtps(x)" : "__builtin_ia32_roundps(x, " + mode->second + ")";
  }
  const std::string loop = "  {V} r;\n  for (int i = 0; i < {N}; ++i) r[i] = " + scalar + "(x[i]);\n  return r;\n",
                    body =
                        fast.empty() ? loop : "#if " + needs + "\n  return " + fast + ";\n#else\n" + loop + "#endif\n";
  return "static inline {V} {V}_" + name + "({V} x) {\n" + body + "}";
}

// The instructions that convert float16 of so many lanes, where the processor has them.
std::string HalfInstructions(bool load, int64_t lanes) {
  std::string fast;
  if (lanes == 8)
    fast = load ? "  return __builtin_ia32_vcvtph2ps256(*(const s16x8u*)p);\n"
                : "  *(s16x8u*)p = __builtin_ia32_vcvtps2ph256(x, 0);\n";
  if (lanes == 4) {
    fast = load ? "  union { long long u[2]; s16x8u v; } u;\n  __builtin_memcpy(u.u, p, 8);\n  u.u[1] = 0;\n"
                  "  return __builtin_ia32_vcvtph2ps(u.v);\n"
                : "  const s16x8u h = __builtin_ia32_vcvtps2ph(x, 0);\n  __builtin_memcpy(p, &h, 8);\n";
  }
  return fast;
}

// "f16" or "bf16", in names of functions.
std::string ShortName(DType dtype) { return dtype == DType::kFloat16 ? "f16" : "bf16"; }

// A narrow float in memory, float in vectors. Sixteen lanes are two halves; fewer than four are done one by one.
std::string NarrowHelper(DType dtype, const char* convert, bool load, int64_t lanes) {
  const std::string type = ShortName(dtype);
  const std::string head = load ? "static inline f32x{N} " + type + "x{N}_load(const unsigned short* p) {\n"
                                : "static inline void " + type + "x{N}_store(unsigned short* p, f32x{N} x) {\n";
  if (lanes == 16) {
    const std::string both = "  union { f32x8 h[2]; f32x16 v; } u", access = type + "x8_";
    return head +
           (load ? both + ";\n  u.h[0] = " + access + "load(p);\n  u.h[1] = " + access + "load(p + 8);\n  return u.v;\n"
                 : both + ";\n  u.v = x;\n  " + access + "store(p, u.h[0]);\n  " + access + "store(p + 8, u.h[1]);\n") +
           "}";
  }
  const std::string loop =
      load ? std::string("  f32x{N} r;\n  for (int i = 0; i < {N}; ++i) r[i] = ") + convert + "(p[i]);\n  return r;\n"
           : std::string("  for (int i = 0; i < {N}; ++i) p[i] = ") + convert + "(x[i]);\n";
  const std::string fast = dtype == DType::kFloat16 ? HalfInstructions(load, lanes) : "";
  if (fast.empty()) return head + loop + "}";
  return head + "#ifdef __F16C__\n" + fast + "#else\n" + loop + "#endif\n}";
}

// Integers of 8 bits in memory, int in vectors. GCC 12 takes a __builtin_convertvector of bytes apart, element by
// element.
std::string ByteHelper(bool is_signed, int64_t lanes) {
  const std::string type = is_signed ? "signed char" : "unsigned char",
                    name = (is_signed ? "i8x" : "u8x") + std::to_string(lanes);
  const std::string builtin = std::string("__builtin_ia32_pmov") + (is_signed ? "sx" : "zx") + "bd";
  const std::string part = "x;\n  __builtin_memcpy(&x, p, {N});\n  return (i32x{N})" + builtin;
  std::string fast, needs;
  if (lanes == 16) {
    fast = "  return (i32x16)" + builtin + "512_mask(*(const s8x16u*)p, (i32x16){0}, -1);\n";
    needs = "__AVX512F__";
  } else if (lanes == 8 || lanes == 4) {
    fast = std::string(lanes == 8 ? "  long long " : "  int ") + part + (lanes == 8 ? "256" : "128") +
           "((s8x16u)(s64x2){x, 0});\n";
    needs = lanes == 8 ? "__AVX2__" : "__SSE4_1__";
  }
  const std::string loop = "  i32x{N} r;\n  for (int i = 0; i < {N}; ++i) r[i] = p[i];\n  return r;\n";
  const std::string body =
      fast.empty() ? loop
                   : "#if defined(" + needs + ") && !defined(__clang__)\n" + fast + "#else\n" + loop + "#endif\n";
  return Filled("static inline i32x{N} " + name + "_load(const " + type + "* p) {\n" + body + "}", kI32, lanes);
}

// The low bytes of a vector of int in memory.
std::string ByteStoreHelper(int64_t lanes) {
  static constexpr char kLow[] = "(s8x{B}){{I}}";
  std::string order, fast, needs;
  for (int64_t i = 0; i < 4 * lanes; ++i)
    order += (i == 0 ? "" : ", ") + std::to_string(i % 16 < 4 ? i % 16 * 4 : -128);
  const std::string low = Replaced(kLow, "{I}", order);
  if (lanes == 16) {
    needs = "defined(__AVX512F__) && !defined(__clang__)";
    fast = "  *(s8x16u*)p = (s8x16u)__builtin_ia32_pmovdb512_mask(x, (s8x16){0}, -1);\n";
  } else if (lanes == 8) {
    needs = "defined(__AVX2__)";
    fast = "  const i32x8 low = (i32x8)__builtin_ia32_pshufb256((s8x32)x, " + low + ");\n" +
           "  __builtin_memcpy(p, &low, 4);\n  const int high = low[4];\n  __builtin_memcpy(p + 4, &high, 4);\n";
  } else if (lanes == 4) {
    needs = "defined(__SSSE3__)";
    fast = "  const i32x4 low = (i32x4)__builtin_ia32_pshufb128((s8x16)x, " + low +
           ");\n  __builtin_memcpy(p, &low, 4);\n";
  }
  const std::string loop = "  for (int i = 0; i < {N}; ++i) p[i] = (unsigned char)x[i];\n",
                    body = fast.empty() ? loop : "#if " + needs + "\n" + fast + "#else\n" + loop + "#endif\n";
  return Filled("static inline void bytes{N}_store(unsigned char* p, i32x{N} x) {\n" + body + "}", kI32, lanes);
}

}  // namespace

bool CVectorLibrary::Holds(DType dtype) { return ElementOf(dtype) != nullptr; }

bool CVectorLibrary::HoldsAlike(DType a, DType b) { return Holds(a) && ElementOf(a) == ElementOf(b); }

int CVectorLibrary::ElementBytes(DType dtype) { return ValueElementOf(dtype)->bytes; }

std::string CVectorLibrary::Type(DType dtype, int64_t lanes) {
  const Element& element = *ValueElementOf(dtype);
  const std::string name = element.name + ("x" + std::to_string(lanes));
  helpers_.DefineType(name, Filled("typedef {E} {V} __attribute__((vector_size({B})));\n"
                                   "typedef {E} {V}u __attribute__((vector_size({B}), aligned(4), may_alias));",
                                   element, lanes));
  return name;
}

std::string CVectorLibrary::MaskType(int bytes, int64_t lanes) {
  if (bytes == 4) return Type(DType::kInt32, lanes);
  const std::string name = "m64x" + std::to_string(lanes);
  helpers_.DefineType(
      name, "typedef long long " + name + " __attribute__((vector_size(" + std::to_string(8 * lanes) + ")));");
  return name;
}

std::string CVectorLibrary::Set(DType dtype, int64_t lanes) {
  const std::string name = Type(dtype, lanes) + "_set";
  helpers_.DefineType(name, Filled("static inline {V} {V}_set({E} x) { return ({V}){" + Repeated("x", lanes) + "}; }",
                                   *ValueElementOf(dtype), lanes));
  return name;
}

std::string CVectorLibrary::Extremum(bool is_min, DType dtype, int64_t lanes) {
  const Element& element = *ValueElementOf(dtype);
  const std::string name = Type(dtype, lanes) + (is_min ? "_min" : "_max");
  MaskType(element.bytes, lanes);
  helpers_.DefineFunction(name, Filled(ExtremumHelper(is_min, element, lanes), element, lanes));
  return name;
}

std::string CVectorLibrary::Select(DType dtype, int64_t lanes) {
  const Element& element = *ValueElementOf(dtype);
  const std::string name = Type(dtype, lanes) + "_select";
  MaskType(element.bytes, lanes);
  helpers_.DefineFunction(
      name, Filled("static inline {V} {V}_select({M} m, {V} a, {V} b) { return ({V})((m & ({M})a) | (~m & ({M})b)); }",
                   element, lanes));
  return name;
}

std::string CVectorLibrary::MathFunction(const std::string& name, DType dtype, int64_t lanes) {
  const char* const text = VectorFunction(name);
  if (text == nullptr || dtype == DType::kFloat64) return "";
  const std::string type = Type(dtype, lanes);
  MaskType(kF32.bytes, lanes);
  Set(dtype, lanes);
  for (const bool is_min : {false, true}) Extremum(is_min, dtype, lanes);  // which exp declares
  helpers_.DefineFunction(type + "_exp", Filled(VectorFunction("exp"), kF32, lanes));
  // Behind exp, which it calls: functions are printed in the order of these names.
  helpers_.DefineFunction(type + (name == "erf" ? "_exp_erf" : "_" + name), Filled(text, kF32, lanes));
  return type + "_" + name;
}

std::string CVectorLibrary::InstructionFunction(const std::string& name, const std::string& function, DType dtype,
                                                int64_t lanes) {
  const std::string text = dtype == DType::kFloat64 ? "" : InstructionHelper(name, function, lanes);
  if (text.empty()) return "";
  const std::string whole = Type(dtype, lanes) + "_" + name;
  helpers_.DefineFunction(whole, Filled(text, kF32, lanes));
  return whole;
}

std::string CVectorLibrary::CallEachLane(const std::string& name, const std::string& function, size_t arguments,
                                         DType dtype, int64_t lanes) {
  std::string parameters, elements;
  for (size_t i = 0; i < arguments; ++i) {
    const std::string comma = i == 0 ? "" : ", ", x = i == 0 ? "x" : "y";
    parameters += comma + "{V} " + x;
    elements += comma + x + "[i]";
  }
  const std::string whole = Type(dtype, lanes) + "_" + name;
  helpers_.DefineFunction(whole, Filled("static inline {V} {V}_" + name + "(" + parameters +
                                            ") {\n  {V} r;\n  for (int i = 0; i < {N}; ++i) r[i] = " + function + "(" +
                                            elements + ");\n  return r;\n}",
                                        *ElementOf(dtype), lanes));
  return whole;
}

std::string CVectorLibrary::NarrowAccess(DType dtype, int64_t lanes, bool load) {
  const std::string op = load ? "_load" : "_store", type = ShortName(dtype);
  const char* const convert = ExprPrinter::ConversionHelper(dtype, load);
  helpers_.Use(convert);
  helpers_.DefineType("s16x8u", "typedef short s16x8u __attribute__((vector_size(16), aligned(2), may_alias));");
  for (int64_t part : {lanes == 16 ? int64_t{8} : lanes, lanes}) {
    Type(DType::kFloat32, part);
    // "f16x08" sorts before "f16x16", which calls it.
    const std::string key = type + (part < 10 ? "x0" : "x") + std::to_string(part) + op;
    helpers_.DefineFunction(key, Filled(NarrowHelper(dtype, convert, load, part), kF32, part));
  }
  return type + "x" + std::to_string(lanes) + op;
}

void CVectorLibrary::DefineByteTypes(int64_t lanes) {
  Type(DType::kInt32, lanes);
  helpers_.DefineType("s8x16",
                      "typedef char s8x16u __attribute__((vector_size(16), aligned(1), may_alias));\n"
                      "typedef char s8x16 __attribute__((vector_size(16)));\n"
                      "typedef char s8x32 __attribute__((vector_size(32)));\n"
                      "typedef long long s64x2 __attribute__((vector_size(16)));");
}

std::string CVectorLibrary::ByteLoad(bool is_signed, int64_t lanes) {
  DefineByteTypes(lanes);
  const std::string name = (is_signed ? "i8x" : "u8x") + std::to_string(lanes) + "_load";
  helpers_.DefineFunction(name, ByteHelper(is_signed, lanes));
  return name;
}

std::string CVectorLibrary::ByteStore(int64_t lanes) {
  DefineByteTypes(lanes);
  const std::string name = "bytes" + std::to_string(lanes) + "_store";
  helpers_.DefineFunction(name, ByteStoreHelper(lanes));
  return name;
}

std::string CVectorLibrary::ByteDots(bool left_signed, bool right_signed, int64_t lanes) {
  const ByteDotFunctions functions = ByteDotFunctionsFor(left_signed, right_signed, lanes);
  Set(DType::kInt32, lanes);
  helpers_.DefineType("s16x" + std::to_string(2 * lanes), functions.types);
  helpers_.DefineFunction(functions.dots_name, functions.dots);
  helpers_.DefineFunction(functions.pairs_name, functions.pairs);
  helpers_.DefineFunction(functions.name, functions.text);
  return functions.name;
}

std::string CVectorLibrary::LoadFourBytes() {
  helpers_.DefineFunction("bytes4",
                          "static inline int bytes4(const void* p) {\n  int x;\n  __builtin_memcpy(&x, p, 4);\n"
                          "  return x;\n}");
  return "bytes4";
}

}  // namespace diapason
