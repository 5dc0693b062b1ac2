// Recurrent layers: unrolled they compute what ONNX says, and all steps of a direction may be one kernel.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../testing.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/passes.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

constexpr int64_t kInputs = 3, kHidden = 4, kBatch = 2;

struct Layer {
  std::string op = "LSTM";
  std::set<int> read = {0};  // outputs that the network gives out
  int64_t steps = 5;
  std::string direction = "forward";
  bool bias = true, initial = false, lengths = false, peephole = false, linear_before_reset = false;

  int64_t gates() const { return op == "LSTM" ? 4 : op == "GRU" ? 3 : 1; }
  int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
};

// A model of the layer, and the values of its inputs and weights by name.
struct LayerModel {
  explicit LayerModel(const Layer& l) : layer(l) {
    const int64_t d = layer.directions(), columns = layer.gates() * kHidden;
    const auto add = [&](bool weights, const std::string& name, Ints shape) {
      values[name] = RandomArray({DType::kFloat32, shape}, values.size() + 1);
      weights ? model.Initializer(name, values[name]) : model.Input(name, {shape.begin(), shape.end()});
      return name;
    };
    std::vector<std::string> inputs = {add(false, "x", {layer.steps, kBatch, kInputs}),
                                       add(true, "w", {d, columns, kInputs}), add(true, "r", {d, columns, kHidden}),
                                       layer.bias ? add(true, "b", {d, 2 * columns}) : "", ""};
    if (layer.lengths) {
      values["lengths"] = Array(DType::kInt32, {kBatch});
      values["lengths"].set_int(0, layer.steps);
      values["lengths"].set_int(1, layer.steps - 2);
      model.Input(inputs.back() = "lengths", {kBatch}, DType::kInt32);
    }
    const bool lstm = layer.op == "LSTM";
    inputs.push_back(layer.initial ? add(false, "h0", {d, kBatch, kHidden}) : "");
    if (lstm) inputs.push_back(layer.initial ? add(false, "c0", {d, kBatch, kHidden}) : "");
    if (layer.peephole) inputs.push_back(add(true, "p", {d, 3 * kHidden}));
    std::vector<std::string> outputs;
    for (int o = 0; o < (lstm ? 3 : 2); ++o) outputs.push_back(layer.read.contains(o) ? absl::StrCat("y", o) : "");
    std::vector<std::pair<std::string, OnnxValue>> attributes = {{"hidden_size", kHidden},
                                                                 {"direction", layer.direction.c_str()}};
    if (layer.linear_before_reset) attributes.emplace_back("linear_before_reset", int64_t{1});
    model.Node(layer.op, inputs, outputs, attributes);
    for (int o : layer.read) model.Output(absl::StrCat("y", o));
  }

  double At(const std::string& name, Ints at) const {
    const auto it = values.find(name);
    if (it == values.end()) return 0;
    int64_t place = 0;
    for (size_t i = 0; i < at.size(); ++i) place = place * it->second.shape[i] + at[i];
    return it->second.at(place);
  }
  std::vector<Array> InputsOf(const Network& network) const {
    std::vector<Array> inputs;
    for (int id : network.inputs) inputs.push_back(values.at(network.tensors[id].name));
    return inputs;
  }

  Layer layer;
  ModelBuilder model{14};
  std::map<std::string, Array> values;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The layer's outputs by ONNX's formulas.
class Reference {
 public:
  explicit Reference(const LayerModel& m) : m_(m), layer_(m.layer) {
    const int64_t d = layer_.directions();
    y = Array(DType::kFloat32, {layer_.steps, d, kBatch, kHidden});
    y_h = Array(DType::kFloat32, {d, kBatch, kHidden});
    y_c = y_h;
    for (int64_t n = 0; n < d; ++n)
      for (int64_t b = 0; b < kBatch; ++b) Run(n, b);
  }

  Array y, y_h, y_c;

 private:
  using Values = std::vector<double>;

  void Run(int64_t d, int64_t b) {
    Values h(kHidden), c(kHidden);
    for (int64_t u = 0; u < kHidden; ++u) h[u] = m_.At("h0", {d, b, u}), c[u] = m_.At("c0", {d, b, u});
    const bool reverse = layer_.direction == "reverse" || d == 1;
    const int64_t length = layer_.lengths ? m_.values.at("lengths").int_at(b) : layer_.steps;
    for (int64_t k = 0; k < layer_.steps; ++k) {
      const int64_t t = reverse ? layer_.steps - 1 - k : k;
      if (t >= length) continue;
      Step(d, b, t, h, c);
      for (int64_t u = 0; u < kHidden; ++u) y.set(((t * layer_.directions() + d) * kBatch + b) * kHidden + u, h[u]);
    }
    for (int64_t u = 0; u < kHidden; ++u) {
      y_h.set((d * kBatch + b) * kHidden + u, h[u]);
      y_c.set((d * kBatch + b) * kHidden + u, c[u]);
    }
  }

  double FromInput(int64_t d, int64_t b, int64_t t, int64_t column) const {
    double sum = m_.At("b", {d, column});
    for (int64_t i = 0; i < kInputs; ++i) sum += m_.At("x", {t, b, i}) * m_.At("w", {d, column, i});
    return sum;
  }
  double FromState(int64_t d, const Values& h, int64_t column) const {
    double sum = m_.At("b", {d, layer_.gates() * kHidden + column});
    for (int64_t i = 0; i < kHidden; ++i) sum += h[i] * m_.At("r", {d, column, i});
    return sum;
  }

  void Step(int64_t d, int64_t b, int64_t t, Values& h, Values& c) const {
    const Values before = h;
    const auto both = [&](int64_t column) { return FromInput(d, b, t, column) + FromState(d, before, column); };
    if (layer_.op == "RNN") {
      for (int64_t u = 0; u < kHidden; ++u) h[u] = std::tanh(both(u));
    } else if (layer_.op == "GRU") {
      Values seen(kHidden);
      for (int64_t u = 0; u < kHidden; ++u) seen[u] = Sigmoid(both(kHidden + u)) * before[u];
      for (int64_t u = 0; u < kHidden; ++u) {
        const int64_t last = 2 * kHidden + u;
        const double z = Sigmoid(both(u)), from_state = layer_.linear_before_reset
                                                            ? Sigmoid(both(kHidden + u)) * FromState(d, before, last)
                                                            : FromState(d, seen, last);
        h[u] = (1 - z) * std::tanh(FromInput(d, b, t, last) + from_state) + z * before[u];
      }
    } else {
      for (int64_t u = 0; u < kHidden; ++u) {
        const auto peephole = [&](int64_t gate) { return m_.At("p", {d, gate * kHidden + u}) * c[u]; };
        const double i = Sigmoid(both(u) + peephole(0)), f = Sigmoid(both(2 * kHidden + u) + peephole(2));
        c[u] = f * c[u] + i * std::tanh(both(3 * kHidden + u));
        h[u] = Sigmoid(both(kHidden + u) + peephole(1)) * std::tanh(c[u]);
      }
    }
  }

  const LayerModel& m_;
  const Layer& layer_;
};

void ExpectOutputs(const std::vector<Array>& got, const Reference& want, const std::set<int>& read) {
  ASSERT_EQ(got.size(), read.size());
  size_t next = 0;
  for (int o : read) ExpectNear(got[next++], o == 0 ? want.y : o == 1 ? want.y_h : want.y_c, 1e-5);
}

// All sensible combinations of what a layer may have.
std::vector<Layer> Layers() {
  std::vector<Layer> layers;
  for (const std::string op : {"LSTM", "GRU", "RNN"}) {
    for (const std::string direction : {"forward", "reverse", "bidirectional"}) {
      for (const bool initial : {false, true}) layers.push_back({.op = op, .direction = direction, .initial = initial});
    }
    layers.push_back({.op = op, .read = {0, 1}});
    layers.push_back({.op = op, .read = {0, 1}, .direction = "reverse", .bias = false});
    layers.push_back({.op = op, .read = {1}});
    layers.push_back({.op = op, .read = {1}, .direction = "bidirectional", .initial = true});
    layers.push_back({.op = op, .lengths = true});
    layers.push_back({.op = op, .read = {1}, .initial = true, .lengths = true});
    layers.push_back(
        {.op = op, .read = {0, 1}, .steps = 9, .direction = "bidirectional", .initial = true, .lengths = true});
  }
  for (const bool initial : {false, true}) {
    layers.push_back({.op = "GRU", .initial = initial, .linear_before_reset = true});
    layers.push_back({.op = "GRU", .bias = false, .initial = initial, .linear_before_reset = true});
    layers.push_back({.op = "LSTM", .initial = initial, .peephole = true});
    for (const std::string direction : {"forward", "reverse", "bidirectional"}) {
      layers.push_back({.read = {0, 1, 2}, .steps = 8, .direction = direction, .initial = initial});
      layers.push_back({.read = {1, 2}, .steps = 8, .direction = direction, .initial = initial});
    }
    layers.push_back({.read = {0, 1, 2}, .steps = 8, .initial = initial, .lengths = true});
  }
  return layers;
}

std::string TextOf(const Layer& l) {
  std::string text = absl::StrCat(l.op, " ", l.direction, ", ", l.steps, " steps, outputs");
  for (int o : l.read) absl::StrAppend(&text, " ", o);
  for (const auto& [has, name] : {std::pair(l.bias, "bias"),
                                  {l.initial, "initial"},
                                  {l.lengths, "lengths"},
                                  {l.peephole, "peephole"},
                                  {l.linear_before_reset, "linear before reset"}})
    if (has) absl::StrAppend(&text, ", ", name);
  return text;
}

int RecurrencesIn(const FusionChoices& fusion, const FusionAlternative& alternative) {
  int recurrences = 0;
  for (const auto& [task, count] : alternative.tasks)
    if (absl::StartsWith(fusion.partition.tasks[task].name, "recurrence_")) recurrences += count;
  return recurrences;
}

TEST(Recurrent, LayersAreOneKernelADirectionAndComputeTheSame) {
  for (const Layer& layer : Layers()) {
    SCOPED_TRACE(TextOf(layer));
    const LayerModel m(layer);
    const Reference want(m);
    const auto read = m.model.Import();
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectOutputs(EvaluateNetwork(*read, m.InputsOf(*read)).value(), want, layer.read);
    const Network n = Optimize(*read, {}).value();
    const std::vector<Array> inputs = m.InputsOf(n);
    const FusionChoices fusion = FindFusionChoices(n).value();
    std::vector<int> chosen;
    for (const ChoicePoint& point : fusion.choice_points) {
      chosen.push_back(point.alternatives[1].name == "recurrence in one kernel");
      if (chosen.back() == 0) continue;  // copies of outputs
      EXPECT_EQ(point.alternatives.size(), 2u);
      EXPECT_EQ(RecurrencesIn(fusion, point.alternatives[1]), 1);
    }
    EXPECT_EQ(std::count(chosen.begin(), chosen.end(), 1), layer.directions());
    ExpectOutputs(EvaluatePartition(n, fusion.partition, inputs).value(), want, layer.read);
    const Partition whole = PartitionAs(n, fusion, chosen).value();
    ExpectOutputs(EvaluatePartition(n, whole, inputs).value(), want, layer.read);
    int64_t kernels = 0;
    for (const Subgraph& subgraph : whole.subgraphs)
      kernels += absl::StartsWith(whole.tasks[subgraph.task].name, "recurrence_");
    EXPECT_EQ(kernels, layer.directions());
  }
}

// What is read of a layer of few steps alone decides: the final states are read beside the outputs.
TEST(Recurrent, LayersOfFewStepsGiveFinalStatesOutWithoutCopies) {
  for (const Layer& layer : {Layer{.read = {0, 1}, .lengths = true}, Layer{.read = {0, 1, 2}}, Layer{.read = {1, 2}}}) {
    SCOPED_TRACE(TextOf(layer));
    const LayerModel m(layer);
    const Network n = Optimize(m.model.Import().value(), {}).value();
    EXPECT_TRUE(GroupingFacts(n).recurrences.empty());
    ExpectOutputs(EvaluateNetwork(n, m.InputsOf(n)).value(), Reference(m), layer.read);
  }
}

TEST(Recurrent, LayersHaveNoProductWithAnInitialStateOfZeros) {
  for (const std::string op : {"LSTM", "GRU", "RNN"}) {
    LayerModel m({.op = op});
    const LayerModel without({.op = op});
    m.model.Initializer("zeros", Array(DType::kFloat32, {1, kBatch, kHidden}));
    onnx::NodeProto& node = *m.model.proto().mutable_graph()->mutable_node(0);
    for (int input = 5; input < (op == "LSTM" ? 7 : 6); ++input) node.set_input(input, "zeros");
    const Network n = m.model.Import().value();
    EXPECT_EQ(CountOps(n, "matmul"), CountOps(without.model.Import().value(), "matmul")) << op;
    ExpectOutputs(EvaluateNetwork(n, m.InputsOf(n)).value(), Reference(m), {0});
  }
}

TEST(Recurrent, StepsReadTheSameConstants) {
  for (const std::string op : {"LSTM", "GRU", "RNN"}) {
    const LayerModel m({.op = op, .initial = true, .linear_before_reset = true});
    const Network n = Optimize(m.model.Import().value(), {}).value();
    std::set<int> weights;
    for (const Node& node : n.nodes)
      if (node.op == "gemm" || node.op == "matmul") weights.insert(node.inputs[1]);
    EXPECT_EQ(weights.size(), 2u) << op << ": for the inputs and for the state";
  }
}

}  // namespace
}  // namespace diapason
