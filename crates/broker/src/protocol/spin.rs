//! Spins while waiting for another process.

/// Spins for another process. On machines with few processors it yields instead: giver, broker and receiver all spin,
/// and their work needs a processor too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpinWait {
    is_crowded: bool,
}

/// With fewer processors, spinning threads yield.
const PROCESSORS_MIN: usize = 4;

impl SpinWait {
    pub(crate) fn new() -> Self {
        Self { is_crowded: std::thread::available_parallelism().map_or(1, usize::from) < PROCESSORS_MIN }
    }

    /// How often to spin before something else is checked. 1 if threads yield: with other threads ready to run a yield
    /// can take milliseconds, and sleeping gets the next message sooner.
    pub(crate) fn spins_max(self) -> u32 {
        if self.is_crowded { 1 } else { 256 }
    }

    #[inline]
    pub(crate) fn spin_once(self) {
        if self.is_crowded { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}
