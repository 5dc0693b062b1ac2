#include "compiler/tensor/tree_size.h"

#include <algorithm>
#include <unordered_map>

namespace diapason {
namespace {

// Sizes of nodes that were met, so that each is looked at once.
class TreeMeasurer {
 public:
  TreeSize Measure(const ExprNode& e) {
    if (const auto known = sizes_.find(&e); known != sizes_.end()) return known->second;
    TreeSize size{1, 1};
    for (const Expr& arg : e.args) {
      const TreeSize part = Measure(*arg);
      size.nodes = std::min(size.nodes + part.nodes, kMost);
      size.depth = std::max(size.depth, part.depth + 1);
    }
    sizes_.emplace(&e, size);
    return size;
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 60;
  std::unordered_map<const ExprNode*, TreeSize> sizes_;
};

}  // namespace

TreeSize TreeSizeOf(const Expr& e) { return TreeMeasurer().Measure(*e); }

}  // namespace diapason
