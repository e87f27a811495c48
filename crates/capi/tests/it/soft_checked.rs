//! What `freehold check` finds in the memory of the library's pool: a C program with an error for each word, on the software driver
//! with a file for findings.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::soft_program::{compiled, temporary};

const PROGRAM: &str = r#"
#include <freehold_cuda.h>
#include <freehold.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 1000, LARGE = 5 << 20 };

int main(int count, char **words) {
    const char *kind = words[1];
    int is_fixed = count > 2 && strcmp(words[2], "fixed") == 0;
    CUdevice device;
    CUcontext context;
    CUstream first, second;
    CUevent event;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context) ||
        cuStreamCreate(&first, 1) || cuStreamCreate(&second, 1) || cuEventCreate(&event, 2)) {
        return 1;
    }
    char *block = freehold_alloc(BYTES, 0, first), *large = freehold_alloc(LARGE, 0, first), *more = NULL;
    if (block == NULL || large == NULL) {
        return 1;
    }
    cuMemsetD8Async((CUdeviceptr)block, 1, BYTES, first);
    if (strcmp(kind, "overrun") == 0) {
        cuMemsetD8Async((CUdeviceptr)block, 2, is_fixed ? BYTES : BYTES + 1, first);
        cuMemsetD8Async((CUdeviceptr)large, 2, LARGE, first);
    } else if (strcmp(kind, "freed") == 0) {
        if (is_fixed) cuMemcpyDtoDAsync((CUdeviceptr)large, (CUdeviceptr)block, BYTES, first);
        freehold_free(block, BYTES, 0, first);
        if (!is_fixed) cuMemcpyDtoDAsync((CUdeviceptr)large, (CUdeviceptr)block, BYTES, first);
        block = NULL;
    } else if (strcmp(kind, "twice") == 0) {
        freehold_free(block, BYTES, 0, first);
        if (!is_fixed && freehold_try_free(block, BYTES, 0, first) == 0) return 1;
        block = NULL;
    } else if (strcmp(kind, "interior") == 0) {
        if (!is_fixed && freehold_try_free(block + 8, BYTES, 0, first) == 0) return 1;
    } else if (strcmp(kind, "reuse") == 0) {
        cuEventRecord(event, first);
        cuStreamWaitEvent(second, event, 0);
        cuMemcpyDtoDAsync((CUdeviceptr)large, (CUdeviceptr)block, BYTES, second);
        if (is_fixed) freehold_record_use(block, second);
        freehold_free(block, BYTES, 0, first);
        for (int i = 0; i < 100; i++) {
            block = freehold_alloc(BYTES, 0, first);
            cuMemsetD8Async((CUdeviceptr)block, 3, BYTES, first);
            freehold_free(block, BYTES, 0, first);
        }
        block = NULL;
    } else if (strcmp(kind, "resize") == 0) {
        more = freehold_realloc(large, 2 * LARGE, 0, first);
        cuMemsetD8Async((CUdeviceptr)more, 4, 2 * LARGE, first);
        large = freehold_realloc(more, LARGE + 1, 0, first);
        cuMemsetD8Async((CUdeviceptr)large, 5, is_fixed ? LARGE + 1 : LARGE + 2, first);
    } else if (strcmp(kind, "elsewhere") == 0) {
        /* A block of one stream goes to the other when its work is done, which the pool asks the driver. */
        cuMemsetD8Async((CUdeviceptr)large, 4, LARGE, first);
        freehold_free(large, LARGE, 0, first);
        cuStreamSynchronize(first);
        large = freehold_alloc(LARGE, 0, second);
        cuMemsetD8Async((CUdeviceptr)large, 5, LARGE, second);
        cuStreamSynchronize(second);
    }
    if (block != NULL) freehold_free(block, BYTES, 0, first);
    freehold_free(large, 0, 0, first);
    if (cuCtxSynchronize() != CUDA_SUCCESS || freehold_trim(0, 0) != FREEHOLD_ERROR_NONE) {
        return 1;
    }
    puts("done");
    return 0;
}
"#;

/// Returns the kinds of what is found in a run.
fn found(program: &impl Fn() -> Command, kind: &str, version: &str) -> Vec<String> {
    let file = temporary(&format!("findings-{}", std::process::id()));
    let output = program().args([kind, version]).env("FREEHOLD_CHECK", &file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!((said.as_ref(), output.status.code()), ("done\n", Some(0)), "{kind} {version}: {output:?}");
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let kind_of = |line: &str| Some(line.split_once(r#""kind":""#)?.1.split_once('"')?.0.to_owned());
    // One that occurs again is written again at the end, with how often.
    let once = |line: &str| match line.split_once(r#""count":"#) {
        Some((before, rest)) => format!("{before}{}", rest.trim_start_matches(|digit: char| digit.is_ascii_digit())),
        None => line.to_owned(),
    };
    let mut known = BTreeSet::new();
    // The first line says that the process is checked.
    text.lines().skip(1).filter(|line| known.insert(once(line))).map(|line| kind_of(line).unwrap()).collect()
}

#[test]
fn errors_with_blocks_of_the_pool_are_found_and_corrected_programs_have_none() {
    let program = compiled("checked", PROGRAM);
    for (kind, expected) in [
        ("overrun", "out-of-bounds"),
        ("freed", "use-after-free"),
        ("twice", "double-free"),
        ("interior", "interior-free"),
        ("reuse", "reuse-race"),
        ("resize", "out-of-bounds"),
    ] {
        assert_eq!(found(&program, kind, "broken"), [expected], "{kind}");
        assert_eq!(found(&program, kind, "fixed"), [""; 0], "{kind}, corrected");
    }
    assert_eq!(found(&program, "elsewhere", "fixed"), [""; 0]);
}
