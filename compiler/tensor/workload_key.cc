#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {
namespace {

// Keys are stored in histories: the mixing below and the order in which things are mixed never change.
class Hash128 {
 public:
  void Add(uint64_t word) {
    low_ = Mix((low_ ^ word) * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du);
    high_ = Mix((high_ + word) * 0xd6e8feb86659fd93u ^ (low_ >> 32));
  }
  void Add(const std::string& text) {
    Add(text.size());
    for (unsigned char c : text) Add(c);
  }
  void Add(const Hash128& other) {
    Add(other.low_);
    Add(other.high_);
  }
  std::string Hex() const {
    return absl::StrCat(absl::Hex(high_, absl::kZeroPad16), absl::Hex(low_, absl::kZeroPad16));
  }

 private:
  // The finaliser of MurmurHash3: every bit of the input moves every bit of the output.
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
  }

  uint64_t low_ = 0x6a09e667f3bcc908u, high_ = 0xbb67ae8584caa73bu;
};

uint64_t BitsOf(double value) {
  if (std::isnan(value)) return 0x7ff8000000000000u;
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Numbers stages in the order in which they are met from the outputs, and variables by their place in the stage:
// neither names nor the order of `stages` show.
class Canonicaliser {
 public:
  explicit Canonicaliser(const ComputeDag& dag) : dag_(dag), number_of_(dag.size(), -1) {}

  Hash128 Run() {
    hash_.Add("diapason workload 1");
    hash_.Add(dag_.outputs().size());
    for (int output : dag_.outputs()) NumberOf(output);
    for (size_t i = 0; i < order_.size(); ++i) AddStage(dag_.stage(order_[i]));
    return hash_;
  }

 private:
  uint64_t NumberOf(int stage) {
    if (number_of_[stage] < 0) {
      number_of_[stage] = static_cast<int>(order_.size());
      order_.push_back(stage);
    }
    return static_cast<uint64_t>(number_of_[stage]);
  }

  void AddStage(const Stage& stage) {
    hash_.Add(static_cast<uint64_t>(stage.dtype));
    hash_.Add(static_cast<uint64_t>(stage.combiner));
    hash_.Add((stage.placeholder ? 1 : 0) | (stage.constant ? 2 : 0));
    hash_.Add(static_cast<uint64_t>(stage.valid_min));
    hash_.Add(static_cast<uint64_t>(stage.valid_max));
    position_of_var_.clear();
    node_hashes_.clear();
    AddAxes(stage.axes, stage.unroll_axes);
    AddAxes(stage.reduce_axes, stage.unroll_axes);
    if (stage.body != nullptr) hash_.Add(HashOf(stage.body));
  }

  void AddAxes(const std::vector<Axis>& axes, const std::vector<std::string>& unrolled) {
    hash_.Add(axes.size());
    for (const Axis& axis : axes) {
      position_of_var_.emplace(axis.var.get(), position_of_var_.size());
      hash_.Add(static_cast<uint64_t>(axis.extent));
      hash_.Add(static_cast<uint64_t>(std::count(unrolled.begin(), unrolled.end(), axis.var->name) > 0));
    }
  }

  // Shared nodes are hashed once. Nodes are visited in the order of their text, which is what numbers the loads.
  const Hash128& HashOf(const Expr& e) {
    auto known = node_hashes_.find(e.get());
    if (known != node_hashes_.end()) return known->second;
    Hash128 hash;
    hash.Add(static_cast<uint64_t>(e->kind));
    hash.Add(static_cast<uint64_t>(e->dtype));
    switch (e->kind) {
      case ExprKind::kIntImm: hash.Add(static_cast<uint64_t>(e->value)); break;
      case ExprKind::kFloatImm: hash.Add(BitsOf(e->fvalue)); break;
      case ExprKind::kVar: hash.Add(position_of_var_.at(e.get())); break;
      case ExprKind::kCall: hash.Add(e->name); break;
      case ExprKind::kLoad: hash.Add(NumberOf(e->buffer)); break;
      default: break;
    }
    hash.Add(e->args.size());
    for (const Expr& arg : e->args) hash.Add(HashOf(arg));
    return node_hashes_.emplace(e.get(), hash).first->second;
  }

  const ComputeDag& dag_;
  Hash128 hash_;
  std::vector<int> number_of_;  // by stage; -1: not met
  std::vector<int> order_;
  std::unordered_map<const ExprNode*, uint64_t> position_of_var_;  // of the stage at hand
  std::unordered_map<const ExprNode*, Hash128> node_hashes_;       // of the stage at hand
};

}  // namespace

std::string ComputeDag::workload_key() const {
  const std::vector<int64_t> shape = stages_[outputs_[0]].shape();
  return absl::StrCat(Canonicaliser(*this).Run().Hex(), "_", shape.empty() ? "scalar" : absl::StrJoin(shape, "x"));
}

}  // namespace diapason
