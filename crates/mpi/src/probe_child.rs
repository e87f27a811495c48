//! The child process of a probe: passes device memory to the library and checks the data that arrives. It may crash.

use freehold::{Block, Device, Stream};

use crate::element::Element;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::probe::{ACCEPTED, STARTED};
use crate::raw::{self, Comm, Library, RawRequest, Redistribution, Span};
use crate::settings::Settings;

/// The calls to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    Messages,
    Reductions,
}

/// Short messages, which libraries copy, and long ones, which they map or register.
const LENGTHS: [usize; 3] = [2, 5000, 1 << 20];

/// Runs the transfers, and prints a word if all of them worked.
///
/// # Errors
/// The error of the library, if it did not crash.
#[doc(hidden)]
pub fn run(tried: ProbeKind, device: &Device) -> Result<()> {
    let library = Library::init(Settings::from_environment()?.threads)?;
    let comm = library.duplicate(raw::world())?;
    let (rank, size) = library.rank_and_size(comm)?;
    let stream = device.new_stream()?;
    println!("{STARTED}");
    for len in LENGTHS {
        let mine: Vec<u32> = (0..len as u32).map(|index| index * 3 + rank as u32).collect();
        let x = stream.upload(&mine)?;
        let mut y = stream.zeros::<u32>(len)?;
        stream.synchronize()?;
        match tried {
            ProbeKind::Messages => messages(&library, comm, (rank, size), (&x, &y))?,
            ProbeKind::Reductions => reductions(&library, comm, (&x, &y))?,
        }
        let wanted: Vec<u32> = match tried {
            ProbeKind::Messages => mine.iter().map(|value| value - rank as u32 + ((rank + 1) % size) as u32).collect(),
            ProbeKind::Reductions => mine.iter().map(|value| value - rank as u32 + size as u32 - 1).collect(),
        };
        check_contents(&stream, &y, &wanted)?;
        stream.fill_bytes(&mut y, 0)?;
    }
    library.finalize()?;
    println!("{ACCEPTED}");
    Ok(())
}

fn check_contents(stream: &Stream, block: &Block<u32>, wanted: &[u32]) -> Result<()> {
    if stream.download(block)? == wanted {
        return Ok(());
    }
    Err(Error::Library {
        call: "transfer of device memory",
        message: "the received data differs from the sent data".into(),
    })
}

fn memory(block: &Block<u32>) -> Span {
    Span { address: block.address(), bytes: block.len() * size_of::<u32>() }
}

/// Each rank sends to the previous one.
fn messages(library: &Library, comm: Comm, (rank, size): (i32, i32), (x, y): (&Block<u32>, &Block<u32>)) -> Result<()> {
    let (before, after) = ((rank + size - 1) % size, (rank + 1) % size);
    // SAFETY: the probe tests whether the library can write there; the block outlives the wait, and nothing else uses
    // it.
    let arriving = unsafe { library.irecv(comm, memory(y), after, 1) };
    // SAFETY: likewise for reading.
    let leaving = unsafe { library.isend(comm, memory(x), before, 1) };
    [arriving, leaving].into_iter().try_for_each(|pending| wait(library, pending))
}

/// Computes the maximum over all ranks, and exercises every collective call.
fn reductions(library: &Library, comm: Comm, (x, y): (&Block<u32>, &Block<u32>)) -> Result<()> {
    let what = (x.len(), u32::datatype(), Op::Max);
    // SAFETY: the probe tests whether the library can read and write there; the blocks outlive the wait, and nothing
    // else uses them.
    wait(library, unsafe { library.iredistribute(comm, Redistribution::AllToAll, (memory(x), memory(y)), 4) })?;
    // SAFETY: as above.
    wait(library, unsafe { library.ireduce(comm, (memory(x), memory(y)), what, None) })?;
    // SAFETY: as above.
    wait(library, unsafe { library.ibroadcast(comm, memory(y), 0) })
}

fn wait(library: &Library, pending: std::result::Result<RawRequest, raw::CallError>) -> Result<()> {
    let told = |code: raw::CallError| Error::Library { call: "transfer of device memory", message: code.message };
    let mut pending = pending.map_err(told)?;
    while library.test(&mut pending).map_err(told)?.is_none() {
        std::thread::yield_now();
    }
    Ok(())
}
