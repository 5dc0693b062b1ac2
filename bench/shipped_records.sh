#!/usr/bin/env bash
# What ready-made records are worth on the device at hand: latency of networks built from them without tuning, tuned
# from nothing, tuned beginning with them, and with fallback schedules.
#
#   bench/shipped_records.sh [--target TARGET] [--dtype TYPE] [--seconds N] NETWORK...
#
# Prints a line a network: medians in us of the median latencies of three rounds, in which the four packages alternate,
# and the ratio of the first to the second. N (default 20) is the time of each of the two tuning runs. DIAPASON_RECORDS
# may name a folder without the records of this very device.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

target=cuda dtype=float32 seconds=20
networks=()
while (($# > 0)); do
  case $1 in
    --target | --dtype | --seconds)
      (($# > 1)) || { echo "bench/shipped_records.sh: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    --help | -h) usage; exit 0 ;;
    -*) echo "bench/shipped_records.sh: unknown option $1; --help shows those that it takes" >&2; exit 2 ;;
    *) networks+=("$1"); shift ;;
  esac
done
((${#networks[@]} > 0)) || { usage >&2; exit 2; }
program=${DIAPASON:-$top/build/bin/diapason}
[[ -x $program ]] || { echo "bench/shipped_records.sh: there is no $program; build it, or name one in DIAPASON" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

quietly() { "$@" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }; }
tune() { quietly "$program" tune "$network" "${what[@]}" --history "$folder/$1.db" --seconds "$seconds" --no-check "${@:2}"; }
build() { quietly "$program" build "$network" "${what[@]}" --out "$folder/$1" "${@:2}"; }

what=(--dtype "$dtype" --target "$target")
for network in "${networks[@]}"; do
  rm -rf "${folder:?}"/*
  tune cold --no-shipped-records
  tune warm
  build shipped
  for kind in cold warm; do build "$kind" --history "$folder/$kind.db" --no-shipped-records; done
  build fallback --no-shipped-records
  for round in 1 2 3; do
    for kind in shipped cold warm fallback; do
      "$program" run "$folder/$kind" --bench --duration 1 --json >"$folder/$kind.$round.json"
    done
  done
  python3 - "$folder" "$network $dtype" <<'PYTHON'
import json, statistics, sys

folder, name = sys.argv[1:]
us = {kind: statistics.median(json.load(open(f"{folder}/{kind}.{round}.json"))["latency"]["median_us"] for round in (1, 2, 3))
      for kind in ("shipped", "cold", "warm", "fallback")}
print(name, *(f"{kind} {value:.1f} us" for kind, value in us.items()), f"shipped/cold {us['shipped'] / us['cold']:.3f}", sep=", ")
PYTHON
done
