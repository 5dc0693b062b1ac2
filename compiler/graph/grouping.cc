#include "compiler/graph/grouping.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "compiler/graph/grouping/attention_fusion.h"
#include "compiler/graph/grouping/concat_placement.h"
#include "compiler/graph/grouping/epilogue_fusion.h"
#include "compiler/graph/grouping/group_table.h"
#include "compiler/graph/grouping/producer_fusion.h"
#include "compiler/graph/grouping/row_fusion.h"
#include "compiler/graph/only_reader.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/row_nodes.h"

namespace diapason {
namespace {

// The rules, in the order in which they are tried: first for each node, then for the groups.
class Grouper {
 public:
  Grouper(const GroupingFacts& facts, const FusionModes& modes) : facts_(facts), table_(facts, modes) {}

  Grouping Run() {
    OpenRecurrences();
    for (int n = 0; n < static_cast<int>(facts_.network.nodes.size()); ++n) Add(n);
    rows_.JoinProducts();
    producers_.AbsorbAll();
    concats_.AssignOutputs();
    return table_.Finish();
  }

 private:
  // Before all other rules, which leave these groups alone.
  void OpenRecurrences() {
    for (const RecurrentNodes& recurrence : facts_.recurrences) {
      const int result = recurrence.nodes.back();
      if (table_.ModeOf(result) != FusionMode::kRecurrence) {
        table_.AddOption(result, FusionMode::kRecurrence);
        continue;
      }
      const bool collects = facts_.network.nodes[result].op == "concat";
      table_.AddOption(result, collects ? FusionMode::kInPlace : FusionMode::kDefault);
      table_.OpenRecurrence(recurrence.nodes);
    }
  }

  void Add(int n) {
    const Node& node = facts_.network.nodes[n];
    if (table_.group_of(n) >= 0) return;  // joined with an earlier node, or in a recurrence
    if (facts_.view[n]) return table_.AddView(n);
    if (node.op == "concat" && concats_.PutInPlace(n)) return;
    if (node.op == "run_sums" && table_.Follow(node.inputs[0], n)) return;
    const bool elementwise = facts_.IsElementwise(n);
    if (elementwise && epilogues_.JoinDiamond(node)) return;
    if (rows_.JoinChain(node) || attention_.Join(n) || attention_.JoinTransposition(n)) return;
    if (elementwise && epilogues_.Join(n)) return;
    rows_.Opened(table_.Open(n));
  }

  const GroupingFacts& facts_;
  GroupTable table_;
  ConcatPlacement concats_{&table_};
  EpilogueFusion epilogues_{&table_};
  RowFusion rows_{&table_};
  AttentionFusion attention_{&table_, &rows_};
  ProducerFusion producers_{&table_, &rows_, &attention_};
};

}  // namespace

GroupingFacts::GroupingFacts(const Network& network)
    : network(network), consumers(network.Consumers()), producer(network.Producers()), depth(network.nodes.size(), 0) {
  for (size_t n = 0; n < network.nodes.size(); ++n) {
    const Node& node = network.nodes[n];
    const Operator& op = *FindOperator(node.op);
    kind.push_back(op.kind);
    view.push_back(op.is_view != nullptr && op.is_view(ArgsOf(network, node)));
    for (int input : node.inputs)
      if (producer[input] >= 0) depth[n] = std::max(depth[n], depth[producer[input]]);
    depth[n] += op.kind == OperatorKind::kAnchor;
  }
  recurrences = FindRecurrentNodes(*this);
}

int GroupingFacts::OnlyReader(int node) const {
  return diapason::OnlyReader(network, consumers, network.nodes[node].output);
}

bool GroupingFacts::AppendsForOneRow(int node) const {
  if (!AppendsRows(network, network.nodes[node])) return false;
  int last = node, reader = OnlyReader(node);
  const auto moves = [&](int n) { return network.nodes[n].op == "transpose" || network.nodes[n].op == "slice"; };
  for (; reader >= 0 && moves(reader); reader = OnlyReader(reader)) last = reader;
  if (reader < 0 || !IsProductOfOwnMatrix(network, network.nodes[reader])) return false;
  const std::vector<int>& factors = network.nodes[reader].inputs;
  return factors[1] == network.nodes[last].output && factors[0] != factors[1];
}

Grouping GroupNodes(const GroupingFacts& facts, const FusionModes& modes) { return Grouper(facts, modes).Run(); }

}  // namespace diapason
