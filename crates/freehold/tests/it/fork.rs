//! The child of a fork: every call fails, drops do nothing, and the parent is not affected.

use crate::children::alone;
use crate::own;
use crate::shared;

use std::os::fd::AsFd;

use freehold::ledger::WrongRelease;
use freehold::{CloseError, Error, Permission, Result};
use own::{N, Own, grid};
use shared::CHUNK;

/// Forks, and returns the exit status of the child, which ends with what `run` gives.
fn forked(run: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child makes only calls that the test is about, none of which needs another thread, and then ends
    // without the handlers of its parent.
    match unsafe { libc::fork() } {
        -1 => panic!("the system has room for a process"),
        0 => {
            let status = run();
            // SAFETY: ends the child, whose memory is its own.
            unsafe { libc::_exit(status.into()) }
        }
        process => {
            let mut status = 0;
            // SAFETY: `status` outlives the call, which writes one `i32` to it.
            let waited = unsafe { libc::waitpid(process, &mut status, 0) };
            assert_eq!(waited, process);
            assert!(libc::WIFEXITED(status), "the child ends by itself: {status:#x}");
            libc::WEXITSTATUS(status)
        }
    }
}

#[test]
fn a_forked_child_is_refused_and_its_parent_is_untouched() {
    alone("a_forked_child_is_refused_and_its_parent_is_untouched", || {
        let own = Own::new();
        let parent = std::process::id();
        let refuses = |outcome: Result<()>| matches!(outcome, Err(Error::ForkedChild { process }) if process == parent);
        let [stream, other] = own.streams();
        let mut blocks: Vec<_> = (0..4).map(|value| stream.upload(&[value; N]).unwrap()).collect();
        let shared = blocks.pop().unwrap().share();
        let address = blocks.pop().unwrap().into_address();
        other.launch(&own.kernels.add, grid(), (&mut blocks[1], 7_u32, N as u32)).unwrap();
        let event = other.event().unwrap();
        let (memory, words) = (shared::memory(CHUNK), shared::words(8));
        let imported = own.device.import(memory.as_fd(), CHUNK, Permission::ReadWrite).unwrap();
        let mut part = imported.slice::<u32>(&stream, 0, N).unwrap();
        stream.write(&mut part, &[5; N]).unwrap();
        let semaphores = own.device.shared_semaphores(words.as_fd(), 1).unwrap();
        semaphores.write(0, 1);

        // What the child takes out of these stays in the parent's, which are other memory.
        let (mut held, mut gone) = (Some(blocks.pop().unwrap()), Some((other, shared, blocks.pop().unwrap())));
        let mut foreign = Some((imported, part, semaphores));
        let refused = forked(|| {
            let wrong_release = || own.device.release(address);
            let taken = held.take().unwrap();
            let CloseError { value: taken, error: closed } = taken.close().unwrap_err();
            let (imported, part, semaphores) = foreign.take().unwrap();
            let outcomes = [
                refuses(own.device.import(memory.as_fd(), CHUNK, Permission::Read).map(drop)),
                refuses(own.device.shared_semaphores(words.as_fd(), 1).map(drop)),
                refuses(imported.slice::<u32>(&stream, 0, N).map(drop)),
                refuses(part.gather(&stream)),
                refuses(stream.write_value(&semaphores, 0, 2)),
                !part.pending(),
                refuses(own.device.uuid().map(drop)),
                refuses(Err(closed)),
                refuses(stream.alloc::<u32>(N).map(drop)),
                refuses(stream.upload(&[1_u32; N]).map(drop)),
                refuses(stream.download(&taken).map(drop)),
                refuses(stream.launch(&own.kernels.count, freehold::Grid::line(1, 1), ())),
                refuses(stream.synchronize()),
                refuses(event.is_complete().map(drop)),
                refuses(own.device.new_stream().map(drop)),
                refuses(own.device.new_context().map(drop)),
                refuses(own.device.tidy()),
                refuses(taken.release_now().map_err(Error::from)),
                matches!(wrong_release(), Err(Error::WrongRelease(WrongRelease::ForkedChild { process, .. })) if process == parent),
            ];
            drop((gone.take(), imported, part, semaphores));
            outcomes.iter().filter(|&&refused| refused).count() as u8
        });
        assert_eq!(refused, 19);

        let (imported, part, semaphores) = foreign.unwrap();
        assert_eq!((stream.download(&part).unwrap(), semaphores.read(0)), (vec![5; N], 1));
        drop((imported, part, semaphores));
        let (other, shared, first) = gone.unwrap();
        assert_eq!(other.download(&held.unwrap()).unwrap(), [8; N]);
        assert_eq!(other.download(&first).unwrap(), [0; N]);
        assert_eq!(stream.download(&shared).unwrap(), [3; N]);
        assert_eq!(own.device.blocks().len(), 3, "the parent has them all, and the one that is known by its address");
        own.device.release(address).unwrap();
        assert_eq!(stream.alloc::<u32>(N).unwrap().address(), address);
        assert!(own.device.drop_errors().is_empty());
    });
}
