#include "compiler/build/network_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/fill.h"
#include "compiler/tensor/serialize.h"
#include "diapason/v1/program.pb.h"

namespace diapason {
namespace {

constexpr int kVersion = 1;
constexpr int kMostParts = 1 << 16;  // of each list

// ---- writing

v1::GeneratedConstant Describe(const Array& value) {
  v1::GeneratedConstant described;
  const int64_t n = value.elements();
  if (!IsFloat(value.dtype)) {
    int64_t low = std::numeric_limits<int64_t>::max(), high = std::numeric_limits<int64_t>::min();
    for (int64_t i = 0; i < n; ++i) {
      low = std::min(low, value.int_at(i));
      high = std::max(high, value.int_at(i));
    }
    described.set_low(low);
    described.set_high(high);
    return described;
  }
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += value.at(i);
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (value.at(i) - mean) * (value.at(i) - mean);
  described.set_mean(mean);
  described.set_deviation(std::sqrt(squares / static_cast<double>(n)));
  return described;
}

class PlanWriter {
 public:
  PlanWriter(const Network& network, const Partition& partition, v1::NetworkPlan& plan)
      : network_(network), partition_(partition), plan_(plan) {}

  void Write() {
    plan_.set_version(kVersion);
    plan_.set_name(network_.name);
    for (const Task& task : partition_.tasks) {
      plan_.add_tasks(SerializeDag(task.dag));
      plan_.add_task_names(task.name);
    }
    for (const PlacedTask& placed : partition_.programs) WriteProgram(placed);
    for (const Subgraph& subgraph : partition_.subgraphs) {
      v1::PlannedStep& step = *plan_.add_steps();
      step.set_program(static_cast<uint32_t>(subgraph.program));
      for (int tensor : subgraph.inputs) step.add_inputs(Owner(tensor));
      for (int tensor : subgraph.outputs) step.add_outputs(Owner(tensor));
    }
    for (int tensor : network_.inputs) plan_.add_inputs(Named(tensor));
    for (int tensor : network_.outputs) plan_.add_outputs(Named(tensor));
    WriteConstants();
  }

 private:
  void WriteProgram(const PlacedTask& placed) {
    v1::PlannedProgram& program = *plan_.add_programs();
    program.set_task(static_cast<uint32_t>(placed.task));
    if (placed.place.whole()) return;
    v1::PlannedPlace& place = *program.mutable_place();
    place.set_row(placed.place.row);
    place.set_stride(placed.place.stride);
    place.set_offset(placed.place.offset);
    place.set_elements(placed.place.elements);
  }

  uint32_t Add(int tensor) {
    const auto [found, added] = positions_.emplace(tensor, plan_.tensors_size());
    if (!added) return static_cast<uint32_t>(found->second);
    v1::PlannedTensor& planned = *plan_.add_tensors();
    planned.set_name(network_.tensor(tensor).name);
    planned.set_dtype(static_cast<uint32_t>(network_.tensor(tensor).type.dtype));
    for (int64_t extent : network_.tensor(tensor).type.shape) planned.add_shape(extent);
    return static_cast<uint32_t>(found->second);
  }
  uint32_t Owner(int tensor) { return Add(partition_.Owner(tensor)); }
  uint32_t Named(int tensor) {
    const uint32_t position = Add(tensor);
    if (const int owner = partition_.Owner(tensor); owner != tensor)
      plan_.mutable_tensors(static_cast<int>(position))->set_same_as(Add(owner) + 1);
    return position;
  }

  void WriteConstants() {
    std::vector<std::pair<int64_t, int>> constants;  // bytes, tensor; negative: goes first
    for (const auto& [tensor, position] : positions_) {
      const Tensor& constant = network_.tensor(tensor);
      if (!constant.constant() || plan_.tensors(position).same_as() != 0) continue;
      const auto bytes = static_cast<int64_t>(constant.data->data.size());
      constants.emplace_back(IsFloat(constant.type.dtype) ? bytes : bytes - (int64_t{1} << 62), tensor);
    }
    std::sort(constants.begin(), constants.end());
    int64_t room = kPlanConstantBytes;
    for (const auto& [order, tensor] : constants) {
      const Array& value = *network_.tensor(tensor).data;
      v1::PlannedTensor& planned = *plan_.mutable_tensors(positions_[tensor]);
      const auto bytes = static_cast<int64_t>(value.data.size());
      if (bytes <= room) {
        planned.set_value(value.data.data(), value.data.size());
        room -= bytes;
      } else {
        *planned.mutable_generated() = Describe(value);
      }
    }
  }

  const Network& network_;
  const Partition& partition_;
  v1::NetworkPlan& plan_;
  std::map<int, int> positions_;  // tensor of the network -> position in the plan
};

// ---- reading

absl::Status Wrong(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("the network's plan contradicts itself: ", why));
}

class PlanReader {
 public:
  PlanReader(const v1::NetworkPlan& plan, int64_t most_bytes) : plan_(plan), left_bytes_(most_bytes) {}

  absl::StatusOr<PlannedNetwork> Read(uint64_t seed, double gain) {
    if (plan_.version() != kVersion)
      return absl::InvalidArgumentError(absl::StrCat("the network's plan is of version ", plan_.version(),
                                                     ", this program reads ", kVersion,
                                                     "; use the same version on all hosts"));
    if (std::max({plan_.tasks_size(), plan_.programs_size(), plan_.tensors_size(), plan_.steps_size()}) > kMostParts)
      return Wrong(absl::StrCat("it has more than ", kMostParts, " parts"));
    out_.network.name = plan_.name();
    RETURN_IF_ERROR(ReadTasks());
    for (const v1::PlannedTensor& tensor : plan_.tensors()) RETURN_IF_ERROR(ReadTensor(tensor));
    RETURN_IF_ERROR(ReadPorts());
    for (const v1::PlannedStep& step : plan_.steps()) RETURN_IF_ERROR(ReadStep(step));
    RETURN_IF_ERROR(CheckMade());
    for (int i = 0; i < plan_.tensors_size(); ++i) RETURN_IF_ERROR(GiveValue(i, seed, gain));
    return std::move(out_);
  }

 private:
  absl::Status ReadTasks() {
    for (int i = 0; i < plan_.tasks_size(); ++i) {
      ASSIGN_OR_RETURN(ComputeDag dag, ParseDag(plan_.tasks(i)));
      const std::string name = i < plan_.task_names_size() ? plan_.task_names(i) : absl::StrCat("task ", i + 1);
      out_.partition.tasks.push_back({name, std::move(dag), 0, ""});
    }
    for (const v1::PlannedProgram& program : plan_.programs()) {
      if (program.task() >= out_.partition.tasks.size()) return Wrong("a program is of no task");
      const v1::PlannedPlace& p = program.place();
      const PlacedTask placed{static_cast<int>(program.task()), {p.row(), p.stride(), p.offset(), p.elements()}, 0};
      const ComputeDag& dag = out_.partition.tasks[placed.task].dag;
      const bool fits = placed.place.whole() ||
                        (dag.outputs().size() == 1 && placed.place.Holds(dag.stage(dag.outputs()[0]).elements()));
      if (!fits) return Wrong("a part does not fit its tensor");
      out_.partition.programs.push_back(placed);
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensor(const v1::PlannedTensor& planned) {
    if (!IsDType(planned.dtype())) return Wrong("a tensor is of no type");
    Tensor tensor;
    tensor.name = planned.name();
    tensor.type.dtype = static_cast<DType>(planned.dtype());
    double elements = 1;
    for (int64_t extent : planned.shape()) {
      if (extent < 1) return Wrong(absl::StrCat("tensor '", tensor.name, "' has an extent of ", extent));
      elements *= static_cast<double>(extent);
    }
    const double bytes = elements * BytesOf(tensor.type.dtype);
    if (planned.shape_size() > 64 || bytes > static_cast<double>(left_bytes_))
      return absl::InvalidArgumentError(
          "the network's tensors need more memory than this worker gives; start it with a larger --max-tensor-gib");
    left_bytes_ -= static_cast<int64_t>(bytes);
    tensor.type.shape = {planned.shape().begin(), planned.shape().end()};
    out_.network.tensors.push_back(std::move(tensor));
    const int position = static_cast<int>(out_.network.tensors.size()) - 1;
    if (planned.same_as() == 0) return absl::OkStatus();
    const int owner = static_cast<int>(std::min<uint32_t>(planned.same_as() - 1, kMostParts));
    if (owner >= plan_.tensors_size() || plan_.tensors(owner).same_as() != 0)
      return Wrong("a tensor is the same as none");
    out_.partition.alias_of[position] = owner;
    return absl::OkStatus();
  }

  bool IsTensor(uint32_t position) const { return position < out_.network.tensors.size(); }

  absl::Status ReadPorts() {
    made_.assign(out_.network.tensors.size(), false);
    for (const auto& [alias, owner] : out_.partition.alias_of) {
      const TensorType &a = out_.network.tensor(alias).type, &b = out_.network.tensor(owner).type;
      if (a.dtype != b.dtype || a.elements() != b.elements())
        return Wrong("a tensor is the same as one of another size");
    }
    for (uint32_t input : plan_.inputs()) {
      if (!IsTensor(input) || plan_.tensors(static_cast<int>(input)).same_as() != 0 ||
          IsConstant(static_cast<int>(input)))
        return Wrong("an input is no tensor of its own");
      out_.network.inputs.push_back(static_cast<int>(input));
      made_[input] = true;
    }
    for (uint32_t output : plan_.outputs()) {
      if (!IsTensor(output)) return Wrong("an output is no tensor");
      out_.network.outputs.push_back(static_cast<int>(output));
    }
    return absl::OkStatus();
  }

  bool IsConstant(int tensor) const {
    return plan_.tensors(tensor).constant_case() != v1::PlannedTensor::CONSTANT_NOT_SET;
  }

  bool Fits(const Stage& stage, uint32_t tensor) const {
    if (!IsTensor(tensor) || plan_.tensors(static_cast<int>(tensor)).same_as() != 0) return false;
    const TensorType& type = out_.network.tensor(static_cast<int>(tensor)).type;
    return type.dtype == stage.dtype && type.elements() == stage.elements();
  }

  absl::Status ReadStep(const v1::PlannedStep& step) {
    if (step.program() >= out_.partition.programs.size()) return Wrong("a step runs no program");
    const PlacedTask& placed = out_.partition.programs[step.program()];
    const ComputeDag& dag = out_.partition.tasks[placed.task].dag;
    const std::vector<int> inputs = dag.inputs(), &outputs = dag.outputs();
    const auto wrong = [&] {
      return Wrong("a step does not fit its task '" + out_.partition.tasks[placed.task].name + "'");
    };
    if (static_cast<int>(inputs.size()) != step.inputs_size() ||
        static_cast<int>(outputs.size()) != step.outputs_size())
      return wrong();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const uint32_t tensor = step.inputs(static_cast<int>(i));
      if (!Fits(dag.stage(inputs[i]), tensor)) return wrong();
      if (!made_[tensor] && !IsConstant(static_cast<int>(tensor)))
        return Wrong("a step reads what none before it makes");
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const uint32_t tensor = step.outputs(static_cast<int>(i));
      const bool whole = placed.place.whole() && Fits(dag.stage(outputs[i]), tensor);
      const bool part = !placed.place.whole() && IsTensor(tensor) &&
                        plan_.tensors(static_cast<int>(tensor)).same_as() == 0 &&
                        out_.network.tensor(static_cast<int>(tensor)).type.elements() == placed.place.elements &&
                        out_.network.tensor(static_cast<int>(tensor)).type.dtype == dag.stage(outputs[i]).dtype;
      if (!whole && !part) return wrong();
      if (IsConstant(static_cast<int>(tensor))) return Wrong("a step writes a constant");
      made_[tensor] = true;
    }
    Subgraph subgraph;
    subgraph.dag = dag;
    subgraph.inputs = {step.inputs().begin(), step.inputs().end()};
    subgraph.outputs = {step.outputs().begin(), step.outputs().end()};
    subgraph.task = placed.task;
    subgraph.program = static_cast<int>(step.program());
    out_.partition.subgraphs.push_back(std::move(subgraph));
    return absl::OkStatus();
  }

  absl::Status CheckMade() const {
    for (int i = 0; i < plan_.tensors_size(); ++i)
      if (plan_.tensors(i).same_as() == 0 && !made_[i] && !IsConstant(i))
        return Wrong(absl::StrCat("nothing makes tensor '", out_.network.tensor(i).name, "'"));
    return absl::OkStatus();
  }

  absl::Status GiveValue(int position, uint64_t seed, double gain) {
    if (!IsConstant(position)) return absl::OkStatus();
    const v1::PlannedTensor& planned = plan_.tensors(position);
    Tensor& tensor = out_.network.tensors[position];
    auto value = std::make_shared<Array>(tensor.type.dtype, tensor.type.shape);
    if (planned.has_value()) {
      if (planned.value().size() != value->data.size()) return Wrong("a constant's value is of another size");
      value->data.assign(planned.value().begin(), planned.value().end());
    } else {
      Generate(planned.generated(), seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(position), gain, *value);
    }
    tensor.data = std::move(value);
    return absl::OkStatus();
  }

  static void Generate(const v1::GeneratedConstant& how, uint64_t seed, double gain, Array& value) {
    FillRandom(value, seed, how.low(), how.high());
    if (!IsFloat(value.dtype)) return;
    const double width = std::sqrt(3.0) * how.deviation() * gain,
                 mean = how.mean() * gain;  // of [-1, 1) the deviation is 1/sqrt(3)
    for (int64_t i = 0, n = value.elements(); i < n; ++i) value.set(i, mean + width * value.at(i));
  }

  const v1::NetworkPlan& plan_;
  int64_t left_bytes_;
  PlannedNetwork out_;
  std::vector<bool> made_;  // by tensor: an input, or what a step writes
};

}  // namespace

void PlanNetwork(const Network& network, const Partition& partition, v1::NetworkPlan& plan) {
  PlanWriter(network, partition, plan).Write();
}

absl::StatusOr<PlannedNetwork> ParseNetworkPlan(const v1::NetworkPlan& plan, uint64_t seed, double gain,
                                                int64_t most_bytes) {
  return PlanReader(plan, most_bytes).Read(seed, gain);
}

}  // namespace diapason
