#!/usr/bin/env bash
# From a fresh clone to a tuned ResNet-18: installs what is missing, builds, tunes, builds a package with fallback and one
# with tuned schedules, checks both and prints their latencies in a table, with ONNX Runtime's if python3 has it.
#
#   deploy/quickstart.sh [--seconds N] [--target T] [--model M] [--out FOLDER]
#
# Tunes for the GPU where there is an NVIDIA one, else for the processor; a minute and a half of tuning by default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=90
target=
model=resnet-18
out=build/quickstart

usage() { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
while (($# > 0)); do
  case $1 in
    --seconds | --target | --model | --out)
      if (($# < 2)); then
        echo "deploy/quickstart.sh: $1 needs a value" >&2
        exit 2
      fi
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      echo "deploy/quickstart.sh: unknown argument $1; --help shows those that it takes" >&2
      exit 2
      ;;
  esac
done
if [[ ! $seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "deploy/quickstart.sh: --seconds $seconds: give a whole number of at least 1" >&2
  exit 2
fi
if [[ -z $target ]]; then
  target=cpu
  if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    target=cuda
  fi
fi

step() {
  echo
  echo "\$ diapason $*"
  build/bin/diapason "$@"
}

bash deploy/setup.sh
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build build --target diapason -j "${JOBS:-$(nproc)}"
mkdir -p "$out"
history=$out/history.db

step networks
step tasks "$model" --target "$target"
# Shorter samples than by default: in so short a time, more trials are worth more than exact ones.
step tune "$model" --target "$target" --history "$history" --seconds "$seconds" --min-repeat-ms 20

# Without any records the fallback schedules are built; their warnings are expected.
echo
echo "\$ diapason build $model (fallback schedules)"
build/bin/diapason build "$model" --target "$target" --no-shipped-records --out "$out/default" 2>"$out/default.warnings" ||
  { cat "$out/default.warnings" >&2; exit 1; }
step build "$model" --target "$target" --history "$history" --out "$out/tuned"
echo
echo "\$ diapason run $out/tuned --check --bench (and $out/default)"
python3 deploy/quickstart_report.py build/bin/diapason "$out/default" "$out/tuned" --model "$model" --target "$target" \
  --onnx "$out/resnet-18.onnx"
echo "the history is in $history, the package in $out/tuned"
cat <<NEXT

next:
  build/bin/diapason ui --history $history    # the tuning in a browser
  python3 -m venv build/venv && build/venv/bin/pip install . && build/venv/bin/python -c '
import diapason as dp, numpy as np
package = dp.load("$out/tuned")
print(package(*[np.zeros(port.shape, port.dtype) for port in package.inputs]))'
NEXT
