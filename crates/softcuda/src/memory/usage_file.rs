//! The usage file of a device: the memory that each process of one user uses, and the memory that they share.
//!
//! All these processes open the file. Each process has an entry, its account, while it lives. Shared memory has its own
//! account, which lives as long as any descriptor or mapping of that memory. No process needs to record that an account
//! has ended: the kernel drops the locks of a process that dies, and the locks of an open file with its last descriptor
//! and mapping. A process that counts usage checks which locks still exist.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard};

use rustix::process::geteuid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use self::locks::{
    TABLES_LOCK_BYTE, byte_range, is_alive, lock_process_slot, set_lock, set_tables_lock, unlocked_inodes,
};
use crate::base::sync::lock;

mod locks;
#[cfg(test)]
mod tests;

const MAGIC: u64 = u64::from_le_bytes(*b"freebook");
const VERSION: u64 = 1;

/// Maximum number of processes that use one device at once, and of live pieces of shared memory.
const PROCESSES_MAX: usize = 1024;
const SHARES_MAX: usize = 1 << 16;

const PROCESSES_AT: u64 = 4096;
const SHARES_AT: u64 = PROCESSES_AT + (PROCESSES_MAX * size_of::<ProcessEntry>()) as u64;
const FILE_BYTES: u64 = SHARES_AT + (SHARES_MAX * size_of::<ShareEntry>()) as u64;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: u64,
    version: u64,
    total_bytes: u64,
    /// Number of entries of each table that were ever used.
    processes: u64,
    shares: u64,
}

/// The account of a process. Its byte of the file is locked while the process lives.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ProcessEntry {
    /// Zero in an unused entry.
    pid: u64,
    used_bytes: u64,
}

/// The account of memory that several processes can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ShareEntry {
    /// The inode of the memory's file; zero in an unused entry.
    inode: u64,
    used_bytes: u64,
    /// The process that made the memory, counted from 1, while it still holds it: its own lock then shows that the
    /// memory is alive.
    owner: u64,
}

/// The account that a charge is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// This process.
    Own,
    /// Shared memory, by its index in the table.
    Shared(u32),
}

/// The usage file, open in this process.
#[derive(Debug)]
pub(crate) struct UsageFile {
    path: PathBuf,
    /// The file's descriptor, for the child of a fork, where the mutex may never be released.
    descriptor: RawFd,
    /// The process that opened the file. A child that was forked without fork handlers has another id.
    process: u32,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// This process's index in the table, until it leaves.
    own_slot: Option<usize>,
}

impl UsageFile {
    /// Opens the usage file of device `index` of a machine, and an account in it for this process.
    pub(crate) fn open(machine: &str, index: usize, total_bytes: u64) -> io::Result<Self> {
        let folder = folder()?;
        let path = folder.join(format!("{machine}.{total_bytes}.{index}"));
        let told = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Self::open_in(&folder, &path, machine, total_bytes).map_err(told)
    }

    fn open_in(folder: &Path, path: &Path, machine: &str, total_bytes: u64) -> io::Result<Self> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(path)?;
            if file.metadata()?.uid() != geteuid().as_raw() {
                return Err(io::Error::other("the usage file belongs to another user"));
            }
            set_tables_lock(&file, libc::F_WRLCK)?;
            // The last process may have removed the file after it was opened and before it was locked.
            if file.metadata()?.nlink() > 0 {
                if file.metadata()?.len() == 0 {
                    remove_stale_files(folder, machine);
                }
                let own = register_process(&file, total_bytes);
                set_tables_lock(&file, libc::F_UNLCK)?;
                let (descriptor, own) = (file.as_raw_fd(), Some(own?));
                let (process, open) = (process::id(), Mutex::new(Open { file, own_slot: own }));
                return Ok(Self { path: path.to_owned(), descriptor, process, open });
            }
        }
    }

    /// Takes the lock. No other process, and no other thread of this one, reads or writes while it is held.
    fn lock_tables(&self) -> io::Result<TablesGuard<'_>> {
        TablesGuard::acquire(lock(&self.open))
    }

    /// Returns how much of the device no process uses.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let guard = self.lock_tables()?;
        let mut tables = guard.read()?;
        tables.reclaim_dead()?;
        Ok(tables.free_bytes())
    }

    /// Adds to an account. Returns false if the device does not have `bytes` free.
    pub(crate) fn charge(&self, account: Account, bytes: u64) -> io::Result<bool> {
        let guard = self.lock_tables()?;
        let mut tables = guard.read()?;
        if bytes > tables.free_bytes() {
            tables.reclaim_dead()?;
        }
        let fits = bytes <= tables.free_bytes();
        if fits {
            guard.update(&mut tables, account, |used| used.saturating_add(bytes))?;
        }
        Ok(fits)
    }

    /// Subtracts bytes from an account that [`charge`](Self::charge) added.
    pub(crate) fn uncharge(&self, account: Account, bytes: u64) -> io::Result<()> {
        let guard = self.lock_tables()?;
        let mut tables = guard.read()?;
        guard.update(&mut tables, account, |used| used.saturating_sub(bytes))
    }

    /// Moves `bytes` from this process to a new account for the memory whose file is `inode`.
    pub(crate) fn share(&self, inode: u64, bytes: u64) -> io::Result<Account> {
        let guard = self.lock_tables()?;
        let mut tables = guard.read()?;
        if tables.free_share_slot().is_none() {
            tables.reclaim_dead()?;
        }
        let index = tables.free_share_slot().ok_or(io::ErrorKind::StorageFull)?;
        let owner = guard.own_slot()? as u64 + 1;
        guard.update(&mut tables, Account::Own, |used| used.saturating_sub(bytes))?;
        tables.write_share(index, ShareEntry { inode, used_bytes: bytes, owner })?;
        Ok(Account::Shared(u32::try_from(index).expect("the table is shorter than 2^32")))
    }

    /// Records that this process no longer holds what it shared. Other holders keep the account alive.
    pub(crate) fn release_share(&self, account: Account, inode: u64) -> io::Result<()> {
        let Account::Shared(index) = account else { return Ok(()) };
        let guard = self.lock_tables()?;
        let mut tables = guard.read()?;
        let index = index as usize;
        match tables.shares.get(index).copied() {
            Some(share) if share.inode == inode => tables.write_share(index, ShareEntry { owner: 0, ..share }),
            _ => Ok(()),
        }
    }

    /// Closes the file in the child of a fork, which makes no more calls. Another thread of the parent may hold the
    /// lock at the time of the fork. The lock lasts until every copy of the descriptor is closed, so if the parent is
    /// killed, no process waits for the child.
    pub(crate) fn close_in_fork_child(&self) {
        // SAFETY: the descriptor is that of `open`, which is not used in the child, where every call is refused, and
        // not dropped, because the driver never is. `close` is async-signal-safe.
        unsafe { libc::close(self.descriptor) };
    }

    /// Ends this process's account, unless a thread is using the file, so that another process can take its entry: this
    /// process may take long to exit. Removes the file if no account is left.
    pub(crate) fn close(&self) -> io::Result<()> {
        if self.process != process::id() {
            return Ok(());
        }
        let open = self.open.try_lock().map_err(|_| io::ErrorKind::ResourceBusy)?;
        let mut guard = TablesGuard::acquire(open)?;
        let own = guard.own_slot()?;
        guard.open.own_slot = None;
        let mut tables = guard.read()?;
        tables.write_process(own, ProcessEntry::default())?;
        set_lock(tables.file, libc::F_SETLK, byte_range(TABLES_LOCK_BYTE + 1 + own as u64, libc::F_UNLCK))?;
        tables.reclaim_dead()?;
        // If this file was removed before, another file may have its name.
        if tables.is_empty() && tables.file.metadata()?.nlink() > 0 {
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

/// Holds the lock on the usage file until it is dropped.
struct TablesGuard<'b> {
    open: MutexGuard<'b, Open>,
}

impl Drop for TablesGuard<'_> {
    fn drop(&mut self) {
        let released = set_tables_lock(&self.open.file, libc::F_UNLCK);
        assert!(released.is_ok(), "an own lock can be released");
    }
}

impl<'b> TablesGuard<'b> {
    fn acquire(open: MutexGuard<'b, Open>) -> io::Result<Self> {
        set_tables_lock(&open.file, libc::F_WRLCK)?;
        Ok(Self { open })
    }

    /// Returns this process's index in the table. It has none once it has left, though its threads may still run.
    fn own_slot(&self) -> io::Result<usize> {
        self.open.own_slot.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn read(&self) -> io::Result<Tables<'_>> {
        Tables::read(&self.open.file)
    }

    fn update(&self, tables: &mut Tables, account: Account, change: impl FnOnce(u64) -> u64) -> io::Result<()> {
        match account {
            Account::Own => {
                let own = self.own_slot()?;
                let process = tables.processes.get(own).copied().ok_or(io::ErrorKind::InvalidData)?;
                tables.write_process(own, ProcessEntry { used_bytes: change(process.used_bytes), ..process })
            }
            Account::Shared(index) => {
                let share = tables.shares.get(index as usize).copied().ok_or(io::ErrorKind::InvalidData)?;
                tables.write_share(index as usize, ShareEntry { used_bytes: change(share.used_bytes), ..share })
            }
        }
    }
}

/// All entries of a usage file, read under the lock.
struct Tables<'f> {
    file: &'f File,
    header: Header,
    processes: Vec<ProcessEntry>,
    shares: Vec<ShareEntry>,
}

impl<'f> Tables<'f> {
    fn read(file: &'f File) -> io::Result<Self> {
        let corrupt = || io::Error::other("the usage file of the device cannot be read: remove it");
        let mut head = [0; size_of::<Header>()];
        file.read_exact_at(&mut head, 0).map_err(|_| corrupt())?;
        let header = Header::read_from_bytes(&head).map_err(|_| corrupt())?;
        let fits = header.processes <= PROCESSES_MAX as u64 && header.shares <= SHARES_MAX as u64;
        if header.magic != MAGIC || header.version != VERSION || !fits {
            return Err(corrupt());
        }
        let mut processes = vec![ProcessEntry::default(); header.processes as usize];
        file.read_exact_at(processes.as_mut_bytes(), PROCESSES_AT).map_err(|_| corrupt())?;
        let mut shares = vec![ShareEntry::default(); header.shares as usize];
        file.read_exact_at(shares.as_mut_bytes(), SHARES_AT).map_err(|_| corrupt())?;
        Ok(Self { file, header, processes, shares })
    }

    fn write_process(&mut self, index: usize, process: ProcessEntry) -> io::Result<()> {
        if index >= self.processes.len() {
            self.processes.resize(index + 1, ProcessEntry::default());
            self.header.processes = self.processes.len() as u64;
            self.file.write_all_at(self.header.as_bytes(), 0)?;
        }
        self.processes[index] = process;
        self.file.write_all_at(process.as_bytes(), PROCESSES_AT + (index * size_of::<ProcessEntry>()) as u64)
    }

    fn write_share(&mut self, index: usize, share: ShareEntry) -> io::Result<()> {
        if index >= self.shares.len() {
            self.shares.resize(index + 1, ShareEntry::default());
            self.header.shares = self.shares.len() as u64;
            self.file.write_all_at(self.header.as_bytes(), 0)?;
        }
        self.shares[index] = share;
        self.file.write_all_at(share.as_bytes(), SHARES_AT + (index * size_of::<ShareEntry>()) as u64)
    }

    fn free_bytes(&self) -> u64 {
        let processes = self.processes.iter().map(|process| process.used_bytes);
        let shares = self.shares.iter().map(|share| share.used_bytes);
        self.header.total_bytes.saturating_sub(processes.chain(shares).fold(0, u64::saturating_add))
    }

    fn free_share_slot(&self) -> Option<usize> {
        let vacant = self.shares.iter().position(|share| share.inode == 0);
        vacant.or((self.shares.len() < SHARES_MAX).then_some(self.shares.len()))
    }

    /// Returns whether no account is left.
    fn is_empty(&self) -> bool {
        self.processes.iter().all(|process| process.pid == 0) && self.shares.iter().all(|share| share.inode == 0)
    }

    /// Returns whether the process that made shared memory lives and still holds it.
    fn has_live_owner(&self, share: &ShareEntry) -> bool {
        let owner = usize::try_from(share.owner).ok().and_then(|owner| owner.checked_sub(1));
        owner.and_then(|owner| self.processes.get(owner)).is_some_and(|process| process.pid != 0)
    }

    /// Ends the accounts of dead processes and of memory that no process holds.
    fn reclaim_dead(&mut self) -> io::Result<()> {
        for index in 0..self.processes.len() {
            let process = self.processes[index];
            if process.pid != 0 && !is_alive(self.file, index)? {
                self.write_process(index, ProcessEntry::default())?;
            }
        }
        let is_orphan = |tables: &Self, share: &ShareEntry| share.inode != 0 && !tables.has_live_owner(share);
        let orphans: Vec<_> =
            self.shares.iter().filter(|share| is_orphan(self, share)).map(|share| share.inode).collect();
        if orphans.is_empty() {
            return Ok(());
        }
        let gone = unlocked_inodes(&orphans)?;
        for index in 0..self.shares.len() {
            let share = self.shares[index];
            if !is_orphan(self, &share) {
                continue;
            }
            if gone.contains(&share.inode) {
                self.write_share(index, ShareEntry::default())?;
            } else if share.owner != 0 {
                // The memory's owner is dead, and a new process with the same index is not its owner.
                self.write_share(index, ShareEntry { owner: 0, ..share })?;
            }
        }
        Ok(())
    }
}

/// Assigns an entry to this process, under the lock. Initializes an empty file, and one whose creator was killed or ran
/// out of space before it had written the header.
fn register_process(file: &File, total_bytes: u64) -> io::Result<usize> {
    let mut head = [0; size_of::<Header>()];
    if file.metadata()?.len() == 0 || file.read_exact_at(&mut head, 0).is_ok() && head.iter().all(|&byte| byte == 0) {
        file.set_len(FILE_BYTES)?;
        let header = Header { magic: MAGIC, version: VERSION, total_bytes, processes: 0, shares: 0 };
        file.write_all_at(header.as_bytes(), 0)?;
    }
    let mut tables = Tables::read(file)?;
    if tables.header.total_bytes != total_bytes {
        return Err(io::Error::other("the usage file belongs to a device with another memory size"));
    }
    tables.reclaim_dead()?;
    let vacant = tables.processes.iter().position(|process| process.pid == 0);
    let own = vacant.unwrap_or(tables.processes.len());
    if own >= PROCESSES_MAX {
        return Err(io::Error::other("the device is in use by 1024 processes, which is the maximum"));
    }
    lock_process_slot(file, own)?;
    tables.write_process(own, ProcessEntry { pid: process::id().into(), used_bytes: 0 })?;
    Ok(own)
}

/// Removes usage files beside `path` in which no account is alive: processes that were killed leave them behind. Files
/// that cannot be examined stay.
///
/// Usage files of `machine` itself are skipped: closing a file ends the locks that this process has on it.
fn remove_stale_files(folder: &Path, machine: &str) {
    let own = format!("{machine}.");
    let others = fs::read_dir(folder).into_iter().flatten().flatten();
    let others = others.filter(|entry| !entry.file_name().to_string_lossy().starts_with(&own));
    for other in others.map(|entry| entry.path()) {
        let Ok(file) = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&other) else {
            continue;
        };
        // The lock ends with the file.
        if set_lock(&file, libc::F_OFD_SETLK, byte_range(TABLES_LOCK_BYTE, libc::F_WRLCK)).is_err() {
            continue;
        }
        let Ok(mut tables) = Tables::read(&file) else { continue };
        if tables.reclaim_dead().is_ok() && tables.is_empty() {
            // Another process may have removed it first.
            drop(fs::remove_file(&other));
        }
    }
}

/// Returns the folder of this user's machines, which no other user can write to.
fn folder() -> io::Result<PathBuf> {
    let shared = Path::new("/dev/shm");
    let parent = if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() };
    let user = geteuid().as_raw();
    let folder = parent.join(format!("freehold-{user}"));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!(
            "{} must be a folder that belongs to the current user and is writable by nobody else",
            folder.display()
        )));
    }
    Ok(folder)
}
