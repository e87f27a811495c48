//! Tells other processes about frees of memory that they may have open, and receives theirs, for the checker.
//!
//! A file next to the findings has a line for each free of an exported block. A process that has such memory open reads the file
//! in each of its calls, before the call waits for anything. Work that its host has not waited for by then counts as unfinished
//! at the time of the free, unless it precedes a shared event, a host function or a word in memory, through which the owner may
//! have learned that it finished.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use freehold_check::shared_frees::SharedFree;
use freehold_check::{Checker, Epoch, QueueId};

use super::check::{self, checker, function};
use super::sync::lock;

/// What the name of the file has after that of the file of findings.
const SUFFIX: &str = ".frees";

/// What processes call a block: the memory that it is in, its offset there, and the number that its owner gave it.
pub(crate) type SharedBlock = (u64, u64, u64);

/// The numbers of the blocks that this process has exported.
static EXPORTED: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

static IMPORTED: Mutex<Option<Imported>> = Mutex::new(None);
static HAS_IMPORTED: AtomicBool = AtomicBool::new(false);

/// What this process has open.
#[derive(Debug)]
struct Imported {
    file: File,
    /// How much of the file was read.
    read: u64,
    /// The address and the size of each block.
    blocks: HashMap<SharedBlock, (u64, u64)>,
    /// The last work of each stream that other processes may know to be done.
    published: HashMap<QueueId, u64>,
}

impl Imported {
    fn open() -> Option<Self> {
        let file = OpenOptions::new().append(true).create(true).read(true).open(path()?).ok()?;
        Some(Self { file, read: 0, blocks: HashMap::new(), published: HashMap::new() })
    }

    /// Returns the lines that were written since the last call.
    fn new_lines(&mut self) -> String {
        let length = self.file.metadata().map_or(0, |found| found.len());
        if length <= self.read {
            return String::new();
        }
        let mut bytes = vec![0; (length - self.read) as usize];
        if self.file.read_exact_at(&mut bytes, self.read).is_err() {
            return String::new();
        }
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        String::from_utf8_lossy(&bytes[..whole]).into_owned()
    }
}

fn path() -> Option<OsString> {
    let mut path = env::var_os(check::VARIABLE)?;
    path.push(SUFFIX);
    Some(path)
}

/// Notes that this process exports a block.
pub(crate) fn exported(id: u64) {
    if check::is_on() {
        lock(&EXPORTED).get_or_insert_default().insert(id);
    }
}

/// Notes that this process frees a block, which it may have exported.
pub(crate) fn freed(id: u64, block: impl FnOnce() -> Option<SharedBlock>) {
    let Some(checker) = checker() else { return };
    if !lock(&EXPORTED).as_mut().is_some_and(|exported| exported.remove(&id)) {
        return;
    }
    let (Some(block), Some(path)) = (block(), path()) else { return };
    let line = SharedFree::new(block, checker.location(function())).to_line();
    // One call for each line: several processes append to the file. Without it, others do not know of the free.
    let file = OpenOptions::new().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

/// Notes that this process has opened a block of another one.
pub(crate) fn opened(block: SharedBlock, address: u64, bytes: u64) {
    if !check::is_on() {
        return;
    }
    let mut imported = lock(&IMPORTED);
    if imported.is_none() {
        *imported = Imported::open();
    }
    if let Some(imported) = &mut *imported {
        imported.blocks.insert(block, (address, bytes));
        HAS_IMPORTED.store(true, Ordering::Release);
    }
}

/// Notes that this process has closed a block of another one.
pub(crate) fn closed(block: SharedBlock) {
    if let Some(imported) = &mut *lock(&IMPORTED) {
        imported.blocks.remove(&block);
        HAS_IMPORTED.store(!imported.blocks.is_empty(), Ordering::Release);
    }
}

/// Notes that other processes may know that work is done.
#[inline]
pub(crate) fn publish(epoch: Epoch) {
    if HAS_IMPORTED.load(Ordering::Relaxed)
        && let Some(imported) = &mut *lock(&IMPORTED)
    {
        let last = imported.published.entry(epoch.queue).or_default();
        *last = epoch.seq.max(*last);
    }
}

/// Notes what other processes have freed.
#[inline]
pub(crate) fn look() {
    if HAS_IMPORTED.load(Ordering::Acquire)
        && let Some(checker) = checker()
    {
        note_frees(checker);
    }
}

/// Reports what is known only when the process ends.
pub(crate) fn finish() {
    look();
    check::finish();
}

#[cold]
fn note_frees(checker: &Checker) {
    let mut imported = lock(&IMPORTED);
    let Some(imported) = &mut *imported else { return };
    for free in imported.new_lines().lines().filter_map(SharedFree::from_line) {
        if let Some((address, bytes)) = imported.blocks.remove(&free.block) {
            let published = imported.published.iter().map(|(&queue, &seq)| Epoch { queue, seq });
            checker.free_elsewhere(free.call(), published, address, bytes);
        }
    }
    HAS_IMPORTED.store(!imported.blocks.is_empty(), Ordering::Release);
}
