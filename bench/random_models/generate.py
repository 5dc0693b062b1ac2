"""Random models: nodes drawn from all proposals until there are enough of them."""
import random as random_module

import numpy as np

import elementwise
import layers
import moves
import quantised
from graph import Graph

OPSETS = (9, 11, 12, 13, 13, 14, 16, 17, 17, 18, 18, 19, 20, 21, 22, 23)
TRIES = 6  # of a node that is wanted: proposals do not always fit, and ONNX Runtime does not run everything


def proposals_for(random, floats):
    """What nodes this model is drawn from, with their weights: all kinds, or mostly some."""
    kinds = {elementwise: random.choice((0.3, 1, 2)), moves: random.choice((0.3, 1, 2)), layers: random.choice((0.3, 1, 2))}
    if floats == np.float32:
        kinds[quantised] = random.choice((0, 0, 0.5, 3))
    return {f: weight * factor for module, factor in kinds.items() for f, weight in module.PROPOSALS.items()}


def generate(seed, nodes=None):
    """The Graph of this seed."""
    random = random_module.Random(seed)
    floats = np.dtype(random.choice((np.float32,) * 5 + (np.float16,)))
    graph = Graph(random, random.choice(OPSETS), floats)
    nodes = nodes or random.choice((1, 2, 3, 5, 8, 12, 20, 30))
    choices = proposals_for(random, floats)
    for _ in range(TRIES * nodes + 20):
        if len(graph.nodes) >= nodes:
            break
        proposal, = random.choices(list(choices), list(choices.values()))
        proposal(graph)
    return graph
