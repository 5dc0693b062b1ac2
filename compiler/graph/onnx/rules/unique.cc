// Unique of a constant, which is folded: the extent of other results would depend on what the network computes.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// Compares slices along an axis, element by element. NaN is equal to itself and larger than other numbers.
class SliceOrder {
 public:
  SliceOrder(const Array& x, int64_t axis) : x_(x), extent_(x.shape[axis]) {
    for (size_t d = axis + 1; d < x.shape.size(); ++d) inner_ *= x.shape[d];
    outer_ = extent_ * inner_ == 0 ? 0 : x.elements() / (extent_ * inner_);
  }

  bool operator()(int64_t a, int64_t b) const {
    for (int64_t o = 0; o < outer_; ++o) {
      for (int64_t i = 0; i < inner_; ++i) {
        const int64_t at_a = (o * extent_ + a) * inner_ + i, at_b = (o * extent_ + b) * inner_ + i;
        if (Less(at_a, at_b)) return true;
        if (Less(at_b, at_a)) return false;
      }
    }
    return false;
  }

 private:
  bool Less(int64_t a, int64_t b) const {
    if (!IsFloat(x_.dtype)) return x_.int_at(a) < x_.int_at(b);
    const double x = x_.at(a), y = x_.at(b);
    return std::isnan(x) || std::isnan(y) ? !std::isnan(x) && std::isnan(y) : x < y;
  }

  const Array& x_;
  int64_t extent_, outer_ = 1, inner_ = 1;
};

// The distinct slices: where each is first, which of them each slice is, and how often each is there.
struct DistinctSlices {
  std::vector<int64_t> first, which, counts;
};

DistinctSlices FindDistinct(const Array& x, int64_t axis, bool sorted) {
  const int64_t n = x.shape[axis];
  std::map<int64_t, int64_t, SliceOrder> number{SliceOrder(x, axis)};  // of the slice that is first among its equals
  DistinctSlices found;
  for (int64_t i = 0; i < n; ++i) {
    if (number.emplace(i, static_cast<int64_t>(found.first.size())).second) found.first.push_back(i);
  }
  if (sorted) {
    found.first.clear();
    for (auto& [slice, rank] : number) {
      rank = static_cast<int64_t>(found.first.size());
      found.first.push_back(slice);
    }
  }
  found.counts.assign(found.first.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    found.which.push_back(number.at(i));
    ++found.counts[found.which.back()];
  }
  return found;
}

absl::Status ImportUnique(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  const bool sorted = node.Int("sorted", 1) != 0;
  int64_t axis = 0;
  if (node.Has("axis")) {
    axis = c.Axis(node.Int("axis", 0), x);
  } else {
    x = c.Reshape(x, {-1});
  }
  RETURN_IF_ERROR(c.status());
  if (!x->value)
    return absl::InvalidArgumentError(
        "the extent of its result depends on what the network computes: do it after the network");
  const DistinctSlices found = FindDistinct(*x->value, axis, sorted);
  const std::vector<int64_t>* lists[] = {&found.first, &found.which, &found.counts};
  for (int i = 0; i < 3; ++i) {
    if (node.IsRead(i + 1)) c.Set(i + 1, c.Indices(*lists[i]));
  }
  return c.Finish(c.Op("gather", {x, c.Indices(found.first)}, {{"axis", axis}}));
}

}  // namespace

std::vector<OnnxRule> Unique() { return {{"Unique", ImportUnique}}; }

}  // namespace diapason::onnx_rules
