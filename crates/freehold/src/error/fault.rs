//! Sticky faults. After one, every call of the process fails with its code; the error lists the kernels that may have
//! caused it.

use std::fmt;
use std::sync::Arc;

use freehold_driver::{CallError, FaultDetails};

use crate::ledger::StreamId;

/// A kernel that was not known to be complete when a fault was detected.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its name.
    pub kernel: Arc<str>,
    /// The stream that it was launched in.
    pub stream: StreamId,
    /// Its position among its stream's operations; the first is 1.
    pub seq: u64,
}

/// A fault that persists until the process ends.
///
/// ```
/// use freehold::Error;
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
/// # if freehold::open::target(None).is_ok_and(|target| matches!(target, freehold::open::Target::Soft { .. })) {
/// // Unsound: `stray` writes to unmapped memory.
/// stream.launch(&unsafe { module.kernel("stray")? }, freehold::Grid::line(1, 1), ())?;
/// let Err(Error::Faulted(fault)) = stream.synchronize() else { panic!("it faults") };
/// assert_eq!(&*fault.suspects[0].kernel, "stray");
/// let details = fault.details.as_ref().expect("the software device has details"); // a GPU does not
/// assert_eq!((details.block, details.thread, details.address), ([0; 3], [0; 3], Some(16)));
/// println!("{}", details.message); // the kernel, the line of its PTX, the access and the memory there
/// assert!(device.new_stream().is_err()); // like every call until the process ends
/// # }
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call that detected it, and the code.
    pub noticed: CallError,
    /// Where the kernel was and what it did, if the device reports that: the software device does, a GPU does not.
    pub details: Option<FaultDetails>,
    /// The kernels that may have caused it, the earliest of each stream first. A single suspect is the culprit.
    pub suspects: Vec<Suspect>,
    /// How many more launches may have caused it whose names are no longer known.
    pub unnamed: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device has failed, and all calls fail until this process ends: {}", self.noticed)?;
        if let Some(details) = &self.details {
            return write!(f, "; {}", details.message);
        }
        match self.suspects.as_slice() {
            [] if self.unnamed == 0 => write!(f, "; no kernel of this library was pending"),
            [] => write!(f, "; one of {} kernels was at fault", self.unnamed),
            [one] if self.unnamed == 0 => write!(f, "; kernel {} was at fault", one.kernel),
            several => {
                let mut names: Vec<&str> = several.iter().map(|suspect| &*suspect.kernel).collect();
                names.dedup();
                write!(f, "; one of these kernels was at fault: {}", names.join(", "))?;
                if self.unnamed == 0 { Ok(()) } else { write!(f, ", or one of {} before them", self.unnamed) }
            }
        }
    }
}
