//! Programs with a CUDA runtime of their own, as nvcc links by default, under `freehold run`: their calls reach the runtime
//! of the software device, from the first constructor on.
//!
//! The runtimes here are C files with some of the symbols. `cargo xtask test` has real ones.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{binary, cache};

/// A runtime that says version 1.
const RUNTIME: &str = "
int __cudaRegisterFatBinary(void) { return 1; }
int cudaRuntimeGetVersion(int *version) { *version = 1; return 0; }
#if CUDA == 13
int cudaLogsCurrent(void) { return 1; }
#elif CUDA == 12
int cudaGetDeviceProperties_v2(void) { return 1; }
#endif
__attribute__((section(\".nv_fatbin\"))) const char kernels[16] = \"\";
";

/// A part of a program that asks for the version before `main`, and when it is called.
const USER: &str = "
#include <stdio.h>
int cudaRuntimeGetVersion(int *);
int cudaCheck(void) { return 5; }
int version(void) { int is = 0; return cudaRuntimeGetVersion(&is) == 0 ? is : -1; }
__attribute__((constructor)) static void begin(void) { printf(\"constructor %d\\n\", version()); fflush(stdout); }
";

const MAIN: &str = "
#include <stdio.h>
int version(void); int cudaCheck(void);
int main(void) { printf(\"main %d, %d\\n\", version(), cudaCheck()); return 0; }
";

const OPENS: &str = "
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    printf(\"%d words\\n\", count); fflush(stdout);
    void *object = dlopen(words[1], RTLD_NOW);
    int (*version)(void) = (int (*)(void))dlsym(object, \"version\");
    printf(\"main %d\\n\", version());
    return 0;
}
";

/// Compiles texts together with options. Returns the path of the result.
fn compiled(name: &str, texts: &[&str], options: &[&str]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("static_runtime").join(name);
    fs::create_dir_all(&folder).expect("the folder is created");
    let sources: Vec<_> = (0..texts.len()).map(|index| folder.join(format!("{index}.c"))).collect();
    for (source, text) in sources.iter().zip(texts) {
        fs::write(source, text).expect("the folder is ours");
    }
    let result = folder.join("result");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-falign-functions=16", "-fPIC"]).args(options).args(&sources).arg("-o").arg(&result);
    let status = compiler.status().expect("a C compiler is installed");
    assert!(status.success(), "{name} does not compile");
    result
}

fn run(program: &Path, words: &[&Path]) -> Output {
    let mut command = Command::new(binary());
    command.args(["run", "--device", "soft", "--"]).arg(program).args(words);
    command.env("XDG_CACHE_HOME", cache()).stdin(Stdio::null()).output().expect("the binary starts")
}

/// Checks the output of a program that succeeds, and returns what it writes to stderr.
fn assert_prints(output: &Output, expected: &str) -> String {
    let error = String::from_utf8(output.stderr.clone()).expect("the output is UTF-8");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{error}");
    assert_eq!(output.status.code(), Some(0), "{error}");
    error
}

#[test]
fn the_runtime_within_a_program_is_replaced_by_one_of_its_version() {
    for (cuda, version) in [("-DCUDA=12", "12090"), ("-DCUDA=13", "13000")] {
        let program = compiled(cuda, &[RUNTIME, USER, MAIN], &[cuda]);
        let told = assert_prints(&run(&program, &[]), &format!("constructor {version}\nmain {version}, 5\n"));
        assert_eq!(told, "");
    }
}

#[test]
fn the_runtime_within_an_object_is_replaced_when_it_is_loaded() {
    let object = compiled("object", &[RUNTIME, USER], &["-DCUDA=13", "-shared"]);
    let program = compiled("opens", &[OPENS], &["-ldl"]);
    let told = assert_prints(&run(&program, &[&object]), "2 words\nconstructor 13000\nmain 13000\n");
    assert_eq!(told, "");
}

#[test]
fn a_sentence_names_the_option_that_a_program_without_symbols_needs() {
    let program = compiled("stripped", &[RUNTIME, USER, MAIN], &["-DCUDA=13", "-s"]);
    let told = assert_prints(&run(&program, &[]), "constructor 1\nmain 1, 5\n");
    assert_eq!(told.lines().count(), 1, "{told}");
    let path = program.display();
    assert!(told.starts_with(&format!("freehold: {path} contains a CUDA runtime without symbols")), "{told}");
    assert!(told.contains("-cudart shared") && told.contains("CUDA_RUNTIME_LIBRARY Shared"), "{told}");
}

#[test]
fn a_runtime_of_an_unknown_version_is_left_alone_with_a_sentence() {
    let program = compiled("old", &[RUNTIME, USER, MAIN], &["-DCUDA=11"]);
    let told = assert_prints(&run(&program, &[]), "constructor 1\nmain 1, 5\n");
    assert!(told.contains("contains a CUDA runtime that is older than version 12"), "{told}");
}

#[test]
fn a_program_that_loads_a_runtime_by_its_path_gets_ours() {
    const ASKS: &str = "
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    void *runtime = dlopen(words[count - 1], RTLD_NOW);
    int (*ask)(int *) = (int (*)(int *))dlsym(runtime, \"cudaRuntimeGetVersion\"), version = 0;
    ask(&version);
    printf(\"%d\\n\", version);
    return 0;
}
";
    const LIBRARY: &str = "int cudaRuntimeGetVersion(int *version) { *version = 1; return 0; }\n";
    let elsewhere = compiled("elsewhere", &[LIBRARY], &["-shared"]);
    let library = elsewhere.with_file_name("libcudart.so.12.9.79");
    fs::rename(&elsewhere, &library).expect("the folder is ours");
    let program = compiled("asks", &[ASKS], &["-ldl"]);
    let told = assert_prints(&run(&program, &[&library]), "12090\n");
    assert_eq!(told, "");
}

/// A compiler at run time, which returns 1 for machine code and 2 for PTX.
const COMPILER: &str = "
int nvrtcGetCUBIN(void) { return 1; }
int nvrtcGetCUBINSize(void) { return 1; }
int nvrtcGetPTX(void) { return 2; }
int nvrtcGetPTXSize(void) { return 2; }
int nvrtcVersion(void) { return 3; }
";

#[test]
fn a_compiler_at_run_time_is_asked_for_ptx_where_a_program_wants_machine_code() {
    const CALLS: &str = "
#include <stdio.h>
int nvrtcGetCUBIN(void); int nvrtcGetCUBINSize(void); int nvrtcGetPTX(void); int nvrtcVersion(void);
int main(void) {
    printf(\"%d %d %d %d\\n\", nvrtcGetCUBIN(), nvrtcGetCUBINSize(), nvrtcGetPTX(), nvrtcVersion());
    return 0;
}
";
    const LOOKS_UP: &str = "
#include <dlfcn.h>
#include <stdio.h>
typedef int Function(void);
int main(int count, char **words) {
    void *compiler = dlopen(words[count - 1], RTLD_NOW);
    const char *names[] = {\"nvrtcGetCUBIN\", \"nvrtcGetCUBINSize\", \"nvrtcGetPTX\", \"nvrtcVersion\"};
    for (int i = 0; i < 4; i++) printf(\"%d%c\", ((Function *)dlsym(compiler, names[i]))(), i < 3 ? ' ' : '\\n');
    return 0;
}
";
    let built = compiled("compiler", &[COMPILER], &["-shared", "-Wl,-soname,libnvrtc.so.13"]);
    let library = built.with_file_name("libnvrtc.so.13");
    fs::rename(&built, &library).expect("the folder is ours");
    let (path, folder) = (library.to_str().expect("the path is UTF-8"), library.parent().expect("it has a folder"));
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    for binding in ["lazy", "now"] {
        let bind = format!("-Wl,-z,{binding}");
        let program = compiled(&format!("calls-{binding}"), &[CALLS], &["-Wl,--no-as-needed", &bind, &rpath, path]);
        assert_eq!(assert_prints(&run(&program, &[]), "2 2 2 3\n"), "", "{binding}");
    }
    let program = compiled("looks-up", &[LOOKS_UP], &["-ldl"]);
    assert_eq!(assert_prints(&run(&program, &[&library]), "2 2 2 3\n"), "");
}

#[test]
fn a_library_with_static_tls_loads_next_to_the_runtime() {
    let text = "__attribute__((tls_model(\"initial-exec\"))) __thread char used[1500];\n\
        int first(void) { return used[0] += 7; }\n";
    let library = compiled("static_tls", &[text], &["-shared"]);
    let text = "#include <stdio.h>\nint first(void);\nint main(void) { printf(\"%d\\n\", first()); return 0; }\n";
    let library = library.to_str().expect("the path is UTF-8");
    let program = compiled("static_tls_user", &[text], &["-Wl,--no-as-needed", library]);
    assert_eq!(assert_prints(&run(&program, &[]), "7\n"), "");
}
