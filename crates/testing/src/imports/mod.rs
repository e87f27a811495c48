//! The layers of the crates, and a test that reads the imports of their files. A file imports files of its own layer and of lower
//! ones, and imports never form a cycle.
//!
//! An import is a `use` of an item of the same crate, or a path in the code (`crate::a::b`, `super::c`). An import through a
//! re-export counts for the file that declares the item. A file that contains only modules and re-exports imports nothing. Code
//! behind `#[cfg(test)]` does not count.

mod graph;
mod read;

/// Every crate of the workspace, each with its layers from bottom to top. A layer is a module of the crate and everything in it; of two
/// layers that contain a file, the one with the longer path counts. The crate root, `lib.rs` or
/// `main.rs`, is above all layers.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "broker",
        &[
            "os", "wire", "protocol", "state", "client", "tensors", "process", "fdstore", "scrubber", "worker",
            "daemon", "role", "gpu",
        ],
    ),
    ("freehold", &["base", "ledger", "error", "ordering", "pool", "trace", "device", "api"]),
    ("testing", &["random", "effort", "child", "process", "misuse"]),
    ("remote", &["proto", "rpc", "sync", "convert", "error", "transport", "client", "server"]),
    (
        "check",
        &[
            "finding",
            "shared_frees",
            "sites",
            "clock",
            "access",
            "origin",
            "tasks",
            "shadow",
            "pending",
            "ages",
            "empty_parts",
            "blocks",
            "wording",
            "wrong_free",
            "words",
            "shared",
            "grid",
            "report",
            "conflict",
            "checker",
            "kernel_view",
            "calls::order",
            "calls::history",
            "calls::memory",
            "calls::describe",
            "calls::checker",
            "calls::submit",
            "calls",
        ],
    ),
    (
        "ptx",
        &[
            "error",
            "fault",
            "texture",
            "tensor_map",
            "observer",
            "memory",
            "arith",
            "syntax",
            "ir",
            "bounds",
            "lower",
            "image",
            "exec",
        ],
    ),
    (
        "mpi",
        &[
            "op",
            "error",
            "element",
            "raw",
            "settings",
            "staging",
            "liveness",
            "probe",
            "path",
            "node_peers",
            "world_inner",
            "transfer",
            "request",
            "progress",
            "collective::chunked",
            "world",
            "collective",
            "halo",
            "window",
            "probe_child",
        ],
    ),
    (
        "driver",
        &[
            "error",
            "handle",
            "cuda::code",
            "cuda::types",
            "cuda::array_types",
            "cuda::graph_types",
            "cuda::kernel_types",
            "cuda::managed_types",
            "cuda::mapping_types",
            "cuda::node_types",
            "cuda::api",
            "cuda::symbols",
            "backend",
            "cuda",
            "opencl",
        ],
    ),
    ("capi", &["pools", "last_error", "call", "memory", "sleep", "vector"]),
    (
        "cli",
        &[
            "output",
            "help",
            "broker",
            "devices",
            "run",
            "mpi",
            "check",
            "allocators",
            "ephemeral",
            "lab",
            "bench",
            "replay",
            "demo",
        ],
    ),
    ("libcuda", &["announced", "exports"]),
    ("mesh", &["error", "progress", "plan", "strip", "notes", "worker", "parent", "gpu_solver"]),
    (
        "xtask",
        &[
            "cpu",
            "command",
            "apt",
            "pip",
            "runner",
            "programs",
            "nvcc",
            "headers",
            "kernels",
            "cuda_programs",
            "corpus",
            "library",
            "fuzz",
            "grpc",
            "mpi",
            "opencl",
            "cudarc",
            "pycuda",
            "numba_cupy",
            "wheel",
            "torch",
            "rmm",
            "checked",
            "warm_path",
            "dependencies",
            "publish",
            "bundle",
            "steps",
            "soak",
        ],
    ),
    ("softcuda", &["base", "memory", "ffi", "engine", "objects", "space", "modules", "state", "api"]),
    ("audit", &["file", "redirect", "objects", "symbols"]),
    ("cudart12", &["list", "exports"]),
    ("interpose", &["exports"]),
    (
        "lab",
        &[
            "id",
            "cpu_time",
            "output_capture",
            "host_buffer",
            "runtime::functions",
            "failure",
            "fixture",
            "shared_host",
            "mapped",
            "latch",
            "kernels",
            "answer_text",
            "free_memory",
            "partner_request",
            "partner",
            "experiment",
            "experiments",
            "runtime",
            "opencl",
            "reference",
            "target",
            "trace",
            "child",
            "runner",
        ],
    ),
    ("nvjitlink", &["code", "options", "vendor", "link", "exports"]),
    ("nvjitlink12", &["exports"]),
    ("nvml", &["code", "devices", "exports"]),
    (
        "runtime",
        &[
            "code",
            "types",
            "node_types",
            "list",
            "log",
            "limit",
            "ready_blocks",
            "calls",
            "observe",
            "thread",
            "process",
            "runtime_pool",
            "registry",
            "shared_block",
            "api",
            "exports",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::LAYERS;
    use super::graph::{cycles, unlisted, upward};
    use super::read::imports_of;

    /// Folders with crates that the workspace excludes.
    const OTHER_WORKSPACES: &[&str] = &["fuzz", "python"];

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    /// The folders of all crates of the workspace.
    fn crates() -> Vec<PathBuf> {
        let listed = |folder: &str| {
            fs::read_dir(Path::new(ROOT).join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"))
        };
        let folders = ["crates", "examples", "."].into_iter().flat_map(listed);
        let folders = folders.map(|entry| entry.expect("the folder can be read").path());
        let is_crate = |folder: &PathBuf| folder.join("Cargo.toml").exists() && folder.join("src").exists();
        folders.filter(|folder| is_crate(folder) && !OTHER_WORKSPACES.contains(&name(folder))).collect()
    }

    fn name(folder: &Path) -> &str {
        folder.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    #[test]
    fn every_crate_has_layers() {
        let crates = crates();
        let mut found: Vec<_> = crates.iter().map(|folder| name(folder)).collect();
        let mut listed: Vec<_> = LAYERS.iter().map(|(name, _)| *name).collect();
        found.sort_unstable();
        listed.sort_unstable();
        assert_eq!(found, listed, "left: the crates, right: those in LAYERS");
    }

    #[test]
    fn imports_point_downward_and_form_no_cycle() {
        let mut wrong = Vec::new();
        for folder in crates() {
            let name = name(&folder);
            let Some((_, layers)) = LAYERS.iter().find(|(listed, _)| *listed == name) else { continue };
            let (modules, imports) = imports_of(&folder.join("src"));
            for layer in *layers {
                assert!(modules.iter().any(|module| module == layer), "{name} has no module {layer}");
            }
            let found = unlisted(&modules, layers).into_iter().chain(upward(&imports, layers)).chain(cycles(&imports));
            wrong.extend(found.map(|line| format!("{name}: {line}")));
        }
        assert!(wrong.is_empty(), "{} errors:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn a_program_without_a_library_is_read_from_its_main_file() {
        let (_, imports) = imports_of(&Path::new(ROOT).join("crates/cli/src"));
        assert!(imports.iter().any(|import| import.from.is_empty()), "no import of main.rs was found");
    }
}
