#!/usr/bin/env bash
# Checks every kind of library call on this machine's GPU: each algorithm of cuDNN and cuBLAS that is asked for, against the
# interpreter, with its repacked weights, paddings and epilogues. The last lines say what is missing, if anything is.
#
#   bench/library_check.sh [FOLDER-OF-PROGRAMS] [gtest options]
#
# Libraries are looked for as the programs do it (compiler/runtime/cuda/library_calls.h, LibraryPaths): LD_LIBRARY_PATH and the
# loader's cache, CUDA_HOME, /usr/local/cuda, and nvidia/*/lib of Python packages under VIRTUAL_ENV, CONDA_PREFIX, ~/.local,
# /usr/local and /usr. NVRTC is wanted too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
programs=build/bin
if [[ $# -gt 0 && $1 != -* ]]; then
  programs=$1
  shift
fi
program=$programs/library_cuda_tests
if [[ ! -x $program ]]; then
  echo "bench/library_check.sh: there is no $program; build the target library_cuda_tests, or name the folder that has it" >&2
  exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$program" "$@" 2>&1 | tee "$log" || status=$?
if grep -q 'SKIPPED' "$log"; then
  echo "bench/library_check.sh: a part was skipped, for the reason given above" >&2
  exit 2
fi
exit "$status"
