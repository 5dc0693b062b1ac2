#include "compiler/schedule/view.h"

#include "absl/strings/str_cat.h"

namespace diapason {

std::vector<View> ViewsOf(const ComputeDag& dag) { return {View{"direct", {}}}; }

absl::StatusOr<ComputeDag> ApplyView(const ComputeDag& dag, const View& view) {
  if (view.name == "direct") return dag;
  return absl::InvalidArgumentError(absl::StrCat("there is no view ", view.ToString()));
}

}  // namespace diapason
