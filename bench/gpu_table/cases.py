"""What is compared, for how long it is tuned, and the bars. No imports: our side and the peers' side both read this."""
from dataclasses import dataclass, field

# Seconds after which the state of a network with an early bar is kept.
EARLY_SECONDS = 180

GEOMETRIC_MEAN_OF_CONVS, WORST_CONV = 0.24, 0.45
GEOMETRIC_MEAN_OF_DEPTHWISE = 0.22
GEMM_WITHOUT_3XTF32, GEMM_WITH_3XTF32 = 1.05, 0.65
TRIALS_PER_S_RACING, TRIALS_PER_S_WHOLE = 30, 2.5
ESTIMATE_OFF_BY = 0.10


@dataclass(frozen=True)
class Network:
    """A network of ours and the same of torchvision."""
    title: str
    model: str  # a built-in network, or the ONNX file that the peer writes
    torchvision: str
    seconds: int
    bar: float
    batch: int = 1
    early_bar: float = 0  # after EARLY_SECONDS; 0: none


@dataclass(frozen=True)
class Kernel:
    """A single operator; options are those of `diapason networks`."""
    name: str
    operator: str
    options: dict = field(hash=False)


def conv(size, channels_in, channels_out, kernel, stride):
    name = f"{kernel}x{kernel} s{stride}, {size}x{size}, {channels_in}->{channels_out}"
    return Kernel(name, "conv2d", {"h": size, "w": size, "ci": channels_in, "co": channels_out, "kernel": kernel,
                                   "stride": stride, "bias": 1, "relu": 1})


def depthwise(size, multiplier, kernel):
    name = f"{size}x{size} k{kernel}" + (f" multiplier {multiplier}" if multiplier > 1 else "")
    return Kernel(name, "depthwise", {"channels": 256, "size": size, "multiplier": multiplier, "kernel": kernel,
                                      "scale": 1, "relu": 1})


NETWORKS = {
    "resnet-18": Network("ResNet-18", "resnet-18", "resnet18", 360, 0.15, early_bar=0.22),
    "resnet-50": Network("ResNet-50", "resnet-50", "resnet50", 120, 0.25),
    "resnet-50-b16": Network("ResNet-50, batch 16", "resnet-50", "resnet50", 100, 0.70, batch=16),
    "mobilenet-v2": Network("MobileNet-v2 (ONNX)", "mobilenet-v2.onnx", "mobilenet_v2", 90, 0.35),
    "squeezenet": Network("SqueezeNet 1.1", "squeezenet_v1.1", "squeezenet1_1", 50, 0.45),
}

CONVS = [conv(224, 3, 64, 7, 2), conv(56, 64, 64, 3, 1), conv(56, 64, 128, 3, 2), conv(56, 64, 128, 1, 2),
         conv(28, 128, 128, 3, 1), conv(28, 128, 256, 3, 2), conv(14, 256, 256, 3, 1), conv(14, 256, 512, 3, 2),
         conv(7, 512, 512, 3, 1)]
DEPTHWISE = [depthwise(21, 1, 3), depthwise(32, 1, 3), depthwise(64, 1, 3), depthwise(96, 1, 3), depthwise(96, 1, 5),
             depthwise(96, 2, 3), depthwise(96, 2, 5)]
# Neither side may prepare an operand: both are inputs.
GEMM = Kernel("GEMM 4096^3", "gemm", {"m": 4096, "n": 4096, "k": 4096, "constant": 0})

# Seconds of tuning: of each kernel in convs, depthwise and gemm. With convs from a history of resnet-18, 4 s suffice.
SECONDS = {**{name: network.seconds for name, network in NETWORKS.items()}, "convs": 6, "depthwise": 6, "gemm": 30, "speed": 40}
KERNELS = {"convs": len(CONVS), "depthwise": len(DEPTHWISE), "gemm": 2}
# What a part takes besides tuning, roughly: builds, checks, samples of both sides.
REST = {"resnet-18": 60, "resnet-50": 40, "resnet-50-b16": 50, "mobilenet-v2": 40, "squeezenet": 30, "convs": 130,
        "depthwise": 105, "gemm": 45, "speed": 5, "max-autotune": 60}

PARTS = [*NETWORKS, "convs", "depthwise", "gemm", "speed"]
# Only by name: torch.compile takes minutes.
MORE_PARTS = ["max-autotune"]
COMPILE_SECONDS = 200
