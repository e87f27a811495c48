//! Corrupted connections, killed clients and killed servers: every call is executed once, or reports that it was not.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use freehold::Grid;
use freehold_broker::{Access, Argument, Policy};
use freehold_remote::{Code, Executed, Remote, RemoteArgument, RemoteBlock, Token};

use freehold_testing::{at_effort, report_covered, seed};

use crate::harness::{Harness, Random, ServerProcess, TOKEN, bytes, until_free, until_is};
use crate::launches::TEXT;
use crate::proxy::Proxy;

/// How many connections are corrupted.
fn faults() -> u64 {
    at_effort(4, 20, 500)
}

/// How many clients are killed.
fn kills() -> u64 {
    at_effort(5, 25, 300)
}

/// The session timeout of clients that are killed. Until then the library keeps each session alive.
const LIFE: Duration = Duration::from_secs(10);

/// Launches of a round: single calls, which are lost more rarely than bytes.
fn launches() -> u32 {
    at_effort(10, 10, 20)
}

/// Uploads random bytes to a new block, over whatever connection.
fn filled(remote: &Remote, bytes: &[u8]) -> RemoteBlock {
    let block = remote.alloc(bytes.len() as u64).unwrap();
    remote.upload(&block, 0, bytes).unwrap();
    block
}

fn expect(remote: &Remote, block: &RemoteBlock, bytes: &[u8]) {
    let mut to = vec![0; bytes.len()];
    remote.download(block, 0, &mut to).unwrap();
    assert!(to == bytes, "the downloaded bytes differ from the uploaded ones");
}

pub(crate) fn through_a_bad_proxy(harness: &Harness) {
    let mut random = Random::new(seed());
    let (proxy, calm) = (Proxy::new(harness.port(), random.next()), harness.remote());
    let remote = harness.remote_at(&format!("https://localhost:{}", proxy.port));
    let module = remote.put_module("test/kernels", TEXT).unwrap();
    let count = filled(&remote, &[0; 4]);
    let launch = |k: u32| {
        let [k, n] = [k, 1].map(Argument::from);
        let given = [RemoteArgument::Block(&count, 0), RemoteArgument::Value(&k), RemoteArgument::Value(&n)];
        remote.launch(&module, "step", Grid::line(1, 1), &given).unwrap().wait().unwrap();
    };
    // The worker borrows what it works with, which counts as a lease.
    launch(0);
    let (mut rounds, mut wanted) = (0, 0_u32);
    let leases = calm.stats().unwrap().leases;
    proxy.set_faulty(true);
    while proxy.faults() < faults() {
        let size = 1 + random.below(at_effort(1, 6, 6) << 20) as usize;
        let data = bytes(&mut random, size);
        let name = format!("round/{rounds}");
        let block = filled(&remote, &data);
        expect(&remote, &block, &data);
        // A second execution would be refused.
        remote.publish(&name, block, Policy::Restore).unwrap();
        let block = remote.lease(&name, Access::Read).unwrap();
        expect(&remote, &block, &data);
        block.close().unwrap();
        // A second execution would change the word.
        for k in 0..launches() {
            launch(k);
            wanted = wanted.wrapping_mul(3).wrapping_add(k);
        }
        expect(&remote, &count, &wanted.to_le_bytes());
        assert_eq!(calm.names().unwrap().len(), 1);
        remote.drop_name(&name).unwrap();
        assert_eq!(calm.stats().unwrap().leases, leases, "a lease is left over");
        rounds += 1;
    }
    report_covered(proxy.faults(), "corrupted connections");
    proxy.set_faulty(false);
    assert_eq!(calm.stats().unwrap().sessions, 1, "everything was one session");
    remote.close().unwrap();
    until_free(&calm);
}

/// Uploads or downloads, prints a letter for each chunk, and waits to be killed.
pub(crate) fn client(words: &[OsString]) -> ExitCode {
    let [url, ca, direction] = words else { panic!("a client needs the URL, the authority and the direction") };
    let ca = std::fs::read(ca).expect("the file is there");
    let remote = Remote::connect(url.to_str().expect("text"), &Token::parse(TOKEN).unwrap(), Some(&ca));
    let remote = remote.expect("a server serves").with_session_timeout(LIFE);
    let say = || {
        std::io::stdout().write_all(b".")?;
        std::io::stdout().flush()
    };
    let block = remote.alloc(CLIENT_BYTES).unwrap();
    if direction == "up" {
        remote.upload_with(&block, 0, CLIENT_BYTES, |_, _| say()).unwrap();
    } else {
        remote.download_with(&block, 0, CLIENT_BYTES, |_, _| say()).unwrap();
    }
    // A client that is killed here is killed after the last chunk.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    ExitCode::SUCCESS
}

const CLIENT_BYTES: u64 = 16 << 20;

/// Sessions whose memory fits at the same time, including the observer's.
const SESSIONS_MAX: u64 = 110;

pub(crate) fn killed_clients(harness: &Harness) {
    let mut random = Random::new(seed());
    let witness = harness.remote();
    let data = bytes(&mut random, 3_000_000);
    let held = filled(&witness, &data);
    for killed in 0..kills() {
        // Sessions of dead clients live on for a while, with their memory: only this many fit.
        until_is("sessions of dead clients have ended", true, || witness.stats().unwrap().sessions < SESSIONS_MAX);
        let direction = if random.below(2) == 0 { "up" } else { "down" };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("client").arg(harness.url()).arg(harness.sandbox.folder.join("ca.pem")).arg(direction);
        let mut client = ServerProcess(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        // After this many chunks, and then a moment later.
        let mut said = vec![0; random.below(17) as usize];
        client.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let (from, moment) = (Instant::now(), Duration::from_micros(random.below(2000)));
        while from.elapsed() < moment {
            std::hint::spin_loop();
        }
        drop(client);
        if killed % 20 == 0 {
            expect(&witness, &held, &data);
        }
    }
    until_is("all sessions of dead clients have ended", (1, 1), || {
        let sums = witness.stats().unwrap();
        (sums.sessions, sums.leases)
    });
    report_covered(kills(), "killed clients");
    expect(&witness, &held, &data);
    held.close().unwrap();
    until_free(&witness);
}

pub(crate) fn when_the_server_dies(harness: &Harness) {
    let remote = harness.remote();
    let block = filled(&remote, &[1; 1000]);
    remote.publish("stays", block, Policy::Restore).unwrap();
    let lost = filled(&remote, &[2; 1000]);
    harness.restart_server();
    // The next call reaches the new server, which does not know the session. It was made for the first time.
    let failure = remote.download(&lost, 0, &mut [0; 1000]).unwrap_err();
    assert!(failure.is_session_expired && failure.code == Code::NotFound, "{failure}");
    let failure = remote.drop_name("stays").unwrap_err();
    assert!(failure.is_session_expired && failure.executed != Executed::Yes, "{failure}");
    let other = harness.remote();
    let block = other.lease("stays", Access::Read).unwrap();
    expect(&other, &block, &[1; 1000]);
    drop(block);
    until_free(&other);
}
