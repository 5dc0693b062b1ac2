#include "compiler/tensor/simplify/interner.h"

#include <algorithm>

#include "compiler/tensor/simplify/affine.h"

namespace diapason::simplify {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

uint64_t AddressOf(const Expr& e) { return reinterpret_cast<uintptr_t>(e.get()); }

bool IsLiteral(const Expr& e) { return IsKind(e, ExprKind::kIntImm) || IsKind(e, ExprKind::kFloatImm); }

uint64_t HashOf(const ExprNode& e) {
  uint64_t hash = Mix(static_cast<uint64_t>(e.kind), static_cast<uint64_t>(e.buffer));
  for (const Expr& arg : e.args) hash = Mix(hash, IsLiteral(arg) ? static_cast<uint64_t>(arg->value) : AddressOf(arg));
  return hash;
}

uint64_t HashOf(const Affine& a) {
  uint64_t hash = static_cast<uint64_t>(a.constant);
  for (const auto& [term, coefficient] : a.terms) hash += Mix(AddressOf(term), static_cast<uint64_t>(coefficient));
  return hash;
}

bool SameNode(const ExprNode& a, const ExprNode& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.buffer != b.buffer || a.name != b.name) return false;
  return std::equal(a.args.begin(), a.args.end(), b.args.begin(), b.args.end(),
                    [](const Expr& x, const Expr& y) { return x == y || (IsLiteral(x) && Equal(x, y)); });
}

}  // namespace

Expr Interner::Node(const Expr& e) {
  if (e->args.empty()) return e;
  for (const Expr& known : nodes_[HashOf(*e)])
    if (SameNode(*known, *e)) return known;
  nodes_[HashOf(*e)].push_back(e);
  return e;
}

Expr Interner::Sum(const Affine& a) {
  if (a.terms.empty()) return IntImm(a.constant);
  if (a.terms.size() == 1 && a.constant == 0 && a.terms[0].second == 1) return a.terms[0].first;
  std::vector<std::pair<Affine, Expr>>& bucket = sums_[HashOf(a)];
  for (const auto& [sum, e] : bucket)
    if (sum.constant == a.constant && sum.terms.size() == a.terms.size() && ContainsTerms(sum, a, 1)) return e;
  bucket.emplace_back(a, FromAffine(a));
  return bucket.back().second;
}

}  // namespace diapason::simplify
