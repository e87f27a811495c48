//! The bytes of every message, compared with `docs/protocol.md`.

use freehold_broker::Name;
use freehold_broker::wire::{
    Access, BrokerStats, Fence, Frame, Id, MemoryKind, Policy, QuotaChange, Reply, Request, RequestError,
};
use freehold_testing::{Random, at_effort, report_covered, seed};

fn name() -> Name {
    Name::parse("model/weights").expect("a name")
}

const FENCE: Fence = Fence { tenant: Id(3), semaphore: 5, value: 9 };
const WHEN: u64 = 5 << 48 | 9;

fn requests() -> Vec<(Request, [u64; 8], &'static str)> {
    let fence = FENCE;
    let words = |kind: u64, words: &[u64]| {
        let mut slot = [0; 8];
        slot[0] = 7 << 32 | kind;
        slot[1..=words.len()].copy_from_slice(words);
        slot
    };
    vec![
        (Request::Hello { version: 3 }, words(1, &[3 << 32 | 0x4448_5246]), ""),
        (Request::Reserve { bytes: 4096 }, words(2, &[4096]), ""),
        (Request::Lease { name: Id(11), access: Access::Read, bytes: 0 }, words(3, &[11, 0]), ""),
        (Request::Lease { name: Id(11), access: Access::Write, bytes: 4096 }, words(3, &[11, 1, 4096]), ""),
        (Request::Return { lease: Id(12), fence }, words(4, &[12, 3, WHEN]), ""),
        (Request::Give { lease: Id(12), to: Id(13), fence }, words(5, &[12, 3, WHEN, 13]), ""),
        (Request::Detach { segment: Id(14) }, words(6, &[14]), ""),
        (Request::Attach { segment: Id(14) }, words(7, &[14]), ""),
        (Request::Semaphores { tenant: Id(3) }, words(8, &[3]), ""),
        (
            Request::Publish { lease: Id(12), policy: Policy::Open, fence, name: name() },
            words(9, &[12, 3, WHEN, 2]),
            "model/weights",
        ),
        (Request::Find { name: name() }, words(10, &[]), "model/weights"),
        (Request::List { after: None }, words(11, &[]), ""),
        (Request::List { after: Some(name()) }, words(11, &[]), "model/weights"),
        (Request::Drop { name: name() }, words(12, &[]), "model/weights"),
        (Request::Quota { user: 1000, memory: MemoryKind::Device, change: QuotaChange::Keep }, words(13, &[1000]), ""),
        (
            Request::Quota { user: 1000, memory: MemoryKind::Host, change: QuotaChange::Set { bytes: 1 << 30 } },
            words(13, &[1000, 1, 1, 1 << 30]),
            "",
        ),
        (
            Request::Quota { user: 1000, memory: MemoryKind::Host, change: QuotaChange::Clear },
            words(13, &[1000, 1, 2]),
            "",
        ),
        (Request::Stats, words(14, &[]), ""),
        (Request::Host { bytes: 4096, name: name() }, words(15, &[4096]), "model/weights"),
        (Request::Bye, words(16, &[]), ""),
        (Request::Stop { is_forced: false }, words(17, &[]), ""),
        (Request::Stop { is_forced: true }, words(17, &[1]), ""),
        (Request::OpenSession { label: 21 }, words(18, &[21]), ""),
        (Request::Borrow { lease: Id(12), of: Id(3) }, words(19, &[12, 3]), ""),
        (
            Request::PutModule { bytes: 4096, device_bytes: 512, hash: [1, 2, 3, 4], name: name() },
            words(20, &[4096, 1, 2, 3, 4, 512]),
            "model/weights",
        ),
        (Request::Module { id: Id(15), name: None }, words(21, &[15]), ""),
        (Request::Module { id: Id(0), name: Some(name()) }, words(21, &[]), "model/weights"),
        (Request::Modules { after: None }, words(22, &[]), ""),
        (Request::Modules { after: Some(name()) }, words(22, &[]), "model/weights"),
        (Request::DropModule { name: name() }, words(23, &[]), "model/weights"),
        (Request::Compiled { module: Id(15) }, words(24, &[15]), ""),
        (Request::Drained { tenant: Id(3) }, words(25, &[3]), ""),
        (Request::Unload { module: Id(15) }, words(26, &[15]), ""),
    ]
}

#[test]
fn every_request_has_its_bytes_and_is_read_from_them() {
    for (message, slot, text) in requests() {
        let framed = Frame { number: 7, is_retry: false, message };
        assert_eq!(framed.encode(), (slot, text), "{:?}", framed.message);
        assert_eq!(Frame::<Request>::decode(&slot, text.as_bytes()), Ok(framed));
    }
}

#[test]
fn a_request_that_is_asked_again_has_a_bit() {
    let (slot, _) = Frame { number: 7, is_retry: true, message: Request::Stats }.encode();
    assert_eq!(slot, [7 << 32 | 1 << 16 | 14, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn words_without_a_meaning_are_zero() {
    for (message, slot, text) in requests() {
        for word in 1..8 {
            let mut spoilt = slot;
            if spoilt[word] != 0 {
                continue;
            }
            spoilt[word] = 1 << 63;
            let decoded = Frame::<Request>::decode(&spoilt, text.as_bytes());
            // A word that has a meaning and may be 0 is decoded as such.
            assert!(decoded.is_err() || decoded.unwrap().message != message, "{message:?}, word {word}");
        }
        let mut spoilt = slot;
        spoilt[0] |= 1 << 20;
        assert_eq!(Frame::<Request>::decode(&spoilt, text.as_bytes()), Err((7, RequestError::Malformed)));
    }
}

#[test]
fn an_invalid_name_says_which_rule_it_breaks() {
    let (slot, _) = Frame { number: 7, is_retry: false, message: Request::Find { name: name() } }.encode();
    let refused = |text: &[u8]| Frame::<Request>::decode(&slot, text).unwrap_err().1.to_string();
    assert_eq!(refused(b""), "empty name: expected one such as model/weights");
    assert_eq!(refused(b"a/../b"), "part 2 of the name begins with '.' or '-': expected a letter, a digit or '_'");
    assert_eq!(refused(b"a\xffb"), "invalid byte 1 in the name: expected letters, digits, '-', '_', '.' and '/'");
}

#[test]
fn every_reply_has_its_bytes_and_is_read_from_them() {
    let (lease, segment, offset, bytes, fence) = (Id(12), Id(14), 512, 4096, FENCE);
    let stats = BrokerStats {
        budget_bytes: 1,
        segment_bytes: 2,
        leased_bytes: 3,
        named_bytes: 4,
        reclaiming_bytes: 5,
        tenants: 6,
        names: 7,
        leases: 8,
    };
    let replies: Vec<(Reply, u64, &[u64])> = vec![
        (Reply::Welcome { tenant: Id(13), device: 2 << 64 | 1 }, 101, &[13, 1, 2]),
        (
            Reply::Granted { lease, segment, offset, bytes, fence, access: Access::Write, version: 8 },
            102,
            &[12, 14, 512, 4096, 3, WHEN, 8 << 16 | 1],
        ),
        (Reply::Done, 104, &[]),
        (Reply::Number { id: Id(11), bytes: 4096 }, 105, &[11, 4096]),
        (Reply::Text, 106, &[]),
        (Reply::Descriptor { bytes: 4096 }, 107, &[4096]),
        (Reply::Stats(stats), 108, &[1, 2, 3, 4, 5, 7 << 32 | 6, 8]),
        (Reply::Given { lease, segment, offset, bytes, fence, from: Id(3) }, 109, &[12, 14, 512, 4096, 3, WHEN, 3]),
        (Reply::Unmap { segment }, 110, &[14]),
        (Reply::Resumed, 111, &[]),
        (Reply::SessionOpened { worker: Id(13), session_index: 2 }, 112, &[13, 2]),
        (Reply::Recall { lease }, 113, &[12]),
        (Reply::Module { id: Id(15), bytes, hash: [1, 2, 3, 4], device_bytes: 512 }, 114, &[15, 4096, 1, 2, 3, 4, 512]),
        (Reply::Unload { module: Id(15) }, 115, &[15]),
        (Reply::Unfinished { lease }, 116, &[12]),
        (Reply::Error(RequestError::Malformed), 201, &[]),
        (Reply::Error(RequestError::Version { theirs: 2 }), 202, &[2]),
        (Reply::Error(RequestError::NoLease), 204, &[]),
        (Reply::Error(RequestError::NoName), 205, &[]),
        (Reply::Error(RequestError::ForeignName), 206, &[]),
        (Reply::Error(RequestError::NameTaken), 207, &[]),
        (Reply::Error(RequestError::Busy { readers: 2, writers: 1 }), 208, &[2, 1]),
        (Reply::Error(RequestError::NoSegment), 209, &[]),
        (Reply::Error(RequestError::ReadOnly), 210, &[]),
        (Reply::Error(RequestError::UserQuota { limit_bytes: 1, had_bytes: 2, wanted_bytes: 3 }), 211, &[1, 2, 3]),
        (Reply::Error(RequestError::OutOfMemory { free_bytes: 1, budget_bytes: 2, wanted_bytes: 3 }), 212, &[1, 2, 3]),
        (Reply::Error(RequestError::TooMany { limit: 4 }), 213, &[4]),
        (Reply::Error(RequestError::NoTenant), 214, &[]),
        (Reply::Error(RequestError::ReceiverBusy { waiting: 5 }), 215, &[5]),
        (Reply::Error(RequestError::Device { code: 2 }), 216, &[2]),
        (Reply::Error(RequestError::ZeroBytes), 217, &[]),
        (Reply::Error(RequestError::NotAllowed { user: 6 }), 218, &[6]),
        (Reply::Error(RequestError::SizeMismatch { bytes: 7 }), 219, &[7]),
        (Reply::Error(RequestError::TenantQuota { limit_bytes: 1, had_bytes: 2, wanted_bytes: 3 }), 220, &[1, 2, 3]),
        (Reply::Error(RequestError::NoDescriptors), 221, &[]),
        (Reply::Error(RequestError::DeviceGone { code: 46 }), 222, &[46]),
        (Reply::Error(RequestError::NameDropped), 223, &[]),
        (Reply::Error(RequestError::WrongName), 224, &[]),
        (Reply::Error(RequestError::WrongMemoryKind { memory: MemoryKind::Host }), 225, &[1]),
        (Reply::Error(RequestError::HostQuota { limit_bytes: 1, had_bytes: 2, wanted_bytes: 3 }), 226, &[1, 2, 3]),
        (Reply::Error(RequestError::QuotaTooSmall { least_bytes: 4096 }), 227, &[4096]),
        (Reply::Error(RequestError::NamesPublished { names: 2, modules: 3, bytes: 4096 }), 228, &[2, 4096, 3]),
        (Reply::Error(RequestError::NoModule), 229, &[]),
        (Reply::Error(RequestError::ModuleTaken), 230, &[]),
        (Reply::Error(RequestError::InvalidModule { limit_bytes: 7 }), 231, &[7]),
        (Reply::Error(RequestError::NotAWorker), 232, &[]),
        (Reply::Error(RequestError::LeaseEnded), 233, &[]),
        (Reply::Error(RequestError::ForeignLease), 234, &[]),
    ];
    for (message, kind, words) in replies {
        let mut slot = [0; 8];
        slot[0] = 7 << 32 | kind;
        slot[1..=words.len()].copy_from_slice(words);
        let framed = Frame { number: 7, is_retry: false, message };
        assert_eq!(framed.encode(), slot, "{:?}", framed.message);
        assert_eq!(Frame::<Reply>::decode(&slot), Ok(framed));
    }
}

/// Random bytes: no panic, and an answer for each.
#[test]
fn random_messages_are_each_read_or_refused() {
    let mut random = Random::new(seed());
    let mut random = || random.next();
    let messages = at_effort(100_000, 1_000_000, 20_000_000);
    let mut read = 0;
    for _ in 0..messages {
        let mut slot = [0; 8];
        slot[0] = random() << 32 | (random() % 27) | u64::from(random() % 64 == 0) << 17;
        for word in &mut slot[1..] {
            *word = match random() % 12 {
                0 => random(),
                1 => random() % 4,
                _ => 0,
            };
        }
        let letters = if random() % 2 == 0 { 0 } else { random() % 16 };
        let tail: Vec<u8> = (0..letters).map(|_| b"ab/.-\xff\0Z"[(random() % 8) as usize]).collect();
        match Frame::<Request>::decode(&slot, &tail) {
            Ok(framed) => {
                let (again, text) = framed.encode();
                assert_eq!(Frame::<Request>::decode(&again, text.as_bytes()).as_ref(), Ok(&framed));
                read += 1;
            }
            Err((number, error)) => {
                assert_eq!(u64::from(number), slot[0] >> 32);
                assert!(matches!(error, RequestError::Malformed | RequestError::InvalidName(_)), "{error:?}");
            }
        }
        let _ = Frame::<Reply>::decode(&slot);
    }
    assert!(read > messages / 100, "some are messages: {read}");
    report_covered(messages, "random messages decoded");
}
