//! The objects of the program that are new, and the libraries that serve them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::file::{self, Contents, Function, Mapped};
use crate::redirect::{self, Target};

/// The CUDA libraries beside this one.
const DRIVER: &str = "libcuda.so.1";
const RUNTIME_12: &str = "libcudart.so.12";
pub(crate) const RUNTIME_13: &str = "libcudart.so.13";
const LINKER_12: &str = "libfreehold_nvjitlink12.so";
const LINKER_13: &str = "libfreehold_nvjitlink.so";

/// The name by which our linker asks for the library that the program wanted in its place.
const ORIGINAL_LINKER: &[u8] = b"freehold-original:libnvJitLink";

/// The compiler at run time, and its functions for machine code. Programs get those for PTX, which have the same arguments, in
/// their place: the compiler has both for a program that it compiled to machine code.
const COMPILER: &[u8] = b"libnvrtc.so.";
const COMPILER_FUNCTIONS: &[(&[u8], &[u8])] =
    &[(b"nvrtcGetCUBIN", b"nvrtcGetPTX"), (b"nvrtcGetCUBINSize", b"nvrtcGetPTXSize")];

/// Functions that tell the version of a runtime: CUDA 13 has the first, and CUDA 12 the second.
const ONLY_IN_13: &[u8] = b"cudaLogsCurrent";
const ONLY_IN_12: &[u8] = b"cudaGetDeviceProperties_v2";

#[derive(Debug)]
pub(crate) struct Objects {
    /// The folder with the libraries, or `None` if it cannot be found.
    folder: Option<PathBuf>,
    /// The full paths of the libraries, which the dynamic linker keeps.
    paths: HashMap<&'static str, CString>,
    /// What the program asked for when it got our linker: a full path, if it had one.
    original_linker: Option<CString>,
    /// Objects since the last call of [`Objects::redirect`], with their base addresses.
    new: Vec<(usize, PathBuf)>,
    /// The runtimes that the program has loaded.
    runtimes: HashMap<&'static str, Target>,
    /// The addresses of the compiler's functions for machine code, and of those that are bound in their place.
    compiler_functions: HashMap<usize, usize>,
}

/// Which bindings of an object's symbols are audited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audited {
    None,
    /// Those of symbols that it uses.
    Uses,
    /// Those of symbols that it defines.
    Definitions,
    /// Both.
    UsesAndDefinitions,
}

impl Objects {
    pub(crate) fn new() -> Self {
        let folder = own_path().and_then(|path| Some(path.parent()?.to_owned()));
        let path = |name: &'static str| {
            // On a GPU, the folder has no driver.
            let path = Some(folder.as_ref()?.join(name)).filter(|path| path.exists())?;
            Some((name, CString::new(path.into_os_string().into_vec()).ok()?))
        };
        let paths = [DRIVER, RUNTIME_12, RUNTIME_13, LINKER_12, LINKER_13].into_iter().filter_map(path).collect();
        let (runtimes, compiler_functions) = (HashMap::new(), HashMap::new());
        Self { folder, paths, original_linker: None, new: Vec::new(), runtimes, compiler_functions }
    }

    /// Returns the path of the library that is used in place of a requested one.
    pub(crate) fn replacement(&mut self, wanted: &[u8]) -> Option<&'static CStr> {
        if wanted == ORIGINAL_LINKER {
            return Some(leaked(self.original_linker.as_ref()?));
        }
        let Wanted { library, is_renamed } = wanted_library(wanted)?;
        // The dynamic linker must know a name that a wheel made up, for the objects that ask for symbols of it: so the search
        // goes on with that name, until there is a file to open.
        if is_renamed && !wanted.contains(&b'/') {
            return None;
        }
        if [LINKER_12, LINKER_13].contains(&library) {
            self.note_linker(wanted);
        }
        self.paths.get(library).map(leaked)
    }

    /// Returns the path of the file that is opened in place of one that the dynamic linker tries in its search of a name.
    pub(crate) fn file(&self, tried: &[u8]) -> Option<&'static CStr> {
        let wanted = wanted_library(tried).filter(|wanted| wanted.is_renamed)?;
        self.paths.get(wanted.library).map(leaked)
    }

    /// Notes a path of the linker that the program asks for. A name alone is looked up, and may lead nowhere.
    fn note_linker(&mut self, wanted: &[u8]) {
        if self.original_linker.is_none() || wanted.contains(&b'/') {
            self.original_linker = CString::new(wanted).ok();
        }
    }

    /// Notes a new object. The name of the program itself is empty.
    pub(crate) fn add(&mut self, base: usize, name: &[u8]) -> Audited {
        let path = if name.is_empty() { Path::new("/proc/self/exe") } else { Path::new(OsStr::from_bytes(name)) };
        if !self.is_software_device() {
            self.new.push((base, path.to_owned()));
            return Audited::None;
        }
        if is_compiler(path) {
            self.add_compiler(base, path);
            return Audited::UsesAndDefinitions;
        }
        self.new.push((base, path.to_owned()));
        Audited::Uses
    }

    /// Notes the functions of a compiler.
    fn add_compiler(&mut self, base: usize, path: &Path) {
        let Some(file) = Mapped::open(path) else { return };
        let is_wanted = |name: &[u8]| COMPILER_FUNCTIONS.iter().any(|(code, ptx)| name == *code || name == *ptx);
        let exports = file::exports_named(file.bytes(), is_wanted);
        let address = |name: &[u8]| Some(base + usize::try_from(*exports.get(name)?).ok()?);
        self.compiler_functions
            .extend(COMPILER_FUNCTIONS.iter().filter_map(|(code, ptx)| Some((address(code)?, address(ptx)?))));
    }

    /// Returns the address that a symbol is bound to instead of its own.
    pub(crate) fn binding(&self, name: &[u8], address: usize) -> Option<usize> {
        COMPILER_FUNCTIONS.iter().find(|(code, _)| *code == name)?;
        self.compiler_functions.get(&address).copied()
    }

    /// Returns the folder with the libraries.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Redirects the runtimes in all new objects.
    ///
    /// # Safety
    /// Nothing may run in the new objects.
    pub(crate) unsafe fn redirect(&mut self) {
        let new = std::mem::take(&mut self.new);
        let (ours, others): (Vec<_>, Vec<_>) = new.into_iter().partition(|(_, path)| self.is_ours(path));
        for (base, path) in ours {
            self.add_runtime(base, &path);
        }
        for (base, path) in others {
            let Some(file) = Mapped::open(&path) else { continue };
            match Contents::of(file.bytes()) {
                Contents::NoRuntime => {}
                // On a GPU, NVIDIA's runtime goes on working.
                Contents::Stripped if !self.is_software_device() => {}
                Contents::Stripped => report(&path, "contains a CUDA runtime without symbols"),
                Contents::Runtime { functions, code } => {
                    let Some(target) = self.runtime_for(&functions) else {
                        report(&path, "contains a CUDA runtime that is older than version 12");
                        continue;
                    };
                    // SAFETY: the caller guarantees that nothing runs in the object, and a runtime of its version
                    // serves it.
                    if let Err(error) = unsafe { redirect::redirect(base, &functions, &code, target) } {
                        report(&path, &format!("contains a CUDA runtime that cannot be replaced ({error})"));
                    }
                }
            }
        }
    }

    /// Whether the driver is ours.
    fn is_software_device(&self) -> bool {
        self.paths.contains_key(DRIVER)
    }

    fn is_ours(&self, path: &Path) -> bool {
        self.folder.is_some() && path.parent() == self.folder.as_deref()
    }

    /// Notes a runtime of ours.
    fn add_runtime(&mut self, base: usize, path: &Path) {
        let is_this = |name: &&str| path.file_name() == Some(OsStr::new(name));
        let Some(name) = [RUNTIME_12, RUNTIME_13].into_iter().find(is_this) else { return };
        if let Some(file) = Mapped::open(path) {
            self.runtimes.insert(name, Target { base, exports: file::exports(file.bytes()) });
        }
    }

    /// Returns the runtime of ours that has the version of a runtime with these functions.
    fn runtime_for(&self, functions: &[Function]) -> Option<&Target> {
        let has = |name: &[u8]| functions.iter().any(|function| function.name == name);
        match (has(ONLY_IN_13), has(ONLY_IN_12)) {
            (true, _) => self.runtimes.get(RUNTIME_13),
            (false, true) => self.runtimes.get(RUNTIME_12),
            (false, false) => None,
        }
    }
}

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// The library of ours that is given out.
    library: &'static str,
    /// Whether the file is not named as the library names itself.
    is_renamed: bool,
}

/// The libraries that are replaced, by the begin and the end of their names, which together are the whole name.
const REPLACED: &[(&str, &str, &str)] = &[
    ("libcudart", ".so.12", RUNTIME_12),
    ("libcudart", ".so.13", RUNTIME_13),
    ("libnvJitLink", ".so.12", LINKER_12),
    ("libnvJitLink", ".so.13", LINKER_13),
];

/// Returns the library that a path asks for: `libcudart.so.12.9.79` and `libcudart-d0da41ae.so.12` are `libcudart.so.12`.
fn wanted_library(path: &[u8]) -> Option<Wanted> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    if name == DRIVER.as_bytes() {
        return Some(Wanted { library: DRIVER, is_renamed: false });
    }
    REPLACED.iter().find_map(|&(begin, end, library)| {
        let rest = name.strip_prefix(begin.as_bytes())?;
        let at = rest.windows(end.len()).position(|part| part == end.as_bytes())?;
        let beyond = &rest[at + end.len()..];
        let is_version = beyond.is_empty() || beyond[0] == b'.';
        is_version.then_some(Wanted { library, is_renamed: rest.len() != end.len() })
    })
}

/// Returns a copy that stays: the dynamic linker reads it after the call, and each library is requested a few times.
fn leaked(path: &CString) -> &'static CStr {
    Box::leak(path.clone().into_boxed_c_str())
}

/// Returns whether an object is the driver, with whatever version is in its name.
pub(crate) fn is_driver(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name == b"libcuda.so" || name.starts_with(b"libcuda.so.")
}

fn is_compiler(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(COMPILER))
}

/// Returns the path from which this library was loaded.
fn own_path() -> Option<PathBuf> {
    let address: *const c_void = (own_path as fn() -> Option<PathBuf> as *const ()).cast();
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `found` is a valid place for the answer.
    if unsafe { libc::dladdr(address, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it filled the struct.
    let name = unsafe { found.assume_init() }.dli_fname;
    // SAFETY: the dynamic linker keeps the name, which ends in a NUL, for as long as this library is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Writes one sentence about an object to stderr.
fn report(path: &Path, what: &str) {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    eprintln!(
        "freehold: {} {what}, and cannot use the software device: link it with -cudart shared (in CMake, \
         CUDA_RUNTIME_LIBRARY Shared)",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_a_cuda_library_is_recognized_by_its_file_name() {
        let cases: &[(&str, Option<(&str, bool)>)] = &[
            ("libcudart.so.12", Some((RUNTIME_12, false))),
            ("/opt/cuda/lib64/libcudart.so.13", Some((RUNTIME_13, false))),
            ("libcudart.so.12.9.79", Some((RUNTIME_12, true))),
            ("libcudart-d0da41ae.so.12", Some((RUNTIME_12, true))),
            ("libcudart.so.11.0", None),
            ("libcudart.so.130", None),
            ("libcudart.so", None),
            ("/usr/lib/libcuda.so.1", Some((DRIVER, false))),
            ("libcuda.so.10", None),
            ("libcudadevrt.so.12", None),
            ("/site-packages/nvidia/cu13/lib/libnvJitLink.so.13", Some((LINKER_13, false))),
            ("libnvJitLink.so.12.9.86", Some((LINKER_12, true))),
            ("libnvJitLink.so.11", None),
            ("libc.so.6", None),
            ("", None),
        ];
        for (path, expected) in cases {
            let wanted = wanted_library(path.as_bytes()).map(|wanted| (wanted.library, wanted.is_renamed));
            assert_eq!(wanted, *expected, "{path}");
        }
    }

    #[test]
    fn the_driver_is_recognized_with_any_version() {
        for path in ["libcuda.so.1", "/usr/lib/libcuda.so.580.159.04", "libcuda.so"] {
            assert!(is_driver(path.as_bytes()), "{path}");
        }
        for path in ["libcudart.so.13", "libcuda.so1", "libcudadebugger.so.1", ""] {
            assert!(!is_driver(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn the_linker_that_a_program_wanted_is_found_by_ours() {
        let mut objects = Objects::new();
        let mut replacement = |wanted: &[u8]| objects.replacement(wanted).map(|path| path.to_bytes().to_vec());
        assert_eq!(replacement(ORIGINAL_LINKER), None);
        assert!(replacement(b"libnvJitLink.so.13").expect("it is replaced").ends_with(LINKER_13.as_bytes()));
        assert_eq!(replacement(ORIGINAL_LINKER), Some(b"libnvJitLink.so.13".to_vec()));
        assert!(replacement(b"/cuda/libnvJitLink.so.13").is_some());
        assert!(replacement(b"libnvJitLink.so.13").is_some());
        assert_eq!(replacement(ORIGINAL_LINKER), Some(b"/cuda/libnvJitLink.so.13".to_vec()));
    }

    #[test]
    fn only_the_compilers_functions_for_machine_code_are_bound_elsewhere() {
        let mut objects = Objects::new();
        objects.compiler_functions.insert(0x1000, 0x2000);
        assert_eq!(objects.binding(b"nvrtcGetCUBIN", 0x1000), Some(0x2000));
        assert_eq!(objects.binding(b"nvrtcGetCUBIN", 0x3000), None);
        assert_eq!(objects.binding(b"nvrtcGetPTX", 0x1000), None);
    }

    #[test]
    fn the_version_of_a_runtime_follows_from_its_functions() {
        let mut objects = Objects::new();
        for (base, name) in [(12, RUNTIME_12), (13, RUNTIME_13)] {
            objects.runtimes.insert(name, Target { base, exports: HashMap::new() });
        }
        let base = |names: &[&[u8]]| {
            let function = |name: &&[u8]| Function { name: name.to_vec(), address: 0, room: 64 };
            let functions: Vec<_> = names.iter().map(function).collect();
            objects.runtime_for(&functions).map(|target| target.base)
        };
        assert_eq!(base(&[b"cudaMalloc", ONLY_IN_13]), Some(13));
        assert_eq!(base(&[b"cudaMalloc", ONLY_IN_12]), Some(12));
        assert_eq!(base(&[b"cudaMalloc", b"cudaGetDeviceProperties"]), None);
    }
}
