"""docs/operators.md from the verdicts of the conformance cases."""
import collections
import re
import subprocess

import onnx

HEAD = """# Operators

Written by `bench/conformance/conformance.py`; do not edit. It runs the conformance cases of ONNX (Debian's libonnx-testdata and the
`onnx` {version} wheel) in the interpreter, each in a process of its own. The compiled code of an operator is made from the same expression that
the interpreter evaluates, and is compared with it in the tests of `tests/build`.

Inputs that decide about shapes (the shape of a Reshape, the axes of a ReduceSum) are constants in a model that is compiled, and in these cases.

{summary}

Tolerances are those of ONNX's runner, but at least two steps of float16 (2^-9) and bfloat16 (2^-6) results (ONNX's references round in other places), and 1e-6
around 0. Of Bernoulli with a seed, whose generator ONNX leaves open, only type and shape count. Cases of opsets before 7 are raised to 7, by ONNX's converter where an operator changed.

**Types that are kept in wider ones.** 8-bit and 4-bit floats are kept in float32, int16 and uint16 in int32, uint32 and uint64 (below 2^63)
in int64, integers of 4 and 2 bits in int8 and uint8. Results are rounded or wrapped as the narrow type is, so values are ONNX's; but inputs and outputs
of a package have the wider type, and memory is not saved.

**float64** is read, folded in double precision where it is constant, and computed in float32, with a warning that says so; inputs and outputs of
a package are float32. `--strict` refuses such a model instead. Integers whose powers, roots or quotients go through float64 and become integers
again stay exact. (The cases below are run before that, in double precision.)

**Quantised models.** Pairs of QuantizeLinear and DequantizeLinear around Conv, MatMul and Gemm become products of 8-bit integers with sums of int32 and the
scale behind them, as QLinearConv and QLinearMatMul are: both ways of writing a model are the same tasks. Results are those of ONNX Runtime, which may differ
by one step of the quantised type from what float32 gives. Views and maxima between a pair stay in integers; Add and the like are computed in float32, as
ONNX Runtime does it. Where the right factor is constant, the zero point of the left one becomes part of the bias, so that both are read in 8 bits.
Products stay in float32 where a scale is not constant, where the left factor has several scales, or where int32 might not hold
the sums. (The cases below are run before that.)

**Control flow.** `If` needs a condition, `Loop` a number of steps or a condition, that is known once shapes are fixed; loops of up to 1,024 steps (20,000
nodes in all) are unrolled. Functions of a model are inlined.

**Results with as many rows as are found.** `NonMaxSuppression`, `NonZero` and `Compress` (of a condition that is not constant) need `--dim RESULT.rows=N`: the
result has room for N rows, the first ones are those found, in ONNX's order, and the others have the index -1. The network gets one more output of that
name, the number of rows that were found (more than N where there was no room for all). A model in which rows behind those could change others (a `TopK`,
a sum or a maximum over them) is refused with the node's name. `NonMaxSuppression` takes up to 1,024 boxes of a class, one after the other; where its limit
is higher, as many as there is room for, which is then what the number of rows stops at.

`NonZero` and `Compress` need no `--dim` where what they find is no output and only filters: all rows are kept with flags that say which are real, through
element-wise operators, moves, `Gather`, `GatherND`, `Concat`, `MatMul` and `RoiAlign` of rows; `TopK`, maxima, sums and `NonMaxSuppression` leave the others
out. So a detector of torchvision (SSD) needs one number, of its `NonMaxSuppression`. Numbers of rows may decide about shapes, `k` of `TopK`, the end of a
`Range` and an `If` for the case that there are none; another operator that depends on them is refused with its name. Rows that `--dim` gives room for may
be filtered and suppressed again in the same way: Faster R-CNN needs two numbers, of its regions and of its results. Rows that a filter took from such a
tensor, and that were treated apart, can be put back to their places by `ScatterND` or `ScatterElements` (regions of several levels).

**Indices** out of range are refused in a model's constants and in inputs that are given in memory of the host. Indices that the network computes, or that
lie in memory of the GPU, choose the first or last element then; in `Scatter*` they replace nothing.

**Not expressions.** What is no sum or choice over elements at places that indices give would be a host or library operator: `Unique`, image decoding, text.
There is none of these; they are refused by name. `TopK` counts, for each element, those before it: quadratic in the axis.

- **Opsets**: versions of ONNX's operator set in which the operator was defined or changed; those from 7 to 28 are read.
- **Types**: element types of the cases that pass.
- **Passed**: of all cases of the operator, from both sources.
"""


def opsets_of(name):
    versions = sorted({s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == name and s.domain == ""})
    return ", ".join(str(v) for v in versions)


def short(reason):
    """The part of an error that does not depend on the case."""
    reason = re.sub(r"^cannot import '[^']*': ", "", reason)
    reason = re.sub(r"^node '[^']*' \([^)]*\): ", "", reason)
    reason = re.sub(r": export the model without them, or add them as CONTRIBUTING.md says", "", reason)
    reason = re.sub(r"it has operators that are not supported, of opset \d+: ", "operator not supported: ", reason)
    reason = re.sub(r"^'[^']*/(?:in|out)put_\d+.pb': ", "", reason)
    reason = re.sub(r"'[^']*'", "'...'", reason)
    return reason.replace("|", "\\|")


def write_page(path, results, programs):
    known = set(subprocess.run([programs / "conformance_case", "--list"], capture_output=True, text=True, check=True).stdout.split())
    by_operator = collections.defaultdict(list)
    for case, verdict in results:
        if case.kind == "node":
            by_operator[case.operator].append((case, verdict))
    lines = [HEAD.format(version=onnx.__version__, summary=summary(results)), "## ONNX's operators\n"]
    lines += ["| operator | opsets | types | passed | why the others do not |", "|---|---|---|---|---|"]
    for name in sorted(by_operator):
        cases = by_operator[name]
        passed = [c for c, (s, _) in cases if s == "passed"]
        types = sorted(set().union(*(c.types for c in passed))) if passed else []
        why = collections.Counter(short(r) if s in ("refused", "failed") else f"**{s}**: {short(r)}" for _, (s, r) in cases if s != "passed")
        reasons = "; ".join(f"{n}: {r}" for r, n in why.most_common())
        lines.append(f"| {name} | {opsets_of(name)} | {', '.join(types)} | {len(passed)} of {len(cases)} | {reasons} |")
    rest = sorted(n for n in known if n not in by_operator)
    lines += ["\n## Operators without cases of their own\n", "ONNX has no cases of them (`com.microsoft` is ONNX Runtime's domain): " + ", ".join(f"`{n}`" for n in rest) + "."]
    lines += ["\n## Whole models\n", "| kind | passed | why the others do not |", "|---|---|---|"]
    for kind in ("simple", "pytorch-operator", "pytorch-converted", "light"):
        of_kind = [v for c, v in results if c.kind == kind]
        if not of_kind:
            continue
        why = collections.Counter(short(r) for s, r in of_kind if s != "passed")
        lines.append(f"| {kind} | {sum(s == 'passed' for s, _ in of_kind)} of {len(of_kind)} | "
                     + "; ".join(f"{n}: {r}" for r, n in why.most_common()) + " |")
    path.write_text("\n".join(lines) + "\n")


def summary(results):
    passed = sum(s == "passed" for _, (s, _) in results)
    static = [s for c, (s, _) in results if c.static]
    bad = sum(s in ("wrong", "crashed", "hung") for _, (s, _) in results)
    share = 100 * static.count("passed") / len(static)
    return (f"{passed} of {len(results)} cases pass; of the {len(static)} whose inputs and outputs are tensors of static shape, "
            f"{static.count('passed')} ({share:.1f}%). {bad} crash, hang or give a wrong result; the others are refused with the reason below.")
