//! The layers of the crates, and a test that reads the imports of their files. A file imports files of its own layer and of lower
//! ones, and imports never form a cycle.
//!
//! An import is a `use` of an item of the same crate, or a path in the code (`crate::a::b`, `super::c`). An import through a
//! re-export counts for the file that declares the item. A file that contains only modules and re-exports imports nothing. Code
//! behind `#[cfg(test)]` does not count.

mod graph;
mod read;

/// The checked crates, each with its layers from bottom to top. A layer is a module of the crate and everything in it; of two
/// layers that contain a file, the one with the longer path counts. The crate root, `lib.rs` or
/// `main.rs`, is above all layers.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "broker",
        &["os", "protocol", "state", "client", "process", "fdstore", "scrubber", "worker", "daemon", "role", "gpu"],
    ),
    ("freehold", &["base", "ledger", "error", "ordering", "pool", "trace", "device", "api"]),
    ("testing", &["random", "effort", "child", "process", "misuse"]),
    ("remote", &["proto", "rpc", "sync", "convert", "error", "transport", "client", "server"]),
    (
        "check",
        &[
            "finding",
            "elsewhere",
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
    ("capi", &["pools", "last_error", "call", "memory", "vector"]),
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
    ("libcuda", &["exports"]),
    ("mesh", &["error", "progress", "plan", "strip", "notes", "worker", "parent", "anywhere"]),
    (
        "xtask",
        &[
            "cpu",
            "command",
            "apt",
            "pip",
            "runner",
            "programs",
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
];

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::LAYERS;
    use super::graph::{cycles, upward};
    use super::read::imports_of;

    fn sources(name: &str) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = ["crates", "examples", "."].map(|within| root.join(within).join(name));
        let found = folder.iter().find(|folder| folder.join("Cargo.toml").exists());
        found.unwrap_or_else(|| panic!("there is no crate {name}")).join("src")
    }

    #[test]
    fn imports_point_downward_and_form_no_cycle() {
        let mut wrong = Vec::new();
        for (name, layers) in LAYERS {
            let (modules, imports) = imports_of(&sources(name));
            for layer in *layers {
                assert!(modules.iter().any(|module| module == layer), "{name} has no module {layer}");
            }
            let found = upward(&imports, layers).into_iter().chain(cycles(&imports));
            wrong.extend(found.map(|line| format!("{name}: {line}")));
        }
        assert!(wrong.is_empty(), "{} errors:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn a_program_without_a_library_is_read_from_its_main_file() {
        let (_, imports) = imports_of(&sources("cli"));
        assert!(imports.iter().any(|import| import.from.is_empty()), "no import of main.rs was found");
    }
}
