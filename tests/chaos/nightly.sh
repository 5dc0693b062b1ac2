#!/usr/bin/env bash
# The chaos test at length: SEEDS seeds, SECONDS_EACH seconds of killing each, and a table of how they went.
#
#   tests/chaos/nightly.sh [build/bin/chaos_tests]
#   SEEDS=20 FIRST=1 SECONDS_EACH=120 JOBS=1 OUT=chaos-results    the defaults; JOBS: seeds at once
#
# Leaves a log for each seed in OUT. Ends with 0 when every seed passed. One seed alone, as the table names it:
#   DIAPASON_CHAOS_SEEDS=7 DIAPASON_CHAOS_SECONDS=120 build/bin/chaos_tests --gtest_filter='*/6'
set -uo pipefail
program=$(realpath "${1:-build/bin/chaos_tests}")
seeds=${SEEDS:-20} first=${FIRST:-1} each=${SECONDS_EACH:-120} jobs=${JOBS:-1} out=${OUT:-chaos-results}
[[ -x $program ]] || { echo "nightly.sh: there is no program $program: build the target chaos_tests" >&2; exit 2; }
mkdir -p "$out" || exit 2

run_seed() {
  local seed=$1 began=$SECONDS outcome=failed folder
  folder=$(mktemp -d)
  # Twice the time and five minutes more is more than any seed that passes takes.
  if DIAPASON_CHAOS_SEEDS=$seed DIAPASON_CHAOS_SECONDS=$each TEST_TMPDIR=$folder timeout -k 10 $((2 * each + 300)) \
    "$program" --gtest_filter="*/$((seed - 1))" >"$out/seed-$seed.log" 2>&1; then
    outcome=passed
  fi
  rm -rf "$folder"
  echo "$outcome $((SECONDS - began))" >"$out/seed-$seed.outcome"
}

# "12 x worker held" and its like, added up.
acts() { sed -nE 's/^([0-9]+) x .*'"$2"'$/\1/p' "$1" | awk '{ sum += $1 } END { print sum + 0 }'; }

for ((seed = first; seed < first + seeds; ++seed)); do
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
  run_seed "$seed" &
done
wait

failed=0
printf '%5s %8s %8s %7s %6s %8s %9s %8s\n' seed outcome seconds killed held before meanwhile all
for ((seed = first; seed < first + seeds; ++seed)); do
  log=$out/seed-$seed.log
  read -r outcome seconds <"$out/seed-$seed.outcome"
  read -r before meanwhile all < <(sed -nE 's/^([0-9]+) trials before, ([0-9]+) meanwhile, ([0-9]+) in all$/\1 \2 \3/p' "$log"; echo)
  printf '%5s %8s %8s %7s %6s %8s %9s %8s\n' "$seed" "$outcome" "$seconds" "$(acts "$log" killed)" "$(acts "$log" held)" \
    "${before:--}" "${meanwhile:--}" "${all:--}"
  [[ $outcome == passed ]] || { failed=$((failed + 1)); grep -m 3 -A 6 'Failure$' "$log" | sed 's/^/      /'; }
done
echo "$((seeds - failed)) passed, $failed failed"
((failed == 0))
