#include "compiler/schedule/view.h"

#include "absl/strings/str_cat.h"
#include "compiler/schedule/view_gemm.h"
#include "compiler/schedule/view_rows.h"
#include "compiler/schedule/view_winograd.h"

namespace diapason {

std::vector<View> ViewsOf(const ComputeDag& dag) {
  std::vector<View> views{View{"direct", {}}};
  if (GemmView(dag).ok()) views.push_back(View{"gemm", {}});
  for (int64_t m : {2, 4})
    if (WinogradView(dag, m).ok()) views.push_back(View{"winograd", {m}});
  if (RowsView(dag).ok()) views.push_back(View{"rows", {}});
  return views;
}

absl::StatusOr<ComputeDag> ApplyView(const ComputeDag& dag, const View& view) {
  if (view.name == "direct" && view.params.empty()) return dag;
  if (view.name == "library" && view.params.empty()) return dag;
  if (view.name == "gemm" && view.params.empty()) return GemmView(dag);
  if (view.name == "winograd" && view.params.size() == 1) return WinogradView(dag, view.params[0]);
  if (view.name == "rows" && view.params.empty()) return RowsView(dag);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no view ", view.ToString(), ": known are direct, gemm, winograd(2), winograd(4), rows and library"));
}

}  // namespace diapason
