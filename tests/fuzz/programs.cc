#include "tests/fuzz/programs.h"

#include <algorithm>
#include <random>

#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"

namespace diapason {
namespace {

ComputeDag Gemm() {
  DagBuilder b;
  const int x = b.Placeholder("x", {24, 32}), w = b.Constant("w", {32, 40});
  const int c = b.Reduce("c", {24, 40}, {32}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  const int y = b.Compute("y", {24, 40}, [&](auto& i) { return Max(b.At(c, {i[0], i[1]}), FloatImm(0)); });
  return b.Build({y}).value();
}

// 3x3, padded, in NHWC.
ComputeDag Convolution() {
  DagBuilder b;
  const int x = b.Placeholder("x", {1, 8, 8, 16}), w = b.Constant("w", {3, 3, 16, 16});
  const int p = b.Compute("p", {1, 10, 10, 16}, [&](auto& i) {
    const Expr inside =
        And(And(Le(IntImm(1), i[1]), Lt(i[1], IntImm(9))), And(Le(IntImm(1), i[2]), Lt(i[2], IntImm(9))));
    return Select(inside, b.At(x, {i[0], Sub(i[1], IntImm(1)), Sub(i[2], IntImm(1)), i[3]}), FloatImm(0));
  });
  const int c = b.Reduce("c", {1, 8, 8, 16}, {3, 3, 16}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(p, {i[0], Add(i[1], r[0]), Add(i[2], r[1]), r[2]}), b.At(w, {r[0], r[1], r[2], i[3]}));
  });
  const int y = b.Compute("y", {1, 8, 8, 16}, [&](auto& i) { return Max(b.At(c, i), FloatImm(0)); });
  return b.Build({y}).value();
}

ComputeDag Softmax() {
  DagBuilder b;
  const int x = b.Placeholder("x", {6, 100});
  const int m = b.Reduce("m", {6}, {100}, Combiner::kMax, [&](auto& i, auto& r) { return b.At(x, {i[0], r[0]}); });
  const int e = b.Compute("e", {6, 100}, [&](auto& i) { return Call("exp", {Sub(b.At(x, i), b.At(m, {i[0]}))}); });
  const int s = b.Reduce("s", {6}, {100}, Combiner::kSum, [&](auto& i, auto& r) { return b.At(e, {i[0], r[0]}); });
  const int y = b.Compute("y", {6, 100}, [&](auto& i) { return Div(b.At(e, i), b.At(s, {i[0]})); });
  return b.Build({y}).value();
}

std::vector<int32_t> ByLot(const Space& space, std::mt19937& random) {
  std::vector<int32_t> configuration = space.Default(), domain;
  for (int parameter = 0; parameter < space.size(); ++parameter) {
    space.Domain(parameter, configuration, &domain);
    configuration[parameter] = domain[random() % domain.size()];
  }
  space.Clamp(0, absl::MakeSpan(configuration));
  return configuration;
}

}  // namespace

const std::vector<NamedDag>& FuzzDags() {
  static const auto& dags =
      *new std::vector<NamedDag>{{"gemm", Gemm()}, {"conv", Convolution()}, {"softmax", Softmax()}};
  return dags;
}

const std::vector<std::string>& FuzzTargets() {
  static const auto& targets =
      *new std::vector<std::string>{"cpu -mcpu=x86-64-v3 -num-cores=2", "opencl", "cuda -arch=sm_90"};
  return targets;
}

std::vector<Schedule> GoodSchedules(const ComputeDag& dag, const std::string& target_text) {
  const Target target = Target::Parse(target_text).value();
  std::vector<Schedule> schedules;
  const absl::StatusOr<std::unique_ptr<TaskSpace>> task = TaskSpace::Create(dag, target, DefaultFacts(target));
  if (!task.ok()) return schedules;
  std::mt19937 random(1);
  for (int s = 0; s < (*task)->size(); ++s) {
    const Space& space = (*task)->space(s);
    schedules.push_back(space.Instantiate(space.Default()));
    for (int i = 0; i < 2; ++i) schedules.push_back(space.Instantiate(ByLot(space, random)));
  }
  return schedules;
}

void LowerAndPrint(const ComputeDag& dag, const Schedule& schedule, const Target& target) {
  const absl::StatusOr<LoweredProgram> lowered = Lower(dag, schedule, target, DefaultFacts(target));
  if (lowered.ok()) PrintSource(*lowered, target);
}

}  // namespace diapason
