#!/usr/bin/env bash
# Makes ready-made records (share/records) for the device at hand: tunes built-in networks and keeps the best verified
# record of each task.
#
#   bench/make_records.sh FILE [--target TARGET] [--dtype TYPE] [--seconds N] [--history FILE] [--no-check] [--from-shipped] NETWORK...
#
# FILE (JSON lines) is made, or added to after each network; one that is left unfinished is whole. Each network gets
# N seconds (default 1.5) for each of its tasks. The history is kept where one is named, so that a second run goes on;
# the search does not begin with shipped records, so that the results do not depend on them, unless --from-shipped is
# given: for a device whose architecture already has records of another one, which the new ones will replace there.
# Every record was verified alone; --no-check leaves out the check of the assembled network, which takes much of the time.
# Several runs at once on one device disturb each other's timings.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

file= target=cuda dtype=float32 seconds=1.5 history=
networks=() flags=() shipped=(--no-shipped-records)
while (($# > 0)); do
  case $1 in
    --target | --dtype | --seconds | --history)
      (($# > 1)) || { echo "bench/make_records.sh: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    --no-check) flags+=(--no-check); shift ;;
    --from-shipped) shipped=(); shift ;;
    --help | -h) usage; exit 0 ;;
    -*) echo "bench/make_records.sh: unknown option $1; --help shows those that it takes" >&2; exit 2 ;;
    *)
      if [[ -z $file ]]; then file=$1; else networks+=("$1"); fi
      shift
      ;;
  esac
done
((${#networks[@]} > 0)) || { usage >&2; exit 2; }
program=${DIAPASON:-$top/build/bin/diapason}
[[ -x $program ]] || { echo "bench/make_records.sh: there is no $program; build it, or name one in DIAPASON" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
history=${history:-$scratch/history.db}

count_tasks() {
  "$program" tasks "$1" --target "$target" --dtype "$dtype" --json |
    python3 -c 'import json, sys; print(len(json.load(sys.stdin)["tasks"]))'
}

# Tasks are counted on the processor while the network before is tuned.
for network in "${networks[@]}"; do
  count_tasks "$network" >"$scratch/counting" 2>"$scratch/$network.why" || rm -f "$scratch/counting"
  touch "$scratch/counting" && mv "$scratch/counting" "$scratch/$network.tasks"
done &
counter=$!
trap 'kill "$counter" 2>/dev/null || true; rm -rf "$scratch"' EXIT

for network in "${networks[@]}"; do
  while [[ ! -e $scratch/$network.tasks ]] && kill -0 "$counter" 2>/dev/null; do sleep 0.1; done
  tasks=$(<"$scratch/$network.tasks")
  [[ -n $tasks ]] || { cat "$scratch/$network.why" >&2; exit 1; }
  budget=$(python3 -c 'import math, sys; print(max(5, math.ceil(float(sys.argv[1]) * int(sys.argv[2]))))' "$seconds" "$tasks")
  echo "$network, $dtype: $tasks tasks, $budget s"
  "$program" tune "$network" --target "$target" --dtype "$dtype" --history "$history" --seconds "$budget" \
    "${shipped[@]}" "${flags[@]}" >"$scratch/log" 2>&1 || { tail -n 20 "$scratch/log" >&2; exit 1; }
  tail -n 3 "$scratch/log"
  "$program" records add "$history" --out "$file" --keep 1
done
