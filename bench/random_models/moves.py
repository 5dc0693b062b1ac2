"""Nodes that move, choose or repeat elements."""
import math

import numpy as np

import shapes

ANY = (np.float32, np.float16, np.int64, np.int32, np.bool_)


def of_rank(graph, ranks, dtypes=None, want=None, most=shapes.ELEMENTS):
    dtypes = dtypes or ([graph.floats] if graph.random.random() < 0.7 else [graph.random.choice((np.int64, np.int32, np.bool_, np.uint8, np.int8))])
    return graph.pick(dtypes, ranks, want) or graph.new(shapes.shape(graph.random, graph.random.choice(ranks), most), graph.random.choice(dtypes))


def transpose(graph):
    x = of_rank(graph, range(1, 6))
    if graph.random.random() < 0.2:
        return graph.attempt("Transpose", [x])
    return graph.attempt("Transpose", [x], perm=graph.random.sample(range(x.rank), x.rank))


def reshape(graph):
    random = graph.random
    x = of_rank(graph, range(0, 6))
    target = list(shapes.reshaped(random, x.shape))
    for axis, extent in enumerate(target):
        if axis < x.rank and x.shape[axis] == extent and random.random() < 0.2:
            target[axis] = 0
    if target and random.random() < 0.4:
        target[random.randrange(len(target))] = -1
    return graph.attempt("Reshape", [x, graph.ints(target)])


def flatten(graph):
    x = of_rank(graph, range(1, 6))
    return graph.attempt("Flatten", [x], axis=graph.random.randint(0 if graph.opset < 11 else -x.rank, x.rank))


def with_axes(graph, op, x, axes, since=13, **attributes):
    if axes is None:
        return graph.attempt(op, [x], **attributes)
    if graph.opset >= since:
        return graph.attempt(op, [x, graph.ints(axes)], **attributes)
    return graph.attempt(op, [x], axes=[a if graph.opset >= 11 or a >= 0 else a + x.rank for a in axes], **attributes)


def squeeze(graph):
    random = graph.random
    x = of_rank(graph, range(1, 6), want=lambda v: 1 in v.shape)
    ones = [a for a, e in enumerate(x.shape) if e == 1]
    if not ones or random.random() < 0.2:
        return with_axes(graph, "Squeeze", x, None)
    chosen = random.sample(ones, random.randint(1, len(ones)))
    return with_axes(graph, "Squeeze", x, [a - x.rank if random.random() < 0.4 and graph.opset >= 11 else a for a in chosen])


def unsqueeze(graph):
    random = graph.random
    x = of_rank(graph, range(0, 5))
    count = random.randint(1, 2)
    axes = random.sample(range(x.rank + count), count)
    return with_axes(graph, "Unsqueeze", x, [a - x.rank - count if random.random() < 0.4 and graph.opset >= 11 else a for a in axes])


def concat(graph):
    random = graph.random
    x = of_rank(graph, range(1, 6), most=600)
    axis = shapes.axis(random, x.rank)
    inputs = [x]
    for _ in range(random.randint(0, 3)):
        def fits(v):
            return all(a == b for k, (a, b) in enumerate(zip(v.shape, x.shape)) if k != axis % x.rank)
        other = list(x.shape)
        other[axis] = random.choice((1, 2, 3, 5))
        inputs.append(graph.pick([x.dtype], [x.rank], fits) or graph.new(other, x.dtype))
    random.shuffle(inputs)
    return graph.attempt("Concat", inputs, axis=axis if graph.opset >= 11 else axis % x.rank)


def split(graph):
    random = graph.random
    x = of_rank(graph, range(1, 6), want=lambda v: max(v.shape) > 1)
    axis = random.choice([a for a, e in enumerate(x.shape) if e > 1] or [0])
    extent = x.shape[axis]
    count = random.randint(1, min(4, extent))
    axis = axis - x.rank if random.random() < 0.4 and graph.opset >= 11 else axis
    if random.random() < 0.3 and extent % count == 0:
        return graph.attempt("Split", [x], count, axis=axis, **({"num_outputs": count} if graph.opset >= 18 else {}))
    if graph.opset >= 18 and random.random() < 0.2 and math.ceil(extent / count) * (count - 1) < extent:
        return graph.attempt("Split", [x], count, axis=axis, num_outputs=count)
    cuts = sorted(random.sample(range(1, extent), count - 1))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, extent])]
    if graph.opset < 13:
        return graph.attempt("Split", [x], count, axis=axis, split=sizes)
    return graph.attempt("Split", [x, graph.ints(sizes)], count, axis=axis)


def slice_(graph):
    random = graph.random
    x = of_rank(graph, range(1, 6))
    axes = shapes.axes(random, x.rank)
    cuts = [shapes.slices(random, x.shape[a]) for a in axes]
    starts, ends, steps = zip(*cuts)
    if graph.opset < 10:
        return graph.attempt("Slice", [x], axes=[a % x.rank for a in axes], starts=[s if t > 0 else 0 for s, t in zip(starts, steps)],
                             ends=[e if t > 0 else 2**31 - 1 for e, t in zip(ends, steps)])
    dtype = np.int64 if max(map(abs, ends)) >= 2**31 else random.choice((np.int32, np.int64))
    inputs = [x, graph.ints(starts, dtype), graph.ints(ends, dtype), graph.ints(axes, dtype), graph.ints(steps, dtype)]
    if sorted(a % x.rank for a in axes) == list(range(x.rank)) and [a % x.rank for a in axes] == list(range(x.rank)) and random.random() < 0.5:
        inputs[3] = None
    if all(s == 1 for s in steps) and random.random() < 0.7:
        inputs.pop()
    return graph.attempt("Slice", inputs)


def pad(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), [graph.floats] if graph.opset < 11 or random.random() < 0.8 else [np.int64, np.int32], most=800)
    modes = ["constant", "constant", "reflect", "edge"] + (["wrap"] if graph.opset >= 19 else [])
    mode = random.choice(modes)
    widths = []
    for extent in x.shape * 2:
        most = {"reflect": extent - 1, "wrap": extent}.get(mode, 3)
        low = -1 if mode in ("constant", "edge") and extent > 2 and random.random() < 0.2 else 0
        widths.append(random.randint(low, min(3, most)))
    if graph.opset < 11:
        return graph.attempt("Pad", [x], mode=mode, pads=widths, **({"value": random.uniform(-1, 1)} if random.random() < 0.5 else {}))
    inputs = [x, graph.ints(widths)]
    value = graph.leaf(np.array(random.choice((0, 1, 3)), x.dtype)) if mode == "constant" and random.random() < 0.6 else None
    if graph.opset >= 18 and random.random() < 0.5:
        chosen = shapes.axes(random, x.rank)
        inputs[1] = graph.ints([widths[a % x.rank] for a in chosen] + [widths[a % x.rank + x.rank] for a in chosen])
        inputs += [value, graph.ints(chosen)]
    elif value is not None:
        inputs.append(value)
    return graph.attempt("Pad", inputs, mode=mode)


def tile(graph):
    x = of_rank(graph, range(1, 5), most=300)
    return graph.attempt("Tile", [x, graph.ints([graph.random.choice((1, 1, 2, 3)) for _ in x.shape])])


def expand(graph):
    x = of_rank(graph, range(0, 5), most=300)
    return graph.attempt("Expand", [x, graph.ints(shapes.partner(graph.random, x.shape))])


def index_of(graph, extent, shape, dtype=None, negative=True, constant=None):
    low = -extent if negative and graph.random.random() < 0.4 else 0
    return graph.new(shape, dtype or graph.random.choice((np.int32, np.int64)), low, extent - 1, constant)


def gather(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), most=800)
    axis = shapes.axis(random, x.rank)
    return graph.attempt("Gather", [x, index_of(graph, x.shape[axis], shapes.shape(random, random.choice((0, 1, 1, 2)), 6))], axis=axis)


def gather_elements(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), most=800)
    axis = shapes.axis(random, x.rank)
    shape = [random.randint(1, e) for e in x.shape]
    shape[axis] = random.choice((1, 2, 3, x.shape[axis]))
    return graph.attempt("GatherElements", [x, index_of(graph, x.shape[axis], shape)], axis=axis)


def index_tuples(graph, shape, rows, depth, unique=False):
    """Rows of indices into the first `depth` axes (or behind batch axes)."""
    if unique:
        flat = graph.random.sample(range(math.prod(shape[:depth])), math.prod(rows))
        columns = np.unravel_index(np.array(flat, np.int64).reshape(rows), shape[:depth])
    else:
        columns = [graph.draw.integers(-e if graph.random.random() < 0.3 else 0, e, rows) for e in shape[:depth]]
    return np.stack([np.asarray(c) for c in columns], -1).astype(np.int64)


def gather_nd(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), most=800)
    batch = random.randint(0, x.rank - 1) if graph.opset >= 12 and random.random() < 0.4 else 0
    depth = random.randint(1, x.rank - batch)
    rows = x.shape[:batch] + shapes.shape(random, random.choice((0, 1, 1, 2)), 6)
    if graph.opset < 11:
        return None
    index = graph.leaf(index_tuples(graph, x.shape[batch:], rows, depth))
    return graph.attempt("GatherND", [x, index], **({"batch_dims": batch} if batch else {}))


def scatter_nd(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), [graph.floats] if random.random() < 0.8 else [np.int64], most=800)
    depth = random.randint(1, x.rank)
    count = random.randint(1, min(4, math.prod(x.shape[:depth])))
    attributes = {}
    if graph.opset >= 16 and random.random() < 0.5:
        attributes["reduction"] = random.choice(("add", "mul") if graph.opset < 18 else ("add", "mul", "min", "max"))
    if graph.opset < 11:
        return None
    index = graph.leaf(index_tuples(graph, x.shape, (count,), depth, unique=not attributes))
    return graph.attempt("ScatterND", [x, index, graph.new((count,) + x.shape[depth:], x.dtype)], **attributes)


def scatter_elements(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), [graph.floats] if random.random() < 0.8 else [np.int64], most=800)
    axis = shapes.axis(random, x.rank)
    shape = [random.randint(1, e) for e in x.shape]
    attributes = {}
    if graph.opset >= 16 and random.random() < 0.5:
        attributes["reduction"] = random.choice(("add", "mul") if graph.opset < 18 else ("add", "mul", "min", "max"))
        index = graph.numbers(shape, np.int64, 0, x.shape[axis] - 1)
    else:  # without a reduction no place may be written twice
        order = np.argsort(graph.draw.random(shape[:axis % x.rank] + [x.shape[axis]] + shape[axis % x.rank + 1:]), axis=axis)
        index = np.take(order, range(shape[axis]), axis=axis).astype(np.int64)
    if random.random() < 0.3:
        index = np.where(graph.draw.random(index.shape) < 0.5, index - x.shape[axis], index)
    op = "ScatterElements" if graph.opset >= 11 else "Scatter"
    return graph.attempt(op, [x, graph.leaf(index), graph.new(shape, x.dtype)], axis=axis if graph.opset >= 11 else axis % x.rank, **attributes)


def depth_space(graph):
    random = graph.random
    block = random.choice((1, 2, 2, 3))
    if random.random() < 0.5:
        shape = (random.choice((1, 2)), block * block * random.choice((1, 2, 3)), random.choice((1, 2, 3, 5)), random.choice((1, 2, 4)))
        x = graph.pick(ranks=[4], want=lambda v: v.shape[1] % (block * block) == 0) or graph.new(shape)
        attributes = {"mode": random.choice(("DCR", "CRD"))} if graph.opset >= 11 else {}
        return graph.attempt("DepthToSpace", [x], blocksize=block, **attributes)
    shape = (random.choice((1, 2)), random.choice((1, 2, 3)), block * random.choice((1, 2, 3)), block * random.choice((1, 2, 4)))
    x = graph.pick(ranks=[4], want=lambda v: v.shape[2] % block == 0 and v.shape[3] % block == 0) or graph.new(shape)
    return graph.attempt("SpaceToDepth", [x], blocksize=block)


def trilu(graph):
    if graph.opset < 14:
        return None
    x = of_rank(graph, range(2, 5))
    inputs = [x] + ([graph.ints(graph.random.randint(-4, 4))] if graph.random.random() < 0.7 else [])
    return graph.attempt("Trilu", inputs, upper=graph.random.randint(0, 1))


def reverse_sequence(graph):
    if graph.opset < 10:
        return None
    x = of_rank(graph, range(2, 5), [graph.floats])
    batch, time = graph.random.choice(((0, 1), (1, 0)))
    return graph.attempt("ReverseSequence", [x, graph.new((x.shape[batch],), np.int64, 1, x.shape[time])], batch_axis=batch, time_axis=time)


def one_hot(graph):
    random = graph.random
    depth = random.randint(2, 6)
    index = graph.new(shapes.shape(random, random.choice((0, 1, 2)), 20), random.choice((np.int64, np.int32)), -depth - 1, depth)
    values = graph.leaf(np.array(random.choice(((0, 1), (-1, 2))), random.choice((np.float32, np.int64))))
    return graph.attempt("OneHot", [index, graph.ints(depth), values], axis=random.randint(-index.rank - 1, index.rank))


def eye_like(graph):
    from onnx import TensorProto
    x = of_rank(graph, [2], [graph.floats])
    attributes = {"k": graph.random.randint(-2, 2)} if graph.random.random() < 0.6 else {}
    if graph.random.random() < 0.5:
        attributes["dtype"] = graph.random.choice((TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32))
    return graph.attempt("EyeLike", [x], **attributes)


def shape_of(graph):
    x = of_rank(graph, range(1, 5))
    if graph.opset >= 15 and graph.random.random() < 0.4:
        return graph.attempt("Shape", [x], start=graph.random.randint(0, x.rank - 1))
    return graph.attempt(graph.random.choice(("Shape", "Size")), [x])


def constant_of_shape(graph):
    from onnx import numpy_helper
    value = np.array([graph.random.choice((0, 1, -2))], graph.random.choice((np.float32, np.int64, np.int32)))
    return graph.attempt("ConstantOfShape", [graph.ints(shapes.shape(graph.random, graph.random.randint(1, 4), 200))], value=numpy_helper.from_array(value))


def range_(graph):
    dtype = graph.random.choice((np.int64, np.int32, np.float32))
    numbers = graph.random.choice(((0, 7, 1), (5, -4, -2), (-3, 4, 2)))
    return graph.attempt("Range", [graph.constant(np.array(n, dtype)) for n in numbers]) if graph.opset >= 11 else None


def cum_sum(graph):
    if graph.opset < 11:
        return None
    x = of_rank(graph, range(1, 5), [graph.floats] if graph.random.random() < 0.8 else [np.int64, np.int32])
    axis = graph.leaf(np.array(shapes.axis(graph.random, x.rank), graph.random.choice((np.int32, np.int64))), True)
    return graph.attempt("CumSum", [x, axis], exclusive=graph.random.randint(0, 1), reverse=graph.random.randint(0, 1))


def top_k(graph):
    random = graph.random
    x = of_rank(graph, range(1, 5), [graph.floats] if random.random() < 0.8 else [np.int64, np.int32], want=lambda v: max(v.shape) <= 64)
    axis = shapes.axis(random, x.rank)
    attributes = {"axis": axis, "largest": random.randint(0, 1)} if graph.opset >= 11 else {"axis": axis % x.rank}
    if graph.opset < 10:
        return None
    return graph.attempt("TopK", [x, graph.ints([random.randint(1, x.shape[axis])])], 2, **attributes)


def compress(graph):
    x = of_rank(graph, range(1, 4), most=300)
    axis = shapes.axis(graph.random, x.rank)
    keep = graph.draw.integers(0, 2, x.shape[axis]).astype(bool)
    keep[graph.random.randrange(len(keep))] = True
    return graph.attempt("Compress", [x, graph.constant(keep)], axis=axis) if graph.opset >= 11 else None


def resize(graph):
    random = graph.random
    spatial = random.choice((1, 2, 2, 2, 3))
    shape = shapes.shape(random, 2, 6) + tuple(random.randint(2, 7) for _ in range(spatial))
    x = graph.pick(ranks=[spatial + 2], want=lambda v: max(v.shape) <= 17 and v.array.size <= 500) or graph.new(shape)
    mode = random.choice(("nearest", "nearest", "linear", "cubic"))
    if mode == "cubic" and spatial != 2:
        mode = "linear"
    sizes = [int(x.shape[a] * random.choice((0.6, 1, 1.5, 2, 3)) + 0.5) or 1 for a in range(2, spatial + 2)]
    if graph.opset < 10:
        return None if graph.floats != np.float32 else graph.attempt("Upsample", [x, graph.constant(np.array([1, 1] + [random.choice((1, 2, 3)) for _ in range(spatial)], np.float32))], mode="nearest")
    if graph.opset < 11:
        return graph.attempt("Resize", [x, graph.constant(np.array([1, 1] + [random.choice((1, 2, 0.5)) for _ in range(spatial)], np.float32))], mode="nearest")
    attributes = {"mode": mode, "coordinate_transformation_mode": random.choice(("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"))}
    if mode == "nearest":
        attributes["nearest_mode"] = random.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = random.choice((-0.75, -0.5))
        attributes["exclude_outside"] = random.randint(0, 1)
    # ONNX Runtime's antialiasing is another than ONNX's in the other modes.
    if graph.opset >= 18 and mode in ("linear", "cubic") and attributes["coordinate_transformation_mode"] == "half_pixel" and random.random() < 0.5:
        attributes["antialias"] = 1
    # With scales, ONNX takes the fractional size of the output where ONNX Runtime and PyTorch take the whole one.
    if random.random() < 0.5 or attributes["coordinate_transformation_mode"] in ("align_corners", "pytorch_half_pixel"):
        inputs = [x, None, None, graph.ints(list(x.shape[:2]) + sizes)]
    else:
        inputs = [x, None, graph.constant(np.array([1, 1] + [random.choice((0.5, 0.7, 1, 1.3, 2, 2.5)) for _ in range(spatial)], np.float32))]
        if all(int(e * f) == e for e, f in zip(x.shape, inputs[2].array)):  # which ONNX Runtime copies
            return None
    return graph.attempt("Resize", inputs, **attributes)


def col2im(graph):
    random = graph.random
    if graph.opset < 18:
        return None
    image = [random.randint(3, 6) for _ in range(2)]
    block = [random.randint(1, 3) for _ in range(2)]
    columns = math.prod(i - b + 1 for i, b in zip(image, block))
    x = graph.new((random.choice((1, 2)), random.choice((1, 2)) * math.prod(block), columns))
    return graph.attempt("Col2Im", [x, graph.ints(image), graph.ints(block)])


PROPOSALS = {transpose: 6, reshape: 6, flatten: 2, squeeze: 3, unsqueeze: 3, concat: 5, split: 4, slice_: 5, pad: 4, tile: 2, expand: 3, gather: 4,
             gather_elements: 2, gather_nd: 2, scatter_nd: 2, scatter_elements: 2, depth_space: 2, trilu: 1, reverse_sequence: 1, one_hot: 1,
             eye_like: 1, shape_of: 1, constant_of_shape: 1, range_: 1, cum_sum: 2, top_k: 2, compress: 1, resize: 4, col2im: 1}
