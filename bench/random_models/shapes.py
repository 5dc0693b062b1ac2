"""Random shapes. Nothing but Python's own modules, so that tests need no package."""
import math

EXTENTS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33)
ELEMENTS = 3000


def shape(random, rank=None, most=ELEMENTS, least=1):
    """Of at most `most` elements, each extent at least `least`."""
    if rank is None:
        rank = random.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5))
    extents = []
    for _ in range(rank):
        room = most // (math.prod(extents) * least ** (rank - len(extents) - 1))
        extents.append(random.choice([e for e in EXTENTS if least <= e <= room] or [least]))
    random.shuffle(extents)
    return tuple(extents)


def partner(random, shape):
    """A shape that broadcasts with this one; the result may be larger than either."""
    out = [random.choice((e, e, e, 1)) for e in shape]
    for axis, extent in enumerate(shape):
        if extent == 1 and random.random() < 0.3 and math.prod(out) * 4 <= ELEMENTS:
            out[axis] = random.choice((1, 2, 3, 4))
    if random.random() < 0.3:
        out = out[random.randrange(len(out) + 1):]
    elif random.random() < 0.1:
        out = [1] + out
    return tuple(out)


def factors(random, elements, rank):
    """A shape of this many elements and this rank."""
    if rank == 0:
        return ()
    out = [1] * rank
    rest = elements
    divisor = 2
    while rest > 1:
        if divisor * divisor > rest:
            divisor = rest
        if rest % divisor:
            divisor += 1
            continue
        out[random.randrange(rank)] *= divisor
        rest //= divisor
    return tuple(out)


def reshaped(random, shape):
    """Another shape of as many elements; often a neighbour: two axes merged, one split, one of 1 inserted."""
    elements = math.prod(shape)
    kind = random.randrange(4)
    if kind == 0 and len(shape) >= 2:
        axis = random.randrange(len(shape) - 1)
        return shape[:axis] + (shape[axis] * shape[axis + 1],) + shape[axis + 2:]
    if kind == 1 and shape and len(shape) < 6:
        axis = random.randrange(len(shape))
        return shape[:axis] + factors(random, shape[axis], 2) + shape[axis + 1:]
    if kind == 2 and len(shape) < 6:
        axis = random.randrange(len(shape) + 1)
        return shape[:axis] + (1,) + shape[axis:]
    return factors(random, elements, random.randrange(0 if elements == 1 else 1, 6))


def axes(random, rank, least=1):
    """Some axes, sorted or not, some counted from the end."""
    chosen = random.sample(range(rank), random.randint(min(least, rank), rank))
    return [a - rank if random.random() < 0.4 else a for a in chosen]


def axis(random, rank):
    return random.randrange(-rank, rank)


def slices(random, extent):
    """(start, end, step) as a Slice takes it, of at least one element."""
    step = random.choice((1, 1, 1, 2, 3, -1, -2))
    first = random.randrange(extent)
    if step > 0:
        end = random.choice((random.randint(first + 1, extent), extent, extent + 5, 2**31 - 1, 2**63 - 1))
        start = first
    else:
        start = random.choice((first, first, extent + 3)) if first == extent - 1 else first
        end = random.choice((random.randint(-extent - 1, first - 1 - extent) if first > 0 else -extent - 1, -extent - 1, -(2**31), -(2**63)))
    if start < extent and random.random() < 0.3:
        start -= extent
    return start, end, step


def windows(random, extent, most=5):
    """(kernel, stride, dilation, pad before, pad after) of one spatial axis; the window fits."""
    kernel = random.choice([k for k in (1, 1, 2, 3, 3, 4, 5) if k <= most])
    dilation = random.choice((1, 1, 1, 2)) if kernel > 1 else 1
    span = (kernel - 1) * dilation + 1
    before, after = random.choice(((0, 0), (span // 2, span // 2), (0, 1), (1, 0), (1, 1)))
    before, after = min(before, kernel - 1), min(after, kernel - 1)
    if span > extent + before + after:
        return 1, random.choice((1, 2)), 1, 0, 0
    return kernel, random.choice((1, 1, 2, 3)), dilation, before, after
