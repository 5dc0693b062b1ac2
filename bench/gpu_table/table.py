"""Rows of the table, from what the parts left. Pure functions over the parts' JSON documents (see parts.py)."""
import math
import statistics
from dataclasses import dataclass

from gpu_table import cases


@dataclass
class Row:
    work: str
    tuned: str = ""
    ours: str = ""
    baseline: str = ""
    ratio: str = ""
    tasks: str = ""  # the sum of the tasks' times over the latency, in per cent
    estimate: str = ""  # the same of what `build` promised
    note: str = ""


HEADER = Row("work", "tuned", "Diapason", "PyTorch", "ratio", "tasks' sum", "estimate", "")


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


def microseconds(value):
    return f"{value:.1f} us" if value < 1e4 else f"{value / 1e3:.2f} ms"


def per_cent(value, of):
    return f"{100 * (value / of - 1):+.1f}%" if value else ""


def checks_of(result):
    """All checks of outputs in a part, by what was checked."""
    checks = {}
    for label, row in result.get("rows", {}).items():
        if "check" in row:
            checks[label] = row["check"]
        if "against_torch" in row:
            checks[f"{label}, against PyTorch"] = row["against_torch"]
    return checks


def failed_checks(result):
    return [name for name, check in checks_of(result).items() if not check["ok"]]


def baseline_us(part, label, result):
    """The fastest of the baseline's variants, and its name; None without baselines."""
    baseline = result.get("baseline", {})
    if part not in cases.NETWORKS:
        baseline = baseline.get("kernels", {}).get(cases.GEMM.name if part == "gemm" else label, {})
    if "best_us" not in baseline:
        return None, ""
    variants = [variant for variant, time in baseline.get("variants", {}).items() if time == baseline["best_us"]]
    return baseline["best_us"], variants[0] if variants else ""


SHORT_TYPES = {"bfloat16": "bf16", "float16": "fp16", "tf32": "tf32"}


def title_of(part, label):
    if part in cases.NETWORKS:
        return cases.NETWORKS[part].title + ("" if label == "default" else f", {label}")
    if part == "gemm":
        return cases.GEMM.name + ("" if label == "default" else f", {label}")
    if part.endswith(("-half", "-tf32")):
        kernel = next(kernel for kernel in cases.KERNEL_LISTS[part] if kernel.name == label)
        kind = {"gemm": "GEMM", "layer_norm": "layer norm", "conv2d": "convolution"}.get(kernel.operator, kernel.operator)
        return f"{kind} {label}, {SHORT_TYPES[kernel.dtype]}"
    return {"depthwise": f"depthwise {label}"}.get(part, label)


def measured_row(part, label, row, result):
    ours = statistics.median(row["samples_us"])
    baseline, variant = baseline_us(part, label, result)
    notes = [f"PyTorch {variant}" if variant else "", row.get("schedule", ""), f"{row['trials_per_s']:.0f} trials/s"]
    return Row(title_of(part, label), f"{row['tuned_seconds'] + row.get('refined_seconds', 0):g} s", microseconds(ours), microseconds(baseline) if baseline else "",
               f"{ours / baseline:.3f}" if baseline else "", per_cent(row.get("tasks_us"), ours), per_cent(row.get("estimated_us"), ours),
               ", ".join(note for note in notes if note))


def ratios_of(part, result):
    ratios = {}
    for label, row in result["rows"].items():
        baseline, _ = baseline_us(part, label, result)
        if baseline and "samples_us" in row:
            ratios[label] = statistics.median(row["samples_us"]) / baseline
    return ratios


def rows_of(part, result):
    """The part's rows; a part that failed or was cut shows what it has, and says so."""
    if not result:
        return []
    rows = [measured_row(part, label, row, result) for label, row in result["rows"].items() if "samples_us" in row]
    ratios = ratios_of(part, result)
    if part in cases.MORE_PARTS and part not in cases.NETWORKS and ratios:
        rows.append(Row(f"{part}: geometric mean of {len(ratios)}", ratio=f"{geometric_mean(ratios.values()):.3f}"))
    if "compile_failed" in result:
        rows.append(Row(f"{part}: torch.compile", note=result["compile_failed"]))
    wrong = failed_checks(result)
    if wrong:
        rows.append(Row(f"{part}: outputs", "", "WRONG", note=", ".join(wrong)))
    if "failed" in result:
        rows.append(Row(f"{part}: not finished", note=result["failed"]))
    elif not result.get("finished"):
        rows.append(Row(f"{part}: not finished", note="the run was cut"))
    return rows


def is_right(result):
    return result.get("finished", False) and not failed_checks(result)


def versions_text(result):
    """The machine, the build, and what the baseline said of itself."""
    machine, baseline = result.get("machine", {}), result.get("baseline", {})
    known = [machine.get("device", "cpu"), f"driver {machine['driver']}" if machine.get("driver") else "",
             *(f"{title} {baseline[key]}" for key, title in (("torch", "PyTorch"), ("cuda", "CUDA"), ("cudnn", "cuDNN")) if baseline.get(key)),
             f"build {result['build']}"]
    return ", ".join(word for word in known if word)


def cells_of(row):
    return [row.work, row.tuned, row.ours, row.baseline, row.ratio, row.tasks, row.estimate, row.note]


def text(rows):
    """Aligned columns, one line a row."""
    cells = [cells_of(row) for row in rows]
    widths = [max((len(c[i]) for c in cells), default=0) for i in range(8)]
    return "\n".join("  ".join([c[0].ljust(widths[0]), *(c[i].rjust(widths[i]) for i in range(1, 7)), c[7]]).rstrip() for c in cells)


def markdown(rows):
    lines = ["| " + " | ".join(cells_of(row)) + " |" for row in [HEADER, *rows]]
    return "\n".join([lines[0], "|---|---:|---:|---:|---:|---:|---:|---|", *lines[1:]]) + "\n"
