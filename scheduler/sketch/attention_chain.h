// Attention: a product by the weights that a softmax makes of another product.
//
//     w[b, i, j] = softmax over j of f(sum over d of q[b, i, d] * k[b, j, d])
//     y[b, i, e] = sum over j of w[b, i, j] * v[b, j, e]
//
// with f any element-wise function (a scale, a mask, a bias); or, where w are exponentials only, y divided by their
// sums (the rewrite `attention`). All scores of some rows i fit on chip, so that one kernel computes the whole and the
// matrix of scores is never in memory (rules/attention.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/sketch/draft.h"

namespace diapason {

struct AttentionChain {
  int root = -1;                // element-wise, the output; reads each element of `product` once, its axes in any order
  int product = -1;             // sums over keys
  int weights = -1;             // element-wise: what the softmax gives, read by `product` alone
  int scores = -1;              // sums over the size of a head
  int seen = -1;                // what the softmax reads: `scores`, or an element-wise stage behind it
  std::vector<int> reductions;  // over the keys of a row, producers first
  bool divides_last = false;    // the output is divided by one of them, a sum of weights
  std::vector<int> between;     // other element-wise stages, consumers first
  std::vector<int> behind;      // element-wise stages between `product` and `root`, consumers first
  // Axes of stages by what they stand for; -1 where a stage has none.
  int query_of_product = -1, query_of_root = -1;  // rows that share keys and values, perhaps of one element
  int value_of_product = -1, value_of_root = -1;  // along a value
  int query_of_seen = -1, key_of_seen = -1;
  int query_of_scores = -1, key_of_scores = -1;
  int query_of_weights = -1, key_of_weights = -1;
  std::vector<int> query_of_reductions;                 // as `reductions`
  int64_t queries = 1, keys = 1, values = 1, size = 1;  // extents; `size`: terms of a score
  int keys_read = -1;     // the operand of `scores` that is read by key; -1 if the other one is the same tensor
  int queries_read = -1;  // the other one
  int values_read = -1;   // the operand of `product` that is not `weights`
};

// The attention that the dag's only output is, if it is one and nothing of it is scheduled yet. `root` is element-wise.
std::optional<AttentionChain> FindAttention(const Draft& draft, int root);

}  // namespace diapason
