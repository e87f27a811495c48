//! Objects linked with one of NVIDIA's libraries, as libcusparse is with nvJitLink, under `freehold run`: they ask for the
//! library's name and for the version of its symbols. The dynamic linker ends the process if it does not know the name.

use crate::common;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{binary, cache};

/// Loads each of its arguments, and prints what the function `version` of those that have it returns.
const LOADER: &str = "
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    for (int i = 1; i < count; i++) {
        void *object = dlopen(words[i], RTLD_NOW);
        if (!object) { printf(\"%s\\n\", dlerror()); return 1; }
        int (*version)(void) = (int (*)(void))dlsym(object, \"version\");
        if (version) printf(\"%d\\n\", version());
        fflush(stdout);
    }
    return 0;
}
";

/// One of NVIDIA's libraries, and a function of it.
struct Vendor {
    soname: &'static str,
    /// The library's name within this test's folder, which is that of the soname unless a wheel has renamed it.
    file: &'static str,
    /// What the library exports. It fails, so that a call that reaches it is noticed.
    library: &'static str,
    /// What asks ours for its version.
    user: &'static str,
}

const LINKER_12: Vendor = Vendor {
    soname: "libnvJitLink.so.12",
    file: "libnvJitLink.so.12",
    library: "int nvJitLinkVersion(unsigned *major, unsigned *minor) { return 99; }
int __nvJitLinkDestroy_12_4(void **handle) { return 99; }",
    user: "int nvJitLinkVersion(unsigned *, unsigned *); int __nvJitLinkDestroy_12_4(void **);
int version(void) {
    unsigned major, minor;
    void *handle = 0;
    return nvJitLinkVersion(&major, &minor) ? -1 : __nvJitLinkDestroy_12_4(&handle) == 99 ? -2 : (int)major;
}",
};

const LINKER_13: Vendor = Vendor {
    soname: "libnvJitLink.so.13",
    file: "libnvJitLink.so.13",
    library: "int nvJitLinkVersion(unsigned *major, unsigned *minor) { return 99; }
int __nvJitLinkDestroy_13_0(void **handle) { return 99; }",
    user: "int nvJitLinkVersion(unsigned *, unsigned *); int __nvJitLinkDestroy_13_0(void **);
int version(void) {
    unsigned major, minor;
    void *handle = 0;
    return nvJitLinkVersion(&major, &minor) ? -1 : __nvJitLinkDestroy_13_0(&handle) == 99 ? -2 : (int)major;
}",
};

const ASKS_RUNTIME: &str = "int cudaRuntimeGetVersion(int *);
int version(void) { int is = 0; return cudaRuntimeGetVersion(&is) ? -1 : is; }";
const RUNTIME: &str = "int cudaRuntimeGetVersion(int *version) { return 99; }";

const RUNTIME_12: Vendor =
    Vendor { soname: "libcudart.so.12", file: "libcudart.so.12", library: RUNTIME, user: ASKS_RUNTIME };
const RUNTIME_13: Vendor =
    Vendor { soname: "libcudart.so.13", file: "libcudart.so.13", library: RUNTIME, user: ASKS_RUNTIME };

/// Compiles a C text with options into a file.
fn compile(text: &str, options: &[&str], to: &Path) {
    let source = to.with_added_extension("c");
    fs::write(&source, text).expect("the folder is ours");
    let mut compiler = Command::new("cc");
    compiler.args(["-fPIC", "-w"]).arg(&source).args(options).arg("-o").arg(to);
    assert!(compiler.status().expect("a C compiler is installed").success(), "{} does not compile", to.display());
}

impl Vendor {
    /// Builds the library, with the version of its symbols, and an object that is linked with it. Returns both paths.
    fn build(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let (library, user) = (folder.join(self.file), folder.join(format!("uses-{}", self.file)));
        let versions = folder.join(format!("{}.map", self.file));
        fs::write(&versions, format!("{} {{ global: *; }};\n", self.soname)).expect("the folder is ours");
        let versions = format!("-Wl,--version-script={}", versions.display());
        compile(self.library, &["-shared", &format!("-Wl,-soname,{}", self.file), &versions], &library);
        let library_path = library.to_str().expect("the path is UTF-8");
        compile(self.user, &["-shared", library_path, "-Wl,-rpath,$ORIGIN"], &user);
        (library, user)
    }
}

fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("symbol_versions").join(test);
    fs::create_dir_all(&folder).expect("the folder is created");
    folder
}

/// Loads objects under `freehold run`, and checks what their functions return.
fn assert_loads(folder: &Path, objects: &[&Path], versions: &[i32]) {
    let loader = folder.join("loader");
    compile(LOADER, &["-ldl"], &loader);
    let mut run = Command::new(binary());
    run.args(["run", "--device", "soft", "--"]).arg(&loader).args(objects);
    let output = run.env("XDG_CACHE_HOME", cache()).stdin(Stdio::null()).output().expect("the binary starts");
    let error = String::from_utf8_lossy(&output.stderr);
    let mut expected = String::new();
    versions.iter().for_each(|version| writeln!(expected, "{version}").expect("a string grows"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}, {error}", output.status);
    assert_eq!((output.status.code(), &*error), (Some(0), ""));
}

#[test]
fn an_object_that_is_linked_with_a_library_gets_ours() {
    for (vendor, version) in [(LINKER_12, 12), (LINKER_13, 13), (RUNTIME_12, 12090), (RUNTIME_13, 13000)] {
        let folder = folder(&format!("object-{}", vendor.file));
        let (_, user) = vendor.build(&folder);
        assert_loads(&folder, &[&user], &[version]);
    }
}

#[test]
fn an_object_gets_a_library_that_the_program_has_loaded_by_its_path() {
    for (vendor, version) in [(LINKER_12, 12), (LINKER_13, 13), (RUNTIME_12, 12090), (RUNTIME_13, 13000)] {
        let folder = folder(&format!("path-{}", vendor.file));
        let (library, user) = vendor.build(&folder);
        assert_loads(&folder, &[&library, &user], &[version]);
    }
}

#[test]
fn a_process_may_have_both_versions_of_a_library() {
    let folder = folder("both");
    let ((path_12, user_12), (path_13, user_13)) = (LINKER_12.build(&folder), LINKER_13.build(&folder));
    assert_loads(&folder, &[&user_12, &user_13], &[12, 13]);
    assert_loads(&folder, &[&path_13, &user_12, &user_13], &[12, 13]);
    assert_loads(&folder, &[&path_12, &path_13, &user_13, &user_12], &[13, 12]);
}

#[test]
fn an_object_finds_a_library_that_a_wheel_has_renamed() {
    let renamed = [
        (Vendor { file: "libcudart-d0da41ae.so.12", ..RUNTIME_12 }, 12090),
        (Vendor { file: "libcudart-d0da41ae.so.13.0.96", ..RUNTIME_13 }, 13000),
        (Vendor { file: "libnvJitLink-d0da41ae.so.12", ..LINKER_12 }, 12),
        (Vendor { file: "libnvJitLink-d0da41ae.so.13.0.88", ..LINKER_13 }, 13),
    ];
    for (vendor, version) in renamed {
        let folder = folder(vendor.file);
        let (library, user) = vendor.build(&folder);
        assert_loads(&folder, &[&user], &[version]);
        assert_loads(&folder, &[&library, &user], &[version]);
    }
}
