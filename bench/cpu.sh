#!/usr/bin/env bash
# Networks on the processor against ONNX Runtime; see bench/cpu_baseline.py.
exec python3 "$(dirname "${BASH_SOURCE[0]}")/cpu_baseline.py" "$@"
