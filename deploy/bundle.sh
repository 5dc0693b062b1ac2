#!/usr/bin/env bash
# Collects the built programs with their shared libraries, so that they run on another Linux with glibc 2.36 or later.
#
#   deploy/bundle.sh FOLDER [--system-libstdc++] [PROGRAM...]
#
# PROGRAM is a name in build/bin (default: diapason). FOLDER gets
#   bin/   the programs without debug symbols; they look for libraries in ../lib first (CMAKE_BUILD_RPATH)
#   lib/   the libraries, except those of glibc and of drivers (CUDA, OpenCL), which must be the other machine's own
# --system-libstdc++ leaves out the C++ library too, for a machine whose OpenCL driver needs a newer one.
set -euo pipefail

if (($# < 1)) || [[ $1 == --help ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit $(($# < 1 ? 2 : 0))
fi
folder=$1
shift
with_libstdcxx=true
if [[ ${1:-} == --system-libstdc++ ]]; then
  with_libstdcxx=false
  shift
fi
programs=("$@")
((${#programs[@]} > 0)) || programs=(diapason)
bin=${BUILD:-$(dirname "${BASH_SOURCE[0]}")/../build}/bin

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

mkdir -p "$folder/bin" "$folder/lib"
for name in "${programs[@]}"; do
  program=$bin/$name
  if [[ ! -x $program ]]; then
    echo "deploy/bundle.sh: $program is not there; build it with \`cmake --build build --target $name\`" >&2
    exit 1
  fi
  while read -r library path; do
    if [[ $path == not ]]; then
      echo "deploy/bundle.sh: $name needs $library, which is not installed; run deploy/setup.sh" >&2
      exit 1
    fi
    if left_out "$library" || [[ -e $folder/lib/$library ]]; then continue; fi
    cp -L "$path" "$folder/lib/$library"
    chmod u+w "$folder/lib/$library"
    strip --strip-unneeded "$folder/lib/$library"
  done < <(ldd "$program" | awk '$2 == "=>" { print $1, $3 }')
  strip -o "$folder/bin/$name" "$program"
done
echo "$(du -sh "$folder" | cut -f 1) in $folder: ${programs[*]} with $(find "$folder/lib" -type f | wc -l) libraries"
