#include "compiler/graph/grouping.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "compiler/graph/operator.h"
#include "compiler/graph/row_nodes.h"

namespace diapason {
namespace {

// What becomes one kernel is walked by recursion, and where its stages are inlined into each other, one that is read
// twice is there twice: x*x sixty times would be 2^60 products. Groups of real networks have some dozen nodes.
constexpr size_t kMaxGroupNodes = 128;
constexpr int64_t kMaxGroupTree = 1024;

// Producers that cost nothing to compute again at each place where they are read.
bool IsCheap(const std::string& op) {
  static const std::set<std::string>& cheap =
      *new std::set<std::string>{"relu", "clip", "add",        "sub", "mul",   "maximum", "minimum", "neg",
                                 "abs",  "cast", "leaky_relu", "pad", "slice", "expand",  "reshape", "where"};
  return cheap.count(op) != 0;
}

// Says only where elements of its input are.
bool Moves(const std::string& op) {
  static const std::set<std::string>& moves = *new std::set<std::string>{"transpose", "slice", "expand", "reshape"};
  return moves.count(op) != 0;
}

// Nodes up to the one in which all readers of a tensor meet.
constexpr size_t kNear = 8, kNearRows = 24;

class Grouper {
 public:
  Grouper(const GroupingFacts& facts, const Ways& ways)
      : facts_(facts),
        network_(facts.network),
        ways_(ways),
        consumers_(facts.consumers),
        producer_(facts.producer),
        group_of_(network_.nodes.size(), -1) {}

  Grouping Run() {
    for (int n = 0; n < static_cast<int>(network_.nodes.size()); ++n) {
      const Node& node = network_.nodes[n];
      if (facts_.view[n]) {
        result_.alias_of[node.output] = OwnerOf(node.inputs[0]);
        continue;
      }
      if (group_of_[n] >= 0) continue;  // inside a diamond
      if (node.op == "concat" && PutInPlace(n)) continue;
      const bool elementwise = IsElementwise(n);
      if (elementwise && JoinDiamond(node)) continue;
      if (JoinRows(node) || JoinAttention(n) || EndAttention(n)) continue;
      int group = elementwise ? GroupToJoin(n) : -1;
      if (group >= 0 && !MayHold(groups_[group].nodes, {n})) group = -1;
      if (group < 0) {
        group = static_cast<int>(groups_.size());
        groups_.push_back({});
        if (IsAnchor(n)) groups_[group].anchor = n;
        if (const std::optional<Rows> rows = RowsReducedBy(network_, node); rows && groups_[group].anchor >= 0)
          rows_[group] = *rows;
      }
      groups_[group].nodes.push_back(n);
      group_of_[n] = group;
    }
    JoinProductsOfRows();
    AbsorbProducers();
    Finish();
    return std::move(result_);
  }

 private:
  // A part of a concatenation, of a tensor that owns its memory.
  struct Part {
    int tensor;
    bool copied;  // by a kernel; else whoever makes it writes it there
    OutputPlace place;
  };

  Way WayOf(int node) const {
    auto it = ways_.find(node);
    return it == ways_.end() ? Way::kUsual : it->second;
  }

  bool IsAnchor(int n) const { return facts_.kind[n] == OperatorKind::kAnchor; }
  bool IsElementwise(int n) const { return facts_.kind[n] == OperatorKind::kElementwise; }

  int OwnerOf(int tensor) const {
    auto it = result_.alias_of.find(tensor);
    return it == result_.alias_of.end() ? tensor : it->second;
  }

  const Tensor& ResultOf(int node) const { return network_.tensors[network_.nodes[node].output]; }

  // The one node that reads the result of a node, or -1 if there are several or the network gives it out.
  int OnlyReader(int node) const {
    int tensor = network_.nodes[node].output;
    if (network_.is_output(tensor) || consumers_[tensor].size() != 1) return -1;
    return consumers_[tensor][0];
  }

  // What a group is worth as the place of an epilogue: the anchor that is deepest in the network, so that a residual
  // addition joins the main path and not its shortcut; then the one with the larger weights. Node numbers decide last:
  // the rest does not depend on the order of import.
  auto Rank(const Group& group) const {
    int anchor = group.anchor;
    int64_t weights = 0;
    if (anchor >= 0 && network_.nodes[anchor].inputs.size() > 1) {
      weights = network_.tensors[network_.nodes[anchor].inputs[1]].type.elements();
    }
    return std::make_tuple(anchor >= 0 ? facts_.depth[anchor] : -1, weights, group.nodes.back());
  }

  // Whether one group may have all these nodes: not too many, and none that is too large a tree of others when these
  // are inlined. The result of an anchor is not.
  bool MayHold(std::vector<int> nodes, const std::vector<int>& more) const {
    nodes.insert(nodes.end(), more.begin(), more.end());
    if (nodes.size() > kMaxGroupNodes) return false;
    std::sort(nodes.begin(), nodes.end());
    std::map<int, int64_t> size;  // of the tree that a tensor of the group is
    for (int n : nodes) {
      int64_t sum = 1;
      for (int input : network_.nodes[n].inputs) {
        const auto known = size.find(input);
        sum += known == size.end() ? 1 : known->second;
      }
      if (sum > kMaxGroupTree) return false;
      size[network_.nodes[n].output] = IsAnchor(n) ? 1 : sum;
    }
    return true;
  }

  // The group whose epilogue an elementwise node becomes, or -1.
  int GroupToJoin(int n) {
    const Node& node = network_.nodes[n];
    int best = -1, second = -1;
    for (int input : node.inputs) {
      int from = producer_[input];
      if (from < 0 || group_of_[from] < 0 || OnlyReader(from) < 0) continue;
      if (network_.tensors[input].type.shape != network_.tensors[node.output].type.shape) continue;
      int group = group_of_[from];
      if (group == best || group == second) continue;
      if (best < 0 || Rank(groups_[group]) > Rank(groups_[best])) std::swap(best, group);
      if (group >= 0 && (second < 0 || Rank(groups_[group]) > Rank(groups_[second]))) second = group;
    }
    if (best >= 0 && groups_[best].anchor >= 0 && ReadsResidual(node)) {
      result_.forks.push_back({n, Way::kApart});
      if (second >= 0 && groups_[second].anchor >= 0) result_.forks.push_back({n, Way::kShorterBranch});
    }
    if (WayOf(n) == Way::kApart) return -1;
    return WayOf(n) == Way::kShorterBranch && second >= 0 ? second : best;
  }

  // More than one operand is as large as the result and no constant.
  bool ReadsResidual(const Node& node) const {
    const int64_t elements = network_.tensors[node.output].type.elements();
    return std::count_if(node.inputs.begin(), node.inputs.end(), [&](int input) {
             const Tensor& tensor = network_.tensors[input];
             return !tensor.constant() && tensor.type.elements() == elements;
           }) > 1;
  }

  // Whether who makes a tensor may write it where a concatenation has it: nobody else reads it, in whatever shape.
  bool IsReadOnlyBy(int tensor, int reader) const {
    const std::vector<int>& inputs = network_.nodes[reader].inputs;
    if (std::count(inputs.begin(), inputs.end(), tensor) > 1) return false;
    for (int t = tensor;; t = network_.nodes[producer_[t]].inputs[0]) {
      if (network_.is_output(t) || consumers_[t].size() != 1 || producer_[t] < 0) return false;
      if (!result_.alias_of.count(t)) return true;
    }
  }

  // The parts of a concatenation, each at its place. Those of a part that is itself such a concatenation stand for it.
  std::vector<Part> PartsOf(int n) const {
    const Node& node = network_.nodes[n];
    const std::vector<int64_t>& shape = network_.tensors[node.output].type.shape;
    int64_t axis = node.attributes.Int("axis", 0), inner = 1, begin = 0;
    if (axis < 0) axis += static_cast<int64_t>(shape.size());
    for (size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
    const int64_t elements = network_.tensors[node.output].type.elements();
    std::vector<Part> parts;
    for (int input : node.inputs) {
      const TensorType& type = network_.tensors[input].type;
      const OutputPlace place{type.shape[axis] * inner, shape[axis] * inner, begin * inner, elements};
      begin += type.shape[axis];
      const int owner = OwnerOf(input), from = producer_[owner];
      const bool own = IsReadOnlyBy(input, n);
      const auto nested = from < 0 ? in_place_.end() : in_place_.find(from);
      if (own && nested != in_place_.end() && AddNested(nested->second, place, type.elements(), &parts)) continue;
      parts.push_back({own && from >= 0 && group_of_[from] >= 0 ? owner : input,
                       !(own && from >= 0 && group_of_[from] >= 0), place});
    }
    return parts;
  }

  bool AddNested(const std::vector<Part>& nested, const OutputPlace& outer, int64_t elements,
                 std::vector<Part>* parts) const {
    std::vector<Part> moved;
    for (const Part& part : nested) {
      const std::optional<OutputPlace> place =
          Compose(outer, part.place, network_.tensors[part.tensor].type.elements());
      if (!place) return false;
      moved.push_back({part.tensor, part.copied, *place});
    }
    parts->insert(parts->end(), moved.begin(), moved.end());
    return elements > 0;
  }

  // Has those that make the parts of a concatenation write them there, if it is to be so and can be: no more than one
  // part may need a kernel that copies it.
  bool PutInPlace(int n) {
    const Node& node = network_.nodes[n];
    std::vector<Part> parts = PartsOf(n);
    const auto copies = std::count_if(parts.begin(), parts.end(), [](const Part& part) { return part.copied; });
    const bool room = std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
      return part.place.Holds(network_.tensors[part.tensor].type.elements());
    });
    if (!room || copies > 1 || copies == static_cast<int64_t>(parts.size())) return false;
    result_.forks.push_back({n, WayOf(n) == Way::kInPlace ? Way::kKernel : Way::kInPlace});
    if (WayOf(n) != Way::kInPlace) return false;
    for (int input : node.inputs)
      if (const int from = producer_[OwnerOf(input)]; from >= 0 && IsReadOnlyBy(input, n)) EraseNested(from, parts);
    in_place_[n] = std::move(parts);
    return true;
  }

  // A concatenation whose parts went into another one.
  void EraseNested(int from, const std::vector<Part>& parts) {
    const int tensor = network_.nodes[from].output;
    const bool stays =
        std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return OwnerOf(part.tensor) == tensor; });
    if (!stays) in_place_.erase(from);
  }

  // x * sigmoid(x) and its like: where all ways from a group's result meet again in one elementwise node, over
  // elementwise nodes of the same shape only, those nodes join the group. True if the given node, the first of them,
  // did.
  bool JoinDiamond(const Node& node) {
    for (int input : node.inputs) {
      int from = producer_[input];
      if (from < 0 || group_of_[from] < 0 || groups_[group_of_[from]].nodes.back() != from ||
          consumers_[input].size() < 2)
        continue;
      if (JoinAll(group_of_[from], DiamondBehind(input))) return true;
    }
    return false;
  }

  // Adds nodes, if there are any and the group may hold them.
  bool JoinAll(int group, const std::vector<int>& nodes) {
    if (nodes.empty() || !MayHold(groups_[group].nodes, nodes)) return false;
    for (int n : nodes) group_of_[n] = group;
    groups_[group].nodes.insert(groups_[group].nodes.end(), nodes.begin(), nodes.end());
    return true;
  }

  // x - mean(x) and its like: what goes on with a group that reduces rows row by row, up to the node in which all ways
  // meet again. What only follows such a group element by element is left to others. True if the given node, the first
  // of them, joined.
  bool JoinRows(const Node& node) {
    for (int input : node.inputs) {
      const int from = producer_[input];
      if (from < 0 || group_of_[from] < 0 || groups_[group_of_[from]].nodes.back() != from) continue;
      const auto rows = rows_.find(group_of_[from]);
      if (rows == rows_.end()) continue;
      const std::vector<int64_t>& shape = network_.tensors[input].type.shape;
      const std::vector<int> nodes = NodesUpToMeeting(
          input, kNearRows, [&](int n) { return GoesByRows(network_, network_.nodes[n], rows->second); });
      const bool changes = std::any_of(nodes.begin(), nodes.end(),
                                       [&](int n) { return ResultOf(n).type.shape != shape || IsAnchor(n); });
      if (!changes || !JoinAll(group_of_[from], nodes)) continue;
      chains_.insert(group_of_[from]);
      return true;
    }
    return false;
  }

  // The group that ends with the node that makes a tensor, if all that reads it fulfils `reads`; else -1.
  int GroupReadOnlyBy(int tensor, const std::function<bool(int)>& reads) const {
    const int from = producer_[tensor];
    if (from < 0 || group_of_[from] < 0 || groups_[group_of_[from]].nodes.back() != from || network_.is_output(tensor))
      return -1;
    return std::all_of(consumers_[tensor].begin(), consumers_[tensor].end(), reads) ? group_of_[from] : -1;
  }

  // Whether rows are those of a tensor along its last dimension.
  bool AreLastOf(const Rows& rows, int tensor) const {
    const std::vector<int64_t>& shape = network_.tensors[tensor].type.shape;
    return rows.shape == shape && rows.axes == std::vector<int64_t>{static_cast<int64_t>(shape.size()) - 1};
  }

  // A product by what a softmax along rows makes of another product becomes one kernel with both. True if the given
  // node is one and did.
  bool JoinAttention(int n) {
    const Node& node = network_.nodes[n];
    if (node.op != "matmul") return false;
    const int softmax = GroupReadOnlyBy(node.inputs[0], [&](int reader) { return reader == n; });
    const auto rows = rows_.find(softmax);
    if (softmax < 0 || rows == rows_.end() || node.inputs[0] == node.inputs[1]) return false;
    if (!AreLastOf(rows->second, node.inputs[0])) return false;
    if (chains_.count(softmax) == 0 && network_.nodes[groups_[softmax].anchor].op != "softmax") return false;
    const int scored = network_.nodes[groups_[softmax].anchor].inputs[0];
    const int scores = GroupReadOnlyBy(scored, [&](int reader) { return group_of_[reader] == softmax; });
    if (scores < 0 || scores == softmax || attentions_.count(scores) > 0 || groups_[scores].anchor < 0) return false;
    if (network_.nodes[groups_[scores].anchor].op != "matmul") return false;
    std::vector<int> nodes = groups_[scores].nodes;
    nodes.insert(nodes.end(), groups_[softmax].nodes.begin(), groups_[softmax].nodes.end());
    if (!MayHold(nodes, {n})) return false;
    result_.forks.push_back({n, Way::kApart});
    if (WayOf(n) == Way::kApart) return false;
    nodes.push_back(n);
    std::sort(nodes.begin(), nodes.end());
    const int group = static_cast<int>(groups_.size());
    for (int joined : nodes) group_of_[joined] = group;
    for (int old : {scores, softmax}) groups_[old].nodes.clear();
    rows_.erase(softmax);
    groups_.push_back({});
    groups_[group].nodes = std::move(nodes);
    groups_[group].anchor = n;
    attentions_.insert(group);
    return true;
  }

  // Attention writes its result in the order in which it is read on.
  bool EndAttention(int n) {
    const Node& node = network_.nodes[n];
    if (node.op != "transpose") return false;
    const int group = GroupReadOnlyBy(node.inputs[0], [&](int reader) { return reader == n; });
    return group >= 0 && attentions_.count(group) > 0 && JoinAll(group, {n});
  }

  // The nodes between a tensor and the node in which all its readers meet, that one included and last; empty if there
  // is no such node near.
  std::vector<int> DiamondBehind(int tensor) const {
    return NodesUpToMeeting(tensor, kNear, [&](int n) {
      return IsElementwise(n) && !facts_.view[n] && ResultOf(n).type.shape == network_.tensors[tensor].type.shape;
    });
  }

  // The same for nodes that a condition holds for, at most so many.
  std::vector<int> NodesUpToMeeting(int tensor, size_t near, const std::function<bool(int)>& may_join) const {
    // Each reader takes a place: thousands of them (boxes that each step of a suppression reads) need no looking at.
    if (consumers_[tensor].size() > near || network_.is_output(tensor)) return {};
    std::set<int> open(consumers_[tensor].begin(), consumers_[tensor].end());  // readers to come, ascending
    std::vector<int> diamond;
    while (diamond.size() < near && !open.empty()) {
      int n = *open.begin();
      open.erase(open.begin());
      const Node& node = network_.nodes[n];
      if (group_of_[n] >= 0 || !may_join(n)) return {};
      diamond.push_back(n);
      if (open.empty()) return diamond;
      if (consumers_[node.output].size() > near || network_.is_output(node.output)) return {};
      open.insert(consumers_[node.output].begin(), consumers_[node.output].end());
    }
    return {};
  }

  // Whether an anchorless group may be computed inside the only node that reads it.
  bool MayAbsorb(const Group& producer, int reader) const {
    const Node& node = network_.nodes[reader];
    const auto suits = [this](int n) { return Moves(network_.nodes[n].op) || IsCheap(network_.nodes[n].op); };
    if (attentions_.count(group_of_[reader]) > 0 && std::all_of(producer.nodes.begin(), producer.nodes.end(), suits))
      return true;
    const bool elementwise = IsElementwise(reader);
    bool same_shape = ResultOf(producer.nodes.back()).type.shape == ResultOf(reader).type.shape;
    for (int n : producer.nodes) {
      const std::string& op = network_.nodes[n].op;
      if (IsCheap(op)) continue;
      // Read once at each point: any elementwise function or transpose will do.
      const bool pointwise = IsElementwise(n) || op == "transpose";
      if (elementwise && same_shape && pointwise) continue;
      if (pointwise && op != "transpose" && IsReadOnceByRows(producer, reader)) continue;
      if (op == "transpose" && (ReadsFewChannels(node) || HasOneRow(reader))) continue;
      return false;
    }
    // Data handed to a weight or parameter position of an anchor is read too often to be computed again, unless the
    // anchor reads it once.
    return elementwise || HasOneRow(reader) || node.inputs[0] == network_.nodes[producer.nodes.back()].output;
  }

  // pow(x, 2) in front of the mean of squares: a reduction of a chain reads each element once.
  bool IsReadOnceByRows(const Group& producer, int reader) const {
    if (chains_.count(group_of_[reader]) == 0 || network_.nodes[reader].op.rfind("reduce_", 0) != 0) return false;
    return ResultOf(producer.nodes.back()).type.shape == rows_.at(group_of_[reader]).shape;
  }

  // The first convolution of a network: its image (3 channels) is small, and in any layout read as single elements.
  bool ReadsFewChannels(const Node& node) const {
    if (node.op != "conv2d") return false;
    const std::vector<int64_t>& weight = network_.tensors[node.inputs[1]].type.shape;
    bool nhwc = node.attributes.String("layout", "NCHW") == "NHWC";
    return node.attributes.Int("group", 1) == 1 && weight[nhwc ? 2 : 1] <= 4;
  }

  // Whether the anchor of a group reads each element of its input several times, and so computes again what stands in
  // front.
  bool IsReadAgain(const Group& group) const {
    static const std::set<std::string>& again =
        *new std::set<std::string>{"conv2d", "gemm", "matmul", "max_pool", "avg_pool"};
    return group.anchor >= 0 && again.count(network_.nodes[group.anchor].op) != 0;
  }

  // Not only moves data.
  bool Computes(const Group& group) const {
    return std::any_of(group.nodes.begin(), group.nodes.end(), [&](int n) {
      const std::string& op = network_.nodes[n].op;
      return IsElementwise(n) && op != "cast" && op != "where";
    });
  }

  // The one node that reads what a group computes. Where all readers are in one chain of row reductions and the group
  // is cheap to compute again, the first of them. -1: there is none.
  int ReaderOf(const Group& producer) const {
    const int last = producer.nodes.back();
    if (const int only = OnlyReader(last); only >= 0) return only;
    const int tensor = network_.nodes[last].output;
    const std::vector<int>& readers = consumers_[tensor];
    if (network_.is_output(tensor) || readers.empty() || chains_.count(group_of_[readers[0]]) == 0) return -1;
    for (int reader : readers)
      if (group_of_[reader] != group_of_[readers[0]]) return -1;
    for (int n : producer.nodes)
      if (!IsCheap(network_.nodes[n].op)) return -1;
    return readers[0];
  }

  // Where the reader of a group is a view, and it is read through views alone by one node of an attention (heads that
  // are repeated): that node takes the reader's place.
  std::vector<int> ViewsInFrontOfAttention(int* reader) const {
    std::vector<int> views;
    int n = *reader;
    for (; n >= 0 && result_.alias_of.count(network_.nodes[n].output) > 0; n = OnlyReader(n)) views.push_back(n);
    if (n < 0 || attentions_.count(group_of_[n]) == 0) return {};
    *reader = n;
    return views;
  }

  // Whether a product has one row in each batch, so that it reads each element of its second operand once.
  bool HasOneRow(int n) const {
    const Node& node = network_.nodes[n];
    const std::vector<int64_t>& shape = ResultOf(n).type.shape;
    return node.op == "matmul" && shape.size() > 1 && shape[shape.size() - 2] == 1 &&
           network_.tensors[node.inputs[0]].type.shape.size() == shape.size() &&
           network_.tensors[node.inputs[1]].type.elements() >= network_.tensors[node.inputs[0]].type.elements();
  }

  // A normalised row, or the weights of attention that is taken apart, that a product of one row alone reads: its
  // reductions may be made again by each block of the product's kernel. The product; -1: there is none.
  int ProductOfRow(int g) const {
    const auto rows = rows_.find(g);
    if (rows == rows_.end() || groups_[g].nodes.empty()) return -1;
    const int last = groups_[g].nodes.back(), reader = OnlyReader(last);
    if (reader < 0 || group_of_[reader] < 0 || groups_[group_of_[reader]].anchor != reader || !HasOneRow(reader))
      return -1;
    const std::vector<int>& inputs = network_.nodes[reader].inputs;
    const int row = network_.nodes[last].output;
    return AreLastOf(rows->second, row) && inputs[0] == row && inputs[1] != row ? reader : -1;
  }

  // Gives the nodes of a group to that of a node.
  void MoveInto(int reader, Group* producer) {
    Group& into = groups_[group_of_[reader]];
    for (int n : producer->nodes) group_of_[n] = group_of_[reader];
    into.nodes.insert(into.nodes.end(), producer->nodes.begin(), producer->nodes.end());
    std::sort(into.nodes.begin(), into.nodes.end());
    producer->nodes.clear();
  }

  void JoinProductsOfRows() {
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
      const int product = ProductOfRow(g);
      if (product < 0 || !MayHold(groups_[g].nodes, groups_[group_of_[product]].nodes)) continue;
      const int last = groups_[g].nodes.back();
      const bool apart = WayOf(product) == Way::kApart;  // of attention
      if (!apart) result_.forks.push_back({last, Way::kInProduct});
      if (apart || WayOf(last) == Way::kInProduct) MoveInto(product, &groups_[g]);
    }
  }

  // Backwards, so that chains are absorbed whole.
  void AbsorbProducers() {
    for (int g = static_cast<int>(groups_.size()) - 1; g >= 0; --g) {
      Group& producer = groups_[g];
      if (producer.anchor >= 0) continue;
      int reader = ReaderOf(producer);
      const std::vector<int> views = ViewsInFrontOfAttention(&reader);
      if (reader < 0 || group_of_[reader] < 0 || !MayAbsorb(producer, reader)) continue;
      Group& into = groups_[group_of_[reader]];
      if (!MayHold(producer.nodes, into.nodes)) continue;
      if (IsReadAgain(into) && Computes(producer)) result_.forks.push_back({producer.nodes.back(), Way::kApart});
      if (WayOf(producer.nodes.back()) == Way::kApart) continue;
      producer.nodes.insert(producer.nodes.end(), views.begin(), views.end());
      for (int view : views) result_.alias_of.erase(network_.nodes[view].output);
      MoveInto(reader, &producer);
    }
  }

  // Tells the groups what they write, adds those that copy, and puts all in order.
  void Finish() {
    for (Group& group : groups_) {
      if (group.nodes.empty()) continue;
      group.order = group.nodes.back();
      group.output = network_.nodes[group.order].output;
    }
    for (const auto& [n, parts] : in_place_) {
      for (const Part& part : parts) {
        if (part.copied) groups_.push_back({{}, -1, part.tensor, n, -1, {}});
        Group& group = part.copied ? groups_.back() : groups_[group_of_[producer_[part.tensor]]];
        group.output = network_.nodes[n].output;
        group.place = part.place;
      }
    }
    for (Group& group : groups_)
      if (group.output >= 0) result_.groups.push_back(std::move(group));
    std::stable_sort(result_.groups.begin(), result_.groups.end(),
                     [](const Group& a, const Group& b) { return a.order < b.order; });
  }

  const GroupingFacts& facts_;
  const Network& network_;
  const Ways& ways_;
  const std::vector<std::vector<int>>& consumers_;
  const std::vector<int>& producer_;
  std::vector<int> group_of_;
  std::vector<Group> groups_;
  std::map<int, Rows> rows_;                   // by group: that its anchor reduces
  std::set<int> chains_;                       // of these groups, those that go on row by row
  std::set<int> attentions_;                   // groups
  std::map<int, std::vector<Part>> in_place_;  // by concatenation
  Grouping result_;
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
}

Grouping GroupNodes(const GroupingFacts& facts, const Ways& ways) { return Grouper(facts, ways).Run(); }

}  // namespace diapason
