"""What is compared and for how long it is tuned. No imports: our side and PyTorch's side both read this."""
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Network:
    """A network of ours and the same of torchvision."""
    title: str
    model: str  # a built-in network, or the ONNX file that the baseline writes
    torchvision: str
    seconds: int  # of tuning, for each of MODES
    strict_seconds: int
    batch: int = 1
    compiled: bool = False  # torch.compile is among the baseline's variants
    dtype: str = "float32"  # of both sides; "tf32": float32, products in TensorFloat-32 allowed
    options: dict = field(default_factory=dict, hash=False)  # of ours, as `diapason networks` lists them
    refine: int = 0  # seconds of `build --refine`, which choose among what tuning has found

    def modes(self):
        """The rows: of MODES those that the type knows."""
        return {mode: flags for mode, flags in MODES.items() if self.dtype == "float32" or not flags}


@dataclass(frozen=True)
class Kernel:
    """A single operator; options are those of `diapason networks`."""
    name: str
    operator: str
    options: dict = field(hash=False)
    dtype: str = "float32"  # of both sides, as a network's
    batch: int = 1


def conv(size, channels_in, channels_out, kernel, stride):
    name = f"{kernel}x{kernel} s{stride}, {size}x{size}, {channels_in}->{channels_out}"
    return Kernel(name, "conv2d", {"h": size, "w": size, "ci": channels_in, "co": channels_out, "kernel": kernel,
                                   "stride": stride, "bias": 1, "relu": 1})


def depthwise(size, multiplier, kernel):
    name = f"{size}x{size} k{kernel}" + (f" multiplier {multiplier}" if multiplier > 1 else "")
    return Kernel(name, "depthwise", {"channels": 256, "size": size, "multiplier": multiplier, "kernel": kernel,
                                      "scale": 1, "relu": 1})


# What the table calls a row's arithmetic, and the flags of `tune` and `build` that ask for it.
MODES = {"default": [], "strict fp32": ["--strict-fp32"]}

NETWORKS = {
    "resnet-18": Network("ResNet-18", "resnet-18", "resnet18", 40, 15, compiled=True),
    "resnet-50": Network("ResNet-50", "resnet-50", "resnet50", 35, 15, compiled=True),
    "resnet-50-b16": Network("ResNet-50, batch 16", "resnet-50", "resnet50", 30, 15, batch=16),
    "squeezenet": Network("SqueezeNet 1.1", "squeezenet_v1.1", "squeezenet1_1", 25, 12),
    "mobilenet-v2": Network("MobileNet-v2", "mobilenet-v2.onnx", "mobilenet_v2", 25, 12),
    "efficientnet-b0": Network("EfficientNet-B0", "efficientnet-b0.onnx", "efficientnet_b0", 30, 15),
    "densenet-121": Network("DenseNet-121", "densenet-121.onnx", "densenet121", 40, 15),
    "googlenet": Network("GoogLeNet", "googlenet.onnx", "googlenet", 25, 12),
}
# The baselines are Hugging Face's models of the same configuration with random weights, 128 tokens, and torchvision's ViT. By name only, as MORE_PARTS.
TRANSFORMERS = {
    "bert-base": Network("BERT-base, 128 tokens", "bert-base", "bert-base", 140, 20, refine=25),
    "gpt2": Network("GPT-2, 128 tokens", "gpt2", "gpt2", 45, 20),
    "vit-b16": Network("ViT-B/16", "vit-b16", "vit_b_16", 140, 20, refine=25),
}
BERT_LARGE = {"layers": 24, "hidden": 1024, "heads": 16, "intermediate": 4096}
# In half precision: weights and activations float16, sums float32.
HALF = {
    "resnet-18-half": Network("ResNet-18, fp16", "resnet-18", "resnet18", 140, 0, refine=25, compiled=True, dtype="float16"),
    "resnet-50-half": Network("ResNet-50, fp16", "resnet-50", "resnet50", 140, 0, refine=25, compiled=True, dtype="float16"),
    "resnet-50-b16-half": Network("ResNet-50, batch 16, fp16", "resnet-50", "resnet50", 140, 0, refine=25, batch=16, dtype="float16"),
    "mobilenet-v2-half": Network("MobileNet-v2, fp16", "mobilenet_v2", "mobilenet_v2", 140, 0, refine=25, dtype="float16"),
    "vit-b16-half": Network("ViT-B/16, fp16", "vit-b16", "vit_b_16", 140, 0, refine=25, dtype="float16"),
    "bert-base-half": Network("BERT-base, 128 tokens, fp16", "bert-base", "bert-base", 140, 0, refine=25, dtype="float16"),
    "efficientnet-b0-half": Network("EfficientNet-B0, fp16", "efficientnet-b0", "efficientnet_b0", 140, 0, refine=25, dtype="float16"),
    "convnext-tiny-half": Network("ConvNeXt-T, fp16", "convnext-tiny", "convnext_tiny", 140, 0, refine=25, dtype="float16"),
    "swin-tiny-half": Network("Swin-T, fp16", "swin-tiny", "swin_t", 140, 0, refine=25, dtype="float16"),
    "vit-b16-b16-half": Network("ViT-B/16, batch 16, fp16", "vit-b16", "vit_b_16", 140, 0, refine=25, batch=16, dtype="float16"),
    "bert-base-b16-half": Network("BERT-base, 128 tokens, batch 16, fp16", "bert-base", "bert-base", 140, 0, refine=25, batch=16, dtype="float16"),
    "bert-large-half": Network("BERT-large, 128 tokens, fp16", "bert-base", "bert-large", 140, 0, refine=25, dtype="float16", options=BERT_LARGE),
    "gpt2-half": Network("GPT-2, 128 tokens, fp16", "gpt2", "gpt2", 140, 0, refine=25, dtype="float16"),
    "gpt2-decode-half": Network("GPT-2, one token after 512, fp16", "gpt2", "gpt2-decode", 140, 0, refine=25, dtype="float16",
                                options={"seq": 512, "decode": 1}),
}
# float32 with products in TensorFloat-32, which both sides may use.
TF32 = {
    "resnet-50-tf32": Network("ResNet-50, tf32", "resnet-50", "resnet50", 40, 0, dtype="tf32"),
    "resnet-50-b16-tf32": Network("ResNet-50, batch 16, tf32", "resnet-50", "resnet50", 30, 0, batch=16, dtype="tf32"),
    "bert-base-tf32": Network("BERT-base, 128 tokens, tf32", "bert-base", "bert-base", 40, 0, dtype="tf32"),
}
# Arguments of torchvision's function, for the export and the baseline alike.
TORCHVISION_OPTIONS = {"googlenet": {"aux_logits": False, "init_weights": False}}

CONVS = [conv(224, 3, 64, 7, 2), conv(56, 64, 64, 3, 1), conv(56, 64, 128, 3, 2), conv(56, 64, 128, 1, 2),
         conv(28, 128, 128, 3, 1), conv(28, 128, 256, 3, 2), conv(14, 256, 256, 3, 1), conv(14, 256, 512, 3, 2),
         conv(7, 512, 512, 3, 1)]
DEPTHWISE = [depthwise(21, 1, 3), depthwise(32, 1, 3), depthwise(64, 1, 3), depthwise(96, 1, 3), depthwise(96, 1, 5),
             depthwise(96, 2, 3), depthwise(96, 2, 5)]
# Neither side may prepare an operand: both are inputs.
GEMM = Kernel("GEMM 4096^3", "gemm", {"m": 4096, "n": 4096, "k": 4096, "constant": 0})
def half_gemm(m, n, k, dtype="float16"):
    """With weights, as layers have them, but for large ones, where neither side may prepare an operand."""
    return Kernel(f"{m}x{n}x{k}", "gemm", {"m": m, "n": n, "k": k, "constant": int(m < 4096)}, dtype)


def attention(heads, length, size, dtype="float16"):
    """Heads of all examples of a batch, as they are independent."""
    return Kernel(f"{heads}x{length}x{size}", "attention", {"heads": heads, "queries": length, "size": size}, dtype)


def layer_norm(rows, columns):
    return Kernel(f"{rows}x{columns}", "layer_norm", {"rows": rows, "columns": columns}, "float16")


GEMMS_HALF = [half_gemm(128, 768, 768), half_gemm(128, 3072, 768), half_gemm(128, 768, 3072), half_gemm(16, 4096, 4096),
              half_gemm(4096, 4096, 4096)]
GEMMS_HALF_LARGE = [half_gemm(4096, 4096, 4096, "bfloat16"), half_gemm(8192, 8192, 8192), half_gemm(8192, 8192, 8192, "bfloat16")]
# Of int8, with weights that either side may lay out; int32 results.
GEMM_INT8 = [Kernel("GEMM 4096^3, int8", "gemm", {"m": 4096, "n": 4096, "k": 4096, "constant": 1, "int8": 1})]
GEMM_TF32 = [half_gemm(4096, 4096, 4096, "tf32")]
# 14x14, 256 to 512 channels, of 256 images.
CONVS_HALF = [Kernel("3x3, 256x14x14, 256->512", "conv2d",
                     {"h": 14, "w": 14, "ci": 256, "co": 512, "kernel": 3, "stride": 1}, "float16", 256)]
ATTENTION_HALF = [attention(12, 128, 64), attention(128, 2048, 64), attention(128, 2048, 128), attention(32, 4096, 128, "bfloat16")]
NORMS_HALF = [layer_norm(128, 768), layer_norm(8192, 1024)]
# Strassen's algorithm competes in the first and third; a plain product is asked for by leaving it out of the search (flags of `tune`).
GEMM_MODES = {"default": [], "without Strassen": [], "strict fp32": ["--strict-fp32"], "strict fp32, without Strassen": ["--strict-fp32"]}
LEFT_OUT = {"without Strassen": ["--without", "strassen"], "strict fp32, without Strassen": ["--without", "strassen"]}

# Seconds of tuning of each kernel.
KERNEL_SECONDS = {"gemm": 10, "convs": 5, "depthwise": 4, "gemms-half": 40, "gemms-half-large": 40, "gemm-int8": 40, "gemm-tf32": 40, "convs-half": 40, "attention-half": 40, "norms-half": 20}
# By part; of "gemm" there is one, in several modes.
KERNEL_LISTS = {"convs": CONVS, "depthwise": DEPTHWISE, "gemms-half": GEMMS_HALF, "gemms-half-large": GEMMS_HALF_LARGE, "gemm-int8": GEMM_INT8, "gemm-tf32": GEMM_TF32, "convs-half": CONVS_HALF, "attention-half": ATTENTION_HALF, "norms-half": NORMS_HALF}
KERNELS = {"gemm": len(GEMM_MODES)} | {part: len(kernels) for part, kernels in KERNEL_LISTS.items()}

PARTS = [*NETWORKS, "gemm"]
NETWORKS |= TRANSFORMERS | HALF | TF32
MORE_PARTS = ["convs", "depthwise", *TRANSFORMERS, *HALF, *TF32, "gemms-half", "gemms-half-large", "gemm-int8", "gemm-tf32", "convs-half", "attention-half", "norms-half"]  # by name only: they do not fit into two calls of ten minutes with the others
# Names for several parts.
GROUPS = {"half": ["resnet-18-half", "resnet-50-half"],
          "half-more": ["resnet-50-b16-half", "mobilenet-v2-half", "efficientnet-b0-half"],
          "transformers": ["vit-b16-half", "bert-base-half", "gpt2-half"],
          "transformers-more": ["bert-large-half", "convnext-tiny-half", "swin-tiny-half"],
          "transformers-batch": ["vit-b16-b16-half", "bert-base-b16-half", "gpt2-decode-half"],
          "transformers-single": [*TRANSFORMERS],
          "kernels-half": ["gemms-half", "gemms-half-large", "gemm-int8"],
          "kernels-half-more": ["convs-half", "attention-half", "norms-half"],
          "tf32": [*TF32, "gemm-tf32"]}
CALLS = [["resnet-18", "resnet-50", "resnet-50-b16", "squeezenet"],
         ["mobilenet-v2", "efficientnet-b0", "densenet-121", "googlenet", "gemm"]]

# What a part takes besides tuning, roughly, in seconds: builds, checks, samples of both sides, the export, torch.compile.
START, NETWORK_REST, EXPORT, COMPILE, KERNEL_REST, BASELINE_KERNELS = 10, 30, 7, 45, 8, 8
# The longest that torch.compile may take; afterwards the row says that it was not done.
COMPILE_LIMIT = 120


def tuning_seconds(part):
    if part in NETWORKS:
        return NETWORKS[part].seconds + NETWORKS[part].strict_seconds + NETWORKS[part].refine
    return KERNEL_SECONDS[part] * KERNELS[part]


def planned_seconds(part):
    """Roughly: tuning and the rest."""
    if part not in NETWORKS:
        return tuning_seconds(part) + KERNEL_REST * KERNELS[part] + BASELINE_KERNELS
    network = NETWORKS[part]
    return tuning_seconds(part) + NETWORK_REST + network.model.endswith(".onnx") * EXPORT + network.compiled * COMPILE
