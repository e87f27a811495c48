//! Where the broker of a user is found. The only place of this crate that looks at the environment.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The variable that names another socket.
pub const VARIABLE: &str = "FREEHOLD_BROKER";

/// The socket of this user's broker: what [`VARIABLE`] says, or one in the user's runtime folder, or one below `/tmp`.
pub fn socket() -> PathBuf {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let user = rustix::process::getuid().as_raw();
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_dir()) {
        Some(folder) => Path::new(&folder).join("freehold").join("broker"),
        None => PathBuf::from(format!("/tmp/freehold-{user}")).join("broker"),
    }
}

/// Makes the folder of a socket, for this user alone, and refuses one that is another user's.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] where the folder is another user's or others may write to it.
pub fn prepare(socket: &Path) -> io::Result<()> {
    let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = std::fs::symlink_metadata(folder)?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
    if is_ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let text = format!("{} is not a folder that this user alone can write to: name another socket", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}
