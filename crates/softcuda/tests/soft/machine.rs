//! One software device, many processes: those that name the same machine share its memory, to the byte.

use crate::common;
use crate::peer;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::Ordering;

use freehold_driver::cuda::CUerror;
use freehold_testing::{Random, at_effort, report_covered, seed};
use peer::{Crowd, End, Machine, Peer, machines_folder, shared_words};

const MIB: usize = 1 << 20;

/// Nobody, and two users that no system has.
const NOBODY: u32 = 65534;
const STRANGERS: [u32; 2] = [65_533, 65_532];

/// A peer with a context on a device of 1 GiB.
fn peer(machine: &Machine) -> Peer {
    let peer = Peer::start(machine.name(), &[("FREEHOLD_SOFT_MEMORY", "1GiB")]);
    peer.ask("start");
    peer
}

fn peers<const N: usize>(machine: &Machine) -> [Peer; N] {
    std::array::from_fn(|_| peer(machine))
}

/// Returns the free memory that all peers agree on.
#[track_caller]
fn free_bytes(peers: &[Peer]) -> usize {
    common::same(&peers.iter().map(Peer::free_bytes).collect::<Vec<_>>())
}

#[test]
fn what_one_process_uses_is_not_free_for_another() {
    let machine = Machine::new();
    let all: [Peer; 3] = peers(&machine);
    let before = free_bytes(&all);
    all[0].ask(format!("alloc {}", 64 * MIB));
    assert_eq!(free_bytes(&all), before - 64 * MIB);
    all[1].ask(format!("alloc {}", 2 * MIB));
    assert_eq!(free_bytes(&all), before - 66 * MIB);
    all[0].ask("free-block");
    assert_eq!(free_bytes(&all), before - 2 * MIB);
    all[1].ask("free-block");
    assert_eq!(free_bytes(&all), before);
}

#[test]
fn what_others_have_taken_is_out_of_memory() {
    let machine = Machine::new();
    let all: [Peer; 3] = peers(&machine);
    let before = free_bytes(&all);
    all[0].ask(format!("alloc {}", before - 6 * MIB));
    assert_eq!(all[1].refused(format!("alloc {}", 8 * MIB)), CUerror::OUT_OF_MEMORY);
    all[1].ask(format!("alloc {}", 6 * MIB));
    assert_eq!(free_bytes(&all), 0);
    assert_eq!(all[2].refused(format!("alloc {}", 2 * MIB)), CUerror::OUT_OF_MEMORY);
    all[0].ask("free-block");
    all[2].ask(format!("alloc {}", before - 6 * MIB));
    assert_eq!(free_bytes(&all), 0);
}

#[test]
fn a_process_that_ends_gives_all_of_it_back_at_once() {
    let machine = Machine::new();
    let witness = peer(&machine);
    let before = witness.free_bytes();
    for how in End::ALL {
        let taker = peer(&machine);
        taker.ask(format!("alloc {}", 512 * MIB));
        taker.ask(format!("alloc {}", 64 * MIB));
        assert!(witness.free_bytes() <= before - 576 * MIB);
        taker.end(how);
        assert_eq!(witness.free_bytes(), before, "{how:?}");
    }
}

#[test]
fn another_name_is_another_machine() {
    let (here, there) = (Machine::new(), Machine::new());
    let (near, far) = (peer(&here), peer(&there));
    let before = far.free_bytes();
    near.ask(format!("alloc {}", 900 * MIB));
    assert_eq!(far.free_bytes(), before);
    far.ask(format!("alloc {}", 900 * MIB));
}

/// Starts random allocations and frees in all peers at once. Returns the words that they share with the test.
fn crowd(peers: &[Peer], seed: u64, limit_bytes: usize) -> (&'static Crowd, OwnedFd) {
    let words = shared_words().unwrap();
    let crowd = Crowd::of(&words);
    crowd.limit_bytes.store(limit_bytes as u64, Ordering::SeqCst);
    for (index, peer) in peers.iter().enumerate() {
        peer.tell(format!("crowd {}", seed.wrapping_add(index as u64)), &[words.try_clone().unwrap()]);
    }
    (crowd, words)
}

/// Waits until a crowd has made `count` more allocations.
fn more(crowd: &Crowd, count: u64) {
    let before = crowd.count.load(Ordering::SeqCst);
    common::until(|| crowd.count.load(Ordering::SeqCst) >= before + count);
}

/// Stops a crowd. Returns the numbers of granted and refused allocations.
fn disperse(crowd: &Crowd, peers: &[Peer]) -> (u64, u64) {
    crowd.stop.store(1, Ordering::SeqCst);
    peers.iter().fold((0, 0), |sum, peer| {
        let answer = peer.answer("crowd").unwrap().text;
        let (given, refused) = answer.split_once(' ').unwrap();
        (sum.0 + given.parse::<u64>().unwrap(), sum.1 + refused.parse::<u64>().unwrap())
    })
}

#[test]
fn twenty_processes_never_overbook_a_device() {
    let machine = Machine::new();
    let all: [Peer; 20] = peers(&machine);
    let before = free_bytes(&all);
    let (crowd, _words) = crowd(&all, seed(), before);
    let allocations = at_effort(500, 5000, 50_000);
    more(crowd, allocations);
    common::until(|| crowd.refused.load(Ordering::SeqCst) > 0);
    let (given, refused) = disperse(crowd, &all);
    report_covered(given, "allocations of processes");
    assert!(given >= allocations && refused > 0, "{given} given, {refused} refused");
    assert_eq!(crowd.held_bytes.load(Ordering::SeqCst), 0);
    assert_eq!(free_bytes(&all), before);
}

#[test]
fn a_process_killed_at_any_moment_gives_all_of_it_back_at_once() {
    let machine = Machine::new();
    let witness = peer(&machine);
    let mut random = Random::new(seed());
    let others: [Peer; 3] = peers(&machine);
    let before = witness.free_bytes();
    let rounds = at_effort(2, 20, 200);
    report_covered(rounds, "kills of software processes");
    for round in 0..rounds {
        let victim = peer(&machine);
        let limit = 1024 * MIB;
        let (one, _words) = crowd(std::slice::from_ref(&victim), random.next(), limit);
        let (crowd, _more_words) = crowd(&others, random.next(), limit);
        more(one, random.below(20));
        for _ in 0..random.below(2000) {
            std::hint::spin_loop();
        }
        victim.end(End::Kill);
        more(crowd, 20);
        disperse(crowd, &others);
        assert_eq!(witness.free_bytes(), before, "round {round}");
    }
}

#[test]
fn a_fork_that_lives_on_does_not_keep_what_its_parent_used() {
    let machine = Machine::new();
    let witness = peer(&machine);
    let before = witness.free_bytes();
    let parent = peer(&machine);
    parent.ask(format!("alloc {}", 512 * MIB));
    let (mut line, theirs) = UnixStream::pair().unwrap();
    parent.ask_with("fork", &[theirs.into()]);
    let mut alive = || {
        let mut byte = [0];
        line.write_all(&[7]).unwrap();
        line.read_exact(&mut byte).unwrap();
        byte == [7]
    };
    assert!(alive());
    assert!(witness.free_bytes() <= before - 512 * MIB);
    parent.end(End::Kill);
    assert_eq!(witness.free_bytes(), before);
    witness.ask(format!("alloc {}", before));
    assert!(alive(), "the fork has outlived all this");
}

#[test]
fn a_killed_process_with_a_live_fork_blocks_no_other_process() {
    let machine = Machine::new();
    let witness = peer(&machine);
    let mut random = Random::new(seed());
    let before = witness.free_bytes();
    let rounds = at_effort(2, 20, 200);
    report_covered(rounds, "kills of software processes");
    for round in 0..rounds {
        let victim = peer(&machine);
        let (_line, theirs) = UnixStream::pair().unwrap();
        victim.ask_with("fork", &[theirs.into()]);
        let (crowd, _words) = crowd(std::slice::from_ref(&victim), random.next(), 1024 * MIB);
        more(crowd, random.below(20));
        victim.end(End::Kill);
        assert_eq!(witness.free_bytes(), before, "round {round}");
    }
}

/// Starts a peer as another user, who may have no access to the folders of the binary.
fn peer_of(user: u32, machine: &str) -> Peer {
    Peer::start_by(Command::new("/proc/self/exe").uid(user).gid(user), machine, &[("FREEHOLD_SOFT_MEMORY", "1GiB")])
}

/// Returns whether this process can change its user, which tests of users need.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    println!("users are {}tested", if root { "" } else { "not " });
    root
}

#[test]
fn another_user_has_a_machine_of_his_own() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let (own, other) = (peer(&machine), peer_of(NOBODY, machine.name()));
    other.ask("start");
    let before = other.free_bytes();
    own.ask(format!("alloc {}", 900 * MIB));
    assert_eq!(other.free_bytes(), before);
    other.ask(format!("alloc {}", 900 * MIB));
    assert!(own.free_bytes() < 124 * MIB);
    other.end(End::Exit);
    remove_files(&machines_folder(NOBODY), machine.name());
}

/// Removes the files of a machine.
fn remove_files(folder: &Path, name: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains(name) {
            fs::remove_file(path).unwrap();
        }
    }
}

/// A file or folder that is removed at the end.
struct Planted(PathBuf);

impl Drop for Planted {
    fn drop(&mut self) {
        let is_folder = fs::symlink_metadata(&self.0).is_ok_and(|data| data.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        assert!(std::thread::panicking() || removed.is_ok(), "{}: {removed:?}", self.0.display());
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_machine_directory_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let folder = Planted(machines_folder(STRANGERS[0]));
    fs::DirBuilder::new().mode(0o777).create(&folder.0).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let peer = peer_of(STRANGERS[0], "here");
    peer.try_ask("try", &[]).unwrap_err();
    assert_eq!(peer.ask("hello"), "hello");
    assert!(is_empty(&folder.0));
}

#[test]
fn a_folder_of_machines_that_is_a_link_is_refused() {
    if !is_root() {
        return;
    }
    let target = Planted(PathBuf::from(format!("/dev/shm/test-{}-target", process::id())));
    fs::DirBuilder::new().mode(0o700).create(&target.0).unwrap();
    chown(&target.0, Some(STRANGERS[1]), Some(STRANGERS[1])).unwrap();
    let link = Planted(machines_folder(STRANGERS[1]));
    symlink(&target.0, &link.0).unwrap();
    std::os::unix::fs::lchown(&link.0, Some(STRANGERS[1]), Some(STRANGERS[1])).unwrap();
    let peer = peer_of(STRANGERS[1], "here");
    peer.try_ask("try", &[]).unwrap_err();
    assert_eq!(peer.ask("hello"), "hello");
    assert!(is_empty(&target.0));
}

/// Returns a machine, a process that uses it, and its files. The process lives until the test ends, because any process
/// that starts on any machine removes unused files.
fn used() -> (Machine, Peer, Vec<PathBuf>) {
    let machine = Machine::new();
    let user = peer(&machine);
    let files = machine.files();
    assert!(!files.is_empty(), "a machine that is used has a file that bears its name");
    (machine, user, files)
}

/// Returns what a new process gets when it uses a machine. It must not crash.
fn tried(machine: &Machine) -> Result<String, CUerror> {
    let peer = Peer::start(machine.name(), &[("FREEHOLD_SOFT_MEMORY", "1GiB")]);
    let answer = peer.try_ask("try", &[]).map(|message| message.text);
    assert_eq!(peer.ask("hello"), "hello");
    peer.end(End::Exit);
    answer
}

#[test]
fn a_machine_that_was_used_can_be_used_again() {
    let machine = Machine::new();
    peer(&machine).end(End::Kill);
    let first = tried(&machine).unwrap();
    assert_eq!(tried(&machine), Ok(first));
}

#[test]
fn a_machines_file_that_is_a_link_is_refused() {
    let (machine, _user, files) = used();
    let target = Planted(PathBuf::from(format!("/dev/shm/test-{}-linked", process::id())));
    let content = fs::read(&files[0]).unwrap();
    fs::write(&target.0, &content).unwrap();
    for file in &files {
        fs::remove_file(file).unwrap();
        symlink(&target.0, file).unwrap();
    }
    tried(&machine).unwrap_err();
    assert!(fs::read(&target.0).unwrap() == content, "what the link leads to is as it was");
}

#[test]
fn a_usage_file_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let (machine, _user, files) = used();
    files.iter().for_each(|file| chown(file, Some(NOBODY), Some(NOBODY)).unwrap());
    tried(&machine).unwrap_err();
}

#[test]
fn the_log_says_why_a_device_cannot_be_opened() {
    let (machine, _user, files) = used();
    files.iter().for_each(|file| fs::write(file, "garbage").unwrap());
    let log = std::env::temp_dir().join(format!("freehold-machine-{}.log", process::id()));
    let variables = [("FREEHOLD_SOFT_MEMORY", "1GiB"), ("CUDA_LOG_FILE", log.to_str().unwrap())];
    Peer::start(machine.name(), &variables).try_ask("try", &[]).unwrap_err();
    let told = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    let cause = format!("{}: the usage file of the device cannot be read: remove it\n", files[0].display());
    assert!(told.ends_with(&format!("device 0 cannot be opened: {cause}")), "{told}");
}

#[test]
fn a_machines_file_of_garbage_does_no_harm() {
    let mut random = Random::new(seed());
    let mut noise = |bytes: usize| (0..bytes).map(|_| random.next() as u8).collect::<Vec<_>>();
    for case in 0..8 {
        let (machine, _user, files) = used();
        for file in &files {
            let mut content = fs::read(file).unwrap();
            let bytes = content.len();
            match case {
                0 => content.clear(),
                1 => content.truncate(1),
                2 => content.truncate(bytes / 2),
                3 => content.truncate(bytes.saturating_sub(1)),
                4 => content.fill(0xff),
                5 => content.fill(0),
                6 => content = noise(bytes),
                _ => content.extend(noise(70_000)),
            }
            fs::write(file, content).unwrap();
        }
        println!("case {case}: {:?}", tried(&machine));
    }
}

#[test]
fn a_machines_file_with_a_few_wrong_bytes_does_no_harm() {
    let mut random = Random::new(seed());
    for _ in 0..at_effort(2, 10, 100) {
        let (machine, _user, files) = used();
        for file in &files {
            let mut content = fs::read(file).unwrap();
            for _ in 0..4 {
                // The first bytes matter most.
                let end = random.pick(&[content.len(), content.len().min(256)]) as u64;
                content[random.below(end) as usize] = random.next() as u8;
            }
            fs::write(file, content).unwrap();
        }
        println!("{:?}", tried(&machine));
    }
}

#[test]
fn a_directory_or_pipe_instead_of_a_usage_file_is_harmless() {
    let (machine, _user, files) = used();
    for file in &files {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    }
    tried(&machine).unwrap_err();
    let (machine, _user, files) = used();
    for file in &files {
        fs::remove_file(file).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    tried(&machine).unwrap_err();
}
