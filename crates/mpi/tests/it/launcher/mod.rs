//! Ranks for tests: a test starts its own program several times with the library's launcher, and is then a rank in each
//! process.

use std::env;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use freehold::{Device, Pod};
use freehold_mpi::World;
use freehold_testing::command_for_test;

/// In a rank, names the folder where it creates a file when it is done. Printed output does not show that: a launcher
/// mixes the ranks' lines.
const DONE: &str = "FREEHOLD_MPI_TEST_DONE";

/// In a rank, names the first random program to run.
pub(crate) const FIRST: &str = "FREEHOLD_MPI_TEST_FIRST";

/// The transport of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Memory,
    Tcp,
}

/// The ranks that a test starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankConfig {
    pub(crate) ranks: u32,
    pub(crate) transport: Transport,
    /// Their environment variables.
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// The first random program that they run.
    pub(crate) first: Option<u64>,
    /// Whether the launcher keeps ranks alive when one dies.
    pub(crate) outlive: bool,
}

/// Ranks that take longer hang: this is ten times what they take on the busiest machine.
const SECONDS: u32 = 600;

/// Host-invisible device memory, on one machine and as if on several; memory that ranks share; and host-visible device
/// memory.
pub(crate) const STAGED: &[(&str, &str)] = &[("FREEHOLD_MPI", "staged")];
pub(crate) const APART: &[(&str, &str)] = &[("FREEHOLD_MPI", "staged"), ("FREEHOLD_MPI_APART", "1")];
pub(crate) const SHARED: &[(&str, &str)] = &[("FREEHOLD_MPI", "shared"), ("FREEHOLD_MPI_CHUNK", "4096")];
pub(crate) const DIRECT: &[(&str, &str)] = &[("FREEHOLD_SOFT_COHERENT", "1"), ("FREEHOLD_MPI", "direct")];

impl RankConfig {
    pub(crate) fn new(ranks: u32, transport: Transport, variables: &'static [(&str, &str)]) -> Self {
        Self { ranks, transport, variables, first: None, outlive: false }
    }
}

pub(crate) fn is_rank() -> bool {
    env::var_os(DONE).is_some()
}

/// Records that this rank is done.
pub(crate) fn done(world: &World) {
    let folder = env::var_os(DONE).expect("the variable is set in ranks");
    fs::write(Path::new(&folder).join(world.rank().to_string()), "").expect("the folder exists");
}

/// Returns whether the launcher is MPICH's.
pub(crate) fn is_mpich() -> bool {
    !freehold_mpi::library().starts_with("Open MPI")
}

/// Returns the device of the ranks: by default the software device.
fn device() -> String {
    env::var("FREEHOLD_DEVICE").unwrap_or_else(|_| "soft".to_owned())
}

/// Returns whether the device is a real one, on which ranks take turns: tests then run a selection.
pub(crate) fn is_real() -> bool {
    device() != "soft"
}

/// Returns whether the configuration needs an MPI library that accepts device memory which the host cannot access.
fn needs_cuda_aware(wanted: &RankConfig) -> bool {
    is_real() && wanted.variables.contains(&("FREEHOLD_MPI", "direct"))
}

/// Returns the launcher, set up for a machine with few processors, under a time limit.
pub(crate) fn launcher(wanted: &RankConfig) -> Command {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let mut command = Command::new("timeout");
    command.args(["-k", "5"]).arg(SECONDS.to_string());
    if is_mpich() {
        command.arg("mpiexec.mpich");
        if wanted.outlive {
            command.arg("-disable-auto-cleanup");
        }
        if wanted.transport == Transport::Tcp {
            command.env("MPIR_CVAR_NOLOCAL", "1").env("UCX_TLS", "tcp,self");
        }
    } else {
        let network = match wanted.transport {
            Transport::Memory => "self,vader",
            Transport::Tcp => "self,tcp",
        };
        command.args(["mpirun", "--oversubscribe"]);
        if needs_cuda_aware(wanted) {
            command.args(["--mca", "pml", "ucx"]);
        } else {
            command.args(["--mca", "pml", "ob1", "--mca", "btl", network]);
        }
        command.args(["--mca", "btl_tcp_if_include", "lo", "--mca", "btl_vader_single_copy_mechanism", "none"]);
        command.args(["--mca", "mpi_yield_when_idle", "1", "--mca", "plm_rsh_agent", "sh"]);
        if wanted.outlive {
            command.arg("--enable-recovery");
        }
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    command.args(["-n", &wanted.ranks.to_string()]);
    let machine = format!("mpi-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
    command.env("FREEHOLD_DEVICE", device()).env("FREEHOLD_SOFT_MACHINE", machine).stdin(Stdio::null());
    for variable in
        ["FREEHOLD_MPI", "FREEHOLD_MPI_APART", "FREEHOLD_MPI_CHUNK", "FREEHOLD_MPI_DEPTH", "FREEHOLD_SOFT_COHERENT"]
    {
        command.env_remove(variable);
    }
    if wanted.transport == Transport::Tcp && wanted.variables.contains(&("FREEHOLD_MPI", "staged")) {
        // As between machines.
        command.env("FREEHOLD_MPI_APART", "1");
    }
    command.envs(wanted.variables.iter().copied());
    if let Some(first) = wanted.first {
        command.env(FIRST, first.to_string());
    }
    command
}

/// Ends a failing rank at once, so that the launcher ends the others, which would wait for it.
pub(crate) fn end_when_wrong() {
    std::panic::set_hook(Box::new(|wrong| {
        eprintln!("{wrong}");
        std::process::exit(101);
    }));
}

/// The outcome of a run.
pub(crate) struct Launched {
    pub(crate) output: Output,
    /// The ranks that finished, in order.
    pub(crate) done: Vec<u32>,
}

impl fmt::Display for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [&self.output.stdout, &self.output.stderr].map(|said| String::from_utf8_lossy(said));
        write!(f, "{}, done: {:?}\n{}\n{}", self.output.status, self.done, said[0], said[1])
    }
}

/// Starts the test `name` as ranks, and waits for them.
pub(crate) fn launched(name: &str, wanted: &RankConfig) -> Launched {
    let folder = env::temp_dir().join(format!("freehold-{name}-{}", std::process::id()));
    fs::create_dir(&folder).expect("the folder is new");
    let mut command = launcher(wanted);
    let test = command_for_test(name);
    command.arg(test.get_program()).args(test.get_args()).env(DONE, &folder);
    let output = command.output().expect("timeout and a launcher are installed");
    let done = (0..wanted.ranks).filter(|rank| folder.join(rank.to_string()).exists()).collect();
    fs::remove_dir_all(&folder).expect("the folder exists");
    Launched { output, done }
}

/// In a rank, runs `test`; otherwise starts the ranks, and fails if one of them does.
pub(crate) fn ranks(name: &str, wanted: &[RankConfig], test: impl Fn(&World, &Device)) {
    if is_rank() {
        end_when_wrong();
        let device = freehold::open().expect("the device opens");
        let world = World::new(&device).expect("this process is a rank");
        test(&world, &device);
        assert_eq!(world.drop_errors().len(), 0, "a dropped request's transfer failed");
        done(&world);
        world.close().expect("MPI is finalized");
        return;
    }
    for wanted in wanted {
        if needs_cuda_aware(wanted) && env::var_os("UCX_MODULE_DIR").is_none() {
            println!("{wanted:?}: skipped, because UCX_MODULE_DIR does not name a UCX with CUDA support");
            continue;
        }
        let launched = launched(name, wanted);
        assert!(
            launched.output.status.success() && launched.done.len() == wanted.ranks as usize,
            "{wanted:?}: {launched}"
        );
    }
}

/// Elements whose values identify their origin.
pub(crate) trait Number: Pod + PartialEq + fmt::Debug {
    fn of(value: u64) -> Self;
}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        impl Number for $kind {
            fn of(value: u64) -> Self {
                value as Self
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// Returns what rank `rank` sends: small numbers, so that sums and products of floats are exact.
pub(crate) fn values<T: Number>(rank: i32, len: usize, salt: u64) -> Vec<T> {
    (0..len as u64).map(|index| T::of((index * 7 + rank as u64 * 13 + salt * 5) % 11)).collect()
}
