#include "compiler/graph/passes/network_editor.h"

#include <algorithm>
#include <utility>

namespace diapason {

NetworkEditor::NetworkEditor(Network& network)
    : network_(network),
      consumers_(network.Consumers()),
      producers_(network.Producers()),
      is_output_(network.tensors.size(), false) {
  for (int output : network.outputs) is_output_[output] = true;
  for (size_t n = 0; n < network.nodes.size(); ++n) open_.insert(open_.end(), n);
}

const Node* NetworkEditor::ProducerOf(int tensor, const std::string& op) const {
  if (producers_[tensor] < 0) return nullptr;
  const Node& producer = network_.nodes[producers_[tensor]];
  return op.empty() || producer.op == op ? &producer : nullptr;
}

void NetworkEditor::LookAgain(int tensor) {
  if (producers_[tensor] >= 0) open_.insert(producers_[tensor]);
  open_.insert(consumers_[tensor].begin(), consumers_[tensor].end());
}

void NetworkEditor::LookAgainAround(size_t n) {
  open_.insert(n);
  LookAgain(node(n).output);
}

int NetworkEditor::AddConstant(const std::string& name, Array value) {
  consumers_.emplace_back();
  producers_.push_back(-1);
  is_output_.push_back(false);
  return network_.AddConstant(name, std::move(value));
}

void NetworkEditor::SetInputs(size_t n, std::vector<int> inputs) {
  const std::vector<int> old = std::exchange(node(n).inputs, std::move(inputs));
  const int reader = static_cast<int>(n);
  for (int input : node(n).inputs) {
    std::vector<int>& readers = consumers_[input];
    if (std::find(readers.begin(), readers.end(), reader) == readers.end()) readers.push_back(reader);
  }
  for (int input : old) {
    const std::vector<int>& now = node(n).inputs;
    if (std::find(now.begin(), now.end(), input) != now.end()) continue;
    std::erase(consumers_[input], reader);
    LookAgain(input);
  }
  if (!node(n).op.empty()) LookAgainAround(n);
  for (int input : old) RemoveUnread(input);
}

void NetworkEditor::Remove(size_t n) {
  if (producers_[node(n).output] == static_cast<int>(n)) producers_[node(n).output] = -1;
  node(n).op.clear();
  open_.erase(n);
  SetInputs(n, {});
}

void NetworkEditor::RemoveUnread(int tensor) {
  const int n = producers_[tensor];
  if (n >= 0 && consumers_[tensor].empty() && !is_output_[tensor]) Remove(n);
}

void NetworkEditor::MoveReaders(int from, int to) {
  for (int reader : std::vector<int>(consumers_[from])) {
    std::vector<int> inputs = node(reader).inputs;
    std::replace(inputs.begin(), inputs.end(), from, to);
    SetInputs(reader, std::move(inputs));
  }
}

void NetworkEditor::SetOutput(size_t n, int tensor) {
  producers_[node(n).output] = -1;
  node(n).output = tensor;
  producers_[tensor] = static_cast<int>(n);
  LookAgainAround(n);
}

bool NetworkEditor::ReplaceBy(size_t n, int input) {
  const int output = node(n).output, from = producers_[input];
  if (is_output_[output]) {
    if (from < 0 || is_output_[input]) return false;
    SetOutput(from, output);  // which keeps the output's name
    MoveReaders(input, output);
  } else {
    MoveReaders(output, input);
  }
  Remove(n);
  return true;
}

void NetworkEditor::Compact() {
  std::erase_if(network_.nodes, [](const Node& node) { return node.op.empty(); });
}

}  // namespace diapason
