// Einstein's summation as transposes, matrix products and sums: operands are multiplied from left to right.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// A tensor whose axes have labels. Axes of an ellipsis have digits, counted from the last.
struct Labelled {
  ImportValue value;
  std::string labels;
};

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

std::string WithEllipsis(const std::string& term, int64_t rank, size_t named) {
  size_t extra = rank > static_cast<int64_t>(named) ? rank - named : 0;
  std::string digits;
  for (size_t i = extra; i-- > 0;) digits += static_cast<char>('0' + i);
  return absl::StrReplaceAll(term, {{"...", digits}});
}

absl::StatusOr<Equation> Parse(const std::string& text, const std::vector<ImportValue>& inputs) {
  auto bad = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("the equation '", Printable(text), "' ", why));
  };
  std::vector<std::string> sides = absl::StrSplit(absl::StrReplaceAll(text, {{" ", ""}}), "->");
  Equation e;
  e.operands = absl::StrSplit(sides[0], ',');
  if (sides.size() > 2 || e.operands.size() != inputs.size())
    return bad(absl::StrCat("is not for ", inputs.size(), " operands"));
  std::map<char, int> seen;
  std::string ellipsis;
  for (size_t k = 0; k < inputs.size(); ++k) {
    std::string& term = e.operands[k];
    int64_t rank = static_cast<int64_t>(inputs[k]->type.shape.size());
    size_t dots = term.find("...");
    size_t named = dots == std::string::npos ? term.size() : term.size() - 3;
    if (dots != std::string::npos) {
      std::string digits = WithEllipsis("...", rank, named);
      if (digits.size() > 10) return bad("has an ellipsis of more than 10 axes");
      if (digits.size() > ellipsis.size()) ellipsis = digits;
      term = WithEllipsis(term, rank, named);
    }
    if (static_cast<int64_t>(term.size()) != rank)
      return bad(absl::StrCat("does not fit ", inputs[k]->type.ToString()));
    for (char label : term) {
      if (!absl::ascii_isalpha(label) && !absl::ascii_isdigit(label)) return bad("holds what is no letter");
      ++seen[label];
    }
  }
  if (sides.size() == 2) {
    e.result = absl::StrReplaceAll(sides[1], {{"...", ellipsis}});
  } else {
    e.result = ellipsis;
    for (const auto& [label, count] : seen) {
      if (count == 1 && !absl::ascii_isdigit(label)) e.result += label;
    }
  }
  for (char label : e.result) {
    if (seen.count(label) == 0) return bad("has a label in its result that no operand has");
    if (std::count(e.result.begin(), e.result.end(), label) > 1) return bad("has a label twice in its result");
  }
  return e;
}

class Summation {
 public:
  Summation(Composer& c, Equation equation) : c_(c), e_(std::move(equation)) {}

  ImportValue Run(const std::vector<ImportValue>& inputs) {
    Labelled sum = Diagonal({inputs[0], e_.operands[0]});
    for (size_t k = 1; k < inputs.size(); ++k) {
      std::set<char> later(e_.result.begin(), e_.result.end());
      for (size_t j = k + 1; j < inputs.size(); ++j) later.insert(e_.operands[j].begin(), e_.operands[j].end());
      sum = Product(sum, Diagonal({inputs[k], e_.operands[k]}), later);
    }
    std::set<char> kept(e_.result.begin(), e_.result.end());
    sum = SummedAway(sum, [&](char label) { return kept.count(label) == 0; });
    return Ordered(sum, e_.result);
  }

 private:
  size_t Place(const Labelled& t, char label) const { return t.labels.find(label); }
  int64_t Extent(const Labelled& t, char label) const { return t.value->type.shape[Place(t, label)]; }

  // A label that an operand has twice is its diagonal: the first axis stays.
  Labelled Diagonal(Labelled t) {
    for (size_t i = 0; i < t.labels.size() && c_.ok(); ++i) {
      size_t j = t.labels.find(t.labels[i], i + 1);
      if (j == std::string::npos) continue;
      const Ints& shape = t.value->type.shape;
      Ints ones(shape.size(), 1);
      ones[i] = shape[i];
      ones[j] = shape[j];
      Array same(t.value->type.dtype, ones);
      for (int64_t k = 0; k < std::min(shape[i], shape[j]); ++k) same.set(k * shape[j] + k, 1);
      ImportValue only = c_.Mul(t.value, c_.Constant(std::move(same)));
      t.value = c_.Op("reduce_sum", {only}, {{"axes", Ints{static_cast<int64_t>(j)}}, {"keepdims", int64_t{0}}});
      t.labels.erase(j, 1);
      --i;
    }
    return t;
  }

  template <typename Predicate>
  Labelled SummedAway(Labelled t, Predicate gone) {
    Ints axes;
    std::string left;
    for (size_t d = 0; d < t.labels.size(); ++d) {
      if (gone(t.labels[d])) {
        axes.push_back(static_cast<int64_t>(d));
      } else {
        left += t.labels[d];
      }
    }
    if (axes.empty()) return t;
    return {c_.Op("reduce_sum", {t.value}, {{"axes", axes}, {"keepdims", int64_t{0}}}), left};
  }

  ImportValue Ordered(const Labelled& t, const std::string& labels) {
    if (t.labels == labels || !c_.ok()) return t.value;
    Ints perm;
    for (char label : labels) perm.push_back(static_cast<int64_t>(Place(t, label)));
    return c_.Transpose(t.value, perm);
  }

  int64_t Elements(const Labelled& t, const std::string& labels) const {
    int64_t n = 1;
    for (char label : labels) n *= Extent(t, label);
    return n;
  }

  Labelled Product(Labelled a, Labelled b, const std::set<char>& later) {
    auto in = [](const Labelled& t, char label) { return t.labels.find(label) != std::string::npos; };
    a = SummedAway(a, [&](char label) { return !in(b, label) && later.count(label) == 0; });
    b = SummedAway(b, [&](char label) { return !in(a, label) && later.count(label) == 0; });
    if (!c_.ok()) return a;
    std::string batch, left, right, inner;
    for (char label : a.labels) {
      if (!in(b, label)) {
        left += label;
      } else {
        // An extent of 1 broadcasts, which only a batch axis can.
        bool equal = Extent(a, label) == Extent(b, label);
        (later.count(label) != 0 || !equal ? batch : inner) += label;
      }
    }
    for (char label : b.labels) right += in(a, label) ? "" : std::string(1, label);
    auto matrix = [&](const Labelled& t, const std::string& rows, const std::string& columns) {
      Ints shape;
      for (char label : batch) shape.push_back(Extent(t, label));
      shape.push_back(Elements(t, rows));
      shape.push_back(Elements(t, columns));
      return c_.Reshape(Ordered(t, batch + rows + columns), shape);
    };
    ImportValue product = c_.Matmul(matrix(a, left, inner), matrix(b, inner, right));
    Labelled result{product, batch + left + right};
    Ints shape;
    for (char label : batch) shape.push_back(std::max(Extent(a, label), Extent(b, label)));
    for (char label : left) shape.push_back(Extent(a, label));
    for (char label : right) shape.push_back(Extent(b, label));
    result.value = c_.Reshape(product, shape);
    return result;
  }

  Composer& c_;
  Equation e_;
};

absl::Status ImportEinsum(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(std::vector<ImportValue> inputs, node.Inputs());
  ASSIGN_OR_RETURN(Equation equation, Parse(node.String("equation", ""), inputs));
  ImportValue result = Summation(c, std::move(equation)).Run(inputs);
  if (result == inputs[0]) result = c.Op("identity", {result});
  return c.Finish(result);
}

}  // namespace

std::vector<OnnxRule> Einsum() { return {{"Einsum", ImportEinsum}}; }

}  // namespace diapason::onnx_rules
