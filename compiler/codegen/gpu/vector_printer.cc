#include "compiler/codegen/gpu/vector_printer.h"

#include <algorithm>

#include "compiler/codegen/gpu/shared_layout.h"
#include "compiler/codegen/passes.h"

namespace diapason {
namespace {

constexpr int64_t kMaxVectorBytes = 16;
constexpr char kComponents[] = "xyzw";

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
  const Choices choices = SplitChoices(store.value);
  int64_t chunk = to.scope == Scope::kLocal ? lanes_ : std::min(lanes_, ChunkOf(to, base));
  std::vector<Expr> bases;
  for (const auto& [condition, value] : choices.loads) {
    if (condition != nullptr && UsesLane(condition)) return false;
    const BufferDecl& from = access_.decl(value->buffer);
    const Stride stride = StrideOf(value->args[0], lane_, access_.analyzer());
    if (!stride.affine || stride.stride != 1 || !MayCopy(from, to)) return false;
    if (from.scope != Scope::kLocal) chunk = std::min(chunk, ChunkOf(from, stride.base));
    bases.push_back(stride.base);
  }
  if (bases.empty() || chunk == 1) return false;
  for (int64_t start = 0; start < lanes_; start += chunk) {
    const Expr target = Offset(base, start);
    std::vector<Expr> places;  // that elements refer to
    for (const Expr& from : bases) places.push_back(Offset(from, start));
    CopySources sources{{}, choices.any};
    bool async = true;
    for (size_t i = 0; i < places.size(); ++i) {
      const BufferDecl& from = access_.decl(choices.loads[i].value->buffer);
      async &= copies_.IsAsync(store, to, from, chunk);
      sources.all.push_back({{from, places[i], RankOf(*choices.loads[i].value)}, choices.loads[i].condition});
    }
    if (async)
      copies_.PrintAsync({to, target}, sources, chunk);
    else
      PrintChunk({to, target, RankOf(store)}, sources, chunk);
  }
  return true;
}

bool GpuVectorPrinter::MayCopy(const BufferDecl& from, const BufferDecl& to) const {
  const bool to_local = to.scope == Scope::kLocal, from_local = from.scope == Scope::kLocal;
  if (to.dtype != from.dtype || (to_local && from_local)) return false;
  if (!to_local && !from_local) return true;
  const bool words = to.dtype == DType::kFloat32 || to.dtype == DType::kInt32;
  const bool widened = to_local && !to.packed && IsNarrowFloat(from.dtype) && !access_.IsOpenClHalf(from.dtype);
  return words || widened || (to.packed && (lanes_ == 2 || access_.cuda()));
}

void GpuVectorPrinter::PrintChunk(const BufferElement& to, const CopySources& sources, int64_t chunk) {
  const std::string type = VectorType(to.buffer.dtype, chunk);
  const CopySource& first = sources.all.front();
  if (to.buffer.scope != Scope::kLocal && first.from.buffer.scope != Scope::kLocal && first.condition == nullptr)
    return out_.Line(Access(to, type, false) + " = " + Access(first.from, type, true) + ";");
  out_.Open();
  out_.Line(type + " chunk = " + Zero(to.buffer.dtype, chunk) + ";");
  const bool choice = access_.cuda() && sources.all.size() > 1 &&
                      std::all_of(sources.all.begin(), sources.all.end(),
                                  [](const CopySource& source) { return source.from.buffer.scope == Scope::kGlobal; });
  // One load, of which several can be in flight, instead of one for each source.
  if (choice)
    out_.Line((sources.any == nullptr ? "" : "if (" + access_.Text(sources.any) + ") ") + "chunk = *(const " + type +
              "*)(" + copies_.ChosenAddress(sources) + ");");
  else
    for (const CopySource& source : sources.all) Take(source, chunk);
  Put(to, chunk);
  out_.Close();
}

void GpuVectorPrinter::Take(const CopySource& source, int64_t chunk) {
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
  if (!IsNarrowFloat(to.dtype)) return std::string("chunk.") + kComponents[i];
  // VectorType: pairs of narrow floats are words of longer vectors.
  std::string bits = std::string("chunk.") + kComponents[chunk == 2 ? i : i / 2];
  if (chunk > 2) bits = "(unsigned short)(" + bits + (i % 2 == 0 ? ")" : " >> 16)");
  return to.packed ? bits : access_.Widened(to.dtype, bits);
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
    out_.Line(Access({to, Offset(base, start), RankOf(store)}, type, false) + " = chunk;");
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
  return access_.VectorText(element.buffer, access_.StartText(element.buffer.id, element.rank), type, element.index,
                            is_const);
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
