#include "compiler/codegen/gpu/vector_printer.h"

#include <algorithm>

#include "compiler/codegen/gpu/shared_layout.h"
#include "compiler/codegen/passes.h"

namespace diapason {
namespace {

constexpr int64_t kMaxVectorBytes = 16;
constexpr char kComponents[] = "xyzw";
constexpr size_t kMaxSources = 4;  // that a copy chooses from

// The vector type that holds `chunk` elements of the type. Always a vector: compilers assume that accesses as one
// scalar type never meet those as another, but make no such assumption for vectors.
std::string VectorType(DType dtype, int64_t chunk) {
  const int64_t bytes = BytesOf(dtype) * chunk;
  if (dtype == DType::kFloat32) return "float" + std::to_string(chunk);
  if (bytes == 2) return "uchar2";
  if (bytes == 4) return BytesOf(dtype) == 2 ? "ushort2" : "uchar4";
  return "uint" + std::to_string(bytes / 4);
}

// The vector of a chunk whose components are computed with one by one.
std::string ComputedType(DType dtype, int64_t chunk) {
  const char* const type = IsNarrowFloat(dtype)     ? "ushort"
                           : dtype == DType::kInt32 ? "int"
                           : dtype == DType::kInt8  ? "char"
                           : dtype == DType::kUint8 ? "uchar"
                                                    : "float";
  return type + std::to_string(chunk);
}

}  // namespace

void GpuVectorPrinter::Print(const StmtNode& loop) {
  lane_ = loop.var;
  lanes_ = loop.extent;
  PrintStmt(loop.body[0]);
  lane_ = nullptr;
}

void GpuVectorPrinter::PrintStmt(const Stmt& stmt) {
  switch (stmt->kind) {
    case StmtKind::kSeq:
      for (const Stmt& child : stmt->body) PrintStmt(child);
      return;
    case StmtKind::kIf:
      if (UsesLane(stmt->condition)) break;
      out_.Open("if (" + access_.Text(stmt->condition) + ")");
      PrintStmt(stmt->body[0]);
      return out_.Close();
    case StmtKind::kStore:
      if (PrintStore(*stmt)) return;
      break;
    case StmtKind::kComment: return out_.Comment(stmt->text);
    default: break;
  }
  out_.Line("#pragma unroll");
  const StmtNode loop{.kind = StmtKind::kFor, .var = lane_, .extent = lanes_};
  out_.Open(access_.ForText(loop));
  print_(stmt);
  out_.Close();
}

bool GpuVectorPrinter::PrintStore(const StmtNode& store) {
  const Stride stride = StrideOf(store.index, lane_, access_.analyzer());
  if (!stride.affine || stride.stride != 1) return false;
  return PrintCopy(store, stride.base) || PrintComputed(store, stride.base);
}

bool GpuVectorPrinter::PrintCopy(const StmtNode& store, const Expr& base) {
  const BufferDecl& to = access_.decl(store.buffer);
  std::vector<GuardedValue> choices;
  if (!SplitChoices(store.value, nullptr, &choices)) return false;
  int64_t chunk = to.scope == Scope::kLocal ? lanes_ : std::min(lanes_, ChunkOf(to, base));
  std::vector<Expr> bases;
  for (const GuardedValue& choice : choices) {
    const BufferDecl& from = access_.decl(choice.value->buffer);
    const Stride stride = StrideOf(choice.value->args[0], lane_, access_.analyzer());
    if (!stride.affine || stride.stride != 1 || !MayCopy(from, to)) return false;
    if (from.scope != Scope::kLocal) chunk = std::min(chunk, ChunkOf(from, stride.base));
    bases.push_back(stride.base);
  }
  if (chunk == 1) return false;
  for (int64_t start = 0; start < lanes_; start += chunk) {
    const Expr target = Offset(base, start);
    std::vector<Expr> places;  // elements refer to them
    std::vector<Source> sources;
    for (const Expr& from : bases) places.push_back(Offset(from, start));
    for (size_t i = 0; i < choices.size(); ++i)
      sources.push_back({{access_.decl(choices[i].value->buffer), places[i]}, choices[i].condition});
    if (sources.size() == 1 && copies_.IsAsync(store, to, sources[0].from.buffer, chunk))
      copies_.PrintAsync({to, target}, sources[0].from, chunk, sources[0].condition);
    else
      PrintChunk({to, target}, sources, chunk);
  }
  return true;
}

bool GpuVectorPrinter::SplitChoices(const Expr& value, const Expr& condition, std::vector<GuardedValue>* to) const {
  if (value->kind == ExprKind::kSelect) {
    const Expr& choice = value->args[0];
    if (UsesLane(choice)) return false;
    const Expr otherwise = Not(choice);
    return SplitChoices(value->args[1], condition == nullptr ? choice : And(condition, choice), to) &&
           SplitChoices(value->args[2], condition == nullptr ? otherwise : And(condition, otherwise), to);
  }
  if (condition != nullptr && IsZero(value)) return true;
  if (value->kind != ExprKind::kLoad || value->args.size() > 1 || to->size() == kMaxSources) return false;
  to->push_back({condition, value});
  return true;
}

bool GpuVectorPrinter::MayCopy(const BufferDecl& from, const BufferDecl& to) const {
  const bool to_local = to.scope == Scope::kLocal, from_local = from.scope == Scope::kLocal;
  if (to.dtype != from.dtype || (to_local && from_local)) return false;
  if (!to_local && !from_local) return true;
  const bool words = to.dtype == DType::kFloat32 || to.dtype == DType::kInt32;
  const bool widened = to_local && !to.packed && IsNarrowFloat(from.dtype) && !access_.IsOpenClHalf(from.dtype);
  return words || widened || (to.packed && lanes_ == 2);
}

void GpuVectorPrinter::PrintChunk(const BufferElement& to, const std::vector<Source>& sources, int64_t chunk) {
  const std::string type = VectorType(to.buffer.dtype, chunk);
  const Source& first = sources.front();
  if (to.buffer.scope != Scope::kLocal && first.from.buffer.scope != Scope::kLocal && first.condition == nullptr)
    return out_.Line(Access(to, type, false) + " = " + Access(first.from, type, true) + ";");
  out_.Open();
  out_.Line(type + " chunk = " + Zero(to.buffer.dtype, chunk) + ";");
  for (const Source& source : sources) Take(source, chunk);
  Put(to, chunk);
  out_.Close();
}

void GpuVectorPrinter::Take(const Source& source, int64_t chunk) {
  const BufferElement& from = source.from;
  const std::string head = source.condition == nullptr ? "" : "if (" + access_.Text(source.condition) + ") ";
  if (from.buffer.scope != Scope::kLocal)
    return out_.Line(head + "chunk = " + Access(from, VectorType(from.buffer.dtype, chunk), true) + ";");
  for (int64_t i = 0; i < chunk; ++i)
    out_.Line(head + "chunk." + kComponents[i] + " = " + access_.NameOf(from.buffer.id) + "[" +
              access_.Text(Offset(from.index, i)) + "];");
}

void GpuVectorPrinter::Put(const BufferElement& to, int64_t chunk) {
  if (to.buffer.scope != Scope::kLocal)
    return out_.Line(Access(to, VectorType(to.buffer.dtype, chunk), false) + " = chunk;");
  for (int64_t i = 0; i < chunk; ++i)
    out_.Line(access_.NameOf(to.buffer.id) + "[" + access_.Text(Offset(to.index, i)) +
              "] = " + ComponentOf(to.buffer, i, chunk) + ";");
}

std::string GpuVectorPrinter::ComponentOf(const BufferDecl& to, int64_t i, int64_t chunk) const {
  if (!IsNarrowFloat(to.dtype) || to.packed) return std::string("chunk.") + kComponents[i];
  // VectorType: pairs of narrow floats are words of longer vectors.
  std::string bits = std::string("chunk.") + kComponents[chunk == 2 ? i : i / 2];
  if (chunk > 2) bits = "(unsigned short)(" + bits + (i % 2 == 0 ? ")" : " >> 16)");
  return access_.Widened(to.dtype, bits);
}

bool GpuVectorPrinter::PrintComputed(const StmtNode& store, const Expr& base) {
  const BufferDecl& to = access_.decl(store.buffer);
  if (!IsComputable(to.dtype) || IsFloat(to.dtype) != IsFloat(store.value->dtype)) return false;
  const int64_t chunk = std::min<int64_t>(4, ChunkOf(to, base));
  if (chunk == 1) return false;
  std::vector<Expr> loads;
  CollectLoads(store.value, chunk, loads);
  for (int64_t start = 0; start < lanes_; start += chunk) {
    out_.Open();
    for (size_t i = 0; i < loads.size(); ++i) LoadChunk(loads[i], i, start, chunk);
    const std::string type = ComputedType(to.dtype, chunk);
    out_.Line(type + " chunk;");
    for (int64_t i = 0; i < chunk; ++i) {
      std::string value = access_.Text(AtLane(store.value, start + i));
      if (IsNarrowFloat(to.dtype)) value = access_.Narrowed(to.dtype, value);
      out_.Line(std::string("chunk.") + kComponents[i] + " = " + value + ";");
    }
    out_.Line(Access({to, Offset(base, start)}, type, false) + " = chunk;");
    out_.Close();
    access_.ForgetLoaded();
  }
  return true;
}

void GpuVectorPrinter::CollectLoads(const Expr& e, int64_t chunk, std::vector<Expr>& out) {
  if (e->kind == ExprKind::kLoad) {
    const BufferDecl& from = access_.decl(e->buffer);
    if (!IsComputable(from.dtype) || from.scope == Scope::kLocal) return;
    const Stride stride = StrideOf(e->args[0], lane_, access_.analyzer());
    if (!stride.affine || stride.stride != 1 || ChunkOf(from, stride.base) % chunk != 0) return;
    if (std::none_of(out.begin(), out.end(), [&](const Expr& known) { return Equal(known, e); })) out.push_back(e);
    return;
  }
  const bool first_only = e->kind == ExprKind::kSelect || e->kind == ExprKind::kAnd || e->kind == ExprKind::kOr;
  for (size_t i = 0; i < (first_only ? 1 : e->args.size()); ++i) CollectLoads(e->args[i], chunk, out);
}

void GpuVectorPrinter::LoadChunk(const Expr& load, size_t number, int64_t start, int64_t chunk) {
  const BufferDecl& from = access_.decl(load->buffer);
  const Stride stride = StrideOf(load->args[0], lane_, access_.analyzer());
  const std::string name = "chunk" + std::to_string(number);
  const std::string type = ComputedType(from.dtype, chunk);
  out_.Line("const " + type + " " + name + " = " +
            access_.VectorText(from, access_.BaseText(*load), type, Offset(stride.base, start), true) + ";");
  for (int64_t i = 0; i < chunk; ++i) {
    std::string component = name + "." + kComponents[i];
    if (IsNarrowFloat(from.dtype)) component = access_.Widened(from.dtype, component);
    access_.AddLoaded(AtLane(load, start + i), component);
  }
}

int64_t GpuVectorPrinter::ChunkOf(const BufferDecl& decl, const Expr& base) {
  if (decl.scope == Scope::kLocal) return 1;
  const int64_t bytes = BytesOf(decl.dtype), divisor = access_.analyzer().KnownDivisor(base);
  int64_t chunk = std::min(kMaxVectorBytes, GpuAlignmentOf(decl)) / bytes;
  while (chunk > 1 && (lanes_ % chunk != 0 || divisor % chunk != 0)) chunk /= 2;
  return chunk;
}

bool GpuVectorPrinter::IsComputable(DType dtype) const {
  return dtype == DType::kFloat32 || dtype == DType::kInt32 || IsByte(dtype) ||
         (IsNarrowFloat(dtype) && !access_.IsOpenClHalf(dtype));
}

std::string GpuVectorPrinter::Access(const BufferElement& element, const std::string& type, bool is_const) {
  return access_.VectorText(element.buffer, access_.NameOf(element.buffer.id), type, element.index, is_const);
}

std::string GpuVectorPrinter::Zero(DType dtype, int64_t chunk) const {
  return access_.cuda() ? "{}" : "(" + VectorType(dtype, chunk) + ")(0)";
}

Expr GpuVectorPrinter::AtLane(const Expr& e, int64_t i) {
  return access_.analyzer().Simplify(Substitute(e, {{lane_.get(), IntImm(i)}}));
}

Expr GpuVectorPrinter::Offset(const Expr& base, int64_t offset) {
  return access_.analyzer().Simplify(Add(base, IntImm(offset)));
}

}  // namespace diapason
