#include "compiler/graph/grouping/producer_fusion.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "compiler/graph/row_nodes.h"

namespace diapason {
namespace {

// Only moves elements.
bool Moves(const std::string& op) {
  static const std::set<std::string>& moves = *new std::set<std::string>{"transpose", "slice", "expand", "reshape"};
  return moves.contains(op);
}

// The first convolution of a network: its image (3 channels) is small, and read element by element in any layout.
bool ReadsFewChannels(const Network& network, const Node& node) {
  if (node.op != "conv2d") return false;
  const std::vector<int64_t>& weight = network.tensors[node.inputs[1]].type.shape;
  const bool nhwc = node.attributes.String("layout", "NCHW") == "NHWC";
  return node.attributes.Int("group", 1) == 1 && weight[nhwc ? 2 : 1] <= 4;
}

}  // namespace

bool IsCheapToRepeat(const std::string& op) {
  static const std::set<std::string>& cheap =
      *new std::set<std::string>{"relu", "clip", "add",        "sub", "mul",   "maximum", "minimum", "neg",
                                 "abs",  "cast", "leaky_relu", "pad", "slice", "expand",  "reshape", "where"};
  return cheap.contains(op);
}

// The one node that reads what a group computes. Where all readers are in one chain of row reductions and the group is
// cheap to compute again, the first of them. -1: there is none.
int ProducerFusion::ReaderOf(const Group& producer) const {
  const GroupingFacts& facts = table_.facts();
  const int last = producer.nodes.back();
  if (const int only = facts.OnlyReader(last); only >= 0) return only;
  const int tensor = facts.network.nodes[last].output;
  const std::vector<int>& readers = facts.consumers[tensor];
  if (facts.network.is_output(tensor) || readers.empty() || !rows_.IsChain(table_.group_of(readers[0]))) return -1;
  for (int reader : readers)
    if (table_.group_of(reader) != table_.group_of(readers[0])) return -1;
  for (int n : producer.nodes)
    if (!IsCheapToRepeat(facts.network.nodes[n].op)) return -1;
  return readers[0];
}

// Where the reader of a group is a view that one node of an attention, or of a product of one row, alone reads, through
// further views or none (heads that are repeated): the views. That node takes the reader's place.
std::vector<int> ProducerFusion::ViewsInFront(int* reader) const {
  std::vector<int> views;
  int n = *reader;
  for (; n >= 0 && table_.IsView(table_.network().nodes[n].output); n = table_.facts().OnlyReader(n))
    views.push_back(n);
  if (n < 0 || (!attention_.IsAttention(table_.group_of(n)) && !ReadsOnce(n))) return {};
  *reader = n;
  return views;
}

// Whether a node reads each element of an operand once, wherever it is: a product of one row, and what joins tensors
// for it.
bool ProducerFusion::ReadsOnce(int reader) const {
  const Network& network = table_.network();
  return IsProductOfOneRow(network, network.nodes[reader]) || table_.facts().AppendsForOneRow(reader);
}

// Whether an anchorless group may be computed inside the only node that reads it.
bool ProducerFusion::MayAbsorb(const Group& producer, int reader) const {
  const GroupingFacts& facts = table_.facts();
  const Network& network = facts.network;
  const Node& node = network.nodes[reader];
  const auto suits = [&](int n) {
    const std::string& op = network.nodes[n].op;
    return Moves(op) || IsCheapToRepeat(op) || facts.AppendsForOneRow(n);
  };
  // Anything else would stand in the way of loads of vectors from either tensor.
  if (facts.AppendsForOneRow(reader)) {
    return std::all_of(producer.nodes.begin(), producer.nodes.end(), [&](int n) { return Moves(network.nodes[n].op); });
  }
  if (attention_.IsAttention(table_.group_of(reader)) &&
      std::all_of(producer.nodes.begin(), producer.nodes.end(), suits))
    return true;
  const bool elementwise = facts.IsElementwise(reader);
  const bool one_row = IsProductOfOneRow(network, node);
  const bool same_shape = facts.ResultOf(producer.nodes.back()).type.shape == facts.ResultOf(reader).type.shape;
  for (int n : producer.nodes) {
    const std::string& op = network.nodes[n].op;
    if (IsCheapToRepeat(op) || facts.AppendsForOneRow(n)) continue;
    // Each element is read once: any element-wise function, transposition or look-up will do. A look-up goes into no
    // kernel that an anchor reads several times.
    const bool pointwise = facts.IsElementwise(n) || op == "transpose";
    const bool looked_up = op == "gather" && table_.group(table_.group_of(reader)).anchor < 0;
    if (elementwise && same_shape && (pointwise || looked_up)) continue;
    if (pointwise && op != "transpose" && IsReadOnceByRows(producer, reader)) continue;
    if (op == "transpose" && (ReadsFewChannels(network, node) || one_row)) continue;
    return false;
  }
  // An anchor reads its weights and parameters too often to compute them again, unless it reads them once.
  return elementwise || one_row || node.inputs[0] == network.nodes[producer.nodes.back()].output;
}

// pow(x, 2) in front of the mean of squares: a reduction of a chain reads each element once.
bool ProducerFusion::IsReadOnceByRows(const Group& producer, int reader) const {
  const int chain = table_.group_of(reader);
  if (!rows_.IsChain(chain) || table_.network().nodes[reader].op.rfind("reduce_", 0) != 0) return false;
  return table_.facts().ResultOf(producer.nodes.back()).type.shape == rows_.RowsOf(chain)->shape;
}

// Whether a group does more than move data, and the anchor of its reader reads each element of its input several times.
bool ProducerFusion::IsComputedAgainIn(const Group& producer, const Group& reader) const {
  static const std::set<std::string>& reads_again =
      *new std::set<std::string>{"conv2d", "gemm", "matmul", "max_pool", "avg_pool"};
  if (reader.anchor < 0 || !reads_again.contains(table_.network().nodes[reader.anchor].op)) return false;
  return std::any_of(producer.nodes.begin(), producer.nodes.end(), [&](int n) {
    const std::string& op = table_.network().nodes[n].op;
    return table_.facts().IsElementwise(n) && op != "cast" && op != "where";
  });
}

void ProducerFusion::AbsorbAll() {
  for (int g = table_.size() - 1; g >= 0; --g) {  // backwards, so that chains are absorbed whole
    const Group& producer = table_.group(g);
    if (producer.anchor >= 0 || producer.recurrence || producer.nodes.empty() || producer.follower >= 0) continue;
    int reader = ReaderOf(producer);
    const std::vector<int> views = ViewsInFront(&reader);
    if (reader < 0 || table_.group_of(reader) < 0 || !MayAbsorb(producer, reader)) continue;
    const int into = table_.group_of(reader), last = producer.nodes.back();
    if (table_.group(into).recurrence) continue;
    if (!table_.MayHold(producer.nodes, table_.group(into).nodes)) continue;
    if (IsComputedAgainIn(producer, table_.group(into))) table_.AddOption(last, FusionMode::kApart);
    if (table_.ModeOf(last) == FusionMode::kApart) continue;
    table_.MoveNodes(g, into);
    table_.MoveViews(views, into);
  }
}

}  // namespace diapason
