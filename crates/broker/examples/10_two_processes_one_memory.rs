//! Two processes, two contexts, one memory. The kernels of a producer and a consumer use named host memory in place; a
//! lock and a condition variable decide whose turn it is, and survive the death of either process.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use freehold::{Grid, Image, Stream};
use freehold_broker::{Broker, BrokerLimits, Config, Host, HostGuard, fdstore, run_role};

const N: usize = 1000;
const ROUNDS: u64 = 3;
/// After the numbers: how many rounds were filled, and how many were emptied.
const TURNS: u64 = 4 * N as u64;
const LONG: Duration = Duration::from_secs(30);

type Outcome = Result<(), Box<dyn Error>>;

/// Takes the lock when this many rounds are filled and emptied.
fn turn(host: &Host, wanted: [u64; 2]) -> freehold_broker::Result<HostGuard<'_>> {
    host.lock(LONG)?.wait_until(LONG, |guard| {
        let mut found = [0; 2];
        guard.read(TURNS, &mut found)?;
        Ok(found == wanted)
    })
}

/// One process: waits for its turn, runs its kernel on the numbers, and passes the turn on.
fn side(who: &str, socket: &Path) -> Outcome {
    let device = freehold::open()?;
    let (stream, broker) = (device.new_stream()?, Broker::connect_at(&device, socket)?);
    let host = broker.host("examples/numbers", TURNS + 16)?;
    let kernels = Image::ptx(include_str!("../../freehold/examples/kernels.ptx"))?;
    let module = device.module(&kernels)?;
    // SAFETY: `add` writes the first `n` elements of its argument, which has as many in every launch below.
    let add = unsafe { module.kernel("add") }?;
    let work = |stream: &Stream, more: u32| -> Result<Vec<u32>, freehold_broker::Error> {
        let mut numbers = host.slice::<u32>(stream, 0, N)?;
        stream.launch(&add, Grid::cover(N as u32, 128), (&mut numbers, more, N as u32))?;
        // The lock is released when the kernel is complete.
        Ok(stream.download(&numbers)?)
    };
    for round in 0..ROUNDS {
        if who == "producer" {
            let mut guard = turn(&host, [round, round])?;
            println!("producer, round {round}: its kernel makes the numbers {}", work(&stream, 10)?[N - 1]);
            guard.write(TURNS, &[round + 1])?;
        } else {
            let mut guard = turn(&host, [round + 1, round])?;
            println!("consumer, round {round}: its kernel makes the numbers {}", work(&stream, 1)?[N - 1]);
            guard.write(TURNS + 8, &[round + 1])?;
        }
        host.notify()?;
    }
    Ok(())
}

fn main() -> Outcome {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe()?;
    let told = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or("");
    match told(0) {
        "role" => {
            let parsed = Config::from_args(program, vec!["role".into()], &words[1..]);
            let (part, config) = parsed.ok_or("a role needs its arguments")?;
            Ok(run_role(part, config)?)
        }
        "serve" => {
            let (before, socket) = (vec!["role".into()], PathBuf::from(&words[1]));
            let (memory_bytes, terms) = (64 << 20, BrokerLimits::default());
            let config = Config {
                program,
                leading_args: before,
                socket,
                device: None,
                device_uuid: 0,
                memory_bytes,
                spin_us: 20,
                limits: terms,
            };
            Ok(fdstore::run(&config, None, || println!("ready"), || true)?)
        }
        who @ ("producer" | "consumer") => side(who, Path::new(&words[1])),
        _ => together(&program),
    }
}

/// Starts a broker and both processes.
fn together(program: &Path) -> Outcome {
    let folder = std::env::temp_dir().join(format!("freehold-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let start = |what: &str| Command::new(program).arg(what).arg(folder.join("broker")).spawn();
    let mut serve = Command::new(program);
    let mut serve = serve.arg("serve").arg(folder.join("broker")).stdout(Stdio::piped()).spawn()?;
    BufReader::new(serve.stdout.take().ok_or("standard output is piped")?).read_line(&mut String::new())?;
    let sides = [start("producer")?, start("consumer")?];
    let ended = sides.map(|mut side| side.wait());
    rustix::process::kill_process(rustix::process::Pid::from_child(&serve), rustix::process::Signal::TERM)?;
    serve.wait()?;
    std::fs::remove_dir_all(&folder)?;
    for status in ended {
        assert!(status?.success(), "both processes succeeded");
    }
    println!("the kernels of both worked on the same {N} numbers, where they lie");
    Ok(())
}
