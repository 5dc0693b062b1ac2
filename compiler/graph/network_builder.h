// Layers with random weights, for built-in networks. Errors (an image too small for its windows) are kept until Finish.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/network.h"

namespace diapason {

// Uniform numbers from a seed, the same on every machine (SplitMix64).
class WeightRandom {
 public:
  explicit WeightRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  float Uniform(float low, float high);

 private:
  uint64_t state_;
};

class NetworkBuilder {
 public:
  NetworkBuilder(std::string name, const ModelOptions& options, uint64_t seed);

  bool nhwc() const { return layout_ == "NHWC"; }
  // The shape of the image input in the network's layout.
  std::vector<int64_t> ImageShape(int64_t channels, int64_t height, int64_t width) const;
  // An input of this default shape: options' --input-shape and --batch are applied.
  int Input(const std::string& name, std::vector<int64_t> shape);
  int Constant(const std::string& name, std::vector<int64_t> shape, float low, float high);
  int Node(const std::string& op, std::vector<int> inputs, Attributes attributes, const std::string& name);

  struct Conv {
    int64_t channels = 0, kernel = 3, stride = 1, pad = 0, dilation = 1, group = 1;
    bool bias = false;
  };
  // Weights by He's rule for `channels` results.
  int Conv2d(int x, const Conv& conv, const std::string& name);
  // Statistics near (0, 1); `gain` scales the result.
  int BatchNorm(int x, const std::string& name, float gain = 1);
  int Relu(int x, const std::string& name) { return Node("relu", {x}, {}, name); }
  int MaxPool(int x, int64_t kernel, int64_t stride, int64_t pad, bool ceil_mode, const std::string& name);
  // Mean over the image, then batch x channels.
  int GlobalAverage(int x, const std::string& name);
  int Dense(int x, int64_t columns, const std::string& name);
  int64_t ChannelsOf(int x) const;
  absl::StatusOr<Network> Finish(int output);

 private:
  Network network_;
  const ModelOptions& options_;
  std::string layout_;
  WeightRandom random_;
  absl::Status error_;
};

}  // namespace diapason
