#!/usr/bin/env bash
# Fuzzes for long, with libFuzzer and the address sanitizer (Debian's package clang): every target, or those named, for so many
# seconds each. What they reach is kept in build/fuzz/corpus/, an input that crashes or hangs in build/fuzz/found/; to keep it
# from coming back, put it into tests/fuzz/corpus/TARGET (as text, or as hexadecimal digits in a file NAME.hex).
#
#   tests/fuzz/run.sh SECONDS [requests|tracker|schedules|records|imports|onnx]...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=${1:?give the seconds for each target}
shift
targets=("$@")
((${#targets[@]})) || targets=(requests tracker schedules records imports onnx)

build=build/fuzz
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
  -DDIAPASON_FUZZ=ON >/dev/null
names=()
for target in "${targets[@]}"; do names+=("fuzz_$target" "fuzz_${target}_driver"); done
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target "${names[@]}"

failed=0
mkdir -p "$build/found"
for target in "${targets[@]}"; do
  seeds=$build/seeds/$target corpus=$build/corpus/$target
  rm -rf "$seeds"
  mkdir -p "$corpus"
  "$build/bin/fuzz_${target}_driver" --write-seeds "$seeds" "tests/fuzz/corpus/$target"
  echo "== $target for $seconds s"
  # Libraries of the system are not instrumented: what they leave in a container of ours is no overflow.
  ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=1 \
    "$build/bin/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$build/found/$target-" "$corpus" "$seeds" >"$build/$target.log" 2>&1 || failed=1
  # The rest is in the log.
  grep -E "^(==|SUMMARY|stat::|ERROR|artifact)|does not hold|^ *#[0-9]+ 0x" "$build/$target.log" || true
done
exit "$failed"
