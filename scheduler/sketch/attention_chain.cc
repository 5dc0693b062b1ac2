#include "scheduler/sketch/attention_chain.h"

#include <algorithm>
#include <map>

#include "scheduler/sketch/row_chain.h"

namespace diapason {
namespace {

constexpr int kUnread = -1, kElsewhere = -2;

bool IsFree(const Draft& draft, int id) {
  return draft.IsUnscheduled(id) && draft.state().stage(id).computes() && !draft.state().stage(id).prologue;
}

// The axis of a stage that an index is, counted through spatial and reduce axes; -1 if it is none.
int AxisOf(const Stage& op, const Expr& index) {
  for (size_t a = 0; a < op.axes.size(); ++a)
    if (index == op.axes[a].var) return static_cast<int>(a);
  for (size_t a = 0; a < op.reduce_axes.size(); ++a)
    if (index == op.reduce_axes[a].var) return static_cast<int>(op.axes.size() + a);
  return -1;
}

class AttentionFinder {
 public:
  AttentionFinder(const Draft& draft, int root) : draft_(draft), state_(draft.state()) { chain_.root = root; }

  std::optional<AttentionChain> Run() {
    if (FindProduct() && FindWeights() && Follow() && FindSeen() && NameAxes()) return chain_;
    return std::nullopt;
  }

 private:
  const Stage& op(int id) const { return state_.stage(id).op; }

  // Loads of computed stages in a body.
  std::vector<const ExprNode*> LoadsOf(int id) const {
    std::vector<const ExprNode*> loads;
    Visit(op(id).body, [&](const ExprNode& e) {
      if (e.kind == ExprKind::kLoad) loads.push_back(&e);
    });
    return loads;
  }

  // The only reduction that the output reads if through element-wise stages, each of its elements for one of the
  // output; axes may be in another order.
  bool FindProduct() {
    std::map<int, std::vector<int>> places;  // by stage: axes of the root by which its dimensions are read
    for (int axis = 0; axis < static_cast<int>(op(chain_.root).axes.size()); ++axis)
      places[chain_.root].push_back(axis);
    for (int id = chain_.root; id == chain_.root || !op(id).reduces(); id = chain_.product) {
      chain_.product = -1;
      for (const ExprNode* load : LoadsOf(id)) {
        const int producer = load->buffer;
        if (!IsFree(draft_, producer) || !(op(producer).reduces() || ReadsReductions(draft_, producer))) continue;
        if (op(producer).reduces() && op(producer).elements() < op(id).elements()) {
          sums_of_weights_.push_back(producer);
          continue;
        }
        std::vector<int> read;
        for (const Expr& index : load->args) {
          const int axis = AxisOf(op(id), index);
          read.push_back(axis < 0 ? kUnread : places.at(id)[axis]);
        }
        if (chain_.product >= 0 && (chain_.product != producer || places.at(producer) != read)) return false;
        chain_.product = producer;
        places[producer] = std::move(read);
      }
      if (chain_.product < 0 || state_.Consumers(chain_.product) != std::vector<int>{id}) return false;
      if (!op(chain_.product).reduces()) chain_.behind.push_back(chain_.product);
    }
    root_axis_ = places.at(chain_.product);
    std::vector<bool> read(op(chain_.root).axes.size(), false);
    for (size_t a = 0; a < root_axis_.size(); ++a) {
      if (root_axis_[a] >= 0)
        read[root_axis_[a]] = true;
      else if (op(chain_.product).axes[a].extent > 1)
        return false;
    }
    for (size_t a = 0; a < read.size(); ++a)
      if (!read[a] && op(chain_.root).axes[a].extent > 1) return false;
    return op(chain_.product).elements() == op(chain_.root).elements() &&
           op(chain_.product).combiner == Combiner::kSum && op(chain_.product).reduce_axes.size() == 1;
  }

  // The operand that is computed: element-wise, and by rows of what is summed over.
  bool FindWeights() {
    const Stage& product = op(chain_.product);
    const int key = static_cast<int>(product.axes.size());
    const ExprNode* load = nullptr;
    for (const ExprNode* l : LoadsOf(chain_.product)) {
      if (!IsFree(draft_, l->buffer) || op(l->buffer).reduces()) continue;
      const bool by_key =
          std::any_of(l->args.begin(), l->args.end(), [&](const Expr& i) { return AxisOf(product, i) == key; });
      if (!by_key || !ReadsReductions(draft_, l->buffer)) continue;
      if (load != nullptr && load->buffer != l->buffer) return false;
      load = l;
    }
    if (load == nullptr) return false;
    chain_.weights = load->buffer;
    for (int consumer : state_.Consumers(chain_.weights))
      if (consumer != chain_.product && std::count(sums_of_weights_.begin(), sums_of_weights_.end(), consumer) == 0)
        return false;
    for (size_t d = 0; d < load->args.size(); ++d) {
      const int axis = AxisOf(product, load->args[d]);
      if (axis < 0 && op(chain_.weights).axes[d].extent > 1) return false;
      if (axis >= 0 && std::count(product_axis_.begin(), product_axis_.end(), axis) > 0) return false;
      product_axis_.push_back(axis);
      if (axis == key) chain_.key_of_weights = static_cast<int>(d);
    }
    return chain_.key_of_weights >= 0;
  }

  // From the weights to the scores; consumers before producers.
  bool Follow() {
    const int rank = static_cast<int>(op(chain_.weights).axes.size());
    for (int d = 0; d < rank; ++d) places_[chain_.weights].push_back(d);
    for (int sum : sums_of_weights_)
      if (!PlaceSum(sum)) return false;
    chain_.divides_last = !sums_of_weights_.empty();
    const std::vector<int>& order = state_.topological();
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const int id = *it;
      if (places_.count(id) == 0 || !state_.stage(id).computes() || state_.stage(id).prologue) continue;
      if (!IsFree(draft_, id) || state_.is_output(id)) return false;
      if (op(id).reduces()) {
        if (IsRowReduction(id)) {
          chain_.reductions.push_back(id);
        } else if (IsWhole(id) && op(id).combiner == Combiner::kSum && op(id).reduce_axes.size() == 1 &&
                   chain_.scores < 0) {
          chain_.scores = id;
          continue;
        } else {
          return false;
        }
      } else if (id != chain_.weights) {
        chain_.between.push_back(id);
      }
      for (const ExprNode* load : LoadsOf(id)) Place(id, *load);
    }
    std::reverse(chain_.reductions.begin(), chain_.reductions.end());
    return chain_.scores >= 0 && !chain_.reductions.empty();
  }

  // A sum of the weights of a row.
  bool PlaceSum(int sum) {
    const std::vector<const ExprNode*> loads = LoadsOf(sum);
    if (loads.size() != 1 || loads[0]->buffer != chain_.weights) return false;
    std::vector<int>& places = places_[sum];
    places.assign(op(sum).axes.size(), kUnread);
    for (size_t d = 0; d < loads[0]->args.size(); ++d) {
      const int axis = AxisOf(op(sum), loads[0]->args[d]);
      if (axis >= 0 && axis < static_cast<int>(places.size())) places[axis] = static_cast<int>(d);
    }
    return true;
  }

  // By which dimension of the weights a producer's dimensions are read; a row's reduction reads its row along the keys.
  void Place(int reader, const ExprNode& load) {
    std::vector<int>& places = places_[load.buffer];
    places.resize(load.args.size(), kUnread);
    const int spatial = static_cast<int>(op(reader).axes.size());
    for (size_t d = 0; d < load.args.size(); ++d) {
      const int axis = AxisOf(op(reader), load.args[d]);
      int place = kElsewhere;
      if (axis >= spatial)
        place = chain_.key_of_weights;
      else if (axis >= 0)
        place = places_.at(reader)[axis];
      places[d] = places[d] == kUnread || places[d] == place ? place : kElsewhere;
    }
  }

  // Places of a stage's dimensions of more than one element, ascending.
  std::vector<int> PlacesOf(int id) const {
    std::vector<int> places;
    for (size_t d = 0; d < op(id).axes.size(); ++d)
      if (op(id).axes[d].extent > 1) places.push_back(places_.at(id)[d]);
    std::sort(places.begin(), places.end());
    return places;
  }

  std::vector<int> LongDims(bool with_key) const {
    std::vector<int> dims;
    const Stage& weights = op(chain_.weights);
    for (int d = 0; d < static_cast<int>(weights.axes.size()); ++d)
      if (weights.axes[d].extent > 1 && (with_key || d != chain_.key_of_weights)) dims.push_back(d);
    return dims;
  }

  bool IsWhole(int id) const { return PlacesOf(id) == LongDims(true); }
  bool IsRowReduction(int id) const {
    return PlacesOf(id) == LongDims(false) && op(id).reduce_axes.size() == 1 &&
           op(id).terms() == op(chain_.weights).axes[chain_.key_of_weights].extent;
  }

  // The last stage that all that reads the scores reads them through.
  bool FindSeen() {
    chain_.seen = chain_.scores;
    while (true) {
      const std::vector<int> consumers = state_.Consumers(chain_.seen);
      if (consumers.size() != 1 || op(consumers[0]).reduces() || consumers[0] == chain_.weights ||
          !IsWhole(consumers[0]))
        break;
      chain_.seen = consumers[0];
    }
    std::erase(chain_.between, chain_.seen);
    return true;
  }

  int AxisAt(int id, int dim) const {
    if (dim < 0) return -1;
    const std::vector<int>& places = places_.at(id);
    const auto it = std::find(places.begin(), places.end(), dim);
    return it == places.end() ? -1 : static_cast<int>(it - places.begin());
  }

  // The query axis is the last of the weights' by which the other operand is not read.
  bool NameAxes() {
    const Stage& product = op(chain_.product);
    std::vector<bool> in_values(product.axes.size(), false);
    for (const ExprNode* load : LoadsOf(chain_.product)) {
      if (load->buffer == chain_.weights) continue;
      for (size_t a = 0; a < product.axes.size(); ++a)
        for (const Expr& index : load->args) in_values[a] = in_values[a] || UsesVar(index, product.axes[a].var.get());
    }
    for (int a = 0; a < static_cast<int>(product.axes.size()); ++a) {
      if (product.axes[a].extent == 1) continue;
      const auto dim = std::find(product_axis_.begin(), product_axis_.end(), a);
      if (dim != product_axis_.end() && !in_values[a]) {
        chain_.query_of_product = a;
        chain_.query_of_weights = static_cast<int>(dim - product_axis_.begin());
      } else if (dim == product_axis_.end()) {
        if (chain_.value_of_product >= 0) return false;
        chain_.value_of_product = a;
      }
    }
    if (chain_.query_of_product < 0) NameOneQuery(in_values);
    chain_.keys = op(chain_.weights).axes[chain_.key_of_weights].extent;
    if (chain_.query_of_product >= 0) chain_.query_of_root = root_axis_[chain_.query_of_product];
    if (chain_.value_of_product >= 0) chain_.value_of_root = root_axis_[chain_.value_of_product];
    if (chain_.query_of_product >= 0) chain_.queries = product.axes[chain_.query_of_product].extent;
    if (chain_.value_of_product >= 0) chain_.values = product.axes[chain_.value_of_product].extent;
    chain_.size = op(chain_.scores).terms();
    chain_.query_of_scores = AxisAt(chain_.scores, chain_.query_of_weights);
    chain_.key_of_scores = AxisAt(chain_.scores, chain_.key_of_weights);
    chain_.query_of_seen = AxisAt(chain_.seen, chain_.query_of_weights);
    chain_.key_of_seen = AxisAt(chain_.seen, chain_.key_of_weights);
    for (int id : chain_.reductions) chain_.query_of_reductions.push_back(AxisAt(id, chain_.query_of_weights));
    FindKeysRead();
    return chain_.keys > 1 && chain_.value_of_product >= 0;
  }

  // Of one query: the last axis of one element by which the weights alone are read.
  void NameOneQuery(const std::vector<bool>& in_values) {
    for (int a = static_cast<int>(in_values.size()); a-- > 0;) {
      const auto dim = std::find(product_axis_.begin(), product_axis_.end(), a);
      if (dim == product_axis_.end() || in_values[a] || root_axis_[a] < 0) continue;
      chain_.query_of_product = a;
      chain_.query_of_weights = static_cast<int>(dim - product_axis_.begin());
      return;
    }
  }

  void FindKeysRead() {
    const Stage& scores = op(chain_.scores);
    const int key = AxisAt(chain_.scores, chain_.key_of_weights);
    std::vector<int> operands;
    for (const ExprNode* load : LoadsOf(chain_.scores)) {
      const bool by_key = std::any_of(load->args.begin(), load->args.end(),
                                      [&](const Expr& i) { return UsesVar(i, scores.axes[key].var.get()); });
      (by_key ? chain_.keys_read : chain_.queries_read) = load->buffer;
      operands.push_back(load->buffer);
    }
    for (const ExprNode* load : LoadsOf(chain_.product))
      if (load->buffer != chain_.weights) chain_.values_read = load->buffer;
    if (std::count(operands.begin(), operands.end(), chain_.keys_read) > 1) chain_.keys_read = -1;
  }

  const Draft& draft_;
  const State& state_;
  AttentionChain chain_;
  std::vector<int> sums_of_weights_;        // what the output reads beside the product
  std::vector<int> root_axis_;              // by axis of the product: the root's; -1: none
  std::vector<int> product_axis_;           // by dimension of the weights: the product's axis; -1: none
  std::map<int, std::vector<int>> places_;  // by stage: of each dimension
};

}  // namespace

std::optional<AttentionChain> FindAttention(const Draft& draft, int root) {
  const StageState& s = draft.state().stage(root);
  if (!IsFree(draft, root) || s.op.reduces() || s.op.axes.empty() || draft.state().outputs() != std::vector<int>{root})
    return std::nullopt;
  return AttentionFinder(draft, root).Run();
}

}  // namespace diapason
