#include "compiler/graph/builtin.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/builtin_networks.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

constexpr int64_t kLargest = 1 << 20;

// An option with its range; the table shown to users leaves the range out.
struct Option {
  const char* name;
  int64_t fallback, low, high;
  const char* help;
};

struct Builtin {
  const char* name;
  const char* help;
  std::vector<Option> options;
  absl::StatusOr<Network> (*build)(const std::string& name, const BuiltinArgs& args);
};

const Option kSeed = {"seed", 0, 0, std::numeric_limits<int64_t>::max(), "seed of the random weights"};
const Option kBias = {"bias", 0, 0, 1, "1 adds a bias"};
const Option kScale = {"scale", 0, 0, 1, "1 multiplies each output channel by a constant and adds another"};
const Option kRelu = {"relu", 0, 0, 1, "1 adds a ReLU"};
const Option kKernel = {"kernel", 3, 1, 1024, "height and width of the kernel"};
const Option kStride = {"stride", 1, 1, 1024, "stride in both directions"};
const Option kPad = {"pad", -1, -1, 1024, "padding on each side; -1: keeps the size at stride 1"};
const Option kDilation = {"dilation", 1, 1, 1024, "dilation in both directions"};

std::vector<Option> ImageOptions() {
  return {{"image", 224, 32, 8192, "height and width of the input image"},
          {"classes", 1000, 1, kLargest, "number of outputs"},
          {"width", 100, 1, 400, "channels of the layers in percent of the published network's"},
          {"softmax", 0, 0, 1, "1 ends the network with a softmax"},
          kSeed};
}

const std::vector<Builtin>& Table() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"resnet-18", "ResNet-18, image classifier", ImageOptions(), BuildResnet},
      {"resnet-34", "ResNet-34, image classifier", ImageOptions(), BuildResnet},
      {"resnet-50", "ResNet-50 version 1.5, image classifier", ImageOptions(), BuildResnet},
      {"resnet-101", "ResNet-101 version 1.5, image classifier", ImageOptions(), BuildResnet},
      {"resnet-152", "ResNet-152 version 1.5, image classifier", ImageOptions(), BuildResnet},
      {"mobilenet", "MobileNet version 1, multiplier 1.0, image classifier", ImageOptions(), BuildMobilenet},
      {"squeezenet_v1.1", "SqueezeNet 1.1, image classifier", ImageOptions(), BuildSqueezenet},
      {"conv2d",
       "one 2-D convolution",
       {{"h", 56, 1, kLargest, "height of the image"},
        {"w", 56, 1, kLargest, "width of the image"},
        {"ci", 64, 1, kLargest, "input channels"},
        {"co", 64, 1, kLargest, "output channels"},
        kKernel,
        kStride,
        kPad,
        kDilation,
        {"group", 1, 1, kLargest, "groups of channels"},
        kBias,
        kScale,
        kRelu,
        kSeed},
       BuildConv2d},
      {"depthwise",
       "one depthwise convolution",
       {{"channels", 64, 1, kLargest, "input channels"},
        {"size", 56, 1, kLargest, "height and width of the image"},
        {"multiplier", 1, 1, 1024, "output channels for each input channel"},
        kKernel,
        kStride,
        kPad,
        kDilation,
        kBias,
        kScale,
        kRelu,
        kSeed},
       BuildDepthwise},
      {"gemm",
       "one matrix product, (m, k) by (k, n)",
       {{"m", 512, 1, kLargest, "rows of the result"},
        {"n", 512, 1, kLargest, "columns of the result"},
        {"k", 512, 1, kLargest, "length of the sums"},
        {"constant", 1, 0, 1, "1: the second matrix is a constant, as weights are; 0: an input"},
        kBias,
        kRelu,
        kSeed},
       BuildGemm},
  };
  return table;
}

// Number of characters to insert, delete or replace.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

absl::Status UnknownName(const std::string& name) {
  std::vector<std::string> names;
  for (const Builtin& b : Table()) names.push_back(b.name);
  auto distance = [&](const std::string& candidate) { return EditDistance(name, candidate); };
  const std::string& nearest =
      *std::min_element(names.begin(), names.end(),
                        [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
  std::string hint = distance(nearest) <= 3 ? absl::StrCat("did you mean '", nearest, "'? ") : "";
  return absl::NotFoundError(absl::StrCat("unknown network '", name, "': ", hint, "give an .onnx file or one of ",
                                          absl::StrJoin(names, ", ")));
}

absl::StatusOr<BuiltinArgs> ArgsFor(const Builtin& builtin, const ModelOptions& options) {
  BuiltinArgs args{&options, {}};
  std::vector<std::string> names;
  for (const Option& option : builtin.options) {
    names.push_back(option.name);
    auto given = options.extra.find(option.name);
    int64_t value = option.fallback;
    bool valid = given == options.extra.end() || absl::SimpleAtoi(given->second, &value);
    if (!valid || value < option.low || value > option.high) {
      std::string range = option.high == std::numeric_limits<int64_t>::max()
                              ? absl::StrCat("from ", option.low, " on")
                              : absl::StrCat("from ", option.low, " to ", option.high);
      return absl::InvalidArgumentError(absl::StrCat("option '", option.name, "' of network '", builtin.name,
                                                     "' cannot be '", given->second, "': give a whole number ", range));
    }
    args.values[option.name] = value;
  }
  for (const auto& [name, value] : options.extra) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("network '", builtin.name, "' has no option '", name,
                                                   "': its options are ", absl::StrJoin(names, ", ")));
  }
  return args;
}

}  // namespace

const std::vector<BuiltinInfo>& BuiltinNetworks() {
  static const std::vector<BuiltinInfo>& infos = *[] {
    auto* out = new std::vector<BuiltinInfo>;
    for (const Builtin& builtin : Table()) {
      BuiltinInfo info{builtin.name, builtin.help, {}};
      for (const Option& option : builtin.options) {
        info.options.push_back({option.name, absl::StrCat(option.fallback), option.help});
      }
      out->push_back(std::move(info));
    }
    return out;
  }();
  return infos;
}

absl::StatusOr<Network> BuiltinNetwork(const std::string& name, const ModelOptions& options) {
  if (options.dtype != DType::kFloat32 && options.dtype != DType::kFloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("built-in networks come in float32 and float16, not in ", NameOf(options.dtype)));
  }
  for (const Builtin& builtin : Table()) {
    if (name != builtin.name) continue;
    ASSIGN_OR_RETURN(BuiltinArgs args, ArgsFor(builtin, options));
    return builtin.build(name, args);
  }
  return UnknownName(name);
}

}  // namespace diapason
