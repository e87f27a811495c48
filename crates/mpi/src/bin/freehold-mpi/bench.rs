//! `freehold mpi bench`: latency and bandwidth as the OSU benchmarks define them. Latency is half of a message there and one back.
//! Bandwidth is that of messages sent all at once, up to the answer that all have come. Each beside raw MPI in the same run.

use std::time::Instant;

use freehold::{Block, Device, Stream};
use freehold_mpi::{Path, World};

use crate::Failure;
use crate::raw::Raw;
use crate::report::{Report, Row};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure a few times only: whether it works, not what it costs
    #[arg(long)]
    quick: bool,
    /// The longest message, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    bytes_max: usize,
}

/// How often a thing is measured, each time beside what it is compared with.
const ROUNDS: usize = 5;

/// A message that says that others have come.
const ANSWER_BYTES: usize = 4;

pub(crate) fn run(world: &World, arguments: &Arguments, is_json: bool) -> Result<(), Failure> {
    if world.size() < 2 {
        return Err(Failure::of_call(
            "a message needs two ranks: start this with mpirun -n 2 freehold mpi bench".to_owned(),
        ));
    }
    if !(1..=1 << 30).contains(&arguments.bytes_max) {
        return Err(Failure::of_call("--bytes-max is from 1 to 1073741824".to_owned()));
    }
    let rig = Rig::new(world, arguments)?;
    let sizes = std::iter::successors(Some(1_usize), |bytes| Some(bytes * 2));
    let mut rows = Vec::new();
    for bytes in sizes.take_while(|&bytes| bytes <= arguments.bytes_max) {
        world.barrier()?;
        if world.rank() < 2 {
            rows.push(rig.measure(bytes)?);
        }
    }
    world.barrier()?;
    if world.rank() == 0 {
        let report = Report::new(world, rows)?;
        print!("{}", if is_json { report.json() } else { report.table() });
    }
    Ok(())
}

/// What the two ranks measure with.
struct Rig<'a> {
    world: &'a World,
    stream: Stream,
    host: Vec<u8>,
    /// The other rank.
    peer: i32,
    is_quick: bool,
}

/// How messages go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Ours,
    RawHost,
    RawDevice,
}

impl<'a> Rig<'a> {
    fn new(world: &'a World, arguments: &Arguments) -> Result<Self, Failure> {
        let stream = world.device().stream()?;
        let host = vec![1; arguments.bytes_max.max(ANSWER_BYTES)];
        Ok(Self { world, stream, host, peer: 1 - world.rank(), is_quick: arguments.quick })
    }

    /// One row: the medians of what each way takes, in turns.
    fn measure(&self, bytes: usize) -> Result<Row, Failure> {
        let mut block = self.stream.zeros::<u8>(bytes)?;
        let mut answer = self.stream.zeros::<u8>(ANSWER_BYTES)?;
        // What arrives at once has a block each: into one block each would wait for the one before it.
        let arrivals = if self.world.rank() == 1 { window(bytes) } else { 0 };
        let mut targets = Vec::with_capacity(arrivals);
        for _ in 0..arrivals {
            targets.push(self.stream.zeros::<u8>(bytes)?);
        }
        self.stream.synchronize()?;
        let is_direct = self.world.choice().transfers == Path::Direct;
        let rounds = if self.is_quick { 1 } else { ROUNDS };
        let mut latencies = [Vec::new(), Vec::new(), Vec::new()];
        let mut bandwidths = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (index, way) in [Way::Ours, Way::RawHost, Way::RawDevice].into_iter().enumerate() {
                if way == Way::RawDevice && !is_direct {
                    continue;
                }
                latencies[index].push(self.latency_ns(way, &mut block)?);
                bandwidths[index].push(self.bytes_per_s(way, &block, &mut targets, &mut answer)?);
            }
        }
        let copy = if is_direct { None } else { Some(self.copied_bytes_per_s(&mut block)?) };
        let [latency, raw_host, raw_device] = latencies.map(median);
        let [bandwidth, host_bandwidth, device_bandwidth] = bandwidths.map(median);
        Ok(Row {
            bytes,
            latency_ns: latency.unwrap_or(f64::NAN),
            raw_host_latency_ns: raw_host.unwrap_or(f64::NAN),
            raw_device_latency_ns: raw_device,
            bytes_per_s: bandwidth.unwrap_or(f64::NAN),
            raw_host_bytes_per_s: host_bandwidth.unwrap_or(f64::NAN),
            raw_device_bytes_per_s: device_bandwidth,
            pinned_copy_bytes_per_s: copy,
        })
    }

    /// How often a message goes there and back: 10,000 times if it is short, as often as takes about a second if it is long.
    fn times(&self, bytes: usize) -> usize {
        let times = if bytes <= 8192 { 10_000 } else { ((1 << 30) / bytes).clamp(8, 1000) };
        if self.is_quick { times.div_ceil(500) } else { times / ROUNDS + 1 }
    }

    fn latency_ns(&self, way: Way, block: &mut Block<u8>) -> Result<f64, Failure> {
        let times = self.times(block.len());
        let warm = times / 10 + 1;
        let mut began = Instant::now();
        for turn in 0..times + warm {
            if turn == warm {
                began = Instant::now();
            }
            if self.world.rank() == 0 {
                self.send(way, block)?;
                self.receive(way, block)?;
            } else {
                self.receive(way, block)?;
                self.send(way, block)?;
            }
        }
        Ok(began.elapsed().as_nanos() as f64 / times as f64 / 2.0)
    }

    fn raw(&self, way: Way, block: &Block<u8>) -> Raw {
        match way {
            Way::RawDevice => Raw { address: block.address(), bytes: block.len() },
            Way::Ours | Way::RawHost => {
                Raw { address: self.host.as_ptr().expose_provenance() as u64, bytes: block.len() }
            }
        }
    }

    fn send(&self, way: Way, block: &Block<u8>) -> Result<(), Failure> {
        match way {
            Way::Ours => self.world.send(&self.stream, block, self.peer, 1)?,
            // SAFETY: memory of the host, or of a device that the library takes, which outlives the call.
            Way::RawHost | Way::RawDevice => unsafe { self.raw(way, block).send(self.peer) },
        }
        Ok(())
    }

    fn receive(&self, way: Way, block: &mut Block<u8>) -> Result<(), Failure> {
        match way {
            Way::Ours => self.world.recv(&self.stream, block, self.peer, 1).map(drop)?,
            // SAFETY: as above; nobody reads the memory meanwhile.
            Way::RawHost | Way::RawDevice => unsafe { self.raw(way, block).recv(self.peer) },
        }
        Ok(())
    }

    fn bytes_per_s(
        &self,
        way: Way,
        block: &Block<u8>,
        targets: &mut [Block<u8>],
        answer: &mut Block<u8>,
    ) -> Result<f64, Failure> {
        let (bytes, window) = (block.len(), window(block.len()));
        let times = if bytes <= 8192 { 100 } else { ((1 << 30) / bytes / window).clamp(1, 20) };
        let times = if self.is_quick { 1 } else { times.div_ceil(2) };
        let mut began = Instant::now();
        for turn in 0..=times {
            if turn == 1 {
                began = Instant::now();
            }
            if self.world.rank() == 0 {
                self.send_many(way, block, window)?;
                self.receive(way, answer)?;
            } else {
                self.receive_many(way, block, targets)?;
                self.send(way, answer)?;
            }
        }
        Ok((bytes * window * times) as f64 / began.elapsed().as_secs_f64())
    }

    fn send_many(&self, way: Way, block: &Block<u8>, window: usize) -> Result<(), Failure> {
        if way != Way::Ours {
            // SAFETY: as for one message.
            unsafe { self.raw(way, block).send_many(self.peer, window) };
            return Ok(());
        }
        let begun = (0..window).map(|_| self.world.isend(&self.stream, block, self.peer, 1));
        let begun = begun.collect::<freehold_mpi::Result<Vec<_>>>()?;
        Ok(begun.into_iter().try_for_each(freehold_mpi::Request::<()>::wait)?)
    }

    fn receive_many(&self, way: Way, block: &Block<u8>, targets: &mut [Block<u8>]) -> Result<(), Failure> {
        if way != Way::Ours {
            // SAFETY: as for one message.
            unsafe { self.raw(way, block).recv_many(self.peer, targets.len()) };
            return Ok(());
        }
        let begun = targets.iter_mut().map(|target| self.world.irecv(&self.stream, target, self.peer, 1));
        let begun = begun.collect::<freehold_mpi::Result<Vec<_>>>()?;
        Ok(begun.into_iter().try_for_each(|request| request.wait().map(drop))?)
    }

    /// What copies alone would reach: from the device to pinned memory, and back, the slower of both.
    fn copied_bytes_per_s(&self, block: &mut Block<u8>) -> Result<f64, Failure> {
        let (bytes, times) = (block.len(), if self.is_quick { 1 } else { ROUNDS });
        let host = pinned(self.world.device(), bytes)?;
        let mut taken = Vec::new();
        for _ in 0..times {
            let began = Instant::now();
            self.stream.read(block, host)?;
            let out_s = began.elapsed().as_secs_f64();
            let began = Instant::now();
            self.stream.write(block, host)?;
            self.stream.synchronize()?;
            taken.push(out_s.max(began.elapsed().as_secs_f64()));
        }
        Ok(bytes as f64 / median(taken).unwrap_or(f64::NAN))
    }
}

/// How many messages are sent at once: 64, as OSU has it, and fewer of long ones.
fn window(bytes: usize) -> usize {
    ((1 << 30) / bytes).clamp(4, 64)
}

/// Pinned memory, until the process ends.
fn pinned(device: &Device, bytes: usize) -> Result<&'static mut [u8], Failure> {
    let start = device.backend().alloc_host(bytes).map_err(freehold::Error::from)?;
    // SAFETY: the driver gave so many bytes, which are nobody else's and are never freed; any bytes are good ones, and it zeroes none
    // but leaves what the system gave.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) })
}

fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_unstable_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}
