#include "compiler/graph/builtin.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/nearest.h"
#include "compiler/graph/builtin_networks.h"

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
const Option kInt8 = {"int8", 0, 0, 1, "1: of integers of 8 bits; gemm gives the sums, conv2d requantises them"};
const Option kRelu = {"relu", 0, 0, 1, "1 adds a ReLU"};
const Option kKernel = {"kernel", 3, 1, 1024, "height and width of the kernel"};
const Option kStride = {"stride", 1, 1, 1024, "stride in both directions"};
const Option kPad = {"pad", -1, -1, 1024, "padding on each side; -1: keeps the size at stride 1"};
const Option kDilation = {"dilation", 1, 1, 1024, "dilation in both directions"};

const Option kImage = {"image", 224, 32, 8192, "height and width of the input image"};
const Option kClasses = {"classes", 1000, 1, kLargest, "number of outputs"};
const Option kWidth = {"width", 100, 1, 400, "channels of the layers in percent of the published network's"};
const Option kSoftmax = {"softmax", 0, 0, 1, "1 ends the network with a softmax"};

std::vector<Option> ImageOptions() { return {kImage, kClasses, kWidth, kSoftmax, kSeed}; }

const Option kDecode = {"decode", 0, 0, 1, "1: one token after `seq` others, whose keys and values are inputs"};

Option LayersOption(int64_t fallback) { return {"layers", fallback, 1, 1024, "number of layers"}; }

// The sizes of a transformer.
struct Transformer {
  int64_t layers, hidden, heads, intermediate;
};

std::vector<Option> TransformerOptions(const Transformer& sizes, std::vector<Option> others) {
  std::vector<Option> options = {
      LayersOption(sizes.layers),
      {"hidden", sizes.hidden, 1, kLargest, "elements of a token or a state between layers"},
      {"heads", sizes.heads, 1, 1024, "heads of an attention"},
      {"intermediate", sizes.intermediate, 1, kLargest, "elements of a token within a feed-forward layer"}};
  options.insert(options.end(), others.begin(), others.end());
  options.push_back(kSeed);
  return options;
}

Option SeqOption(int64_t fallback, int64_t high) { return {"seq", fallback, 1, high, "length of the sequence"}; }
Option VocabOption(int64_t fallback) { return {"vocab", fallback, 1, kLargest, "number of different tokens"}; }

std::vector<Builtin> ImageNetworks() {
  return {
      {"resnet-18", "ResNet-18, image classifier", ImageOptions(), BuildResnet},
      {"resnet-34", "ResNet-34, image classifier", ImageOptions(), BuildResnet},
      {"resnet-50", "ResNet-50 version 1.5, image classifier", ImageOptions(), BuildResnet},
      {"resnet-101", "ResNet-101 version 1.5, image classifier", ImageOptions(), BuildResnet},
      {"resnet-152", "ResNet-152 version 1.5, image classifier", ImageOptions(), BuildResnet},
      {"mobilenet", "MobileNet version 1, multiplier 1.0, image classifier", ImageOptions(), BuildMobilenet},
      {"squeezenet_v1.1", "SqueezeNet 1.1, image classifier", ImageOptions(), BuildSqueezenet},
      {"mobilenet_v2", "MobileNet version 2, multiplier 1.0, image classifier", ImageOptions(), BuildMobilenetV2},
      {"mobilenet_v3", "MobileNet version 3, large, image classifier", ImageOptions(), BuildMobilenetV3},
      {"efficientnet-b0", "EfficientNet-B0, image classifier", ImageOptions(), BuildEfficientnet},
      {"vgg-16", "VGG-16, image classifier", ImageOptions(), BuildVgg},
      {"densenet-121", "DenseNet-121, image classifier", ImageOptions(), BuildDensenet},
      {"inception_v3",
       "Inception version 3, image classifier",
       {{"image", 299, 75, 8192, "height and width of the input image"}, kClasses, kWidth, kSoftmax, kSeed},
       BuildInception},
      {"convnext-tiny", "ConvNeXt tiny, image classifier", ImageOptions(), BuildConvnext},
      {"swin-tiny",
       "Swin transformer tiny, image classifier",
       {kImage, {"window", 7, 1, 64, "height and width of an attention's window"}, kClasses, kWidth, kSoftmax, kSeed},
       BuildSwin},
      {"vit-b16", "ViT-B/16, image classifier by a transformer",
       TransformerOptions({12, 768, 12, 3072},
                          {kImage, {"patch", 16, 1, 1024, "height and width of a patch"}, kClasses, kSoftmax}),
       BuildVit},
      {"resnet3d-18",
       "R3D-18, video classifier",
       {{"image", 112, 32, 8192, "height and width of the input image"},
        {"frames", 16, 1, 65536, "length of the input in time"},
        {"classes", 400, 1, kLargest, "number of outputs"},
        kWidth,
        kSoftmax,
        kSeed},
       BuildResnet3d},
      {"unet-small",
       "U-Net with three levels, segmentation of images",
       {{"image", 256, 32, 8192, "height and width of the input image"},
        {"classes", 2, 1, kLargest, "number of outputs"},
        kWidth,
        kSeed},
       BuildUnet},
      {"yolo-small",
       "YOLO version 5 small, detection in images",
       {{"image", 640, 32, 8192, "height and width of the input image"},
        {"classes", 80, 1, kLargest, "number of outputs"},
        kWidth,
        kSeed},
       BuildYolo},
  };
}

std::vector<Builtin> SequenceNetworks() {
  return {
      {"bert-base", "BERT base, encoder of text",
       TransformerOptions({12, 768, 12, 3072}, {SeqOption(128, 65536), VocabOption(30522)}), BuildBert},
      {"gpt2", "GPT-2, decoder of text: all tokens at once, or one with a cache of those before",
       TransformerOptions({12, 768, 12, 3072}, {SeqOption(128, 65536), kDecode, VocabOption(50257)}), BuildGpt2},
      {"llama-tiny", "LLaMA of 42 million weights with grouped queries, decoder of text as gpt2",
       TransformerOptions(
           {8, 512, 8, 1376},
           {{"kv_heads", 2, 1, 1024, "heads of keys and values"}, SeqOption(128, 65536), kDecode, VocabOption(32000)}),
       BuildLlama},
      {"t5-encoder", "T5 small's encoder of text",
       TransformerOptions({6, 512, 8, 2048}, {SeqOption(128, 8192), VocabOption(32128)}), BuildT5Encoder},
      {"whisper-encoder", "Whisper tiny's encoder of sound",
       TransformerOptions({4, 384, 6, 1536}, {{"mels", 80, 1, 1024, "bands of the spectrogram"},
                                              {"frames", 3000, 1, 65536, "length of the input in time"}}),
       BuildWhisperEncoder},
      {"lstm-tagger",
       "LSTM in both directions, tagger of words",
       {LayersOption(1),
        {"hidden", 128, 1, kLargest, "elements of a token or a state between layers"},
        {"embedding", 128, 1, kLargest, "elements of a word's embedding"},
        SeqOption(32, 512),
        VocabOption(20000),
        {"tags", 17, 1, kLargest, "number of different tags"},
        kSeed},
       BuildLstmTagger},
  };
}

std::vector<Builtin> SingleOperators() {
  return {
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
        kInt8,
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
        kInt8,
        kSeed},
       BuildGemm},
      {"attention",
       "attention alone: softmax(scale * queries by keys) by values",
       {{"heads", 12, 1, 1024, "heads of the queries"},
        {"kv_heads", 0, 0, 1024, "heads of keys and values; 0: as many as of the queries"},
        {"queries", 128, 1, 65536, "queries of a head"},
        {"keys", 0, 0, 65536, "keys of a head; 0: as many as queries"},
        {"size", 64, 1, 1024, "elements of a query, a key and a value"},
        {"causal", 0, 0, 1,
         "1: a query sees no key after its own position; the last query is at the position of the last key"},
        kSeed},
       BuildAttention},
      {"layer_norm",
       "one layer normalization",
       {{"rows", 128, 1, kLargest, "rows, each normalized"}, {"columns", 768, 1, kLargest, "elements of a row"}, kSeed},
       BuildLayerNorm},
  };
}

const std::vector<Builtin>& BuiltinTable() {
  static const std::vector<Builtin>& table = *[] {
    auto* all = new std::vector<Builtin>(ImageNetworks());
    for (const std::vector<Builtin>& more : {SequenceNetworks(), SingleOperators()}) {
      all->insert(all->end(), more.begin(), more.end());
    }
    return all;
  }();
  return table;
}

absl::Status UnknownName(const std::string& name) {
  std::vector<std::string> names;
  for (const Builtin& b : BuiltinTable()) names.push_back(b.name);
  return absl::NotFoundError(absl::StrCat("unknown network '", name, "': ", DidYouMean(name, names),
                                          "give an .onnx file or one of ", absl::StrJoin(names, ", ")));
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
                                                   "': ", DidYouMean(name, names), "its options are ",
                                                   absl::StrJoin(names, ", ")));
  }
  return args;
}

}  // namespace

const std::vector<BuiltinInfo>& BuiltinNetworks() {
  static const std::vector<BuiltinInfo>& infos = *[] {
    auto* out = new std::vector<BuiltinInfo>;
    for (const Builtin& builtin : BuiltinTable()) {
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
  if (!IsModelType(options.dtype))
    return absl::InvalidArgumentError(
        absl::StrCat("built-in networks come in ", ModelTypes(), ", not in ", NameOf(options.dtype)));
  for (const Builtin& builtin : BuiltinTable()) {
    if (name != builtin.name) continue;
    ASSIGN_OR_RETURN(BuiltinArgs args, ArgsFor(builtin, options));
    return builtin.build(name, args);
  }
  return UnknownName(name);
}

}  // namespace diapason
