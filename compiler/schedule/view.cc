#include "compiler/schedule/view.h"

#include "absl/strings/str_cat.h"
#include "compiler/schedule/view_attention.h"
#include "compiler/schedule/view_gemm.h"
#include "compiler/schedule/view_rows.h"
#include "compiler/schedule/view_strassen.h"
#include "compiler/schedule/view_winograd.h"

namespace diapason {

std::vector<View> ViewsOf(const ComputeDag& dag) {
  std::vector<View> views{View{"direct", {}}};
  if (GemmView(dag).ok()) views.push_back(View{"gemm", {}});
  for (int64_t m : {2, 4})
    if (WinogradView(dag, m).ok()) views.push_back(View{"winograd", {m}});
  if (RowsView(dag).ok()) views.push_back(View{"rows", {}});
  for (int64_t levels : {1, 2})
    if (StrassenView(dag, levels).ok()) views.push_back(View{"strassen", {levels}});
  if (AttentionView(dag).ok()) views.push_back(View{"attention", {}});
  return views;
}

bool LosesDigits(const View& view) {
  // Strassen's sums mix rows: those that are exactly 0, as padding is, become as large as rounding errors of the
  // others, and a network that divides rows by their norms (Swin v2) makes numbers of them.
  if (view.name == "strassen") return true;
  // After a relu, relative to the results, in unit roundoffs times the root of the channels (simulated for 64 to 2048):
  // plain sums 0.65, m = 2 0.45, m = 4 1.7. The channels cancel out.
  return (view.name == "winograd" || view.name == "winograd_k") && view.params[0] > 2;
}

std::optional<View> WithWeightsAlongK(const ComputeDag& dag, const View& view) {
  if (view.name != "gemm" && view.name != "winograd") return std::nullopt;
  const View along_k{absl::StrCat(view.name, "_k"), view.params};
  if (!ApplyView(dag, along_k).ok()) return std::nullopt;
  return along_k;
}

absl::StatusOr<ComputeDag> ApplyView(const ComputeDag& dag, const View& view) {
  if (view.name == "direct" && view.params.empty()) return dag;
  if (view.name == "library" && view.params.empty()) return dag;
  if (view.name == "gemm" && view.params.empty()) return GemmView(dag);
  if (view.name == "gemm_k" && view.params.empty()) return GemmView(dag, true);
  if (view.name == "winograd" && view.params.size() == 1) return WinogradView(dag, view.params[0]);
  if (view.name == "rows" && view.params.empty()) return RowsView(dag);
  if (view.name == "attention" && view.params.empty()) return AttentionView(dag);
  if (view.name == "strassen" && view.params.size() == 1) return StrassenView(dag, view.params[0]);
  if (view.name == "winograd_k" && view.params.size() == 1) return WinogradView(dag, view.params[0], true);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no view ", view.ToString(),
                   ": known are direct, gemm, gemm_k, winograd(2), winograd(4), "
                   "winograd_k(2), winograd_k(4), rows, strassen(1), strassen(2), attention and library"));
}

}  // namespace diapason
