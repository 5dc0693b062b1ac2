#!/usr/bin/env bash
# Tunes ResNet-18 on the first NVIDIA GPU and compares it with PyTorch in the same run.
#
#   bench/h200.sh [SECONDS] [FOLDER]      default: 600 seconds; results into FOLDER (default: build/bench/cuda)
#
# The program is build/bin/diapason, or that of a bundle (deploy/bundle.sh bundle), which needs no libraries of this
# machine but glibc's, the driver's and NVRTC. HISTORY=FILE goes on from records of an earlier run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-600}
out=${2:-build/bench/cuda}
program=build/bin/diapason
[[ -x $program ]] || program=bundle/bin/diapason
mkdir -p "$out"
history=${HISTORY:-$out/history.db}

"$program" devices
"$program" tune resnet-18 --target cuda --history "$history" --seconds "$seconds" --json >"$out/tune.json"
"$program" build resnet-18 --target cuda --out "$out/default-package" 2>/dev/null
"$program" run "$out/default-package" --check --bench --json >"$out/default.json"
"$program" build resnet-18 --target cuda --history "$history" --out "$out/package"
"$program" run "$out/package" --check --bench --json >"$out/run.json"
python3 bench/peers_torch.py >"$out/torch.json" || echo '{}' >"$out/torch.json"
"$program" run "$out/package" --bench --json >"$out/run-again.json"

python3 - "$out" <<'PYTHON'
import json, pathlib, statistics, sys

out = pathlib.Path(sys.argv[1])
tune, default, run, again, torch = (json.loads((out / f"{n}.json").read_text())
                                    for n in ("tune", "default", "run", "run-again", "torch"))
ours = statistics.median(run["latency_us"]["samples"] + again["latency_us"]["samples"])
total = run.get("estimated_us", 0)
print(f"ResNet-18, batch 1, float32, {torch.get('device', 'cuda')}")
print(f"  trials                      {tune['measured']} ({tune['failed']} failed) in {tune['seconds']:.0f} s, "
      f"{tune['trials_per_s']:.1f}/s")
print(f"  default schedules           {default['latency_us']['median']:10.1f} us")
print(f"  tuned, end to end           {ours:10.1f} us   check {'ok' if run['check']['ok'] else 'FAILED'}")
if total:
    print(f"  sum of the tasks' times     {total:10.1f} us   {100 * (total / ours - 1):+.1f}% of end to end")
if torch:
    print(f"  PyTorch {torch['torch']:19} {torch['best_us']:10.1f} us   NCHW {torch['nchw_us']:.1f}, NHWC {torch['nhwc_us']:.1f}")
    print(f"  ratio                       {ours / torch['best_us']:10.2f}")
PYTHON
