#!/usr/bin/env bash
# The ABI of libdiapason_runtime against the one in runtime/diapason_runtime.abi.
#
#   deploy/runtime_abi.sh check LIBRARY    fails, and says what differs, when they are not the same (abidiff)
#   deploy/runtime_abi.sh renew LIBRARY    writes the file anew (abidw): in the commit that changes the ABI on purpose
#
# LIBRARY was compiled with debug information: build/tests/runtime_library/abi/libdiapason_runtime.so.
# What is added needs a new node in runtime/runtime.map; what is removed or changed a new DIAPASON_RUNTIME_ABI.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
file=${DIAPASON_RUNTIME_ABI_FILE:-$top/runtime/diapason_runtime.abi}

if (($# != 2)); then
  sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 2
fi
library=$2
if ! command -v abidiff >/dev/null || ! command -v abidw >/dev/null; then
  echo "deploy/runtime_abi.sh: abidiff and abidw are not here; install Debian's abigail-tools (deploy/setup.sh)" >&2
  exit 1
fi
# Only what the header declares is the ABI, wherever its files lie.
describe() {
  abidw --headers-dir "$top/include/diapason" --drop-private-types --exported-interfaces-only \
    --no-show-locs --no-corpus-path --no-comp-dir-path "$library" | sed "s/ path='[^']*'/ path='runtime.cc'/"
}
case $1 in
  renew)
    describe >"$file"
    echo "wrote $file"
    ;;
  check)
    here=$(mktemp --suffix=.abi)
    trap 'rm -f "$here"' EXIT
    describe >"$here"
    if ! abidiff "$file" "$here"; then
      echo "deploy/runtime_abi.sh: the ABI of libdiapason_runtime is not that of $file;" \
        "if that is meant, run 'deploy/runtime_abi.sh renew $library' and commit the file" >&2
      exit 1
    fi
    ;;
  *)
    echo "deploy/runtime_abi.sh: '$1' is no action; give check or renew" >&2
    exit 2
    ;;
esac
