//! Fills a set with the tensors of a file: several threads read and hash, one copies to the device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use freehold::Stream;

use super::limits::{PIECE_BYTES, THREADS_MAX};
use super::manifest::TensorHasher;
use super::set::{TensorError, TensorWriter};

impl TensorWriter {
    /// Copies tensors from a file, in which they begin at `starts`, and lists their hashes if the list has
    /// [room](super::Manifest::with_room_for_hashes) for them. `progress` gets the bytes of each copy.
    ///
    /// # Errors
    /// [`TensorError::Io`] if the file cannot be read, or has become shorter.
    ///
    /// # Panics
    /// If there is not one start for each tensor.
    pub fn fill(
        &mut self,
        stream: &Stream,
        file: &File,
        starts: &[u64],
        mut progress: impl FnMut(u64),
    ) -> Result<(), TensorError> {
        let tensors = self.manifest().tensors();
        assert_eq!(starts.len(), tensors.len(), "one start for each tensor");
        let places = starts.iter().zip(tensors).map(|(&start, tensor)| (start, tensor.bytes as usize));
        let places: Vec<(u64, usize)> = places.collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX).min(places.len());
        let (next, (found, findings), (free, buffers)) = (AtomicUsize::new(0), channel(), channel());
        // A thread reads one while another is copied to the device.
        for _ in 0..2 * threads {
            free.send(Vec::new()).expect("the receiver is in the line above");
        }
        let buffers = Mutex::new(buffers);
        std::thread::scope(|scope| {
            let reader = Reader { file, places: &places, next: &next, buffers: &buffers };
            for _ in 0..threads {
                let (reader, found) = (reader, found.clone());
                scope.spawn(move || reader.run(&found));
            }
            // Both ends are dropped with this closure, which ends the readers if it fails.
            let (free, findings) = (free, findings);
            drop(found);
            for finding in findings {
                match finding {
                    Finding::Piece { tensor, at, bytes } => {
                        stream.write(&mut self.view_mut(tensor, at..at + bytes.len())?, &bytes)?;
                        progress(bytes.len() as u64);
                        // An error means that all readers have ended: nobody needs the buffer any more.
                        let _ = free.send(bytes);
                    }
                    Finding::Hash { tensor, hash } => self.list_hash(tensor, hash),
                    Finding::Failed(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    }
}

/// What a reader has for the thread that copies.
enum Finding {
    /// Bytes of a tensor, from this one on.
    Piece {
        tensor: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Hash {
        tensor: usize,
        hash: [u8; 32],
    },
    Failed(io::Error),
}

/// A thread that reads. Each tensor is read by one, because its hash depends on the order of its bytes.
#[derive(Clone, Copy)]
struct Reader<'a> {
    file: &'a File,
    /// Where tensors begin, and their lengths.
    places: &'a [(u64, usize)],
    /// The first tensor that no thread reads.
    next: &'a AtomicUsize,
    buffers: &'a Mutex<Receiver<Vec<u8>>>,
}

impl Reader<'_> {
    /// Reads tensors until none is left, or nobody listens.
    fn run(self, found: &Sender<Finding>) {
        loop {
            let tensor = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&place) = self.places.get(tensor) else { return };
            let last = match self.read(tensor, place, found) {
                Ok(Some(hash)) => Finding::Hash { tensor, hash },
                Ok(None) => return,
                Err(error) => Finding::Failed(error),
            };
            if found.send(last).is_err() {
                return;
            }
        }
    }

    /// Reads a tensor. Returns its hash, unless nobody listens.
    fn read(
        self,
        tensor: usize,
        (start, length): (u64, usize),
        found: &Sender<Finding>,
    ) -> io::Result<Option<[u8; 32]>> {
        let mut hasher = TensorHasher::new();
        for at in (0..length).step_by(PIECE_BYTES) {
            let buffer = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(mut bytes) = buffer else { return Ok(None) };
            bytes.resize(PIECE_BYTES.min(length - at), 0);
            self.file.read_exact_at(&mut bytes, start + at as u64).map_err(shortened)?;
            hasher.update(&bytes);
            if found.send(Finding::Piece { tensor, at, bytes }).is_err() {
                return Ok(None);
            }
        }
        Ok(Some(hasher.finish()))
    }
}

/// Says of a file that ended too early what happened: it had its whole length when its header was read.
fn shortened(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the file became shorter while it was read"),
        _ => error,
    }
}
