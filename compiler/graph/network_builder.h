// Layers with random weights, for built-in networks. Errors (an image too small for its windows) are kept until Finish.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
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
  int Input(const std::string& name, std::vector<int64_t> shape, DType dtype = DType::kFloat32);
  int Constant(const std::string& name, std::vector<int64_t> shape, float low, float high);
  // Of int8, with all values.
  int Bytes(const std::string& name, std::vector<int64_t> shape);
  int Constant(const std::string& name, Array value) { return network_.AddConstant(name, std::move(value)); }
  int Node(const std::string& op, std::vector<int> inputs, Attributes attributes, const std::string& name);

  struct Conv {
    int64_t channels = 0, kernel = 3, stride = 1, pad = 0, dilation = 1, group = 1;
    bool bias = false;
    bool bytes = false;                // weights of int8, a bias of int32
    int64_t kernel_w = 0, pad_w = -1;  // 0 and -1: as kernel and pad, which are those of the height otherwise
  };
  // Weights by He's rule for `channels` results.
  int Conv2d(int x, const Conv& conv, const std::string& name);
  // Statistics near (0, 1); `gain` scales the result.
  int BatchNorm(int x, const std::string& name, float gain = 1);
  int Relu(int x, const std::string& name) { return Node("relu", {x}, {}, name); }
  struct PoolWindow {
    int64_t kernel, stride;  // of rows and columns
    int64_t pad = 0;
    bool ceil_mode = false;  // windows that begin inside count
  };
  int MaxPool(int x, const PoolWindow& window, const std::string& name);
  // Zeros of the padding count.
  int AveragePool(int x, int64_t kernel, int64_t stride, int64_t pad, const std::string& name);
  // Mean over the image, then batch x channels, or an image of one pixel.
  int GlobalAverage(int x, const std::string& name, bool keep_image = false);
  int Dense(int x, int64_t columns, const std::string& name);
  int64_t ChannelsOf(int x) const;
  // The axis of an image's channels.
  int64_t ChannelAxis() const { return nhwc() ? 3 : 1; }
  // An extent of a tensor's shape; negative axes count from the end. 1 where there is no such axis, which an earlier
  // error explains.
  int64_t Extent(int x, int axis) const;
  // Keeps the first error for Finish.
  void Fail(absl::Status error);
  absl::StatusOr<Network> Finish(int output) { return Finish({{"output", output}}); }
  absl::StatusOr<Network> Finish(const std::vector<std::pair<std::string, int>>& outputs);

 private:
  Network network_;
  const ModelOptions& options_;
  std::string layout_;
  WeightRandom random_;
  absl::Status error_;
};

}  // namespace diapason
