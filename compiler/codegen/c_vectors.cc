#include "compiler/codegen/c_vectors.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/codegen/byte_dots.h"
#include "compiler/codegen/passes.h"

namespace diapason {
namespace {

// A store is split on conditions of its lanes this deep; what is left is decided lane by lane.
constexpr int kMaxSplits = 2;

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
// with |r| at most ln(2) / 2; 2^n in two factors, so that results below the normal range and infinities come out).
// Scalar calls would take ten times as long. Null for other functions.
const char* VectorFunction(const std::string& name) {
  if (name == "exp") {
    return R"(static inline {V} {V}_exp({V} x) {
  const {M} low = ({M})(x < -104.0f), high = ({M})(x > 89.0f);
  const {V} clamped = ({V})((low & ({M})({V}_set(-104.0f))) | (high & ({M})({V}_set(89.0f))) | (~(low | high) & ({M})x));
  const {V} shifted = clamped * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
  const {V} r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
  {V} p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const {M} exponent = ({M})shifted - 0x4b400000, half = exponent >> 1;
  return p * ({V})((half + 127) << 23) * ({V})((exponent - half + 127) << 23);
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
std::string InstructionFunction(const std::string& name, const std::string& scalar, int64_t lanes) {
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

const char* CVectorPrinter::VectorElementOf(DType dtype) {
  const Element* element = ElementOf(dtype);
  return element == nullptr ? nullptr : element->name;
}

std::string CVectorPrinter::VectorType(DType dtype, int64_t lanes) {
  const Element& element = *ValueElementOf(dtype);
  const std::string name = element.name + ("x" + std::to_string(lanes));
  helpers_.DefineType(name, Filled("typedef {E} {V} __attribute__((vector_size({B})));\n"
                                   "typedef {E} {V}u __attribute__((vector_size({B}), aligned(4), may_alias));",
                                   element, lanes));
  return name;
}

std::string CVectorPrinter::Broadcast(const std::string& scalar, DType dtype) {
  const std::string type = VectorType(dtype, lanes_);
  helpers_.DefineType(type + "_set",
                      Filled("static inline {V} {V}_set({E} x) { return ({V}){" + Repeated("x", lanes_) + "}; }",
                             *ValueElementOf(dtype), lanes_));
  return type + "_set(" + scalar + ")";
}

void CVectorPrinter::Declare(const BufferDecl& decl) {
  buffers_[decl.id] = decl;
  if (buffer_names_.count(decl.id) == 0) buffer_names_[decl.id] = names_.Unique(decl.name);
}

void CVectorPrinter::Line(const std::string& text) { out_.append(2 * depth_, ' ').append(text).append("\n"); }
void CVectorPrinter::Open(const std::string& head) {
  Line(head.empty() ? "{" : head + " {");
  ++depth_;
}
void CVectorPrinter::Close() {
  --depth_;
  Line("}");
}
void CVectorPrinter::Block(const std::string& head, const Stmt& body) {
  Open(head);
  PrintStmt(body);
  Close();
}

void CVectorPrinter::PrintComment(const std::string& text) {
  std::string line = text;
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\\'; }, ' ');
  Line("// " + line);
}

std::string CVectorPrinter::LoadText(const ExprNode& load) {
  const BufferDecl& decl = buffers_.at(load.buffer);
  if (auto it = slots_.find(load.buffer); it != slots_.end()) {
    const int64_t at = IntValue(analyzer_.Simplify(load.args[0]));
    const auto slot = SlotOf(it->second, at);
    const std::string name = SlotName(load.buffer, slot->first);
    return slot->second == 1 ? name : name + "[" + std::to_string(at - slot->first) + "]";
  }
  const std::string element = NameOf(load.buffer) + "[" + Text(load.args[0]) + "]";
  const bool narrow = IsNarrowFloat(decl.dtype) && decl.scope == Scope::kGlobal;
  return narrow ? Widened(decl.dtype, element) : element;
}

std::string CVectorPrinter::StoreText(const StmtNode& store) {
  const BufferDecl& decl = buffers_.at(store.buffer);
  const bool narrow = IsNarrowFloat(decl.dtype) && decl.scope == Scope::kGlobal;
  // The target prints as a load does, but for the conversion.
  std::string target;
  if (slots_.count(store.buffer) != 0) {
    target = LoadText(*Load(store.buffer, decl.dtype, {store.index}));
  } else {
    target = NameOf(store.buffer) + "[" + Text(store.index) + "]";
  }
  std::string value = Text(store.value);
  if (narrow) value = Narrowed(decl.dtype, value);
  if (decl.dtype == DType::kBool && store.value->dtype != DType::kBool) value = "(" + value + ") != 0";
  return target + " = " + value + ";";
}

void CVectorPrinter::PrintSequence(const StmtNode& sequence) {
  shared_.Enter(sequence, depth_, [this](const ExprNode& load) { return slots_.count(load.buffer) != 0; });
  for (const Stmt& child : sequence.body) {
    PrintStmt(child);
    shared_.Written(*child);
  }
  shared_.Leave();
}

void CVectorPrinter::PrintVectorLoop(const StmtNode& loop) {
  lane_ = loop.var;
  lanes_ = loop.extent;
  PrintVectorStmt(loop.body[0]);
  lane_ = nullptr;
}

void CVectorPrinter::PrintByteDots(const Expr& byte, const Stmt& body) {
  if (body->kind == StmtKind::kIf) {
    Open("if (" + Text(body->condition) + ")");
    PrintByteDots(byte, body->body[0]);
    return Close();
  }
  if (body->kind == StmtKind::kSeq) {
    for (const Stmt& child : body->body) PrintByteDots(byte, child);
    return;
  }
  lane_ = body->var;
  lanes_ = body->extent;
  const ByteDot dot = *FindByteDot(byte, *body, analyzer_);
  const ByteDotFunctions functions =
      ByteDotFunctionsFor(dot.left->dtype == DType::kInt8, dot.right->dtype == DType::kInt8, lanes_);
  Broadcast("", DType::kInt32);
  helpers_.DefineType("s16x" + std::to_string(2 * lanes_), functions.types);
  helpers_.DefineFunction(functions.dots_name, functions.dots);
  helpers_.DefineFunction(functions.pairs_name, functions.pairs);
  helpers_.DefineFunction(functions.name, functions.text);
  helpers_.DefineFunction("bytes4",
                          "static inline int bytes4(const void* p) {\n  int x;\n  __builtin_memcpy(&x, p, 4);\n"
                          "  return x;\n}");
  const std::string left = "bytes4(" + Pointer(dot.left->buffer, dot.left_at) + ")";
  WriteVector(
      *dot.store, StrideOf(dot.store->index, lane_, analyzer_),
      functions.name + "(" + VectorText(dot.sum) + ", " + left + ", " + Pointer(dot.right->buffer, dot.right_at) + ")");
  lane_ = nullptr;
}

void CVectorPrinter::PrintVectorStmt(const Stmt& stmt) {
  switch (stmt->kind) {
    case StmtKind::kSeq:
      for (const Stmt& child : stmt->body) PrintVectorStmt(child);
      return;
    case StmtKind::kFor: {
      const std::string var = VarName(stmt->var);
      if (stmt->unroll > 0) Line("#pragma GCC unroll " + std::to_string(stmt->unroll));
      Open("for (int64 " + var + " = 0; " + var + " < " + std::to_string(stmt->extent) + "; ++" + var + ")");
      PrintVectorStmt(stmt->body[0]);
      return Close();
    }
    case StmtKind::kLet:
      Open("");
      Line("const int64 " + VarName(stmt->var) + " = " + Text(stmt->value) + ";");
      PrintVectorStmt(stmt->body[0]);
      return Close();
    case StmtKind::kIf: return PrintVectorIf(*stmt);
    case StmtKind::kStore: return PrintVectorStore(*stmt);
    case StmtKind::kComment: return PrintComment(stmt->text);
    case StmtKind::kBarrier:
    case StmtKind::kCommit:
    case StmtKind::kLaunchDependents:
    case StmtKind::kWait:
    case StmtKind::kClusterBarrier: return;
    case StmtKind::kAlloc:
    case StmtKind::kMma:
    case StmtKind::kLoadMatrix:
    case StmtKind::kShuffle:
    case StmtKind::kPack:
    case StmtKind::kSmallParts:
    case StmtKind::kGroupMma:
    case StmtKind::kGroupSync:
    case StmtKind::kBulkCopy:
    case StmtKind::kMbarrier: break;
  }
  PrintLaneByLane(stmt);
}

void CVectorPrinter::PrintVectorIf(const StmtNode& s) {
  if (!UsesLane(s.condition)) {
    Open("if (" + Text(s.condition) + ")");
    PrintVectorStmt(s.body[0]);
    return Close();
  }
  const Stmt whole = MakeIf(s.condition, s.body[0]);
  const std::optional<AllOrNone> lanes = DecideLanes(s.condition);
  if (!lanes || IsInt(lanes->all, 0)) return PrintLaneByLane(whole);
  Open("if (" + Text(lanes->all) + ")");
  PrintVectorStmt(s.body[0]);
  Close();
  Open("else if (" + Text(analyzer_.Simplify(Not(lanes->none))) + ")");
  PrintLaneByLane(whole);
  Close();
}

Expr CVectorPrinter::AtLane(const Expr& e, int64_t i) {
  return analyzer_.Simplify(Substitute(e, {{lane_.get(), IntImm(i)}}));
}

std::optional<CVectorPrinter::AllOrNone> CVectorPrinter::DecideLanes(const Expr& condition) {
  if (!UsesLane(condition)) return AllOrNone{condition, Not(condition)};
  switch (condition->kind) {
    case ExprKind::kLt:
    case ExprKind::kLe: {
      // The difference of the sides goes one way along the lanes, so the first and the last lane decide.
      if (IsFloat(condition->args[0]->dtype)) return std::nullopt;
      if (!StrideOf(Sub(condition->args[0], condition->args[1]), lane_, analyzer_).affine) return std::nullopt;
      const Expr first = AtLane(condition, 0), last = AtLane(condition, lanes_ - 1);
      return AllOrNone{analyzer_.Simplify(And(first, last)), analyzer_.Simplify(And(Not(first), Not(last)))};
    }
    case ExprKind::kNot: {
      const std::optional<AllOrNone> inner = DecideLanes(condition->args[0]);
      if (!inner) return std::nullopt;
      return AllOrNone{inner->none, inner->all};
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      const std::optional<AllOrNone> a = DecideLanes(condition->args[0]), b = DecideLanes(condition->args[1]);
      if (!a || !b) return std::nullopt;
      const bool both = condition->kind == ExprKind::kAnd;
      return AllOrNone{analyzer_.Simplify(both ? And(a->all, b->all) : Or(a->all, b->all)),
                       analyzer_.Simplify(both ? Or(a->none, b->none) : And(a->none, b->none))};
    }
    default: return std::nullopt;
  }
}

// The first condition of a select in the value that differs between lanes and can be decided for all of them.
Expr CVectorPrinter::FindLaneCondition(const Expr& value) {
  if (value->kind == ExprKind::kSelect && UsesLane(value->args[0]) && DecideLanes(value->args[0]))
    return value->args[0];
  for (const Expr& arg : value->args)
    if (Expr found = FindLaneCondition(arg)) return found;
  return nullptr;
}

// if (all lanes) the store with the branch taken; else if (none) with the other; else lane by lane.
void CVectorPrinter::PrintSplitStore(const StmtNode& store, const Expr& condition) {
  const AllOrNone lanes = *DecideLanes(condition);
  auto decided = [&](bool outcome) {
    const Expr value = Rewrite(store.value, [&](const Expr& e) {
      if (e->kind != ExprKind::kSelect || !Equal(e->args[0], condition)) return e;
      return e->args[outcome ? 1 : 2];
    });
    StmtNode result = store;
    result.value = value;
    return result;
  };
  if (IsInt(lanes.all, 1)) return PrintVectorStore(decided(true));
  if (IsInt(lanes.none, 1)) return PrintVectorStore(decided(false));
  Open("if (" + Text(lanes.all) + ")");
  PrintVectorStore(decided(true));
  Close();
  if (!IsInt(lanes.none, 0)) {
    Open("else if (" + Text(lanes.none) + ")");
    PrintVectorStore(decided(false));
    Close();
  }
  Open("else");
  PrintLaneByLane(MakeStore(store.buffer, store.index, store.value));
  Close();
}

void CVectorPrinter::PrintVectorStore(const StmtNode& store) {
  const BufferDecl& decl = buffers_.at(store.buffer);
  const Stride stride = StrideOf(store.index, lane_, analyzer_);
  if (IsByte(decl.dtype) && store.value->dtype == decl.dtype && slots_.count(store.buffer) == 0 && stride.affine &&
      stride.stride == 1 && HasByteForm(store.value))
    return PrintByteStore(store, stride);
  const bool has_vectors = ElementOf(decl.dtype) != nullptr && ElementOf(store.value->dtype) == ElementOf(decl.dtype);
  if (!has_vectors || !stride.affine || stride.stride == 0)
    return PrintLaneByLane(MakeStore(store.buffer, store.index, store.value));
  if (splits_ < kMaxSplits) {
    if (const Expr condition = FindLaneCondition(store.value)) {
      ++splits_;
      PrintSplitStore(store, condition);
      --splits_;
      return;
    }
  }
  WriteVector(store, stride, VectorText(store.value));
}

// Whether lanes of such a value of 8 bits are vectors of int without being computed one by one.
bool CVectorPrinter::HasByteForm(const Expr& e) {
  if (!UsesLane(e)) return true;
  switch (e->kind) {
    case ExprKind::kLoad: return BytesFrom(e) != nullptr;
    case ExprKind::kCast:
      return IsByte(e->args[0]->dtype) ? HasByteForm(e->args[0]) : ElementOf(e->args[0]->dtype) != nullptr;
    case ExprKind::kMin:
    case ExprKind::kMax: return HasByteForm(e->args[0]) && HasByteForm(e->args[1]);
    case ExprKind::kSelect: return !UsesLane(e->args[0]) && HasByteForm(e->args[1]) && HasByteForm(e->args[2]);
    default: return false;
  }
}

void CVectorPrinter::PrintByteStore(const StmtNode& store, const Stride& stride) {
  const Expr& value = store.value;
  const std::string to = Pointer(store.buffer, stride.base);
  if (!UsesLane(value))
    return Line("__builtin_memset(" + to + ", " + Text(value) + ", " + std::to_string(lanes_) + ");");
  if (value->kind == ExprKind::kSelect) {
    StmtNode branch = store;
    Open("if (" + Text(value->args[0]) + ")");
    branch.value = value->args[1];
    PrintByteStore(branch, stride);
    Close();
    Open("else");
    branch.value = value->args[2];
    PrintByteStore(branch, stride);
    return Close();
  }
  if (value->kind == ExprKind::kLoad) {
    return Line("__builtin_memcpy(" + to + ", " + Pointer(value->buffer, BytesFrom(value)) + ", " +
                std::to_string(lanes_) + ");");
  }
  VectorType(DType::kInt32, lanes_);
  DefineByteTypes();
  const std::string name = "bytes" + std::to_string(lanes_) + "_store";
  helpers_.DefineFunction(name, ByteStoreHelper(lanes_));
  const std::string lanes = value->kind == ExprKind::kCast ? IntegerLanes(value->args[0]) : VectorText(value);
  Line(name + "((unsigned char*)" + "(" + to + "), " + lanes + ");");
}

// The value, whose type has lanes, as lanes of int: towards zero, as a cast.
std::string CVectorPrinter::IntegerLanes(const Expr& e) {
  if (ValueElementOf(e->dtype) == &kI32) return VectorText(e);
  return "__builtin_convertvector(" + VectorText(e) + ", " + VectorType(DType::kInt32, lanes_) + ")";
}

void CVectorPrinter::DefineByteTypes() {
  helpers_.DefineType("s8x16",
                      "typedef char s8x16u __attribute__((vector_size(16), aligned(1), may_alias));\n"
                      "typedef char s8x16 __attribute__((vector_size(16)));\n"
                      "typedef char s8x32 __attribute__((vector_size(32)));\n"
                      "typedef long long s64x2 __attribute__((vector_size(16)));");
}

void CVectorPrinter::WriteVector(const StmtNode& store, const Stride& stride, const std::string& value) {
  const BufferDecl& decl = buffers_.at(store.buffer);
  const std::string type = VectorType(decl.dtype, lanes_);
  const bool slots = slots_.count(store.buffer) != 0;
  const bool narrow = IsNarrowFloat(decl.dtype) && decl.scope == Scope::kGlobal;
  if (stride.stride == 1 && slots) {
    Line(SlotName(store.buffer, IntValue(stride.base)) + " = " + value + ";");
  } else if (stride.stride == 1 && narrow) {
    Line(NarrowAccess(decl.dtype, false) + "(" + Pointer(store.buffer, stride.base) + ", " + value + ");");
  } else if (stride.stride == 1) {
    Line("*(" + type + "u*)(" + Pointer(store.buffer, stride.base) + ") = " + value + ";");
  } else {
    Open("");
    Line("const " + type + " lanes = " + value + ";");
    for (int64_t i = 0; i < lanes_; ++i) {
      const std::string element = "lanes[" + std::to_string(i) + "]";
      const Expr at = AtLane(store.index, i);
      const std::string target =
          slots ? LoadText(*Load(store.buffer, decl.dtype, {at})) : NameOf(store.buffer) + "[" + Text(at) + "]";
      Line(target + " = " + (narrow ? Narrowed(decl.dtype, element) : element) + ";");
    }
    Close();
  }
}

bool CVectorPrinter::TouchesSlots(const Stmt& stmt) const {
  bool touches = stmt->kind == StmtKind::kStore && slots_.count(stmt->buffer) != 0;
  auto look = [&](const ExprNode& e) { touches |= e.kind == ExprKind::kLoad && slots_.count(e.buffer) != 0; };
  for (const Expr* e : {&stmt->index, &stmt->value, &stmt->condition})
    if (*e != nullptr) Visit(*e, look);
  for (const Stmt& child : stmt->body) touches = touches || TouchesSlots(child);
  return touches;
}

void CVectorPrinter::PrintLaneByLane(const Stmt& stmt) {
  const Expr lane = lane_;
  if (!TouchesSlots(stmt)) {
    const std::string var = VarName(lane);
    return Block("for (int64 " + var + " = 0; " + var + " < " + std::to_string(lanes_) + "; ++" + var + ")", stmt);
  }
  for (int64_t i = 0; i < lanes_; ++i) {
    const Stmt copy = SubstituteAndSimplify(stmt, {{lane.get(), IntImm(i)}}, analyzer_);
    if (copy != nullptr) PrintStmt(copy);
  }
}

std::string CVectorPrinter::Pointer(int buffer, const Expr& base) {
  return NameOf(buffer) + (IsInt(base, 0) ? "" : " + " + Text(base, kSumLevel));
}

std::string CVectorPrinter::NarrowAccess(DType dtype, bool load) {
  const std::string op = load ? "_load" : "_store", type = ShortName(dtype);
  VectorType(DType::kFloat32, lanes_);
  const char* const convert = ConversionHelper(dtype, load);
  helpers_.Use(convert);
  helpers_.DefineType("s16x8", "typedef short s16x8u __attribute__((vector_size(16), aligned(2), may_alias));");
  for (int64_t lanes : {lanes_ == 16 ? int64_t{8} : lanes_, lanes_}) {
    VectorType(DType::kFloat32, lanes);
    // "f16x08" sorts before "f16x16", which calls it.
    const std::string key = type + (lanes < 10 ? "x0" : "x") + std::to_string(lanes) + op;
    helpers_.DefineFunction(key, Filled(NarrowHelper(dtype, convert, load, lanes), kF32, lanes));
  }
  return type + "x" + std::to_string(lanes_) + op;
}

Expr CVectorPrinter::BytesFrom(const Expr& load) {
  if (load->kind != ExprKind::kLoad || !IsByte(load->dtype) || slots_.count(load->buffer) != 0) return nullptr;
  const Stride stride = StrideOf(load->args[0], lane_, analyzer_);
  return stride.affine && stride.stride == 1 && IsByte(buffers_.at(load->buffer).dtype) ? stride.base : nullptr;
}

std::string CVectorPrinter::ByteLoad(const Expr& load) {
  const Expr from = BytesFrom(load);
  if (from == nullptr) return "";
  const bool is_signed = load->dtype == DType::kInt8;
  VectorType(DType::kInt32, lanes_);
  DefineByteTypes();
  const std::string name = (is_signed ? "i8x" : "u8x") + std::to_string(lanes_) + "_load";
  helpers_.DefineFunction(name, ByteHelper(is_signed, lanes_));
  return name + "(" + Pointer(load->buffer, from) + ")";
}

std::string CVectorPrinter::VectorText(const Expr& e) {
  SharedValues::Value* shared = VectorElementOf(e->dtype) == nullptr ? nullptr : shared_.Find(e, lanes_);
  if (shared == nullptr) return UnsharedText(e);
  // Inside braces or a branch, the variable would not be there for all that use it.
  if (shared->name.empty() && conditional_ == 0 && depth_ == shared->depth) {
    const std::string text = UnsharedText(e);
    shared->name = names_.Unique("v");
    Line("const " + VectorType(e->dtype, lanes_) + " " + shared->name + " = " + text + ";");
  }
  return shared->name.empty() ? UnsharedText(e) : shared->name;
}

std::string CVectorPrinter::UnsharedText(const Expr& e) {
  if (!UsesLane(e)) return Broadcast(Text(e), e->dtype);
  if (IsByte(e->dtype) && !HasByteForm(e)) return PerLane(e);
  switch (e->kind) {
    case ExprKind::kAdd: return VectorInfix(e, " + ");
    case ExprKind::kSub: return VectorInfix(e, " - ");
    case ExprKind::kMul: return VectorInfix(e, " * ");
    case ExprKind::kDiv: return VectorInfix(e, " / ");
    case ExprKind::kMin:
    case ExprKind::kMax: return VectorExtremum(e);
    case ExprKind::kSelect: return VectorSelect(e);
    case ExprKind::kCast: return VectorCast(e);
    case ExprKind::kCall: return VectorCall(e);
    case ExprKind::kLoad: return VectorLoad(e);
    default: return PerLane(e);
  }
}

std::string CVectorPrinter::PerLane(const Expr& e) {
  std::string out = "(" + VectorType(e->dtype, lanes_) + "){";
  for (int64_t i = 0; i < lanes_; ++i) out += (i == 0 ? "" : ", ") + Text(AtLane(e, i));
  return out + "}";
}

std::string CVectorPrinter::VectorInfix(const Expr& e, const char* op) {
  return "(" + Operand(e->args[0]) + op + Operand(e->args[1]) + ")";
}

// A number stands for a vector of it beside a vector.
std::string CVectorPrinter::Operand(const Expr& e) { return e->kind == ExprKind::kFloatImm ? Text(e) : VectorText(e); }

std::string CVectorPrinter::VectorLoad(const Expr& e) {
  const Stride stride = StrideOf(e->args[0], lane_, analyzer_);
  if (!stride.affine || (stride.stride != 1 && stride.stride != 0)) return PerLane(e);
  if (stride.stride == 0) return Broadcast(Text(AtLane(e, 0)), e->dtype);  // a variable that cancels
  if (IsByte(e->dtype)) return ByteLoad(e);
  if (slots_.count(e->buffer) != 0) return SlotName(e->buffer, IntValue(stride.base));
  const BufferDecl& decl = buffers_.at(e->buffer);
  if (IsNarrowFloat(decl.dtype) && decl.scope == Scope::kGlobal)
    return NarrowAccess(decl.dtype, true) + "(" + Pointer(e->buffer, stride.base) + ")";
  // The cast drops the alignment from the type, which the branches of a conditional have to agree on.
  const std::string type = VectorType(e->dtype, lanes_);
  return "(" + type + ")*(const " + type + "u*)(" + Pointer(e->buffer, stride.base) + ")";
}

std::string CVectorPrinter::VectorExtremum(const Expr& e) {
  const bool is_min = e->kind == ExprKind::kMin;
  const Element& element = *ValueElementOf(e->dtype);
  const std::string type = VectorType(e->dtype, lanes_), name = type + (is_min ? "_min" : "_max");
  MaskType(element.bytes);
  helpers_.DefineFunction(name, Filled(ExtremumHelper(is_min, element, lanes_), element, lanes_));
  return name + "(" + VectorText(e->args[0]) + ", " + VectorText(e->args[1]) + ")";
}

std::string CVectorPrinter::MaskType(int bytes) {
  if (bytes == 4) return VectorType(DType::kInt32, lanes_);
  const std::string name = "m64x" + std::to_string(lanes_);
  helpers_.DefineType(
      name, "typedef long long " + name + " __attribute__((vector_size(" + std::to_string(8 * lanes_) + ")));");
  return name;
}

std::string CVectorPrinter::MaskText(const Expr& condition, int width) {
  if (!UsesLane(condition)) return width == 4 ? Broadcast("-(" + Text(condition) + ")", DType::kInt32) : "";
  const char* op = nullptr;
  switch (condition->kind) {
    case ExprKind::kLt: op = " < "; break;
    case ExprKind::kLe: op = " <= "; break;
    case ExprKind::kEq: op = " == "; break;
    case ExprKind::kNe: op = " != "; break;
    case ExprKind::kAnd: op = " & "; break;
    case ExprKind::kOr: op = " | "; break;
    case ExprKind::kNot: {
      const std::string inner = MaskText(condition->args[0], width);
      return inner.empty() ? "" : "~" + inner;
    }
    default: return "";
  }
  if (condition->kind == ExprKind::kAnd || condition->kind == ExprKind::kOr) {
    if (!SafeOnAllLanes(condition->args[1], condition->args[0])) return "";  // the first operand may guard the second
    const std::string a = MaskText(condition->args[0], width), b = MaskText(condition->args[1], width);
    return a.empty() || b.empty() ? "" : "(" + a + op + b + ")";
  }
  const Element* element = ElementOf(condition->args[0]->dtype);
  if (element == nullptr || element->bytes != width) return "";
  return "(" + MaskType(width) + ")" + VectorInfix(condition, op);
}

// All loads of the branch are performed on every lane in any case: they are local, the same for all lanes of a select
// whose condition loads them too, or they are in the condition.
bool CVectorPrinter::SafeOnAllLanes(const Expr& branch, const Expr& condition) const {
  if (branch->kind == ExprKind::kLoad && slots_.count(branch->buffer) == 0) {
    bool found = false;
    const std::function<void(const Expr&)> look = [&](const Expr& e) {
      found = found || Equal(e, branch);
      if (e->kind == ExprKind::kSelect || e->kind == ExprKind::kAnd || e->kind == ExprKind::kOr)
        return look(e->args[0]);
      for (const Expr& arg : e->args) look(arg);
    };
    look(condition);
    return found;
  }
  return std::all_of(branch->args.begin(), branch->args.end(),
                     [&](const Expr& arg) { return SafeOnAllLanes(arg, condition); });
}

std::string CVectorPrinter::VectorSelect(const Expr& e) {
  const Expr& condition = e->args[0];
  if (!UsesLane(condition)) {
    ++conditional_;
    const std::string text =
        "(" + Text(condition, kOrLevel) + " ? " + VectorText(e->args[1]) + " : " + VectorText(e->args[2]) + ")";
    --conditional_;
    return text;
  }
  const Element& element = *ValueElementOf(e->dtype);
  if (!SafeOnAllLanes(e->args[1], condition) || !SafeOnAllLanes(e->args[2], condition)) return PerLane(e);
  const std::string mask = MaskText(condition, element.bytes);
  if (mask.empty()) return PerLane(e);
  const std::string name = VectorType(e->dtype, lanes_) + "_select";
  MaskType(element.bytes);
  helpers_.DefineFunction(
      name, Filled("static inline {V} {V}_select({M} m, {V} a, {V} b) { return ({V})((m & ({M})a) | (~m & ({M})b)); }",
                   element, lanes_));
  return name + "(" + mask + ", " + VectorText(e->args[1]) + ", " + VectorText(e->args[2]) + ")";
}

std::string CVectorPrinter::VectorCast(const Expr& e) {
  const Element* from = ElementOf(e->args[0]->dtype);
  if (IsByte(e->dtype)) {  // HasByteForm
    if (e->args[0]->dtype == e->dtype) return VectorText(e->args[0]);
    const std::string lanes = IntegerLanes(e->args[0]);
    return e->dtype == DType::kInt8 ? "(" + lanes + " << 24 >> 24)" : "(" + lanes + " & 255)";
  }
  if (IsByte(e->args[0]->dtype) && HasByteForm(e->args[0]) && ElementOf(e->dtype) != nullptr) from = &kI32;
  if (from == nullptr) return PerLane(e);
  if (from == ElementOf(e->dtype)) return VectorText(e->args[0]);
  return "__builtin_convertvector(" + VectorText(e->args[0]) + ", " + VectorType(e->dtype, lanes_) + ")";
}

std::string CVectorPrinter::VectorCall(const Expr& e) {
  if (!IsFloat(e->dtype)) return PerLane(e);
  std::string args, params, elements;
  for (size_t i = 0; i < e->args.size(); ++i) {
    const std::string comma = i == 0 ? "" : ", ", x = i == 0 ? "x" : "y";
    args += comma + VectorText(e->args[i]);
    params += comma + "{V} " + x;
    elements += comma + x + "[i]";
  }
  const std::string name = VectorType(e->dtype, lanes_) + "_" + e->name;
  if (const char* text = VectorFunction(e->name); text != nullptr && e->dtype != DType::kFloat64) {
    MaskType(kF32.bytes);
    Broadcast("", e->dtype);
    helpers_.DefineFunction(VectorType(e->dtype, lanes_) + "_exp", Filled(VectorFunction("exp"), kF32, lanes_));
    // Behind exp, which it calls: functions are printed in the order of these names.
    helpers_.DefineFunction(e->name == "erf" ? VectorType(e->dtype, lanes_) + "_exp_erf" : name,
                            Filled(text, kF32, lanes_));
    return name + "(" + args + ")";
  }
  const std::string function = CallName(e->name, e->dtype);
  if (const std::string text = InstructionFunction(e->name, function, lanes_);
      !text.empty() && e->dtype != DType::kFloat64) {
    helpers_.DefineFunction(name, Filled(text, kF32, lanes_));
    return name + "(" + args + ")";
  }
  helpers_.DefineFunction(name, Filled("static inline {V} {V}_" + e->name + "(" + params +
                                           ") {\n  {V} r;\n  for (int i = 0; i < {N}; ++i) r[i] = " + function + "(" +
                                           elements + ");\n  return r;\n}",
                                       *ElementOf(e->dtype), lanes_));
  return name + "(" + args + ")";
}

}  // namespace diapason
