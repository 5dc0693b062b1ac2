#!/usr/bin/env bash
# Builds every built-in network with fallback schedules only (no history), runs it and checks it against the reference implementation.
#
#   bench/zero_trials.sh [TARGET] [NETWORK...]      default: cpu, all networks
#
# Prints a line a network: latency and the largest error; exits 1 if one fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${1:-cpu}
shift || true
program=build/bin/diapason
[[ -x $program ]] || program=bundle/bin/diapason
networks=("$@")
((${#networks[@]})) || networks=(resnet-18 resnet-34 resnet-50 resnet-101 resnet-152 mobilenet squeezenet_v1.1 conv2d depthwise gemm)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
for network in "${networks[@]}"; do
  if "$program" build "$network" --target "$target" --out "$folder/$network" >"$folder/log" 2>&1 &&
    "$program" run "$folder/$network" --check --bench --duration 0.5 --json >"$folder/run.json" 2>"$folder/log"; then
    python3 - "$network" "$folder/run.json" <<'PYTHON'
import json, sys
run = json.load(open(sys.argv[2]))
print(f"{sys.argv[1]:16} {run['latency']['median_us']:12.1f} us   largest error {run['check']['max_rel_error']:.1e}   "
      f"check {'ok' if run['check']['ok'] else 'FAILED'}")
PYTHON
  else
    echo "$network FAILED: $(tail -n 1 "$folder/log")"
    failed=1
  fi
  rm -rf "${folder:?}/$network"
done
exit "$failed"
