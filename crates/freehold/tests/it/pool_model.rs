//! The pool against a model, under the software driver's schedules: random allocations, uses in several streams and
//! releases. Live blocks do not overlap, no owner reads another owner's data, live bytes are counted exactly, and
//! nothing is left at the end.
//!
//! A block is filled in one stream after another, each after the one before. At its release a part of it is copied to
//! an archive, in the order of the stream that filled it last, and the host does not wait: a block that is reused too
//! early is overwritten before that copy, or after the new owner's fill. The archive is read at the end.
//!
//! Each seed has its own process. `FREEHOLD_SEED` names the only one to run.

use crate::children::all_wrong;
use crate::foreign_pools;

use foreign_pools::{Host, MIB};
use freehold::Error;
use freehold_driver::cuda::{CUdeviceptr, CUevent, CUstream, context, copy, event, event_flags, fill, memory, stream};
use freehold_testing::{Random, child, env_seed, seeds};

const STEPS: u64 = 250;
const STREAMS: usize = 4;

/// What is copied of a block when it is released: this many bytes of its beginning, and of its end.
const SAMPLE_BYTES: u64 = 256;
const ARCHIVE_BYTES: u64 = STEPS * 2 * SAMPLE_BYTES;

struct Block {
    address: u64,
    bytes: u64,
    pattern: u8,
    /// Which stream filled it last.
    last: usize,
    /// Which streams the pool was told of.
    told: Vec<CUstream>,
}

impl Block {
    fn sample_bytes(&self) -> u64 {
        self.bytes.min(SAMPLE_BYTES)
    }
}

struct Run {
    host: Host,
    numbers: Random,
    streams: Vec<CUstream>,
    event: CUevent,
    live: Vec<Block>,
    freed: Vec<u64>,
    archive: CUdeviceptr,
    /// What the archive holds: where, how many bytes, which pattern, and which step put it there.
    kept: Vec<(u64, u64, u8, u64)>,
    step: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let host = Host::new();
        let archive = memory::alloc(&host.api, ARCHIVE_BYTES as usize).unwrap();
        Self {
            numbers: Random::new(seed),
            streams: (0..STREAMS).map(|_| host.stream()).collect(),
            event: event::create(&host.api, event_flags::DISABLE_TIMING).unwrap(),
            live: Vec::new(),
            freed: Vec::new(),
            archive,
            kept: Vec::new(),
            step: 0,
            host,
        }
    }

    fn run(mut self) -> Result<(), String> {
        for step in 0..STEPS {
            self.step = step;
            match self.numbers.below(100) {
                0..42 => self.alloc()?,
                42..60 => self.use_elsewhere(),
                60..90 => self.free()?,
                90..93 => self.free_wrongly()?,
                93..95 => {
                    self.host.allocator.trim(self.numbers.below(32) * MIB).map_err(|error| error.to_string())?;
                }
                95..97 => self.replace_stream(),
                97..99 => context_work(&self.host, self.streams[0]),
                _ => stream::synchronize(&self.host.api, self.streams[1]).unwrap(),
            }
            self.check_sums()?;
        }
        while !self.live.is_empty() {
            self.free()?;
        }
        context::synchronize(&self.host.api).unwrap();
        self.check_archive()?;
        self.check_nothing_is_left()
    }

    fn check_sums(&self) -> Result<(), String> {
        let expected: u64 = self.live.iter().map(|block| block.bytes).sum();
        let found = self.host.allocator.live_bytes();
        let is_exact = found == expected;
        is_exact.then_some(()).ok_or(format!("after step {}: {found} bytes are live, not {expected}", self.step))
    }

    fn alloc(&mut self) -> Result<(), String> {
        let bytes = match self.numbers.below(10) {
            0..4 => 1 + self.numbers.below(4096),
            4..6 => 1 + self.numbers.below(100 << 10),
            6..9 => 1 + self.numbers.below(3 * MIB),
            _ => 1 + self.numbers.below(12 * MIB),
        };
        let last = self.numbers.below(STREAMS as u64) as usize;
        let address = match self.host.allocator.alloc(bytes, self.streams[last]) {
            Ok(address) => address,
            Err(Error::Short { .. }) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let overlap =
            self.live.iter().find(|block| address < block.address + block.bytes && block.address < address + bytes);
        if let Some(other) = overlap {
            return Err(format!(
                "after step {}: {bytes} bytes at {address:#x} overlap those at {:#x}",
                self.step, other.address
            ));
        }
        self.freed.retain(|&freed| freed != address);
        let pattern = self.numbers.below(255) as u8 + 1;
        self.live.push(Block { address, bytes, pattern, last, told: vec![self.streams[last]] });
        self.fill(self.live.len() - 1);
        Ok(())
    }

    fn fill(&mut self, index: usize) {
        let block = &self.live[index];
        let (to, stream) = (CUdeviceptr(block.address), self.streams[block.last]);
        fill::d8_async(&self.host.api, to, block.pattern, block.bytes as usize, stream).unwrap();
    }

    fn pick(&mut self) -> Option<usize> {
        let count = self.live.len() as u64;
        (count > 0).then(|| self.numbers.below(count) as usize)
    }

    /// Lets one stream's next work wait for all work of another.
    fn order(&self, before: usize, after: usize) {
        event::record(&self.host.api, self.event, self.streams[before]).unwrap();
        stream::wait_event(&self.host.api, self.streams[after], self.event, 0).unwrap();
    }

    fn use_elsewhere(&mut self) {
        let Some(index) = self.pick() else { return };
        let next = self.numbers.below(STREAMS as u64) as usize;
        self.order(self.live[index].last, next);
        let stream = self.streams[next];
        let pattern = self.numbers.below(255) as u8 + 1;
        let block = &mut self.live[index];
        if !block.told.contains(&stream) {
            self.host.allocator.record_use(block.address, stream).unwrap();
            block.told.push(stream);
        }
        (block.last, block.pattern) = (next, pattern);
        self.fill(index);
    }

    fn free(&mut self) -> Result<(), String> {
        let Some(index) = self.pick() else { return Ok(()) };
        let block = self.live.swap_remove(index);
        let (api, sample) = (&self.host.api, block.sample_bytes());
        for from in [block.address, block.address + block.bytes - sample] {
            let to = CUdeviceptr(self.archive.0 + self.kept.len() as u64 * SAMPLE_BYTES);
            copy::device_to_device_async(api, to, CUdeviceptr(from), sample as usize, self.streams[block.last])
                .unwrap();
            self.kept.push((to.0, sample, block.pattern, self.step));
        }
        // In the order of the stream that used it last, or of any other: the pool knows of all that used it.
        let stream = if self.numbers.below(2) == 0 { block.last } else { self.numbers.below(STREAMS as u64) as usize };
        let freed = self.host.allocator.free(block.address, self.streams[stream]);
        self.freed.push(block.address);
        freed.map_err(|error| format!("after step {}: {} bytes are not taken back: {error}", self.step, block.bytes))
    }

    fn free_wrongly(&mut self) -> Result<(), String> {
        let within =
            self.pick().map(|index| &self.live[index]).filter(|block| block.bytes > 1).map(|block| block.address + 1);
        let again = self.freed.last().copied();
        for address in within.into_iter().chain(again) {
            if self.host.allocator.free(address, self.streams[0]).is_ok() {
                return Err(format!("after step {}: {address:#x} is taken back, where no block begins", self.step));
            }
        }
        Ok(())
    }

    /// Ends a stream whose work goes on, and makes another, which may have its handle.
    fn replace_stream(&mut self) {
        let index = self.numbers.below(STREAMS as u64) as usize;
        let old = self.streams[index];
        // What it filled last is used in another stream from now on.
        let other = (index + 1) % STREAMS;
        if self.live.iter().any(|block| block.last == index) {
            self.order(index, other);
        }
        for block in self.live.iter_mut() {
            if block.last == index {
                block.last = other;
                if !block.told.contains(&self.streams[other]) {
                    self.host.allocator.record_use(block.address, self.streams[other]).unwrap();
                    block.told.push(self.streams[other]);
                }
            }
            // The handle may mean another stream soon.
            block.told.retain(|&told| told != old);
        }
        self.host.allocator.retire(old).unwrap();
        stream::destroy(&self.host.api, old).unwrap();
        self.streams[index] = self.host.stream();
    }

    fn check_archive(&self) -> Result<(), String> {
        for &(at, bytes, pattern, step) in &self.kept {
            let mut found = vec![0; bytes as usize];
            copy::device_to_host(&self.host.api, &mut found, CUdeviceptr(at)).unwrap();
            if let Some(other) = found.iter().find(|&&byte| byte != pattern) {
                return Err(format!("after step {step}: a block had {other} in it, not {pattern}"));
            }
        }
        Ok(())
    }

    fn check_nothing_is_left(&self) -> Result<(), String> {
        self.host.allocator.trim(0).map_err(|error| error.to_string())?;
        match (self.host.allocator.live_bytes(), self.host.allocator.reserved_bytes()) {
            (0, 0) => Ok(()),
            (live, reserved) => Err(format!("{live} bytes are live in the end, and {reserved} reserved")),
        }
    }
}

/// Work that has nothing to do with blocks, so that schedules have more to choose from.
fn context_work(host: &Host, stream: CUstream) {
    let event = event::create(&host.api, event_flags::DISABLE_TIMING).unwrap();
    event::record(&host.api, event, stream).unwrap();
    event::destroy(&host.api, event).unwrap();
}

#[test]
fn blocks_hold_what_their_owners_put_there_and_nothing_is_lost() {
    const NAME: &str = "blocks_hold_what_their_owners_put_there_and_nothing_is_lost";
    if child::is_child(NAME) {
        let outcome = Run::new(env_seed().expect("a child has a seed")).run();
        return outcome.unwrap_or_else(|wrong| child::report_line(&wrong));
    }
    assert_eq!(all_wrong(NAME, seeds(3, 30, 400), &[("FREEHOLD_SOFT_MEMORY", "96MiB")]), [""; 0]);
}
