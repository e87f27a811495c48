//! The field computed by several processes, with and without a killed worker, equals that of one process, bit for bit.
//!
//! This program is all of these processes: its first argument selects one. Without one it runs the tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, stdin, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use freehold_broker::{BrokerLimits, Config, Gpu, fdstore, run_role};
use freehold_mesh::notes::Event;
use freehold_mesh::parent::{Outcome, Run};
use freehold_mesh::plan::{Plan, TILE};
use freehold_mesh::strip::Strip;
use freehold_mesh::worker::Task;
use freehold_mesh::{anywhere, digest};
use freehold_testing::{at_effort, print_seed, report_covered, seeds};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().unwrap();
    match words.first().and_then(|word| word.to_str()).unwrap_or("") {
        "part" => {
            let (part, config) = Config::from_args(program, vec!["part".into()], &words[1..]).unwrap();
            run_role(part, config).unwrap();
        }
        "serve" => {
            let (before, socket, device) = (vec!["part".into()], PathBuf::from(&words[1]), Some("soft".to_owned()));
            let (memory_bytes, terms) = (64 << 20, BrokerLimits::default());
            let config = Config {
                program,
                leading_args: before,
                socket,
                device,
                device_uuid: 0,
                memory_bytes,
                spin_us: 50,
                limits: terms,
            };
            fdstore::run(&config, None, || println!("ready")).unwrap();
        }
        "worker" => {
            let task = Task::parse(words[1].to_str().unwrap()).unwrap();
            task.run(stdin().as_fd(), stdout()).unwrap();
        }
        "memory" => memory(),
        _ => return run(),
    }
    ExitCode::SUCCESS
}

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("fields_of_any_number_of_workers_are_the_same_with_a_kill_and_without", fields_are_the_same),
    ("refined_cells_come_and_go", refined_cells_come_and_go),
    ("memory_of_cells_that_go_is_the_drivers_again", memory_of_cells_that_go_is_the_drivers_again),
];

fn run() -> ExitCode {
    // SAFETY: this process has one thread so far.
    unsafe { std::env::set_var(MACHINE, format!("mesh-{}", std::process::id())) };
    let trial = |&(name, test): &Test| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), TESTS.iter().map(trial).collect()).exit_code()
}

fn fields_are_the_same() {
    let (scene, seeds) = (Scene::new(), seeds(1, 3, 40));
    report_covered(seeds.end() - seeds.start() + 1, "seeds of fields");
    for seed in seeds {
        print_seed(seed);
        scene.fields_of_a_seed_are_the_same(seed);
    }
}

/// The vectors of the workers grow and shrink.
fn refined_cells_come_and_go() {
    let small = Plan { size: 128, steps: 96, workers: 2, seed: 7 };
    let large = Plan { size: 256, steps: 160, workers: 2, seed: 3 };
    let outcome = Scene::new().run(at_effort(&small, &small, &large), false);
    let of_one = outcome.notes.iter().filter(|note| note.worker == 1);
    let bytes: Vec<_> = of_one.map(|note| note.live_bytes).collect();
    assert!(bytes.windows(2).any(|pair| pair[1] > pair[0]), "{bytes:?}");
    assert!(bytes.windows(2).any(|pair| pair[1] < pair[0]), "{bytes:?}");
}

/// Runs in a process with a software device of its own, because other tests change how much memory is free.
fn memory_of_cells_that_go_is_the_drivers_again() {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.arg("memory").env(MACHINE, format!("mesh-memory-{}", std::process::id()));
    assert!(alone.status().unwrap().success());
}

/// What a worker does at its flag passes, with a mesh large enough to have a chunk of 2 MiB too many.
fn memory() {
    let (device, plan) =
        (freehold::open::device(Some("soft")).unwrap(), Plan { size: 512, steps: 8, workers: 1, seed: 1 });
    let stream = device.new_stream().unwrap();
    let mut strip = Strip::new(&device, &stream, &plan, 0..16).unwrap();
    let looked = || {
        stream.synchronize().unwrap();
        device.trim().unwrap();
        (device.stats().reserved_bytes, device.free_bytes().unwrap())
    };
    let (reserved_bytes, free_bytes) = looked();
    strip.refine(&stream, &[1; 256]).unwrap();
    // Two patches of 25,600 bytes for each of 256 tiles: seven chunks.
    assert_eq!(looked(), (reserved_bytes + (14 << 20), free_bytes - (14 << 20)));
    strip.refine(&stream, &[0; 256]).unwrap();
    assert_eq!(looked(), (reserved_bytes, free_bytes));
}

/// Names the software machine: processes of one machine share its memory.
const MACHINE: &str = "FREEHOLD_SOFT_MACHINE";

struct Scene {
    folder: PathBuf,
    serve: Child,
    device: freehold::Device,
}

impl Scene {
    fn new() -> Self {
        static SCENES: AtomicU32 = AtomicU32::new(0);
        let number = SCENES.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("freehold-mesh-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut serve = Command::new(std::env::current_exe().unwrap());
        let mut serve = serve.arg("serve").arg(folder.join("broker")).stdout(Stdio::piped()).spawn().unwrap();
        BufReader::new(serve.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        Self { folder, serve, device: freehold::open::device(Some("soft")).unwrap() }
    }

    fn run(&self, plan: &Plan, kills: bool) -> Outcome {
        let (socket, name) = (self.folder.join("broker"), format!("run-{}-{}-{kills}", plan.seed, plan.workers));
        let (device, device_name, traces) = (&self.device, Some("soft"), None);
        let run = Run { plan, device, device_name, socket: &socket, name: &name, kills, traces };
        let command = |task: &Task| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.arg("worker").arg(task.word());
            command
        };
        run.run(command, |_| {}).unwrap()
    }

    fn fields_of_a_seed_are_the_same(&self, seed: u64) {
        let plan = Plan { size: at_effort(64, 128, 128), steps: 52, workers: 1, seed };
        let alone = digest(&anywhere::solve(&Gpu::on(&self.device).unwrap(), &plan, |_| {}).unwrap());
        // Alternates runs with and without a kill, so that each number of workers has both.
        let all = [(1, seed.is_multiple_of(2)), (2, !seed.is_multiple_of(2)), (4, !seed.is_multiple_of(4))];
        // A worker has at least one row of tiles.
        for (workers, kills) in all.into_iter().filter(|&(workers, _)| workers <= plan.size / TILE) {
            let outcome = self.run(&Plan { workers, ..plan }, kills);
            assert_eq!(digest(&outcome.field), alone, "seed {seed}, {workers} workers, a kill: {kills}");
            let killed = outcome.notes.iter().filter(|note| note.event == Event::Killed).count();
            assert_eq!(killed, usize::from(kills), "seed {seed}, {workers} workers");
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let fdstore = rustix::process::Pid::from_child(&self.serve);
        rustix::process::kill_process(fdstore, rustix::process::Signal::TERM).unwrap();
        self.serve.wait().unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}
