#include "compiler/build/package_format.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace diapason {
namespace {

using Json = nlohmann::json;

PackageManifest Example() {
  PackageManifest manifest;
  manifest.network = "net \"quoted\"";
  manifest.target.kind = TargetKind::kCuda;
  manifest.target.arch = "sm_90";
  manifest.device.model = "NVIDIA H200";
  manifest.device.arch = "sm_90";
  manifest.device.driver = "CUDA 12.4";
  manifest.weights_bytes = 1024;
  manifest.weights_checksum = 0xfedcba9876543210ull;
  manifest.arena_bytes = 2048;
  manifest.inputs = {{"x", DType::kInt64, {2, 3}, 0, -1, 5}};
  manifest.outputs = {{"y", DType::kFloat16, {6}, 2, 0, 0}};
  manifest.tasks = {{"gather", "00_gather", "abc_6", 2, 17, "split", 3.5e-6, 99}};
  manifest.tensors = {{"x", DType::kInt64, 6, PackageTensor::Place::kInput, 0},
                      {"w", DType::kFloat32, 128, PackageTensor::Place::kConstant, 512},
                      {"y", DType::kFloat16, 6, PackageTensor::Place::kArena, 1536}};
  manifest.steps = {{0, {0, 1}, {2}, {{3, 512}}}};
  return manifest;
}

std::string ManifestToJson(const PackageManifest& manifest) { return PlansToJson({manifest}); }

absl::StatusOr<PackageManifest> ManifestFromJson(const std::string& text, const std::string& path) {
  absl::StatusOr<std::vector<PackageManifest>> plans = PlansFromJson(text, path);
  if (!plans.ok()) return plans.status();
  EXPECT_EQ(plans->size(), 1u);
  return plans->front();
}

// The example for two sizes.
std::vector<PackageManifest> TwoPlans() {
  std::vector<PackageManifest> plans = {Example(), Example()};
  for (int64_t batch : {2, 4}) {
    PackageManifest& plan = plans[batch / 2 - 1];
    plan.mask = "x";
    plan.sizes = {{"batch", batch}, {"seq", 3}};
    plan.padding = {{"batch", {batch == 2 ? 1 : 3, "", true}}, {"seq", {1, "node 's' (softmax) combines values"}}};
    plan.inputs[0].shape = {batch, 3};
    plan.inputs[0].symbols = {"batch", "seq"};
    plan.outputs[0].shape = {3 * batch};
    plan.outputs[0].grows = {{"batch", 0, 3}};
    plan.tensors[0].elements = plan.tensors[2].elements = 3 * batch;
  }
  return plans;
}

TEST(PackageFormat, SizesMakeVersionThree) {
  const std::string text = PlansToJson(TwoPlans());
  const absl::StatusOr<std::vector<PackageManifest>> read = PlansFromJson(text, "p/manifest.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(PlansToJson(*read), text);
  EXPECT_EQ(Json::parse(text)["version"], 3);
  ASSERT_EQ(read->size(), 2u);
  const PackageManifest& plan = (*read)[1];
  EXPECT_EQ(plan.sizes, (SymbolSizes{{"batch", 4}, {"seq", 3}}));
  EXPECT_EQ(plan.mask, "x");
  EXPECT_EQ(plan.weights_bytes, 1024);
  EXPECT_EQ(plan.inputs[0].symbols, (std::vector<std::string>{"batch", "seq"}));
  EXPECT_EQ(plan.outputs[0].grows[0].block, 3);
  EXPECT_EQ(plan.padding.at("batch").least, 3);
  EXPECT_EQ(plan.padding.at("seq").why_not, "node 's' (softmax) combines values");
  EXPECT_TRUE(plan.padding.at("batch").needs_first);
  EXPECT_FALSE(plan.padding.at("seq").needs_first);
}

TEST(PackageFormat, PlansThatContradictTheirSizesAreRefused) {
  const auto refusal = [](const std::function<void(Json&)>& change) {
    Json json = Json::parse(PlansToJson(TwoPlans()));
    change(json);
    return std::string(PlansFromJson(json.dump(), "m").status().message());
  };
  const auto damaged = [](const std::string& why) { return "m is damaged: " + why + "; build the package again"; };
  EXPECT_EQ(refusal([](Json& j) { j["plans"] = Json::array(); }), damaged("it has no valid list of plans"));
  EXPECT_EQ(refusal([](Json& j) {
              j["plans"] = Json::array();
              while (j["plans"].size() < 65) j["plans"].push_back(1);
            }),
            damaged("it has no valid list of plans"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][0]["sizes"] = Json::object(); }), damaged("a plan has no sizes"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][0]["sizes"]["seq"] = 0; }), damaged("'seq' has no valid size"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][0]["sizes"]["batch"] = 3; }),
            damaged("input 'x' does not have the plan's sizes"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][0]["padding"]["batch"]["least"] = 9; }),
            damaged("'batch' has no valid padding"));
  EXPECT_EQ(refusal([](Json& j) {
              j["plans"][0]["padding"]["b"] = {{"least", 1}};
            }),
            damaged("'b' is no symbol of its plan"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][0]["inputs"][0]["symbols"] = {"batch"}; }),
            damaged("input 'x' has no symbols"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][0]["outputs"][0]["grows"][0]["axis"] = 1; }),
            damaged("output 'y' does not have the plan's sizes"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][0]["outputs"][0]["grows"][0]["block"] = 2; }),
            damaged("output 'y' does not have the plan's sizes"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][1] = j["plans"][0]; }), damaged("it has two plans for batch=2 seq=3"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][1]["inputs"][0]["name"] = "z"; }),
            damaged("its plans have other inputs, outputs or symbols than the first"));
  EXPECT_EQ(refusal([](Json& j) { j["plans"][1]["steps"][0]["task"] = 7; }), damaged("task 7 does not exist"));
}

TEST(PackageFormat, WhatIsWrittenIsReadBack) {
  const std::string text = ManifestToJson(Example());
  const absl::StatusOr<PackageManifest> read = ManifestFromJson(text, "p/manifest.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ManifestToJson(*read), text);
  EXPECT_EQ(read->weights_checksum, 0xfedcba9876543210ull);
  EXPECT_EQ(read->inputs[0].valid_min, -1);
  EXPECT_EQ(read->inputs[0].TypeText(), "int64 2x3");
  EXPECT_EQ(read->steps[0].workspaces[0].second, 512);
  EXPECT_EQ(read->tasks[0].record, 17);
  EXPECT_NEAR(read->estimated_seconds(), 7e-6, 1e-12);
}

TEST(PackageFormat, TheDocumentedFieldsAreThere) {
  const Json json = Json::parse(ManifestToJson(Example()));
  EXPECT_EQ(json["format"], "diapason-package");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["target"], "cuda -arch=sm_90");
  EXPECT_EQ(json["device"]["model"], "NVIDIA H200");
  EXPECT_EQ(json["tensors"][1]["place"], "constant");
}

TEST(PackageFormat, PlacesMakeVersionTwo) {
  PackageManifest manifest = Example();
  manifest.tensors[2].elements = manifest.outputs[0].shape[0] = 12;
  manifest.tasks[0].place = {3, 6, 3, 12};
  const std::string text = ManifestToJson(manifest);
  const absl::StatusOr<PackageManifest> read = ManifestFromJson(text, "p/manifest.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tasks[0].place, manifest.tasks[0].place);
  EXPECT_EQ(ManifestToJson(*read), text);
  Json json = Json::parse(text);
  EXPECT_EQ(json["version"], 2);
  json["tasks"][0]["place"]["offset"] = 10;
  EXPECT_EQ(ManifestFromJson(json.dump(), "p/manifest.json").status().message(),
            "p/manifest.json is damaged: task 'gather' has no valid place; build the package again");
  json["tasks"][0]["place"]["offset"] = 3;
  json["tasks"][0]["place"]["elements"] = 24;
  EXPECT_EQ(ManifestFromJson(json.dump(), "p/manifest.json").status().message(),
            "p/manifest.json is damaged: the place of task 'gather' does not fit its tensor; build the package again");
}

TEST(PackageFormat, AnEstimateNeedsEveryTask) {
  PackageManifest manifest = Example();
  manifest.tasks.push_back({"add", "01_add", "k", 1, -1, "default", 0, 0});
  EXPECT_EQ(manifest.estimated_seconds(), 0);
}

TEST(PackageFormat, OtherVersionsAreRefused) {
  Json json = Json::parse(ManifestToJson(Example()));
  json["version"] = 4;
  const absl::Status status = ManifestFromJson(json.dump(), "p/manifest.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "p/manifest.json has format version 4, this diapason reads versions 1 to 3; build the package again");
}

TEST(PackageFormat, TextCutAnywhereIsRefused) {
  const std::string text = ManifestToJson(Example());
  for (size_t cut = 0; cut + 2 < text.size(); ++cut) {
    const absl::Status status = ManifestFromJson(text.substr(0, cut), "p/manifest.json").status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << cut;
  }
  EXPECT_EQ(ManifestFromJson("{}", "p/manifest.json").status().message(),
            "p/manifest.json is not the manifest of a diapason package; name a folder made by 'diapason build'");
}

// Each field removed, and each replaced by something of another kind: refused, or ignored where it does not matter.
TEST(PackageFormat, DamagedFieldsNeverCrash) {
  const Json whole = Json::parse(ManifestToJson(Example()));
  int refused = 0, fields = 0;
  const Json flat = whole.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    ++fields;
    const Json::json_pointer at(pointer);
    for (const Json& other : {Json(), Json(-7), Json(1e30), Json("text"), Json::array(), Json(int64_t{1} << 60)}) {
      Json damaged = whole;
      damaged[at] = other;
      refused += !ManifestFromJson(damaged.dump(), "m").ok();
    }
    Json without = whole;
    if (without[at.parent_pointer()].is_object()) without[at.parent_pointer()].erase(at.back());
    refused += !ManifestFromJson(without.dump(), "m").ok();
  }
  EXPECT_GT(refused, 3 * fields);
}

TEST(PackageFormat, NumbersThatPointNowhereAreRefused) {
  struct Case {
    const char* pointer;
    Json value;
    const char* text;
  };
  for (const Case& c :
       {Case{"/steps/0/inputs/1", 3, "m is damaged: tensor 3 does not exist; build the package again"},
        Case{"/steps/0/task", -1, "m is damaged: task -1 does not exist; build the package again"},
        Case{"/tensors/1/offset", 1024,
             "m is damaged: constant 'w' lies outside its memory; build the "
             "package again"},
        Case{"/tensors/2/offset", 100,
             "m is damaged: tensor 'y' lies outside its memory; build the "
             "package again"},
        Case{"/outputs/0/shape/0", 7,
             "m is damaged: 'y' does not fit its tensor; build the package "
             "again"},
        Case{"/steps/0/task", int64_t{1} << 32,
             "m is damaged: 4294967296 is no integer that fits its place; build the package again"},
        Case{"/arena_bytes", 1e30, "m is damaged: 1e+30 is no integer that fits its place; build the package again"},
        Case{"/outputs/0/shape", 7, "m is damaged: 7 stands in place of a list; build the package again"},
        Case{"/inputs/0/tensor", 9, "m is damaged: tensor 9 does not exist; build the package again"},
        Case{"/tasks/0/file", "../../x",
             "m is damaged: '../../x' is no file name; build the package "
             "again"}}) {
    Json json = Json::parse(ManifestToJson(Example()));
    json[Json::json_pointer(c.pointer)] = c.value;
    const absl::Status status = ManifestFromJson(json.dump(), "m").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), c.text);
  }
}

}  // namespace
}  // namespace diapason
