"""Quantised nodes, alone and as exporters write them around a layer."""
import numpy as np

import shapes
from layers import image, padding, windows
from moves import of_rank


def scale_of(graph, value):
    top = float(np.abs(value.array).max()) if value is not None else 2.0
    return graph.constant(np.array(max(top, 0.1) / 120 * graph.random.uniform(0.9, 1.3), np.float32))


def zero_of(graph, dtype):
    return graph.constant(np.array(graph.random.choice((0, 0, 3, 128 if dtype == np.uint8 else -5)), dtype))


def quantise(graph, x=None, dtype=None):
    x = x or of_rank(graph, range(1, 5), [np.float32])
    dtype = dtype or graph.random.choice((np.uint8, np.int8))
    made = graph.attempt("QuantizeLinear", [x, scale_of(graph, x), zero_of(graph, dtype)])
    return made


def dequantise(graph, x=None):
    random = graph.random
    x = x or graph.pick([np.uint8, np.int8], range(1, 5)) or graph.new(shapes.shape(random, random.choice((1, 2, 3, 4))), random.choice((np.uint8, np.int8)))
    if graph.opset >= 13 and random.random() < 0.3:
        axis = shapes.axis(random, x.rank)
        many = (x.shape[axis],)
        return graph.attempt("DequantizeLinear", [x, graph.new(many, np.float32, 0.005, 0.02), graph.new(many, x.dtype, 0, 10)], axis=axis)
    inputs = [x, graph.constant(np.array(random.uniform(0.005, 0.02), np.float32))]
    return graph.attempt("DequantizeLinear", inputs + ([zero_of(graph, x.dtype)] if random.random() < 0.8 else []))


def pair(graph):
    made = quantise(graph)
    return made and dequantise(graph, made[0])


def weights(graph, shape, axis):
    """Dequantised constant weights."""
    random = graph.random
    stored = graph.new(shape, np.int8, -127, 127, True)
    if random.random() < 0.5:
        return graph.attempt("DequantizeLinear", [stored, graph.constant(np.array(random.uniform(0.002, 0.01), np.float32))])
    scales = graph.new((shape[axis],), np.float32, 0.002, 0.01, True)
    return graph.attempt("DequantizeLinear", [stored, scales, graph.constant(np.zeros(shape[axis], np.int8))], axis=axis)


def layer(graph):
    """Q/DQ pairs around a convolution or a product, maybe an activation between."""
    random = graph.random
    if graph.opset < 13 or graph.floats != np.float32:
        return None
    convolution = random.random() < 0.6
    x = image(graph, 2) if convolution else of_rank(graph, [2, 3], [np.float32], want=lambda v: v.shape[-1] <= 64)
    if x.dtype != np.float32:
        return None
    made = quantise(graph, x)
    read = made and dequantise(graph, made[0])
    if not read:
        return None
    if convolution:
        kernel, stride, dilation, before, after = windows(graph, read[0], 3)
        features = random.choice((1, 2, 4, 5, 8))
        w = weights(graph, (features, x.shape[1], *kernel), 0)
        attributes = {"strides": stride, "dilations": dilation, "kernel_shape": kernel}
        padding(graph, attributes, before, after)
        bias = [graph.constant(graph.numbers((features,), np.float32))] if random.random() < 0.5 else []
        out = w and graph.attempt("Conv", [read[0], w[0], *bias], **attributes)
    else:
        w = weights(graph, (x.shape[-1], random.choice((1, 3, 8, 16))), 1)
        out = w and graph.attempt("MatMul", [read[0], w[0]])
        if out and random.random() < 0.5:
            out = graph.attempt("Add", [out[0], graph.new(out[0].shape[-1:], np.float32)])
    if out and random.random() < 0.4:
        out = graph.attempt(random.choice(("Relu", "Sigmoid", "HardSwish" if graph.opset >= 14 else "Relu")), out)
    made = out and quantise(graph, out[0])
    return made and dequantise(graph, made[0])


def integer_product(graph):
    random = graph.random
    m, k, n = random.choice((1, 2, 5)), random.choice((1, 3, 8, 16)), random.choice((1, 4, 7))
    left, right = random.choice((np.uint8, np.int8)), random.choice((np.uint8, np.int8))
    if random.random() < 0.5:
        a = graph.pick([left], [2, 3]) or graph.new((m, k), left)
        inputs = [a, graph.new((a.shape[-1], n), right)]
        if random.random() < 0.7:
            inputs.append(graph.leaf(np.array(random.choice((0, 3, 9)), left)))
            if random.random() < 0.6:
                inputs.append(graph.leaf(np.array(random.choice((0, 2)), right)))
        return graph.attempt("MatMulInteger", inputs) if graph.opset >= 10 else None
    x = graph.new((1, 3, 5, 6), np.uint8)
    inputs = [x, graph.new((random.choice((1, 4)), 3, 3, 3), np.uint8)]
    if random.random() < 0.7:
        inputs.append(graph.leaf(np.array(random.choice((0, 3, 9)), np.uint8)))
    return graph.attempt("ConvInteger", inputs, pads=[1, 1, 1, 1]) if graph.opset >= 10 else None


def linear(graph):
    random = graph.random
    dtype = random.choice((np.uint8, np.int8))
    def number():
        return graph.constant(np.array(random.uniform(0.01, 0.03), np.float32))
    def both():
        return [number(), zero_of(graph, dtype)]
    kind = random.randrange(4)
    if kind == 0:
        a = graph.pick([dtype], [2, 3], fresh=0.4) or graph.new((random.choice((1, 3)), random.choice((4, 16))), dtype)
        b = graph.new((a.shape[-1], random.choice((1, 5, 8))), dtype, constant=random.random() < 0.8)
        return graph.attempt("QLinearMatMul", [a, *both(), b, *both(), graph.constant(np.array(random.uniform(0.05, 0.2), np.float32)), zero_of(graph, dtype)])
    if kind == 1:
        x = graph.new((random.choice((1, 2)), random.choice((1, 3, 4, 8)), 6, 5), dtype)
        w = graph.new((random.choice((1, 4, 6)), x.shape[1], 3, 3), dtype, constant=True)
        inputs = [x, *both(), w, number(), graph.constant(np.array(0, dtype)), graph.constant(np.array(random.uniform(0.05, 0.3), np.float32)), zero_of(graph, dtype)]
        if random.random() < 0.6:
            inputs.append(graph.constant(graph.numbers((w.shape[0],), np.int32, -1000, 1000)))
        return graph.attempt("QLinearConv", inputs, pads=[random.randint(0, 1)] * 4, strides=[random.choice((1, 2))] * 2)
    if kind == 2:
        a = graph.pick([dtype], range(1, 5)) or graph.new(shapes.shape(random, 3), dtype)
        b = graph.new(shapes.partner(random, a.shape), dtype)
        return graph.attempt(random.choice(("QLinearAdd", "QLinearMul")), [a, *both(), b, *both(), graph.constant(np.array(random.uniform(0.02, 0.06), np.float32)), zero_of(graph, dtype)],
                             domain="com.microsoft")
    a = graph.pick([dtype], range(1, 5)) or graph.new(shapes.shape(random, 3), dtype)
    op, more = random.choice((("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.2})))
    return graph.attempt(op, [a, *both(), *both()], domain="com.microsoft", **more)


def dynamic(graph):
    if graph.opset < 11:
        return None
    x = of_rank(graph, range(1, 4), [np.float32])
    made = graph.attempt("DynamicQuantizeLinear", [x], 3)
    if not made or x.rank < 2 or graph.random.random() < 0.3:
        return made
    n = graph.random.choice((1, 4, 8))
    w = graph.new((x.shape[-1], n), graph.random.choice((np.uint8, np.int8)), constant=True)
    product = graph.attempt("MatMulInteger", [made[0], w, made[2], graph.constant(np.array(0, w.dtype))])
    cast = product and graph.attempt("Cast", product, to=1)
    scale = cast and graph.attempt("Mul", [made[1], graph.constant(np.array(0.01, np.float32))])
    return scale and graph.attempt("Mul", [cast[0], scale[0]])


PROPOSALS = {quantise: 2, dequantise: 2, pair: 2, layer: 4, integer_product: 2, linear: 3, dynamic: 2}
