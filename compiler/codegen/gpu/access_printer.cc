#include "compiler/codegen/gpu/access_printer.h"

#include "base/check.h"

namespace diapason {
namespace {

bool SameElement(const ExprNode& a, const ExprNode& b) {
  return a.args.size() == b.args.size() && Equal(a.args[0], b.args[0]) &&
         (a.args.size() == 1 || Equal(a.args[1], b.args[1]));
}

}  // namespace

void GpuAccessPrinter::RequireCuda(const char* what) const { DIAPASON_CHECK_MSG(cuda_, kernel_.name + " " + what); }

std::string GpuAccessPrinter::ForText(const StmtNode& loop) {
  const std::string var = VarName(loop.var);
  return "for (" + IndexType() + " " + var + " = 0; " + var + " < " + std::to_string(loop.extent) + "; ++" + var + ")";
}

std::string GpuAccessPrinter::Texts(const std::vector<Expr>& all) {
  std::string text;
  for (const Expr& e : all) text += (text.empty() ? "" : ", ") + Text(e);
  return text;
}

std::string GpuAccessPrinter::Space(const BufferDecl& decl) const {
  return cuda_ ? "" : decl.scope == Scope::kShared ? "__local " : "__global ";
}

bool GpuAccessPrinter::IsNarrowInMemory(const BufferDecl& decl) const {
  return IsNarrowFloat(decl.dtype) && (decl.scope != Scope::kLocal || decl.packed);
}

std::string GpuAccessPrinter::HalfPointer(const BufferDecl& decl, bool is_const) const {
  const std::string name = NameOf(decl.id);
  if (decl.scope == Scope::kGlobal) return name;
  return std::string(decl.scope == Scope::kShared ? "(__local " : "(__private ") + (is_const ? "const " : "") +
         "half*)" + name;
}

std::string GpuAccessPrinter::PlaceText(const BufferDecl& decl, const Expr& index, int level) {
  if (decl.swizzle == 0 || !cuda_) return Text(index, level);
  const int64_t bytes = BytesOf(decl.dtype);
  return helpers_.Use("swizzled") + "<3, " + std::to_string((decl.swizzle - 16) / bytes) + ">(" + Text(index) + ")";
}

std::string GpuAccessPrinter::StartText(int buffer, const Expr& rank) {
  if (rank == nullptr) return NameOf(buffer);
  RequireCuda("accesses the shared memory of another block");
  return helpers_.Use("in_cluster") + "(" + NameOf(buffer) + ", " + Text(rank) + ")";
}

std::string GpuAccessPrinter::BaseText(const ExprNode& load) { return StartText(load.buffer, RankOf(load)); }

std::string GpuAccessPrinter::LoadText(const ExprNode& load) {
  for (const auto& [known, text] : loaded_)
    if (known->buffer == load.buffer && SameElement(*known, load)) return text;
  const BufferDecl& from = decl(load.buffer);
  const std::string index = PlaceText(from, load.args[0], 0), base = BaseText(load);
  if (!IsNarrowInMemory(from)) return base + "[" + index + "]";
  if (!IsOpenClHalf(from.dtype)) return Widened(from.dtype, base + "[" + index + "]");
  return "vload_half(" + index + ", " + HalfPointer(from, true) + ")";
}

std::string GpuAccessPrinter::StoreText(const StmtNode& store, std::string value) {
  const BufferDecl& to = decl(store.buffer);
  const std::string base = StartText(store.buffer, RankOf(store));
  if (IsNarrowInMemory(to) && IsOpenClHalf(to.dtype))
    return "vstore_half(" + value + ", " + Text(store.index) + ", " + HalfPointer(to, false) + ");";
  if (IsNarrowInMemory(to)) value = Narrowed(to.dtype, value);
  if (to.dtype == DType::kBool) value = "(" + value + ") != 0";
  return base + "[" + PlaceText(to, store.index, 0) + "] = " + value + ";";
}

std::string GpuAccessPrinter::AddressText(int buffer, const Expr& index) {
  return NameOf(buffer) + " + " + Text(index, kSumLevel);
}

std::string GpuAccessPrinter::SwizzledAddressText(const BufferDecl& decl, const Expr& index) {
  return NameOf(decl.id) + " + " + PlaceText(decl, index);
}

std::string GpuAccessPrinter::VectorText(const BufferDecl& decl, const std::string& base, const std::string& type,
                                         const Expr& at, bool is_const) {
  const std::string offset = IsInt(at, 0) ? "" : " + " + PlaceText(decl, at);
  return "*(" + Space(decl) + (is_const ? "const " : "") + type + "*)(" + base + offset + ")";
}

}  // namespace diapason
