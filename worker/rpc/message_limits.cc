#include "worker/rpc/message_limits.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr double kKib = 1024, kMib = kKib * kKib;
// Of a newer program's fields in one message. Requests pass through to newer workers, and have a limit as a whole.
constexpr size_t kUnknownBytes = 64 << 10;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// `size`: bytes of a text, elements of a list or map, or bytes of a message that is not looked into; 0: the default.
// `least`, `most`: of a number.
struct Limit {
  const char* field;
  double size = 0;
  double least = 0, most = kDefaultNumber;
};

constexpr Limit kLimits[] = {
    // measure.proto
    {"MeasureRequest.workload", 16 * kMib},  // the tracker's and the worker's own limits of a request are below
    {"MeasureRequest.schedule", 16 * kMib},
    {"MeasureRequest.network", 16 * kMib},  // as a whole: who assembles it checks what is in it
    {"MeasureRequest.target", 4 * kKib},
    {"MeasureRequest.best_seconds", 0, 0, 1e9},
    {"MeasureRequest.build_timeout_seconds", 0, 0, 1e5},
    {"MeasureRequest.run_timeout_seconds", 0, 0, 1e5},
    {"MeasureRequest.verify_timeout_seconds", 0, 0, 1e5},
    {"MeasureRequest.queue_timeout_seconds", 0, 0, 1e9},
    {"MeasureRequest.max_attempts", 0, 0, 100},
    {"TimingOptions.repeat", 0, 0, 1000},
    {"TimingOptions.number", 0, 0, 1e6},
    {"TimingOptions.min_repeat_ms", 0, 0, 1e6},
    {"OpenRequest.priority", 0, -1000, 1000},
    {"OpenRequest.weight", 0, 0, 1e6},
    {"OpenRequest.labels", 64},
    {"SubmitRequest.requests", 4096},
    {"CancelRequest.ids", 65536},
    {"NextResponse.results", 4096},
    {"Timing.samples", 1000},
    {"MeasureError.text", 4 * kKib},
    {"Cancelled.reason", 4 * kKib},
    {"Verification.max_abs_error", 0, 0, kInfinity},
    {"Verification.max_rel_error", 0, 0, kInfinity},
    {"Verification.text", 4 * kKib},
    {"Verification.run_seconds", 0, 0, 1e6},
    {"MeasureResult.compiler", kKib},
    {"MeasureResult.registers", 4096},
    {"MeasureResult.spill_bytes", 4096},
    // tracker.proto
    {"DeviceDescription.target", 4 * kKib},
    {"RegisterRequest.devices", 64},
    {"RegisterRequest.labels", 64},
    {"LeaseRequest.capacity", 64},
    {"LeaseResponse.grants", 4096},
    {"LeaseResponse.revoked", 65536},
    {"ReportRequest.outcomes", 4096},
    {"ReportRequest.renew", 65536},
    {"ReportRequest.devices", 64},
    {"ReportRequest.device_statistics", 64},
    {"ReportResponse.over", 65536},
    {"DeviceStatus.text", 8 * kKib},
    {"ListWorkersRequest.page", 8 * kKib},  // names a kind of target and a model
    {"ListWorkersResponse.workers", 65536},
    {"ListWorkersResponse.queues", 65536},
    {"ListWorkersResponse.models", 65536},
    {"ListWorkersResponse.next_page", 8 * kKib},
    {"WorkerStatus.labels", 64},
    {"WorkerStatus.devices", 64},
    {"WorkerStatus.states", 64},
    {"WorkerStatus.rates", 64},
    {"QueueStatus.priority", 0, -1000, 1000},
    // tuning.proto
    {"ModelChunk.data", kMib},
    {"TuneSpec.target", 4 * kKib},
    {"TuneSpec.tasks", 16 * kKib},
    {"TuneSpec.objective", 4 * kKib},
    {"TuneSpec.input_shapes", 64},
    {"TuneSpec.dims", 16},
    {"DimSizes.sizes", 64},
    {"TuneSpec.dim_weights", 256},
    {"Shape.extents", 16},
    {"TuneSpec.extra", 64},
    {"TuneSpec.labels", 64},
    {"TuneSpec.priority", 0, -1000, 1000},
    {"SubmitJobRequest.key", 128},
    // history.proto
    {"ForBuildRequest.workload_keys", 65536},
    {"QueryRequest.target", 4 * kKib},
    {"QueryRequest.top", 0, 0, 1e6},
    {"ForBuildRequest.target", 4 * kKib},
};

// Without the package: "OpenRequest.name", "OpenRequest.LabelsEntry.key".
std::string NameOf(const FieldDescriptor& field) {
  return field.full_name().substr(field.file()->package().size() + 1);
}

// Found by name once for each field of the program: messages are checked thousands of times a second.
const Limit* LimitOf(const FieldDescriptor& field) {
  static const auto* const by_name = [] {
    auto* limits = new std::unordered_map<std::string, const Limit*>();
    for (const Limit& limit : kLimits) limits->emplace(limit.field, &limit);
    return limits;
  }();
  thread_local std::unordered_map<const FieldDescriptor*, const Limit*> known;
  const auto [place, is_new] = known.emplace(&field, nullptr);
  if (is_new) {
    const auto found = by_name->find(NameOf(field));
    if (found != by_name->end()) place->second = found->second;
  }
  return place->second;
}

absl::Status CheckSize(const FieldDescriptor& field, size_t size, double limit, const char* unit) {
  if (static_cast<double>(size) <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(field), " has ", size, " ", unit, ", more than the limit of ", static_cast<int64_t>(limit)));
}

template <typename Number>
absl::Status CheckNumber(const FieldDescriptor& field, Number value, double least, double most) {
  const double compared = static_cast<double>(value);
  if (compared >= least && compared <= most) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(field), " is ", value, "; its limits are ", least, " and ", most));
}

// Calls `check(value)` with each element of the field, as its type.
template <typename Get, typename GetRepeated, typename Check>
absl::Status ForEach(const FieldDescriptor& field, int count, Get get, GetRepeated get_repeated, Check check) {
  if (!field.is_repeated()) return check(get());
  for (int i = 0; i < count; ++i) RETURN_IF_ERROR(check(get_repeated(i)));
  return absl::OkStatus();
}

absl::Status CheckField(const Message& message, const FieldDescriptor& field) {
  const Reflection& r = *message.GetReflection();
  const FieldDescriptor* f = &field;
  const Limit* limit = LimitOf(field);
  const int count = field.is_repeated() ? r.FieldSize(message, f) : 1;
  if (field.is_repeated()) {
    const double most = limit != nullptr && limit->size > 0 ? limit->size : static_cast<double>(kDefaultElements);
    RETURN_IF_ERROR(CheckSize(field, static_cast<size_t>(count), most, "elements"));
  }
  const auto number = [&](auto value) {
    const bool whole = std::numeric_limits<decltype(value)>::is_integer;
    const double most = limit != nullptr ? limit->most : kDefaultNumber;
    // Times in nanoseconds and ids are larger than the limit of other numbers.
    return CheckNumber(field, value, limit != nullptr ? limit->least : 0,
                       whole && most == kDefaultNumber ? kInfinity : most);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (limit != nullptr && limit->size > 0 && !field.is_repeated())
        return CheckSize(field, r.GetMessage(message, f).ByteSizeLong(), limit->size, "bytes");
      return ForEach(
          field, count, [&]() -> const Message& { return r.GetMessage(message, f); },
          [&](int i) -> const Message& { return r.GetRepeatedMessage(message, f, i); },
          [](const Message& inner) { return CheckMessage(inner); });
    case FieldDescriptor::CPPTYPE_STRING: {
      const bool own = limit != nullptr && limit->size > 0 && !field.is_repeated();
      const double most = own ? limit->size : static_cast<double>(kDefaultBytes);
      std::string scratch;
      return ForEach(
          field, count, [&]() -> const std::string& { return r.GetStringReference(message, f, &scratch); },
          [&](int i) -> const std::string& { return r.GetRepeatedStringReference(message, f, i, &scratch); },
          [&](const std::string& text) { return CheckSize(field, text.size(), most, "bytes"); });
    }
    case FieldDescriptor::CPPTYPE_INT32:
      return ForEach(
          field, count, [&] { return r.GetInt32(message, f); },
          [&](int i) { return r.GetRepeatedInt32(message, f, i); }, number);
    case FieldDescriptor::CPPTYPE_INT64:
      return ForEach(
          field, count, [&] { return r.GetInt64(message, f); },
          [&](int i) { return r.GetRepeatedInt64(message, f, i); }, number);
    case FieldDescriptor::CPPTYPE_UINT32:
      return ForEach(
          field, count, [&] { return r.GetUInt32(message, f); },
          [&](int i) { return r.GetRepeatedUInt32(message, f, i); }, number);
    case FieldDescriptor::CPPTYPE_UINT64:
      return ForEach(
          field, count, [&] { return r.GetUInt64(message, f); },
          [&](int i) { return r.GetRepeatedUInt64(message, f, i); }, number);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ForEach(
          field, count, [&] { return r.GetDouble(message, f); },
          [&](int i) { return r.GetRepeatedDouble(message, f, i); }, number);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return ForEach(
          field, count, [&] { return r.GetFloat(message, f); },
          [&](int i) { return r.GetRepeatedFloat(message, f, i); }, number);
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_ENUM: return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMessage(const Message& message, const std::string& except) {
  const size_t unknown = message.GetReflection()->GetUnknownFields(message).SpaceUsedExcludingSelfLong();
  if (unknown > kUnknownBytes && message.GetDescriptor()->name() != "MeasureRequest") {
    return absl::InvalidArgumentError(absl::StrCat(message.GetDescriptor()->name(), " has ", unknown,
                                                   " bytes of fields that are not known here, more than the limit of ",
                                                   kUnknownBytes));
  }
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);  // of those that are set
  for (const FieldDescriptor* field : fields) {
    if (!except.empty() && field->name() == except) continue;
    RETURN_IF_ERROR(CheckField(message, *field));
  }
  return absl::OkStatus();
}

std::vector<std::string> LimitedFields() {
  std::vector<std::string> names;
  for (const Limit& limit : kLimits) names.push_back(limit.field);
  return names;
}

}  // namespace diapason
