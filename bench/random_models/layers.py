"""Nodes with sums and windows: reductions, normalisations, products, convolutions, pools, recurrent layers, attention."""
import numpy as np

import shapes
from moves import of_rank

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")


def reduce(graph):
    random = graph.random
    op = random.choice(REDUCTIONS)
    dtypes = [graph.floats]
    if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd") and random.random() < 0.2:
        dtypes = [np.int32, np.int64]
    x = of_rank(graph, range(0, 5), dtypes)
    if op in ("ReduceProd", "ReduceLogSum") or (op == "ReduceL2" and random.random() < 0.3):
        x = graph.new(shapes.shape(random, x.rank, 200), dtypes[0], *((-1, 1) if np.dtype(dtypes[0]).kind == "i" else (0.6, 1.4)))
    attributes = {} if random.random() < 0.3 else {"keepdims": random.randint(0, 1)}
    axes = None if random.random() < 0.15 or x.rank == 0 else shapes.axes(random, x.rank)
    by_input = graph.opset >= (13 if op == "ReduceSum" else 18)
    if by_input:
        if axes is None and random.random() < 0.5:
            attributes["noop_with_empty_axes"] = random.randint(0, 1)
        return graph.attempt(op, [x] if axes is None else [x, graph.ints(axes)], **attributes)
    if axes is not None:
        attributes["axes"] = axes if graph.opset >= 11 else [a % x.rank for a in axes]
    return graph.attempt(op, [x], **attributes)


def arg(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), [graph.floats] if random.random() < 0.7 else [np.int32])
    axis = shapes.axis(random, x.rank)
    attributes = {"axis": axis if graph.opset >= 11 else axis % x.rank, "keepdims": random.randint(0, 1)}
    if graph.opset >= 12 and random.random() < 0.4:
        attributes["select_last_index"] = 1
    return graph.attempt(random.choice(("ArgMax", "ArgMin")), [x], **attributes)


def softmax(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), [graph.floats])
    axis = shapes.axis(random, x.rank)
    attributes = {} if random.random() < 0.2 else {"axis": axis if graph.opset >= 11 else axis % x.rank}
    return graph.attempt(random.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax")), [x], **attributes)


def normalise(graph):
    random = graph.random
    kinds = ["InstanceNormalization", "BatchNormalization", "LRN", "MeanVarianceNormalization", "LpNormalization"]
    kinds += ["LayerNormalization"] * 3 if graph.opset >= 17 else []
    kinds += ["GroupNormalization"] * 2 if graph.opset >= 21 else []
    kinds += ["RMSNormalization"] * 2 if graph.opset >= 23 else []
    op = random.choice(kinds)
    epsilon = {"epsilon": random.choice((1e-5, 1e-3, 0.1))} if random.random() < 0.7 else {}
    if op in ("LayerNormalization", "RMSNormalization"):
        x = of_rank(graph, range(1, 5), [graph.floats])
        axis = random.choice((-1, shapes.axis(random, x.rank)))
        inner = x.shape[axis:] if axis < 0 else x.shape[axis:]
        inputs = [x, graph.new(inner)]
        count = 1
        if op == "LayerNormalization":
            inputs += [graph.new(inner)] if random.random() < 0.7 else []
            count = random.choice((1, 1, 3))
        return graph.attempt(op, inputs, count, axis=axis, **epsilon)
    if op == "LpNormalization":
        x = of_rank(graph, range(1, 5), [graph.floats])
        axis = shapes.axis(random, x.rank)
        return graph.attempt(op, [x], axis=axis, p=random.choice((1, 2)))
    if op == "MeanVarianceNormalization":
        x = of_rank(graph, [4], [graph.floats])
        return graph.attempt(op, [x], axes=random.choice(([0, 2, 3], [1], [2, 3])))
    if op == "LRN":
        x = of_rank(graph, [3, 4], [graph.floats])
        return graph.attempt(op, [x], size=random.choice((1, 2, 3, 5)), alpha=random.uniform(1e-4, 0.5), beta=random.uniform(0.5, 1), bias=random.uniform(0.5, 2))
    x = of_rank(graph, [2, 3, 4, 5] if op == "BatchNormalization" else [3, 4, 5], [graph.floats])
    channels = (x.shape[1],)
    if op == "BatchNormalization":
        inputs = [x, *(graph.new(channels, constant=random.random() < 0.8) for _ in range(3)), graph.new(channels, None, 0.2, 2, random.random() < 0.8)]
        return graph.attempt(op, inputs, **epsilon)
    if op == "GroupNormalization":
        groups = random.choice([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
        return graph.attempt(op, [x, graph.new(channels), graph.new(channels)], num_groups=groups, **epsilon)
    return graph.attempt(op, [x, graph.new(channels), graph.new(channels)], **epsilon)


def matmul(graph):
    random = graph.random
    a = of_rank(graph, range(1, 5), [graph.floats], want=lambda v: v.shape[-1] <= 64)
    def fits(v):
        return (v.shape[-2] if v.rank > 1 else v.shape[0]) == a.shape[-1] and (v.rank < 3 or a.rank < 3 or all(
            x == y or 1 in (x, y) for x, y in zip(reversed(v.shape[:-2]), reversed(a.shape[:-2]))))
    b = graph.pick(ranks=range(1, 5), want=fits)
    if b is None:
        tail = random.choice(((a.shape[-1],), (a.shape[-1], random.choice((1, 2, 3, 8, 16, 17)))))
        head = shapes.partner(random, a.shape[:-2]) if len(tail) == 2 and random.random() < 0.4 else ()
        b = graph.new(head + tail)
    if random.random() < 0.1 and graph.floats == np.float32 and a.rank >= 2 and b.rank >= 2:
        inner = list(range(b.rank - 2)) + [b.rank - 1, b.rank - 2]
        flipped = graph.attempt("Transpose", [b], perm=inner)
        if flipped:
            return graph.attempt("FusedMatMul", [a, flipped[0]], domain="com.microsoft", transB=1, alpha=random.uniform(0.5, 1.5))
    return graph.attempt("MatMul", [a, b])


def gemm(graph):
    random = graph.random
    a = of_rank(graph, [2], [graph.floats], want=lambda v: max(v.shape) <= 64)
    trans_a, trans_b = random.randint(0, 1), random.randint(0, 1)
    m, k = a.shape[::-1] if trans_a else a.shape
    n = random.choice((1, 2, 5, 16, 17))
    b = graph.new((n, k) if trans_b else (k, n))
    inputs = [a, b]
    if random.random() < 0.8 or graph.opset < 11:
        inputs.append(graph.new(random.choice(((m, n), (1, n), (n,), (m, 1), (1,), ()))))
    attributes = {"transA": trans_a, "transB": trans_b}
    if random.random() < 0.5:
        attributes.update(alpha=random.uniform(0.5, 2), beta=random.uniform(0, 2))
    return graph.attempt("Gemm", inputs, **attributes)


EINSUMS = ("ij,jk->ik", "bij,bjk->bik", "bhid,bhjd->bhij", "ij->ji", "ii->i", "ij->", "i,j->ij", "bij,bj->bi", "...i,ij->...j", "ijk,ikl->lij", "ij,kj->ki",
           "abc,acd,de->abe", "ij,ij->i", "bnij->bj")


def einsum(graph):
    random = graph.random
    if graph.opset < 12:
        return None
    equation = random.choice(EINSUMS)
    extents = {c: random.choice((1, 2, 3, 4, 5, 8)) for c in "abcdehijkln"}
    terms = []
    for term in equation.split("->")[0].split(","):
        shape = tuple(e for c in term.replace("...", ".") for e in ((2, 3) if c == "." else (extents[c],)))
        terms.append(graph.pick(ranks=[len(shape)], want=lambda v, s=shape: v.shape == s) or graph.new(shape))
    return graph.attempt("Einsum", terms, equation=equation)


def image(graph, spatial, channels=None):
    random = graph.random
    fresh = (random.choice((1, 1, 2)), channels or random.choice((1, 2, 3, 4, 6, 8, 16)), *(random.choice((1, 2, 3, 4, 5, 7, 8, 9)) for _ in range(spatial)))
    return graph.pick(ranks=[spatial + 2], want=lambda v: v.array.size <= 2000 and channels in (None, v.shape[1])) or graph.new(fresh)


def windows(graph, x, most=5):
    return [list(w) for w in zip(*(shapes.windows(graph.random, e, most) for e in x.shape[2:]))]


def padding(graph, attributes, before, after):
    auto = graph.random.choice((None,) * 6 + ("SAME_UPPER", "SAME_LOWER", "VALID"))
    if auto:
        attributes["auto_pad"] = auto
    else:
        attributes["pads"] = before + after


def conv(graph):
    random = graph.random
    x = image(graph, random.choice((1, 2, 2, 2, 2, 3)))
    kernel, stride, dilation, before, after = windows(graph, x)
    channels = x.shape[1]
    group = random.choice((1, 1, 1, channels, random.choice([g for g in range(1, channels + 1) if channels % g == 0])))
    features = group * random.choice((1, 2, 3, 4)) if group > 1 else random.choice((1, 2, 5, 8, 16))
    inputs = [x, graph.new((features, channels // group, *kernel), constant=random.random() < 0.85)]
    if random.random() < 0.6:
        inputs.append(graph.new((features,), constant=random.random() < 0.9))
    attributes = {"strides": stride, "dilations": dilation, "group": group}
    if random.random() < 0.8:
        attributes["kernel_shape"] = kernel
    padding(graph, attributes, before, after)
    if random.random() < 0.06 and graph.floats == np.float32 and len(kernel) == 2:
        return graph.attempt("FusedConv", inputs, domain="com.microsoft", activation=random.choice(("Relu", "Sigmoid", "Tanh")), **attributes)
    return graph.attempt("Conv", inputs, **attributes)


def conv_transpose(graph):
    random = graph.random
    x = image(graph, random.choice((1, 2, 2, 2, 3)))
    kernel, stride, dilation, before, after = windows(graph, x, 3)
    channels = x.shape[1]
    group = random.choice((1, 1, channels, random.choice([g for g in range(1, channels + 1) if channels % g == 0])))
    features = random.choice((1, 2, 3, 4))
    inputs = [x, graph.new((channels, features, *kernel), constant=random.random() < 0.85)]
    if random.random() < 0.6:
        inputs.append(graph.new((features * group,)))
    attributes = {"strides": stride, "dilations": dilation, "group": group}
    if random.random() < 0.5:
        attributes["kernel_shape"] = kernel
    if random.random() < 0.3:
        attributes["output_padding"] = [random.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation)]
    if any(k < s for k, s in zip(kernel, stride)):  # ONNX Runtime's output is smaller there than ONNX says
        attributes["pads"] = before + after
    else:
        padding(graph, attributes, before, after)
    return graph.attempt("ConvTranspose", inputs, **attributes)


def pool(graph):
    random = graph.random
    op = random.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = image(graph, random.choice((1, 2, 2, 2, 3)))
    if op.startswith("Global"):
        return graph.attempt(op, [x], **({"p": random.choice((1, 2))} if op == "GlobalLpPool" else {}))
    kernel, stride, dilation, before, after = windows(graph, x)
    attributes = {"kernel_shape": kernel, "strides": stride}
    dilates = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op] <= graph.opset
    if dilates and random.random() < 0.5:  # with auto_pad ONNX Runtime forgets the dilations
        attributes.update(dilations=dilation, pads=before + after)
    elif any(k > e or k < s for k, e, s in zip(kernel, x.shape[2:], stride)):  # and lets windows lie elsewhere than ONNX says
        attributes["pads"] = before + after
    else:
        padding(graph, attributes, before, after)
    if {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[op] <= graph.opset and random.random() < 0.4:
        attributes["ceil_mode"] = 1
    if op == "LpPool":
        attributes["p"] = random.choice((1, 2, 3))
    if op == "AveragePool" and random.random() < 0.5:
        attributes["count_include_pad"] = 1
    if op == "MaxPool" and random.random() < 0.25:
        made = graph.attempt(op, [x], 2, **attributes)
        if made and random.random() < 0.5 and graph.opset >= 11 and "dilations" not in attributes and "auto_pad" not in attributes and "ceil_mode" not in attributes:
            graph.attempt("MaxUnpool", made, kernel_shape=kernel, strides=stride, pads=attributes["pads"])
        return made
    return graph.attempt(op, [x], **attributes)


def recurrent(graph):
    random = graph.random
    op, gates = random.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    steps, batch, size, hidden = random.choice((1, 2, 4)), random.choice((1, 2, 3)), random.choice((1, 3, 8)), random.choice((1, 2, 4, 8))
    direction = random.choice(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    x = graph.pick(ranks=[3], want=lambda v: v.array.size <= 400 and v.shape[0] <= 8)
    if x:
        steps, batch, size = x.shape
    else:
        x = graph.new((steps, batch, size))
    inputs = [x, graph.new((ways, gates * hidden, size), None, -0.7, 0.7, random.random() < 0.9), graph.new((ways, gates * hidden, hidden), None, -0.7, 0.7, random.random() < 0.9)]
    inputs.append(graph.new((ways, 2 * gates * hidden)) if random.random() < 0.7 else None)
    inputs.append(graph.new((batch,), np.int32, 1, steps) if random.random() < 0.3 else None)
    inputs.append(graph.new((ways, batch, hidden)) if random.random() < 0.4 else None)
    if op == "LSTM":
        inputs.append(graph.new((ways, batch, hidden)) if random.random() < 0.4 else None)
        inputs.append(graph.new((ways, 3 * hidden)) if random.random() < 0.3 else None)
    attributes = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attributes["linear_before_reset"] = random.randint(0, 1)
    if random.random() < 0.2:
        attributes["clip"] = random.uniform(0.5, 2)
    if random.random() < 0.2:
        attributes["activations"] = [random.choice(("Tanh", "Sigmoid", "Relu")) for _ in range({"LSTM": 3, "GRU": 2, "RNN": 1}[op] * ways)]
    while inputs[-1] is None:
        inputs.pop()
    return graph.attempt(op, inputs, random.randint(1, 3 if op == "LSTM" else 2), **attributes)


def sampling(graph):
    random = graph.random
    kinds = (["GridSample"] if graph.opset >= 16 else []) + ["RoiAlign"] * (graph.opset >= 10) + ["AffineGrid"] * (graph.opset >= 20) + ["DeformConv"] * (graph.opset >= 19)
    if not kinds:
        return None
    op = random.choice(kinds)
    x = image(graph, 2)
    if op == "GridSample":
        modes = ("bilinear", "nearest", "bicubic") if graph.opset < 20 else ("linear", "nearest", "cubic")
        grid = graph.new((x.shape[0], random.randint(1, 5), random.randint(1, 5), 2), None, -1.3, 1.3)
        return graph.attempt(op, [x, grid], mode=random.choice(modes), padding_mode=random.choice(("zeros", "border", "reflection")), align_corners=random.randint(0, 1))
    if op == "AffineGrid":
        # Of one row or column ONNX Runtime aligns the first corner, PyTorch the middle.
        return graph.attempt(op, [graph.new((2, 2, 3)), graph.ints((2, 1, random.randint(2, 5), random.randint(2, 5)))], align_corners=random.randint(0, 1))
    if op == "DeformConv":
        offset = graph.new((x.shape[0], 2 * 4, x.shape[2] + 1, x.shape[3] + 1), None, -0.7, 0.7)
        return graph.attempt(op, [x, graph.new((2, x.shape[1], 2, 2)), offset], kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    height, width = x.shape[2:]
    rows = random.randint(1, 4)
    corners = np.sort(graph.draw.random((rows, 2, 2)), 1) * [width, height]
    boxes = graph.leaf(np.concatenate([corners[:, 0], corners[:, 1]], 1).astype(graph.floats))
    batch = graph.new((rows,), np.int64, 0, x.shape[0] - 1)
    attributes = {"output_height": random.randint(1, 3), "output_width": random.randint(1, 3), "mode": random.choice(("avg", "max"))}
    attributes["sampling_ratio"] = random.choice((0, 1, 2) if attributes["mode"] == "avg" else (1, 2))
    if graph.opset >= 16:
        attributes["coordinate_transformation_mode"] = random.choice(("half_pixel", "output_half_pixel"))
    return graph.attempt(op, [x, boxes, batch], **attributes)


def attention(graph):
    random = graph.random
    if graph.opset < 23 or graph.floats != np.float32:
        return attention_by_hand(graph)
    batch, heads, queries, keys, size = random.choice((1, 2)), random.choice((1, 2, 4)), random.choice((1, 3, 5)), random.choice((1, 4, 6)), random.choice((2, 4, 8))
    if random.random() < 0.3:
        return graph.attempt("RotaryEmbedding", [graph.new((batch, heads, queries, size)), graph.new((batch, queries, size // 2), None, -1, 1),
                                                 graph.new((batch, queries, size // 2), None, -1, 1)], interleaved=random.randint(0, 1))
    key_heads = random.choice([h for h in (1, 2, 4) if heads % h == 0])
    flat = random.random() < 0.5
    def of(count, rows):
        return graph.new((batch, rows, count * size) if flat else (batch, count, rows, size))
    inputs = [of(heads, queries), of(key_heads, keys), of(key_heads, keys)]
    if random.random() < 0.4:
        inputs.append(graph.new((queries, keys), random.choice((np.bool_, graph.floats))) if random.random() < 0.5 else graph.new((batch, 1, queries, keys)))
        if inputs[-1].dtype == bool:
            inputs[-1].array[..., 0] = True
    attributes = {"q_num_heads": heads, "kv_num_heads": key_heads} if flat else {}
    if random.random() < 0.4:
        attributes["is_causal"] = 1
    if random.random() < 0.3:
        attributes["scale"] = random.uniform(0.2, 1)
    if random.random() < 0.2:
        attributes["softcap"] = random.uniform(1, 3)
    return graph.attempt("Attention", inputs, **attributes)


def attention_by_hand(graph):
    """Products, scale, mask and softmax as exporters write them."""
    random = graph.random
    batch, heads, queries, keys, size = random.choice((1, 2)), random.choice((1, 2, 4)), random.choice((1, 3, 5)), random.choice((1, 4, 6)), random.choice((2, 4, 8))
    query = graph.new((batch, heads, queries, size))
    scale = graph.constant(np.array(size ** -0.5, graph.floats))
    if random.random() < 0.5:
        keys_of = graph.attempt("Transpose", [graph.new((batch, keys, heads, size))], perm=[0, 2, 3, 1])
    else:
        keys_of = graph.attempt("Transpose", [graph.new((batch, heads, keys, size))], perm=[0, 1, 3, 2])
    if not keys_of:
        return None
    first = random.random() < 0.3
    if first:
        query = (graph.attempt("Mul", [query, scale]) or [query])[0]
    scores = graph.attempt("MatMul", [query, keys_of[0]])
    if scores and not first:
        scores = graph.attempt(random.choice(("Mul", "Div")), [scores[0], scale])
    if scores and random.random() < 0.4:
        scores = graph.attempt("Add", [scores[0], graph.new(random.choice(((batch, 1, queries, keys), (1, 1, 1, keys), (queries, keys))))])
    elif scores and random.random() < 0.3:
        mask = graph.new((queries, keys), np.bool_)
        mask.array[..., 0] = True
        scores = graph.attempt("Where", [mask, scores[0], graph.constant(np.array(-1e3 if graph.floats == np.float16 else random.choice((-1e9, -1e4, -np.inf)), graph.floats))])
    weights = scores and graph.attempt("Softmax", scores, axis=-1)
    if not weights:
        return scores
    mixed = graph.attempt("MatMul", [weights[0], graph.new((batch, heads, keys, size))])
    if mixed and random.random() < 0.6:
        mixed = graph.attempt("Transpose", mixed, perm=[0, 2, 1, 3])
        return mixed and graph.attempt("Reshape", [mixed[0], graph.ints((batch, queries, heads * size))])
    return mixed


def signal(graph):
    random = graph.random
    if graph.opset < 17 or graph.floats != np.float32:
        return graph.attempt("Det", [of_rank(graph, [2, 3], [graph.floats], want=lambda v: v.shape[-1] == v.shape[-2])]) if graph.opset >= 11 else None
    kind = random.choice(("DFT", "STFT", "window", "Det"))
    if kind == "Det":
        size = random.choice((1, 2, 3, 4, 5, 8))
        return graph.attempt("Det", [graph.new(random.choice(((), (2,), (2, 3))) + (size, size))])
    if kind == "window":
        return graph.attempt(random.choice(("HannWindow", "HammingWindow", "BlackmanWindow")), [graph.ints(random.randint(2, 16))], periodic=random.randint(0, 1))
    if kind == "DFT":
        x = graph.new((random.choice((1, 2)), random.choice((1, 3, 4, 5, 8, 16)), 1))
        return graph.attempt("DFT", [x], onesided=random.randint(0, 1), **({"axis": 1} if graph.opset < 20 else {}))
    frame, step = random.choice((4, 5, 8)), random.choice((1, 2, 3, 4))
    return graph.attempt("STFT", [graph.new((random.choice((1, 2)), 24)), graph.ints(step), graph.new((frame,))], onesided=random.randint(0, 1))


PROPOSALS = {reduce: 8, arg: 2, softmax: 4, normalise: 6, matmul: 7, gemm: 4, einsum: 2, conv: 10, conv_transpose: 3, pool: 6, recurrent: 3, sampling: 2,
             attention: 3, signal: 1}
