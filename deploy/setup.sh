#!/usr/bin/env bash
# Installs what building and testing Diapason needs from Debian 12's own archive. Does nothing, quickly, when all is there.
set -euo pipefail

packages=(
  build-essential g++ cmake ninja-build ccache mold pkg-config file git python3 python3-dev python3-venv python3-yaml python3-jsonschema
  libabsl-dev libprotobuf-dev protobuf-compiler libgrpc++-dev protobuf-compiler-grpc
  libssl-dev openssl prometheus-cpp-dev
  libsqlite3-dev sqlite3 libpq-dev postgresql libgtest-dev libgmock-dev libxgboost-dev libonnx-dev libonnx-testdata
  libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libminizip-dev zlib1g-dev
  pocl-opencl-icd ocl-icd-opencl-dev opencl-headers
  gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
  bubblewrap clang-14 clang-format-14 clang-tidy-14 abigail-tools libcpp-httplib-dev libjs-chart.js chromium-headless-shell fonts-dejavu-core
)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "deploy/setup.sh: this system has no apt; install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [[ $state == "install ok installed" ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "deploy/setup.sh: run as root, or install sudo, to install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

install_missing() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends -o Acquire::Retries=3 "${missing[@]}"
}

echo "Installing ${#missing[@]} packages: ${missing[*]}"
# The package lists may be missing or older than the archive: then the first attempt fails and they are fetched.
for attempt in 1 2 3 4; do
  if install_missing; then
    exit 0
  fi
  ((attempt == 4)) || { "${as_root[@]}" apt-get update -q -o Acquire::Retries=3 || sleep $((attempt * 5)); }
done
echo "deploy/setup.sh: apt-get could not install: ${missing[*]}; look at its messages above" >&2
exit 1
