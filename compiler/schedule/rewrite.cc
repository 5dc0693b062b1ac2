#include "compiler/schedule/rewrite.h"

#include "absl/strings/str_cat.h"
#include "compiler/schedule/rewrite_attention.h"
#include "compiler/schedule/rewrite_gemm.h"
#include "compiler/schedule/rewrite_halves.h"
#include "compiler/schedule/rewrite_padded.h"
#include "compiler/schedule/rewrite_rows.h"
#include "compiler/schedule/rewrite_strassen.h"
#include "compiler/schedule/rewrite_winograd.h"

namespace diapason {

std::vector<DagRewrite> RewritesOf(const ComputeDag& dag) {
  std::vector<DagRewrite> rewrites{DagRewrite{"direct", {}}};
  if (GemmRewrite(dag).ok()) rewrites.push_back(DagRewrite{"gemm", {}});
  if (HalvesRewrite(dag).ok()) rewrites.push_back(DagRewrite{"halves", {}});
  for (int64_t m : {2, 4})
    if (WinogradRewrite(dag, m).ok()) rewrites.push_back(DagRewrite{"winograd", {m}});
  if (PaddedRewrite(dag).ok()) rewrites.push_back(DagRewrite{"padded", {}});
  if (RowsRewrite(dag).ok()) rewrites.push_back(DagRewrite{"rows", {}});
  for (int64_t levels : {1, 2})
    if (StrassenRewrite(dag, levels).ok()) rewrites.push_back(DagRewrite{"strassen", {levels}});
  if (AttentionRewrite(dag).ok()) rewrites.push_back(DagRewrite{"attention", {}});
  if (AttentionRewrite(dag, ScoreScale::kInExponents).ok()) rewrites.push_back(DagRewrite{"attention", {1}});
  return rewrites;
}

bool LosesDigits(const DagRewrite& rewrite) {
  // Strassen's sums mix rows: those that are exactly 0, as padding is, become as large as rounding errors of the
  // others, and a network that divides rows by their norms (Swin v2) makes numbers of them.
  if (rewrite.name == "strassen") return true;
  // Tensor cores truncate accumulators at each step, over the whole length of the sum: the error grows with the number
  // of terms, that of plain sums with its root (docs/precision.md).
  if (rewrite.name == "halves") return true;
  // After a relu, relative to the results, in unit roundoffs times the root of the channels (simulated for 64 to 2048):
  // plain sums 0.65, m = 2 0.45, m = 4 1.7. The channels cancel out.
  return (rewrite.name == "winograd" || rewrite.name == "winograd_k") && rewrite.params[0] > 2;
}

std::optional<DagRewrite> WithWeightsAlongK(const ComputeDag& dag, const DagRewrite& rewrite) {
  if (rewrite.name != "gemm" && rewrite.name != "winograd") return std::nullopt;
  const DagRewrite along_k{absl::StrCat(rewrite.name, "_k"), rewrite.params};
  if (!ApplyRewrite(dag, along_k).ok()) return std::nullopt;
  return along_k;
}

absl::StatusOr<ComputeDag> ApplyRewrite(const ComputeDag& dag, const DagRewrite& rewrite) {
  if (rewrite.name == "direct" && rewrite.params.empty()) return dag;
  if (rewrite.name == "library" && rewrite.params.empty()) return dag;
  if (rewrite.name == "gemm" && rewrite.params.empty()) return GemmRewrite(dag);
  if (rewrite.name == "gemm_k" && rewrite.params.empty()) return GemmRewrite(dag, true);
  if (rewrite.name == "halves" && rewrite.params.empty()) return HalvesRewrite(dag);
  if (rewrite.name == "winograd" && rewrite.params.size() == 1) return WinogradRewrite(dag, rewrite.params[0]);
  if (rewrite.name == "rows" && rewrite.params.empty()) return RowsRewrite(dag);
  if (rewrite.name == "padded" && rewrite.params.empty()) return PaddedRewrite(dag);
  if (rewrite.name == "attention" && rewrite.params.empty()) return AttentionRewrite(dag);
  if (rewrite.name == "attention" && rewrite.params == std::vector<int64_t>{1})
    return AttentionRewrite(dag, ScoreScale::kInExponents);
  if (rewrite.name == "strassen" && rewrite.params.size() == 1) return StrassenRewrite(dag, rewrite.params[0]);
  if (rewrite.name == "winograd_k" && rewrite.params.size() == 1) return WinogradRewrite(dag, rewrite.params[0], true);
  return absl::InvalidArgumentError(absl::StrCat("there is no rewrite ", rewrite.ToString(),
                                                 ": known are direct, gemm, gemm_k, winograd(2), winograd(4), "
                                                 "winograd_k(2), winograd_k(4), halves, rows, padded, strassen(1), "
                                                 "strassen(2), attention, attention(1) and library"));
}

}  // namespace diapason
