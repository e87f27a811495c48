//! A broker that is short of something: an fdstore or a scrubber that answers, descriptors, tenants that read. Its
//! other tenants notice nothing.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use freehold_broker::wire::{Fence, Policy, Reply, Request};
use freehold_broker::{Access, CallError, Caller, Launch, Link, LinkError, Name};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::harness::{self, Harness, SEGMENT_BYTES, is_soft, stats, until};
use crate::raw::{Raw, ReceivedMessage, bytes_of, dial, hear, message, receive, say};

/// A user and a group id that are not in use.
const STRANGER: u32 = 65534;

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.cast_signed()).expect("a process has a number")
}

fn signal(harness: &Harness, part: &str, signal: Signal) {
    let processes = harness.processes(part);
    assert!(!processes.is_empty(), "the {part} is running");
    processes.into_iter().for_each(|process| kill_process(pid(process), signal).expect("the signal is permitted"));
}

/// A role whose processes are stopped until this is dropped.
struct Stopped<'a>(&'a Harness, &'static str);

impl<'a> Stopped<'a> {
    fn new(harness: &'a Harness, part: &'static str) -> Self {
        let processes = harness.processes(part);
        assert!(!processes.is_empty(), "the {part} is running");
        processes.into_iter().for_each(harness::stop);
        Self(harness, part)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        signal(self.0, self.1, Signal::CONT);
    }
}

fn published(link: &mut Link, name: &str, bytes: u64) {
    let lease = link.reserve(bytes).expect("there is room").lease;
    let (policy, fence, name) = (Policy::Restore, Fence::default(), Name::parse(name).expect("a name"));
    link.call(Request::Publish { lease, policy, fence, name }).expect("the name is free");
}

pub(crate) fn tenants_are_served_while_the_fdstore_is_stopped(harness: &Harness) {
    let mut link = harness.link();
    {
        let _stopped = Stopped::new(harness, "serve");
        fill_socket(harness, &mut link);
        assert_eq!(stats(&mut link).names, 300);
    }
    // An fdstore that has everything starts a broker that knows everything.
    until("the new broker has a complete fdstore", || {
        let [broker, fdstore] = harness.descriptors(&mut link, "serve");
        (fdstore + 40 >= broker).then_some(())
    });
    harness.kill("broker");
    assert_eq!(stats(&mut link).names, 300);
    let found = link.call(Request::Find { name: Name::parse("n/299").expect("a name") }).expect("it is there");
    assert_eq!(found.text, "");
}

pub(crate) fn tenants_are_served_while_the_scrubber_is_stopped_and_a_dead_one_is_replaced(harness: &Harness) {
    let mut link = harness.link();
    let use_some = || {
        let mut other = harness.link();
        let granted = other.reserve(3 << 20).expect("there is room");
        // SAFETY: nothing imports the descriptor.
        unsafe { other.attach(granted.segment) }.expect("it has a lease there");
        other.close().expect("a broker serves");
    };
    // An idle scrubber holds no device memory.
    use_some();
    until("it is zeroed", || (stats(&mut link).reclaiming_bytes == 0).then_some(()));
    let stopped = Stopped::new(harness, "scrubber");
    use_some();
    until("its memory waits", || (stats(&mut link).reclaiming_bytes == 4 << 20).then_some(()));
    link.reserve(1000).expect("others are served");
    // It is killed while stopped, and never answers.
    signal(harness, "scrubber", Signal::KILL);
    std::mem::forget(stopped);
    until("another scrubber has zeroed it", || (stats(&mut link).reclaiming_bytes == 0).then_some(()));
}

/// A tenant shares the doorbell, and could make a reader of it block forever.
pub(crate) fn a_tenant_cannot_block_the_broker_through_its_doorbell(harness: &Harness) {
    let mut link = harness.link();
    let (socket, doorbell) = hello(harness);
    let flags = rustix::fs::fcntl_getfl(&doorbell).expect("it is open");
    rustix::fs::fcntl_setfl(&doorbell, flags - rustix::fs::OFlags::NONBLOCK).expect("the flags can be changed");
    for _ in 0..100 {
        rustix::io::write(&doorbell, &1u64.to_ne_bytes()).expect("a doorbell counts");
        let granted = link.reserve(1000).expect("others are served");
        link.return_lease(granted.lease, Fence::default()).expect("others are served");
    }
    drop(socket);
    assert_eq!(link.take_errors(), []);
}

/// Requests over the ring precede a `Bye` that was sent over the socket after them: more than are served in one turn,
/// and the last of them keeps a name.
pub(crate) fn a_goodbye_does_not_overtake_what_was_asked_before(harness: &Harness) {
    let mut link = harness.link();
    let kept = Name::parse("kept").expect("a name");
    let lease = link.reserve(512).expect("there is room").lease;
    let (policy, fence) = (Policy::Drop, Fence::default());
    link.call(Request::Publish { lease, policy, fence, name: kept.clone() }).expect("the name is free");
    link.return_lease(lease, fence).expect("a broker serves");
    let Reply::Number { id, .. } = link.call(Request::Find { name: kept.clone() }).expect("it is there").reply else {
        panic!("a name has a number");
    };
    for others in [0, 40, 240] {
        let mut writer = harness.link();
        let leases: Vec<_> = (0..others).map(|_| writer.reserve(512).expect("there is room").lease).collect();
        let written = writer.lease(id, Access::Write).expect("the name has no other writer").lease;
        let stopped = Stopped::new(harness, "broker");
        for lease in leases.into_iter().chain([written]) {
            writer.return_lease(lease, fence).expect("the ring has room");
        }
        // It sends `Bye`, and does not wait for the reply.
        drop(writer);
        drop(stopped);
        until("the writer is gone", || (stats(&mut link).tenants == 1).then_some(()));
        let found = link.call(Request::Find { name: kept.clone() });
        assert!(found.is_ok(), "a name whose writer returned it after {others} others was dropped: {found:?}");
    }
}

/// When the giver sends `Bye`, its ring has a request that waits for the driver, and a gift after that.
pub(crate) fn a_goodbye_does_not_overtake_what_waits_for_the_driver(harness: &Harness) {
    let mut receiver = harness.link();
    for round in 0..20 {
        let giver = Raw::connect(&harness.socket());
        let (lease, segment) = giver.reserve(512);
        let stopped = Stopped::new(harness, "broker");
        // More than any existing segment has: the driver creates another.
        giver.put(message(2, &[100 << 20])).expect("the ring has room");
        giver.put(message(5, &[lease, 0, 0, receiver.tenant().0])).expect("the ring has room");
        assert!(say(&giver.socket, &bytes_of(&message(16, &[])), &[]));
        drop(stopped);
        giver.hear_end();
        let given = receiver.next_given().unwrap_or_else(|| panic!("round {round}: the given lease did not arrive"));
        assert_eq!(given.granted.segment.0, segment);
        receiver.return_lease(given.granted.lease, Fence::default()).expect("a broker serves");
        drop(giver);
        until("the memory is free", || (stats(&mut receiver).leases == 0).then_some(()));
    }
}

/// A connection without the library: its socket and its doorbell.
fn hello(harness: &Harness) -> (OwnedFd, OwnedFd) {
    use rustix::net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType, connect, recvmsg, send, socket_with,
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
    connect(&socket, &SocketAddrUnix::new(harness.socket()).expect("a path")).expect("a broker serves");
    let mut words = [0u64; 8];
    (words[0], words[1]) = (1, 4 << 32 | 0x4448_5246);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    send(&socket, &bytes, SendFlags::empty()).expect("a broker serves");
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut reply = [0; 4096];
    let mut parts = [std::io::IoSliceMut::new(&mut reply)];
    recvmsg(&socket, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC).expect("a broker serves");
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let doorbell = descriptors.pop().expect("ring, semaphores and doorbell");
    (socket, doorbell)
}

/// A program of another version is told the version of the broker, and nothing more.
pub(crate) fn a_client_of_another_version_is_told_the_brokers_version(harness: &Harness) {
    for version in [0, 1, 3, 5, u64::from(u32::MAX)] {
        let socket = dial(&harness.socket());
        assert!(say(&socket, &bytes_of(&message(1, &[version << 32 | 0x4448_5246])), &[]));
        let heard = hear(&socket).expect("the hello is answered");
        assert_eq!((heard.slot, heard.descriptors.len()), ([202, 4, 0, 0, 0, 0, 0, 0], 0));
        assert!(hear(&socket).is_none(), "the connection is closed");
    }
}

/// Limits the descriptors of a role's processes to this many more.
fn limit(harness: &Harness, part: &str, more: u64) {
    for process in harness.processes(part) {
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count) as u64;
        let most = Some(open + more);
        prlimit(Some(pid(process)), Resource::Nofile, Rlimit { current: most, maximum: most })
            .expect("the limit can be set");
    }
}

/// The processor time of a process, which the system counts in hundredths of a second.
fn processor_time(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|&at| fields.get(at)?.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

pub(crate) fn without_descriptors_newcomers_are_refused_in_a_sentence_and_tenants_served(harness: &Harness) {
    let mut link = harness.link();
    let granted = link.reserve(1000).expect("there is room");
    limit(harness, "broker", 12);
    let mut links = Vec::new();
    let refused = loop {
        match Link::connect(&harness.socket()) {
            Ok(other) => links.push(other),
            Err(error) => break error,
        }
        assert!(links.len() < 10, "only a few descriptors are left");
    };
    let sentence =
        "the broker has no descriptors left: end processes that use it, or start it with a higher `ulimit -n`";
    assert_eq!(refused.to_string(), sentence);
    // Others wait in the backlog, and the broker does not spin.
    let waiting: Vec<_> = (0..4).map(|_| greet_only(harness)).collect();
    let broker = harness.processes("broker")[0];
    let (before, begun) = (processor_time(broker), Instant::now());
    until("half a second has passed", || (begun.elapsed() > Duration::from_millis(500)).then_some(()));
    let spent = processor_time(broker) - before;
    assert!(spent < begun.elapsed() / 2, "the broker was busy for {spent:?} of {:?}", begun.elapsed());
    drop(waiting);
    assert_eq!(stats(&mut link).leases, 1);
    // SAFETY: nothing imports the descriptor.
    let (_descriptor, bytes) = unsafe { link.attach(granted.segment) }.expect("the tenant is still served");
    assert_eq!(bytes, 2 << 20);
    drop(links);
    until("a new tenant can connect", || Link::connect(&harness.socket()).ok().map(drop));
}

/// A connection that never sends anything.
fn greet_only(harness: &Harness) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
    connect(&socket, &SocketAddrUnix::new(harness.socket()).expect("a path")).expect("a broker listens");
    socket
}

/// The next broker may have no more descriptors than the last one had: it needs no more.
pub(crate) fn a_broker_that_takes_over_needs_no_more_descriptors(harness: &Harness) {
    let mut links: Vec<Link> = (0..20).map(|_| harness.link()).collect();
    let leases: Vec<_> = links.iter_mut().map(|link| link.reserve(1000).expect("there is room")).collect();
    stats(&mut links[0]);
    let broker = harness.processes("broker")[0];
    let open = std::fs::read_dir(format!("/proc/{broker}/fd")).map_or(0, Iterator::count) as u64;
    let most = Some(open + 8);
    for fdstore in harness.processes("serve") {
        prlimit(Some(pid(fdstore)), Resource::Nofile, Rlimit { current: most, maximum: most })
            .expect("the limit can be set");
    }
    harness.kill("broker");
    assert_eq!(stats(&mut links[0]).tenants, 20);
    for (link, granted) in links.iter_mut().zip(leases) {
        link.return_lease(granted.lease, Fence::default()).expect("the tenant is still served");
        assert_eq!(link.take_errors(), []);
    }
    until("all leases have ended", || (stats(&mut links[0]).leases == 0).then_some(()));
}

/// Fills the socket to a stopped fdstore: more descriptors come than it holds.
fn fill_socket(harness: &Harness, link: &mut Link) {
    for number in 0..300 {
        published(link, &format!("n/{number}"), 100);
        harness.link().close().expect("a broker serves");
    }
}

/// The broker dies after the driver has created two segments, and before the fdstore has their descriptors.
pub(crate) fn a_lease_of_a_new_segment_is_granted_when_the_fdstore_has_it(harness: &Harness) {
    const RESERVE: u64 = 2;
    const RETURN: u64 = 4;
    const GRANTED: u16 = 102;
    const DONE: u16 = 104;
    let mut link = harness.link();
    let tenants = [(); 2].map(|()| Raw::connect(&harness.socket()));
    let stopped = Stopped::new(harness, "serve");
    fill_socket(harness, &mut link);
    let before_bytes = harness.open_fds("broker").memory_bytes;
    for tenant in &tenants {
        tenant.put(message(RESERVE, &[1000])).expect("the ring is empty");
    }
    until("the driver has created both", || {
        let has_both = harness.open_fds("broker").memory_bytes == before_bytes + 2 * SEGMENT_BYTES;
        (!is_soft() || has_both).then_some(())
    });
    // The driver thread reported the first segment before it created the second, so the broker has seen that report when
    // it answers the second of these requests.
    for _ in 0..2 {
        stats(&mut link);
    }
    assert_eq!(tenants[0].take(), None, "granted before the fdstore has the descriptor");
    harness.kill("broker");
    drop(stopped);
    for tenant in &tenants {
        let granted = until("the next broker answers", || tenant.take());
        assert_eq!(granted[0] as u16, GRANTED);
        assert_eq!(tenant.ask_ring(message(RETURN, &[granted[1]]))[0] as u16, DONE);
    }
}

/// If the broker died after it had sent the descriptor, another process would get other memory under the same name.
pub(crate) fn named_host_memory_is_sent_when_the_fdstore_has_it(harness: &Harness) {
    const HOST: u64 = 15;
    const DESCRIPTOR: u16 = 107;
    const NO_NAME: u16 = 205;
    let mut link = harness.link();
    let tenants = [(); 2].map(|()| Raw::connect(&harness.socket()));
    let stopped = Stopped::new(harness, "serve");
    fill_socket(harness, &mut link);
    let mut request = bytes_of(&message(HOST, &[4096]));
    request.extend_from_slice(b"h/1");
    for tenant in &tenants {
        assert!(say(&tenant.socket, &request, &[]));
        // Served after the request of the tenant.
        stats(&mut link);
        stats(&mut link);
        assert_eq!(receive(&tenant.socket).unwrap_err(), Errno::AGAIN, "sent before the fdstore has it");
    }
    // A name that is dropped meanwhile is unknown.
    let name = Name::parse("h/2").expect("a name");
    let third = Raw::connect(&harness.socket());
    let mut request = bytes_of(&message(HOST, &[4096]));
    request.extend_from_slice(b"h/2");
    assert!(say(&third.socket, &request, &[]));
    stats(&mut link);
    link.call(Request::Drop { name }).expect("it is there");
    drop(stopped);
    let files = tenants.map(|tenant| {
        let ReceivedMessage { slot, descriptors } = hear(&tenant.socket).expect("the request is answered");
        assert_eq!((slot[0] as u16, descriptors.len()), (DESCRIPTOR, 1));
        rustix::fs::fstat(&descriptors[0]).expect("it is open").st_ino
    });
    assert_eq!(files[0], files[1], "one name, one memory");
    assert_eq!(hear(&third.socket).expect("the request is answered").slot[0] as u16, NO_NAME);
}

/// The broker dies after it has recorded a module, and before the fdstore has its text.
pub(crate) fn a_module_is_stored_whole_or_not_at_all_and_its_tenant_learns_which(harness: &Harness) {
    let mut link = harness.link();
    let socket = harness.socket();
    let text = crate::calls::TEXT;
    let other = Caller::connect_at(&socket).unwrap();
    let module = other.put_module("other", text).unwrap();
    // SAFETY: `empty` touches no memory.
    let empty = unsafe { module.kernel("empty") }.unwrap();
    let caller = Caller::connect_at(&socket).unwrap();
    caller.put_module("first", text).unwrap();
    let stopped = Stopped::new(harness, "serve");
    fill_socket(harness, &mut link);
    let broker = harness.processes("broker")[0];
    let texts = || {
        let open = std::fs::read_dir(format!("/proc/{broker}/fd")).expect("/proc lists descriptors").flatten();
        let is_text = |of: &Path| of.to_string_lossy().starts_with("/memfd:freehold-module");
        open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|of| is_text(&of))).count()
    };
    let before = texts();
    let put = std::thread::spawn(move || caller.put_module("second", text).map(|module| module.name().to_string()));
    until("the broker has the text", || (texts() > before).then_some(()));
    // Other callers are still served.
    for _ in 0..20 {
        other.call(&Launch::new(&empty, freehold::Grid::line(1, 1), &[])).unwrap().wait().unwrap();
    }
    assert!(!put.is_finished(), "the put was answered before the fdstore has the text");
    harness.kill("broker");
    drop(stopped);
    assert_eq!(put.join().unwrap().unwrap(), "second");
    let names: Vec<String> = other.modules().unwrap().into_iter().map(|module| module.name).collect();
    assert_eq!(names, ["first", "other", "second"]);
    assert_eq!(other.module("second").unwrap().kernels().len(), 6);
}

/// What a program of another user may do, and what not. Needs the privilege to become another user.
pub(crate) fn users_of_a_group_read_each_others_names_and_drop_their_own(_: &Harness) {
    if !rustix::process::getuid().is_root() {
        println!("left out: only root can be several users");
        return;
    }
    let harness = Harness::of_group(STRANGER);
    published(&mut harness.link(), "shared", 4096);
    assert_eq!(harness.as_user(STRANGER, "speak"), "read true, written false, dropped false, own dropped true");
    let mut link = harness.link();
    assert_eq!(stats(&mut link).names, 1);
}

/// The second user shares the text of the first, and calls it.
pub(crate) fn users_of_a_group_share_the_librarys_own_modules(_: &Harness) {
    if !rustix::process::getuid().is_root() {
        println!("left out: only root can be several users");
        return;
    }
    let harness = Harness::of_group(STRANGER);
    assert_eq!(work(&harness.socket()).unwrap(), "written");
    assert_eq!(harness.as_user(STRANGER, "work"), "written");
}

/// A program of another user keeps the descriptor of a segment, and could keep a mapping, after it reported that it has
/// unmapped it.
pub(crate) fn a_segment_that_another_user_had_is_not_reused(_: &Harness) {
    if !rustix::process::getuid().is_root() {
        println!("left out: only root can be several users");
        return;
    }
    for is_killed in [false, true] {
        let harness = Harness::of_group(STRANGER);
        let mut publisher = harness.link();
        let lease = publisher.reserve(4096).expect("there is room");
        let (policy, fence, name) = (Policy::Restore, Fence::default(), Name::parse("shared").expect("a name"));
        publisher
            .call(Request::Publish { lease: lease.lease, policy, fence, name: name.clone() })
            .expect("the name is free");
        assert_eq!(harness.as_user(STRANGER, "keep"), format!("kept segment {}", lease.segment.0));
        if is_killed {
            harness.kill("broker");
            stats(&mut publisher);
        }
        let next = publisher.reserve(4096).expect("there is room");
        assert_ne!(next.segment, lease.segment, "its publisher gets no new memory of it");
        publisher.return_lease(next.lease, Fence::default()).expect("a broker serves");
        publisher.return_lease(lease.lease, Fence::default()).expect("a broker serves");
        publisher.call(Request::Drop { name }).expect("the publisher may drop its name");
        publisher.close().expect("a broker serves");
        let mut others: Vec<Link> = (0..4).map(|_| harness.link()).collect();
        until("all memory of the publisher is zeroed or closed", || {
            (stats(&mut others[0]).reclaiming_bytes == 0).then_some(())
        });
        for other in &mut others {
            let granted = other.reserve(4096).expect("there is room");
            assert_ne!(granted.segment, lease.segment, "no other process of that user gets it");
        }
    }
}

/// Reads a name, reports that it has unmapped it, and still has its descriptor.
fn keep(socket: &Path) -> Result<String, LinkError> {
    let mut link = Link::connect(socket)?;
    let Reply::Number { id, .. } = link.call(Request::Find { name: Name::parse("shared").expect("a name") })?.reply
    else {
        return Err(LinkError::Malformed);
    };
    let granted = link.lease(id, Access::Read)?;
    // SAFETY: nothing imports the descriptor.
    let _kept = unsafe { link.attach(granted.segment) }?;
    link.return_lease(granted.lease, Fence::default())?;
    link.detach(granted.segment)?;
    link.close()?;
    Ok(format!("kept segment {}", granted.segment.0))
}

/// Leases a name of its own for writing: a kernel of the library copies the current version.
fn work(socket: &Path) -> Result<String, CallError> {
    let caller = Caller::connect_at(socket)?;
    // SAFETY: the caller has no named lease while the link is used.
    let link = || unsafe { caller.link() };
    published(&mut *link()?, "own", 4096);
    let named = caller.lease_named("own", Access::Write)?;
    caller.commit(named)?;
    link()?.call(Request::Drop { name: Name::parse("own")? })?;
    Ok("written".to_owned())
}

/// Becomes the given user, and the group of the same number.
pub(crate) fn stranger(socket: &Path, user: u32, task: &str) -> ExitCode {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
    set_thread_groups(&[]).expect("root may change its groups");
    set_thread_gid(Gid::from_raw(user)).expect("root may change its group");
    set_thread_uid(Uid::from_raw(user)).expect("root may change its user");
    let said = match task {
        "work" => work(socket).map_err(|error| error.to_string()),
        "keep" => keep(socket).map_err(|error| error.to_string()),
        _ => speak(socket).map_err(|error| error.to_string()),
    };
    println!("{}", said.unwrap_or_else(|error| error));
    ExitCode::SUCCESS
}

fn speak(socket: &Path) -> Result<String, LinkError> {
    let mut link = Link::connect(socket)?;
    let name = |text: &str| Name::parse(text).expect("a name");
    let found = link.call(Request::Find { name: name("shared") })?;
    let Reply::Number { id, .. } = found.reply else { return Err(LinkError::Malformed) };
    let is_read = link.lease(id, Access::Read).is_ok();
    let is_written = link.lease(id, Access::Write).is_ok();
    let is_dropped = link.call(Request::Drop { name: name("shared") }).is_ok();
    published(&mut link, "own", 4096);
    let own = link.call(Request::Drop { name: name("own") }).is_ok();
    Ok(format!("read {is_read}, written {is_written}, dropped {is_dropped}, own dropped {own}"))
}
