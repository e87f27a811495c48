//! The locks that show which accounts are alive: bytes of the usage file, and the files of shared memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, memfd_create};

/// The byte whose lock protects the rest of the file. The bytes after it belong to processes.
pub(super) const TABLES_LOCK_BYTE: u64 = 0;

/// How many scans of the list of locks must miss a lock before it counts as gone.
const SCANS: usize = 4;

/// Returns whether the process with this account is alive. The query uses the open file description, with which the
/// locks of all processes conflict, including this one's: it sees another copy of the driver in this process, but not
/// the program that this process was before `exec`.
pub(super) fn is_alive(file: &File, index: usize) -> io::Result<bool> {
    let mut found = byte_range(TABLES_LOCK_BYTE + 1 + index as u64, libc::F_WRLCK);
    // SAFETY: the descriptor is open, and the structure, which outlives the call, is what the command reads and writes.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut found) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.l_type != libc::F_UNLCK as libc::c_short)
}

/// Returns the inodes among these on which no process holds a lock.
pub(super) fn unlocked_inodes(inodes: &[u64]) -> io::Result<BTreeSet<u64>> {
    let mut unseen: BTreeSet<u64> = inodes.iter().copied().collect();
    for _ in 0..SCANS {
        if unseen.is_empty() {
            break;
        }
        for locked in locked_inodes()? {
            unseen.remove(&locked);
        }
    }
    Ok(unseen)
}

/// Returns the memory files on which a process holds a lock. One can be missed if others end while the list is read.
fn locked_inodes() -> io::Result<Vec<u64>> {
    let device = rustix::fs::fstat(memfd_create("freehold-audit", MemfdFlags::CLOEXEC)?)?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let prefix = format!("{major:02x}:{minor:02x}:");
    // The kernel returns one page per read, and the entries of one page are consistent.
    let (mut text, mut page) = (Vec::new(), [0; 4096]);
    let mut locks = File::open("/proc/locks")?;
    loop {
        match locks.read(&mut page)? {
            0 => break,
            bytes => text.extend_from_slice(&page[..bytes]),
        }
    }
    // "1: OFDLCK ADVISORY  READ -1 00:01:4711 0 EOF"
    let text = String::from_utf8_lossy(&text);
    let inode = |line: &str| line.split_whitespace().find_map(|word| word.strip_prefix(&prefix)?.parse().ok());
    Ok(text.lines().filter_map(inode).collect())
}

pub(super) fn byte_range(at: u64, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}

/// Locks the byte of a process for it. A child of a fork does not inherit the lock, and it ends with the process.
pub(super) fn lock_process_slot(file: &File, index: usize) -> io::Result<()> {
    set_lock(file, libc::F_SETLK, byte_range(TABLES_LOCK_BYTE + 1 + index as u64, libc::F_WRLCK))
}

/// Takes or releases the tables' lock, which excludes every other open of the file, also by another copy of the driver
/// in this process.
pub(super) fn set_tables_lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    set_lock(file, libc::F_OFD_SETLKW, byte_range(TABLES_LOCK_BYTE, kind))
}

pub(super) fn set_lock(file: &File, command: libc::c_int, wanted: libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open, and the structure, which outlives the call, is what the command reads.
        let set = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const wanted) };
        match io::Error::last_os_error() {
            _ if set == 0 => return Ok(()),
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}
