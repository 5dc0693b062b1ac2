#!/usr/bin/env bash
# Sets up, builds into build/ and runs all the tests. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A step before the tests failed: there is a last line all the same, and it counts as one failure.
give_up() {
  echo "deploy/test.sh: $1 failed; its messages are above" >&2
  echo "0 passed, 1 failed"
  exit 1
}

jobs=${JOBS:-$(nproc)}
bash deploy/setup.sh || give_up "the set-up"
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE="${BUILD_TYPE:-Release}" -DDIAPASON_BUILD_TESTS=ON || give_up "cmake"
cmake --build build -j "$jobs" || give_up "the build"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
ctest --test-dir build --output-on-failure -j "$jobs" --no-tests=error 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

# ctest's summary: "98% tests passed, 2 tests failed out of 120".
summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" | tail -n 1)
if [[ $summary =~ ([0-9]+)\ tests?\ failed\ out\ of\ ([0-9]+) ]]; then
  failed=${BASH_REMATCH[1]}
  echo "$((BASH_REMATCH[2] - failed)) passed, $failed failed"
  ((failed == 0)) || exit 1
  exit "$status"
fi
give_up "ctest"
