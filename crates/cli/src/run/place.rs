//! Where programs find the software driver's library: a folder of this user's with files named as NVIDIA's are. The library
//! is part of this program, which writes it there.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, process, slice};

/// The name by which programs ask for the driver, and that of linkers, which is a link to it.
const NAME: &str = "libcuda.so.1";
const LINKERS_NAME: &str = "libcuda.so";

#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error("{} belongs to another user or can be written by others; remove it, or set XDG_CACHE_HOME", .0.display())]
    NotOurs(PathBuf),
    #[error("{} cannot be in a list of folders, for it has a colon in its name; set XDG_CACHE_HOME", .0.display())]
    Colon(PathBuf),
    #[error("{} cannot be made: {source}; set XDG_CACHE_HOME to a folder that can be written to", .path.display())]
    Refused { path: PathBuf, source: io::Error },
}

mod linked {
    include!(concat!(env!("OUT_DIR"), "/library.rs"));

    /// The library, which the linker put here.
    pub(super) fn library() -> &'static [u8] {
        let (start, end) = (&raw const START, &raw const END);
        // SAFETY: the linker placed the library's bytes from `START` to `END`, in one piece, initialized; nobody writes
        // to them, and they stay as long as the process.
        unsafe { super::slice::from_raw_parts(start, end.addr() - start.addr()) }
    }
}

/// A folder in which `libcuda.so.1` is the software driver's. It stays: the program looks there whenever it likes.
pub(super) fn library() -> Result<PathBuf, PlaceError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        |source| PlaceError::Refused { path, source }
    };
    let library = linked::library();
    let base = base();
    fs::create_dir_all(&base).map_err(refused(&base))?;
    // SAFETY: the call takes nothing, and cannot fail.
    let user = unsafe { libc::geteuid() };
    let mine = base.join(format!("freehold-{user}"));
    own_folder(&mine, user)?;
    // A folder for each library, so that the files of one never change under the programs of another.
    let folder = mine.join(format!("libcuda-{:016x}", hash(library)));
    own_folder(&folder, user)?;
    if folder.as_os_str().as_bytes().contains(&b':') {
        return Err(PlaceError::Colon(folder));
    }
    let file = folder.join(NAME);
    write(&file, library).map_err(refused(&file))?;
    let link = folder.join(LINKERS_NAME);
    point(&link, Path::new(NAME)).map_err(refused(&link))?;
    Ok(folder)
}

/// Where this user's programs keep what they can make again.
fn base() -> PathBuf {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache"))).unwrap_or_else(env::temp_dir)
}

/// Makes a folder that only this user writes to, or finds that it is one.
fn own_folder(folder: &Path, user: u32) -> Result<(), PlaceError> {
    let refused = |source| PlaceError::Refused { path: folder.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(folder).map_err(refused)?;
    let is_ours = found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0;
    if is_ours { Ok(()) } else { Err(PlaceError::NotOurs(folder.to_owned())) }
}

/// Has `file` be `library`, whole at every moment for whoever looks.
fn write(file: &Path, library: &[u8]) -> io::Result<()> {
    if fs::read(file).is_ok_and(|found| found == library) {
        return Ok(());
    }
    let fresh = fresh(file);
    fs::write(&fresh, library)?;
    fs::rename(&fresh, file)
}

/// Has `link` point to `file`, at every moment for whoever looks.
fn point(link: &Path, file: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|to| to == file) {
        return Ok(());
    }
    let fresh = fresh(link);
    symlink(file, &fresh)?;
    fs::rename(&fresh, link)
}

/// A name beside `path` that no other process takes.
fn fresh(path: &Path) -> PathBuf {
    path.with_added_extension(format!("{}.new", process::id()))
}

fn hash(library: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("freehold-place-{}-{name}", process::id()));
        fs::create_dir(&folder).expect("a folder can be made");
        folder
    }

    fn user() -> u32 {
        // SAFETY: the call takes nothing, and cannot fail.
        unsafe { libc::geteuid() }
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let folder = folder("open");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
        assert!(matches!(own_folder(&folder, user()), Err(PlaceError::NotOurs(path)) if path == folder));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("it is ours");
        own_folder(&folder, user()).expect("now it is closed");
        fs::remove_dir(&folder).expect("it is empty");
    }

    #[test]
    fn a_folder_of_another_user_is_not_used() {
        let folder = folder("foreign");
        assert!(matches!(own_folder(&folder, user() + 1), Err(PlaceError::NotOurs(path)) if path == folder));
        fs::remove_dir(&folder).expect("it is empty");
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_is_not_followed() {
        let folder = folder("link");
        let link = folder.join("link");
        symlink("/", &link).expect("a link can be made");
        assert!(matches!(own_folder(&link, user()), Err(PlaceError::NotOurs(path)) if path == link));
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn a_link_to_elsewhere_is_set_right() {
        let folder = folder("stale");
        let link = folder.join(LINKERS_NAME);
        symlink("/elsewhere", &link).expect("a link can be made");
        point(&link, Path::new(NAME)).expect("the folder is ours");
        assert_eq!(fs::read_link(&link).expect("it is a link"), Path::new(NAME));
        assert_eq!(fs::read_dir(&folder).expect("it is a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn a_file_that_is_cut_is_written_again() {
        let folder = folder("cut");
        let file = folder.join(NAME);
        fs::write(&file, b"lib").expect("the folder is ours");
        write(&file, b"library").expect("the folder is ours");
        assert_eq!(fs::read(&file).expect("it was written"), b"library");
        assert_eq!(fs::read_dir(&folder).expect("it is a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn the_library_within_is_a_whole_file_of_its_format() {
        let library = linked::library();
        assert_eq!(library[..4], *b"\x7fELF");
        let headers = u64::from_le_bytes(library[40..48].try_into().expect("eight bytes"));
        assert!(headers < library.len() as u64, "its last part, the headers of its sections, is there");
    }
}
