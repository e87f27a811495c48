//! Tests of the usage file alone: which entries stay in it, and which do not.
//!
//! All usage files here belong to one machine and differ in size: a process that creates a usage file examines those of
//! other machines, and closing a file ends the locks that the process has on it.

use super::*;

const MIB: u64 = 1 << 20;

fn open(total_bytes: u64) -> UsageFile {
    UsageFile::open_in_test(total_bytes)
}

impl UsageFile {
    /// Opens a usage file of the machine that all tests here share. Each test uses its own `total_bytes`.
    pub(in crate::memory) fn open_in_test(total_bytes: u64) -> Self {
        Self::open(&format!("tests-{}", process::id()), 0, total_bytes).expect("a usage file can be made")
    }

    /// Calls `run` while the file is damaged.
    pub(in crate::memory) fn while_damaged(&self, run: impl FnOnce()) {
        let write = |header: Header| lock(&self.open).file.write_all_at(header.as_bytes(), 0).expect("it is open");
        let whole = header(self);
        write(Header { magic: 1, ..whole });
        run();
        write(whole);
    }
}

fn header(usage: &UsageFile) -> Header {
    usage.lock_tables().expect("no process holds the lock").read().expect("it is a usage file").header
}

#[test]
fn a_stale_entry_with_this_pid_is_reclaimed() {
    let usage = open(1024 * MIB);
    let guard = usage.lock_tables().expect("no process holds the lock");
    let former = ProcessEntry { pid: process::id().into(), used_bytes: 64 * MIB };
    guard.read().expect("it is a usage file").write_process(1, former).expect("the system has memory");
    drop(guard);
    assert_eq!(usage.free_bytes().expect("it is a usage file"), 1024 * MIB);
    usage.close().expect("no thread is using it");
}

#[test]
fn the_entry_of_a_second_driver_copy_in_this_process_is_kept() {
    let (one, other) = (open(1025 * MIB), open(1025 * MIB));
    assert!(other.charge(Account::Own, 64 * MIB).expect("it is a usage file"));
    assert_eq!(one.free_bytes().expect("it is a usage file"), 961 * MIB);
    other.close().expect("no thread is using it");
    one.close().expect("no thread is using it");
}

#[test]
fn a_closed_file_charges_nothing_and_frees_its_slot() {
    let (leaver, stayer) = (open(1026 * MIB), open(1026 * MIB));
    leaver.close().expect("no thread is using it");
    let charged = leaver.charge(Account::Own, MIB).map_err(|error| error.kind());
    assert_eq!(charged, Err(io::ErrorKind::NotFound));
    assert_eq!(stayer.free_bytes().expect("it is a usage file"), 1026 * MIB);
    assert!(!is_alive(&lock(&stayer.open).file, 0).expect("it is open"));
    assert!(is_alive(&lock(&stayer.open).file, 1).expect("it is open"));
    stayer.close().expect("no thread is using it");
}

#[test]
fn an_empty_file_is_initialized() {
    let usage = open(1027 * MIB);
    let path = usage.path.clone();
    usage.close().expect("no thread is using it");
    File::create(&path).expect("the folder is ours").set_len(FILE_BYTES).expect("it costs nothing");
    let usage = open(1027 * MIB);
    assert_eq!(header(&usage).total_bytes, 1027 * MIB);
    usage.close().expect("no thread is using it");
    assert!(!path.exists());
}

#[test]
fn a_file_that_replaced_ours_is_not_removed() {
    let old = open(1028 * MIB);
    fs::remove_file(&old.path).expect("the folder is ours");
    let new = open(1028 * MIB);
    old.close().expect("no thread is using it");
    assert!(new.path.exists());
    new.close().expect("no thread is using it");
    assert!(!new.path.exists());
}
