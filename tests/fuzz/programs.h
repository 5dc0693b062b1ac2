// Small tasks that the targets share, and what of a candidate is tried on them.
#pragma once

#include <string>
#include <vector>

#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/target.h"

namespace diapason {

struct NamedDag {
  std::string name;
  ComputeDag dag;
};

// gemm, conv, softmax, one each.
const std::vector<NamedDag>& FuzzDags();
// Of each kind; without -libs.
const std::vector<std::string>& FuzzTargets();

// Candidates that the search itself would make for the task: defaults of its spaces, and a few chosen by lot.
std::vector<Schedule> GoodSchedules(const ComputeDag& dag, const std::string& target);

// As a builder does, up to the source text: an error or a program, but no crash.
void LowerAndPrint(const ComputeDag& dag, const Schedule& schedule, const Target& target);

}  // namespace diapason
