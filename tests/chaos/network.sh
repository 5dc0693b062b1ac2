#!/usr/bin/env bash
# A chaos test of networks: tracker, service and workers in a network namespace each, behind one bridge, speaking TLS. Packets
# are lost all the time, and every other second or so somebody is cut off for up to some seconds. Afterwards nothing may be
# lost and nothing doubled.
#
#   tests/chaos/network.sh build/bin/diapason
#   SEED=1 SECONDS_EACH=60 LOSS=5 WORKERS=3 KEEP=      the defaults; LOSS: percent of packets, each way; KEEP=1 keeps the logs
#
# Needs root and ip(8) (Debian: iproute2). Loss is tc's netem where the kernel has it, else a random match of iptables.
# Ends with 77 where the machine allows no namespaces, or neither kind of loss.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../within.sh"

diapason=$(realpath "${1:?give the program, for example build/bin/diapason}")
deploy=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy" && pwd)
seed=${SEED:-1} seconds=${SECONDS_EACH:-60} loss=${LOSS:-5} workers=${WORKERS:-3}
RANDOM=$seed
id=dn$$ hub=dn$$-hub
work=$(mktemp -d)
pids=()

not_here() { echo "not on this machine: $1" >&2; exit 77; }
fail() {
  echo "FAILED: $1" >&2
  tail -n 15 "$work"/*.err >&2 || true
  exit 1
}
finish() {
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  sleep 1
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for space in $(ip netns list 2>/dev/null | cut -d' ' -f1 | grep "^$id-" || true); do ip netns del "$space" || true; done
  [[ ${KEEP:-} ]] && echo "logs are in $work" || rm -rf "$work"
}
trap finish EXIT

((EUID == 0)) || not_here "network namespaces need root"
command -v ip >/dev/null || not_here "there is no ip; on Debian: apt-get install iproute2"
ip netns add "$hub" 2>"$work/why" || not_here "ip netns add fails: $(cat "$work/why")"
ip -n "$hub" link add bridge type bridge 2>"$work/why" || not_here "no bridge can be made: $(cat "$work/why")"
ip -n "$hub" link set bridge up

# A namespace with the address 10.77.0.$2, known to the hub as its port $1.
place() {
  ip netns add "$id-$1"
  ip -n "$id-$1" link add eth0 type veth peer name "$1" netns "$hub"
  ip -n "$id-$1" address add "10.77.0.$2/24" dev eth0
  ip -n "$id-$1" link set lo up
  ip -n "$id-$1" link set eth0 up
  ip -n "$hub" link set "$1" master bridge up
}
# Both ways: what the namespace sends, and what the hub sends to it.
lose_by_netem() {
  ip netns exec "$id-$1" tc qdisc add dev eth0 root netem loss "$loss%" &&
    ip netns exec "$hub" tc qdisc add dev "$1" root netem loss "$loss%"
}
lose_by_iptables() {
  local chance drop
  chance=$(awk "BEGIN { print $loss / 100 }")
  drop="-m statistic --mode random --probability $chance -j DROP"
  # shellcheck disable=SC2086
  ip netns exec "$id-$1" iptables -A INPUT -i eth0 $drop && ip netns exec "$id-$1" iptables -A OUTPUT -o eth0 $drop
}
places=(tracker service)
place tracker 1
place service 2
for ((i = 1; i <= workers; ++i)); do
  place "worker$i" $((10 + i))
  places+=("worker$i")
done
if lose_by_netem tracker 2>"$work/why"; then
  how=netem
elif lose_by_iptables tracker 2>>"$work/why"; then
  how=iptables
else
  not_here "packets cannot be lost, neither by tc's netem nor by iptables: $(tr '\n' ' ' <"$work/why")"
fi
for name in "${places[@]:1}"; do "lose_by_$how" "$name"; done
echo "$((workers + 2)) namespaces, $loss% of the packets lost each way by $how"

"$deploy/make-certs.sh" "$work/certs" --host 10.77.0.1 --host 10.77.0.2 tracker service worker client >/dev/null
tls() { printf '%s\n' --tls-cert "$work/certs/$1.crt" --tls-key "$work/certs/$1.key" --tls-ca "$work/certs/ca.crt"; }
start() {  # NAME PLACE ARGS...
  local name=$1 place=$2
  shift 2
  ip netns exec "$id-$place" "$diapason" "$@" >"$work/$name.out" 2>"$work/$name.err" &
  pids+=($!)
}
# shellcheck disable=SC2046
start tracker tracker tracker --listen 10.77.0.1:9190 --state "$work/state.db" --heartbeat 0.3 --session 2 --lease 3 \
  --queue-expiry 5 $(tls tracker) --tokens "$work/certs/tokens"
# shellcheck disable=SC2046
start service service serve --listen 10.77.0.2:9191 --history "$work/h.db" --tracker 10.77.0.1:9190 $(tls service) \
  --tokens "$work/certs/tokens" --token-file "$work/certs/submitter.token"
for ((i = 1; i <= workers; ++i)); do
  # shellcheck disable=SC2046
  start "worker$i" "worker$i" worker --tracker 10.77.0.1:9190 --devices cpu --builders 1 --name "worker$i" \
    --scratch "$work" $(tls worker) --token-file "$work/certs/worker.token"
done
client() {
  # shellcheck disable=SC2046
  ip netns exec "$id-service" "$diapason" "$@" --service 10.77.0.2:9191 --timeout 60 $(tls client) \
    --token-file "$work/certs/submitter.token"
}
records() { "$diapason" history info "$work/h.db" --json 2>/dev/null | python3 -c 'import json,sys; print(json.load(sys.stdin)["record_count"])' || echo 0; }

client submit gemm --m 32 --n 48 --k 64 --target "cpu -num-cores=1" --trials 100000 --trials-per-round 8 \
  --min-repeat-ms 1 >"$work/submit.out" 2>"$work/submit.err" || fail "the job is not taken"
has() { (($(records) >= $1)); }
within 120 has 4 || fail "nothing is measured"
before=$(records)

cuts=0
until=$((SECONDS + seconds))
while ((SECONDS < until)); do
  name=${places[RANDOM % ${#places[@]}]}
  time=$(awk "BEGIN { print 0.5 + $((RANDOM % 55)) / 10 }")
  ip -n "$hub" link set "$name" down
  sleep "$time"
  ip -n "$hub" link set "$name" up
  cuts=$((cuts + 1))
  echo "$name was cut off for $time s" >>"$work/cuts.err"
  sleep "$(awk "BEGIN { print $((RANDOM % 20)) / 10 }")"
done
after=$(records)

# It goes on, and to the very trial that it is asked for.
within 120 has $((after + 1)) || fail "nothing is measured after the network is whole again"
total=$(client jobs cancel 1 --json 2>>"$work/cancel.err" | python3 -c 'import json,sys; print(json.load(sys.stdin)["trials"])') ||
  fail "the job cannot be cancelled"
total=$((total + 6))
client jobs resume 1 --trials "$total" >>"$work/resume.err" 2>&1 || fail "the job cannot be resumed"
client jobs watch 1 >"$work/watch.out" 2>"$work/watch.err" || fail "the job does not end"
"$diapason" history check "$work/h.db" >/dev/null || fail "the history is damaged"
found=$("$diapason" history export "$work/h.db" | python3 -c '
import collections, json, sys
seen = collections.Counter()
for line in sys.stdin:
    record = json.loads(line)
    if "decision_hash" in record:
        seen[(record["workload_key"], record["decision_hash"])] += 1
        assert record.get("error", {}).get("kind") != "infrastructure", line
print(sum(count - 1 for count in seen.values()), sum(seen.values()))') || fail "a fault of the network is in the history"
[[ $found == "0 $total" ]] || fail "doubled and stored: $found, where 0 $total are due"
lost=$(grep -c ' session_ended ' "$work/tracker.err" || true)
for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null || fail "a process ended by itself"; done
echo "ok: seed $seed, $cuts cuts in $seconds s, $lost sessions of workers lost; $before trials before, $((after - before))" \
  "meanwhile, $total in all, each once"
