#include "compiler/graph/padding.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/padding/facts.h"
#include "compiler/graph/padding/rules.h"

namespace diapason {
namespace {

// The rule of an operator; null where there is none.
PaddingRule PaddingRuleOf(const std::string& op) {
  for (const auto* rules : {&PaddingRulesOfMoves(), &PaddingRulesOfReductions(), &PaddingRulesOfProducts()})
    if (const auto rule = rules->find(op); rule != rules->end()) return rule->second;
  if (op == "expand" || op == "where") return FollowElementwise;
  const Operator& described = *FindOperator(op);
  if (described.is_view != nullptr && described.kind == OperatorKind::kInjective) return FollowView;
  return described.kind == OperatorKind::kElementwise ? FollowElementwise : nullptr;
}

absl::Status FollowNode(PaddingFacts& facts, size_t n) {
  ASSIGN_OR_RETURN(const bool grows, facts.TakeNode(n));
  if (!grows) return absl::OkStatus();
  const Node& node = facts.network().nodes[n];
  if (const PaddingRule rule = PaddingRuleOf(node.op); rule != nullptr) return rule(facts, node, facts.twin().nodes[n]);
  return absl::FailedPreconditionError(
      absl::StrCat(NameForPadding(node), " is not known to keep what lies along '", facts.symbol(), "' apart"));
}

}  // namespace

absl::StatusOr<PaddingProof> ProvePadding(const PaddingQuestion& question) {
  PaddingFacts facts(question);
  RETURN_IF_ERROR(facts.TakeInputs());
  for (size_t n = 0; n < facts.network().nodes.size(); ++n) RETURN_IF_ERROR(FollowNode(facts, n));
  PaddingProof proof;
  for (size_t i = 0; i < facts.network().outputs.size(); ++i) {
    ASSIGN_OR_RETURN(std::vector<GrowingAxis> axes, facts.TakeOutput(i));
    proof.outputs.push_back(std::move(axes));
  }
  proof.needs_first = facts.needs_first();
  return proof;
}

}  // namespace diapason
