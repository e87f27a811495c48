//! Where programs find the software driver's library: a folder of this user's with links named as NVIDIA's files are.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, process};

/// The names by which programs ask for the driver; the second is that of linkers.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error(
        "{file} is not beside {}: copy it there from target/release of the repository, where cargo build --release makes it",
        .0.display(), file = freehold_libcuda::FILE
    )]
    NoLibrary(PathBuf),
    #[error("{} belongs to another user or can be written by others; remove it, or set TMPDIR", .0.display())]
    NotOurs(PathBuf),
    #[error("{} cannot be in a list of folders, for it has a colon in its name; set TMPDIR", .0.display())]
    Colon(PathBuf),
    #[error("{} cannot be made: {source}", .path.display())]
    Refused { path: PathBuf, source: io::Error },
}

/// A folder in which `libcuda.so.1` is the software driver's. It stays: the program looks there whenever it likes.
pub(super) fn library() -> Result<PathBuf, PlaceError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        |source| PlaceError::Refused { path, source }
    };
    let program = env::current_exe().map_err(refused(Path::new("/proc/self/exe")))?;
    let library = beside(&program).ok_or(PlaceError::NoLibrary(program))?;
    let base = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    // SAFETY: the call takes nothing, and cannot fail.
    let user = unsafe { libc::geteuid() };
    let mine = base.unwrap_or_else(env::temp_dir).join(format!("freehold-{user}"));
    own_folder(&mine, user)?;
    // A folder for each build, so that the links of one never change under the programs of another.
    let folder = mine.join(format!("libcuda-{:016x}", hash(&library)));
    own_folder(&folder, user)?;
    if folder.as_os_str().as_bytes().contains(&b':') {
        return Err(PlaceError::Colon(folder));
    }
    for name in NAMES {
        let link = folder.join(name);
        point(&link, &library).map_err(refused(&link))?;
    }
    Ok(folder)
}

/// The library that was built with this program. Cargo leaves it in `deps`, and copies it beside the program only when
/// asked for it by name: the one there may be older.
fn beside(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let places = [folder.join("deps"), folder.to_owned()];
    places.into_iter().map(|place| place.join(freehold_libcuda::FILE)).find(|path| path.is_file())
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

/// Has `link` point to `library`, at every moment for whoever looks.
fn point(link: &Path, library: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|to| to == library) {
        return Ok(());
    }
    let fresh = link.with_extension(format!("{}.new", process::id()));
    symlink(library, &fresh)?;
    fs::rename(&fresh, link)
}

fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
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
        let link = folder.join("libcuda.so.1");
        symlink("/elsewhere", &link).expect("a link can be made");
        point(&link, Path::new("/library")).expect("the folder is ours");
        assert_eq!(fs::read_link(&link).expect("it is a link"), Path::new("/library"));
        assert_eq!(fs::read_dir(&folder).expect("it is a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
