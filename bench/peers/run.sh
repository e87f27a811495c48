#!/bin/sh
# Builds and runs the same workloads on Freehold and its peers, and prints the table. README.md says what it needs.
#
#     bench/peers/run.sh [FOLDER]
set -eu

say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 2; }

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/target/peers
python=${PYTHON:-python3}
cxx=${CXX:-g++}
runs=${RUNS:-1}

[ $# -le 1 ] || fail "usage: bench/peers/run.sh [FOLDER]: one folder for peers.json and peers.md"
case $runs in '' | *[!0-9]* | 0) fail "RUNS=$runs: say how many runs to take the median of, 1 or more" ;; esac
command -v "$cxx" >/dev/null || fail "$cxx is not here: install a C++ compiler or name one in CXX"
command -v "$python" >/dev/null || fail "$python is not here: install Python 3 or name one in PYTHON"
results=${1:-$build}
mkdir -p "$build/out" "$results" || fail "$results cannot be made: name a folder that can"
rm -f "$build"/out/*.json

# Where a CUDA toolkit may lie: what the caller says, nvcc's folder and what nvcc itself says, the usual place, the
# folders that packages of distributions and of Python install to.
cuda_folders() {
    if [ -n "${CUDA_HOME:-}" ]; then
        printf '%s\n' "$CUDA_HOME"
        return
    fi
    if nvcc=$(command -v nvcc); then
        dirname "$(dirname "$(readlink -f "$nvcc")")"
        nvcc --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' || true
    fi
    printf '%s\n' /usr/local/cuda /usr
    "$python" -c 'import nvidia; print(*[path + "/cu13" for path in nvidia.__path__], sep="\n")' 2>/dev/null || true
}

# The first file that exists of those named.
first_file() {
    for file in "$@"; do
        if [ -f "$file" ]; then
            printf '%s\n' "$file"
            return
        fi
    done
    return 1
}

find_cuda() {
    folders=$(cuda_folders)
    while read -r folder; do
        cuda_header=$(first_file "$folder"/include/cuda_runtime_api.h \
            "$folder"/targets/*/include/cuda_runtime_api.h) || continue
        # Python's package of the runtime has this one only with the compiler's.
        [ -f "$(dirname "$cuda_header")/crt/host_defines.h" ] || continue
        cuda_library=$(first_file "$folder"/lib64/libcudart.so* "$folder"/targets/*/lib/libcudart.so* \
            "$folder"/lib/libcudart.so* "$folder"/lib/*/libcudart.so*) || continue
        return 0
    done <<END
$folders
END
    return 1
}

find_cuda || fail "no CUDA headers with a libcudart.so: install the CUDA toolkit or set CUDA_HOME to its folder"
flags="-std=c++20 -O2 -Wall -Wextra"
cuda_include=$(dirname "$cuda_header")
parts=""
libraries=""
definitions=""

# compile NAME FLAGS...: whether it compiled; what the compiler said is in a log.
compile() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$cxx" $flags "$@" "-I$cuda_include" -c "$here/$name.cpp" -o "$build/$name.o" >"$build/$name.log" 2>&1 || return 1
    parts="$parts $build/$name.o"
}

# link_with FILE...: links to libraries by their paths and finds them there again.
link_with() {
    for file in "$@"; do libraries="$libraries $file -Wl,-rpath,$(dirname "$file")"; done
}

add_torch() {
    code='import os, torch; assert torch.version.cuda; print(os.path.dirname(torch.__file__))'
    torch=$("$python" -c "$code" 2>/dev/null) || {
        say "PyTorch is left out: $python has no torch that was built with CUDA."
        return
    }
    if compile torch -isystem "$torch/include"; then
        definitions="$definitions -DWITH_TORCH"
        link_with "$torch/lib/libc10_cuda.so" "$torch/lib/libc10.so"
        peers="$peers torch torch-expandable"
    else
        say "PyTorch is left out: this does not compile with the headers of $torch, as $build/torch.log says."
    fi
}

add_rmm() {
    code='import os, librmm; print(os.path.dirname(os.path.dirname(librmm.__file__)))'
    rmm=${RMM_ROOT:-$("$python" -c "$code" 2>/dev/null)} || rmm=""
    if [ -z "$rmm" ]; then
        say "RMM is left out: neither has $python its package librmm, nor is RMM_ROOT set (README.md says to what)."
        return
    fi
    [ -d "$rmm" ] || fail "RMM_ROOT=$rmm is no folder: name the one where the wheels were unpacked"
    rmm=$(cd "$rmm" && pwd)
    for needed in "$rmm/librmm/lib64/librmm.so" "$rmm/rapids_logger/lib64/librapids_logger.so"; do
        if [ ! -f "$needed" ]; then
            say "RMM is left out: $needed is not there."
            return
        fi
    done
    if compile rmm -isystem "$rmm/librmm/include/rapids" -isystem "$rmm/librmm/include" \
        -isystem "$rmm/rapids_logger/include"; then
        definitions="$definitions -DWITH_RMM"
        link_with "$rmm/librmm/lib64/librmm.so" "$rmm/rapids_logger/lib64/librapids_logger.so"
        peers="$peers rmm-pool rmm-arena"
    else
        say "RMM is left out: this does not compile with the headers of $rmm, as $build/rmm.log says."
    fi
}

add_freehold() {
    if [ -n "${FREEHOLD_LIBRARY:-}" ]; then
        [ -f "$FREEHOLD_LIBRARY" ] || fail "FREEHOLD_LIBRARY=$FREEHOLD_LIBRARY is no file: name libfreehold.so"
        FREEHOLD_LIBRARY=$(readlink -f "$FREEHOLD_LIBRARY")
    elif [ -f "$root/target/release/libfreehold.so" ]; then
        FREEHOLD_LIBRARY=$root/target/release/libfreehold.so
    else
        say "Freehold is left out: build it with cargo xtask library, or set FREEHOLD_LIBRARY to its path."
        return
    fi
    export FREEHOLD_LIBRARY
    peers=" freehold"
}

# The lists of operations: a folder of them, or the program that writes them.
find_workloads() {
    workloads=${WORKLOADS:-}
    if [ -n "$workloads" ]; then
        first_file "$workloads"/*.ops >/dev/null ||
            fail "WORKLOADS=$workloads has no .ops files: write them with freehold bench pool --workloads"
        return
    fi
    program=${FREEHOLD:-$root/target/release/freehold}
    if [ -x "$program" ]; then
        workloads=$build/workloads
        "$program" bench pool --workloads "$workloads" >&2
    else
        say "No lists of operations are measured: build target/release/freehold, or set WORKLOADS to a folder of .ops files."
        workloads=$build/none
    fi
}

peers=""
add_freehold
find_workloads
say "Building in $build"
add_torch
add_rmm
peers="$peers cuda-malloc-async cuda-malloc"
chosen=${PEERS:-$peers}
for name in $chosen; do
    case " $peers " in *" $name "*) ;; *) fail "PEERS names $name, which is not among those here:$peers" ;; esac
done
for name in cuda freehold pairs replay peers; do
    # shellcheck disable=SC2086
    compile "$name" $definitions || {
        cat "$build/$name.log" >&2
        fail "$name.cpp does not compile: see above"
    }
done
link_with "$cuda_library"
# shellcheck disable=SC2086
"$cxx" $parts $libraries -pthread -ldl -o "$build/peers"

for run in $(seq "$runs"); do
    for name in $chosen; do
        say "Measuring $name, run $run of $runs"
        settings=""
        [ "$name" != torch-expandable ] || settings=expandable_segments:True
        set --
        for file in "$workloads"/*.ops; do [ ! -f "$file" ] || set -- "$@" "$file"; done
        # The settings have one name up to PyTorch 2.8 and another since.
        PYTORCH_ALLOC_CONF=$settings PYTORCH_CUDA_ALLOC_CONF=$settings \
            "$build/peers" "$name" "$@" >"$build/out/$name.$run.json" || {
            say "$name is left out of run $run: it did not get through, as it says above."
            rm -f "$build/out/$name.$run.json"
        }
    done
done
first_file "$build"/out/*.json >/dev/null || { say "Nothing was measured."; exit 1; }
"$python" "$here/table.py" "$results/peers.json" "$build"/out/*.json | tee "$results/peers.md"
