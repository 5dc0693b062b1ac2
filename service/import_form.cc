#include "service/import_form.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/serialize.h"
#include "diapason/v1/import.pb.h"

namespace diapason {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;

absl::Status Damaged(const std::string& why) {
  return absl::DataLossError(absl::StrCat("the process that read the model answered nonsense: ", why));
}

template <typename Map>
void ModesToProto(const FusionModes& modes, Map& message) {
  for (const auto& [node, mode] : modes) message[node] = static_cast<uint32_t>(mode);
}

template <typename Map>
absl::StatusOr<FusionModes> ModesFromProto(const Map& message) {
  FusionModes modes;
  for (const auto& [node, mode] : message) {
    if (node < 0 || mode > static_cast<uint32_t>(FusionMode::kRecurrence))
      return Damaged("an unknown fusion alternative");
    modes[node] = static_cast<FusionMode>(mode);
  }
  return modes;
}

absl::StatusOr<FusionAlternative> AlternativeFromProto(const v1::ImportedFusionAlternative& message, int tasks) {
  FusionAlternative alternative;
  alternative.name = message.name();
  ASSIGN_OR_RETURN(alternative.modes, ModesFromProto(message.nodes()));
  if (message.tasks_size() != message.counts_size()) return Damaged("tasks without counts");
  for (int i = 0; i < message.tasks_size(); ++i) {
    const bool after = alternative.tasks.empty() || alternative.tasks.back().first < message.tasks(i);
    if (message.tasks(i) < 0 || message.tasks(i) >= tasks || message.counts(i) < 1 || !after)
      return Damaged(absl::StrCat("task ", message.tasks(i), " in a fusion alternative"));
    alternative.tasks.emplace_back(message.tasks(i), message.counts(i));
  }
  alternative.writes_in_place = message.writes_in_place();
  return alternative;
}

absl::StatusOr<ChoicePoint> ChoicePointFromProto(const v1::ImportedChoicePoint& message, int tasks) {
  ChoicePoint point;
  point.name = message.name();
  for (const v1::ImportedFusionAlternative& alternative : message.alternatives()) {
    ASSIGN_OR_RETURN(FusionAlternative read, AlternativeFromProto(alternative, tasks));
    point.alternatives.push_back(std::move(read));
  }
  if (point.alternatives.size() < 2) return Damaged("a choice point without a choice");
  return point;
}

void AttributeToProto(const AttributeValue& value, v1::ImportedAttribute& message) {
  if (const auto* i = std::get_if<int64_t>(&value)) message.set_i(*i);
  if (const auto* d = std::get_if<double>(&value)) message.set_d(*d);
  if (const auto* s = std::get_if<std::string>(&value)) message.set_s(*s);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
    message.mutable_ints()->mutable_values()->Assign(list->begin(), list->end());
}

absl::StatusOr<AttributeValue> AttributeFromProto(const v1::ImportedAttribute& message) {
  switch (message.value_case()) {
    case v1::ImportedAttribute::kI: return AttributeValue(int64_t{message.i()});
    case v1::ImportedAttribute::kD: return AttributeValue(message.d());
    case v1::ImportedAttribute::kS: return AttributeValue(message.s());
    case v1::ImportedAttribute::kInts:
      return AttributeValue(std::vector<int64_t>(message.ints().values().begin(), message.ints().values().end()));
    case v1::ImportedAttribute::VALUE_NOT_SET: break;
  }
  return Damaged("an attribute without a value");
}

// Constants, in order, of a file that has so many bytes left.
class Constants {
 public:
  Constants(std::istream& in, int64_t bytes) : in_(in), left_(bytes) {}

  absl::StatusOr<std::shared_ptr<const Array>> Next(const TensorType& type) {
    const int64_t bytes = type.elements() * BytesOf(type.dtype);
    if (bytes > left_) return Damaged("constants that are not there");
    left_ -= bytes;
    auto array = std::make_shared<Array>(type.dtype, type.shape);
    if (!in_.read(reinterpret_cast<char*>(array->data.data()), bytes)) return Damaged("constants that cannot be read");
    return std::shared_ptr<const Array>(std::move(array));
  }

 private:
  std::istream& in_;
  int64_t left_;
};

absl::StatusOr<Tensor> TensorFromProto(const v1::ImportedTensor& message, Constants& constants) {
  Tensor tensor;
  tensor.name = message.name();
  if (!IsDType(message.dtype())) return Damaged(absl::StrCat("element type ", message.dtype()));
  tensor.type = {static_cast<DType>(message.dtype()), {message.shape().begin(), message.shape().end()}};
  int64_t elements = 1;
  for (int64_t extent : tensor.type.shape) {
    if (extent < 1 || extent > kMostElements / elements) return Damaged(absl::StrCat("a tensor with extent ", extent));
    elements *= extent;
  }
  if (message.constant()) {
    ASSIGN_OR_RETURN(tensor.data, constants.Next(tensor.type));
  }
  return tensor;
}

}  // namespace

void ToProto(const ModelOptions& options, v1::ImportJob& job) {
  job.set_batch(options.batch);
  job.set_layout(NameOf(options.layout));
  job.set_dtype(NameOf(options.dtype));
  for (const auto& [name, shape] : options.input_shapes)
    (*job.mutable_input_shapes())[name].mutable_extents()->Assign(shape.begin(), shape.end());
  job.mutable_dims()->insert(options.dims.begin(), options.dims.end());
  job.mutable_extra()->insert(options.extra.begin(), options.extra.end());
  job.set_external_data(options.external_data);
  job.set_strict(options.strict);
}

absl::StatusOr<ModelOptions> FromProto(const v1::ImportJob& job) {
  ModelOptions options;
  options.batch = job.batch();
  if (job.layout() != NameOf(Layout::kNHWC) && job.layout() != NameOf(Layout::kNCHW))
    return absl::InvalidArgumentError("unknown layout " + job.layout());
  options.layout = job.layout() == NameOf(Layout::kNCHW) ? Layout::kNCHW : Layout::kNHWC;
  ASSIGN_OR_RETURN(options.dtype, ModelTypeFromName("type", job.dtype()));
  for (const auto& [name, shape] : job.input_shapes())
    options.input_shapes[name] = {shape.extents().begin(), shape.extents().end()};
  options.dims = {job.dims().begin(), job.dims().end()};
  options.extra = {job.extra().begin(), job.extra().end()};
  options.external_data = job.external_data();
  options.strict = job.strict();
  return options;
}

void ToProto(const FusionChoices& fusion, v1::ImportedFusionChoices& message) {
  for (const Task& task : fusion.partition.tasks) {
    v1::ImportedTask& out = *message.add_tasks();
    out.set_name(task.name);
    out.set_dag(SerializeDag(task.dag));
    out.set_weight(task.weight);
  }
  message.set_default_tasks(fusion.default_tasks);
  message.set_worthwhile_tasks(fusion.worthwhile_tasks);
  ModesToProto(fusion.default_modes, *message.mutable_default_modes());
  for (const ChoicePoint& point : fusion.choice_points) {
    v1::ImportedChoicePoint& out = *message.add_choice_points();
    out.set_name(point.name);
    for (const FusionAlternative& alternative : point.alternatives) {
      v1::ImportedFusionAlternative& out_alternative = *out.add_alternatives();
      out_alternative.set_name(alternative.name);
      ModesToProto(alternative.modes, *out_alternative.mutable_nodes());
      for (const auto& [task, count] : alternative.tasks) {
        out_alternative.add_tasks(task);
        out_alternative.add_counts(count);
      }
      out_alternative.set_writes_in_place(alternative.writes_in_place);
    }
  }
  message.mutable_fixed()->Assign(fusion.fixed.begin(), fusion.fixed.end());
  message.mutable_factor_bounds()->insert(fusion.factor_bounds.begin(), fusion.factor_bounds.end());
}

absl::StatusOr<FusionChoices> FromProto(const v1::ImportedFusionChoices& message) {
  FusionChoices fusion;
  for (const v1::ImportedTask& task : message.tasks()) {
    ASSIGN_OR_RETURN(ComputeDag dag, ParseDag(task.dag()));
    if (task.weight() < 0) return Damaged(absl::StrCat("a task of weight ", task.weight()));
    std::string key = dag.workload_key(), unbounded = UnboundedKey(dag);
    fusion.partition.tasks.push_back(
        {task.name(), std::move(dag), task.weight(), std::move(key), std::move(unbounded)});
  }
  const int tasks = message.tasks_size();
  fusion.default_tasks = message.default_tasks();
  fusion.worthwhile_tasks = message.worthwhile_tasks();
  if (fusion.default_tasks > fusion.worthwhile_tasks || fusion.worthwhile_tasks > static_cast<size_t>(tasks) ||
      message.fixed_size() != tasks)
    return Damaged("numbers of tasks that do not fit");
  ASSIGN_OR_RETURN(fusion.default_modes, ModesFromProto(message.default_modes()));
  for (const v1::ImportedChoicePoint& point : message.choice_points()) {
    ASSIGN_OR_RETURN(ChoicePoint read, ChoicePointFromProto(point, tasks));
    fusion.choice_points.push_back(std::move(read));
  }
  fusion.fixed = {message.fixed().begin(), message.fixed().end()};
  fusion.factor_bounds = {message.factor_bounds().begin(), message.factor_bounds().end()};
  for (const auto& [tensor, bound] : fusion.factor_bounds)
    if (bound < 1) return Damaged(absl::StrCat("a factor with the bound ", bound));
  return fusion;
}

absl::Status ToProto(const Network& network, v1::ImportedNetwork& message, std::ostream& constants) {
  message.set_name(network.name);
  for (const Tensor& tensor : network.tensors) {
    v1::ImportedTensor& out = *message.add_tensors();
    out.set_name(tensor.name);
    out.set_dtype(static_cast<uint32_t>(tensor.type.dtype));
    out.mutable_shape()->Assign(tensor.type.shape.begin(), tensor.type.shape.end());
    out.set_constant(tensor.constant());
    if (!tensor.constant()) continue;
    const std::vector<uint8_t>& data = tensor.data->data;
    constants.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  }
  for (const Node& node : network.nodes) {
    v1::ImportedNode& out = *message.add_nodes();
    out.set_op(node.op);
    out.set_name(node.name);
    for (const auto& [name, value] : node.attributes.values())
      AttributeToProto(value, (*out.mutable_attributes())[name]);
    out.mutable_inputs()->Assign(node.inputs.begin(), node.inputs.end());
    out.set_output(node.output);
  }
  message.mutable_inputs()->Assign(network.inputs.begin(), network.inputs.end());
  message.mutable_outputs()->Assign(network.outputs.begin(), network.outputs.end());
  constants.flush();
  if (!constants)
    return absl::ResourceExhaustedError(
        "the temporary folder has no room for the model's weights: free some space, or name another one with TMPDIR");
  return absl::OkStatus();
}

absl::StatusOr<Network> FromProto(const v1::ImportedNetwork& message, std::istream& in, int64_t bytes) {
  Network network;
  network.name = message.name();
  Constants constants(in, bytes);
  for (const v1::ImportedTensor& tensor : message.tensors()) {
    ASSIGN_OR_RETURN(Tensor read, TensorFromProto(tensor, constants));
    network.tensors.push_back(std::move(read));
  }
  for (const v1::ImportedNode& in_node : message.nodes()) {
    Node node{in_node.op(), in_node.name(), {}, {in_node.inputs().begin(), in_node.inputs().end()}, in_node.output()};
    for (const auto& [name, attribute] : in_node.attributes()) {
      ASSIGN_OR_RETURN(AttributeValue value, AttributeFromProto(attribute));
      node.attributes.Set(name, std::move(value));
    }
    network.nodes.push_back(std::move(node));
  }
  network.inputs = {message.inputs().begin(), message.inputs().end()};
  network.outputs = {message.outputs().begin(), message.outputs().end()};
  if (const absl::Status valid = network.Validate(); !valid.ok()) return Damaged(std::string(valid.message()));
  return network;
}

void AddInputs(const std::vector<ImportedInput>& inputs, const std::map<std::string, SymbolPadding>& padding,
               v1::ImportReply& reply) {
  for (const ImportedInput& input : inputs) {
    v1::ImportedInput& out = *reply.add_inputs();
    out.set_name(input.name);
    out.set_dtype(static_cast<uint32_t>(input.type.dtype));
    out.mutable_shape()->Assign(input.type.shape.begin(), input.type.shape.end());
    for (const std::string& symbol : input.symbols) out.add_symbols(symbol);
  }
  for (const auto& [symbol, found] : padding) {
    v1::ImportedPadding& out = *reply.add_paddings();
    out.set_symbol(symbol);
    out.set_least(found.least);
    out.set_why_not(found.why_not);
    out.set_needs_first(found.needs_first);
    for (const std::vector<GrowingAxis>& axes : found.outputs) {
      v1::ImportedGrowth& growth = *out.add_outputs();
      for (const GrowingAxis& axis : axes) {
        growth.add_axes(axis.axis);
        growth.add_blocks(axis.block);
      }
    }
  }
}

absl::Status TakeInputs(const v1::ImportReply& reply, ImportedModel& model) {
  SymbolSizes sizes;
  for (const v1::ImportedInput& in : reply.inputs()) {
    if (!IsDType(in.dtype()) || in.shape_size() != in.symbols_size()) return Damaged("an input that is none");
    ImportedInput input{in.name(),
                        {static_cast<DType>(in.dtype()), {in.shape().begin(), in.shape().end()}},
                        {in.symbols().begin(), in.symbols().end()}};
    for (size_t d = 0; d < input.symbols.size(); ++d) {
      if (input.type.shape[d] < 1) return Damaged("an input that is none");
      if (input.symbols[d].empty()) continue;
      if (sizes.emplace(input.symbols[d], input.type.shape[d]).first->second != input.type.shape[d])
        return Damaged("a symbol of two sizes");
    }
    model.inputs.push_back(std::move(input));
  }
  for (const v1::ImportedPadding& in : reply.paddings()) {
    SymbolPadding padding{in.least(), in.why_not(), {}, in.needs_first()};
    if (!sizes.contains(in.symbol()) || padding.least < 1) return Damaged("padding along no symbol");
    for (const v1::ImportedGrowth& growth : in.outputs()) {
      if (growth.axes_size() != growth.blocks_size()) return Damaged("axes without blocks");
      std::vector<GrowingAxis>& axes = padding.outputs.emplace_back();
      for (int i = 0; i < growth.axes_size(); ++i) {
        if (growth.axes(i) < 0 || growth.blocks(i) < 1) return Damaged("a growing axis that is none");
        axes.push_back({growth.axes(i), growth.blocks(i)});
      }
    }
    model.padding[in.symbol()] = std::move(padding);
  }
  return absl::OkStatus();
}

namespace {

void PortToProto(const DescribedPort& port, v1::DescribedPort& message) {
  message.set_name(port.name);
  message.set_dtype(port.dtype);
  message.set_has_shape(port.has_shape);
  message.mutable_shape()->Assign(port.shape.begin(), port.shape.end());
  for (const std::string& symbol : port.symbols) message.add_symbols(symbol);
}

absl::StatusOr<DescribedPort> PortFromProto(const v1::DescribedPort& message) {
  DescribedPort port{message.name(),
                     message.dtype(),
                     message.has_shape(),
                     {message.shape().begin(), message.shape().end()},
                     {message.symbols().begin(), message.symbols().end()}};
  const bool negative = std::any_of(port.shape.begin(), port.shape.end(), [](int64_t extent) { return extent < 0; });
  if (negative || port.shape.size() != port.symbols.size()) return Damaged("a port that is none");
  return port;
}

}  // namespace

void ToProto(const ModelDescription& described, v1::ImportedDescription& message) {
  message.set_name(described.name);
  message.set_opset(described.opset);
  for (const DescribedPort& port : described.inputs) PortToProto(port, *message.add_inputs());
  for (const DescribedPort& port : described.outputs) PortToProto(port, *message.add_outputs());
  for (const auto& [name, count] : described.operators) {
    v1::ImportedDescription::Operator& one = *message.add_operators();
    one.set_name(name);
    one.set_count(count);
  }
  message.set_parameters(described.parameters);
  message.set_weights_bytes(described.weights_bytes);
}

absl::StatusOr<ModelDescription> FromProto(const v1::ImportedDescription& message) {
  ModelDescription described;
  described.name = message.name();
  described.opset = message.opset();
  for (const v1::DescribedPort& port : message.inputs()) {
    ASSIGN_OR_RETURN(described.inputs.emplace_back(), PortFromProto(port));
  }
  for (const v1::DescribedPort& port : message.outputs()) {
    ASSIGN_OR_RETURN(described.outputs.emplace_back(), PortFromProto(port));
  }
  for (const v1::ImportedDescription::Operator& one : message.operators())
    described.operators[one.name()] = one.count();
  described.parameters = message.parameters();
  described.weights_bytes = message.weights_bytes();
  return described;
}

}  // namespace diapason
