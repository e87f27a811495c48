//! `freehold mpi bench`: latency and bandwidth as the OSU benchmarks define them, next to raw MPI in the same run.
//! Latency is half of a round trip. Bandwidth is that of a window of messages sent at once, until the receiver has
//! acknowledged all of them.

use std::time::{Duration, Instant};

use freehold::{Block, Device, Stream};
use freehold_mpi::{Path, World};

use crate::Failure;
use crate::raw_mpi::RawBuffer;
use crate::report::{Report, Row};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure only a few times: a check that it works, not a measurement
    #[arg(long)]
    quick: bool,
    /// The longest message, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    bytes_max: usize,
    /// Measure only messages of these lengths
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', conflicts_with = "bytes_max")]
    bytes: Vec<usize>,
}

/// The longest message that can be measured.
const BYTES_MAX: usize = 1 << 30;

/// How many rounds are measured, alternating with the comparison; and how many if one repetition exceeds `ROUND`.
const ROUNDS: usize = 15;
const ROUNDS_MIN: usize = 5;

/// How long a round should take, and how many repetitions it has at most.
const ROUND: Duration = Duration::from_millis(8);
const TIMES_MAX: usize = 2000;

/// The acknowledgement of a window.
const ACK_BYTES: usize = 4;

pub(crate) fn run(world: &World, arguments: &Arguments, is_json: bool) -> Result<(), Failure> {
    if world.size() < 2 {
        return Err(Failure::from_call("bench needs two ranks: run mpirun -n 2 freehold mpi bench".to_owned()));
    }
    let powers = std::iter::successors(Some(1_usize), |bytes| Some(bytes * 2));
    let lengths = match &arguments.bytes[..] {
        [] => powers.take_while(|&bytes| bytes <= arguments.bytes_max).collect(),
        chosen => chosen.to_vec(),
    };
    if lengths.is_empty() || !lengths.iter().chain([&arguments.bytes_max]).all(|bytes| (1..=BYTES_MAX).contains(bytes))
    {
        return Err(Failure::from_call(format!("--bytes and --bytes-max must be from 1 to {BYTES_MAX}")));
    }
    let rig = Rig::new(world, arguments, lengths.iter().copied().max().unwrap_or(1))?;
    let mut rows = Vec::new();
    for bytes in lengths {
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

/// The resources that the two ranks measure with.
struct Rig<'a> {
    world: &'a World,
    stream: Stream,
    host: Vec<u8>,
    /// The other rank.
    peer: i32,
    is_quick: bool,
}

/// How messages are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Freehold,
    RawHost,
    RawDevice,
}

/// The exchange that is repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// A message there and one back.
    PingPong,
    /// A window of messages, and their acknowledgement.
    Window,
}

/// The blocks that messages are sent from and received into.
struct Buffers {
    block: Block<u8>,
    ack: Block<u8>,
    /// One block per message of a window: in a single block, each message would wait for the previous one.
    targets: Vec<Block<u8>>,
}

impl<'a> Rig<'a> {
    fn new(world: &'a World, arguments: &Arguments, bytes_max: usize) -> Result<Self, Failure> {
        let stream = world.device().new_stream()?;
        let host = vec![1; bytes_max.max(ACK_BYTES)];
        Ok(Self { world, stream, host, peer: 1 - world.rank(), is_quick: arguments.quick })
    }

    /// Measures one row: the median of each method, measured in turns.
    fn measure(&self, bytes: usize) -> Result<Row, Failure> {
        let block = self.stream.zeros::<u8>(bytes)?;
        let answer = self.stream.zeros::<u8>(ACK_BYTES)?;
        let arrivals = if self.world.rank() == 1 { window(bytes) } else { 0 };
        let targets = (0..arrivals).map(|_| self.stream.zeros::<u8>(bytes)).collect::<freehold::Result<_>>()?;
        self.stream.synchronize()?;
        let mut memories = Buffers { block, ack: answer, targets };
        let is_direct = self.world.path_choice().transfers == Path::Direct;
        let ways: &[Method] = if is_direct {
            &[Method::Freehold, Method::RawHost, Method::RawDevice]
        } else {
            &[Method::Freehold, Method::RawHost]
        };
        let echoes = self.interleaved(Pattern::PingPong, ways, &mut memories)?;
        let windows = self.interleaved(Pattern::Window, ways, &mut memories)?;
        let copy = if is_direct { None } else { Some(self.copied_bytes_per_s(&mut memories.block)?) };
        let rate = |turn_ns: f64| (bytes * window(bytes)) as f64 / turn_ns * 1e9;
        let median_of = |rounds: &[Vec<f64>], way: usize| median(rounds.get(way)?.clone());
        // Round by round, so that disturbances affect both.
        let differences = echoes.get(2).map(|raw| echoes[0].iter().zip(raw).map(|(ours, raw)| (ours - raw) / 2.0));
        Ok(Row {
            bytes,
            latency_ns: median_of(&echoes, 0).unwrap_or(f64::NAN) / 2.0,
            raw_host_latency_ns: median_of(&echoes, 1).unwrap_or(f64::NAN) / 2.0,
            raw_device_latency_ns: median_of(&echoes, 2).map(|turn_ns| turn_ns / 2.0),
            cost_ns: differences.and_then(|differences| median(differences.collect())),
            bytes_per_s: median_of(&windows, 0).map_or(f64::NAN, rate),
            raw_host_bytes_per_s: median_of(&windows, 1).map_or(f64::NAN, rate),
            raw_device_bytes_per_s: median_of(&windows, 2).map(rate),
            pinned_copy_bytes_per_s: copy,
        })
    }

    /// Returns the time of a repetition in each round, in nanoseconds, for each method; the methods take turns.
    fn interleaved(&self, turn: Pattern, ways: &[Method], memories: &mut Buffers) -> Result<Vec<Vec<f64>>, Failure> {
        let times =
            ways.iter().map(|&way| self.iterations_that_fit(turn, way, memories)).collect::<Result<Vec<_>, _>>()?;
        let is_slow = times.contains(&1);
        let rounds = if self.is_quick {
            1
        } else if is_slow {
            ROUNDS_MIN
        } else {
            ROUNDS
        };
        let mut taken = vec![Vec::with_capacity(rounds); ways.len()];
        for _ in 0..rounds {
            for ((&way, &times), taken) in ways.iter().zip(&times).zip(&mut taken) {
                taken.push(self.time_exchanges_ns(times, turn, way, memories)?);
            }
        }
        Ok(taken)
    }

    /// Returns how many repetitions fit into a round. The first rank decides.
    fn iterations_that_fit(&self, turn: Pattern, way: Method, memories: &mut Buffers) -> Result<usize, Failure> {
        if self.is_quick {
            self.time_exchanges_ns(1, turn, way, memories)?;
            return Ok(2);
        }
        let mut times = 1;
        // The first one warms up.
        self.time_exchanges_ns(1, turn, way, memories)?;
        loop {
            let turn_ns = self.time_exchanges_ns(times, turn, way, memories)?;
            let fitting = (ROUND.as_nanos() as f64 / turn_ns) as usize;
            // A few repetitions of short messages are inaccurate.
            let is_known = self.max_over_ranks(usize::from(times * 4 >= fitting)) == 1;
            times = self.max_over_ranks(fitting.clamp(1, if is_known { TIMES_MAX } else { times * 8 }));
            if is_known {
                return Ok(times);
            }
        }
    }

    /// Returns the first rank's value.
    fn max_over_ranks(&self, mine: usize) -> usize {
        let mut word = [mine as u64];
        let raw = RawBuffer { address: word.as_mut_ptr().expose_provenance() as u64, bytes: 8 };
        if self.world.rank() == 0 {
            // SAFETY: the word is host memory that outlives the call.
            unsafe { raw.send(self.peer) };
        } else {
            // SAFETY: as above, and nothing else uses it.
            unsafe { raw.recv(self.peer) };
        }
        // SAFETY: a local variable, which the call no longer uses.
        unsafe { word.as_ptr().read_volatile() as usize }
    }

    /// Returns the time of one of `times` repetitions.
    fn time_exchanges_ns(
        &self,
        times: usize,
        turn: Pattern,
        way: Method,
        memories: &mut Buffers,
    ) -> Result<f64, Failure> {
        let began = Instant::now();
        for _ in 0..times {
            match turn {
                Pattern::PingPong => self.ping_pong(way, &mut memories.block)?,
                Pattern::Window => self.window(way, memories)?,
            }
        }
        Ok(began.elapsed().as_nanos() as f64 / times as f64)
    }

    fn ping_pong(&self, way: Method, block: &mut Block<u8>) -> Result<(), Failure> {
        if self.world.rank() == 0 {
            self.send(way, block)?;
            self.receive(way, block)
        } else {
            self.receive(way, block)?;
            self.send(way, block)
        }
    }

    fn window(&self, way: Method, Buffers { block, ack: answer, targets }: &mut Buffers) -> Result<(), Failure> {
        if self.world.rank() == 0 {
            self.send_many(way, block, window(block.len()))?;
            self.receive(way, answer)
        } else {
            self.receive_many(way, block, targets)?;
            self.send(way, answer)
        }
    }

    fn raw(&self, way: Method, block: &Block<u8>) -> RawBuffer {
        match way {
            Method::RawDevice => RawBuffer { address: block.address(), bytes: block.len() },
            Method::Freehold | Method::RawHost => {
                RawBuffer { address: self.host.as_ptr().expose_provenance() as u64, bytes: block.len() }
            }
        }
    }

    fn send(&self, way: Method, block: &Block<u8>) -> Result<(), Failure> {
        match way {
            Method::Freehold => self.world.send(&self.stream, block, self.peer, 1)?,
            // SAFETY: host memory, or device memory that the library accepts; it outlives the call.
            Method::RawHost | Method::RawDevice => unsafe { self.raw(way, block).send(self.peer) },
        }
        Ok(())
    }

    fn receive(&self, way: Method, block: &mut Block<u8>) -> Result<(), Failure> {
        match way {
            Method::Freehold => self.world.recv(&self.stream, block, self.peer, 1).map(drop)?,
            // SAFETY: as above; nothing reads the memory during that time.
            Method::RawHost | Method::RawDevice => unsafe { self.raw(way, block).recv(self.peer) },
        }
        Ok(())
    }

    fn send_many(&self, way: Method, block: &Block<u8>, window: usize) -> Result<(), Failure> {
        if way != Method::Freehold {
            // SAFETY: as for one message.
            unsafe { self.raw(way, block).send_many(self.peer, window) };
            return Ok(());
        }
        let begun = (0..window).map(|_| self.world.isend(&self.stream, block, self.peer, 1));
        let begun = begun.collect::<freehold_mpi::Result<Vec<_>>>()?;
        Ok(begun.into_iter().try_for_each(freehold_mpi::Request::<()>::wait)?)
    }

    fn receive_many(&self, way: Method, block: &Block<u8>, targets: &mut [Block<u8>]) -> Result<(), Failure> {
        if way != Method::Freehold {
            // SAFETY: as for one message.
            unsafe { self.raw(way, block).recv_many(self.peer, targets.len()) };
            return Ok(());
        }
        let begun = targets.iter_mut().map(|target| self.world.irecv(&self.stream, target, self.peer, 1));
        let begun = begun.collect::<freehold_mpi::Result<Vec<_>>>()?;
        Ok(begun.into_iter().try_for_each(|request| request.wait().map(drop))?)
    }

    /// Returns the bandwidth of copies alone: the slower of device to pinned memory and back.
    fn copied_bytes_per_s(&self, block: &mut Block<u8>) -> Result<f64, Failure> {
        let (bytes, times) = (block.len(), if self.is_quick { 1 } else { ROUNDS_MIN });
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

/// Returns the window: 64 messages, as in OSU, and fewer long ones.
fn window(bytes: usize) -> usize {
    ((1 << 30) / bytes).clamp(4, 64)
}

/// Allocates pinned memory that is never freed.
fn pinned(device: &Device, bytes: usize) -> Result<&'static mut [u8], Failure> {
    let start = device.backend().alloc_host(bytes).map_err(freehold::Error::from)?;
    // SAFETY: the driver allocated `bytes` bytes, which nothing else uses and which are never freed; every byte value
    // is valid.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) })
}

fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_unstable_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}
