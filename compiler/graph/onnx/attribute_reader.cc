#include "compiler/graph/onnx/attribute_reader.h"

#include <iterator>
#include <limits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"

namespace diapason {
namespace {

bool Fits32Bits(int64_t value) {
  return value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
}

// What an attribute is, for people; in the order of OnnxAttribute.
const char* KindOf(size_t index) {
  static constexpr const char* kKinds[] = {"an integer",       "a float",         "text",     "a list of integers",
                                           "a list of floats", "a list of texts", "a tensor", "of another kind",
                                           "a reference",      "a graph"};
  static_assert(std::size(kKinds) == std::variant_size_v<OnnxAttribute>);
  return kKinds[index];
}

}  // namespace

template <typename T>
const T* AttributeReader::Attribute(const std::string& name) {
  known_.insert(name);
  auto it = attributes_.find(name);
  if (it == attributes_.end()) return nullptr;
  const T* value = std::get_if<T>(&it->second);
  if (!value && error_.ok())
    error_ = absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' is ", KindOf(it->second.index()), ", and ",
                                                     KindOf(OnnxAttribute(T()).index()), " is supported"));
  return value;
}

int64_t AttributeReader::Int(const std::string& name, int64_t fallback) {
  const int64_t* value = Attribute<int64_t>(name);
  if (!value) return fallback;
  if (Fits32Bits(*value)) return *value;
  error_ = absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' cannot be ", *value));
  return fallback;
}

double AttributeReader::Float(const std::string& name, double fallback) {
  const double* value = Attribute<double>(name);
  return value ? *value : fallback;
}

std::string AttributeReader::String(const std::string& name, const std::string& fallback) {
  const std::string* value = Attribute<std::string>(name);
  return value ? *value : fallback;
}

std::vector<int64_t> AttributeReader::Ints(const std::string& name, const std::vector<int64_t>& fallback) {
  const std::vector<int64_t>* values = Attribute<std::vector<int64_t>>(name);
  if (!values) return fallback;
  for (int64_t value : *values) {
    // Slices say "to the end" by the largest number there is.
    bool end = name == "starts" || name == "ends";
    if (end || Fits32Bits(value)) continue;
    error_ = absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' cannot hold ", value));
    return fallback;
  }
  return *values;
}

absl::StatusOr<std::vector<double>> AttributeReader::Floats(const std::string& name) {
  const std::vector<double>* values = Attribute<std::vector<double>>(name);
  RETURN_IF_ERROR(error_);
  return values ? *values : std::vector<double>{};
}

std::vector<std::string> AttributeReader::Strings(const std::string& name) {
  const std::vector<std::string>* values = Attribute<std::vector<std::string>>(name);
  return values ? *values : std::vector<std::string>{};
}

std::shared_ptr<const OnnxGraph> AttributeReader::Body(const std::string& name) {
  const std::shared_ptr<const OnnxGraph>* body = Attribute<std::shared_ptr<const OnnxGraph>>(name);
  return body ? *body : nullptr;
}

absl::Status AttributeReader::CheckAllRead() const {
  for (const auto& [name, value] : attributes_)
    if (known_.count(name) == 0)
      return absl::InvalidArgumentError(absl::StrCat("attribute ", Quoted(name), " is not supported in this opset"));
  return absl::OkStatus();
}

}  // namespace diapason
