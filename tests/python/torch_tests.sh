#!/usr/bin/env bash
# Runs pytest on files that need PyTorch, in a virtual environment that it makes, or made before.
#
#   tests/python/torch_tests.sh PYTHON FOLDER REQUIREMENTS FILE...
#
# PyPI's PyTorch for x86-64 is the one for GPUs, some 3 GB to fetch and 6 GB on disk. Exits with 77 where it cannot be fetched or there is no room for it.
set -uo pipefail
python=$1 folder=$2 requirements=$3
shift 3

cannot_run() {
  echo "tests/python/torch_tests.sh: $1; its tests do not run"
  exit 77
}

made_for="$(sha256sum <"$requirements") $("$python" -VV)"
if [[ ! -e $folder/made-for.txt || $(<"$folder/made-for.txt") != "$made_for" ]]; then
  rm -rf "$folder"
  mkdir -p "$(dirname "$folder")"
  free_gib=$(($(df --output=avail -B1G "$(dirname "$folder")" | tail -n 1)))
  ((free_gib >= 12)) || cannot_run "PyTorch needs 12 GiB of free disk for a moment, and there are $free_gib"
  "$python" -m venv "$folder" || exit 1
  # Not compiled: of some ten thousand modules the tests import a fraction, which is compiled then.
  if ! "$folder/bin/pip" install --quiet --disable-pip-version-check --retries 5 --no-cache-dir --no-compile -r "$requirements"; then
    rm -rf "$folder"
    cannot_run "PyTorch could not be fetched from PyPI (see above)"
  fi
  echo "$made_for" >"$folder/made-for.txt"
fi
export PYTHONPYCACHEPREFIX=$folder/pycache  # nothing is written beside the sources
exec "$folder/bin/python" -m pytest -q -p no:cacheprovider "$@"
