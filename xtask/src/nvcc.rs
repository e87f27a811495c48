//! NVIDIA's compiler, which pip installs, and batches: many small programs compiled at once.
//!
//! nvcc needs most of its time for CUDA's headers. Therefore it compiles small programs together, each in a namespace, and the result
//! runs the one whose name its file has, up to the first `-`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::command::{Failure, command, root, target};
use crate::pip::{Packages, install};

pub(crate) const NVCC: Packages = Packages {
    folder: "nvcc-13",
    names: &[
        "nvidia-cuda-nvcc==13.0.88",
        "nvidia-cuda-crt==13.0.88",
        "nvidia-nvvm==13.0.88",
        "nvidia-cuda-runtime==13.0.96",
        "nvidia-cuda-cccl==13.0.85",
    ],
};

/// NVIDIA's compiler and runtime.
pub(crate) struct Toolkit {
    folder: PathBuf,
    /// A folder with the name that the linker looks for, which the package lacks.
    libraries: PathBuf,
}

impl Toolkit {
    pub(crate) fn install() -> Result<Self, Failure> {
        let folder = install(&NVCC)?.join("nvidia/cu13");
        let libraries = target().join("cuda-programs/lib");
        let link = libraries.join("libcudart.so");
        fs::create_dir_all(&libraries)
            .map_err(|error| format!("{} cannot be created: {error}", libraries.display()))?;
        match fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(format!("{} cannot be replaced: {error}", link.display()));
            }
            _ => {}
        }
        symlink(folder.join("lib/libcudart.so.13"), &link)
            .map_err(|error| format!("{} cannot be created: {error}", link.display()))?;
        Ok(Self { folder, libraries })
    }

    /// Returns a command that compiles in a folder, and finds the libraries.
    pub(crate) fn nvcc(&self, folder: &str) -> Command {
        let mut nvcc = command(self.folder.join("bin/nvcc"), &[]);
        nvcc.current_dir(root().join(folder)).arg("-L").arg(self.folder.join("lib")).arg("-L").arg(&self.libraries);
        nvcc
    }
}

/// How many programs are compiled at once.
pub(crate) const BATCH: usize = 15;

/// A program of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    name: String,
    /// Its lines that include a header of the system.
    includes: Vec<String>,
    /// The names of its macros.
    macros: Vec<String>,
}

impl Member {
    /// `text` is what is in `NAME.cu`.
    pub(crate) fn new(name: &str, text: &str) -> Self {
        Self {
            name: name.to_owned(),
            includes: text.lines().filter(|line| line.starts_with("#include <")).map(str::to_owned).collect(),
            macros: text.lines().filter_map(macro_name).map(str::to_owned).collect(),
        }
    }

    /// How many headers of the system it includes. Programs with large headers are best compiled together.
    pub(crate) fn includes(&self) -> usize {
        self.includes.len()
    }
}

/// Returns the name of the macro that a line defines.
fn macro_name(line: &str) -> Option<&str> {
    line.strip_prefix("#define ")?.split(|next: char| !next.is_alphanumeric() && next != '_').next()
}

/// Returns C++ that includes some programs, after the headers that all of them share.
pub(crate) fn batch_source<'a>(headers: &[&str], members: impl Iterator<Item = &'a Member> + Clone) -> String {
    let mut source: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    source += "#include <stdio.h>\n#include <string.h>\n";
    let includes: BTreeSet<_> = members.clone().flat_map(|member| &member.includes).collect();
    for include in includes {
        source += &format!("{include}\n");
    }
    source += "static int run(int (*program)(), int, char **) { return program(); }\n\
               static int run(int (*program)(int, char **), int count, char **words) { return program(count, words); }\n";
    for Member { name, macros, .. } in members.clone() {
        source +=
            &format!("#define main program\nnamespace program_{name} {{\n#include <{name}.cu>\n}}\n#undef main\n");
        for defined in macros {
            source += &format!("#undef {defined}\n");
        }
    }
    source += "int main(int count, char **words) {\n\
               const char *slash = strrchr(words[0], '/'), *name = slash ? slash + 1 : words[0];\n\
               size_t length = strcspn(name, \"-\");\n";
    for Member { name, .. } in members {
        let length = name.len();
        source += &format!(
            "if (length == {length} && !strncmp(name, \"{name}\", {length})) return run(program_{name}::program, count, words);\n"
        );
    }
    source + "fprintf(stderr, \"%s is not the name of a program of this file\\n\", name);\nreturn 2;\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_separates_the_names_and_the_macros_of_its_programs() {
        assert_eq!(macro_name("#ifdef FIXED"), None);
        let text = "#include <thread>\n#define DRIVER(name, ...) \\\n";
        let members = [Member::new("twice", text), Member::new("again", text)];
        let source = batch_source(&["corpus.h"], members.iter());
        let at = |part: &str| source.find(part).unwrap_or_else(|| panic!("no {part:?} in {source}"));
        assert_eq!(source.matches("#include <thread>").count(), 1);
        assert!(
            at("#include <corpus.h>") < at("#include <thread>")
                && at("#include <thread>") < at("namespace program_twice")
        );
        assert!(at("#include <twice.cu>") < at("#undef DRIVER") && at("#undef DRIVER") < at("#include <again.cu>"));
        assert!(source.contains("return run(program_again::program, count, words);"));
    }
}
