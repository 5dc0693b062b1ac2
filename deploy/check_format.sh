#!/usr/bin/env bash
# Whether every C and C++ file is as clang-format and .clang-format would have it. --fix: make it so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(--dry-run -Werror)
[[ ${1:-} == --fix ]] && mode=(-i)
# The version that the files are formatted with; another one breaks some lines elsewhere.
format=$(command -v clang-format-14) || {
  echo "deploy/check_format.sh: clang-format-14 is missing; deploy/setup.sh installs it" >&2
  exit 1
}
# A copy without git, such as a release, is checked by its folders.
if git rev-parse --is-inside-work-tree &>/dev/null; then
  list=(git ls-files -z '*.c' '*.cc' '*.cu' '*.h')
else
  list=(find . -path './build*' -prune -o -regex '.*\.\(c\|cc\|cu\|h\)' -print0)
fi
"${list[@]}" | xargs -0 -n 40 -P "$(nproc)" "$format" "${mode[@]}" || {
  echo "deploy/check_format.sh: run deploy/check_format.sh --fix" >&2
  exit 1
}
