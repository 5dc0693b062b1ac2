"""A network of torchvision as an ONNX file, by its modules, without the onnx package (which torch.onnx.export needs).

Knows the modules of MobileNet-v2; another one is an error that names it.
"""
import struct

from torch import nn
from torchvision.models import MobileNetV2
from torchvision.models.mobilenetv2 import InvertedResidual

from gpu_table import onnx_file


class Exporter:
    def __init__(self, name):
        self._graph = onnx_file.Graph(name)

    def bytes(self, model, image):
        if not isinstance(model, MobileNetV2):
            raise TypeError(f"{type(model).__name__} cannot be written as ONNX: only MobileNetV2 can")
        x = self._graph.input("image", list(image.shape))
        x = self._module(model.features, x, "features")
        x = self._graph.add("GlobalAveragePool", [x], "pool")
        x = self._graph.add("Flatten", [x], "flat", axis=1)
        x = self._module(model.classifier, x, "classifier")
        self._graph.add("Identity", [x], "output")
        self._graph.output("output", [image.shape[0], model.classifier[-1].out_features])
        return self._graph.bytes()

    def _module(self, module, x, name):
        if isinstance(module, nn.Sequential):
            for key, child in module.named_children():
                x = self._module(child, x, f"{name}.{key}")
            return x
        if isinstance(module, InvertedResidual):
            y = self._module(module.conv, x, name + ".conv")
            return self._graph.add("Add", [x, y], name) if module.use_res_connect else y
        if isinstance(module, nn.Conv2d):
            return self._conv(module, x, name)
        if isinstance(module, nn.BatchNorm2d):
            constants = [self._constant(f"{name}.{key}", getattr(module, key))
                         for key in ("weight", "bias", "running_mean", "running_var")]
            return self._graph.add("BatchNormalization", [x, *constants], name, epsilon=module.eps)
        if isinstance(module, nn.ReLU6):
            low, high = (self._graph.constant(f"{name}.{key}", [], struct.pack("<f", value))
                         for key, value in (("min", 0.0), ("max", 6.0)))
            return self._graph.add("Clip", [x, low, high], name)
        if isinstance(module, nn.Linear):
            constants = [self._constant(f"{name}.{key}", getattr(module, key)) for key in ("weight", "bias")]
            return self._graph.add("Gemm", [x, *constants], name, transB=1)
        if isinstance(module, nn.Dropout):
            return x
        raise TypeError(f"{name} is a {type(module).__name__}, which cannot be written as ONNX yet")

    def _conv(self, module, x, name):
        inputs = [x, self._constant(name + ".weight", module.weight)]
        if module.bias is not None:
            inputs.append(self._constant(name + ".bias", module.bias))
        return self._graph.add("Conv", inputs, name, kernel_shape=list(module.kernel_size), strides=list(module.stride),
                               pads=list(module.padding) * 2, dilations=list(module.dilation), group=module.groups)

    def _constant(self, name, value):
        values = value.detach().flatten().tolist()
        return self._graph.constant(name, list(value.shape), struct.pack(f"<{len(values)}f", *values))


def export(model, image, name):
    """The bytes of the ONNX file; the input is named image, the output output."""
    return Exporter(name).bytes(model, image)
