//! What reports say about each kind of finding, and kinds as users write them.

use freehold_check::Kind;

/// The sentences about a kind.
pub(super) struct Sentences {
    /// What it is.
    pub(super) short: &'static str,
    /// What happens because of it.
    pub(super) effect: &'static str,
    /// What to do about it.
    pub(super) help: &'static str,
}

/// Reads the name of a kind.
pub(super) fn parse(name: &str) -> Result<Kind, String> {
    let found = Kind::ALL.iter().find(|kind| kind.name() == name);
    found.copied().ok_or_else(|| format!("unknown kind {name:?}: expected {}", names()))
}

/// Returns the names of all kinds, for errors and for help.
pub(super) fn names() -> String {
    Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

/// Whether it is about two accesses, of which neither is ordered before the other.
pub(super) fn is_race(kind: Kind) -> bool {
    matches!(kind, Kind::StreamRace | Kind::ReuseRace | Kind::HostRace | Kind::SharedRace | Kind::GlobalRace)
}

pub(super) fn sentences(kind: Kind) -> Sentences {
    let (short, effect, help) = match kind {
        Kind::StreamRace => (
            "Two streams access the same bytes, at least one writes, and nothing orders them.",
            "On a GPU the accesses may occur in either order, or at the same time, so the result varies from run to run.",
            "Record an event in the first stream after its work, and let the second stream wait for it.",
        ),
        Kind::ReuseRace => (
            "A pool hands out a block before its last user is ordered.",
            "The old user and the new one access the same bytes at the same time.",
            "Free the block in a stream that is ordered after its last use.",
        ),
        Kind::HostRace => (
            "The host accesses memory that work still uses, or that work accesses without being ordered after the host.",
            "The host reads bytes that are not yet written, or overwrites bytes that are not yet read.",
            "Synchronize the stream, or an event recorded after the work, before the host accesses the memory.",
        ),
        Kind::SharedRace => (
            "Threads of one block access the same bytes of shared memory without a barrier in between.",
            "A thread may read the value from before or after the write of the other thread.",
            "Put __syncthreads() between the two accesses, or __syncwarp() if both threads are in one warp.",
        ),
        Kind::GlobalRace => (
            "Threads of a kernel access the same bytes of global memory, and nothing orders them.",
            "A thread may read the value from before or after the write of the other thread, and writes may be lost.",
            "Use atomic operations, or let each thread write its own bytes, or split the work into two kernels.",
        ),
        Kind::OutOfBounds => (
            "An access outside of every allocation, or beyond the end of one.",
            "On a GPU it reads or overwrites other data without an error, or ends the context with an illegal address.",
            "Compare the index with the number of elements before the access, or allocate more.",
        ),
        Kind::Misaligned => (
            "An access whose address is not a multiple of its size.",
            "On a GPU it ends the context with a misaligned address.",
            "Align the pointer, or access the bytes in smaller units.",
        ),
        Kind::UseAfterFree => (
            "An access to memory that was freed.",
            "The memory may belong to another allocation by then.",
            "Free the memory after its last use, in the order of the streams that use it.",
        ),
        Kind::UseBeforeAllocation => (
            "An access that is not ordered after the allocation of its memory.",
            "The memory may still be used by its previous owner.",
            "Let the stream wait for an event that is recorded after the allocation.",
        ),
        Kind::FreeInUse => (
            "A free while work that is not ordered before it uses the memory.",
            "The memory may be handed out again while the work still accesses it.",
            "Let the stream of the free wait for an event that is recorded after the work.",
        ),
        Kind::UninitializedRead => (
            "A read of bytes that were never written.",
            "The value is whatever the memory contained before, so the result varies from run to run.",
            "Write the memory first, with a copy, a memset or a kernel that is ordered before the read.",
        ),
        Kind::BarrierDivergence => (
            "Threads of a block wait at a barrier that others never reach.",
            "On a GPU the kernel hangs, or the barrier orders nothing.",
            "Let all threads of the block reach the barrier: move it out of the branch, or do not return before it.",
        ),
        Kind::DoubleFree => (
            "A second free of one block.",
            "It may free the memory of another allocation, which got the same address.",
            "Free each block once, and set the pointer to null.",
        ),
        Kind::InteriorFree => (
            "A free of an address inside a block.",
            "The free fails, and the block is not freed.",
            "Pass the address that the allocation returned.",
        ),
        Kind::InvalidFree => (
            "A free of an address that was never allocated, or with the wrong function.",
            "The free fails, and what it was meant for is not freed.",
            "Free memory with the function that belongs to its allocation.",
        ),
        Kind::Leak => (
            "Memory that was not freed when the program ended.",
            "A program that runs longer runs out of memory.",
            "Free the memory after its last use.",
        ),
        Kind::UnjoinedCapture => (
            "A capture that was not ended, or did not join all of its streams.",
            "The capture fails, and its work never runs.",
            "Let the first stream of the capture wait for events of all others, then end the capture.",
        ),
        Kind::HostMemoryFreed => (
            "Host memory that was freed while an asynchronous copy uses it.",
            "The copy reads or writes memory that belongs to something else by then.",
            "Synchronize the stream of the copy before the memory is freed.",
        ),
        Kind::StreamInUse => (
            "A stream that was used after it was destroyed.",
            "A use of its handle fails, or reaches another stream.",
            "Destroy the stream after the last call that uses it.",
        ),
        Kind::EventInUse => (
            "An event that was used after it was destroyed.",
            "A use of its handle fails, or reaches another event.",
            "Destroy the event after the last call that uses it.",
        ),
        Kind::ModuleInUse => (
            "A module that was unloaded before the program had waited for its kernels.",
            "The unload waits for all work of the context, or the kernel fails.",
            "Synchronize the streams of its kernels before the module is unloaded.",
        ),
        Kind::IpcClosed => (
            "Memory of another process that was closed, or freed by its owner, while work uses it.",
            "The work accesses addresses that are no longer mapped, or memory with another owner.",
            "Wait for the work before the memory is closed, and let the owner wait for its users before it frees.",
        ),
        Kind::KernelFault => (
            "A kernel that ended with a fault of another kind: a trap, an assertion, a stack overflow.",
            "The context cannot be used after that.",
            "The message names the fault and the instruction.",
        ),
    };
    Sentences { short, effect, help }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_by_its_name_and_others_are_refused() {
        for kind in Kind::ALL {
            assert_eq!(parse(kind.name()), Ok(*kind));
        }
        assert!(parse("").is_err() && parse("stream").is_err());
        let error = parse("raec").unwrap_err();
        assert!(error.starts_with("unknown kind \"raec\": expected stream-race, reuse-race, host-race,"), "{error}");
        assert!(error.ends_with(", ipc-closed, kernel-fault"), "{error}");
    }

    #[test]
    fn each_sentence_is_one_with_a_full_stop() {
        for &kind in Kind::ALL {
            let Sentences { short, effect, help } = sentences(kind);
            for sentence in [short, effect, help] {
                assert!(sentence.ends_with('.') && !sentence.contains(". "), "{sentence}");
            }
        }
    }
}
