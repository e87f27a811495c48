//! `libnvidia-ml.so.1` under `freehold run`, as PyTorch uses it: it looks up a list of functions when memory runs out, and fails
//! with an internal error, in place of that of memory, if one is missing or refuses.

use crate::common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{binary, cache};

/// Looks up what PyTorch 2.11 does, and asks for the processes that use the device.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
static const char *const names[] = {
    "nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetComputeRunningProcesses",
    "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetGpuFabricInfoV",
};
int main(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    for (int i = 0; i < sizeof names / sizeof *names; i++)
        if (!dlsym(library, names[i])) printf("%s is missing\n", names[i]);
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*find)(const char *, void **) = (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    int (*processes)(void *, unsigned *, void *) =
        (int (*)(void *, unsigned *, void *))dlsym(library, "nvmlDeviceGetComputeRunningProcesses");
    void *device, *room[16];
    unsigned count = 8;
    int initialized = init(), found = find("0000:01:00.0", &device), told = processes(device, &count, room);
    printf("%d %d %d %u\n", initialized, found, told, count);
    return 0;
}
"#;

#[test]
fn nvml_has_what_pytorch_looks_up() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nvml");
    fs::create_dir_all(&folder).expect("the folder is created");
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&source, PROGRAM).expect("the folder is ours");
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).arg("-ldl").status();
    assert!(compiled.expect("a C compiler is installed").success());
    let mut run = Command::new(binary());
    run.args(["run", "--device", "soft", "--"]).arg(&program);
    let output = run.env("XDG_CACHE_HOME", cache()).stdin(Stdio::null()).output().expect("the binary starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0 0 0\n", "{}", String::from_utf8_lossy(&output.stderr));
}
