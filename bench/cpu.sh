#!/usr/bin/env bash
# ResNet-18 on the processor against ONNX Runtime: with the default schedules, and after tuning.
#
#   bench/cpu.sh [TRIALS] [HISTORY]       default: 1000 trials into build/bench/cpu.db, which later calls go on from
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
trials=${1:-1000}
out=build/bench
mkdir -p "$out"
history=${2:-$out/cpu.db}
target="cpu -num-cores=2"

build/bin/diapason tune resnet-18 --target "$target" --history "$history" --trials "$trials"
build/bin/diapason build resnet-18 --target "$target" --out "$out/cpu-default" 2>/dev/null
build/bin/diapason build resnet-18 --target "$target" --history "$history" --out "$out/cpu-tuned"
build/bin/diapason run "$out/cpu-tuned" --check
echo
echo "default schedules"
python3 bench/cpu_peer.py --package "$out/cpu-default"
echo
echo "after $trials trials"
python3 bench/cpu_peer.py --package "$out/cpu-tuned"
