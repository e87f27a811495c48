//! The socket path of a user's broker. The only module of this crate that reads the environment.

use std::ffi::{CStr, CString};
use std::fs::Permissions;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, chown};

/// The environment variable that selects another socket.
pub const ENV_VAR: &str = "FREEHOLD_BROKER";

/// The longest path of a socket: `sun_path` has one byte more, for the terminating zero.
const PATH_BYTES_MAX: usize = 107;

/// A path that is too long for a socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} has {} bytes, a socket path at most {PATH_BYTES_MAX}: name a shorter one with --socket or {ENV_VAR}",
    .path.display(),
    .path.as_os_str().len()
)]
pub struct PathTooLong {
    path: PathBuf,
}

pub(crate) fn check_len(socket: &Path) -> Result<(), PathTooLong> {
    if socket.as_os_str().len() > PATH_BYTES_MAX { Err(PathTooLong { path: socket.to_owned() }) } else { Ok(()) }
}

/// Returns the path of this user's broker: from [`ENV_VAR`], or in the user's runtime directory, or below `/tmp`.
pub fn resolve() -> PathBuf {
    if let Some(path) = std::env::var_os(ENV_VAR).filter(|path| !path.is_empty()) {
        return path.into();
    }
    user_default()
}

/// The default path of this user's broker.
fn user_default() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_dir()) {
        Some(folder) => Path::new(&folder).join("freehold").join("broker"),
        None => PathBuf::from(format!("/tmp/freehold-{user}")).join("broker"),
    }
}

/// Checks the directory of a socket. If it is missing, the directory of the default path is created, with access for
/// this user alone. If a group is given, any missing directory is created, and users of the group can pass through it.
/// A directory of another user is refused.
///
/// # Errors
/// [`io::ErrorKind::InvalidFilename`] if the path is [`PathTooLong`]; [`io::ErrorKind::NotFound`] if the directory does
/// not exist; [`io::ErrorKind::PermissionDenied`] if the directory belongs to another user, if others may write to it,
/// or if the group cannot pass through.
pub fn prepare_dir(socket: &Path, group: Option<u32>) -> io::Result<()> {
    check_len(socket).map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))?;
    let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    let is_new = !folder.exists();
    if is_new && group.is_none() && socket != user_default() {
        let text = format!("{} does not exist: create it, or name another path with --socket", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if let Some(group) = group.filter(|_| is_new) {
        chown(folder, None, Some(Gid::from_raw(group)))?;
        std::fs::set_permissions(folder, Permissions::from_mode(0o710))?;
    }
    let refused = |text: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    let found = std::fs::symlink_metadata(folder)?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
    if !is_ours || found.mode() & 0o022 != 0 {
        let folder = folder.display();
        return refused(format!(
            "{folder} must be a directory that only this user can write to: name another path with --socket"
        ));
    }
    let Some(group) = group else { return Ok(()) };
    for above in folder.canonicalize()?.ancestors() {
        let found = std::fs::metadata(above)?;
        let lets_pass = found.mode() & 0o001 != 0 || (found.gid() == group && found.mode() & 0o010 != 0);
        if !lets_pass {
            let above = above.display();
            return refused(format!("group {group} cannot pass through {above}: name another path with --socket"));
        }
    }
    Ok(())
}

/// Whether a user may trust the listener at a socket: a broker sees everything in its memory, and any user that can
/// write to a directory can listen there. The broker of another user is trusted only in a directory of that user, and
/// only if it is not the default path.
pub(crate) fn is_trusted(socket: &Path, theirs: u32, own: u32) -> bool {
    if theirs == own || theirs == 0 {
        return true;
    }
    let Some(Ok(folder)) = socket.parent().map(std::fs::metadata) else { return false };
    socket != user_default() && folder.uid() == theirs && folder.mode() & 0o022 == 0
}

/// Returns the id of a group, given its name or id. `None` if there is no such group.
pub fn group_id(text: &str) -> Option<u32> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let name = CString::new(text).ok()?;
    let mut room = vec![0; 1 << 16];
    let mut found = MaybeUninit::<libc::group>::uninit();
    let mut outcome = std::ptr::null_mut();
    // SAFETY: `name` ends with a zero; `found` has room for a group, `room` for `room.len()` bytes of its text, and
    // `outcome` for a pointer. All outlive the call.
    let code =
        unsafe { libc::getgrnam_r(name.as_ptr(), found.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut outcome) };
    if code != 0 || outcome.is_null() {
        return None;
    }
    // SAFETY: the call found the group and initialized it.
    Some(unsafe { found.assume_init() }.gr_gid)
}

/// Returns the id of a user, given its name or id. `None` if there is no such user.
pub fn user_id(text: &str) -> Option<u32> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let name = CString::new(text).ok()?;
    let mut room = vec![0; 1 << 16];
    let mut found = MaybeUninit::<libc::passwd>::uninit();
    let mut outcome = std::ptr::null_mut();
    // SAFETY: `name` ends with a zero; `found` has room for a user, `room` for `room.len()` bytes of its text, and
    // `outcome` for a pointer. All outlive the call.
    let code =
        unsafe { libc::getpwnam_r(name.as_ptr(), found.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut outcome) };
    if code != 0 || outcome.is_null() {
        return None;
    }
    // SAFETY: the call found the user and initialized it.
    Some(unsafe { found.assume_init() }.pw_uid)
}

/// Names a user for a message: `nobody (user 65534)`, or only the number if it has no name here.
pub fn user_text(user: u32) -> String {
    user_name(user).map_or_else(|| format!("user {user}"), |name| format!("{name} (user {user})"))
}

/// Returns the name of a user, given its id. `None` if it has none.
pub fn user_name(user: u32) -> Option<String> {
    let mut room = vec![0; 1 << 16];
    let mut found = MaybeUninit::<libc::passwd>::uninit();
    let mut outcome = std::ptr::null_mut();
    // SAFETY: `found` has room for a user, `room` for `room.len()` bytes of its text, and `outcome` for a pointer. All
    // outlive the call.
    let code = unsafe { libc::getpwuid_r(user, found.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut outcome) };
    if code != 0 || outcome.is_null() {
        return None;
    }
    // SAFETY: the call found the user and initialized it.
    let found = unsafe { found.assume_init() };
    // SAFETY: the name ends with a zero and lies in `room`, which is still alive.
    let name = unsafe { CStr::from_ptr(found.pw_name) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_broker_is_believed_in_that_users_own_folder_alone() {
        let folder = std::env::temp_dir().join(format!("freehold-place-trust-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o710).create(&folder).unwrap();
        let (own, other) = (rustix::process::getuid().as_raw(), u32::MAX - 7);
        // The directory belongs to the user that runs this test; to any other user it is foreign.
        let (theirs, socket) = (own.max(1), folder.join("broker"));
        if own != 0 {
            assert!(is_trusted(&socket, theirs, other));
        }
        assert!(!is_trusted(&socket, other, other - 1), "the directory does not belong to the listener");
        assert!(!is_trusted(&user_default(), other, other - 1), "the default path");
        std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(!is_trusted(&socket, theirs, other), "another user could listen there");
        assert!(is_trusted(&socket, other, other) && is_trusted(&socket, 0, other));
        assert!(!is_trusted(&socket, other, 0), "root trusts no more than others");
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_path_of_107_bytes_is_the_longest() {
        let path = |bytes: usize| PathBuf::from(format!("/{}", "a".repeat(bytes - 1)));
        assert_eq!(check_len(&path(107)), Ok(()));
        let said = format!(
            "/{} has 108 bytes, a socket path at most 107: name a shorter one with --socket or FREEHOLD_BROKER",
            "a".repeat(107)
        );
        assert_eq!(check_len(&path(108)).unwrap_err().to_string(), said);
    }

    #[test]
    fn a_user_has_a_name_or_none() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_name(u32::MAX - 7), None);
    }

    #[test]
    fn a_user_has_a_number() {
        assert_eq!(user_id("root"), Some(0));
        assert_eq!(user_id("1234"), Some(1234));
        assert_eq!(user_id("no-such-user-here"), None);
        assert_eq!(user_id("a\0b"), None);
    }

    #[test]
    fn a_group_has_a_number() {
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("1234"), Some(1234));
        assert_eq!(group_id("no-such-group-here"), None);
        assert_eq!(group_id("a\0b"), None);
    }

    #[test]
    fn a_folder_that_a_group_cannot_pass_through_is_refused() {
        let folder = std::env::temp_dir().join(format!("freehold-place-{}", std::process::id()));
        let missing = prepare_dir(&folder.join("own/broker"), None).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(!folder.exists());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join("own")).unwrap();
        prepare_dir(&folder.join("own/broker"), None).unwrap();
        assert_eq!(std::fs::metadata(folder.join("own")).unwrap().mode() & 0o777, 0o700);
        let refused = prepare_dir(&folder.join("own/broker"), Some(4321)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
