#include "compiler/schedule/view.h"

#include "absl/strings/str_cat.h"
#include "compiler/schedule/view_gemm.h"

namespace diapason {

std::vector<View> ViewsOf(const ComputeDag& dag) {
  std::vector<View> views{View{"direct", {}}};
  if (GemmView(dag).ok()) views.push_back(View{"gemm", {}});
  return views;
}

absl::StatusOr<ComputeDag> ApplyView(const ComputeDag& dag, const View& view) {
  if (view.name == "direct" && view.params.empty()) return dag;
  if (view.name == "gemm" && view.params.empty()) return GemmView(dag);
  return absl::InvalidArgumentError(absl::StrCat("there is no view ", view.ToString(), "; known views are direct and gemm"));
}

}  // namespace diapason
