// Layers that several built-in networks share. A layer's constants are called after it: "name.weight", "name.bias". A
// tensor of a sequence is batch x length x hidden.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/graph/builtin_networks.h"
#include "compiler/graph/network_builder.h"

namespace diapason {

NetworkBuilder BeginNetwork(const std::string& name, const BuiltinArgs& args);

// InvalidArgument unless the option `divisor` divides the option `whole`.
absl::Status CheckDivides(const std::string& network, const BuiltinArgs& args, const std::string& divisor,
                          const std::string& whole);

// Classifiers of images: the input "data" of three channels; a softmax at the end where the option says so.
int ImageInput(NetworkBuilder& b, const BuiltinArgs& args);
int ClassifierOutput(NetworkBuilder& b, int x, const BuiltinArgs& args);

// The channels of a layer, as the option "width" says.
int64_t Narrowed(int64_t channels, const BuiltinArgs& args);

int Scalar(NetworkBuilder& b, double value, const std::string& name);
int Reshape(NetworkBuilder& b, int x, std::vector<int64_t> shape, const std::string& name);
int Transpose(NetworkBuilder& b, int x, std::vector<int64_t> perm, const std::string& name);
struct SliceRange {
  int64_t start, end;
};
int Slice(NetworkBuilder& b, int x, int64_t axis, SliceRange range, const std::string& name);
int Concat(NetworkBuilder& b, std::vector<int> parts, int64_t axis, const std::string& name);

// Each pixel of an image four times.
int Upsample(NetworkBuilder& b, int x, const std::string& name);

// An image with its channels last whatever the layout, and back.
int ChannelsLast(NetworkBuilder& b, int x, const std::string& name);
int FromChannelsLast(NetworkBuilder& b, int x, const std::string& name);

// x * sigmoid(x), as exporters write SiLU.
int Silu(NetworkBuilder& b, int x, const std::string& name);

struct LinearOptions {
  bool bias = true;
  float gain = 1;
};
// The last dimension times a matrix "weight" (inputs x columns), with "bias" unless there is none.
// Results have the variance of the inputs, times the square of the gain.
int Linear(NetworkBuilder& b, int x, int64_t columns, const std::string& name, LinearOptions options = {});

// Over the last dimension, with "weight" and, for LayerNorm, "bias".
int LayerNorm(NetworkBuilder& b, int x, const std::string& name, double epsilon = 1e-5);
int RmsNorm(NetworkBuilder& b, int x, const std::string& name, double epsilon = 1e-6);

// Numbers of tokens, batch x length.
int TokenInput(NetworkBuilder& b, const std::string& name, int64_t length);

// From a mask, batch x length of 1 and 0, what is added to scores so that nobody sees the tokens at 0: the lowest
// number, as BERT does, which leaves a row without any 1 finite. batch x 1 x 1 x length.
int MaskBias(NetworkBuilder& b, int mask, const ModelOptions& options);

// Rows of "weight" (rows x columns) by the numbers of `ids`.
int Embedding(NetworkBuilder& b, int ids, int64_t rows, int64_t columns, const std::string& name);

// batch x length x (heads * size) -> batch x heads x length x size, and back.
int SplitHeads(NetworkBuilder& b, int x, int64_t heads, const std::string& name);
int JoinHeads(NetworkBuilder& b, int x, const std::string& name);

// 1 / sqrt(size), the usual scale of scores.
double ScaleOf(int64_t size);

// Queries (batch x heads x length x size) attend to keys and values (batch x groups x length x size; heads of a group
// are neighbours).
struct AttentionArgs {
  int q = 0, k = 0, v = 0;
  double scale = 1;
  int bias = -1;  // added to the scores; -1: none
};
int Attend(NetworkBuilder& b, const AttentionArgs& args, const std::string& name);

// The causal bias of `queries` tokens behind `past` others: 0 for what a token may see, else -infinity.
int CausalBias(NetworkBuilder& b, int64_t queries, int64_t past, const std::string& name);

}  // namespace diapason
