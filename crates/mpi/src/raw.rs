//! Every MPI call, with its code turned into an error. Knows nothing about devices: memory is an address and a length,
//! for which the caller is responsible.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpi::ffi;

use crate::element::Datatype;
use crate::error::{Error, Result};
use crate::op::Op;

/// The longest message that one count of bytes can express; longer ones consist of pieces of `PIECE_BYTES`.
const COUNT_BYTES_MAX: usize = c_int::MAX as usize;
const PIECE_BYTES: usize = 1 << 30;

/// A communicator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comm(ffi::MPI_Comm);

// SAFETY: the handle is not `Send` where the library makes it a pointer; only the library dereferences it, and threads
// call the library as its thread support allows.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// A pending MPI call.
#[derive(Debug)]
pub(crate) struct RawRequest(ffi::MPI_Request);

// SAFETY: as for `Comm`; one thread at a time uses it.
unsafe impl Send for RawRequest {}

/// The status of a completed receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status {
    pub(crate) source: i32,
    pub(crate) tag: i32,
    pub(crate) bytes: usize,
}

/// An error code of the library, with its message.
#[derive(Clone, Debug)]
pub(crate) struct CallError {
    pub(crate) is_truncation: bool,
    pub(crate) message: Box<str>,
    /// Describes the message, if one arrived that did not fit.
    pub(crate) status: Status,
}

/// Memory for a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

impl Span {
    pub(crate) fn from_slice<T>(slice: &[T]) -> Self {
        Self { address: slice.as_ptr().addr() as u64, bytes: size_of_val(slice) }
    }

    pub(crate) fn from_range(range: Range<u64>) -> Self {
        Self { address: range.start, bytes: (range.end - range.start) as usize }
    }

    pub(crate) fn slice(self, start: usize, bytes: usize) -> Self {
        assert!(start + bytes <= self.bytes, "a slice lies within its span");
        Self { address: self.address + start as u64, bytes }
    }

    fn start(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

/// How threads may call the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Several threads at once.
    Multiple,
    /// One thread at a time.
    Serialized,
}

/// The initialized library. One per process.
#[derive(Debug)]
pub(crate) struct Library {
    /// Held during each call if threads take turns.
    call_lock: Option<Mutex<()>>,
    /// How many calls have been found complete.
    completed: AtomicU64,
    pub(crate) tag_max: i32,
}

type CallResult<T> = std::result::Result<T, CallError>;

impl Library {
    pub(crate) fn init(wanted: Threads) -> Result<Self> {
        let mut is_initialized = 0;
        // SAFETY: this may be called at any time, and writes one number.
        let asked = unsafe { ffi::MPI_Initialized(&mut is_initialized) };
        check_named("MPI_Initialized", asked)?;
        if is_initialized != 0 {
            return Err(Error::AlreadyInitialized);
        }
        // SAFETY: a constant of the library.
        let multiple = unsafe { ffi::RSMPI_THREAD_MULTIPLE };
        // SAFETY: as above.
        let serialized = unsafe { ffi::RSMPI_THREAD_SERIALIZED };
        let required = if wanted == Threads::Multiple { multiple } else { serialized };
        let mut provided = 0;
        // SAFETY: no thread of this crate calls the library yet; it gets no program arguments, and writes one number.
        let begun = unsafe { ffi::MPI_Init_thread(null_mut(), null_mut(), required, &mut provided) };
        check_named("MPI_Init_thread", begun)?;
        if provided < serialized {
            return Err(Error::InsufficientThreadSupport { provided: "MPI_THREAD_FUNNELED or less" });
        }
        let turn = (wanted == Threads::Serialized || provided < multiple).then(Mutex::default);
        let library = Self { call_lock: turn, completed: AtomicU64::new(0), tag_max: 0 };
        library.return_errors(world())?;
        let tag_max = library.tag_max_of(world())?;
        Ok(Self { tag_max, ..library })
    }

    /// Returns whether several threads may call at once.
    pub(crate) fn threads(&self) -> Threads {
        if self.call_lock.is_some() { Threads::Serialized } else { Threads::Multiple }
    }

    /// Returns a number that grows while messages make progress.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    fn lock_calls(&self) -> Option<MutexGuard<'_, ()>> {
        self.call_lock.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn return_errors(&self, comm: Comm) -> Result<()> {
        let _turn = self.lock_calls();
        // SAFETY: a constant of the library.
        let handler = unsafe { ffi::RSMPI_ERRORS_RETURN };
        // SAFETY: the communicator is live.
        check_named("MPI_Comm_set_errhandler", unsafe { ffi::MPI_Comm_set_errhandler(comm.0, handler) })
    }

    fn tag_max_of(&self, comm: Comm) -> Result<i32> {
        let _turn = self.lock_calls();
        let (mut value, mut is_there) = (null_mut::<c_void>(), 0);
        let (key, to) = (ffi::MPI_TAG_UB as c_int, (&raw mut value).cast());
        // SAFETY: the library writes the address of a number of its own to `value`.
        check_named("MPI_Comm_get_attr", unsafe { ffi::MPI_Comm_get_attr(comm.0, key, to, &mut is_there) })?;
        assert!(is_there != 0 && !value.is_null(), "MPI defines this attribute for every library");
        // SAFETY: the attribute is the address of an `int` that lives as long as the library.
        Ok(unsafe { value.cast::<c_int>().read() })
    }

    /// Duplicates a communicator: the same ranks, with separate messages. All ranks call this; it waits for them.
    pub(crate) fn duplicate(&self, comm: Comm) -> Result<Comm> {
        let (mut new, mut request) = (Box::new(comm.0), null_request());
        {
            let _turn = self.lock_calls();
            // SAFETY: the communicator is live, and the box stays until the call is complete.
            check_named("MPI_Comm_idup", unsafe { ffi::MPI_Comm_idup(comm.0, &mut *new, &mut request) })?;
        }
        self.wait("MPI_Comm_idup", RawRequest(request))?;
        self.return_errors(Comm(*new))?;
        Ok(Comm(*new))
    }

    /// Waits for a call. Releases the lock between polls.
    fn wait(&self, call: &'static str, mut pending: RawRequest) -> Result<()> {
        loop {
            match self.test(&mut pending) {
                Ok(None) => std::thread::yield_now(),
                Ok(Some(_)) => return Ok(()),
                Err(code) => return Err(Error::Library { call, message: code.message }),
            }
        }
    }

    /// Returns the ranks of one machine among those of `comm`. All ranks call this.
    pub(crate) fn node_comm(&self, comm: Comm) -> Result<Comm> {
        let mut new = comm.0;
        let _turn = self.lock_calls();
        // SAFETY: a constant of the library.
        let kind = unsafe { ffi::RSMPI_COMM_TYPE_SHARED };
        // SAFETY: as above.
        let info = unsafe { ffi::RSMPI_INFO_NULL };
        // SAFETY: the communicator is live, and `new` outlives the call.
        check_named("MPI_Comm_split_type", unsafe { ffi::MPI_Comm_split_type(comm.0, kind, 0, info, &mut new) })?;
        Ok(Comm(new))
    }

    pub(crate) fn rank_and_size(&self, comm: Comm) -> Result<(i32, i32)> {
        let _turn = self.lock_calls();
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is live, and the library writes one number.
        check_named("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(comm.0, &mut rank) })?;
        // SAFETY: as above.
        check_named("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(comm.0, &mut size) })?;
        Ok((rank, size))
    }

    /// Starts to send memory.
    ///
    /// # Safety
    /// The library can read the memory, and the memory does not change until the call is complete.
    pub(crate) unsafe fn isend(&self, comm: Comm, memory: Span, to: i32, tag: i32) -> CallResult<RawRequest> {
        let _turn = self.lock_calls();
        let shape = DatatypeCount::for_bytes(memory.bytes)?;
        let mut request = null_request();
        // SAFETY: the caller guarantees the memory, which is as long as its shape; rank and tag are numbers.
        let code =
            unsafe { ffi::MPI_Isend(memory.start(), shape.count, shape.datatype, to, tag, comm.0, &mut request) };
        check(code).map(|()| RawRequest(request))
    }

    /// Sends memory, and waits until it may be changed.
    ///
    /// # Safety
    /// The library can read the memory.
    #[inline]
    pub(crate) unsafe fn send_eager(&self, comm: Comm, memory: Span, to: i32, tag: i32) -> CallResult<()> {
        let _turn = self.lock_calls();
        // SAFETY: a constant of the library.
        let kind = unsafe { ffi::RSMPI_UINT8_T };
        // SAFETY: the caller guarantees the memory; the length of a short message fits into a count.
        let code = unsafe { ffi::MPI_Send(memory.start(), memory.bytes as c_int, kind, to, tag, comm.0) };
        check(code)
    }

    /// Starts to receive into memory.
    ///
    /// # Safety
    /// The library can write the memory, and nothing else uses it until the call is complete.
    pub(crate) unsafe fn irecv(&self, comm: Comm, memory: Span, from: i32, tag: i32) -> CallResult<RawRequest> {
        let _turn = self.lock_calls();
        let shape = DatatypeCount::for_bytes(memory.bytes)?;
        let mut request = null_request();
        // SAFETY: the caller guarantees the memory, which is as long as its shape; rank and tag are numbers.
        let code =
            unsafe { ffi::MPI_Irecv(memory.start(), shape.count, shape.datatype, from, tag, comm.0, &mut request) };
        check(code).map(|()| RawRequest(request))
    }

    /// Returns whether a call is complete. It also is after an error.
    pub(crate) fn test(&self, pending: &mut RawRequest) -> CallResult<Option<Status>> {
        let (mut is_done, mut status) = (0, empty_status());
        let _turn = self.lock_calls();
        // SAFETY: the request is live or null, and both outputs outlive the call.
        let tested = check(unsafe { ffi::MPI_Test(&mut pending.0, &mut is_done, &mut status) });
        let (source, tag) = (status.MPI_SOURCE, status.MPI_TAG);
        tested.map_err(|code| CallError { status: Status { source, tag, bytes: 0 }, ..code })?;
        if is_done == 0 {
            return Ok(None);
        }
        self.completed.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a constant of the library.
        let kind = unsafe { ffi::RSMPI_UINT8_T };
        let mut count = 0;
        // SAFETY: the status belongs to a completed call; the library writes one number.
        check(unsafe { ffi::MPI_Get_count(&status, kind, &mut count) })?;
        let bytes = match usize::try_from(count) {
            Ok(bytes) => bytes,
            // The length exceeds a count.
            Err(_) => {
                let mut bytes = 0;
                // SAFETY: as above.
                check(unsafe { ffi::MPI_Get_elements_x(&status, kind, &mut bytes) })?;
                usize::try_from(bytes).unwrap_or(0)
            }
        };
        Ok(Some(Status { source, tag, bytes }))
    }

    /// Cancels a send or a receive. Returns whether the library no longer uses its memory.
    pub(crate) fn cancel(&self, mut pending: RawRequest) -> bool {
        // It was complete already.
        if pending.0 == null_request() {
            return true;
        }
        {
            let _turn = self.lock_calls();
            // SAFETY: the request belongs to a pending send or receive.
            if check(unsafe { ffi::MPI_Cancel(&mut pending.0) }).is_err() {
                return false;
            }
        }
        // Cancelling is local: it takes effect within some polls, or never.
        (0..1000).any(|_| !matches!(self.test(&mut pending), Ok(None)))
    }

    /// # Safety
    /// As for [`irecv`](Self::irecv) at ranks other than the root, as for [`isend`](Self::isend) there.
    pub(crate) unsafe fn ibroadcast(&self, comm: Comm, memory: Span, root: i32) -> CallResult<RawRequest> {
        let _turn = self.lock_calls();
        let shape = DatatypeCount::for_bytes(memory.bytes)?;
        let mut request = null_request();
        // SAFETY: the caller guarantees the memory, which is as long as its shape.
        let code = unsafe { ffi::MPI_Ibcast(memory.start(), shape.count, shape.datatype, root, comm.0, &mut request) };
        check(code).map(|()| RawRequest(request))
    }

    /// # Safety
    /// As for [`isend`](Self::isend) and [`irecv`](Self::irecv) with `from` and `to`, each of `count` elements; the
    /// latter at the root alone.
    pub(crate) unsafe fn ireduce(
        &self,
        comm: Comm,
        (from, to): (Span, Span),
        (count, kind, op): (usize, Datatype, Op),
        root: Option<i32>,
    ) -> CallResult<RawRequest> {
        let count = c_int::try_from(count).expect("chunks of reductions are short");
        let mut request = null_request();
        let _turn = self.lock_calls();
        let (from, to) = (from.start(), to.start());
        let code = match root {
            // SAFETY: the caller guarantees both memories, which hold `count` elements of `kind`.
            Some(root) => unsafe { ffi::MPI_Ireduce(from, to, count, kind.0, op.raw(), root, comm.0, &mut request) },
            // SAFETY: as above.
            None => unsafe { ffi::MPI_Iallreduce(from, to, count, kind.0, op.raw(), comm.0, &mut request) },
        };
        check(code).map(|()| RawRequest(request))
    }

    /// # Safety
    /// As for [`isend`](Self::isend) and [`irecv`](Self::irecv): `part_bytes` of one memory at each rank, and as many
    /// for each rank of the other, at the root for [`Redistribution::Gather`] and [`Redistribution::Scatter`],
    /// everywhere for `AllToAll`.
    pub(crate) unsafe fn iredistribute(
        &self,
        comm: Comm,
        spread: Redistribution,
        (from, to): (Span, Span),
        part_bytes: usize,
    ) -> CallResult<RawRequest> {
        let count = c_int::try_from(part_bytes).expect("chunks of redistributions are short");
        let mut request = null_request();
        let _turn = self.lock_calls();
        // SAFETY: a constant of the library.
        let kind = unsafe { ffi::RSMPI_UINT8_T };
        let (from, to) = (from.start(), to.start());
        let code = match spread {
            // SAFETY: the caller guarantees both memories, of the lengths that the counts give.
            Redistribution::Gather(root) => unsafe {
                ffi::MPI_Igather(from, count, kind, to, count, kind, root, comm.0, &mut request)
            },
            // SAFETY: as above.
            Redistribution::Scatter(root) => unsafe {
                ffi::MPI_Iscatter(from, count, kind, to, count, kind, root, comm.0, &mut request)
            },
            // SAFETY: as above.
            Redistribution::AllToAll => unsafe {
                ffi::MPI_Ialltoall(from, count, kind, to, count, kind, comm.0, &mut request)
            },
        };
        check(code).map(|()| RawRequest(request))
    }

    /// Gathers the bytes of every rank, by rank. All ranks call this; it waits for them.
    pub(crate) fn allgather<const N: usize>(&self, comm: Comm, mine: &[u8; N]) -> Result<Vec<[u8; N]>> {
        let (_, size) = self.rank_and_size(comm)?;
        let mut all = vec![[0; N]; size as usize];
        let mut request = null_request();
        {
            let _turn = self.lock_calls();
            // SAFETY: a constant of the library.
            let kind = unsafe { ffi::RSMPI_UINT8_T };
            let (count, from, to) = (N as c_int, mine.as_ptr().cast(), all.as_mut_ptr().cast());
            // SAFETY: `mine` has N bytes, `all` as many for each rank; both outlive the wait.
            let begun = unsafe { ffi::MPI_Iallgather(from, count, kind, to, count, kind, comm.0, &mut request) };
            check_named("MPI_Iallgather", begun)?;
        }
        self.wait("MPI_Iallgather", RawRequest(request))?;
        Ok(all)
    }

    /// Starts to wait for all ranks.
    pub(crate) fn ibarrier(&self, comm: Comm) -> CallResult<RawRequest> {
        let mut request = null_request();
        let _turn = self.lock_calls();
        // SAFETY: the communicator is live.
        check(unsafe { ffi::MPI_Ibarrier(comm.0, &mut request) }).map(|()| RawRequest(request))
    }

    /// Frees a communicator. All ranks call this.
    pub(crate) fn free(&self, comm: Comm) -> Result<()> {
        let mut comm = comm.0;
        let _turn = self.lock_calls();
        // SAFETY: the communicator was made by `duplicate`, and the caller no longer uses it.
        check_named("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&mut comm) })
    }

    /// Finalizes MPI, together with all ranks.
    pub(crate) fn finalize(&self) -> Result<()> {
        let _turn = self.lock_calls();
        // SAFETY: the caller owns the library, and no other thread calls it.
        check_named("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
    }
}

/// Which parts of one rank's memory go where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redistribution {
    Gather(i32),
    Scatter(i32),
    AllToAll,
}

/// Returns the name and version of the library. Works before MPI is initialized.
pub(crate) fn library_name() -> String {
    let mut text = vec![0_u8; 8192];
    let mut length = 0;
    // SAFETY: the library writes at most MPI_MAX_LIBRARY_VERSION_STRING bytes, which is at most 8192 in every library.
    let code = unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr().cast::<c_char>(), &mut length) };
    if code != 0 {
        return "an unnamed MPI library".to_owned();
    }
    text.truncate(usize::try_from(length).unwrap_or(0));
    let text = String::from_utf8_lossy(&text);
    // Some libraries append a page about their build.
    let line = text.lines().next().unwrap_or_default().trim_end_matches('\0');
    line.split(", package").next().unwrap_or(line).replace('\t', " ").trim().to_owned()
}

/// Returns the communicator of all ranks.
pub(crate) fn world() -> Comm {
    // SAFETY: a constant of the library.
    Comm(unsafe { ffi::RSMPI_COMM_WORLD })
}

pub(crate) fn any_source() -> i32 {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_ANY_SOURCE }
}

pub(crate) fn any_tag() -> i32 {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_ANY_TAG }
}

/// A length in bytes as a count of a datatype.
struct DatatypeCount {
    count: c_int,
    datatype: ffi::MPI_Datatype,
    /// Whether the datatype was created for this length.
    is_derived: bool,
}

impl DatatypeCount {
    fn for_bytes(bytes: usize) -> CallResult<Self> {
        // SAFETY: a constant of the library.
        let byte = unsafe { ffi::RSMPI_UINT8_T };
        if bytes <= COUNT_BYTES_MAX {
            return Ok(Self { count: bytes as c_int, datatype: byte, is_derived: false });
        }
        let (pieces, rest) = (bytes / PIECE_BYTES, bytes % PIECE_BYTES);
        let mut piece = byte;
        // SAFETY: the library writes one handle.
        check(unsafe { ffi::MPI_Type_contiguous(PIECE_BYTES as c_int, byte, &mut piece) })?;
        let (counts, kinds) = ([pieces as c_int, rest as c_int], [piece, byte]);
        let places = [0, (pieces * PIECE_BYTES) as ffi::MPI_Aint];
        let mut kind = byte;
        // SAFETY: three lists of two elements, which outlive the call; the library writes one handle.
        check(unsafe { ffi::MPI_Type_create_struct(2, counts.as_ptr(), places.as_ptr(), kinds.as_ptr(), &mut kind) })?;
        // SAFETY: the type was just created; the struct type keeps what it needs of it.
        check(unsafe { ffi::MPI_Type_free(&mut piece) })?;
        // SAFETY: the type was just created.
        check(unsafe { ffi::MPI_Type_commit(&mut kind) })?;
        Ok(Self { count: 1, datatype: kind, is_derived: true })
    }
}

impl Drop for DatatypeCount {
    fn drop(&mut self) {
        if self.is_derived {
            // SAFETY: the type was created here; pending calls that use it keep it.
            let freed = unsafe { ffi::MPI_Type_free(&mut self.datatype) };
            debug_assert_eq!(freed, 0, "MPI_Type_free");
        }
    }
}

fn null_request() -> ffi::MPI_Request {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

fn empty_status() -> ffi::MPI_Status {
    // SAFETY: a status consists of numbers, which may all be zero.
    unsafe { std::mem::zeroed() }
}

#[inline]
fn check(code: c_int) -> CallResult<()> {
    if code == 0 { Ok(()) } else { Err(call_error(code)) }
}

#[cold]
fn call_error(code: c_int) -> CallError {
    let mut class = code;
    // SAFETY: the library writes one number.
    let classed = unsafe { ffi::MPI_Error_class(code, &mut class) };
    let mut text = [0_u8; 1024];
    let mut length = 0;
    // SAFETY: the library writes at most MPI_MAX_ERROR_STRING bytes, which is at most 512 in every library.
    let described = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let said =
        if described == 0 { String::from_utf8_lossy(&text[..length]).into_owned() } else { format!("code {code}") };
    let is_truncation = classed == 0 && class == ffi::MPI_ERR_TRUNCATE as c_int;
    CallError { is_truncation, message: said.into(), status: Status::default() }
}

fn check_named(call: &'static str, code: c_int) -> Result<()> {
    check(code).map_err(|code| Error::Library { call, message: code.message })
}
