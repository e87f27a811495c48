//! What the parts of the pool that take no lock are made of. A test gives these files the same names with a checker's types
//! behind them (`tests/it/pool_loom.rs`).

pub(crate) use std::cell::UnsafeCell;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::yield_now;

/// A barrier of two sides: what each wrote before its own, the other sees behind its own, or the other way round. The light
/// side costs nothing, because the heavy one has all threads of the process pass a barrier where the system can do that.
pub(crate) mod barrier {
    use std::sync::OnceLock;
    use std::sync::atomic::{Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Kind {
        /// The heavy side does it all.
        OneSided,
        /// The system does not: both sides pay the same.
        TwoSided,
    }

    pub(crate) fn kind() -> Kind {
        static KIND: OnceLock<Kind> = OnceLock::new();
        *KIND.get_or_init(|| {
            // An interpreter has no system to ask.
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
                membarrier(MembarrierCommand::PrivateExpedited)
                    .expect("a barrier that the system has registered is there");
            }
            Kind::TwoSided => fence(Ordering::SeqCst),
        }
    }
}
