//! The field computed by several processes, with and without a killed worker, equals that of one process, bit for bit.
//!
//! This program is all of these processes: its first argument selects one. Without one it runs the tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};

use freehold_broker::{BrokerLimits, Config, Gpu, fdstore, run_role};
use freehold_mesh::notes::Event;
use freehold_mesh::parent::{Outcome, Run};
use freehold_mesh::plan::{Plan, TILE};
use freehold_mesh::strip::Strip;
use freehold_mesh::worker::Task;
use freehold_mesh::{digest, gpu_solver};
use freehold_testing::process::{self, MACHINE, Sandbox, this_program};
use freehold_testing::{at_effort, print_seed, report_covered, seeds};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    match words.first().and_then(|word| word.to_str()).unwrap_or("") {
        "role" => {
            let (part, config) = Config::from_args(this_program(), vec!["role".into()], &words[1..]).unwrap();
            run_role(part, config).unwrap();
        }
        "serve" => {
            let (before, socket, device) = (vec!["role".into()], PathBuf::from(&words[1]), Some("soft".to_owned()));
            let (memory_bytes, terms) = (64 << 20, BrokerLimits::default());
            let config = Config {
                program: this_program(),
                leading_args: before,
                socket,
                device,
                device_uuid: 0,
                memory_bytes,
                spin_us: 50,
                limits: terms,
            };
            fdstore::run(&config, None, || println!("ready"), || true).unwrap();
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
    process::run_tests(TESTS.iter().map(|&(name, body)| process::test(name, body)))
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
    assert!(Sandbox::new("mesh-memory").own_command().arg("memory").status().unwrap().success());
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

struct Scene {
    sandbox: Sandbox,
    serve: Child,
    device: freehold::Device,
}

impl Scene {
    fn new() -> Self {
        let sandbox = Sandbox::new("mesh");
        // Not on the sandbox's machine, but on that of this process, which shares memory with the broker.
        let (serve, line) = sandbox.start(Command::new(this_program()).arg("serve").arg(sandbox.socket()), 1);
        assert_eq!(line, "ready");
        Self { sandbox, serve, device: freehold::open::device(Some("soft")).unwrap() }
    }

    fn run(&self, plan: &Plan, kills: bool) -> Outcome {
        let (socket, name) = (self.sandbox.socket(), format!("run-{}-{}-{kills}", plan.seed, plan.workers));
        let (device, device_name, traces) = (&self.device, Some("soft"), None);
        let run = Run { plan, device, device_name, socket: &socket, name: &name, kills, traces };
        let command = |task: &Task| {
            let mut command = Command::new(this_program());
            command.arg("worker").arg(task.word());
            command
        };
        run.run(command, |_| {}).unwrap()
    }

    fn fields_of_a_seed_are_the_same(&self, seed: u64) {
        let plan = Plan { size: at_effort(64, 128, 128), steps: 52, workers: 1, seed };
        let alone = digest(&gpu_solver::solve(&Gpu::on(&self.device).unwrap(), &plan, |_| {}).unwrap());
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
        assert!(process::terminate(&mut self.serve));
    }
}
