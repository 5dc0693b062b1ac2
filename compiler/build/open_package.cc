#include "compiler/build/open_package.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/serialize.h"

namespace diapason {

absl::StatusOr<ComputeDag> ReadDag(const Package& package, int task) {
  ASSIGN_OR_RETURN(const std::string bytes, package.ReadDag(task));
  absl::StatusOr<ComputeDag> dag = ParseDag(bytes);
  if (!dag.ok())
    return absl::DataLossError(absl::StrCat(package.PathOf("tasks/"), package.manifest().tasks[task].file,
                                            ".dag is damaged: ", dag.status().message(), "; build the package again"));
  return dag;
}

absl::StatusOr<Package> OpenPackage(const std::string& dir) {
  ASSIGN_OR_RETURN(Package package, Package::Open(dir));
  std::vector<PackageManifest> plans = package.plans();
  bool older = false;
  for (size_t p = 0; p < plans.size(); ++p) {
    for (size_t t = 0; t < plans[p].tasks.size(); ++t) {
      PackageTask& task = plans[p].tasks[t];
      if (!task.output_stages.empty()) continue;
      older = true;
      ASSIGN_OR_RETURN(const ComputeDag dag, ReadDag(package.WithPlan(static_cast<int>(p)), static_cast<int>(t)));
      task.input_stages = dag.inputs();
      task.output_stages = dag.outputs();
    }
  }
  return older ? package.WithPlans(std::move(plans)) : package;
}

}  // namespace diapason
