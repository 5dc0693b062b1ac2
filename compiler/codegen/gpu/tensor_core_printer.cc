#include "compiler/codegen/gpu/tensor_core_printer.h"

#include <utility>

#include "compiler/codegen/gpu/mma_functions.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {

std::string TensorCorePrinter::Element(int buffer, const Expr& index) {
  return access_.NameOf(buffer) + "[" + access_.Text(index) + "]";
}

void TensorCorePrinter::PrintMma(const StmtNode& mma) {
  RequireTensorCores();
  std::string text, sums[4];
  for (size_t i = 0; i < mma.operands.size(); ++i) {
    const std::string operand = access_.Text(mma.operands[i]);
    if (i < 4) sums[i] = access_.NameOf(mma.buffer) + "[" + operand + "]";
    text += (i == 0 ? "" : ", ") + (i < 4 ? sums[i] : operand);
  }
  if (mma.from_zero) out_.Line(sums[0] + " = " + sums[1] + " = " + sums[2] + " = " + sums[3] + " = 0.0f;");
  out_.Line(WarpMmaFunction(mma, helpers_) + "(" + text + ");");
}

void TensorCorePrinter::PrintLoadMatrix(const StmtNode& load) {
  access_.RequireCuda("loads matrices, which OpenCL C does not");
  std::string helper = load.extent == 4 ? "load_matrix_4" : "load_matrix_2";
  if (TensorIntrinsicOf(load.tensor).factors_per_register() > 1) helper += load.transposed ? "_transposed" : "_pairs";
  std::string text = helpers_.Use(helper) + "(";
  for (int64_t i = 0; i < load.extent; ++i)
    text += Element(load.buffer, access_.analyzer().Simplify(Add(load.index, IntImm(i)))) + ", ";
  out_.Line(text + access_.AddressText(load.value->buffer, load.value->args[0]) + ");");
}

void TensorCorePrinter::PrintPack(const StmtNode& pack) {
  RequireTensorCores();
  out_.Line(Element(pack.buffer, pack.index) + " = " + PackFunction(pack.operands[0]->dtype, helpers_) + "(" +
            access_.Texts(pack.operands) + ");");
}

void TensorCorePrinter::PrintQuadStore(const StmtNode& store) {
  RequireTensorCores();
  const std::string pack = PackFunction(access_.decl(store.buffer).dtype, helpers_);
  std::string words;
  for (size_t i = 0; i < store.operands.size(); i += 2)
    words += ", " + pack + "(" + access_.Texts({store.operands[i], store.operands[i + 1]}) + ")";
  if (store.transposed)
    return out_.Line(helpers_.Use("transposed_store") + "(" +
                     (store.condition ? access_.Text(store.condition) : std::string("true")) + ", " +
                     access_.AddressText(store.buffer, store.index) + words + ");");
  out_.Line(helpers_.Use(store.operands.size() == 8 ? "quad_store_4" : "quad_store_2") + "<" +
            std::to_string(store.extent) + ">(" + access_.AddressText(store.buffer, store.index) + words + ");");
}

void TensorCorePrinter::PrintFactorParts(const StmtNode& parts) {
  RequireTensorCores();
  const bool rounded = parts.part == FactorPart::kRounded;
  const std::string& cut = helpers_.Use(rounded ? "nearest_tf32" : "low_part");
  const int to = parts.buffer, from = parts.value->buffer;
  const Expr& first = parts.value->args[0];
  Analyzer& analyzer = access_.analyzer();
  const bool together = parts.extent == 4 && access_.decl(to).scope == Scope::kShared &&
                        analyzer.KnownDivisor(parts.index) % 4 == 0 && analyzer.KnownDivisor(first) % 4 == 0;
  if (together)
    return out_.Line(helpers_.Use(rounded ? "nearest_tf32_4" : "low_parts_4") + "(" +
                     access_.AddressText(to, parts.index) + ", " + access_.AddressText(from, first) + ");");
  for (int64_t i = 0; i < parts.extent; ++i) {
    const auto at = [&](const Expr& e) { return analyzer.Simplify(Add(e, IntImm(i))); };
    out_.Line(Element(to, at(parts.index)) + " = __uint_as_float(" + cut + "(" + Element(from, at(first)) + "));");
  }
}

std::string TensorCorePrinter::SumsOf(const StmtNode& s) {
  std::string text;
  for (const Expr& sum : s.sums) text += (text.empty() ? "" : ", ") + Element(s.buffer, sum);
  return text;
}

std::string TensorCorePrinter::CoreMatricesText(const ExprNode& first, const CoreMatrices& matrices) {
  const int64_t bytes = BytesOf(first.dtype), run = matrices.width * bytes, next_8 = 8 * run,
                next_run = matrices.stride * bytes;
  int64_t leading = next_run, stride = next_8;
  if (run == 16 && !matrices.along_k) std::swap(leading, stride);
  if (run > 16 && matrices.along_k) leading = 16;
  const uint64_t swizzle = run == 128 ? 1 : run == 64 ? 2 : run == 32 ? 3 : 0;
  const uint64_t layout =
      static_cast<uint64_t>(leading / 16) << 16 | static_cast<uint64_t>(stride / 16) << 32 | swizzle << 62;
  Expr place = first.args[0];
  int64_t steps = 0;
  const Expr* const last = place->kind == ExprKind::kAdd ? &place->args[1] : &place;
  if ((*last)->kind == ExprKind::kIntImm && (*last)->value * bytes % 16 == 0) {
    steps = (*last)->value * bytes / 16;
    place = last == &place ? IntImm(0) : place->args[0];
  }
  return helpers_.Use("core_matrices") + "(" + access_.NameOf(first.buffer) + ", " +
         access_.Text(access_.analyzer().Simplify(Mul(place, IntImm(bytes)))) + ", " + std::to_string(steps) + ", " +
         std::to_string(layout) + "ull)";
}

void TensorCorePrinter::PrintGroupMma(const StmtNode& mma) {
  RequireTensorCores();
  std::string text;
  if (mma.sums.empty()) {
    text = Tf32GroupMmaFunction(mma.extent, helpers_) + "(" + access_.AddressText(mma.buffer, mma.index);
    for (size_t i = 0; i < 8; ++i) text += ", " + access_.Text(mma.operands[i]);
    for (size_t i = 8; i < 10; ++i) text += ", " + CoreMatricesText(*mma.operands[i], mma.columns);
    return out_.Line(text + ", " + (mma.from_zero ? "1" : "0") + ");");
  }
  text = GroupMmaFunction(mma, helpers_) + "(" + SumsOf(mma);
  const bool shared = mma.rows.stride > 0;
  for (size_t i = 0; i < 4 && !shared; ++i) text += ", " + access_.Text(mma.operands[i]);
  if (shared) text += ", " + CoreMatricesText(*mma.operands[0], mma.rows);
  out_.Line(text + ", " + CoreMatricesText(*mma.operands.back(), mma.columns) + ");");
}

void TensorCorePrinter::PrintGroupSync(const StmtNode& sync) {
  RequireTensorCores();
  switch (sync.sync) {
    case GroupSync::kBegin: return out_.Line(helpers_.Use("group_begin") + "();");
    case GroupSync::kCommit: return out_.Line(helpers_.Use("group_commit") + "();");
    case GroupSync::kWait:
      if (!sync.sums.empty())
        return out_.Line(GroupWaitFunction(static_cast<int64_t>(sync.sums.size()), sync.extent,
                                           access_.decl(sync.buffer).dtype, helpers_) +
                         "(" + SumsOf(sync) + ");");
      return out_.Line(helpers_.Use("group_wait") + "<" + std::to_string(sync.extent) + ">();");
    case GroupSync::kPublish: return out_.Line(helpers_.Use("group_publish") + "();");
  }
}

}  // namespace diapason
