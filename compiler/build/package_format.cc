#include "compiler/build/package_format.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/build/memory_plan.h"
#include "compiler/tensor/check.h"
#include "nlohmann/json.hpp"

namespace diapason {
namespace {

using Json = nlohmann::ordered_json;  // fields stay in the order of the document above
using Place = PackageTensor::Place;

constexpr char kFormat[] = "diapason-package";

const char* NameOfPlace(Place place) {
  switch (place) {
    case Place::kInput:
      return "input";
    case Place::kConstant:
      return "constant";
    case Place::kArena:
      return "arena";
  }
  return "";
}

Json ToJson(const PackagePort& port, bool input) {
  Json json = {{"name", port.name}, {"dtype", NameOf(port.dtype)}, {"shape", port.shape}, {"tensor", port.tensor}};
  if (input) {
    json["valid_min"] = port.valid_min;
    json["valid_max"] = port.valid_max;
  }
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
  const OutputPlace& place = task.place;
  if (!place.whole())
    json["place"] = Json{{"row", place.row}, {"stride", place.stride}, {"offset", place.offset}, {"elements", place.elements}};
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

// The reading functions below throw nlohmann's exceptions on a field that is missing or of another kind, and Damaged on
// one whose value makes no sense; ManifestFromJson catches both.
struct Damaged {
  std::string what;
};

DType DTypeOf(const Json& json) {
  const std::string name = json.at("dtype").get<std::string>();
  const std::optional<DType> dtype = DTypeFromName(name);
  if (!dtype) throw Damaged{absl::StrCat("'", name, "' is no element type")};
  return *dtype;
}

PackagePort PortOf(const Json& json) {
  PackagePort port;
  port.name = json.at("name").get<std::string>();
  port.dtype = DTypeOf(json);
  port.shape = json.at("shape").get<std::vector<int64_t>>();
  port.tensor = json.at("tensor").get<int>();
  port.valid_min = json.value("valid_min", int64_t{0});
  port.valid_max = json.value("valid_max", int64_t{0});
  return port;
}

PackageTask TaskOf(const Json& json) {
  PackageTask task;
  task.name = json.at("name").get<std::string>();
  task.file = json.at("file").get<std::string>();
  if (task.file.empty() || task.file.find('/') != std::string::npos)
    throw Damaged{absl::StrCat("'", task.file, "' is no file name")};
  task.workload = json.at("workload").get<std::string>();
  task.weight = json.at("weight").get<int>();
  task.record = json.at("record").get<int64_t>();
  task.schedule = json.at("schedule").get<std::string>();
  task.estimated_seconds = json.at("estimated_us").get<double>() * 1e-6;
  task.checksum = json.at("checksum").get<uint64_t>();
  if (json.contains("place")) {
    const Json& place = json.at("place");
    task.place = {place.at("row").get<int64_t>(), place.at("stride").get<int64_t>(), place.at("offset").get<int64_t>(),
                  place.at("elements").get<int64_t>()};
    if (!task.place.Holds(task.place.row)) throw Damaged{absl::StrCat("task '", task.name, "' has no valid place")};
  }
  return task;
}

Place PlaceOf(const std::string& name) {
  for (Place place : {Place::kInput, Place::kConstant, Place::kArena})
    if (name == NameOfPlace(place)) return place;
  throw Damaged{absl::StrCat("'", name, "' is no place of a tensor")};
}

PackageTensor TensorOf(const Json& json) {
  PackageTensor tensor;
  tensor.name = json.at("name").get<std::string>();
  tensor.dtype = DTypeOf(json);
  tensor.elements = json.at("elements").get<int64_t>();
  tensor.place = PlaceOf(json.at("place").get<std::string>());
  tensor.offset = json.at("offset").get<int64_t>();
  return tensor;
}

PackageStep StepOf(const Json& json) {
  PackageStep step;
  step.task = json.at("task").get<int>();
  step.inputs = json.at("inputs").get<std::vector<int>>();
  step.outputs = json.at("outputs").get<std::vector<int>>();
  step.workspaces = json.at("workspaces").get<std::vector<std::pair<int, int64_t>>>();
  return step;
}

void CheckRange(int64_t offset, int64_t bytes, int64_t limit, const std::string& what) {
  if (offset < 0 || bytes < 0 || offset % kArenaAlignment != 0 || offset > limit || bytes > limit - offset)
    throw Damaged{absl::StrCat(what, " lies outside its memory")};
}

void CheckIndex(int index, size_t size, const std::string& what) {
  if (index < 0 || index >= static_cast<int64_t>(size))
    throw Damaged{absl::StrCat(what, " ", index, " does not exist")};
}

void CheckPort(const PackagePort& port, const PackageManifest& manifest) {
  CheckIndex(port.tensor, manifest.tensors.size(), "tensor");
  const PackageTensor& tensor = manifest.tensors[port.tensor];
  if (port.elements() != tensor.elements || port.dtype != tensor.dtype)
    throw Damaged{absl::StrCat("'", port.name, "' does not fit its tensor")};
}

void Check(const PackageManifest& manifest) {
  if (manifest.arena_bytes < 0 || manifest.weights_bytes < 0) throw Damaged{"a size is negative"};
  for (const PackageTensor& tensor : manifest.tensors) {
    if (tensor.elements < 0 || tensor.elements > std::numeric_limits<int64_t>::max() / 16)
      throw Damaged{absl::StrCat("tensor '", tensor.name, "' has no valid size")};
    if (tensor.place == Place::kConstant)
      CheckRange(tensor.offset, tensor.bytes(), manifest.weights_bytes, absl::StrCat("constant '", tensor.name, "'"));
    if (tensor.place == Place::kArena)
      CheckRange(tensor.offset, tensor.bytes(), manifest.arena_bytes, absl::StrCat("tensor '", tensor.name, "'"));
  }
  for (const PackagePort& port : manifest.inputs) {
    CheckPort(port, manifest);
    if (manifest.tensors[port.tensor].place != Place::kInput)
      throw Damaged{absl::StrCat("the tensor of input '", port.name, "' is none")};
  }
  for (const PackagePort& port : manifest.outputs) CheckPort(port, manifest);
  for (const PackageStep& step : manifest.steps) {
    CheckIndex(step.task, manifest.tasks.size(), "task");
    for (int tensor : step.inputs) CheckIndex(tensor, manifest.tensors.size(), "tensor");
    for (int tensor : step.outputs) CheckIndex(tensor, manifest.tensors.size(), "tensor");
    const OutputPlace& place = manifest.tasks[step.task].place;
    if (!place.whole() && (step.outputs.size() != 1 || manifest.tensors[step.outputs[0]].elements != place.elements))
      throw Damaged{absl::StrCat("the place of task '", manifest.tasks[step.task].name, "' does not fit its tensor")};
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
  throw Damaged{absl::StrCat("'", name, "' is no library")};
}

PackageManifest Read(const Json& json) {
  PackageManifest manifest;
  manifest.network = json.at("network").get<std::string>();
  const std::string target = json.at("target").get<std::string>();
  absl::StatusOr<Target> parsed = Target::Parse(target);
  if (!parsed.ok()) throw Damaged{absl::StrCat("'", target, "' is no target")};
  manifest.target = *parsed;
  const Json& device = json.at("device");
  manifest.device.model = device.at("model").get<std::string>();
  manifest.device.arch = device.at("arch").get<std::string>();
  manifest.device.driver = device.at("driver").get<std::string>();
  manifest.device.vector_bytes = device.at("vector_bytes").get<int>();
  if (json.contains("libraries")) ReadList(json, "libraries", manifest.libraries, LibraryOf);
  manifest.weights_bytes = json.at("weights").at("bytes").get<int64_t>();
  manifest.weights_checksum = json.at("weights").at("checksum").get<uint64_t>();
  manifest.arena_bytes = json.at("arena_bytes").get<int64_t>();
  manifest.latency_seconds = json.value("latency_us", 0.0) * 1e-6;
  ReadList(json, "inputs", manifest.inputs, PortOf);
  ReadList(json, "outputs", manifest.outputs, PortOf);
  ReadList(json, "tasks", manifest.tasks, TaskOf);
  ReadList(json, "tensors", manifest.tensors, TensorOf);
  ReadList(json, "steps", manifest.steps, StepOf);
  Check(manifest);
  return manifest;
}

absl::Status Mangled(const std::string& path, const std::string& why) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", why, "; build the package again"));
}

}  // namespace

int64_t PackagePort::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && n > std::numeric_limits<int64_t>::max() / extent)) return -1;
    n *= extent;
  }
  return n;
}

std::string PackagePort::TypeText() const { return absl::StrCat(NameOf(dtype), " ", absl::StrJoin(shape, "x")); }

double PackageManifest::estimated_seconds() const {
  double sum = 0;
  for (const PackageTask& task : tasks) {
    if (task.estimated_seconds <= 0) return 0;
    sum += task.weight * task.estimated_seconds;
  }
  return sum;
}

std::string ManifestToJson(const PackageManifest& manifest) {
  // Ordered: the short facts first, the long tables last.
  Json json;
  json["format"] = kFormat;
  const bool placed = std::any_of(manifest.tasks.begin(), manifest.tasks.end(),
                                  [](const PackageTask& task) { return !task.place.whole(); });
  json["version"] = placed ? kPackageVersion : 1;
  json["network"] = manifest.network;
  json["target"] = manifest.target.ToString();
  json["device"] = Json{{"model", manifest.device.model},
                        {"arch", manifest.device.arch},
                        {"driver", manifest.device.driver},
                        {"vector_bytes", manifest.device.vector_bytes}};
  if (!manifest.libraries.empty()) json["libraries"] = Json::array();
  for (Library library : manifest.libraries) json["libraries"].push_back(NameOf(library));
  json["weights"] = Json{{"bytes", manifest.weights_bytes}, {"checksum", manifest.weights_checksum}};
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
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<PackageManifest> ManifestFromJson(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kFormat)
    return absl::DataLossError(absl::StrCat(path,
                                            " is not the manifest of a diapason package; name a folder made by "
                                            "'diapason build'"));
  const Json version = json.value("version", Json());
  if (version != 1 && version != kPackageVersion)
    return absl::FailedPreconditionError(absl::StrCat(path, " has format version ", version.dump(),
                                                      ", this diapason reads versions 1 and ", kPackageVersion,
                                                      "; build the package again"));
  try {
    return Read(json);
  } catch (const nlohmann::json::exception& e) {
    return Mangled(path, e.what());
  } catch (const Damaged& damaged) {
    return Mangled(path, damaged.what);
  }
}

const char* SourceEnding(TargetKind kind) {
  switch (kind) {
    case TargetKind::kCpu:
      return ".c";
    case TargetKind::kOpenCl:
      return ".cl";
    case TargetKind::kCuda:
      return ".cu";
  }
  return "";
}

const char* BinaryEnding(TargetKind kind) {
  switch (kind) {
    case TargetKind::kCpu:
      return ".so";
    case TargetKind::kOpenCl:
      return "";
    case TargetKind::kCuda:
      return ".cubin";
  }
  return "";
}

}  // namespace diapason
