#!/usr/bin/env bash
# Sets up, builds into build/ and runs all the tests. The last line is "N passed, N failed, N skipped"; a test is skipped when it
# says that it cannot run here (no GPU, for example).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A step failed before there were results: there is a last line all the same, and it counts as one failure.
give_up() {
  echo "deploy/test.sh: $1 failed; its messages are above" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}

jobs=${JOBS:-$(nproc)}
bash deploy/setup.sh || give_up "the set-up"
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE="${BUILD_TYPE:-Release}" -DDIAPASON_BUILD_TESTS=ON -DDIAPASON_PYTHON=ON || give_up "cmake"
results=$(mktemp) messages=$(mktemp)
trap 'rm -f "$results" "$messages"' EXIT
cmake --build build -j "$jobs" | tee "$messages"
((PIPESTATUS[0] == 0)) || give_up "the build"
# Warnings are errors here, and not by -Werror: the objects of builds without it, of the same compiler cache, are the same.
if grep -qE ':[0-9]+: warning: ' "$messages"; then
  rm -f build/.ninja_log  # so that the next build says it again
  give_up "the build without warnings"
fi

ctest --test-dir build --output-on-failure -j "$jobs" --no-tests=error --output-junit "$results"
status=$?
summary=$(python3 -B deploy/test_summary.py "$results") || status=1
[[ $summary == *" 0 failed, "* ]] && ((status != 0)) && give_up "ctest"
echo "$summary"
exit $((status != 0))
