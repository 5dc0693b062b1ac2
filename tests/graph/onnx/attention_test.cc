// Attention as ONNX Runtime's builder of language models writes it, against loops written out here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "../testing.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

constexpr int64_t kHeads = 4, kGroups = 2, kSize = 8, kPlaces = 16;

// A step of a batch: `fresh` new tokens each, a cache of `past` entries, `before` of which each sequence uses.
struct Step {
  int64_t fresh = 1, past = 0, total = 1;
  std::vector<int64_t> before = {0};
  int64_t window = -1;
  bool rotary = false, known = false, sink = false;

  int64_t batch() const { return static_cast<int64_t>(before.size()); }
  int64_t keys() const { return std::max(total, past); }
};

struct StepInputs {
  Array q, k, v, past_k, past_v, cosine, sine;
};

StepInputs InputsOf(const Step& s) {
  const auto random = [](Ints shape, uint64_t seed) { return RandomArray({DType::kFloat32, std::move(shape)}, seed); };
  StepInputs in{random({s.batch(), s.fresh, kHeads * kSize}, 1),
                random({s.batch(), s.fresh, kGroups * kSize}, 2),
                random({s.batch(), s.fresh, kGroups * kSize}, 3),
                random({s.batch(), kGroups, std::max<int64_t>(s.past, 1), kSize}, 4),
                random({s.batch(), kGroups, std::max<int64_t>(s.past, 1), kSize}, 5),
                random({kPlaces, kSize / 2}, 6),
                Array(DType::kFloat32, {kPlaces, kSize / 2})};
  for (int64_t i = 0; i < in.cosine.elements(); ++i) {
    const double angle = 3 * in.cosine.at(i);
    in.cosine.set(i, std::cos(angle));
    in.sine.set(i, std::sin(angle));
  }
  return in;
}

Array LastKeys(const Step& s) {
  Array last(DType::kInt32, {s.batch()});
  for (int64_t b = 0; b < s.batch(); ++b) last.set_int(b, s.before[b] + s.fresh - 1);
  return last;
}

ModelBuilder ModelOf(const Step& s, const StepInputs& in) {
  ModelBuilder m(17);
  m.Input("q", {s.batch(), s.fresh, kHeads * kSize}).Input("k", {s.batch(), s.fresh, kGroups * kSize});
  m.Input("v", {s.batch(), s.fresh, kGroups * kSize});
  std::vector<std::string> inputs = {"q", "k", "v", "", "", "last", "total", "", ""};
  if (s.past > 0) {
    m.Input("past_k", {s.batch(), kGroups, s.past, kSize}).Input("past_v", {s.batch(), kGroups, s.past, kSize});
    inputs[3] = "past_k";
    inputs[4] = "past_v";
  }
  if (s.known) {
    m.Initializer("last", LastKeys(s));
  } else {
    m.Input("last", {s.batch()}, DType::kInt32);
  }
  Array total(DType::kInt32, {});
  total.set_int(0, s.total);
  m.Initializer("total", total);
  std::vector<std::pair<std::string, OnnxValue>> attributes = {
      {"num_heads", kHeads}, {"kv_num_heads", kGroups}, {"local_window_size", s.window}};
  if (s.rotary) {
    m.Initializer("cosine", in.cosine).Initializer("sine", in.sine);
    inputs[7] = "cosine";
    inputs[8] = "sine";
    attributes.push_back({"do_rotary", int64_t{1}});
  }
  if (s.sink) attributes.push_back({"smooth_softmax", int64_t{1}});
  m.Node("GroupQueryAttention", inputs, {"y", "present_k", "present_v"}, attributes);
  m.proto().mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  m.proto().add_opset_import()->set_domain("com.microsoft");
  m.proto().mutable_opset_import(1)->set_version(1);
  return m.Output("y").Output("present_k").Output("present_v");
}

// Element e of a head of batch x length x (heads * size), turned by its place.
double Turned(const Array& x, const StepInputs* rotary, Ints at, int64_t place) {
  const int64_t b = at[0], t = at[1], head = at[2], e = at[3], half = kSize / 2;
  const auto element = [&](int64_t i) {
    return x.at(((b * x.shape[1] + t) * (x.shape[2] / kSize) + head) * kSize + i);
  };
  if (rotary == nullptr) return element(e);
  const double cosine = rotary->cosine.at(place * half + e % half), sine = rotary->sine.at(place * half + e % half);
  return e < half ? element(e) * cosine - element(e + half) * sine : element(e) * cosine + element(e - half) * sine;
}

// The result, and the keys and values that each sequence has then.
std::vector<Array> Attended(const Step& s, const StepInputs& in) {
  Array y(DType::kFloat32, {s.batch(), s.fresh, kHeads * kSize});
  std::vector<Array> caches(2, Array(DType::kFloat32, {s.batch(), kGroups, s.keys(), kSize}));
  const StepInputs* rotary = s.rotary ? &in : nullptr;
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t g = 0; g < kGroups; ++g) {
      for (int64_t j = 0; j < s.keys(); ++j) {
        for (int64_t e = 0; e < kSize; ++e) {
          const int64_t place = ((b * kGroups + g) * s.keys() + j) * kSize + e;
          const int64_t old = ((b * kGroups + g) * s.past + j) * kSize + e, t = j - s.before[b];
          if (t >= 0 && t < s.fresh) {
            caches[0].set(place, Turned(in.k, rotary, {b, t, g, e}, j));
            caches[1].set(place, Turned(in.v, nullptr, {b, t, g, e}, j));
          } else if (j < s.past) {
            caches[0].set(place, in.past_k.at(old));
            caches[1].set(place, in.past_v.at(old));
          }
        }
      }
    }
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t t = 0; t < s.fresh; ++t) {
        const int64_t own = s.before[b] + t, first = s.window < 0 ? 0 : std::max<int64_t>(own - s.window + 1, 0);
        const int64_t row = (b * kGroups + head / (kHeads / kGroups)) * s.keys();
        double sum = s.sink ? 1 : 0;
        std::vector<double> results(kSize);
        for (int64_t j = first; j <= own; ++j) {
          double score = 0;
          for (int64_t e = 0; e < kSize; ++e)
            score += Turned(in.q, rotary, {b, t, head, e}, own) * caches[0].at((row + j) * kSize + e);
          const double weight = std::exp(score / std::sqrt(static_cast<double>(kSize)));
          sum += weight;
          for (int64_t e = 0; e < kSize; ++e) results[e] += weight * caches[1].at((row + j) * kSize + e);
        }
        for (int64_t e = 0; e < kSize; ++e)
          y.set((b * s.fresh + t) * kHeads * kSize + head * kSize + e, results[e] / sum);
      }
    }
  }
  return {y, caches[0], caches[1]};
}

TEST(GroupQueryAttention, ComputesWhatTheLoopsDo) {
  std::vector<Step> steps = {{.fresh = 5, .total = 5},                                             // a prompt
                             {.fresh = 5, .past = 9, .total = 5},                                  // with room
                             {.past = 6, .total = 7, .before = {6}},                               // a token
                             {.past = 12, .total = 7, .before = {6}},                              // with room
                             {.past = 6, .total = 7, .before = {6, 3}},                            // shorter ones
                             {.fresh = 3, .past = 6, .total = 9, .before = {6, 2}, .window = 3}};  // several tokens
  for (Step step : steps) {
    for (const bool rotary : {false, true}) {
      for (const bool known : {false, true}) {
        SCOPED_TRACE(testing::Message() << step.fresh << " of " << step.total << ", cache of " << step.past << ", "
                                        << step.batch() << " sequences, " << rotary << known);
        step.rotary = rotary;
        step.known = known;
        step.sink = rotary;
        const StepInputs in = InputsOf(step);
        const auto network = ModelOf(step, in).Import();
        ASSERT_TRUE(network.ok()) << network.status();
        std::vector<Array> inputs = {in.q, in.k, in.v};
        if (step.past > 0) inputs.insert(inputs.end(), {in.past_k, in.past_v});
        if (!known) inputs.push_back(LastKeys(step));
        const auto outputs = EvaluateNetwork(*network, inputs);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        const std::vector<Array> want = Attended(step, in);
        for (size_t o = 0; o < 3; ++o) ExpectNear((*outputs)[o], want[o], 1e-5);
      }
    }
  }
}

TEST(GroupQueryAttention, ACacheThatIsTooShortIsRefused) {
  const Step step{.past = 3, .total = 7, .before = {6}};
  const auto network = ModelOf(step, InputsOf(step)).Import();
  EXPECT_EQ(
      std::string(network.status().message()).substr(0, 400),
      "cannot import 'model.onnx': node 'node_y' (com.microsoft.GroupQueryAttention of opset 1): its cache of 3 keys "
      "is too short for a total length of 7");
}

}  // namespace
}  // namespace diapason
