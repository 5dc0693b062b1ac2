// Lists of tensors, and optional values. Which tensors a list has is known while importing: nothing of it is left in
// the network.
#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/graph/onnx/found_rows.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Elements = std::vector<ImportValue>;

constexpr int64_t kMostElements = 1024;

absl::StatusOr<Elements> SequenceInput(const NodeImporter& node, int i) {
  ASSIGN_OR_RETURN(const ImportValue value, node.AnyInput(i));
  if (value->elements) return *value->elements;
  return absl::InvalidArgumentError(absl::StrCat("input ", i, " must be a sequence, not ", value->type.ToString()));
}

absl::Status SetSequence(NodeImporter& node, int result, Elements elements) {
  if (static_cast<int64_t>(elements.size()) > kMostElements)
    return absl::InvalidArgumentError(
        absl::StrCat("its sequence would have ", elements.size(), " tensors, and ", kMostElements, " are supported"));
  auto value = std::make_shared<ImportedTensor>();
  value->elements = std::make_shared<const Elements>(std::move(elements));
  node.Set(result, std::move(value));
  return absl::OkStatus();
}

// A tensor that becomes an element: nobody follows its rows there.
absl::StatusOr<ImportValue> ElementInput(NodeImporter& node, int i) {
  ASSIGN_OR_RETURN(ImportValue value, node.Input(i));
  RETURN_IF_ERROR(LoseFoundRows(*value, node));
  return value;
}

// The place that input i names, counted from the front; `fallback` where it is absent. A place behind the last element
// is one where `end` is 1.
absl::StatusOr<int64_t> Position(const NodeImporter& node, int i, const Elements& elements, int64_t fallback, int end) {
  if (!node.HasInput(i)) return fallback;
  ASSIGN_OR_RETURN(const std::vector<int64_t> position, node.KnownInts(i, "the position"));
  const auto count = static_cast<int64_t>(elements.size());
  if (position.size() != 1 || position[0] < -count || position[0] >= count + end)
    return absl::InvalidArgumentError(absl::StrCat("position ", absl::StrJoin(position, ", "),
                                                   " is outside of a sequence of ", count,
                                                   count == 1 ? " tensor" : " tensors"));
  return position[0] < 0 ? position[0] + count : position[0];
}

absl::Status SequenceEmpty(NodeImporter& node) {
  node.Int("dtype", 1);
  return SetSequence(node, 0, {});
}

absl::Status SequenceConstruct(NodeImporter& node) {
  Elements elements;
  for (int i = 0; i < node.inputs(); ++i) {
    ASSIGN_OR_RETURN(ImportValue value, ElementInput(node, i));
    elements.push_back(std::move(value));
  }
  return SetSequence(node, 0, std::move(elements));
}

absl::Status SequenceInsert(NodeImporter& node) {
  ASSIGN_OR_RETURN(Elements elements, SequenceInput(node, 0));
  ASSIGN_OR_RETURN(ImportValue value, ElementInput(node, 1));
  ASSIGN_OR_RETURN(const int64_t at, Position(node, 2, elements, static_cast<int64_t>(elements.size()), 1));
  elements.insert(elements.begin() + at, std::move(value));
  return SetSequence(node, 0, std::move(elements));
}

absl::Status SequenceErase(NodeImporter& node) {
  ASSIGN_OR_RETURN(Elements elements, SequenceInput(node, 0));
  ASSIGN_OR_RETURN(const int64_t at, Position(node, 1, elements, static_cast<int64_t>(elements.size()) - 1, 0));
  if (at < 0) return absl::InvalidArgumentError("its sequence is empty: nothing can be erased");
  elements.erase(elements.begin() + at);
  return SetSequence(node, 0, std::move(elements));
}

absl::Status SequenceAt(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(const Elements elements, SequenceInput(node, 0));
  if (!node.HasInput(1)) return absl::InvalidArgumentError("input 1 is missing");
  ASSIGN_OR_RETURN(const int64_t at, Position(node, 1, elements, 0, 0));
  HandOn(c, 0, elements[at], elements[at]->narrow);
  return c.status();
}

absl::Status SequenceLength(NodeImporter& node) {
  ASSIGN_OR_RETURN(const Elements elements, SequenceInput(node, 0));
  Array length(DType::kInt64, {});
  length.set_int(0, static_cast<int64_t>(elements.size()));
  node.Set(0, KnownValue(std::move(length), node.node().name));
  return absl::OkStatus();
}

// The extents of the parts of an axis: those of a list, or of one length as far as the axis goes.
absl::StatusOr<std::vector<int64_t>> Parts(const NodeImporter& node, int64_t extent) {
  if (!node.HasInput(1)) return std::vector<int64_t>(extent <= kMostElements ? extent : kMostElements + 1, 1);
  ASSIGN_OR_RETURN(const ImportValue split, node.Input(1));
  ASSIGN_OR_RETURN(std::vector<int64_t> parts, node.KnownInts(1, "the split"));
  const std::string text = absl::StrJoin(parts, ", ");
  int64_t left = extent;
  if (split->type.shape.empty()) {
    const int64_t length = parts[0];
    if (length < 1) return absl::InvalidArgumentError(absl::StrCat("an axis cannot be split into parts of ", length));
    parts.assign(std::min((extent + length - 1) / length, kMostElements + 1), length);
    if (extent % length != 0) parts.back() = extent % length;
    return parts;
  }
  for (const int64_t part : parts) left = part < 0 || part > left ? -1 : left - part;
  if (left != 0)
    return absl::InvalidArgumentError(absl::StrCat("an axis of ", extent, " cannot be split into parts of ", text));
  return parts;
}

absl::Status SplitToSequence(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(const ImportValue x, ElementInput(node, 0));
  ASSIGN_OR_RETURN(const int64_t axis, NormalAxis(node.Int("axis", 0), x));
  const bool keeps = node.Int("keepdims", 1) != 0 || node.HasInput(1);
  ASSIGN_OR_RETURN(const std::vector<int64_t> parts, Parts(node, x->type.shape[axis]));
  if (static_cast<int64_t>(parts.size()) > kMostElements)
    return absl::InvalidArgumentError(
        absl::StrCat("its sequence would have more than ", kMostElements, " tensors, which is not supported"));
  Elements elements;
  int64_t start = 0;
  for (const int64_t part : parts) {
    ImportValue element;
    if (part == 0) {
      std::vector<int64_t> shape = x->type.shape;
      shape[axis] = 0;
      element = KnownValue(Array(x->type.dtype, shape), node.node().name);
    } else {
      element = c.Slice(x, axis, start, start + part);
      if (!keeps) element = c.Squeeze(element, {axis});
    }
    element->narrow = x->narrow;
    elements.push_back(std::move(element));
    start += part;
  }
  RETURN_IF_ERROR(c.status());
  return SetSequence(node, 0, std::move(elements));
}

absl::Status ConcatFromSequence(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(Elements elements, SequenceInput(node, 0));
  const bool stacks = node.Int("new_axis", 0) != 0;
  int64_t axis = node.Int("axis", 0);
  std::string narrow;
  std::erase_if(elements, [&](const ImportValue& x) { return !stacks && x->type.elements() == 0; });
  if (elements.empty()) return absl::InvalidArgumentError("its sequence is empty, so that its result would be, too");
  narrow = elements[0]->narrow;
  if (stacks) {
    const int64_t rank = RankOf(elements[0]) + 1;
    if (axis < -rank || axis >= rank)
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", axis, " is outside of a tensor with ", rank, " dimensions"));
    if (axis < 0) axis += rank;
    for (ImportValue& x : elements) x = c.Unsqueeze(x, {axis});
  } else {
    axis = c.Axis(axis, elements[0]);
  }
  HandOn(c, 0, c.Concat(elements, axis), narrow);
  return c.status();
}

// The body computes one element of each result from one of each sequence, and all of what is no sequence.
absl::Status SequenceMap(NodeImporter& node) {
  const std::shared_ptr<const OnnxGraph> body = node.Body("body");
  if (!body) return absl::InvalidArgumentError("its body is missing");
  ASSIGN_OR_RETURN(const Elements first, SequenceInput(node, 0));
  std::vector<Elements> results(node.node().outputs.size());
  for (size_t k = 0; k < first.size(); ++k) {
    Elements inputs;
    for (int i = 0; i < node.inputs(); ++i) {
      ASSIGN_OR_RETURN(ImportValue value, node.AnyInput(i));
      if (!value->elements) {
        ASSIGN_OR_RETURN(value, ElementInput(node, i));
        inputs.push_back(std::move(value));
        continue;
      }
      if (value->elements->size() != first.size())
        return absl::InvalidArgumentError(
            absl::StrCat("its sequences have ", first.size(), " and ", value->elements->size(), " tensors"));
      inputs.push_back((*value->elements)[k]);
    }
    ASSIGN_OR_RETURN(const Elements computed, node.ImportBody(*body, inputs));
    if (computed.size() < results.size()) return absl::InvalidArgumentError("its body has fewer results than the node");
    for (size_t i = 0; i < results.size(); ++i) {
      RETURN_IF_ERROR(LoseFoundRows(*computed[i], node));
      results[i].push_back(computed[i]);
    }
  }
  for (size_t i = 0; i < results.size(); ++i)
    RETURN_IF_ERROR(SetSequence(node, static_cast<int>(i), std::move(results[i])));
  return absl::OkStatus();
}

// An optional value that has an element is that element.
absl::Status Optional(NodeImporter& node) {
  Composer c(node);
  node.Ignore({"type"});
  if (node.HasInput(0)) {
    ASSIGN_OR_RETURN(const ImportValue value, node.AnyInput(0));
    HandOn(c, 0, value, value->narrow);
    return c.status();
  }
  auto none = std::make_shared<ImportedTensor>();
  none->absent = true;
  node.Set(0, std::move(none));
  return absl::OkStatus();
}

absl::Status OptionalHasElement(NodeImporter& node) {
  bool has = node.HasInput(0);
  if (has) {
    ASSIGN_OR_RETURN(const ImportValue value, node.AnyInput(0));
    has = !value->absent;
  }
  Array answer(DType::kBool, {});
  answer.set_int(0, has ? 1 : 0);
  node.Set(0, KnownValue(std::move(answer), node.node().name));
  return absl::OkStatus();
}

absl::Status OptionalGetElement(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(const ImportValue value, node.AnyInput(0));
  if (value->absent) return absl::InvalidArgumentError("its optional value has no element");
  HandOn(c, 0, value, value->narrow);
  return c.status();
}

}  // namespace

std::vector<OnnxRule> Sequences() {
  return {{"SequenceEmpty", SequenceEmpty},
          {"SequenceConstruct", SequenceConstruct},
          {"SequenceInsert", SequenceInsert},
          {"SequenceErase", SequenceErase},
          {"SequenceAt", SequenceAt},
          {"SequenceLength", SequenceLength},
          {"SequenceMap", SequenceMap},
          {"SplitToSequence", SplitToSequence},
          {"ConcatFromSequence", ConcatFromSequence},
          {"Optional", Optional},
          {"OptionalHasElement", OptionalHasElement},
          {"OptionalGetElement", OptionalGetElement}};
}

}  // namespace diapason::onnx_rules
