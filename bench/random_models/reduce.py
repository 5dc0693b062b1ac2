"""The fewest nodes that still fail.

A cut is a set of consecutive needs: the results that are compared, and the values that become inputs (with what ONNX Runtime computed for
them) instead of being computed. First the earliest node whose results fail with all that precedes it; then, one after the other from the
front, nodes that become inputs as long as the failure stays.
"""
import dataclasses


def reduced(made, said, attempt):
    """(verdict, number of nodes) of the smallest cut that fails as `said` does; `attempt` builds a cut and returns its verdict. Its files are those of
    the last attempt, which is the smallest cut."""
    names = [[o for o in n.output if o] for n in made.nodes]

    def fails(last, given):
        verdict = attempt(made.cut(set(names[last]), given))
        return verdict if verdict.kind == said.kind else None

    last = next((k for k in range(len(names)) if fails(k, frozenset())), None)
    if last is None:  # it takes several outputs at once
        return said, len(names)
    given = frozenset()
    for k in range(last):
        more = given | set(names[k])
        if fails(last, more):
            given = more
    return fails(last, given) or said, sum(1 for k in range(last + 1) if not set(names[k]) <= given)


def as_inputs(values, names):
    """The values with those of `names` as inputs of the model."""
    return [dataclasses.replace(v, kind="input", noisy=[v.array, v.array]) if v.name in names else v for v in values]
