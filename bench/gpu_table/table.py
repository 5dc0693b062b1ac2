"""Rows of the table, from what the parts left. Pure functions over the parts' JSON documents (see parts.py)."""
import math
import statistics
from dataclasses import dataclass

from gpu_table import cases


@dataclass
class Row:
    work: str
    ours: str
    peer: str = ""
    value: str = ""
    bar: str = ""
    met: bool | None = None  # None: there is nothing to compare with
    note: str = ""


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


def microseconds(value):
    return f"{value:.1f} us" if value < 1e4 else f"{value / 1e3:.2f} ms"


def checks_of(result):
    """All checks of outputs in a part, by what was checked."""
    checks = {label: state["check"] for label, state in result.get("states", {}).items() if "check" in state}
    checks.update({name: kernel["check"] for name, kernel in result.get("kernels", {}).items() if "check" in kernel})
    if "against_torch" in result:
        checks["against PyTorch"] = result["against_torch"]
    return checks


def failed_checks(result):
    return [name for name, check in checks_of(result).items() if not check["ok"]]


def ratio_row(work, ours, peer, bar, note=""):
    """Latencies in microseconds; peer: None without peers."""
    if peer is None:
        return Row(work, microseconds(ours), bar=f"<= {bar:.2f}", note=note)
    return Row(work, microseconds(ours), microseconds(peer), f"{ours / peer:.3f}", f"<= {bar:.2f}", ours / peer <= bar, note)


def network_rows(network, result):
    rows, peer = [], result.get("peer", {}).get("best_us")
    bars = (("early", network.early_bar, f"{network.title}, after {cases.EARLY_SECONDS / 60:g} min"),
            ("end", network.bar, f"{network.title}, after {result.get('tuned_seconds', 0) / 60:.1f} min"))
    for label, bar, work in bars:
        state = result.get("states", {}).get(label)
        if state is not None and bar > 0:
            rows.append(ratio_row(work, statistics.median(state["samples_us"]), peer, bar))
    end = result.get("states", {}).get("end", {})
    if end.get("estimated_us"):
        total, whole = end["estimated_us"], statistics.median(end["samples_us"])
        off = total / whole - 1
        rows.append(Row(f"{network.title}: sum of its tasks", microseconds(total), "", f"{100 * off:+.1f}%",
                        f"within {100 * cases.ESTIMATE_OFF_BY:.0f}%", abs(off) <= cases.ESTIMATE_OFF_BY))
    return rows + tuning_rows(network.title, result)


def tuning_rows(title, result):
    reports = result.get("tuning", [])
    if not reports:
        return []
    seconds = sum(r["seconds"] for r in reports)
    rate = sum(r["measured"] for r in reports) / seconds
    workers = [r["stages"]["workers"] for r in reports if r["stages"].get("workers")]
    busy = statistics.fmean(w["runner_utilisation"] for w in workers) if workers else None
    note = "" if busy is None else f"device busy {100 * busy:.0f}% of the time, builders {100 * workers[-1]['builder_utilisation']:.0f}%"
    return [Row(f"{title}: tuning, racing", f"{rate:.1f}/s", "0.375/s (Ansor)", f"{rate:.1f}",
                f">= {cases.TRIALS_PER_S_RACING}", rate >= cases.TRIALS_PER_S_RACING, note)]


def kernel_ratios(result, of_peer="best_us"):
    """Our median over the peer's, by name, for kernels that both measured."""
    ratios = {}
    for name, kernel in result.get("kernels", {}).items():
        peer = result.get("peer", {}).get("kernels", {}).get(name)
        if peer is not None and "warm_us" in kernel:
            ratios[name] = statistics.median(kernel["warm_us"]) / peer[of_peer]
    return ratios


def mean_row(work, ratios, bar):
    mean = geometric_mean(ratios.values())
    return Row(f"{work}, geometric mean of {len(ratios)}", "", "", f"{mean:.3f}", f"<= {bar:.2f}", mean <= bar)


def worst_row(work, ratios, bar, sign="<="):
    name = max(ratios, key=ratios.get)
    met = ratios[name] <= bar if sign == "<=" else ratios[name] < bar
    return Row(f"{work}, the worst", "", "", f"{ratios[name]:.3f}", f"{sign} {bar:.2f}", met, name)


def conv_rows(result):
    ratios = kernel_ratios(result)
    if not ratios:
        return []
    return [mean_row("convolutions of ResNet-18", ratios, cases.GEOMETRIC_MEAN_OF_CONVS),
            worst_row("convolutions of ResNet-18", ratios, cases.WORST_CONV)]


def depthwise_rows(result):
    ratios = kernel_ratios(result)
    if not ratios:
        return []
    return [mean_row("depthwise", ratios, cases.GEOMETRIC_MEAN_OF_DEPTHWISE),
            worst_row("depthwise, fused, over cuDNN's convolution alone", kernel_ratios(result, "bare_us"), 1.0, "<")]


def gemm_rows(result):
    rows = []
    peer = result.get("peer", {}).get("kernels", {}).get(cases.GEMM.name, {}).get("best_us")
    for label, bar in (("without 3xTF32", cases.GEMM_WITHOUT_3XTF32), ("with 3xTF32", cases.GEMM_WITH_3XTF32)):
        kernel = result.get("kernels", {}).get(label)
        if kernel is not None and "warm_us" in kernel:
            rows.append(ratio_row(f"{cases.GEMM.name} {label}", statistics.median(kernel["warm_us"]), peer, bar))
        elif label in result.get("missing", {}):
            rows.append(Row(f"{cases.GEMM.name} {label}", "not measured", bar=f"<= {bar:.2f}", note=result["missing"][label]))
    return rows


def speed_rows(result):
    if "tune" not in result:
        return []
    rate = result["tune"]["trials_per_s"]
    return [Row("tuning, each trial 300 ms, no race", f"{rate:.2f}/s", "0.375/s (Ansor)", f"{rate:.2f}",
                f">= {cases.TRIALS_PER_S_WHOLE}", rate >= cases.TRIALS_PER_S_WHOLE)]


def max_autotune_rows(result):
    state, peer = result.get("states", {}).get("end"), result.get("peer", {})
    if state is None:
        return []
    compiled = peer.get("compiled_us")
    note = f"max-autotune {microseconds(compiled)}" if compiled else result.get("compile_failed", "max-autotune not measured")
    network = cases.NETWORKS["resnet-18"]
    return [ratio_row(f"{network.title}, with torch.compile among the peers", statistics.median(state["samples_us"]),
                      peer.get("best_us"), network.bar, note)]


def rows_of(part, result):
    """The part's rows; a part that failed or was cut shows what it has, and says so."""
    if not result:
        return []
    if part in cases.NETWORKS:
        rows = network_rows(cases.NETWORKS[part], result)
    else:
        rows = {"convs": conv_rows, "depthwise": depthwise_rows, "gemm": gemm_rows, "speed": speed_rows,
                "max-autotune": max_autotune_rows}[part](result)
    wrong = failed_checks(result)
    if wrong:
        rows.append(Row(f"{part}: outputs", "WRONG", "", "", "all right", False, ", ".join(wrong)))
    elif checks_of(result):
        rows.append(Row(f"{part}: outputs", "right", "", "", "all right", True, f"{len(checks_of(result))} checked"))
    if "failed" in result:
        rows.append(Row(f"{part}: not finished", "", note=result["failed"]))
    elif not result.get("finished"):
        rows.append(Row(f"{part}: not finished", "", note="the run was cut"))
    return rows


def kernel_lines(result):
    """A line a kernel, for the parts whose row is a mean."""
    lines = []
    for name, kernel in result.get("kernels", {}).items():
        if "warm_us" not in kernel:
            continue
        ours = statistics.median(kernel["warm_us"])
        peer = result.get("peer", {}).get("kernels", {}).get(name, {})
        compared = ""
        if peer:
            compared = f"  peer {peer['best_us']:8.2f} us (alone {peer['bare_us']:.2f})  ratio {ours / peer['best_us']:.3f}"
        lines.append(f"    {name:34} {ours:8.2f} us{compared}  {kernel.get('schedule', '')[:40]}")
    return lines


def versions_text(result):
    """The machine, and what the peer said of itself."""
    machine, peer = result.get("machine", {}), result.get("peer", {})
    known = [machine.get("device", "cpu"), f"driver {machine['driver']}" if machine.get("driver") else "",
             *(f"{title} {peer[key]}" for key, title in (("torch", "PyTorch"), ("cuda", "CUDA"), ("cudnn", "cuDNN")) if peer.get(key))]
    return ", ".join(word for word in known if word)


def met_text(row):
    return {True: "met", False: "MISSED", None: ""}[row.met]


def text(rows):
    """Aligned columns, one line a row."""
    cells = [[r.work, r.ours, r.peer, r.value, r.bar, met_text(r), r.note] for r in rows]
    widths = [max((len(c[i]) for c in cells), default=0) for i in range(6)]
    return "\n".join("  ".join([*(c[i].ljust(widths[i]) if i in (0, 4, 5) else c[i].rjust(widths[i]) for i in range(6)),
                                c[6]]).rstrip() for c in cells)


def markdown(rows):
    lines = ["| work | Diapason | peer | ratio | bar | | |", "|---|---:|---:|---:|---:|---|---|"]
    lines += [f"| {r.work} | {r.ours} | {r.peer} | {r.value} | {r.bar} | {met_text(r)} | {r.note} |" for r in rows]
    return "\n".join(lines) + "\n"
