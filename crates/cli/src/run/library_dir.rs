//! The folder in which programs find the libraries of the software device: the driver, the CUDA runtime over it, and
//! the one that replaces statically linked runtimes. They are embedded in this program, which writes them there. Its folder
//! `bin` has a link to this program under the name of the assembler.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, process};

use super::ptxas;

/// The names that a linker looks for, each a link to a library.
const LINKS: &[(&str, &str)] = &[("libcuda.so", "libcuda.so.1"), ("libcudart.so", "libcudart.so.13")];

/// The folder within, which has the libraries for a GPU: all but the driver.
const GPU_FOLDER: &str = "gpu";

/// The libraries in that folder, each a link.
const GPU_LINKS: &[&str] = &["libcudart.so.12", "libcudart.so.13", "libfreehold_audit.so", "libfreehold_limit.so"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryDirError {
    #[error("{} belongs to another user or is writable by others: remove it, or set XDG_CACHE_HOME", .0.display())]
    NotPrivate(PathBuf),
    #[error("{} contains a colon, which LD_LIBRARY_PATH does not allow: set XDG_CACHE_HOME", .0.display())]
    Colon(PathBuf),
    #[error("failed to write {}: {source}: set XDG_CACHE_HOME to a writable folder", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

mod embedded {
    use std::slice;

    macro_rules! embedded {
        ($($name:literal, $start:literal, $end:literal;)*) => {
            /// Returns each library with the name that programs look for.
            pub(super) fn libraries() -> [(&'static str, &'static [u8]); [$($name),*].len()] {
                [$({
                    unsafe extern "C" {
                        #[link_name = $start]
                        static START: u8;
                        #[link_name = $end]
                        static END: u8;
                    }
                    let (start, end) = (&raw const START, &raw const END);
                    // SAFETY: the linker placed the library's bytes contiguously from `START` to `END`; they are
                    // initialized, never written, and live as long as the process.
                    ($name, unsafe { slice::from_raw_parts(start, end.addr() - start.addr()) })
                }),*]
            }
        };
    }

    include!(concat!(env!("OUT_DIR"), "/libraries.rs"));
}

/// Returns a folder with the libraries. It is not removed: the program may load from it at any time.
pub(crate) fn libraries() -> Result<PathBuf, LibraryDirError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        |source| LibraryDirError::Io { path, source }
    };
    let libraries = embedded::libraries();
    let base = base_dir();
    fs::create_dir_all(&base).map_err(refused(&base))?;
    // SAFETY: the call has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    let mine = base.join(format!("freehold-{user}"));
    create_private_dir(&mine, user)?;
    // One folder per set of libraries, so that a program's files never change.
    let folder = mine.join(format!("libraries-{:016x}", hash(&libraries)));
    create_private_dir(&folder, user)?;
    if folder.as_os_str().as_bytes().contains(&b':') {
        return Err(LibraryDirError::Colon(folder));
    }
    for (name, library) in libraries {
        let file = folder.join(name);
        write(&file, library).map_err(refused(&file))?;
    }
    for (name, library) in LINKS {
        let link = folder.join(name);
        replace_link(&link, Path::new(library)).map_err(refused(&link))?;
    }
    let bin = folder.join("bin");
    create_private_dir(&bin, user)?;
    let link = bin.join(ptxas::NAME);
    env::current_exe().and_then(|program| replace_link(&link, &program)).map_err(refused(&link))?;
    let gpu = folder.join(GPU_FOLDER);
    create_private_dir(&gpu, user)?;
    for name in GPU_LINKS {
        let link = gpu.join(name);
        replace_link(&link, &Path::new("..").join(name)).map_err(refused(&link))?;
    }
    Ok(folder)
}

/// Returns a folder with the CUDA runtime for NVIDIA's driver.
pub(super) fn gpu_libraries() -> Result<PathBuf, LibraryDirError> {
    Ok(libraries()?.join(GPU_FOLDER))
}

/// Returns this user's cache folder.
fn base_dir() -> PathBuf {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache"))).unwrap_or_else(env::temp_dir)
}

/// Creates a folder that only this user can write, or checks that an existing one is.
fn create_private_dir(folder: &Path, user: u32) -> Result<(), LibraryDirError> {
    let refused = |source| LibraryDirError::Io { path: folder.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(folder).map_err(refused)?;
    let is_ours = found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0;
    if is_ours { Ok(()) } else { Err(LibraryDirError::NotPrivate(folder.to_owned())) }
}

/// Writes `library` to `file` atomically.
fn write(file: &Path, library: &[u8]) -> io::Result<()> {
    if fs::read(file).is_ok_and(|found| found == library) {
        return Ok(());
    }
    let fresh = temporary_path(file);
    fs::write(&fresh, library)?;
    fs::rename(&fresh, file)
}

/// Points `link` to `file` atomically.
fn replace_link(link: &Path, file: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|to| to == file) {
        return Ok(());
    }
    let fresh = temporary_path(link);
    symlink(file, &fresh)?;
    fs::rename(&fresh, link)
}

/// Returns a path beside `path` that no other process uses.
fn temporary_path(path: &Path) -> PathBuf {
    path.with_added_extension(format!("{}.new", process::id()))
}

/// A hash of the libraries' names, lengths and checksums. Every start computes it, so their megabytes go through the
/// processor's own instruction for checksums.
fn hash(libraries: &[(&str, &[u8])]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, library) in libraries {
        (name, library.len(), crc32c::crc32c(library)).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("freehold-place-{}-{name}", process::id()));
        fs::create_dir(&folder).expect("the folder is new");
        folder
    }

    fn user() -> u32 {
        // SAFETY: the call has no arguments and cannot fail.
        unsafe { libc::geteuid() }
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let folder = folder("open");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("the folder is ours");
        assert!(
            matches!(create_private_dir(&folder, user()), Err(LibraryDirError::NotPrivate(path)) if path == folder)
        );
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("the folder is ours");
        create_private_dir(&folder, user()).expect("the folder is private now");
        fs::remove_dir(&folder).expect("the folder is empty");
    }

    #[test]
    fn a_folder_of_another_user_is_not_used() {
        let folder = folder("foreign");
        assert!(
            matches!(create_private_dir(&folder, user() + 1), Err(LibraryDirError::NotPrivate(path)) if path == folder)
        );
        fs::remove_dir(&folder).expect("the folder is empty");
    }

    #[test]
    fn a_symlink_instead_of_the_folder_is_not_followed() {
        let folder = folder("link");
        let link = folder.join("link");
        symlink("/", &link).expect("the link is new");
        assert!(matches!(create_private_dir(&link, user()), Err(LibraryDirError::NotPrivate(path)) if path == link));
        fs::remove_dir_all(&folder).expect("the folder is ours");
    }

    #[test]
    fn other_libraries_have_another_folder() {
        let libraries = [("a", &b"one"[..]), ("b", b"two")];
        let changed =
            [[("a", &b"one"[..]), ("b", b"twi")], [("a", b"onet"), ("b", b"wo")], [("c", b"one"), ("b", b"two")]];
        for changed in changed {
            assert_ne!(hash(&libraries), hash(&changed), "{changed:?}");
        }
    }

    #[test]
    fn a_link_to_another_target_is_replaced() {
        let folder = folder("stale");
        let link = folder.join("lib.so");
        symlink("/elsewhere", &link).expect("the link is new");
        replace_link(&link, Path::new("lib.so.1")).expect("the folder is ours");
        assert_eq!(fs::read_link(&link).expect("it is a link"), Path::new("lib.so.1"));
        assert_eq!(fs::read_dir(&folder).expect("it is a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn a_file_that_is_cut_is_written_again() {
        let folder = folder("cut");
        let file = folder.join("lib.so.1");
        fs::write(&file, b"lib").expect("the folder is ours");
        write(&file, b"library").expect("the folder is ours");
        assert_eq!(fs::read(&file).expect("it was written"), b"library");
        assert_eq!(fs::read_dir(&folder).expect("it is a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn each_embedded_library_is_a_whole_file_of_its_format() {
        for (name, library) in embedded::libraries() {
            assert_eq!(library[..4], *b"\x7fELF", "{name}");
            let headers = u64::from_le_bytes(library[40..48].try_into().expect("eight bytes"));
            assert!(headers < library.len() as u64, "the section headers at the end of {name} are missing");
        }
    }
}
