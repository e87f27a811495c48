//! The step of `cargo xtask test` that runs programs of the CUDA runtime API on the software device.
//!
//! Each program in `crates/runtime/tests/programs` is compiled with nvcc, which pip installs, and linked with the shared and
//! with the static runtime. What it prints must be what `NAME.out` has. A first line `// nvcc: WORDS` adds words to the
//! compiler's: options, and further files, in folders of their own. Results are kept in the target folder, under a hash of
//! everything that they are made of.
//!
//! Another case compares the symbols of our runtime libraries with those of NVIDIA's, and one runs a program whose fat binary
//! is damaged, byte by byte: it ends with an error of CUDA or as if nothing had happened.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::apt;
use crate::command::{Failure, command, outputs, root, run_quiet, target};
use crate::headers::{HEADERS_12, exported};
use crate::kernels::for_each_parallel;
use crate::nvcc::{BATCH, Member, NVCC, Toolkit, batch_source};
use crate::pip::install;
use crate::programs::freehold;
use crate::runner::Case;

const PROGRAMS: &str = "crates/runtime/tests/programs";

/// Options of every compilation: PTX alone, for the oldest target that this compiler knows.
const OPTIONS: &[&str] = &["-arch=compute_75"];

/// Programs with one of these are compiled alone. The others are compiled in batches, where they share their headers, their macros and
/// the names of C, and where kernels have other names.
const ALONE: &[&str] = &["// nvcc:", "#define", "extern \"C\"", "cudaFuncGetName"];

/// What the programs of a batch share.
const HEADERS: [&str; 2] = ["show.h", "texture.h"];

/// The ways to link a program.
const LINKS: [&str; 2] = ["shared", "static"];

/// The program whose fat binary is damaged, the first bytes of a container of images, and the length of its header and of
/// that of its first image.
const DAMAGED: &str = "saxpy";
const FATBIN_MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
const FATBIN_HEADERS_BYTES: usize = 16 + 64;

/// What a launch returns if its image cannot be used.
const IMAGE_ERRORS: &[&str] =
    &["cudaErrorInvalidKernelImage", "cudaErrorNoKernelImageForDevice", "cudaErrorInvalidPtx"];

/// Runs a program, and compares what it prints with a file.
const COMPARE: &str =
    "output=$(mktemp) && \"$0\" run --device soft -- \"$1\" > \"$output\" && diff -u \"$2\" \"$output\"";

/// Compiles all programs, and returns a case for each and for each way to link it.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    install(&HEADERS_12)?;
    let programs = compiled()?;
    let again = "cargo xtask test --only 'CUDA programs'";
    let mut cases = vec![
        Case::call("CUDA runtime symbols", again, compare_symbols),
        Case::call("CUDA program with a damaged fat binary", again, run_damaged),
    ];
    for (program, link) in programs.iter().flat_map(|program| LINKS.map(|link| (program, link))) {
        let (path, expected) = (program.path(link), program.expected());
        let mut run = command("sh", &["-c", COMPARE]);
        run.arg(freehold()).arg(&path).arg(&expected);
        let again = format!(
            "{} run --device soft -- {} | diff -u {} -",
            freehold().display(),
            path.display(),
            expected.display()
        );
        cases.push(Case::command(format!("CUDA program {}, {link} runtime", program.name), again, run));
        if link == "shared" {
            cases.push(with_pool(program, &path, &expected));
        }
    }
    Ok(cases)
}

/// Compiles all programs.
fn compiled() -> Result<Vec<Program>, Failure> {
    apt::packages()?;
    let toolkit = Toolkit::install()?;
    let programs = programs()?;
    let missing = programs.iter().filter(|program| !program.mark().exists());
    let (mut together, alone): (Vec<_>, Vec<_>) = missing.partition(|program| program.member.is_some());
    together.sort_by_key(|program| program.member.as_ref().map(Member::includes));
    // Those with options first: some take a minute.
    let batches: Vec<_> = alone.chunks(1).chain(together.chunks(BATCH)).collect();
    for_each_parallel(&batches, |batch| match batch {
        [program] => program.build(&toolkit),
        batch => build_batch(&toolkit, batch),
    })?;
    Ok(programs)
}

/// Compiles all programs. Returns the name of each, and the path of the one that is linked with the shared runtime.
pub(crate) fn paths() -> Result<Vec<(String, PathBuf)>, Failure> {
    let programs = compiled()?;
    Ok(programs.into_iter().map(|program| (program.name.clone(), program.path(LINKS[0]))).collect())
}

/// Returns the case of a program with frees that do not wait.
fn with_pool(program: &Program, path: &Path, expected: &Path) -> Case {
    let mut run = command("sh", &["-c", COMPARE]);
    run.env("FREEHOLD_CUDAFREE", "deferred").arg(freehold()).arg(path).arg(expected);
    let (freehold, path, expected) = (freehold(), path.display(), expected.display());
    let again =
        format!("FREEHOLD_CUDAFREE=deferred {} run --device soft -- {path} | diff -u {expected} -", freehold.display());
    Case::command(format!("CUDA program {}, deferred frees", program.name), again, run)
}

struct Program {
    name: String,
    /// Its files, relative to the folder of the programs.
    sources: Vec<String>,
    options: Vec<String>,
    /// A hash of its files, the options, the versions of the compiler and the names of the results.
    hash: u64,
    /// None if it must be compiled alone.
    member: Option<Member>,
}

impl Program {
    /// Reads the program with a name, and how it is compiled.
    fn read(name: &str, headers: &[String]) -> Result<Self, Failure> {
        let first = format!("{name}.cu");
        let text = read(&first)?;
        let words = text.lines().next().and_then(|line| line.strip_prefix("// nvcc:")).unwrap_or_default();
        let (more, options) = words.split_whitespace().map(str::to_owned).partition(|word| word.ends_with(".cu"));
        let (more, options): (Vec<_>, Vec<_>) = (more, options);
        let sources: Vec<_> = [first].into_iter().chain(more).collect();
        let mut hasher = DefaultHasher::new();
        (NVCC.names, OPTIONS, ALONE, LINKS.map(|link| format!("{name}-{link}")), &options, headers).hash(&mut hasher);
        for source in &sources {
            (source, read(source)?).hash(&mut hasher);
        }
        let is_alone = name == DAMAGED || ALONE.iter().any(|word| text.contains(word));
        let member = (!is_alone).then(|| Member::new(name, &text));
        Ok(Self { name: name.to_owned(), sources, options, hash: hasher.finish(), member })
    }

    fn folder(&self) -> PathBuf {
        work().join(format!("{}-{:016x}", self.name, self.hash))
    }

    fn expected(&self) -> PathBuf {
        root().join(PROGRAMS).join(format!("{}.out", self.name))
    }

    fn path(&self, link: &str) -> PathBuf {
        self.folder().join(format!("{}-{link}", self.name))
    }

    fn mark(&self) -> PathBuf {
        self.folder().join("complete")
    }

    /// Makes its folder, without what was compiled from other versions of its files.
    fn begin(&self) -> Result<(), Failure> {
        if !self.expected().exists() {
            return Err(format!("{} is missing", self.expected().display()));
        }
        self.remove_old()?;
        fs::create_dir_all(self.folder()).map_err(told("created", &self.folder()))
    }

    /// Compiles and links it.
    fn build(&self, toolkit: &Toolkit) -> Result<(), Failure> {
        self.begin()?;
        let mut objects = Vec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let object = self.folder().join(format!("{index}.o"));
            compile(toolkit, &self.options, Path::new(source), &object)?;
            objects.push(object);
        }
        for kind in LINKS {
            link(toolkit, &self.options, kind, &objects, &self.path(kind))?;
        }
        fs::write(self.mark(), "").map_err(told("written", &self.mark()))
    }

    /// Removes what was compiled from other versions of its files.
    fn remove_old(&self) -> Result<(), Failure> {
        for entry in fs::read_dir(work()).map_err(told("read", &work()))? {
            let path = entry.map_err(told("read", &work()))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('-'));
            if name.is_some_and(|(name, _)| name == self.name) {
                fs::remove_dir_all(&path).map_err(told("removed", &path))?;
            }
        }
        Ok(())
    }
}

/// Compiles and links programs at once. Each gets the results under its name.
fn build_batch(toolkit: &Toolkit, batch: &[&Program]) -> Result<(), Failure> {
    batch.iter().try_for_each(|program| program.begin())?;
    let first = batch[0].folder();
    let (source, object) = (first.join("batch.cu"), first.join("batch.o"));
    let members = batch.iter().filter_map(|program| program.member.as_ref());
    fs::write(&source, batch_source(&HEADERS, members)).map_err(told("written", &source))?;
    compile(toolkit, &["-I".to_owned(), ".".to_owned()], &source, &object)?;
    for kind in LINKS {
        let linked = first.join(kind);
        link(toolkit, &[], kind, std::slice::from_ref(&object), &linked)?;
        for program in batch {
            let path = program.path(kind);
            fs::hard_link(&linked, &path).map_err(told("linked", &path))?;
        }
    }
    batch.iter().try_for_each(|program| fs::write(program.mark(), "").map_err(told("written", &program.mark())))
}

fn compile(toolkit: &Toolkit, options: &[String], source: &Path, object: &Path) -> Result<(), Failure> {
    run_quiet(toolkit.nvcc(PROGRAMS).args(OPTIONS).args(options).arg("-c").arg(source).arg("-o").arg(object))
}

fn link(toolkit: &Toolkit, options: &[String], kind: &str, objects: &[PathBuf], to: &Path) -> Result<(), Failure> {
    let mut nvcc = toolkit.nvcc(PROGRAMS);
    run_quiet(nvcc.args(OPTIONS).args(options).args(["-cudart", kind]).args(objects).arg("-o").arg(to))
}

/// Returns all programs. A file in a folder is a part of one.
fn programs() -> Result<Vec<Program>, Failure> {
    let folder = root().join(PROGRAMS);
    let mut names = Vec::new();
    let mut headers = Vec::new();
    for entry in fs::read_dir(&folder).map_err(told("read", &folder))? {
        let name = entry.map_err(told("read", &folder))?.file_name().to_string_lossy().into_owned();
        match name.rsplit_once('.') {
            Some((program, "cu")) => names.push(program.to_owned()),
            Some((_, "h")) => headers.push(name),
            _ => {}
        }
    }
    names.sort_unstable();
    headers.sort_unstable();
    let headers = headers.iter().map(|header| read(header)).collect::<Result<Vec<_>, _>>()?;
    names.iter().map(|name| Program::read(name, &headers)).collect()
}

/// What our libraries have in addition: functions that `libcudart.so.12` forwards to, because they differ in CUDA 12, those for calls
/// of the driver with a limit or a checker, and announcements of pools.
const OWN_PREFIXES: [&str; 4] = ["freehold_v12_cuda", "freehold_limit_cu", "freehold_calls_cu", "freehold_check_"];

/// Compares the symbols of our runtime libraries with NVIDIA's.
fn compare_symbols() -> Result<(), Failure> {
    let deps = freehold().with_file_name("deps");
    let (old, new) = (install(&HEADERS_12)?, install(&NVCC)?);
    for (ours, theirs) in [
        ("libfreehold_cudart12.so", old.join("nvidia/cuda_runtime/lib/libcudart.so.12")),
        ("libfreehold_runtime.so", new.join("nvidia/cu13/lib/libcudart.so.13")),
    ] {
        let (have, want) = (exported(&deps.join(ours))?, exported(&theirs)?);
        let missing: Vec<_> = want.difference(&have).collect();
        let is_ours = |name: &str| OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let extra: Vec<_> = have.difference(&want).filter(|name| !is_ours(name)).collect();
        if !missing.is_empty() || !extra.is_empty() {
            return Err(format!("{ours} lacks {missing:?}, and has {extra:?}, which NVIDIA's library lacks"));
        }
    }
    Ok(())
}

/// Runs a program with every third byte of the headers of its fat binary changed in turn.
fn run_damaged() -> Result<(), Failure> {
    let programs = programs()?;
    let program = programs.iter().find(|program| program.name == DAMAGED).ok_or("the program to damage is missing")?;
    let path = program.path("shared");
    let whole = fs::read(&path).map_err(told("read", &path))?;
    let expected = fs::read(program.expected()).map_err(told("read", &program.expected()))?;
    let magic = whole.windows(4).rposition(|word| *word == FATBIN_MAGIC).ok_or("the program has no fat binary")?;
    let offsets: Vec<usize> = (magic..magic + FATBIN_HEADERS_BYTES).step_by(3).collect();
    for_each_parallel(&offsets, |&offset| {
        let copy = program.folder().join(format!("damaged-{offset}"));
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x55;
        fs::write(&copy, damaged).map_err(told("written", &copy))?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).map_err(told("made executable", &copy))?;
        let mut run = command(freehold(), &["run", "--device", "soft", "--"]);
        let output = outputs(run.arg(&copy).stderr(Stdio::piped()))
            .map_err(|error| format!("freehold cannot be run: {error}"))?;
        fs::remove_file(&copy).map_err(told("removed", &copy))?;
        let (status, printed) = (output.status, String::from_utf8_lossy(&output.stdout));
        let is_undisturbed = output.stdout == expected;
        let is_refused = IMAGE_ERRORS.iter().any(|error| printed.starts_with(&format!("launch: {error}\n")));
        if status.success() && (is_undisturbed || is_refused) {
            return Ok(());
        }
        let (byte, error) = (offset - magic, String::from_utf8_lossy(&output.stderr));
        Err(format!("byte {byte}: status {:?}, signal {:?}: {printed}{error}", status.code(), status.signal()))
    })
}

/// Returns the folder for what is compiled.
fn work() -> PathBuf {
    target().join("cuda-programs")
}

/// Reads a file of a program.
fn read(name: &str) -> Result<String, Failure> {
    let path = root().join(PROGRAMS).join(name);
    fs::read_to_string(&path).map_err(told("read", &path))
}

fn told(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| format!("{} cannot be {what}: {error}", path.display())
}
