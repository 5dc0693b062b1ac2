#!/usr/bin/env bash
# Collects the built programs with their shared libraries, so that they run on another Linux with glibc 2.36 or later.
#
#   deploy/bundle.sh FOLDER [--system-libstdc++] [PROGRAM...]
#   deploy/bundle.sh FOLDER --tests        all test programs with their data, also as FOLDER.tar.xz, for bench/gpu_tests.sh
#
# PROGRAM is a name in build/bin (default: diapason). FOLDER gets
#   bin/   the programs without debug symbols; they look for libraries in ../lib first (CMAKE_BUILD_RPATH)
#   lib/   the libraries, except those of glibc and of drivers (CUDA, OpenCL), which must be the other machine's own
# --system-libstdc++ leaves out the C++ library too, for a machine whose OpenCL driver needs a newer one.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if (($# < 1)) || [[ $1 == --help ]]; then
  sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit $(($# < 1 ? 2 : 0))
fi
folder=$1
shift
with_libstdcxx=true
if [[ ${1:-} == --system-libstdc++ ]]; then
  with_libstdcxx=false
  shift
fi
with_tests=false
if [[ ${1:-} == --tests ]]; then
  with_tests=true
  shift
fi
programs=("$@")
((${#programs[@]} > 0)) || programs=(diapason)
bin=${BUILD:-$top/build}/bin
if [[ $with_tests == true ]]; then
  [[ ! -e $folder ]] || { echo "deploy/bundle.sh: $folder is there already; remove it or name another" >&2; exit 1; }
  for program in "$bin"/*_tests "$bin"/fuzz_*_driver; do
    [[ ! -x $program ]] || programs+=("$(basename "$program")")
  done
fi

# glibc goes with its loader, whose path is fixed in the programs.
left_out() {
  case $1 in
    ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libutil.so.* | \
      libnsl.so.* | libanl.so.* | libmvec.so.* | linux-vdso*) return 0 ;;
    libcuda.so* | libnvrtc* | libnvidia* | libcudnn* | libcublas* | libOpenCL.so*) return 0 ;;
    libstdc++.so.* | libgcc_s.so.*) [[ $with_libstdcxx == false ]] ;;
    *) return 1 ;;
  esac
}

# Programs take libraries from the bundle, and those of their libraries.
take_libraries() {
  local library path
  while read -r library path; do
    if [[ $path == not ]]; then
      echo "deploy/bundle.sh: $1 needs $library, which is not installed; run deploy/setup.sh" >&2
      exit 1
    fi
    if left_out "$library" || [[ -e $folder/lib/$library ]]; then continue; fi
    cp -L "$path" "$folder/lib/$library"
    chmod u+w "$folder/lib/$library"
    strip --strip-unneeded "$folder/lib/$library"
  done < <(ldd "$1" | awk '$2 == "=>" { print $1, $3 }')
}

# What tests read and start besides (tests/paths.h): the same places as in the repository, the node cases of ONNX, and openssl.
take_test_data() {
  local path
  for path in bench deploy tests/bench tests/cli/engines tests/deploy tests/fuzz/corpus; do
    mkdir -p "$folder/$(dirname "$path")"
    cp -r "$top/$path" "$folder/$path"
  done
  find "$folder" -name __pycache__ -type d -prune -exec rm -r {} +
  rm "$folder"/tests/deploy/{packages,containerfile,threads,tidy}_test.py  # which need a build tree or clang
  mkdir -p "$folder/onnx-testdata"
  cp -r "${ONNX_TESTDATA_DIR:-/usr/share/libonnx-testdata/data}/node" "$folder/onnx-testdata/node"
  printf '[req]\ndistinguished_name = dn\n[dn]\n' >"$folder/deploy/openssl.cnf"
  take_libraries "$(command -v openssl)"
  cp "$(command -v openssl)" "$folder/lib/openssl"
  # Its own library path would be the system's.
  printf '#!/bin/sh\nhere=$(dirname "$0")/../lib\nLD_LIBRARY_PATH=$here exec "$here/openssl" "$@"\n' >"$folder/bin/openssl"
  chmod +x "$folder/bin/openssl"
}

mkdir -p "$folder/bin" "$folder/lib"
for name in "${programs[@]}"; do
  program=$bin/$name
  if [[ ! -x $program ]]; then
    echo "deploy/bundle.sh: $program is not there; build it with \`cmake --build build --target $name\`" >&2
    exit 1
  fi
  take_libraries "$program"
  strip -o "$folder/bin/$name" "$program"
done
echo "$(du -sh "$folder" | cut -f 1) in $folder: ${programs[*]} with $(find "$folder/lib" -type f | wc -l) libraries"
if [[ $with_tests == true ]]; then
  take_test_data
  # Programs share most of their code: the dictionary spans several of them.
  tar -C "$folder" -cf - . | xz --lzma2=preset=1,dict=128MiB >"$folder.tar.xz"
  echo "$(du -sh "$folder.tar.xz" | cut -f 1) in $folder.tar.xz: give it to bench/gpu_tests.sh on a machine with a GPU"
fi
