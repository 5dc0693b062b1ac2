#!/usr/bin/env bash
# A tune whose workers a real Slurm starts: one controller and two node daemons on this machine. One job is cancelled
# half-way, one requeued; nothing may be lost. As root, with Debian's slurm-wlm and munge installed, and not part of the
# other tests: it starts munged where there is none.
#
#   tests/slurm/run.sh build/bin/diapason [NETWORK] [TRIALS]     default: resnet-18 120
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../within.sh"

diapason=$(realpath "${1:?give the program, for example build/bin/diapason}")
network=${2:-resnet-18}
trials=${3:-120}
for program in slurmctld slurmd sbatch munged; do
  command -v "$program" >/dev/null || { echo "$program is missing: apt-get install slurm-wlm munge" >&2; exit 1; }
done
((EUID == 0)) || { echo "slurmd needs root" >&2; exit 1; }

work=$(mktemp -d)
pids=()
finish() {
  scancel --quiet --user root 2>/dev/null || true
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  [[ ${KEEP:-} ]] || rm -rf "$work"
}
trap finish EXIT
fail() {
  echo "FAILED: $1" >&2
  tail -n 20 "$work"/*.err "$work"/*.log >&2 || true
  exit 1
}

if ! munge -n >/dev/null 2>&1; then
  mkdir -p /run/munge && chown munge: /run/munge
  [[ -f /etc/munge/munge.key ]] || mungekey
  chown munge: /etc/munge/munge.key
  runuser -u munge -- munged --force
  within 10 munge -n || fail "munged does not answer"
fi

host=$(hostname -s)
cores=$(nproc)
cat >"$work/slurm.conf" <<CONF
ClusterName=chaos
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=10
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool.%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.%n.log
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=16818 CPUs=$cores State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=16819 CPUs=$cores State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$work/slurm.conf
mkdir -p "$work/state" "$work/spool.n1" "$work/spool.n2"
slurmctld -D >"$work/slurmctld.err" 2>&1 & pids+=($!)
for node in n1 n2; do slurmd -D -N "$node" >"$work/$node.err" 2>&1 & pids+=($!); done
nodes_idle() { [[ $(sinfo --noheader --Node --format %T | sort -u) == idle ]]; }
within 30 nodes_idle || fail "the nodes do not come up"
echo "slurm $(sinfo --version | cut -d' ' -f2) with two nodes"

"$diapason" tracker --listen 127.0.0.1:0 --state "$work/state.db" >"$work/tracker.out" 2>"$work/tracker.err" & pids+=($!)
within 10 grep -q listens "$work/tracker.out" || fail "the tracker does not start"
tracker=$(sed 's/.* listens on //' "$work/tracker.out")

cd "$work"
"$diapason" tune "$network" --target "cpu -num-cores=1" --tracker "$tracker" --history h.db --trials "$trials" \
  --min-repeat-ms 5 --json --launch slurm --slurm-args "-N 1 -n 1 --requeue" --workers 2 \
  --worker-args "--devices cpu --builders 1" >tune.out 2>tune.err & tune=$!
pids+=("$tune")
records() { "$diapason" history info h.db --json 2>/dev/null | python3 -c 'import json,sys; print(json.load(sys.stdin)["record_count"])'; }
has() { (($(records) >= $1)); }
running() { squeue --noheader --array --states RUNNING --format %i | head -n 1; }
within 120 has 8 || fail "nothing is measured"
echo "$(records) records; cancelling job $(running)"
scancel "$(running)"
within 240 has $((trials / 2)) || fail "it does not go on after scancel"
echo "$(records) records; requeueing job $(running)"
scontrol requeue "$(running)"
wait "$tune" || fail "the tune failed"

python3 - "$trials" <<'CHECK'
import json, sys
report = json.load(open("tune.out"))
assert report["trials"] == int(sys.argv[1]), report["trials"]
CHECK
"$diapason" history check h.db || fail "the history is damaged"
duplicates=$("$diapason" history export h.db | python3 -c '
import collections, json, sys
seen = collections.Counter()
for line in sys.stdin:
    record = json.loads(line)
    if "decision_hash" in record:
        seen[(record["workload_key"], record["decision_hash"])] += 1
        assert record.get("error", {}).get("kind") != "infrastructure", line
print(sum(count - 1 for count in seen.values()), sum(seen.values()))')
[[ $duplicates == "0 $trials" ]] || fail "doubled or lost records: $duplicates"
grep -q workers_lost tune.err || fail "no worker was lost"
released() { [[ -z $(squeue --noheader) ]]; }
within 30 released || fail "workers are left behind: $(squeue)"
echo "ok: $trials trials, each once; all workers are released"
