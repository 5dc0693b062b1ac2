#include "compiler/graph/onnx/rules/composer.h"

#include "absl/strings/str_cat.h"

namespace diapason::onnx_rules {
namespace {

// Stands for what an error left without a value.
ImportValue Nothing() { return KnownValue(Array(DType::kFloat32, {}), ""); }

}  // namespace

absl::Status CheckIndices(const ImportValue& indices, const std::vector<int64_t>& extents) {
  if (!indices->value || IsFloat(indices->type.dtype)) return absl::OkStatus();
  return diapason::CheckIndices(*indices->value, extents);
}

absl::StatusOr<int64_t> NormalAxis(int64_t axis, const ImportValue& x) {
  const int64_t rank = RankOf(x);
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is outside of ", x->type.ToString()));
}

int64_t Composer::Axis(int64_t axis, const ImportValue& x) {
  absl::StatusOr<int64_t> normal = NormalAxis(axis, x);
  if (normal.ok()) return *normal;
  Fail(normal.status());
  return 0;
}

ImportValue Composer::Input(int i) {
  absl::StatusOr<ImportValue> value = node_.Input(i);
  if (value.ok()) return *std::move(value);
  Fail(value.status());
  return Nothing();
}

ImportValue Composer::Op(const std::string& op, const std::vector<ImportValue>& inputs, Attributes attributes) {
  if (!status_.ok()) return inputs.empty() ? Nothing() : inputs[0];
  absl::StatusOr<ImportValue> value = node_.Add(op, inputs, std::move(attributes));
  if (value.ok()) {
    unnamed_.insert(value->get());
    return *std::move(value);
  }
  Fail(value.status());
  return inputs.empty() ? Nothing() : inputs[0];
}

ImportValue Composer::Constant(Array value) { return KnownValue(std::move(value), node_.node().name); }

ImportValue Composer::Scalar(double value, DType dtype) {
  Array array(dtype, {});
  if (IsFloat(dtype)) {
    array.set(0, value);
  } else {
    array.set_int(0, static_cast<int64_t>(value));
  }
  return Constant(std::move(array));
}

ImportValue Composer::Indices(const Ints& values) {
  Array array(DType::kInt64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) array.set_int(static_cast<int64_t>(i), values[i]);
  return Constant(std::move(array));
}

ImportValue Composer::Expand(const ImportValue& x, const Ints& shape) {
  return x->type.shape == shape ? x : Op("expand", {x}, {{"shape", shape}});
}

ImportValue Composer::Concat(const std::vector<ImportValue>& parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : Op("concat", parts, {{"axis", axis}});
}

ImportValue Composer::Slice(const ImportValue& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  return Op("slice", {x}, {{"starts", Ints{start}}, {"ends", Ints{end}}, {"axes", Ints{axis}}, {"steps", Ints{step}}});
}

ImportValue Composer::Cast(const ImportValue& x, DType dtype) {
  return x->type.dtype == dtype ? x : Op("cast", {x}, {{"to", NameOf(dtype)}});
}

void Composer::Set(int i, const ImportValue& value) {
  if (!status_.ok()) return;
  // A constant may have many names; another tensor has one, so what has one already gets another through an identity.
  if (value->value || !value->is_tensor()) {
    node_.Set(i, std::make_shared<ImportedTensor>(*value));
  } else if (unnamed_.erase(value.get()) > 0) {
    node_.Set(i, value);
  } else if (ImportValue copy = Op("identity", {value}); status_.ok()) {
    unnamed_.erase(copy.get());
    node_.Set(i, copy);
  }
}

void HandOn(Composer& c, int result, const ImportValue& value, const std::string& narrow) {
  if (!c.ok()) return;
  // A constant may have many names, and what is no tensor too.
  if (value->value || !value->is_tensor()) {
    ImportValue copy = std::make_shared<ImportedTensor>(*value);
    copy->id = -1;
    copy->narrow = narrow;
    c.Set(result, copy);
    return;
  }
  ImportValue copy = c.Op("identity", {value});
  copy->narrow = narrow;
  copy->found = value->found;
  c.Set(result, copy);
}

}  // namespace diapason::onnx_rules
