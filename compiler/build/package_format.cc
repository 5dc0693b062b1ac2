#include "compiler/build/package_format.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json.h"
#include "compiler/build/memory_plan.h"

namespace diapason {
namespace {

using Place = PackageTensor::Place;

constexpr char kFormat[] = "diapason-package";

const char* NameOfPlace(Place place) {
  switch (place) {
    case Place::kInput: return "input";
    case Place::kConstant: return "constant";
    case Place::kArena: return "arena";
  }
  return "";
}

template <typename T>
absl::Status CheckEach(const PackagePort& port, const T* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (values[i] < port.valid_min || values[i] > port.valid_max)
      return absl::InvalidArgumentError(absl::StrCat("input '", port.name, "' has ", static_cast<int64_t>(values[i]),
                                                     " at element ", i, "; it is an index there, and must be from ",
                                                     port.valid_min, " to ", port.valid_max));
  return absl::OkStatus();
}

Json ToJson(const PackagePort& port, bool input) {
  Json json = {{"name", port.name}, {"dtype", NameOf(port.dtype)}, {"shape", port.shape}, {"tensor", port.tensor}};
  if (input) {
    json["valid_min"] = port.valid_min;
    json["valid_max"] = port.valid_max;
  }
  if (!port.symbols.empty()) json["symbols"] = port.symbols;
  for (const PortGrowth& growth : port.grows)
    json["grows"].push_back({{"symbol", growth.symbol}, {"axis", growth.axis}, {"block", growth.block}});
  return json;
}

Json ToJson(const PackageTask& task) {
  Json json = {{"name", task.name},
               {"file", task.file},
               {"workload", task.workload},
               {"weight", task.weight},
               {"record", task.record},
               {"schedule", task.schedule},
               {"estimated_us", task.estimated_seconds * 1e6},
               {"checksum", task.checksum}};
  if (!task.record_uuid.empty()) json["record_uuid"] = task.record_uuid;
  if (!task.record_source.empty() && task.record_source != "history") json["record_source"] = task.record_source;
  if (!task.output_stages.empty())
    json["stages"] = Json{{"inputs", task.input_stages}, {"outputs", task.output_stages}};
  for (const KernelWork& work : task.work)
    json["work"].push_back(
        Json{{"flops", work.flops}, {"bytes", work.bytes}, {"tensor", static_cast<int>(work.tensor)}});
  const OutputPlace& place = task.place;
  if (!place.whole())
    json["place"] =
        Json{{"row", place.row}, {"stride", place.stride}, {"offset", place.offset}, {"elements", place.elements}};
  return json;
}

Json ToJson(const PackageTensor& tensor) {
  return {{"name", tensor.name},
          {"dtype", NameOf(tensor.dtype)},
          {"elements", tensor.elements},
          {"place", NameOfPlace(tensor.place)},
          {"offset", tensor.offset}};
}

Json ToJson(const PackageStep& step) {
  return {{"task", step.task}, {"inputs", step.inputs}, {"outputs", step.outputs}, {"workspaces", step.workspaces}};
}

// The reading functions below throw nlohmann's exceptions on a field that is missing or of another kind, and BadField
// on one whose value makes no sense; PlansFromJson catches both.
struct BadField {
  std::string what;
};

// An integer that T holds; other numbers would be cut off or wrap around.
template <typename T>
T Whole(const Json& json) {
  if (!json.is_number()) throw BadField{absl::StrCat(JsonText(json), " stands in place of a number")};
  if (std::is_same_v<T, uint64_t> && json.is_number_unsigned()) return json.get<T>();
  const std::optional<int64_t> value = JsonInt(
      json, std::is_unsigned_v<T> ? 0 : static_cast<int64_t>(std::numeric_limits<T>::min()),
      sizeof(T) < 8 ? static_cast<int64_t>(std::numeric_limits<T>::max()) : std::numeric_limits<int64_t>::max());
  if (!value) throw BadField{absl::StrCat(JsonText(json), " is no integer that fits its place")};
  return static_cast<T>(*value);
}

template <typename T>
std::vector<T> Wholes(const Json& json) {
  if (!json.is_array()) throw BadField{absl::StrCat(JsonText(json), " stands in place of a list")};
  std::vector<T> all;
  for (const Json& item : json) all.push_back(Whole<T>(item));
  return all;
}

DType DTypeOf(const Json& json) {
  const std::string name = json.at("dtype").get<std::string>();
  const std::optional<DType> dtype = DTypeFromName(name);
  if (!dtype) throw BadField{absl::StrCat("'", name, "' is no element type")};
  return *dtype;
}

PackagePort PortOf(const Json& json) {
  PackagePort port;
  port.name = json.at("name").get<std::string>();
  port.dtype = DTypeOf(json);
  port.shape = Wholes<int64_t>(json.at("shape"));
  port.tensor = Whole<int>(json.at("tensor"));
  if (json.contains("valid_min")) port.valid_min = Whole<int64_t>(json.at("valid_min"));
  if (json.contains("valid_max")) port.valid_max = Whole<int64_t>(json.at("valid_max"));
  port.symbols = json.value("symbols", std::vector<std::string>());
  for (const Json& growth : json.value("grows", Json::array()))
    port.grows.push_back(
        {growth.at("symbol").get<std::string>(), Whole<int>(growth.at("axis")), Whole<int64_t>(growth.at("block"))});
  return port;
}

PackageTask TaskOf(const Json& json) {
  PackageTask task;
  task.name = json.at("name").get<std::string>();
  task.file = json.at("file").get<std::string>();
  if (task.file.empty() || task.file.find('/') != std::string::npos)
    throw BadField{absl::StrCat("'", task.file, "' is no file name")};
  task.workload = json.at("workload").get<std::string>();
  task.weight = Whole<int>(json.at("weight"));
  task.record = Whole<int64_t>(json.at("record"));
  task.record_uuid = json.value("record_uuid", "");
  task.record_source = json.value("record_source", task.record >= 0 ? "history" : "");
  task.schedule = json.at("schedule").get<std::string>();
  task.estimated_seconds = json.at("estimated_us").get<double>() * 1e-6;
  task.checksum = Whole<uint64_t>(json.at("checksum"));
  if (json.contains("stages")) {
    task.input_stages = Wholes<int>(json.at("stages").at("inputs"));
    task.output_stages = Wholes<int>(json.at("stages").at("outputs"));
  }
  if (json.contains("work")) {
    if (!json.at("work").is_array()) throw BadField{"'work' is no list"};
    for (const Json& work : json.at("work"))
      task.work.push_back({work.at("flops").get<double>(), work.at("bytes").get<double>(),
                           static_cast<TensorMode>(Whole<uint8_t>(work.at("tensor")))});
  }
  if (json.contains("place")) {
    const Json& place = json.at("place");
    task.place = {Whole<int64_t>(place.at("row")), Whole<int64_t>(place.at("stride")),
                  Whole<int64_t>(place.at("offset")), Whole<int64_t>(place.at("elements"))};
    if (!task.place.Holds(task.place.row)) throw BadField{absl::StrCat("task '", task.name, "' has no valid place")};
  }
  return task;
}

Place PlaceOf(const std::string& name) {
  for (Place place : {Place::kInput, Place::kConstant, Place::kArena})
    if (name == NameOfPlace(place)) return place;
  throw BadField{absl::StrCat("'", name, "' is no place of a tensor")};
}

PackageTensor TensorOf(const Json& json) {
  PackageTensor tensor;
  tensor.name = json.at("name").get<std::string>();
  tensor.dtype = DTypeOf(json);
  tensor.elements = Whole<int64_t>(json.at("elements"));
  tensor.place = PlaceOf(json.at("place").get<std::string>());
  tensor.offset = Whole<int64_t>(json.at("offset"));
  return tensor;
}

PackageStep StepOf(const Json& json) {
  PackageStep step;
  step.task = Whole<int>(json.at("task"));
  step.inputs = Wholes<int>(json.at("inputs"));
  step.outputs = Wholes<int>(json.at("outputs"));
  for (const Json& pair : json.at("workspaces"))
    step.workspaces.emplace_back(Whole<int>(pair.at(0)), Whole<int64_t>(pair.at(1)));
  return step;
}

void CheckRange(int64_t offset, int64_t bytes, int64_t limit, const std::string& what) {
  if (offset < 0 || bytes < 0 || offset % kArenaAlignment != 0 || offset > limit || bytes > limit - offset)
    throw BadField{absl::StrCat(what, " lies outside its memory")};
}

void CheckIndex(int index, size_t size, const std::string& what) {
  if (index < 0 || index >= static_cast<int64_t>(size))
    throw BadField{absl::StrCat(what, " ", index, " does not exist")};
}

void CheckPort(const PackagePort& port, const PackageManifest& manifest) {
  CheckIndex(port.tensor, manifest.tensors.size(), "tensor");
  const PackageTensor& tensor = manifest.tensors[port.tensor];
  if (port.elements() != tensor.elements || port.dtype != tensor.dtype)
    throw BadField{absl::StrCat("'", port.name, "' does not fit its tensor")};
}

void Check(const PackageManifest& manifest) {
  if (manifest.arena_bytes < 0 || manifest.weights_bytes < 0) throw BadField{"a size is negative"};
  for (const PackageTensor& tensor : manifest.tensors) {
    if (tensor.elements < 0 || tensor.elements > std::numeric_limits<int64_t>::max() / 16)
      throw BadField{absl::StrCat("tensor '", tensor.name, "' has no valid size")};
    if (tensor.place == Place::kConstant)
      CheckRange(tensor.offset, tensor.bytes(), manifest.weights_bytes, absl::StrCat("constant '", tensor.name, "'"));
    if (tensor.place == Place::kArena)
      CheckRange(tensor.offset, tensor.bytes(), manifest.arena_bytes, absl::StrCat("tensor '", tensor.name, "'"));
  }
  for (const PackagePort& port : manifest.inputs) {
    CheckPort(port, manifest);
    if (manifest.tensors[port.tensor].place != Place::kInput)
      throw BadField{absl::StrCat("the tensor of input '", port.name, "' is none")};
  }
  for (const PackagePort& port : manifest.outputs) CheckPort(port, manifest);
  for (const PackageStep& step : manifest.steps) {
    CheckIndex(step.task, manifest.tasks.size(), "task");
    for (int tensor : step.inputs) CheckIndex(tensor, manifest.tensors.size(), "tensor");
    for (int tensor : step.outputs) CheckIndex(tensor, manifest.tensors.size(), "tensor");
    const OutputPlace& place = manifest.tasks[step.task].place;
    if (!place.whole() && (step.outputs.size() != 1 || manifest.tensors[step.outputs[0]].elements != place.elements))
      throw BadField{absl::StrCat("the place of task '", manifest.tasks[step.task].name, "' does not fit its tensor")};
  }
}

template <typename Item, typename Read>
void ReadList(const Json& json, const char* key, std::vector<Item>& list, Read read) {
  for (const Json& item : json.at(key)) list.push_back(read(item));
}

Library LibraryOf(const Json& json) {
  const std::string name = json.get<std::string>();
  for (Library library : AllLibraries())
    if (name == NameOf(library)) return library;
  throw BadField{absl::StrCat("'", name, "' is no library")};
}

// What all plans have in common.
PackageManifest ReadCommon(const Json& json) {
  PackageManifest manifest;
  manifest.network = json.at("network").get<std::string>();
  const std::string target = json.at("target").get<std::string>();
  absl::StatusOr<Target> parsed = Target::Parse(target);
  if (!parsed.ok()) throw BadField{absl::StrCat("'", target, "' is no target")};
  manifest.target = *parsed;
  const Json& device = json.at("device");
  manifest.device.model = device.at("model").get<std::string>();
  manifest.device.arch = device.at("arch").get<std::string>();
  manifest.device.driver = device.at("driver").get<std::string>();
  manifest.device.vector_bytes = Whole<int>(device.at("vector_bytes"));
  if (json.contains("libraries")) ReadList(json, "libraries", manifest.libraries, LibraryOf);
  manifest.weights_bytes = Whole<int64_t>(json.at("weights").at("bytes"));
  manifest.weights_checksum = Whole<uint64_t>(json.at("weights").at("checksum"));
  manifest.mask = json.value("mask", std::string());
  return manifest;
}

void ReadPlan(const Json& json, PackageManifest& manifest) {
  manifest.arena_bytes = Whole<int64_t>(json.at("arena_bytes"));
  manifest.latency_seconds = json.value("latency_us", 0.0) * 1e-6;
  ReadList(json, "inputs", manifest.inputs, PortOf);
  ReadList(json, "outputs", manifest.outputs, PortOf);
  ReadList(json, "tasks", manifest.tasks, TaskOf);
  ReadList(json, "tensors", manifest.tensors, TensorOf);
  ReadList(json, "steps", manifest.steps, StepOf);
  Check(manifest);
}

void ReadSizes(const Json& json, PackageManifest& manifest) {
  for (const auto& [symbol, size] : json.at("sizes").items()) manifest.sizes[symbol] = Whole<int64_t>(size);
  const Json paddings = json.value("padding", Json::object());
  for (const auto& [symbol, padding] : paddings.items())
    manifest.padding[symbol] = {Whole<int64_t>(padding.at("least")), padding.value("why_not", std::string()),
                                padding.value("needs_first", false)};
}

// That axes have the extents which sizes give them.
void CheckSizes(const PackageManifest& plan) {
  if (plan.sizes.empty()) throw BadField{"a plan has no sizes"};
  const auto size_of = [&](const std::string& symbol) {
    const auto size = plan.sizes.find(symbol);
    if (size == plan.sizes.end()) throw BadField{absl::StrCat("'", symbol, "' is no symbol of its plan")};
    return size->second;
  };
  for (const auto& [symbol, size] : plan.sizes)
    if (size < 1 || size > kMaxDimSize) throw BadField{absl::StrCat("'", symbol, "' has no valid size")};
  for (const auto& [symbol, padding] : plan.padding)
    if (padding.least < 1 || padding.least > size_of(symbol))
      throw BadField{absl::StrCat("'", symbol, "' has no valid padding")};
  for (const PackagePort& port : plan.inputs) {
    if (port.symbols.size() != port.shape.size())
      throw BadField{absl::StrCat("input '", port.name, "' has no symbols")};
    for (size_t d = 0; d < port.symbols.size(); ++d)
      if (!port.symbols[d].empty() && port.shape[d] != size_of(port.symbols[d]))
        throw BadField{absl::StrCat("input '", port.name, "' does not have the plan's sizes")};
  }
  for (const PackagePort& port : plan.outputs)
    for (const PortGrowth& growth : port.grows)
      if (growth.axis < 0 || growth.axis >= static_cast<int64_t>(port.shape.size()) || growth.block < 1 ||
          port.shape[growth.axis] % growth.block != 0 ||
          port.shape[growth.axis] / growth.block != size_of(growth.symbol))
        throw BadField{absl::StrCat("output '", port.name, "' does not have the plan's sizes")};
}

// Plans differ in sizes alone.
void CheckAlike(const PackageManifest& plan, const PackageManifest& first) {
  const auto same_ports = [](const std::vector<PackagePort>& a, const std::vector<PackagePort>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const PackagePort& x, const PackagePort& y) {
      return x.name == y.name && x.dtype == y.dtype && x.shape.size() == y.shape.size() && x.symbols == y.symbols;
    });
  };
  const bool symbols = std::equal(plan.sizes.begin(), plan.sizes.end(), first.sizes.begin(), first.sizes.end(),
                                  [](const auto& a, const auto& b) { return a.first == b.first; });
  if (!symbols || !same_ports(plan.inputs, first.inputs) || !same_ports(plan.outputs, first.outputs))
    throw BadField{"its plans have other inputs, outputs or symbols than the first"};
}

std::vector<PackageManifest> Read(const Json& json) {
  const PackageManifest common = ReadCommon(json);
  std::vector<PackageManifest> plans;
  if (json.at("version") != kPackageVersion) {
    ReadPlan(json, plans.emplace_back(common));
    return plans;
  }
  const Json& list = json.at("plans");
  if (!list.is_array() || list.empty() || list.size() > kMaxCombinations)
    throw BadField{"it has no valid list of plans"};
  std::set<SymbolSizes> seen;
  for (const Json& one : list) {
    PackageManifest& plan = plans.emplace_back(common);
    ReadSizes(one, plan);
    ReadPlan(one, plan);
    CheckSizes(plan);
    CheckAlike(plan, plans.front());
    if (!seen.insert(plan.sizes).second) throw BadField{absl::StrCat("it has two plans for ", SizesText(plan.sizes))};
  }
  return plans;
}

absl::Status Mangled(const std::string& path, const std::string& why) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", why, "; build the package again"));
}

}  // namespace

bool HasRecordIds(const std::string& record_source) { return record_source == "history" || record_source == "service"; }

std::optional<int64_t> PackageTask::record_id() const {
  return record >= 0 && HasRecordIds(record_source) ? std::optional<int64_t>(record) : std::nullopt;
}

int64_t PackagePort::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && n > std::numeric_limits<int64_t>::max() / extent)) return -1;
    n *= extent;
  }
  return n;
}

std::string PackagePort::TypeText() const { return absl::StrCat(NameOf(dtype), " ", absl::StrJoin(shape, "x")); }

absl::Status PackagePort::CheckValues(const void* values, int64_t n) const {
  if (valid_min == 0 && valid_max == 0) return absl::OkStatus();
  switch (dtype) {
    case DType::kInt64: return CheckEach(*this, static_cast<const int64_t*>(values), n);
    case DType::kInt32: return CheckEach(*this, static_cast<const int32_t*>(values), n);
    case DType::kInt8: return CheckEach(*this, static_cast<const int8_t*>(values), n);
    case DType::kUint8: return CheckEach(*this, static_cast<const uint8_t*>(values), n);
    default: return absl::OkStatus();
  }
}

double PackageManifest::estimated_seconds() const {
  double sum = 0;
  for (const PackageTask& task : tasks) {
    if (task.estimated_seconds <= 0) return 0;
    sum += task.weight * task.estimated_seconds;
  }
  return sum;
}

namespace {

// What a plan alone has.
void AddPlan(const PackageManifest& manifest, Json& json) {
  if (!manifest.sizes.empty()) {
    json["sizes"] = manifest.sizes;
    json["padding"] = Json::object();
    for (const auto& [symbol, padding] : manifest.padding) {
      json["padding"][symbol] = Json{{"least", padding.least}};
      if (!padding.why_not.empty()) json["padding"][symbol]["why_not"] = padding.why_not;
      if (padding.needs_first) json["padding"][symbol]["needs_first"] = true;
    }
  }
  json["arena_bytes"] = manifest.arena_bytes;
  if (manifest.latency_seconds > 0) json["latency_us"] = manifest.latency_seconds * 1e6;
  const auto add = [&](const char* key, const auto& list, auto to_json) {
    json[key] = Json::array();
    for (const auto& item : list) json[key].push_back(to_json(item));
  };
  add("inputs", manifest.inputs, [](const PackagePort& port) { return ToJson(port, true); });
  add("outputs", manifest.outputs, [](const PackagePort& port) { return ToJson(port, false); });
  add("tasks", manifest.tasks, [](const PackageTask& task) { return ToJson(task); });
  add("tensors", manifest.tensors, [](const PackageTensor& tensor) { return ToJson(tensor); });
  add("steps", manifest.steps, [](const PackageStep& step) { return ToJson(step); });
}

int VersionFor(const std::vector<PackageManifest>& plans) {
  if (plans.size() > 1 || !plans.front().sizes.empty()) return kPackageVersion;
  const std::vector<PackageTask>& tasks = plans.front().tasks;
  return std::any_of(tasks.begin(), tasks.end(), [](const PackageTask& task) { return !task.place.whole(); }) ? 2 : 1;
}

}  // namespace

std::string PlansToJson(const std::vector<PackageManifest>& plans) {
  DIAPASON_CHECK(!plans.empty());
  const PackageManifest& first = plans.front();
  // Ordered: the short facts first, the long tables last.
  Json json;
  json["format"] = kFormat;
  json["version"] = VersionFor(plans);
  json["network"] = first.network;
  json["target"] = first.target.ToString();
  json["device"] = Json{{"model", first.device.model},
                        {"arch", first.device.arch},
                        {"driver", first.device.driver},
                        {"vector_bytes", first.device.vector_bytes}};
  if (!first.libraries.empty()) json["libraries"] = Json::array();
  for (Library library : first.libraries) json["libraries"].push_back(NameOf(library));
  json["weights"] = Json{{"bytes", first.weights_bytes}, {"checksum", first.weights_checksum}};
  if (!first.mask.empty()) json["mask"] = first.mask;
  if (VersionFor(plans) == kPackageVersion) {
    json["plans"] = Json::array();
    for (const PackageManifest& plan : plans) AddPlan(plan, json["plans"].emplace_back());
  } else {
    AddPlan(first, json);
  }
  return JsonText(json, {.indent = 1}) + "\n";
}

absl::StatusOr<std::vector<PackageManifest>> PlansFromJson(const std::string& text, const std::string& path) {
  const Json json = ParseJson(text);
  if (!json.is_object() || json.value("format", Json()) != kFormat)
    return absl::DataLossError(absl::StrCat(path,
                                            " is not the manifest of a diapason package; name a folder made by "
                                            "'diapason build'"));
  const Json version = json.value("version", Json());
  if (version != 1 && version != 2 && version != kPackageVersion)
    return absl::FailedPreconditionError(absl::StrCat(path, " has format version ", JsonText(version),
                                                      ", this diapason reads versions 1 to ", kPackageVersion,
                                                      "; build the package again"));
  try {
    return Read(json);
  } catch (const Json::exception& e) {
    return Mangled(path, e.what());
  } catch (const BadField& damaged) {
    return Mangled(path, damaged.what);
  }
}

const char* SourceEnding(TargetKind kind) {
  switch (kind) {
    case TargetKind::kCpu: return ".c";
    case TargetKind::kOpenCl: return ".cl";
    case TargetKind::kCuda: return ".cu";
  }
  return "";
}

const char* BinaryEnding(TargetKind kind) {
  switch (kind) {
    case TargetKind::kCpu: return ".so";
    case TargetKind::kOpenCl: return "";
    case TargetKind::kCuda: return ".cubin";
  }
  return "";
}

}  // namespace diapason
