#include "compiler/schedule/rewrite_padded.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/library_parts.h"
#include "compiler/schedule/rewrite_parts.h"

namespace diapason {
namespace {

constexpr int64_t kVectorBytes = 16;  // that a thread loads at once

absl::Status NotPadded(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no padded rewrite: ", why));
}

// The load of a constant by the column of one row of results alone, innermost; null if neither factor is that.
const ExprNode* ColumnsOf(const ComputeDag& dag, const LibraryParts& parts) {
  const Stage& product = parts.stage(parts.anchor());
  if (product.axes.empty() || product.elements() != product.axes.back().extent) return nullptr;
  for (const ExprNode* load : {parts.a(), parts.b()}) {
    const Stage& factor = dag.stage(load->buffer);
    if (factor.placeholder && factor.constant && !load->args.empty() && load->args.back() == product.axes.back().var &&
        factor.axes.back().extent == product.axes.back().extent &&
        std::none_of(load->args.begin(), load->args.end() - 1,
                     [&](const Expr& index) { return UsesVar(index, product.axes.back().var.get()); }))
      return load;
  }
  return nullptr;
}

// The constant with columns of zeros behind its own.
Stage PaddedColumns(const Stage& constant, int id, int64_t columns) {
  Stage padded;
  padded.name = absl::StrCat(constant.name, ".padded");
  padded.dtype = constant.dtype;
  std::vector<Expr> indices;
  for (const Axis& axis : constant.axes) {
    padded.axes.push_back({MakeVar("p"), axis.extent});
    indices.push_back(padded.axes.back().var);
  }
  padded.axes.back().extent = columns;
  padded.body = Select(Lt(padded.axes.back().var, IntImm(constant.axes.back().extent)),
                       Load(id, constant.dtype, std::move(indices)), IdentityOf(Combiner::kSum, constant.dtype));
  return padded;
}

}  // namespace

absl::StatusOr<ComputeDag> PaddedRewrite(const ComputeDag& dag) {
  std::vector<const Stage*> stages;
  for (const Stage& stage : dag.stages()) stages.push_back(&stage);
  const auto parts = LibraryParts::Create(stages, dag.outputs());
  if (!parts.ok()) return NotPadded("there is not one sum of products");
  const ExprNode* const matrix = ColumnsOf(dag, *parts);
  if (matrix == nullptr) return NotPadded("no vector is multiplied by the columns of a constant matrix");
  const Stage& constant = dag.stage(matrix->buffer);
  const int64_t columns = constant.axes.back().extent, lanes = kVectorBytes / BytesOf(constant.dtype);
  if (columns % lanes == 0) return NotPadded("rows of the matrix are whole vectors");

  std::vector<Stage> rewritten;
  std::vector<int> new_id(dag.size(), -1);
  for (int id = 0; id < dag.size(); ++id) {
    Stage stage = dag.stage(id);
    if (id == parts->anchor()) {
      rewritten.push_back(PaddedColumns(constant, new_id[matrix->buffer], (columns + lanes - 1) / lanes * lanes));
      std::vector<int> with_padding = new_id;
      with_padding[matrix->buffer] = static_cast<int>(rewritten.size()) - 1;
      stage.body = Renumbered(stage.body, with_padding);
    } else if (stage.body != nullptr) {
      stage.body = Renumbered(stage.body, new_id);
    }
    new_id[id] = static_cast<int>(rewritten.size());
    rewritten.push_back(std::move(stage));
  }
  return Rewritten(dag, std::move(rewritten), new_id);
}

}  // namespace diapason
