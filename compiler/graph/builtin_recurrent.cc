// Recurrent networks, unrolled as the importer of ONNX files unrolls them.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/builtin_layers.h"
#include "compiler/graph/builtin_networks.h"

namespace diapason {
namespace {

// One direction of an LSTM (Hochreiter and Schmidhuber 1997), gates in PyTorch's order: input, forget, cell, output.
// The product with the inputs of all steps is one.
int LstmDirection(NetworkBuilder& b, int x, int64_t hidden, bool backward, const std::string& name) {
  const int64_t length = b.Extent(x, 1);
  const int products = Linear(b, x, 4 * hidden, name + ".input");
  const float bound = std::sqrt(3.0f / static_cast<float>(hidden));
  const int recurrent = b.Constant(name + ".recurrent.weight", {hidden, 4 * hidden}, -bound, bound);
  int h = -1, state = -1;
  std::vector<int> steps;
  for (int64_t number = 0; number < length; ++number) {
    const int64_t t = backward ? length - 1 - number : number;
    const std::string step = absl::StrCat(name, ".", t);
    int gates = Reshape(b, Slice(b, products, 1, {t, t + 1}, step + ".slice"), {0, 4 * hidden}, step + ".input");
    // The first state is zero.
    if (number > 0)
      gates = b.Node("add", {b.Node("matmul", {h, recurrent}, {}, step + ".product"), gates}, {}, step + ".gates");
    const auto gate = [&](int64_t which, const char* function, const char* role) {
      return b.Node(function, {Slice(b, gates, 1, {which * hidden, (which + 1) * hidden}, step + role)}, {},
                    step + role + ".value");
    };
    const int in = gate(0, "sigmoid", ".in"), candidate = gate(2, "tanh", ".candidate");
    int next = b.Node("mul", {in, candidate}, {}, step + ".new");
    if (number > 0) {
      const int kept = b.Node("mul", {gate(1, "sigmoid", ".forget"), state}, {}, step + ".kept");
      next = b.Node("add", {kept, next}, {}, step + ".state");
    }
    state = next;
    const int out = gate(3, "sigmoid", ".out");
    h = b.Node("mul", {out, b.Node("tanh", {state}, {}, step + ".tanh")}, {}, step);
    steps.push_back(Reshape(b, h, {0, 1, hidden}, step + ".row"));
  }
  if (backward) std::reverse(steps.begin(), steps.end());
  return Concat(b, steps, 1, name);
}

}  // namespace

// A tagger of words (Graves and Schmidhuber 2005): an embedding, an LSTM in both directions, a score for each tag.
absl::StatusOr<Network> BuildLstmTagger(const std::string& name, const BuiltinArgs& args) {
  NetworkBuilder b = BeginNetwork(name, args);
  const int ids = b.Input("input_ids", {1, args.at("seq")}, DType::kInt64);
  int x = Embedding(b, ids, args.at("vocab"), args.at("embedding"), "embedding");
  for (int64_t layer = 0; layer < args.at("layers"); ++layer) {
    const std::string lstm = absl::StrCat("lstm.", layer);
    const int forward = LstmDirection(b, x, args.at("hidden"), false, lstm + ".forward");
    const int backward = LstmDirection(b, x, args.at("hidden"), true, lstm + ".backward");
    x = Concat(b, {forward, backward}, 2, lstm);
  }
  return b.Finish(
      b.Node("log_softmax", {Linear(b, x, args.at("tags"), "hidden2tag")}, {{"axis", int64_t{-1}}}, "scores"));
}

}  // namespace diapason
