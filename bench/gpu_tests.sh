#!/usr/bin/env bash
# Runs the whole test suite on a machine with a GPU, from a bundle that `deploy/bundle.sh FOLDER --tests` made elsewhere: needs
# glibc, the driver, NVRTC, a C compiler, bash and Python 3.8, nothing else. `bench/gpu_tests.sh --help` has the options.
# The last line is "N passed, N failed, N skipped"; exits 1 if a case failed.
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/gpu_tests.py" "$@"
