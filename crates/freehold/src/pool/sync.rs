//! The primitives of the pool's lock-free parts. `tests/it/pool_loom.rs` substitutes loom's types under the same names.

pub(crate) use std::cell::UnsafeCell;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::yield_now;

/// An asymmetric barrier between two sides: at least one side sees, after its barrier, what the other wrote before its
/// own. The light side costs nothing, because the heavy side makes all threads of the process pass a barrier if the
/// system can do that (`membarrier`).
pub(crate) mod barrier {
    use std::sync::OnceLock;
    use std::sync::atomic::{Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Kind {
        /// The heavy side does all of the work.
        OneSided,
        /// The system cannot do that: both sides pay the same.
        TwoSided,
    }

    pub(crate) fn kind() -> Kind {
        static KIND: OnceLock<Kind> = OnceLock::new();
        *KIND.get_or_init(|| {
            // Miri has no system to ask.
            let is_registered = !cfg!(miri) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            if is_registered { Kind::OneSided } else { Kind::TwoSided }
        })
    }

    #[inline]
    pub(crate) fn light(kind: Kind) {
        match kind {
            Kind::OneSided => compiler_fence(Ordering::SeqCst),
            Kind::TwoSided => fence(Ordering::SeqCst),
        }
    }

    pub(crate) fn heavy(kind: Kind) {
        match kind {
            Kind::OneSided => {
                membarrier(MembarrierCommand::PrivateExpedited).expect("a registered membarrier can be called");
            }
            Kind::TwoSided => fence(Ordering::SeqCst),
        }
    }
}
