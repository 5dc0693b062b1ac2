#!/usr/bin/env bash
# The guard of the search space, at length: for random candidates of every sketch of every task of every built-in network
# the numbers that the search works with must be those counted on the lowered loop nest, and the results of running them
# those of the reference implementation.
#
#   bench/guard.sh [TARGET] [CANDIDATES]      TARGET: cpu, opencl, cuda or all (default); CANDIDATES: of each sketch (1000)
#
# A fifth of CANDIDATES is also executed, on networks with fewer channels and pixels; on cuda at full size. Settings:
#   PART=numbers|execution   only this part             SECONDS_LIMIT=600  of execution, a process (no limit)
#   JOBS=16                  processes (all cores)      SEED=1             other candidates for another seed
#   FULL_SIZE=0|1            execute at full size       TASK=depthwise SKETCH=winograd   only names with this in them
#
# Prints a line a part and target; exits 1 and shows what failed if a candidate is wrong. Works from build/ or from a folder
# that deploy/bundle.sh made with sketch_tests in it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${1:-all}
candidates=${2:-1000}
case $target in
  all) targets=(cpu opencl cuda) ;;
  cpu | opencl | cuda) targets=("$target") ;;
  *)
    echo "bench/guard.sh: unknown target '$target': give cpu, opencl, cuda or all" >&2
    exit 2
    ;;
esac
if [[ ! $candidates =~ ^[1-9][0-9]*$ ]]; then
  echo "bench/guard.sh: CANDIDATES is '$candidates': give a whole number from 1 on" >&2
  exit 2
fi
program=${PROGRAM:-build/bin/sketch_tests}
[[ -x $program ]] || program=bundle/bin/sketch_tests
if [[ ! -x $program ]]; then
  echo "bench/guard.sh: there is no build/bin/sketch_tests: build it with \`cmake --build build --target sketch_tests\`" >&2
  exit 2
fi
jobs=${JOBS:-$(nproc)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

# guard PART SUITE TARGET CANDIDATES: one process a shard, and the sum of what they compared.
guard() {
  local part=$1 suite=$2 kind=$3 count=$4 pids=() shard failed=0 started=$SECONDS filter="*$2.*/$3"
  # The cases on certain kinds of sketches fail where a name leaves nothing of these.
  if [[ -n ${TASK:-}${SKETCH:-} ]]; then filter="*$2.*AllKindsOfTasks*/$3:*$2.*BuiltInTasks*/$3"; fi
  for ((shard = 0; shard < jobs; ++shard)); do
    DIAPASON_CANDIDATES=$count DIAPASON_SHARD=$shard/$jobs DIAPASON_SEED=${SEED:-1} DIAPASON_TASK=${TASK:-} \
      DIAPASON_SKETCH=${SKETCH:-} DIAPASON_FULL_SIZE=${FULL_SIZE:-$([[ $kind == cuda ]] && echo 1 || echo 0)} \
      DIAPASON_SECONDS=$([[ $part == execution ]] && echo "${SECONDS_LIMIT:-0}" || echo 0) \
      DIAPASON_TRACE="$folder/trace.$shard" \
      "$program" --gtest_filter="$filter" >"$folder/log.$shard" 2>&1 &
    pids+=($!)
  done
  for ((shard = 0; shard < jobs; ++shard)); do
    wait "${pids[shard]}"
    local code=$?
    ((code == 0)) && continue
    failed=1
    if ((code > 1)); then
      echo "$part $kind: shard $shard/$jobs died (exit status $code) in: $(cat "$folder/trace.$shard" 2>/dev/null)"
    fi
    grep -v '^\[' "$folder/log.$shard" | head -n "${LINES_SHOWN:-150}"
  done
  if ((failed)); then status=1; fi
  # Single cases are skipped where a target has nothing of their kind.
  if ((!failed)) && ! grep -q '^guard: ' "$folder"/log.*; then
    echo "$part $kind: skipped, there is no such device here"
    return
  fi
  awk -v part="$part" -v kind="$kind" -v failed="$failed" -v seconds=$((SECONDS - started)) '
    /^guard: / { gsub(",", ""); for (i = 2; i <= NF; ++i) { if ($i ~ /^task/ && $(i - 1) + 0 > 0) tasks += $(i - 1)
                 if ($i == "sketches") sketches += $(i - 1); if ($i == "candidates") candidates += $(i - 1) } }
    END { printf "%s %s: %d tasks, %d sketches, %d candidates in %d s: %s\n", part, kind, tasks, sketches, candidates, seconds,
          failed ? "FAILED" : sketches ? "ok" : "no sketch has these names"; exit failed || !sketches }' "$folder"/log.* ||
    status=1
}

for kind in "${targets[@]}"; do
  [[ ${PART:-numbers} == numbers ]] && guard numbers NumbersTest "$kind" "$candidates"
  [[ ${PART:-execution} == execution ]] && guard execution ExecuteTest "$kind" $(((candidates + 4) / 5))
done
exit "$status"
