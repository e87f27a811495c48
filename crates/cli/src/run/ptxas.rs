//! `ptxas` of the software device: checks PTX and writes an image that the software driver loads, in place of machine code.
//!
//! Compilers such as Triton start a program of this name, with the command line that NVIDIA documents. `freehold run` puts a
//! link of that name, which leads to this program, before theirs. Options that direct code generation have no effect.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use freehold_softcuda::{Linker, LoadError};

/// The name under which this program is `ptxas`.
pub(crate) const NAME: &str = "ptxas";

/// What `--version` prints: compilers look for the release, which decides the newest PTX that they write.
const VERSION: &str = "ptxas of Freehold's software device\nCuda compilation tools, release 13.0, V13.0.0\n";

const OUTPUT: &str = "elf.o";

/// Options without a value.
const FLAGS: &[&str] = &[
    "--verbose",
    "-v",
    "--generate-line-info",
    "-lineinfo",
    "--device-debug",
    "-g",
    "--suppress-debug-info",
    "-suppress-debug-info",
    "--suppress-stack-size-warning",
    "-suppress-stack-size-warning",
    "--disable-optimizer-constants",
    "-disable-optimizer-consts",
    "--disable-warnings",
    "-w",
    "--warn-on-spills",
    "-warn-spills",
    "--warn-on-local-memory-usage",
    "-warn-lmem-usage",
    "--warn-on-double-precision-use",
    "-warn-double-usage",
    "--warning-as-error",
    "-Werror",
    "--return-at-end",
    "-ret-end",
    "--preserve-relocs",
    "-preserve-relocs",
    "--position-independent-code",
    "-pic",
    "--extensible-whole-program",
    "-ewp",
    "--allow-expensive-optimizations",
    "-allow-expensive-optimizations",
];

/// Options with a value, which follows after `=` or as the next word.
const VALUES: &[&str] = &[
    "--gpu-name",
    "-arch",
    "--opt-level",
    "-O",
    "--maxrregcount",
    "-maxrregcount",
    "--fmad",
    "-fmad",
    "--def-load-cache",
    "-dlcm",
    "--def-store-cache",
    "-dscm",
    "--force-load-cache",
    "-flcm",
    "--force-store-cache",
    "-fscm",
    "--machine",
    "-m",
    "--entry",
    "-e",
    "--split-compile",
    "-split-compile",
    "--override-directive-values",
    "-override-directive-values",
    "--device-function-maxrregcount",
    "-func-maxrregcount",
    "--optimize-float-atomics",
    "--regAllocOptLevel",
    "--sp-bounds-check",
];

#[derive(Debug, thiserror::Error)]
enum PtxasError {
    #[error("ptxas fatal   : Unknown option '{}'", .0.display())]
    Option(OsString),
    #[error("ptxas fatal   : Option '{}' needs a value", .0.display())]
    NoValue(OsString),
    #[error("ptxas fatal   : One input file is expected, {0} are given")]
    Inputs(usize),
    #[error("ptxas fatal   : Failed to read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("ptxas fatal   : Failed to write {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}", .0.trim_end())]
    Ptx(String),
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Version,
    Compile { input: PathBuf, output: PathBuf, is_relocatable: bool },
}

/// Returns whether this program was started under the name `ptxas`.
pub(crate) fn is_called() -> bool {
    env::args_os().next().is_some_and(|path| Path::new(&path).file_name() == Some(OsStr::new(NAME)))
}

/// Does what the command line says. The statuses are those of NVIDIA's program: 255 for an error in the PTX.
pub(crate) fn run() -> ExitCode {
    let outcome = parse(env::args_os().skip(1)).and_then(|request| match request {
        Request::Version => {
            let path = PathBuf::from("the version");
            io::stdout().write_all(VERSION.as_bytes()).map_err(|source| PtxasError::Write { path, source })
        }
        Request::Compile { input, output, is_relocatable } => compile(&input, &output, is_relocatable),
    });
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("{error}");
    ExitCode::from(if matches!(error, PtxasError::Ptx(_)) { 255 } else { 1 })
}

fn parse(words: impl Iterator<Item = OsString>) -> Result<Request, PtxasError> {
    let mut words = words.peekable();
    let (mut inputs, mut output, mut is_relocatable) = (Vec::new(), PathBuf::from(OUTPUT), false);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if name.starts_with('-') => (name, Some(OsString::from(value))),
            _ => (text.as_ref(), None),
        };
        match name {
            "--version" | "-V" => return Ok(Request::Version),
            "--output-file" | "-o" => {
                output = value.or_else(|| words.next()).ok_or(PtxasError::NoValue(word.clone()))?.into();
            }
            "--compile-only" | "-c" => is_relocatable = true,
            _ if VALUES.contains(&name) => {
                value.or_else(|| words.next()).ok_or(PtxasError::NoValue(word.clone()))?;
            }
            _ if FLAGS.contains(&name) || is_level(name) => {}
            _ if name.starts_with('-') => return Err(PtxasError::Option(word)),
            _ => inputs.push(PathBuf::from(word)),
        }
    }
    let count = inputs.len();
    let Ok([input]) = <[PathBuf; 1]>::try_from(inputs) else { return Err(PtxasError::Inputs(count)) };
    Ok(Request::Compile { input, output, is_relocatable })
}

/// Returns whether a word is an optimization level, `-O3`.
fn is_level(word: &str) -> bool {
    matches!(word.strip_prefix("-O"), Some("0" | "1" | "2" | "3" | "4"))
}

fn compile(input: &Path, output: &Path, is_relocatable: bool) -> Result<(), PtxasError> {
    let text = fs::read(input).map_err(|source| PtxasError::Read { path: input.to_owned(), source })?;
    let refused = |LoadError { log, code, .. }| {
        let is_silent = log.is_empty();
        PtxasError::Ptx(if is_silent {
            format!("ptxas fatal   : {} is not PTX ({code})", input.display())
        } else {
            log
        })
    };
    let mut linker = Linker::default();
    linker.add(&text).map_err(refused)?;
    // A part of a program keeps its undefined references, as text.
    let image = if is_relocatable { text } else { linker.link().map_err(refused)? };
    fs::write(output, image).map_err(|source| PtxasError::Write { path: output.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_of_triton_is_understood() {
        let line =
            "-lineinfo --fmad=false -v --gpu-name=sm_90a --opt-level 3 --regAllocOptLevel=2 /tmp/a.ptx -o /tmp/a.ptx.o";
        let (input, output) = (PathBuf::from("/tmp/a.ptx"), PathBuf::from("/tmp/a.ptx.o"));
        assert_eq!(parsed(line), Ok(Request::Compile { input, output, is_relocatable: false }));
        let (input, output) = (PathBuf::from("b.ptx"), PathBuf::from("elf.o"));
        assert_eq!(parsed("-c -O2 -arch sm_80 b.ptx"), Ok(Request::Compile { input, output, is_relocatable: true }));
        assert_eq!(parsed("--version"), Ok(Request::Version));
    }

    #[test]
    fn a_wrong_command_line_is_named() {
        assert_eq!(parsed("a.ptx -frobnicate"), Err("ptxas fatal   : Unknown option '-frobnicate'".to_owned()));
        assert_eq!(parsed("a.ptx -o"), Err("ptxas fatal   : Option '-o' needs a value".to_owned()));
        assert_eq!(parsed("a.ptx b.ptx"), Err("ptxas fatal   : One input file is expected, 2 are given".to_owned()));
        assert_eq!(parsed(""), Err("ptxas fatal   : One input file is expected, 0 are given".to_owned()));
    }

    #[test]
    fn ptx_becomes_an_image_and_an_error_has_its_line() {
        let folder = env::temp_dir().join(format!("freehold-ptxas-{}", std::process::id()));
        fs::create_dir(&folder).expect("the folder is new");
        let (input, output) = (folder.join("a.ptx"), folder.join("a.o"));
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func f;\n.entry k() { call f; ret; }\n";
        fs::write(&input, text).expect("the folder is ours");
        let error = compile(&input, &output, false).expect_err("f is not defined").to_string();
        assert_eq!(error, "ptxas fatal   : undefined reference to 'f'");
        compile(&input, &output, true).expect("another part can define f");
        assert_eq!(fs::read(&output).expect("it was written"), text.as_bytes());
        fs::write(&input, text.replace("call f;", "")).expect("the folder is ours");
        compile(&input, &output, false).expect("the text is complete");
        assert!(fs::read(&output).expect("it was written").starts_with(b"\x7fELF"));
        fs::write(&input, text.replace("ret;", "rett;")).expect("the folder is ours");
        let error = compile(&input, &output, false).expect_err("there is no such instruction").to_string();
        assert!(error.starts_with("ptxas application ptx input, line 5; error"), "{error}");
        fs::remove_dir_all(&folder).expect("the folder is ours");
    }
}
