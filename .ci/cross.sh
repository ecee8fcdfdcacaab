#!/usr/bin/env bash
# Does the C++ compile for systems that are not at hand? Clang of the ziglang package has their headers:
# .ci/cross.sh PYTHON, a Python that has ziglang. The bindings need the Python of the other system, and are left out.
set -euo pipefail
cd "$(dirname "$0")/../native"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for target in aarch64-macos x86_64-macos x86_64-windows-gnu aarch64-linux-musl x86_64-linux-musl; do
  kernels=(kernel_baseline.cpp) options=()
  case $target in x86_64*) kernels+=(kernel_avx2.cpp kernel_avx512.cpp) options=(-DPATCHTRACE_X86) ;; esac
  for source in driver.cpp helpers.cpp "${kernels[@]}"; do
    case $source in
      *avx2*) set -- "$1" -mavx2 -mfma ;;
      *avx512*) set -- "$1" -mavx512f -mavx512vl -mavx512bw -mavx512dq -mfma ;;
      *) set -- "$1" ;;
    esac
    "$1" -m ziglang c++ -target "$target" -std=c++17 -O1 -fopenmp-simd -ffp-contract=fast "${options[@]}" "${@:2}" \
      -c "$source" -o "$made/out.o"
  done
  echo "$target: compiles"
done
