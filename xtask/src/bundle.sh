#!/usr/bin/env bash
# Runs lab, tests and benchmarks of this bundle on this machine's device, and writes one report:
#   report/report.txt     all output, with a summary at its end
#   report/record.json    the answers of this device, as a reference for `freehold lab --reference`
#   report/opencl.json    those of the first OpenCL device, if there is one
#   report/kernels/       the results of the test kernels on this device
#   report/peers/         allocation compared with PyTorch and RMM, if there are a GPU and PyTorch
# Usage: ./run.sh [soft|cuda|cuda:N]      (by default an NVIDIA GPU if there is one, else the software device)
set -u
cd "$(dirname "$0")" || exit 2
# The lab's first line names the chosen device.
device=${1:-$(./freehold lab --only 0.4.2 | sed -n '1s/^\(cuda:[0-9]*\):.*/\1/p')}
export FREEHOLD_DEVICE=${device:-soft}
export FREEHOLD_BIN=$PWD/freehold
mkdir -p report
report=report/report.txt
failed=0

step() { # title, command...
    local title=$1
    shift
    printf '\n== %s\n' "$title"
    if "$@"; then
        printf '== %s: passed\n' "$title"
    else
        printf '== %s: FAILED with status %s\n' "$title" "$?"
        failed=$((failed + 1))
    fi
}

has() { # Python module
    python3 -c "import $1" 2>/dev/null
}

others() { # other projects' programs with libfreehold.so, if they are installed
    if has cupy; then
        step "CuPy with libfreehold.so" python3 examples/python/cupy_pool.py libfreehold.so
    fi
    if has torch; then
        step "PyTorch with libfreehold.so" python3 examples/python/pytorch_training.py libfreehold.so
        step "allocation beside peers" env "FREEHOLD=$FREEHOLD_BIN" "FREEHOLD_LIBRARY=$PWD/libfreehold.so" \
            bench/peers/run.sh report/peers
    fi
}

opencl() { # the first OpenCL device, if there is one
    ./freehold devices --json | grep -q '"device":"opencl:0"' || return 0
    step "the lab on OpenCL" ./freehold lab --device opencl --record report/opencl.json
    step "the lab on OpenCL with its own record" ./freehold lab --device opencl --reference report/opencl.json
    step "driver.it on OpenCL" env FREEHOLD_DEVICE=opencl tests/driver.it opencl:: --quiet --test-threads=1
    step "freehold.it on OpenCL" env FREEHOLD_DEVICE=opencl tests/freehold.it contract:: --quiet --test-threads=1
    step "allocation on OpenCL" ./freehold bench pool --device opencl
}

everything() {
    ./freehold devices
    printf 'device: %s\n' "$FREEHOLD_DEVICE"
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    fi
    step "the lab" ./freehold lab --record report/record.json
    step "the lab with its own record" ./freehold lab --reference report/record.json
    # One test at a time: they share one GPU, and some check free memory or stream order.
    for test in tests/*; do
        step "${test#tests/}" "$test" --quiet --test-threads=1 --skip soft_ --skip schedules:: --skip run:: --skip programs::
    done
    for example in examples/[0-9]*; do
        step "example ${example#examples/}" "$example"
    done
    step "releases beside the driver's" ./freehold bench release
    step "allocation beside the driver's" ./freehold bench pool --svg report/pool.svg
    for bytes in 512 65536 2097152; do
        step "the warm path, $bytes bytes" ./warm_path c 1000000 "$bytes"
        step "the warm path of blocks, $bytes bytes" ./warm_path blocks 1000000 "$bytes"
    done
    [ "$FREEHOLD_DEVICE" = soft ] || others
    opencl
    step "the record of the kernels" env FREEHOLD_RECORD_KERNELS=report/kernels tests/softcuda.contract kernels:: --quiet
    for bench in benches/*; do
        step "${bench#benches/}" "$bench" --bench
    done
    printf '\n%s steps failed\n' "$failed"
    [ "$failed" = 0 ]
}

everything 2>&1 | tee "$report"
exit "${PIPESTATUS[0]}"
