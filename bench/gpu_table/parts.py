"""The parts of the table: each tunes for a fixed time, builds, checks and times our side before and after the baseline's, once.

A part's document has rows by mode or kernel (tuned_seconds, trials_per_s, stages, samples_us, check, and of networks refined_seconds,
tasks_us, estimated_us and against_torch) and baseline; all have part, when, build, machine, finished, and failed when a program failed.
"""
import pathlib
import time
from dataclasses import dataclass, replace

from gpu_table import cases, npy
from gpu_table.programs import Failed, Baseline, Programs
from gpu_table.results import Results

# Of the largest value of the output: the baseline sums in another order, over more than a hundred layers.
TOLERANCE_AGAINST_TORCH = 1e-3
SAMPLE_MS = 20  # at least, of both sides


@dataclass
class Kept:
    """What is kept of tuning beside the results."""
    records: str | None = None  # the file that gets the networks' best records
    histories: str | None = None  # the folder that gets each row's history


@dataclass
class Bench:
    programs: Programs
    baseline: Baseline
    results: Results
    scratch: pathlib.Path  # a folder for packages and models, not kept
    say: callable
    machine: dict
    build: str
    kept: Kept

    def history(self, part, row):
        """Where a row's history will be; there is none yet."""
        folder = pathlib.Path(self.kept.histories or self.scratch)
        folder.mkdir(parents=True, exist_ok=True)
        history = folder / f"{part}-{row}.db"
        if history.exists():
            raise Failed(f"{history} exists, and rows are tuned from nothing; name another folder with --histories")
        return history


def run_part(bench, name):
    """Runs a part whatever happens in it. Returns its document."""
    result = {"part": name, "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "build": bench.build,
              "machine": dict(bench.machine), "finished": False, "rows": {}}
    try:
        if name in cases.NETWORKS:
            network_part(bench, name, result)
        else:
            kernels_part(bench, name, result)
        result["finished"] = True
    except Failed as failure:
        result["failed"] = str(failure)
    bench.results.save(name, result)
    return result


def tune(bench, model, options, history, seconds, flags):
    """A row's document, begun by tuning from nothing."""
    bench.say(f"tunes {pathlib.Path(model).name} {' '.join(map(str, [*options, *flags]))} for {seconds:g} s")
    report = bench.programs.tune(model, options, history, seconds, flags)
    return {"tuned_seconds": seconds, "trials": report["measured"], "trials_per_s": report["trials_per_s"],
            "stages": report.get("stages")}


def network_part(bench, name, result):
    network = cases.NETWORKS[name]
    options = ["--batch", network.batch] if network.batch > 1 else []
    options += ["--dtype", network.dtype] if network.dtype != "float32" else []
    options += [word for key, value in network.options.items() for word in ("--set", f"{key}={value}")]
    model = export_model(bench, network) if network.model.endswith(".onnx") else network.model
    packages = {}
    for mode, flags in network.modes().items():
        history = bench.history(name, len(packages))
        seconds = network.strict_seconds if flags else network.seconds
        row = result["rows"][mode] = tune(bench, model, options, history, seconds, flags)
        if bench.kept.records:
            bench.programs.diapason("records", "add", history, "--out", bench.kept.records, "--keep", 1, json_output=False)
        packages[mode] = bench.scratch / f"{name}-{len(packages)}"
        refine = 0 if flags else network.refine
        bench.programs.build(model, options, history, packages[mode], flags, refine)
        row["refined_seconds"] = refine
        run = time_package(bench, packages[mode], row, "--check")
        row["check"] = run["check"]
        row |= {key: run[key] for key in ("tasks_us", "estimated_us") if key in run}
        if model != network.model:
            row["against_torch"] = compare_with_torch(bench, packages[mode])
        bench.results.save(name, result)
    bench.say("times the baseline")
    result["baseline"] = time_baseline(bench, network, result)
    for mode, package in packages.items():
        time_package(bench, package, result["rows"][mode])


def time_package(bench, package, row, *flags):
    run = bench.programs.run(package, "--bench", "--duration", 0.1, "--min-repeat-ms", SAMPLE_MS, *flags)
    row.setdefault("samples_us", []).extend(run["throughput"]["samples_us"])
    return run


def time_baseline(bench, network, result):
    """Eager in both memory formats, and compiled where the table has that; the fastest counts."""
    words = [network.torchvision, "--batch", network.batch, *(["--dtype", network.dtype] if network.dtype != "float32" else [])]
    baseline = bench.baseline.ask("network", *words)
    if not baseline or not network.compiled:
        return baseline
    bench.say(f"compiles the baseline, {cases.COMPILE_LIMIT} s at most")
    try:
        compiled = bench.baseline.ask("compiled", *words, timeout=cases.COMPILE_LIMIT)
    except Failed as failure:
        result["compile_failed"] = str(failure)
        return baseline
    variants = baseline["variants"] | compiled["variants"]
    return baseline | {"variants": variants, "best_us": min(variants.values()), "compile_seconds": compiled["seconds"]}


def export_model(bench, network):
    """torchvision's network with the baseline's weights as ONNX, an image, and what PyTorch makes of it."""
    model = bench.scratch / network.model
    bench.say(f"writes {network.model} from torchvision")
    if not bench.baseline.ask("export", network.torchvision, model):
        raise Failed(f"{network.title} is torchvision's network; it needs the baselines")
    return str(model)


def compare_with_torch(bench, package):
    bench.programs.run(package, "--input", f"image={bench.scratch / 'image.npy'}", "--output-dir", bench.scratch / "outputs")
    shape, ours = npy.read(bench.scratch / "outputs" / "output.npy")
    expected_shape, expected = npy.read(bench.scratch / "expected.npy")
    if shape != expected_shape:
        raise Failed(f"the output has shape {shape}, PyTorch's {expected_shape}")
    error = max(abs(a - b) for a, b in zip(ours, expected)) / max(abs(b) for b in expected)
    return {"ok": error <= TOLERANCE_AGAINST_TORCH, "max_rel_error": error}


def kernels_of(part):
    """Label, kernel and flags of each row."""
    if part == "gemm":
        return [(mode, cases.GEMM, flags) for mode, flags in cases.GEMM_MODES.items()]
    return [(kernel.name, kernel, []) for kernel in cases.KERNEL_LISTS[part]]


def kernels_part(bench, name, result):
    """Kernels by themselves, which both sides repeat with the same operands: so they are tuned for that."""
    bench = replace(bench, programs=bench.programs.warm())
    packages = {}
    for label, kernel, flags in kernels_of(name):
        options = [word for key, value in kernel.options.items() for word in ("--set", f"{key}={value}")]
        options += ["--dtype", kernel.dtype] if kernel.dtype != "float32" else []
        options += ["--batch", kernel.batch] if kernel.batch > 1 else []
        history = bench.history(name, len(packages))
        row = result["rows"][label] = tune(bench, kernel.operator, options, history, cases.KERNEL_SECONDS[name],
                                             [*flags, *(cases.LEFT_OUT.get(label, []) if name == "gemm" else [])])
        packages[label] = bench.scratch / f"{name}-{len(packages)}"
        bench.programs.build(kernel.operator, options, history, packages[label], flags)
        row["check"] = bench.programs.run(packages[label], "--check")["check"]
        times = bench.programs.task_times(packages[label])
        row |= {"samples_us": list(times["warm_us"]), "schedule": times["schedule"]}
        bench.results.save(name, result)
    bench.say("times the baseline")
    result["baseline"] = bench.baseline.ask("kernels", name)
    for label, package in packages.items():
        result["rows"][label]["samples_us"] += bench.programs.task_times(package)["warm_us"]
