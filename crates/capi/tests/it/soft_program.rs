//! A C program that uses the header and the library, on the software driver's `libcuda.so.1`; and the library's
//! dependencies.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs};

const PROGRAM: &str = r#"
#include <freehold_cuda.h>
#include <freehold.h>
#include <stdio.h>
#include <string.h>

static void must(int is_so, const char *what) {
    if (!is_so) {
        printf("not so: %s (%s)\n", what, freehold_last_error());
    }
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CUstream stream;
    must(cuInit(0) == CUDA_SUCCESS, "cuInit");
    must(cuDeviceGet(&device, 0) == CUDA_SUCCESS, "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context) == CUDA_SUCCESS, "cuCtxSetCurrent");
    must(cuStreamCreate(&stream, 0) == CUDA_SUCCESS, "cuStreamCreate");

    char text[] = "memory that has an owner", back[sizeof text] = {0};
    void *block = freehold_alloc(sizeof text, 0, stream);
    must(block != NULL, "freehold_alloc");
    must(cuMemcpyHtoD((CUdeviceptr)block, text, sizeof text) == CUDA_SUCCESS, "cuMemcpyHtoD");
    void *larger = freehold_realloc(block, 1 << 20, 0, stream);
    must(cuStreamSynchronize(stream) == CUDA_SUCCESS, "cuStreamSynchronize");
    must(cuMemcpyDtoH(back, (CUdeviceptr)larger, sizeof back) == CUDA_SUCCESS, "cuMemcpyDtoH");

    struct freehold_owner owner;
    must(freehold_owner_of((char *)larger + 7, &owner) == FREEHOLD_ERROR_NONE, "freehold_owner_of");
    must(owner.base == larger && owner.is_live, "the owner is that of the block");
    printf("%s: %zu live\n", back, freehold_live_bytes(0));
    freehold_free(larger, 1 << 20, 0, stream);
    must(freehold_try_free(larger, 0, 0, stream) == FREEHOLD_ERROR_ALREADY_RELEASED, "a second release");
    must(strstr(freehold_last_error(), "already released") != NULL, "its text");
    must(freehold_stream_retire(stream) == FREEHOLD_ERROR_NONE, "freehold_stream_retire");
    must(cuStreamSynchronize(stream) == CUDA_SUCCESS, "cuStreamSynchronize");
    must(cuStreamDestroy(stream) == CUDA_SUCCESS, "cuStreamDestroy");
    must(freehold_trim(0, 0) == FREEHOLD_ERROR_NONE, "freehold_trim");
    printf("%zu live, %zu reserved\n", freehold_live_bytes(0), freehold_reserved_bytes(0));
    return freehold_last_error_code() == FREEHOLD_ERROR_ALREADY_RELEASED ? 0 : 1;
}
"#;

/// Writes more and more elements into a block of four that has a neighbour.
const OVERRUN: &str = r#"
#include <freehold_cuda.h>
#include <freehold.h>
#include <stdio.h>

static const char *TEXT =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry fill(.param .u64 to, .param .u32 count)\n{\n"
    ".reg .b64 %at<3>; .reg .b32 %r<3>; .reg .pred %p;\n"
    "ld.param.u64 %at1, [to]; ld.param.u32 %r1, [count]; mov.u32 %r2, %tid.x;\n"
    "setp.ge.u32 %p, %r2, %r1; @%p ret;\n"
    "mad.wide.u32 %at2, %r2, 4, %at1;\n"
    "st.global.u32 [%at2], %r2;\n"
    "ret;\n}\n";

int main(void) {
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUmodule module;
    CUfunction fill;
    CUresult ready = cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
                     cuCtxSetCurrent(context) || cuStreamCreate(&stream, 0) || cuModuleLoadData(&module, TEXT) ||
                     cuModuleGetFunction(&fill, module, "fill");
    void *block = freehold_alloc(16, 0, stream), *neighbour = freehold_alloc(16, 0, stream);
    if (ready != CUDA_SUCCESS || block == NULL || neighbour == NULL) {
        return 1;
    }
    for (unsigned count = 3; count <= 5; count++) {
        CUdeviceptr to = (CUdeviceptr)block;
        void *arguments[] = {&to, &count};
        int launched = cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
        printf("%u: %d, %d\n", count, launched, (int)cuStreamSynchronize(stream));
    }
    return 0;
}
"#;

/// Allocates before anything loads the driver, and asks the driver about the block.
const EARLY: &str = r#"
#include <dlfcn.h>
#include <freehold.h>
#include <stdio.h>

int main(void) {
    void *block = freehold_alloc(16, 0, NULL);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*attribute)(void *, int, unsigned long long) = NULL;
    *(void **)&attribute = driver == NULL ? NULL : dlsym(driver, "cuPointerGetAttribute");
    if (block == NULL || attribute == NULL) {
        return 1;
    }
    unsigned kind = 0;
    int status = attribute(&kind, 2 /* memory type */, (unsigned long long)block);
    printf("%d: %u\n", status, kind);
    return 0;
}
"#;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a library of this build, which cargo leaves beside the tests.
fn built(name: &str) -> PathBuf {
    let tests = env::current_exe().unwrap();
    let path = tests.parent().unwrap().join(name);
    assert!(path.is_file(), "{} does not exist", path.display());
    path
}

/// Creates a folder for one program, with the libraries under the names that programs look for.
fn libraries(program: &str) -> PathBuf {
    let name = format!("libraries-{program}-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    for (name, file) in [
        ("libfreehold.so", "libfreehold_capi.so"),
        ("libcuda.so", "libfreehold_libcuda.so"),
        ("libcuda.so.1", "libfreehold_libcuda.so"),
    ] {
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(built(file), link).unwrap();
        }
    }
    folder
}

/// Returns the path of a file for a test.
pub(crate) fn temporary(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Compiles a program. Returns a command that runs it with both libraries.
pub(crate) fn compiled(name: &str, text: &str) -> impl Fn() -> Command {
    // Names the crate, so that cargo builds its library for this test.
    let _ = freehold_libcuda::LIBRARY_FILE;
    let libraries = libraries(name);
    let (source, program) = (temporary(&format!("{name}.c")), temporary(name));
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(folder().join("include"));
    compiler.arg("-I").arg(folder().join("../libcuda/include")).arg(&source).arg("-L").arg(&libraries);
    let status = compiler
        .args(["-Wl,--as-needed", "-lfreehold", "-lcuda", "-ldl", "-o"])
        .arg(&program)
        .status()
        .expect("cannot start the C compiler");
    assert!(status.success(), "the program does not compile");
    move || {
        let mut run = Command::new(&program);
        run.env("LD_LIBRARY_PATH", &libraries).env_remove("FREEHOLD_DEVICE").stdin(Stdio::null());
        run
    }
}

/// Compiles a program and runs it.
fn run(name: &str, text: &str, variables: &[(&str, &str)]) -> Output {
    compiled(name, text)().envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_c_program_allocates_grows_asks_and_frees() {
    let output = run("blocks", PROGRAM, &[]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "memory that has an owner: 1048576 live\n0 live, 0 reserved\n");
    assert_eq!(output.status.code(), Some(0));
}

/// `FREEHOLD_DEVICE` is what `freehold run` sets.
#[test]
fn blocks_are_those_of_the_software_driver_that_the_program_will_load() {
    let output = run("early", EARLY, &[("FREEHOLD_DEVICE", "soft")]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0: 2\n");
    assert_eq!(output.status.code(), Some(0));
}

/// Returns the first code block of a language in the documentation.
fn documented<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("the page has such a block");
    rest.split_once("```").expect("the block ends").0
}

#[test]
fn the_documented_program_prints_what_the_documentation_says() {
    let page = include_str!("../../../../docs/c.md");
    let output = run("hello", documented(page, "c"), &[]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    // Addresses depend on what the process did before.
    let without_address = |text: &str| {
        let words = text.split_whitespace().map(|word| if word.starts_with("0x") { "ADDRESS" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(without_address(&said), without_address(documented(page, "text")));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_kernel_of_a_c_program_that_leaves_its_block_is_reported() {
    let output = run("overrun", OVERRUN, &[("CUDA_LOG_FILE", "stderr")]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3: 0, 0\n4: 0, 0\n5: 0, 700\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("kernel fill, PTX line 10, block (0,0,0), thread (4,0,0) writes 4 bytes"), "{said}");
    assert!(said.contains(": 4 bytes past the end of a block of 16 bytes at "), "{said}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_library_needs_no_cuda_and_has_its_name() {
    let mut command = Command::new("readelf");
    let output = command.arg("-d").arg(built("libfreehold_capi.so")).output().expect("cannot start binutils");
    let text = String::from_utf8(output.stdout).unwrap();
    let named = |kind: &str| {
        let lines = text.lines().filter(move |line| line.contains(kind));
        lines.filter_map(|line| line.split(['[', ']']).nth(1)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(named("(SONAME)"), ["libfreehold.so"]);
    let needed = named("(NEEDED)");
    assert!(needed.iter().any(|name| name == "libc.so.6"), "{needed:?}");
    assert!(!needed.iter().any(|name| name.contains("cuda") || name.contains("nvidia")), "{needed:?}");
}

#[test]
fn the_library_exports_the_headers_functions_and_nothing_else() {
    let mut command = Command::new("nm");
    command.args(["--dynamic", "--defined-only", "--format=just-symbols"]);
    let output = command.arg(built("libfreehold_capi.so")).output().expect("cannot start binutils");
    let text = String::from_utf8(output.stdout).unwrap();
    let header = include_str!("../../include/freehold.h");
    assert_eq!(text.lines().count(), 45, "{text}");
    for name in text.lines() {
        assert!(header.contains(&format!("{name}(")), "{name}");
    }
}
