#!/usr/bin/env bash
# Diapason against PyTorch, cuDNN and cuBLAS on the first NVIDIA GPU, in one run; `bench/h200.sh --help` has the parts and
# options, docs/benchmarks.md what to carry over. Wants Python 3.10 with PyTorch and torchvision, the driver and NVRTC.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/h200.py" "$@"
