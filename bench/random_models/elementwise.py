"""Nodes that compute each element from one element of each input. A function takes a Graph, tries to add one node, and returns whether it did."""
import numpy as np

import shapes

INTEGERS = (np.int32, np.int64, np.int8, np.uint8)

# Operator: the opset that brought it, attributes by name with their ranges.
UNARY = {
    "Abs": 1, "Neg": 1, "Ceil": 1, "Floor": 1, "Round": 11, "Sign": 9, "Exp": 1, "Log": 1, "Sqrt": 1, "Reciprocal": 1, "Sin": 7, "Cos": 7,
    "Tan": 7, "Asin": 7, "Acos": 7, "Atan": 7, "Sinh": 9, "Cosh": 9, "Tanh": 1, "Asinh": 9, "Acosh": 9, "Atanh": 9, "Erf": 9, "Sigmoid": 1,
    "Relu": 1, "Softplus": 1, "Softsign": 1, "HardSwish": 14, "Mish": 18, "Identity": 1, "IsNaN": 13, "IsInf": 10, "Dropout": 7,
}
WITH_ALPHA = {"LeakyRelu": 1, "Elu": 1, "Celu": 12, "ThresholdedRelu": 10, "Selu": 1, "HardSigmoid": 1, "Shrink": 9, "Gelu": 20, "Swish": 24}
# Where floats must lie, for those that are not defined everywhere.
DOMAIN = {"Log": (0.1, 4), "Sqrt": (0.01, 4), "Reciprocal": (0.3, 3), "Asin": (-0.9, 0.9), "Acos": (-0.9, 0.9), "Atanh": (-0.9, 0.9), "Acosh": (1.1, 4)}
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "PRelu", "Mean", "Sum")
COMPARISONS = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
MICROSOFT = ("Gelu", "FastGelu", "QuickGelu", "BiasGelu")


def operand(graph, dtypes=None):
    return graph.pick(dtypes) or graph.new(shapes.shape(graph.random), graph.random.choice(dtypes) if dtypes else None)


def unary(graph):
    op = graph.random.choice([o for o, since in UNARY.items() if since <= graph.opset])
    dtypes = [graph.floats]
    if op in ("Abs", "Neg", "Sign", "Identity", "Relu") and graph.random.random() < 0.3:
        dtypes = [graph.random.choice((np.int32, np.int64, np.int8))]
    x = operand(graph, dtypes)
    if op in DOMAIN and not fits(x, DOMAIN[op]):
        x = graph.new(shapes.shape(graph.random), None, *DOMAIN[op])
    return graph.attempt(op, [x])


def fits(value, domain):
    return value.array.min() >= domain[0] and value.array.max() <= domain[1]


def with_alpha(graph):
    random = graph.random
    op = random.choice([o for o, since in WITH_ALPHA.items() if since <= graph.opset])
    attributes = {}
    if op in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid", "Swish") and random.random() < 0.7:
        attributes["alpha"] = random.uniform(0.1, 1.5)
    if op == "HardSigmoid" and random.random() < 0.5:
        attributes["beta"] = random.uniform(0, 1)
    if op == "Selu" and random.random() < 0.5:
        attributes = {"alpha": random.uniform(0.5, 2), "gamma": random.uniform(0.5, 2)}
    if op == "Shrink":
        attributes = {"lambd": random.uniform(0, 1), "bias": random.uniform(-1, 1)}
    if op == "Gelu" and random.random() < 0.5:
        attributes["approximate"] = random.choice(("tanh", "none"))
    return graph.attempt(op, [operand(graph)], **attributes)


def partner_of(graph, value, **range_of):
    """One that broadcasts with it: an earlier one, the same one, or a new one."""
    def broadcasts(other):
        pairs = zip(reversed(value.shape), reversed(other.shape))
        return all(a == b or 1 in (a, b) for a, b in pairs) and max(other.rank, value.rank) <= 6
    if not range_of and graph.random.random() < 0.7:
        found = graph.pick([value.dtype], want=broadcasts)
        if found:
            return found
    return graph.new(shapes.partner(graph.random, value.shape), value.dtype, **range_of)


def binary(graph):
    random = graph.random
    op = random.choice(BINARY)
    floats_only = op in ("PRelu", "Mean", "Sum")
    dtype = graph.floats if floats_only or random.random() < 0.75 else random.choice((np.int32, np.int64))
    x = operand(graph, [dtype])
    attributes = {}
    if op in ("Div", "Mod"):
        y = partner_of(graph, x, low=1, high=5)
    elif op == "Pow":
        if np.dtype(dtype).kind == "f":
            x = graph.new(x.shape, dtype, 0.3, 2)
            y = partner_of(graph, x, low=-2, high=2) if random.random() < 0.6 else graph.constant(np.array(random.choice((2, 3, 0.5, -1, 1, 0, 4)), dtype))
        else:
            if np.abs(x.array.astype(np.float64)).max(initial=0) > 1000:  # what overflows differs between processors
                x = graph.new(x.shape, dtype)
            y = partner_of(graph, x, low=0, high=3)
    elif op == "PRelu":
        y = graph.new(tuple(random.choice((e, 1)) for e in x.shape[random.randrange(x.rank + 1):]), dtype)
    else:
        y = partner_of(graph, x)
    if op == "Mod" and np.dtype(dtype).kind == "f":
        attributes["fmod"] = 1
    inputs = [x, y]
    if op in ("Min", "Max", "Mean", "Sum") and random.random() < 0.4:
        inputs += [partner_of(graph, y)] if random.random() < 0.7 else []
        inputs = inputs[:random.randint(1, 3)]
    elif op not in ("Pow", "Div", "Mod", "PRelu") and random.random() < 0.4:
        inputs.reverse()
    return graph.attempt(op, inputs, **attributes)


def comparison(graph):
    op = graph.random.choice(COMPARISONS)
    if graph.opset < 12 and "Or" in op:
        return None
    x = operand(graph, [graph.random.choice((graph.floats, np.dtype(np.int32), np.dtype(np.int64)))])
    return graph.attempt(op, [x, partner_of(graph, x)])


def logic(graph):
    op = graph.random.choice(("And", "Or", "Xor", "Not"))
    x = operand(graph, [np.bool_])
    return graph.attempt(op, [x] if op == "Not" else [x, partner_of(graph, x)])


def bits(graph):
    random = graph.random
    dtype = random.choice((np.int32, np.int64, np.uint8, np.int8))
    if graph.opset >= 18 and random.random() < 0.7:
        op = random.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"))
        x = operand(graph, [dtype])
        return graph.attempt(op, [x] if op == "BitwiseNot" else [x, partner_of(graph, x)])
    if graph.opset < 11:
        return None
    x = operand(graph, [np.uint8])
    return graph.attempt("BitShift", [x, graph.new(shapes.partner(random, x.shape), np.uint8, 0, 7)], direction=random.choice(("LEFT", "RIGHT")))


def where(graph):
    dtype = graph.random.choice((graph.floats, graph.floats, np.dtype(np.int64), np.dtype(np.int32)))
    x = operand(graph, [dtype])
    condition = graph.pick([np.bool_], want=lambda v: np.broadcast_shapes is not None and fits_shape(v.shape, x.shape)) \
        or graph.new(shapes.partner(graph.random, x.shape), np.bool_)
    y = partner_of(graph, x)
    return graph.attempt("Where", [condition, x, y] if graph.random.random() < 0.5 else [condition, y, x])


def fits_shape(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def clip(graph):
    random = graph.random
    dtype = graph.floats if graph.opset < 12 or random.random() < 0.8 else np.dtype(random.choice(INTEGERS))
    x = operand(graph, [dtype])
    low, high = (0, 3) if dtype.kind in "iu" else (random.uniform(-2, 0), random.uniform(0, 2))
    if graph.opset < 11:
        attributes = {k: v for k, v in (("min", low), ("max", high)) if random.random() < 0.8}
        return graph.attempt("Clip", [x], **attributes)
    bounds = [graph.leaf(np.array(b, dtype)) if random.random() < 0.8 else None for b in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    return graph.attempt("Clip", [x, *bounds])


def cast(graph):
    random = graph.random
    from onnx import helper
    source = random.choice((graph.floats, graph.floats, np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_), np.dtype(np.uint8), np.dtype(np.int8)))
    target = random.choice((np.float32, np.float32, np.float16, np.int32, np.int64, np.bool_, np.uint8, np.int8))
    if random.random() < 0.5:
        target = graph.floats
    x = operand(graph, [source])
    if source.kind == "f" and np.dtype(target).kind in "iu" and np.dtype(target).itemsize == 1:
        if x.array.min() < 0 or x.array.max() > 100:
            return None
    if graph.opset >= 15 and random.random() < 0.15:
        return graph.attempt("CastLike", [x, graph.new((2,), target)])
    return graph.attempt("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


def microsoft(graph):
    random = graph.random
    op = random.choice(MICROSOFT)
    x = operand(graph)
    if x.rank == 0 or graph.floats != np.float32:
        return None
    inputs = [x]
    if op == "BiasGelu" or (op == "FastGelu" and random.random() < 0.5):
        inputs.append(graph.new((x.shape[-1],)))
    attributes = {"alpha": random.uniform(0.5, 2)} if op == "QuickGelu" else {}
    return graph.attempt(op, inputs, domain="com.microsoft", **attributes)


PROPOSALS = {unary: 14, with_alpha: 4, binary: 14, comparison: 3, logic: 2, bits: 2, where: 3, clip: 3, cast: 5, microsoft: 1}
