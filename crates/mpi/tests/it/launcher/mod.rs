//! Ranks for tests: a test starts its own program several times through the library's launcher, and is then, in each of them, a rank.

use std::env;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use freehold::{Device, Pod};
use freehold_mpi::World;
use freehold_testing::command_for_test;

/// Names, in a rank, the folder in which it leaves a file when it is done. What ranks print is no sign of it: a launcher mixes
/// their words, in the middle of lines too.
const DONE: &str = "FREEHOLD_MPI_TEST_DONE";

/// Names, in a rank, the first of the random programs that it runs.
pub(crate) const FIRST: &str = "FREEHOLD_MPI_TEST_FIRST";

/// What messages go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Memory,
    Tcp,
}

/// Ranks that a test wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankConfig {
    pub(crate) ranks: u32,
    pub(crate) transport: Transport,
    /// What they find in their environment.
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// The first of the random programs that they run.
    pub(crate) first: Option<u64>,
    /// Whether the launcher lets ranks live when one dies.
    pub(crate) outlive: bool,
}

/// Ranks that are not done by then hang: on the busiest machine it is ten times what they take.
const SECONDS: u32 = 600;

/// Device memory that the host does not see, between ranks of one machine and as between several; that ranks share; and that the host sees.
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

/// Leaves word that this rank is done.
pub(crate) fn done(world: &World) {
    let folder = env::var_os(DONE).expect("only ranks are done");
    fs::write(Path::new(&folder).join(world.rank().to_string()), "").expect("the folder is there");
}

/// Whether the launcher is MPICH's.
pub(crate) fn is_mpich() -> bool {
    !freehold_mpi::library().starts_with("Open MPI")
}

/// The device of the ranks: the software one, unless somebody says otherwise.
fn device() -> String {
    env::var("FREEHOLD_DEVICE").unwrap_or_else(|_| "soft".to_owned())
}

/// Whether the device is a real one, which ranks take turns on: tests that say so choose of what they try.
pub(crate) fn is_real() -> bool {
    device() != "soft"
}

/// Whether device memory goes straight through the library although the host does not see it: over a UCX that knows of it.
fn needs_cuda_aware(wanted: &RankConfig) -> bool {
    is_real() && wanted.variables.contains(&("FREEHOLD_MPI", "direct"))
}

/// The launcher with all that it needs for a machine with few processors, behind a limit of time.
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

/// Lets a rank that finds something wrong end at once, and the launcher end the others: they would wait for it.
pub(crate) fn end_when_wrong() {
    std::panic::set_hook(Box::new(|wrong| {
        eprintln!("{wrong}");
        std::process::exit(101);
    }));
}

/// What ranks came to.
pub(crate) struct Launched {
    pub(crate) output: Output,
    /// Those that said that they are done, in order.
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
    fs::create_dir(&folder).expect("there is no such folder yet");
    let mut command = launcher(wanted);
    let test = command_for_test(name);
    command.arg(test.get_program()).args(test.get_args()).env(DONE, &folder);
    let output = command.output().expect("timeout and a launcher are installed");
    let done = (0..wanted.ranks).filter(|rank| folder.join(rank.to_string()).exists()).collect();
    fs::remove_dir_all(&folder).expect("the folder is still there");
    Launched { output, done }
}

/// In a rank, runs `test`; elsewhere starts the ranks, and fails if any of them does.
pub(crate) fn ranks(name: &str, wanted: &[RankConfig], test: impl Fn(&World, &Device)) {
    if is_rank() {
        end_when_wrong();
        let device = freehold::open().expect("there is such a device");
        let world = World::new(&device).expect("the launcher made this a rank");
        test(&world, &device);
        assert_eq!(world.drop_errors().len(), 0, "no transfer fails that nobody asks about");
        done(&world);
        world.close().expect("MPI ends");
        return;
    }
    for wanted in wanted {
        if needs_cuda_aware(wanted) && env::var_os("UCX_MODULE_DIR").is_none() {
            println!("{wanted:?}: left out, for UCX_MODULE_DIR names no UCX that knows of device memory");
            continue;
        }
        let launched = launched(name, wanted);
        assert!(
            launched.output.status.success() && launched.done.len() == wanted.ranks as usize,
            "{wanted:?}: {launched}"
        );
    }
}

/// Elements whose values tell where they come from.
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

/// What rank `rank` sends: small, so that sums of floats are exact, and products too.
pub(crate) fn values<T: Number>(rank: i32, len: usize, salt: u64) -> Vec<T> {
    (0..len as u64).map(|index| T::of((index * 7 + rank as u64 * 13 + salt * 5) % 11)).collect()
}
