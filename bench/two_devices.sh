#!/usr/bin/env bash
# Two devices of one host: the trials a second of one worker with one of them and with both, by the way of a fleet
# (tracker, worker, tune on loopback), and whether a device's times change while the other measures too.
#
#   deploy/bundle.sh bundle diapason two_runners    # where the devices are elsewhere: carry bundle/ and bench/ over
#   bench/two_devices.sh [FLAGS OF TUNE]            # under 4 minutes
#   DEVICES="cuda:0 cuda:1" NETWORK=resnet-18 TRIALS=2000 STEADY=20 CANDIDATES=12      the defaults; 0 leaves a part out
#   OUT=FOLDER                                      keeps histories, reports and logs there
#
# TRIALS: so many trials with the settings of `tune`, the same for one device and for both, since the later a trial the
# longer it races. STEADY: seconds, with 300 ms for each trial. Ends with 1 when both together reach less than 1.9 times
# the trials a second of one in either, or the median time differs by more than 3%.
set -euo pipefail
if [[ ${1:-} == --help ]]; then
  sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/build/bin
[[ -x $bin/diapason ]] || bin=$root/bundle/bin
read -r first second <<<"${DEVICES:-cuda:0 cuda:1}"
network=${NETWORK:-resnet-18}
trials=${TRIALS:-2000} steady=${STEADY:-20} candidates=${CANDIDATES:-12}
for program in diapason two_runners; do
  [[ -x $bin/$program ]] || { echo "two_devices.sh: there is no $bin/$program: build the target $program" >&2; exit 2; }
done
kind=${first%%:*}
flags=("$@")
folder=${OUT:-$(mktemp -d)}
mkdir -p "$folder"
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  [[ -n ${OUT:-} ]] || rm -rf "$folder"
}
trap finish EXIT

# Tunes on the devices named, into the history FOLDER/NAME.db; what `tune --json` tells is in NAME.json.
tune() { # NAME DEVICES [FLAGS]
  local name=$1 devices=$2 address tracker worker
  shift 2
  : >"$folder/$name.tracker"
  "$bin/diapason" tracker --listen 127.0.0.1:0 >"$folder/$name.tracker" 2>"$folder/$name.tracker.err" &
  tracker=$!
  pids+=("$tracker")
  for ((i = 0; i < 100; ++i)); do
    address=$(sed -nE 's/.*(127\.0\.0\.1:[0-9]+).*/\1/p' "$folder/$name.tracker" | head -n 1)
    if [[ -n $address ]]; then break; fi
    sleep 0.1
  done
  "$bin/diapason" worker --tracker "$address" --devices "$devices" --name bench >"$folder/$name.worker" 2>&1 &
  worker=$!
  pids+=("$worker")
  if ! "$bin/diapason" tune "$network" --target "$kind" --tracker "$address" \
    --history "$folder/$name.db" --json "${flags[@]}" "$@" >"$folder/$name.json" 2>"$folder/$name.err"; then
    echo "two_devices.sh: the tune '$name' failed: $(tail -n 3 "$folder/$name.err" "$folder/$name.worker")" >&2
    exit 1
  fi
  kill "$worker"
  wait "$worker" || true
  kill "$tracker"
  wait "$tracker" || true
}

tune warm "$first" --seconds 3
if ((trials > 0)); then
  tune one "$first" --trials "$trials"
  tune two "$first,$second" --trials "$trials"
fi
if ((steady > 0)); then
  tune steady_one "$first" --no-race --min-repeat-ms 100 --seconds "$steady"
  tune steady_two "$first,$second" --no-race --min-repeat-ms 100 --seconds "$steady"
fi
if ((candidates > 0)); then
  history=$folder/two.db
  ((trials > 0)) || history=$folder/steady_two.db
  "$bin/two_runners" "$history" "$kind -device=${first##*:}" "${second%%:*} -device=${second##*:}" "$candidates" \
    >"$folder/times.json"
fi

python3 - "$folder" "$first" "$second" <<'PYTHON'
import json, os, sys
folder, first, second = sys.argv[1:]
read = lambda name: json.load(open(f"{folder}/{name}.json"))
print(f"{'':26}{'trials':>8}{'seconds':>9}{'trials/s':>10}{'devices busy':>14}{'builders busy':>15}{'ratio':>8}")
ratio = {}
for name, what in (("", "settings of tune"), ("steady_", "300 ms for each trial")):
    if not os.path.exists(f"{folder}/{name}two.json"):
        continue
    rates = []
    for some, devices in (("one", first), ("two", f"{first},{second}")):
        run = read(name + some)
        workers = run["stages"]["workers"]
        rates.append(run["measured"] / run["elapsed_s"])
        ratio[name] = rates[-1] / rates[0]
        print(f"{devices if some == 'two' else what:<26}{run['measured']:>8}{run['elapsed_s']:>9.1f}{rates[-1]:>10.2f}"
              f"{workers['runner_utilisation']:>13.0%} {workers['builder_utilisation']:>14.0%} {ratio[name]:>7.2f}")
met = all(value >= 1.9 for value in ratio.values())
if os.path.exists(f"{folder}/times.json"):
    times = read("times")
    others = times["measured_beside"]
    print(f"\n{times['candidates']} candidates on {first}, four times each, {others} others meanwhile on {second}")
    for key, what in (("difference", "alone and beside the other"), ("alone_again", "alone and alone again")):
        print(f"{what:<28} median {times[key]['median']:.2%}, largest {times[key]['largest']:.2%} ({times[key]['of']})")
    met = met and times["difference"]["median"] <= 0.03
print("met" if met else "missed", "(1.9 times the trials; times within 3%)")
sys.exit(0 if met else 1)
PYTHON
