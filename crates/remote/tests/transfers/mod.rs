//! Successful calls: transfers, names, sessions, and repeated calls.

use std::time::{Duration, Instant};

use freehold_broker::{Access, Policy};
use freehold_remote::{Code, Token, proto};
use freehold_testing::{Effort, at_effort};

use crate::harness::{Harness, Random, TOKEN, bytes, until_free, until_is};
use crate::raw::{Raw, chunk, end};

pub(crate) fn bytes_of_any_length_go_up_and_come_back(harness: &Harness) {
    let remote = harness.remote();
    for len in [1, 7, 4097, (1 << 20) - 1, 1 << 20, (5 << 20) + 3, at_effort(9, 40, 40) << 20] {
        let from = bytes(&mut Random::new(len as u64), len);
        let block = remote.alloc(len as u64).unwrap();
        assert_eq!((block.bytes(), block.access()), (len as u64, Access::Write));
        remote.upload(&block, 0, &from).unwrap();
        let mut to = vec![0; len];
        remote.download(&block, 0, &mut to).unwrap();
        assert!(to == from, "{len} bytes came back changed");
        block.close().unwrap();
    }
    until_free(&remote);
}

pub(crate) fn parts_of_a_block_are_written_and_read(harness: &Harness) {
    let remote = harness.remote();
    let block = remote.alloc(3 << 20).unwrap();
    remote.upload(&block, 0, &vec![1; 3 << 20]).unwrap();
    remote.upload(&block, 1_000_001, &[2; 999]).unwrap();
    let mut to = [0; 1001];
    remote.download(&block, 1_000_000, &mut to).unwrap();
    assert_eq!((to[0], to[1], to[999], to[1000]), (1, 2, 2, 1));
}

pub(crate) fn what_is_published_outlives_its_session(harness: &Harness) {
    let from = bytes(&mut Random::new(3), 3_000_000);
    let remote = harness.remote();
    let block = remote.alloc(3_000_000).unwrap();
    remote.upload(&block, 0, &from).unwrap();
    remote.publish("model/weights", block, Policy::Restore).unwrap();
    remote.close().unwrap();
    let other = harness.remote();
    let names = other.names().unwrap();
    let names: Vec<_> = names.iter().map(|name| (name.name.as_str(), name.bytes)).collect();
    assert_eq!(names, [("model/weights", 3_000_000)]);
    assert_eq!(other.find("model/weights").unwrap(), 3_000_000);
    let block = other.lease("model/weights", Access::Read).unwrap();
    let mut to = vec![0; 3_000_000];
    other.download(&block, 0, &mut to).unwrap();
    assert!(to == from);
    drop(block);
    other.drop_name("model/weights").unwrap();
    let failure = other.drop_name("model/weights").unwrap_err();
    assert_eq!((failure.code, failure.message.as_str()), (Code::NotFound, "model/weights: there is no such name"));
    until_free(&other);
}

pub(crate) fn a_session_that_is_closed_leaves_nothing(harness: &Harness) {
    let (remote, watcher) = (harness.remote(), harness.remote());
    let blocks: Vec<_> = (0..20).map(|_| remote.alloc(1 << 20).unwrap()).collect();
    assert_eq!(watcher.stats().unwrap().leases, 20);
    assert_eq!(watcher.stats().unwrap().sessions, 1);
    remote.clone().close().unwrap();
    until_free(&watcher);
    let failure = remote.alloc(1).unwrap_err();
    assert!(failure.is_session_expired);
    assert_eq!(failure.message, "no such session: it was closed, it timed out, or the server was restarted");
    drop(blocks);
}

pub(crate) fn an_unused_session_ends(harness: &Harness) {
    let life = Duration::from_secs(at_effort(60, 60, 20));
    let kept = harness.remote().with_session_timeout(life);
    let block = kept.alloc(1 << 20).unwrap();
    kept.upload(&block, 0, &[7; 1 << 20]).unwrap();
    let idle = Duration::from_secs(3);
    let mut raw = Raw::brief(harness, 1, idle.as_millis() as u64, 1 << 20);
    let begun = Instant::now();
    raw.alloc(1, 1 << 20).unwrap();
    // There are no calls in the first session; the library keeps the other alive.
    until_is("the session without a call has ended", (1, 1), || (raw.totals().sessions, raw.totals().leases));
    assert!(begun.elapsed() >= idle, "the session ended after {:?}", begun.elapsed());
    if Effort::current() == Effort::Soak {
        let begun = Instant::now();
        until_is("more than its timeout has passed", true, || begun.elapsed() > 2 * life);
    }
    let mut to = [0; 4];
    kept.download(&block, 0, &mut to).unwrap();
    assert_eq!(to, [7; 4]);
    assert_eq!(raw.alloc(2, 1).unwrap_err().code(), Code::NotFound);
}

pub(crate) fn many_clients_at_once_have_their_own_bytes(harness: &Harness) {
    std::thread::scope(|scope| {
        for number in 1..=8 {
            scope.spawn(move || {
                let remote = harness.remote();
                let from = bytes(&mut Random::new(number), 4_000_000);
                for _ in 0..at_effort(1, 3, 20) {
                    let block = remote.alloc(4_000_000).unwrap();
                    remote.upload(&block, 0, &from).unwrap();
                    let mut to = vec![0; 4_000_000];
                    remote.download(&block, 0, &mut to).unwrap();
                    assert!(to == from, "client {number} read wrong bytes");
                }
            });
        }
    });
    until_free(&harness.remote());
}

pub(crate) fn a_repeated_call_is_executed_once(harness: &Harness) {
    let mut raw = Raw::open(harness, 1);
    let first = raw.alloc(1, 4096).unwrap();
    assert_eq!(raw.alloc(1, 4096).unwrap(), first);
    assert_eq!(raw.totals().leases, 1);
    assert_eq!(raw.alloc(2, 4096).unwrap(), 2);
    assert_eq!(raw.totals().leases, 2);
    let other = raw.alloc(1, 8192).unwrap_err();
    assert_eq!(other.message(), "call number 1 was used for a different call: give each call its own number");
    // Many repeats at once are one call.
    let (client, call) = (raw.client.clone(), raw.call(3));
    let answers = raw.runtime.block_on(async {
        let asked = (0..16).map(|_| {
            let (mut client, call) = (client.clone(), call.clone());
            tokio::spawn(async move { client.call(proto::AllocRequest { call, bytes: 4096 }).await })
        });
        let asked: Vec<_> = asked.collect();
        let mut answers = Vec::new();
        for answer in asked {
            answers.push(answer.await.unwrap().unwrap().block);
        }
        answers
    });
    assert_eq!(answers, [3; 16]);
    assert_eq!(raw.totals().leases, 3);
    // A refused call is refused again, and not executed when it could be.
    let free = |raw: &mut Raw, number, block| {
        let request = proto::FreeRequest { call: raw.call(number), block };
        raw.runtime.block_on(raw.client.call(request)).map(drop).map_err(|status| status.message().to_owned())
    };
    let refused = Err("the session has no block 4: it was freed, published, or never allocated".to_owned());
    assert_eq!(free(&mut raw, 4, 4), refused);
    assert_eq!(raw.alloc(5, 4096).unwrap(), 4);
    assert_eq!(free(&mut raw, 4, 4), refused);
    assert_eq!(free(&mut raw, 6, 4), Ok(()));
    assert_eq!(free(&mut raw, 6, 4), Ok(()));
}

pub(crate) fn an_upload_goes_on_where_it_stood(harness: &Harness) {
    let from = bytes(&mut Random::new(9), 3 << 20);
    let mut raw = Raw::open(harness, 1);
    let block = raw.alloc(1, 3 << 20).unwrap();
    let (first, rest) = from.split_at(1 << 20);
    let broken = raw.upload(vec![raw.begin(2, block, 3 << 20, 0), chunk(0, first)]).unwrap_err();
    assert_eq!(broken.message(), "the upload stopped at byte 1048576 of 3145728: resume it there");
    let told = raw.resume(2);
    assert_eq!((told.bytes, told.crc32c, told.complete), (1 << 20, crc32c::crc32c(first), false));
    let elsewhere = raw.upload(vec![raw.begin(2, block, 3 << 20, 4), chunk(4, rest)]).unwrap_err();
    assert_eq!(elsewhere.message(), "the server has 1048576 bytes of the upload: continue there, not at byte 4");
    let (second, third) = rest.split_at(1 << 20);
    let parts = vec![raw.begin(2, block, 3 << 20, 1 << 20), chunk(1 << 20, second), chunk(2 << 20, third), end(&from)];
    assert!(raw.upload(parts).unwrap().complete);
    let mut to = Vec::new();
    let session = raw.session.clone();
    let request = proto::DownloadRequest { session, block, offset: 0, bytes: 0, chunk_bytes: 100_000 };
    raw.runtime.block_on(async {
        let mut chunks = raw.client.download(request).await.unwrap();
        while let Some(chunk) = chunks.message().await.unwrap() {
            let chunk = chunk.chunk.unwrap();
            assert_eq!((chunk.at, chunk.crc32c), (to.len() as u64, crc32c::crc32c(&chunk.data)));
            to.extend_from_slice(&chunk.data);
        }
    });
    assert!(to == from);
}

pub(crate) fn a_completed_upload_is_answered_again(harness: &Harness) {
    let mut raw = Raw::open(harness, 1);
    let block = raw.alloc(1, 4).unwrap();
    let parts = vec![raw.begin(2, block, 4, 0), chunk(0, b"free"), end(b"free")];
    assert!(raw.upload(parts.clone()).unwrap().complete);
    // Another upload writes in between, and is not overwritten.
    let parts_after = vec![raw.begin(3, block, 4, 0), chunk(0, b"hold"), end(b"hold")];
    assert!(raw.upload(parts_after).unwrap().complete);
    assert!(raw.upload(parts).unwrap().complete);
    assert!(raw.resume(2).complete);
    let other = raw.upload(vec![raw.begin(2, block, 3, 0)]).unwrap_err();
    assert_eq!(other.message(), "upload number 2 was used for a different upload: give each upload its own number");
    let session = raw.session.clone();
    let request = proto::DownloadRequest { session, block, offset: 0, bytes: 4, chunk_bytes: 0 };
    let chunk = raw.runtime.block_on(async {
        let mut chunks = raw.client.download(request).await.unwrap();
        chunks.message().await.unwrap().unwrap().chunk.unwrap()
    });
    assert_eq!(&chunk.data[..], b"hold");
}

pub(crate) fn without_tls_the_same_is_served(harness: &Harness) {
    let (_server, port) = harness.server_without_tls();
    let url = format!("http://127.0.0.1:{port}");
    let remote = freehold_remote::Remote::connect(&url, &Token::parse(TOKEN).unwrap(), None).unwrap();
    let block = remote.alloc(5_000_000).unwrap();
    let from = bytes(&mut Random::new(4), 5_000_000);
    remote.upload(&block, 0, &from).unwrap();
    let mut to = vec![0; 5_000_000];
    remote.download(&block, 0, &mut to).unwrap();
    assert!(to == from);
}
