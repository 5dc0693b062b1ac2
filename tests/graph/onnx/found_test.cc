// Results with as many rows as the network finds: NonMaxSuppression, NonZero, Compress.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>

#include "../testing.h"
#include "compiler/graph/onnx/import.h"
#include "model_builder.h"

namespace diapason {
namespace {

ModelOptions Room(const std::string& result, int64_t rows) {
  ModelOptions options;
  options.dims[result + ".rows"] = rows;
  return options;
}

// The outputs; the last one is the count.
std::vector<Array> Outputs(const ModelBuilder& model, const ModelOptions& options, const std::vector<Array>& inputs) {
  const absl::StatusOr<Network> network = model.Import(options);
  EXPECT_TRUE(network.ok()) << network.status();
  if (!network.ok()) return {};
  absl::StatusOr<std::vector<Array>> outputs = EvaluateNetwork(*network, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<Array>();
}

std::vector<int64_t> IntsOf(const Array& array) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < array.elements(); ++i) values.push_back(array.int_at(i));
  return values;
}

std::string ImportErrorOf(const ModelBuilder& model, const ModelOptions& options = {}) {
  return std::string(model.Import(options).status().message());
}

// ---- non-maximum suppression

struct Detection {
  int64_t most = 3;
  float overlap = 0.3F, least = 0.2F;
  int64_t centred = 0;
};

constexpr int64_t kBatch = 2, kClasses = 2, kBoxes = 12;

ModelBuilder DetectionModel(const Detection& d) {
  ModelBuilder model(11);
  model.Input("boxes", {kBatch, kBoxes, 4}).Input("scores", {kBatch, kClasses, kBoxes});
  model.Initializer("most", IntList({d.most})).Initializer("overlap", Array::FromFloats({1}, {d.overlap}));
  model.Initializer("least", Array::FromFloats({1}, {d.least}));
  model.Node("NonMaxSuppression", {"boxes", "scores", "most", "overlap", "least"}, {"found"},
             {{"center_point_box", d.centred}});
  return model.Output("found", DType::kInt64);
}

struct Box {
  double low[2], high[2];
  double Area() const { return (high[0] - low[0]) * (high[1] - low[1]); }
};

Box BoxAt(const Array& boxes, int64_t b, int64_t i, bool centred) {
  double v[4];
  for (int64_t k = 0; k < 4; ++k) v[k] = boxes.at((b * kBoxes + i) * 4 + k);
  if (centred) return {{v[0] - v[2] / 2, v[1] - v[3] / 2}, {v[0] + v[2] / 2, v[1] + v[3] / 2}};
  return {{std::min(v[0], v[2]), std::min(v[1], v[3])}, {std::max(v[0], v[2]), std::max(v[1], v[3])}};
}

double OverlapOf(const Box& a, const Box& b) {
  double both = 1;
  for (int d = 0; d < 2; ++d) both *= std::max(0.0, std::min(a.high[d], b.high[d]) - std::max(a.low[d], b.low[d]));
  return both / (a.Area() + b.Area() - both);
}

// As ONNX describes it: the best boxes of each class that overlap none that was taken.
std::vector<int64_t> ExpectedRows(const Detection& d, const Array& boxes, const Array& scores) {
  std::vector<int64_t> rows;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t c = 0; c < kClasses; ++c) {
      const auto score = [&](int64_t i) { return scores.at((b * kClasses + c) * kBoxes + i); };
      std::vector<int64_t> order(kBoxes), taken;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return score(i) > score(j); });
      for (int64_t i : order) {
        const bool free = std::none_of(taken.begin(), taken.end(), [&](int64_t t) {
          return OverlapOf(BoxAt(boxes, b, i, d.centred != 0), BoxAt(boxes, b, t, d.centred != 0)) > d.overlap;
        });
        if (!free || score(i) <= d.least || static_cast<int64_t>(taken.size()) == d.most) continue;
        taken.push_back(i);
        rows.insert(rows.end(), {b, c, i});
      }
    }
  }
  return rows;
}

void ExpectFound(const Detection& d, uint64_t seed) {
  Array boxes = RandomArray({DType::kFloat32, {kBatch, kBoxes, 4}}, seed),
        scores = RandomArray({DType::kFloat32, {kBatch, kClasses, kBoxes}}, seed + 1);
  for (int64_t i = 0; d.centred != 0 && i < boxes.elements(); ++i) boxes.set(i, std::abs(boxes.at(i)));
  scores.set(1, scores.at(0));  // of equal ones the first
  std::vector<int64_t> want = ExpectedRows(d, boxes, scores);
  const int64_t count = static_cast<int64_t>(want.size()) / 3, room = count + 2;
  ASSERT_GT(count, 2);
  want.resize(3 * room, -1);
  const std::vector<Array> outputs = Outputs(DetectionModel(d), Room("found", room), {boxes, scores});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].shape, (Ints{room, 3}));
  EXPECT_EQ(IntsOf(outputs[0]), want);
  EXPECT_EQ(IntsOf(outputs[1]), (Ints{count}));
}

TEST(Found, BoxesAreThoseOfAnIndependentImplementation) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    ExpectFound({}, seed);
    ExpectFound({12, 0.1F, -2.0F, 0}, seed);  // until none is left
    ExpectFound({2, 0.5F, -0.5F, 1}, seed);
    ExpectFound({1, 0.5F, -0.9F, 0}, seed);
  }
}

TEST(Found, ScoresOfNoLimitAndBoxesWithoutArea) {
  ModelBuilder model(11);
  model.Input("boxes", {1, 3, 4}).Input("scores", {1, 1, 3}).Initializer("most", IntList({3}));
  model.Node("NonMaxSuppression", {"boxes", "scores", "most"}, {"found"}).Output("found", DType::kInt64);
  // Two points at one place, and an infinite score.
  const Array boxes = Array::FromFloats({1, 3, 4}, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 2, 2});
  const Array scores = Array::FromFloats({1, 1, 3}, {-3e38F, 0, std::numeric_limits<float>::infinity()});
  const std::vector<Array> outputs = Outputs(model, Room("found", 3), {boxes, scores});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(IntsOf(outputs[0]), (Ints{0, 0, 2, 0, 0, 1, 0, 0, 0}));
}

TEST(Found, TheCountSaysWhenThereWasNoRoomForAll) {
  const Array boxes = Array::FromFloats({1, 3, 4}, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}),
              scores = Array::FromFloats({1, 1, 3}, {1, 3, 2});
  ModelBuilder model(11);
  model.Input("boxes", {1, 3, 4}).Input("scores", {1, 1, 3}).Initializer("most", IntList({10}));
  model.Node("NonMaxSuppression", {"boxes", "scores", "most"}, {"found"}).Output("found", DType::kInt64);
  const std::vector<Array> outputs = Outputs(model, Room("found", 2), {boxes, scores});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(IntsOf(outputs[0]), (Ints{0, 0, 1, 0, 0, 2}));
  EXPECT_EQ(IntsOf(outputs[1]), (Ints{3}));
}

// ---- elements that are not 0

TEST(Found, PlacesOfWhatIsNotZeroInOrder) {
  ModelBuilder model(13);
  model.Input("x", {2, 3, 5}).Node("NonZero", {"x"}, {"places"}).Output("places", DType::kInt64);
  Array x(DType::kFloat32, {2, 3, 5});
  for (int64_t i : {1, 7, 14, 15, 29}) x.set(i, -0.5);
  x.set(3, -0.0);
  const std::vector<Array> outputs = Outputs(model, Room("places", 7), {x});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].shape, (Ints{3, 7}));
  EXPECT_EQ(IntsOf(outputs[0]), (Ints{0, 0, 0, 1, 1, -1, -1, 0, 1, 2, 0, 2, -1, -1, 1, 2, 4, 0, 4, -1, -1}));
  EXPECT_EQ(IntsOf(outputs[1]), (Ints{5}));
  EXPECT_EQ(IntsOf(Outputs(model, Room("places", 2), {Array(DType::kFloat32, {2, 3, 5})})[0]), Ints(6, -1));
}

TEST(Found, ElementsByACondition) {
  ModelBuilder model(13);
  model.Input("x", {2, 4}).Input("keep", {3}, DType::kBool);
  model.Node("Compress", {"x", "keep"}, {"kept"}, {{"axis", int64_t{-1}}}).Output("kept");
  Array keep(DType::kBool, {3});
  keep.set_int(0, 1);
  keep.set_int(2, 1);
  const std::vector<Array> outputs = Outputs(model, Room("kept", 3), {Counting({2, 4}), keep});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].shape, (Ints{2, 3}));
  for (int64_t k : {0, 1}) {
    EXPECT_EQ(outputs[0].at(3 * k), 4 * k + 1);
    EXPECT_EQ(outputs[0].at(3 * k + 1), 4 * k + 3);
  }
  EXPECT_EQ(IntsOf(outputs[1]), (Ints{2}));
}

// ---- rows without --dim

enum class TorchExporter { kOlder, kNewer };

// kept NAME s and b of class `k`: scores and boxes where the score is above the limit, as PyTorch's exporters write it.
void AddFilter(ModelBuilder& model, TorchExporter exporter, const std::string& k) {
  const auto n = [&](const std::string& name) { return name + k; };
  if (exporter == TorchExporter::kOlder) {
    for (const std::string of : {"s", "b"}) {
      const std::string places = n("places" + of), turned = n("turned" + of);
      model.Node("NonZero", {n("keep")}, {places}).Node("Transpose", {places}, {turned}, {{"perm", Ints{1, 0}}});
      model.Node("GatherND", {of == "s" ? n("all") : "boxes", turned}, {n("kept" + of)});
    }
    return;
  }
  model.Node("NonZero", {n("keep")}, {n("places")})
      .Node("Transpose", {n("places")}, {n("turned")}, {{"perm", Ints{1, 0}}});
  model.Node("Squeeze", {n("turned"), "one"}, {n("list")}).Node("Max", {n("list")}, {n("largest")});
  model.Node("Shape", {n("largest")}, {n("room")}).Node("Expand", {n("list"), n("room")}, {n("expanded")});
  model.Node("Unsqueeze", {n("expanded"), "last"}, {n("at")}).Node("GatherND", {n("all"), n("at")}, {n("kepts")});
  model.Node("GatherND", {"boxes", n("at")}, {n("keptb")});
}

// Boxes of which a score is above a limit, the best of them, and non-maximum suppression: as detectors of torchvision
// do it, for each of two classes.
ModelBuilder FilteringDetector(TorchExporter exporter) {
  ModelBuilder model(17);
  model.Input("boxes", {12, 4}).Input("scores", {12, 2}).Initializer("limit", Array::FromFloats({}, {0}));
  model.Initializer("four", IntList({4})).Initializer("zero", IntList({0})).Initializer("one", IntList({1}));
  model.Initializer("last", IntList({-1}));
  for (const char* k : {"0", "1"}) {
    const auto n = [&](const std::string& name) { return name + k; };
    Array column(DType::kInt64, {});
    column.set_int(0, k[0] - '0');
    model.Initializer(n("column"), column).Initializer(n("class"), IntList({k[0] - '0'}));
    model.Node("Gather", {"scores", n("column")}, {n("all")}, {{"axis", int64_t{1}}});
    model.Node("Greater", {n("all"), "limit"}, {n("keep")});
    AddFilter(model, exporter, k);
    model.Node("Shape", {n("kepts")}, {n("shape")})
        .Node("Concat", {n("shape"), "four"}, {n("both")}, {{"axis", int64_t{0}}});
    model.Node("ReduceMin", {n("both")}, {n("k0")}, {{"keepdims", int64_t{0}}});
    model.Node("Reshape", {n("k0"), "one"}, {n("k")}).Node("TopK", {n("kepts"), n("k")}, {n("best"), n("index")});
    model.Node("Gather", {n("keptb"), n("index")}, {n("box")}, {{"axis", int64_t{0}}});
    model.Node("Shape", {n("best")}, {n("found")})
        .Node("ConstantOfShape", {n("found")}, {n("label")}, {{"value", Counting({1})}});
  }
  model.Node("Concat", {"box0", "box1"}, {"box"}, {{"axis", int64_t{0}}});
  model.Node("Concat", {"best0", "best1"}, {"score"}, {{"axis", int64_t{0}}});
  model.Node("Concat", {"label0", "label1"}, {"label"}, {{"axis", int64_t{0}}});
  model.Node("ReduceMax", {"box"}, {"widest"}, {{"keepdims", int64_t{0}}});
  model.Node("Mul", {"label", "widest"}, {"offset"}).Node("Unsqueeze", {"offset", "one"}, {"offsets"});
  model.Node("Add", {"box", "offsets"}, {"moved"}).Node("Unsqueeze", {"moved", "zero"}, {"boxes3"});
  model.Initializer("front", IntList({0, 1})).Node("Unsqueeze", {"score", "front"}, {"scores3"});
  model.Initializer("most", IntList({100})).Initializer("overlap", Array::FromFloats({1}, {0.3F}));
  model.Node("NonMaxSuppression", {"boxes3", "scores3", "most", "overlap"}, {"nms"});
  model.Initializer("two", [] {
    Array a(DType::kInt64, {});
    a.set_int(0, 2);
    return a;
  }());
  model.Node("Gather", {"nms", "two"}, {"kept"}, {{"axis", int64_t{1}}});
  model.Node("Gather", {"box", "kept"}, {"b"}).Node("Gather", {"score", "kept"}, {"s"});
  return model.Output("b").Output("s");
}

// The scores that are kept, best first, with their boxes; class by class the four best above 0.
std::vector<std::pair<double, int64_t>> ExpectedBest(const Array& boxes, const Array& scores) {
  std::vector<std::pair<double, int64_t>> best, kept;
  for (int64_t c = 0; c < 2; ++c) {
    std::vector<std::pair<double, int64_t>> of_class;
    for (int64_t i = 0; i < 12; ++i)
      if (scores.at(2 * i + c) > 0) of_class.emplace_back(scores.at(2 * i + c), i);
    std::sort(of_class.rbegin(), of_class.rend());
    if (of_class.size() > 4) of_class.resize(4);
    best.insert(best.end(), of_class.begin(), of_class.end());
  }
  std::sort(best.rbegin(), best.rend());
  for (const auto& [score, i] : best) {
    const bool free = std::none_of(kept.begin(), kept.end(), [&, i = i](const auto& other) {
      return OverlapOf(BoxAt(boxes, 0, i, false), BoxAt(boxes, 0, other.second, false)) > 0.3F;
    });
    if (free) kept.emplace_back(score, i);
  }
  return kept;
}

TEST(Found, WhatAFilterKeepsNeedsNoRoomInFrontOfNonMaximumSuppression) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    const TorchExporter exporter = seed % 2 == 0 ? TorchExporter::kOlder : TorchExporter::kNewer;
    Array boxes = RandomArray({DType::kFloat32, {12, 4}}, seed),
          scores = RandomArray({DType::kFloat32, {12, 2}}, seed + 9);
    for (int64_t i = 0; seed / 2 == 2 && i < 24; ++i)
      scores.set(i, std::min(scores.at(i), i == 7 ? 1.0 : -0.1));         // one at most
    for (int64_t i = 0; seed / 2 == 3 && i < 24; ++i) scores.set(i, -1);  // none
    const auto want = ExpectedBest(boxes, scores);
    const std::vector<Array> outputs = Outputs(FilteringDetector(exporter), Room("nms", 8), {boxes, scores});
    ASSERT_EQ(outputs.size(), 3u);
    ASSERT_EQ(IntsOf(outputs[2]), Ints{static_cast<int64_t>(want.size())});
    for (size_t r = 0; r < want.size(); ++r) {
      EXPECT_EQ(outputs[1].at(r), want[r].first);
      for (int64_t k = 0; k < 4; ++k) EXPECT_EQ(outputs[0].at(4 * r + k), boxes.at(4 * want[r].second + k));
    }
  }
}

// ---- two stages

// `rows` of `data` where `level` is `k`, changed, put back to their places in `result`; as PyTorch's exporters write
// it.
void AddLevel(ModelBuilder& model, TorchExporter exporter, int64_t k, const std::string& before) {
  const auto n = [&](const std::string& name) { return name + std::to_string(k); };
  model.Initializer(n("number"), IntList({k})).Initializer(n("factor"), Array::FromFloats({1}, {2.0F + k}));
  model.Node("Equal", {"level", n("number")}, {n("is")}).Node("NonZero", {n("is")}, {n("places")});
  model.Node("Squeeze", {n("places"), "zero"}, {n("list")}).Node("Gather", {"b", n("list")}, {n("of")});
  model.Node("Mul", {n("of"), n("factor")}, {n("changed")});
  if (exporter == TorchExporter::kNewer) {
    model.Node("Unsqueeze", {n("list"), "last"}, {n("at")});
    model.Node("ScatterND", {before, n("at"), n("changed")}, {n("result")});
    return;
  }
  model.Initializer(n("column"), IntList({-1, 1})).Node("Reshape", {n("list"), n("column")}, {n("turned")});
  model.Node("Shape", {n("turned")}, {n("shape")}).Node("Gather", {n("shape"), "zero"}, {n("count")});
  model.Node("Concat", {n("count"), "four"}, {n("whole")}, {{"axis", int64_t{0}}});
  model.Node("Expand", {n("turned"), n("whole")}, {n("at")});
  model.Node("ScatterElements", {before, n("at"), n("changed")}, {n("result")}, {{"axis", int64_t{0}}});
}

// Boxes by non-maximum suppression, each changed according to its size and scored for two classes, of which the good
// ones pass another non-maximum suppression: as Faster R-CNN of torchvision does it.
ModelBuilder TwoStages(TorchExporter exporter) {
  ModelBuilder model(17);
  model.Input("boxes", {12, 4}).Input("scores", {12});
  model.Initializer("zero", IntList({0})).Initializer("one", IntList({1})).Initializer("last", IntList({-1}));
  model.Initializer("four", IntList({4})).Initializer("front", IntList({0, 1})).Initializer("most", IntList({100}));
  model.Initializer("overlap", Array::FromFloats({1}, {0.3F})).Initializer("two", IntList({2}));
  const auto suppress = [&](const std::string& boxes, const std::string& scores, const std::string& name) {
    model.Node("Unsqueeze", {boxes, "zero"}, {boxes + "_3"}).Node("Unsqueeze", {scores, "front"}, {scores + "_3"});
    model.Node("NonMaxSuppression", {boxes + "_3", scores + "_3", "most", "overlap"}, {name});
    model.Node("Gather", {name, "two"}, {name + "_column"}, {{"axis", int64_t{1}}});
    model.Node("Squeeze", {name + "_column", "one"}, {name + "_kept"});
  };
  suppress("boxes", "scores", "first");
  model.Node("Gather", {"boxes", "first_kept"}, {"b"});
  model.Node("ReduceSum", {"b", "one"}, {"size"}, {{"keepdims", int64_t{0}}});
  model.Initializer("limit", Array::FromFloats({}, {0})).Node("Greater", {"size", "limit"}, {"large"});
  model.Node("Cast", {"large"}, {"level"}, {{"to", int64_t{7}}});
  model.Node("Shape", {"b"}, {"shape"}).Node("ConstantOfShape", {"shape"}, {"nothing"});
  AddLevel(model, exporter, 0, "nothing");
  AddLevel(model, exporter, 1, "result0");
  model.Initializer("weights", Array::FromFloats({4, 2}, {1, -1, -1, 1, 0.5F, 0.25F, 0.25F, -0.5F}));
  model.Initializer("far", Array::FromFloats({}, {100})).Node("MatMul", {"result1", "weights"}, {"both"});
  model.Node("Add", {"result1", "far"}, {"moved"});
  model.Node("Concat", {"result1", "moved"}, {"wide"}, {{"axis", int64_t{1}}});
  model.Initializer("boxed", IntList({-1, 4})).Node("Reshape", {"wide", "boxed"}, {"boxes2"});
  model.Node("Reshape", {"both", "last"}, {"scores2"}).Node("Greater", {"scores2", "limit"}, {"good"});
  model.Node("NonZero", {"good"}, {"good_places"}).Node("Squeeze", {"good_places", "zero"}, {"good_list"});
  model.Node("Gather", {"boxes2", "good_list"}, {"boxes3"}).Node("Gather", {"scores2", "good_list"}, {"scores3"});
  suppress("boxes3", "scores3", "second");
  model.Node("Gather", {"boxes3", "second_kept"}, {"b2"}).Node("Gather", {"scores3", "second_kept"}, {"s2"});
  return model.Output("b2").Output("s2");
}

// The places of boxes of which none overlaps one with a better score, and which have a score above `least`, best first.
Ints Suppressed(const Array& boxes, const std::vector<double>& scores, double least) {
  Ints order, kept;
  for (size_t i = 0; i < scores.size(); ++i)
    if (scores[i] > least) order.push_back(static_cast<int64_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return scores[i] > scores[j]; });
  for (int64_t i : order) {
    const bool free = std::none_of(kept.begin(), kept.end(), [&](int64_t other) {
      return OverlapOf(BoxAt(boxes, 0, i, false), BoxAt(boxes, 0, other, false)) > 0.3F;
    });
    if (free) kept.push_back(i);
  }
  return kept;
}

TEST(Found, WhatNonMaximumSuppressionFoundIsFilteredAgain) {
  constexpr float kWeights[4][2] = {{1, -1}, {-1, 1}, {0.5F, 0.25F}, {0.25F, -0.5F}};
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    const Array boxes = RandomArray({DType::kFloat32, {12, 4}}, seed);
    const Array scores = RandomArray({DType::kFloat32, {12}}, seed + 9);
    std::vector<double> first_scores;
    for (int64_t i = 0; i < 12; ++i) first_scores.push_back(scores.at(i));
    const Ints first = Suppressed(boxes, first_scores, -1e9);
    Array second_boxes(DType::kFloat32, {static_cast<int64_t>(2 * first.size()), 4});
    std::vector<double> second_scores(2 * first.size(), 0.0);
    for (size_t r = 0; r < first.size(); ++r) {
      double sum = 0;
      for (int64_t k = 0; k < 4; ++k) sum += boxes.at(4 * first[r] + k);
      for (int64_t k = 0; k < 4; ++k) {
        const double changed = boxes.at(4 * first[r] + k) * (sum > 0 ? 3 : 2);
        second_boxes.set(static_cast<int64_t>(8 * r) + k, changed);
        second_boxes.set(static_cast<int64_t>(8 * r) + 4 + k, changed + 100);
        for (int c : {0, 1}) second_scores[2 * r + c] += changed * kWeights[k][c];
      }
    }
    const Ints want = Suppressed(second_boxes, second_scores, 0);
    ASSERT_GT(first.size(), 2u);
    ASSERT_GT(want.size(), 0u);
    for (const TorchExporter exporter : {TorchExporter::kOlder, TorchExporter::kNewer}) {
      ModelOptions options;
      options.dims = {{"first.rows", 12}, {"second.rows", 14}};
      ModelFacts facts;
      std::istringstream bytes(TwoStages(exporter).Bytes());
      const absl::StatusOr<Network> network = ImportOnnxStream(bytes, "model.onnx", "", options, &facts);
      ASSERT_TRUE(network.ok()) << network.status();
      EXPECT_EQ(facts.followed, (std::map<std::string, std::vector<int>>{{"first.rows", {}}, {"second.rows", {0, 1}}}));
      const std::vector<Array> outputs = EvaluateNetwork(*network, {boxes, scores}).value();
      ASSERT_EQ(outputs.size(), 4u);
      EXPECT_EQ(IntsOf(outputs[2]), Ints{static_cast<int64_t>(first.size())});
      ASSERT_EQ(IntsOf(outputs[3]), Ints{static_cast<int64_t>(want.size())});
      for (size_t r = 0; r < want.size(); ++r) {
        EXPECT_NEAR(outputs[1].at(r), second_scores[want[r]], 1e-5);
        for (int64_t k = 0; k < 4; ++k) EXPECT_NEAR(outputs[0].at(4 * r + k), second_boxes.at(4 * want[r] + k), 1e-5);
      }
    }
  }
}

// An element of each row, and all rows, by numbers of rows: as Mask R-CNN of torchvision does it.
TEST(Found, RowsAreTakenByTheirNumber) {
  ModelBuilder model(17);
  model.Input("boxes", {12, 4})
      .Input("scores", {12})
      .Initializer("zero", IntList({0}))
      .Initializer("one", IntList({1}));
  model.Initializer("front", IntList({0, 1})).Initializer("most", IntList({100})).Initializer("two", IntList({2}));
  model.Initializer("overlap", Array::FromFloats({1}, {0.3F})).Initializer("limit", Array::FromFloats({}, {0}));
  Array number(DType::kInt64, {}), step(DType::kInt64, {});
  step.set_int(0, 1);
  model.Initializer("begin", number).Initializer("step", step);
  model.Node("Unsqueeze", {"boxes", "zero"}, {"boxes3"}).Node("Unsqueeze", {"scores", "front"}, {"scores3"});
  model.Node("NonMaxSuppression", {"boxes3", "scores3", "most", "overlap"}, {"found"});
  model.Node("Gather", {"found", "two"}, {"column"}, {{"axis", int64_t{1}}})
      .Node("Squeeze", {"column", "one"}, {"kept"});
  model.Node("Gather", {"boxes", "kept"}, {"b"}).Node("Shape", {"b"}, {"shape"});
  model.Node("Gather", {"shape", "begin"}, {"count"}).Node("Range", {"begin", "count", "step"}, {"own"});
  model.Node("ReduceSum", {"b", "one"}, {"size"}, {{"keepdims", int64_t{0}}})
      .Node("Greater", {"size", "limit"}, {"large"});
  model.Node("Cast", {"large"}, {"label"}, {{"to", int64_t{7}}}).Node("Unsqueeze", {"label", "one"}, {"labels"});
  model.Node("Unsqueeze", {"own", "one"}, {"owns"});
  model.Node("Concat", {"owns", "labels"}, {"index"}, {{"axis", int64_t{1}}}).Node("GatherND", {"b", "index"}, {"y"});
  model.Node("Unsqueeze", {"count", "zero"}, {"end"}).Node("Slice", {"b", "zero", "end", "zero"}, {"z"});
  model.Output("y").Output("z");
  ModelFacts facts;
  std::istringstream bytes(model.Bytes());
  const absl::StatusOr<Network> network = ImportOnnxStream(bytes, "model.onnx", "", Room("found", 12), &facts);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(facts.followed, (std::map<std::string, std::vector<int>>{{"found.rows", {0, 1}}}));
  const Array boxes = RandomArray({DType::kFloat32, {12, 4}}, 3), scores = RandomArray({DType::kFloat32, {12}}, 4);
  std::vector<double> score_list;
  for (int64_t i = 0; i < 12; ++i) score_list.push_back(scores.at(i));
  const Ints want = Suppressed(boxes, score_list, -1e9);
  const std::vector<Array> outputs = EvaluateNetwork(*network, {boxes, scores}).value();
  ASSERT_EQ(IntsOf(outputs[2]), Ints{static_cast<int64_t>(want.size())});
  for (size_t r = 0; r < want.size(); ++r) {
    double sum = 0;
    for (int64_t k = 0; k < 4; ++k) sum += boxes.at(4 * want[r] + k);
    EXPECT_EQ(outputs[0].at(r), boxes.at(4 * want[r] + (sum > 0 ? 1 : 0)));
    for (int64_t k = 0; k < 4; ++k) EXPECT_EQ(outputs[1].at(4 * r + k), boxes.at(4 * want[r] + k));
  }
}

// Elsewhere than at places that a filter found, rows would be in others' way.
TEST(Found, RowsAreNotScatteredElsewhere) {
  ModelBuilder model(17);
  model.Input("x", {6}).Input("data", {6}).Initializer("zero", IntList({0})).Initializer("last", IntList({-1}));
  model.Initializer("one", IntList({1})).Node("NonZero", {"x"}, {"places"}).Node("Squeeze", {"places", "zero"}, {"l"});
  model.Node("Add", {"l", "one"}, {"next"}).Node("Gather", {"x", "l"}, {"kept"});
  model.Node("Unsqueeze", {"next", "last"}, {"at"}).Node("ScatterND", {"data", "at", "kept"}, {"y"}).Output("y");
  EXPECT_EQ(ImportErrorOf(model),
            "cannot import 'model.onnx': node 'node_y' (ScatterND of opset 17): it needs to know how many rows node "
            "'node_places' (NonZero of opset 17) finds, which is known only when the network runs: say how many they "
            "may be with --dim places.rows=128, or export the model without what follows that node");
}

TEST(Found, WhatNeedsTheNumberOfRowsAsksForIt) {
  ModelBuilder model(17);
  model.Input("x", {6}).Node("NonZero", {"x"}, {"places"}).Node("Shape", {"places"}, {"shape"});
  model.Node("Cast", {"shape"}, {"count"}, {{"to", int64_t{1}}}).Node("Sqrt", {"count"}, {"y"}).Output("y");
  EXPECT_EQ(ImportErrorOf(model),
            "cannot import 'model.onnx': node 'node_y' (Sqrt of opset 17): it needs to know how many rows node "
            "'node_places' (NonZero of opset 17) finds, which is known only when the network runs: say how many they "
            "may be with --dim places.rows=128, or export the model without what follows that node");
}

// Rows that are real would be as many as there is room for.
TEST(Found, RowsAreNotExpandedToANumberThatIsGiven) {
  ModelBuilder model(17);
  model.Input("x", {6}).Initializer("room", IntList({1, 6})).Initializer("zero", IntList({0}));
  model.Node("NonZero", {"x"}, {"places"}).Node("Expand", {"places", "room"}, {"y"}).Output("y", DType::kInt64);
  EXPECT_EQ(ImportErrorOf(model),
            "cannot import 'model.onnx': node 'node_y' (Expand of opset 17): it needs to know how many rows node "
            "'node_places' (NonZero of opset 17) finds, which is known only when the network runs: say how many they "
            "may be with --dim places.rows=128, or export the model without what follows that node");
}

// ---- what is refused

TEST(Found, ErrorsSayWhichSizeIsMissing) {
  ModelBuilder nonzero(13);
  nonzero.Input("x", {2, 3}).Node("NonZero", {"x"}, {"y"}).Output("y", DType::kInt64);
  EXPECT_EQ(ImportErrorOf(nonzero),
            "cannot import 'model.onnx': node 'node_y' (NonZero of opset 13): how many elements are not 0 is known "
            "only when the network runs: say how many "
            "its result has room for with --dim y.rows=128");
  EXPECT_EQ(ImportErrorOf(DetectionModel({})),
            "cannot import 'model.onnx': node 'node_found' (NonMaxSuppression of opset 11): how many boxes it finds is "
            "known only when the network runs: "
            "say how many its result has room for with --dim found.rows=128");
  ModelOptions other;
  other.dims["z.rows"] = 4;
  EXPECT_EQ(ImportErrorOf(nonzero, other),
            "cannot import 'model.onnx': it has no symbolic dimension 'z.rows': it has 'y.rows'");
}

TEST(Found, ErrorsOfOneNode) {
  EXPECT_EQ(ImportErrorOf(DetectionModel({0}), Room("found", 4)),
            "cannot import 'model.onnx': node 'node_found' (NonMaxSuppression of opset 11): input 2 (the most boxes of "
            "a class) must be one number above 0: "
            "it would find none");
  ModelBuilder many(11);
  many.Input("boxes", {1, 2000, 4})
      .Input("scores", {1, 1, 2000})
      .Initializer("most", IntList({std::numeric_limits<int64_t>::max()}));
  many.Node("NonMaxSuppression", {"boxes", "scores", "most"}, {"found"}).Output("found", DType::kInt64);
  EXPECT_EQ(ImportErrorOf(many, Room("found", 1025)),
            "cannot import 'model.onnx': node 'node_found' (NonMaxSuppression of opset 11): it may find 1025 boxes of "
            "a class, and up to 1024 are taken one after the other: give its result less room by --dim, or a smaller "
            "max_output_boxes_per_class (input 2)");
  ModelBuilder constant(13);
  constant.Input("x", {2})
      .Initializer("c", IntList({1, 0, 2}))
      .Node("NonZero", {"c"}, {"y"})
      .Output("y", DType::kInt64)
      .Output("x");
  EXPECT_EQ(ImportErrorOf(constant, Room("y", 4)),
            "cannot import 'model.onnx': how many rows 'y.rows' stands for is known without --dim: leave it out");
}

}  // namespace
}  // namespace diapason
