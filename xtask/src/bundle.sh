#!/usr/bin/env bash
# Runs lab, tests and benchmarks of this bundle on this machine's device, and writes one report:
#   report/report.txt     everything that was printed, and a summary at its end
#   report/record.json    the answers of this device, as a reference for `freehold lab --reference`
# Usage: ./run.sh [soft|cuda|cuda:N]      (without a word: an NVIDIA GPU if there is one, else the software device)
set -u
cd "$(dirname "$0")" || exit 2
device=${1:-}
if [ -n "$device" ]; then export FREEHOLD_DEVICE=$device; fi
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

everything() {
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    fi
    step "the lab" ./freehold lab --record report/record.json
    step "the lab with its own record" ./freehold lab --reference report/record.json
    for test in tests/*; do
        step "${test#tests/}" "$test" --quiet
    done
    for bench in benches/*; do
        step "${bench#benches/}" "$bench" --bench
    done
    printf '\n%s steps failed\n' "$failed"
    [ "$failed" = 0 ]
}

everything 2>&1 | tee "$report"
exit "${PIPESTATUS[0]}"
