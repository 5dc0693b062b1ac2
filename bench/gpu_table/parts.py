"""The parts of the table: each tunes, builds, checks and times our side before and after the peer's, and keeps a JSON document.

Of a network: tuning (tune's reports), tuned_seconds, states by label ("early", "end": samples_us, estimated_us, check) and
peer. Of kernels: kernels by name (warm_us, cold_us, check, schedule) and peer. All: finished, when, machine; failed when a
program failed. Documents are kept after each step, so that a run that is cut leaves what it had.
"""
import pathlib
import time
from dataclasses import dataclass

from gpu_table import cases, npy
from gpu_table.programs import Failed, Programs
from gpu_table.results import Results, copy_history

# Of the largest value of the output: the peer sums in another order, over some fifty layers.
TOLERANCE_AGAINST_TORCH = 1e-3


@dataclass
class Bench:
    programs: Programs
    results: Results
    packages: pathlib.Path  # a folder for packages and models, not kept
    seconds: dict
    say: callable
    machine: dict


def run_part(bench, name):
    """Runs a part whatever happens in it. Returns its document."""
    result = {"part": name, "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "machine": dict(bench.machine), "finished": False}
    try:
        if name in cases.NETWORKS:
            network_part(bench, name, result)
        else:
            {"convs": convs_part, "depthwise": depthwise_part, "gemm": gemm_part, "speed": speed_part,
             "max-autotune": max_autotune_part}[name](bench, name, result)
        result["finished"] = True
    except Failed as failure:
        result["failed"] = str(failure)
    bench.results.save(name, result)
    return result


def network_part(bench, name, result):
    network = cases.NETWORKS[name]
    options = ["--batch", network.batch] if network.batch > 1 else []
    model = network.model
    if model.endswith(".onnx"):
        model = export_model(bench, network)
    histories = {}
    if network.early_bar > 0:
        histories["early"] = tune_early(bench, name, model, options, result)
    tune_more(bench, name, model, options, bench.seconds[name], result)
    histories["end"] = bench.results.history(name)
    packages = {}
    for label, history in histories.items():
        if history is None:
            continue
        packages[label] = bench.packages / f"{name}-{label}"
        bench.programs.build(model, options, history, packages[label])
    time_network(bench, name, packages, ["network", network.torchvision, "--batch", network.batch], result)
    if model != network.model:
        compare_with_torch(bench, packages["end"], result)


def export_model(bench, network):
    """torchvision's network with the peer's weights as ONNX, an image, and what PyTorch makes of it."""
    model = bench.packages / network.model
    bench.say(f"writes {network.model} from torchvision")
    if not bench.programs.peers("export", network.torchvision, model):
        raise Failed(f"{network.title} is torchvision's network; it needs the peers")
    return str(model)


def tune_early(bench, name, model, options, result):
    """The history of the first minutes: that of this run, or of the run that was first. None when it was not kept."""
    early = bench.results.history(f"{name}-early")
    if early.exists():
        return early
    left = cases.EARLY_SECONDS - bench.results.tuned_seconds(name)
    if left <= 0 or bench.seconds[name] < left:
        result["early"] = f"there is no history of the first {cases.EARLY_SECONDS} s"
        return None
    tune_more(bench, name, model, options, left, result)
    bench.seconds = {**bench.seconds, name: bench.seconds[name] - left}
    copy_history(bench.results.history(name), early)
    return early


def tune_more(bench, name, model, options, seconds, result):
    if seconds > 0:
        bench.say(f"tunes for {seconds:g} s")
        bench.results.note_tuning(name, seconds)
        report = bench.programs.tune(model, options, bench.results.history(name), seconds)
        result.setdefault("tuning", []).append(report)
    result["tuned_seconds"] = bench.results.tuned_seconds(name)
    bench.results.save(name, result)


def time_network(bench, name, packages, peer, result):
    """Ours, the peer, ours again."""
    states = result["states"] = {}
    for label, package in packages.items():
        run = bench.programs.run(package, "--check", "--bench", "--min-repeat-ms", 50)
        states[label] = {"samples_us": run["latency_us"]["samples"], "estimated_us": run.get("estimated_us"), "check": run["check"]}
    bench.results.save(name, result)
    bench.say("times the peer")
    result["peer"] = bench.programs.peers(*peer)
    for label, package in packages.items():
        states[label]["samples_us"] += bench.programs.run(package, "--bench", "--min-repeat-ms", 50)["latency_us"]["samples"]
    bench.results.save(name, result)


def compare_with_torch(bench, package, result):
    bench.programs.run(package, "--input", f"image={bench.packages / 'image.npy'}", "--output-dir", bench.packages / "outputs")
    shape, ours = npy.read(bench.packages / "outputs" / "output.npy")
    expected_shape, expected = npy.read(bench.packages / "expected.npy")
    if shape != expected_shape:
        raise Failed(f"the output has shape {shape}, PyTorch's {expected_shape}")
    error = max(abs(a - b) for a, b in zip(ours, expected)) / max(abs(b) for b in expected)
    result["against_torch"] = {"ok": error <= TOLERANCE_AGAINST_TORCH, "max_rel_error": error}


def convs_part(bench, name, result):
    """Goes on from what tuning ResNet-18 measured: the tasks are the same but for the 1x1 layer, which has no relu there."""
    resnet = bench.results.history("resnet-18")
    if resnet.exists():
        exported = bench.packages / "resnet-18.jsonl"
        bench.programs.diapason("history", "export", resnet, "--out", exported, json_output=False)
        bench.programs.diapason("history", "import", bench.results.history(name), exported, json_output=False)
    kernels_part(bench, name, [(kernel.name, kernel, name, []) for kernel in cases.CONVS], result)


def depthwise_part(bench, name, result):
    kernels_part(bench, name, [(kernel.name, kernel, name, []) for kernel in cases.DEPTHWISE], result)


def gemm_part(bench, name, result):
    entries = [("with 3xTF32", cases.GEMM, name, [])]
    if bench.programs.tune_knows("--strict-fp32"):
        entries.append(("without 3xTF32", cases.GEMM, f"{name}-strict", ["--strict-fp32"]))
    else:
        result["missing"] = {"without 3xTF32": "this diapason has no --strict-fp32"}
    kernels_part(bench, name, entries, result)


def kernels_part(bench, name, entries, result):
    """entries: label, kernel, name of the history, flags of the target."""
    kernels = result["kernels"] = {}
    packages = {}
    for number, (label, kernel, history, flags) in enumerate(entries):
        options = [word for key, value in kernel.options.items() for word in ("--set", f"{key}={value}")]
        path = bench.results.history(history)
        kernels[label] = {}
        if bench.seconds[name] > 0:
            bench.say(f"tunes {label} for {bench.seconds[name]:g} s")
            bench.results.note_tuning(history, bench.seconds[name])
            report = bench.programs.tune(kernel.operator, options, path, bench.seconds[name], *flags)
            kernels[label]["tune"] = report
        packages[label] = bench.packages / f"{name}-{number}"
        bench.programs.build(kernel.operator, options, path, packages[label], *flags)
        kernels[label]["check"] = bench.programs.run(packages[label], "--check")["check"]
        bench.results.save(name, result)
    for label, package in packages.items():
        times = bench.programs.task_times(package)
        kernels[label] |= {"warm_us": times["warm_us"], "cold_us": times["cold_us"], "schedule": times["schedule"]}
    bench.results.save(name, result)
    bench.say("times the peer")
    result["peer"] = bench.programs.peers("kernels", name)
    for label, package in packages.items():
        times = bench.programs.task_times(package)
        kernels[label]["warm_us"] += times["warm_us"]
        kernels[label]["cold_us"] += times["cold_us"]


def speed_part(bench, name, result):
    """A fresh history, trials as Ansor measures them: one sample of 300 ms each, none of them stopped early."""
    bench.say(f"tunes ResNet-18 without racing for {bench.seconds[name]:g} s")
    fresh = bench.packages / "speed.db"
    result["tune"] = bench.programs.tune("resnet-18", [], fresh, bench.seconds[name], "--no-race", "--min-repeat-ms", 300,
                                         "--repeat", 1)


def max_autotune_part(bench, name, result):
    """ResNet-18 as it was tuned, against torch.compile as well."""
    history = bench.results.history("resnet-18")
    if not history.exists():
        raise Failed("there is no history of resnet-18; run the part resnet-18 first, or name its folder with --history")
    package = bench.packages / name
    bench.programs.build("resnet-18", [], history, package)
    time_network(bench, name, {"end": package}, ["network", "resnet18"], result)
    bench.say(f"compiles the peer, {cases.COMPILE_SECONDS} s at most")
    try:
        compiled = bench.programs.peers("compiled", "resnet18", timeout=cases.COMPILE_SECONDS)
    except Failed as failure:
        result["compile_failed"] = str(failure)
        return
    if compiled:
        result["compiled"] = compiled
        result["peer"]["compiled_us"] = compiled["best_us"]
        result["peer"]["best_us"] = min(result["peer"]["best_us"], compiled["best_us"])
    result["states"]["end"]["samples_us"] += bench.programs.run(package, "--bench", "--min-repeat-ms", 50)["latency_us"]["samples"]
