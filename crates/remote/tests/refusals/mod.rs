//! Errors: each has one clear message, says whose fault it was, and loses nothing.

use std::net::TcpListener;
use std::time::Duration;

use freehold_broker::{Access, Policy};
use freehold_remote::proto::upload_message::Part;
use freehold_remote::proto::{self, Chunk, UploadEnd, argument::Value};
use freehold_remote::{Code, ErrorOrigin, Executed, Remote, RemoteBlockError, RemoteError, ServerLimits, Token};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

use crate::harness::{Harness, TOKEN, until_free, until_is};
use crate::launches::TEXT;
use crate::raw::{Raw, chunk, end};

fn refused(url: &str, token: &str, ca: Option<&[u8]>) -> (ErrorOrigin, String) {
    let RemoteError { origin, message, executed, .. } =
        Remote::connect(url, &Token::parse(token).unwrap(), ca).unwrap_err();
    assert_eq!(executed, Executed::No);
    (origin, message)
}

pub(crate) fn a_refused_client_is_told_why(harness: &Harness) {
    let (url, ca) = (harness.url(), harness.ca());
    let message = "wrong token: use the one that `freehold serve` was started with";
    assert_eq!(refused(&url, "0123456789abcdef", Some(&ca)), (ErrorOrigin::Caller, message.to_owned()));
    let other = std::fs::read(harness.sandbox.folder.join("other.pem")).unwrap();
    let (fault, said) = refused(&url, TOKEN, Some(&other));
    assert_eq!(fault, ErrorOrigin::Connection);
    assert_eq!(
        said,
        format!(
            "the certificate of {url} is not signed by the authority in the --ca file: give the certificate of its authority, \
             or its own"
        )
    );
    // The certificate is for the host name, and not for the address.
    let url = format!("https://127.0.0.1:{}", harness.port());
    let (_, said) = refused(&url, TOKEN, Some(&ca));
    assert_eq!(said, format!("the certificate of {url} is for localhost: use that name, or create one for this name"));
    let remote = harness.remote();
    assert_eq!(remote.stats().unwrap().sessions, 0);
}

pub(crate) fn an_invalid_certificate_is_an_error_that_says_why(harness: &Harness) {
    let refused_of = |change: fn(&mut CertificateParams)| {
        let mut terms = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut terms);
        let key = KeyPair::generate().unwrap();
        let certificate = terms.self_signed(&key).unwrap().pem();
        for (name, text) in [("cert.pem", &certificate), ("key.pem", &key.serialize_pem())] {
            std::fs::write(harness.sandbox.folder.join(name), text).unwrap();
        }
        let (_server, port) = harness.limited_server("tls", ServerLimits::default());
        let url = format!("https://localhost:{port}");
        let (_, said) = refused(&url, TOKEN, Some(certificate.as_bytes()));
        said.strip_prefix(&format!("the certificate of {url} ")).unwrap_or(&said).to_owned()
    };
    assert_eq!(
        refused_of(|terms| terms.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
        "belongs to an authority, not to a server: create one with basicConstraints=CA:FALSE"
    );
    assert_eq!(refused_of(|terms| terms.not_after = date_time_ymd(2000, 1, 1)), "has expired: create a new one");
    assert_eq!(
        refused_of(|terms| terms.not_before = date_time_ymd(4000, 1, 1)),
        "is not valid yet: check the clocks of both machines"
    );
    assert_eq!(
        refused_of(|terms| terms.subject_alt_names.clear()),
        "is not for this name: create one with subjectAltName"
    );
}

pub(crate) fn a_mismatch_of_tls_or_protocol_is_named_in_the_error(harness: &Harness) {
    // Without TLS, to a server with TLS.
    let url = format!("http://localhost:{}", harness.port());
    let (fault, said) = refused(&url, TOKEN, None);
    assert_eq!(fault, ErrorOrigin::Connection);
    let (begin, end) = (format!("{url} does not answer without TLS ("), "): use https:// if it has a certificate");
    assert!(said.starts_with(&begin) && said.ends_with(end), "{said}");
    // With TLS, to a server without.
    let (_server, port) = harness.server_without_tls();
    let url = format!("https://localhost:{port}");
    let (_, said) = refused(&url, TOKEN, Some(&harness.ca()));
    assert_eq!(said, format!("the server at {url} does not speak TLS: use http://"));
    // No server at all: the port is free again.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("https://localhost:{nobody}");
    let (_, said) = refused(&url, TOKEN, Some(&harness.ca()));
    let message = "start `freehold serve --listen ADDRESS` there, or check the address";
    assert_eq!(said, format!("no server listens at {url}: {message}"));
}

pub(crate) fn unknown_things_are_refused(harness: &Harness) {
    let mut raw = Raw::open(harness, 1);
    let session = raw.session.clone();
    raw.session = vec![9; 16];
    let refused = raw.alloc(1, 4096).unwrap_err();
    let over = "no such session: it was closed, it timed out, or the server was restarted";
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, over));
    raw.session = vec![9; 15];
    let refused = raw.alloc(1, 4096).unwrap_err();
    assert_eq!(refused.message(), "the session id has 15 bytes: expected 16 random bytes");
    raw.session = session;
    let refused = raw.runtime.block_on(raw.client.call(proto::AllocRequest { call: None, bytes: 1 })).unwrap_err();
    assert_eq!(refused.message(), "the request has no call: set session and number");
    let refused = raw.upload(vec![raw.begin(1, 77, 4096, 0)]).unwrap_err();
    let gone = "the session has no block 77: it was freed, published, or never allocated";
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, gone));
    let remote = harness.remote();
    let failure = remote.lease("no/name", Access::Read).unwrap_err();
    assert_eq!((failure.origin, failure.message.as_str()), (ErrorOrigin::Caller, "no/name: there is no such name"));
    let failure = remote.alloc(0).unwrap_err();
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (Code::InvalidArgument, "zero bytes requested: expected at least one")
    );
    let failure = remote.alloc(1 << 40).unwrap_err();
    assert_eq!((failure.origin, failure.code), (ErrorOrigin::Caller, Code::ResourceExhausted));
}

pub(crate) fn offsets_outside_of_a_block_are_refused(harness: &Harness) {
    let remote = harness.remote();
    let block = remote.alloc(100).unwrap();
    for (offset, bytes) in [(100, 1), (0, 101), (u64::MAX, 2), (99, 2)] {
        let failure = remote.upload_with(&block, offset, bytes, |_, _| Ok(())).unwrap_err();
        let message = format!("block 1 has 100 bytes: {bytes} from byte {offset} on are not in it");
        assert_eq!(
            (failure.origin, failure.code, failure.message),
            (ErrorOrigin::Caller, Code::OutOfRange, message.clone())
        );
        let failure = remote.download_with(&block, offset, bytes, |_, _| Ok(())).unwrap_err();
        assert_eq!((failure.executed, failure.message), (Executed::No, message));
    }
    remote.upload(&block, 99, &[1]).unwrap();
}

pub(crate) fn wild_numbers_are_refused(harness: &Harness) {
    let (_server, port) = harness.server_without_tls();
    let mut raw = Raw::at_port(port, 1);
    for bytes in [u64::MAX, u64::MAX - 4095, 1 << 63] {
        let refused = raw.alloc(bytes, bytes).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{bytes}: {}", refused.message());
    }
    let block = raw.alloc(1, 8).unwrap();
    for (number, offset, bytes) in [(2, u64::MAX, 1), (3, 1, u64::MAX), (4, u64::MAX, u64::MAX), (5, 8, 1)] {
        let begin = proto::UploadBegin { call: raw.call(number), block, offset, bytes, from: 0 };
        let refused = raw.upload(vec![Part::Begin(begin)]).unwrap_err();
        let message = format!("block 1 has 8 bytes: {bytes} from byte {offset} on are not in it");
        assert_eq!((refused.code(), refused.message()), (Code::OutOfRange, message.as_str()));
    }
    // A chunk that comes twice, or from a sender that was replaced, is not written again.
    let begin = raw.begin(6, block, 8, 0);
    let refused = raw.upload(vec![begin, chunk(0, b"free"), chunk(0, b"FREE")]).unwrap_err();
    assert_eq!(refused.message(), "the server has 4 bytes of the upload: continue there, not at byte 0");
    let refused = raw.upload(vec![raw.begin(6, block, 8, u64::MAX)]).unwrap_err();
    assert_eq!(
        refused.message(),
        format!("the server has 4 bytes of the upload: continue there, not at byte {}", u64::MAX)
    );
    let refused = raw.upload(vec![raw.begin(6, block, 8, 4), chunk(u64::MAX - 1, b"hold")]).unwrap_err();
    assert_eq!(
        refused.message(),
        format!("the server has 4 bytes of the upload: continue there, not at byte {}", u64::MAX - 1)
    );
    assert!(raw.upload(vec![raw.begin(6, block, 8, 4), chunk(4, b"hold"), end(b"freehold")]).unwrap().complete);
    let module = raw.put(7, TEXT);
    let lease = |offset| proto::Argument { value: Some(Value::Block(proto::BlockArgument { block, offset })) };
    let number = |bytes, bits| {
        let kind = proto::Kind::Unsigned.into();
        proto::Argument { value: Some(Value::Number(proto::NumberArgument { kind, bytes, bits })) }
    };
    let none = proto::Argument { value: None };
    let wild = [
        (vec![lease(0); 100_000], "kernel step takes 3 arguments, 100000 were given"),
        (
            vec![lease(0), number(3, 1), number(4, 1)],
            "argument 2 is a number of 3 bytes: expected 1, 2, 4 or 8, and a value that fits",
        ),
        (
            vec![lease(0), number(u32::MAX, 1), number(4, 1)],
            "argument 2 is a number of 4294967295 bytes: expected 1, 2, 4 or 8, and a value that fits",
        ),
        (
            vec![lease(0), number(4, 1 << 32), number(4, 1)],
            "argument 2 is a number of 4 bytes: expected 1, 2, 4 or 8, and a value that fits",
        ),
        (
            vec![none, number(4, 1), number(4, 1)],
            "argument 1 has no value: pass a block, a name, a number or a structure",
        ),
    ];
    for (at, (arguments, message)) in (8..).zip(wild) {
        assert_eq!(raw.launch(at, module, "step", arguments).unwrap_err().message(), message);
    }
    raw.launch(20, module, "step", vec![lease(u64::MAX), number(4, 1), number(4, 1)]).unwrap();
    let refused = raw.runtime.block_on(raw.wait(20, u64::MAX)).unwrap_err();
    assert_eq!(refused.message(), format!("argument 1 of step begins at byte {} of a lease of 8 bytes", u64::MAX));
    raw.launch(21, module, "step", vec![lease(0), number(4, 1), number(4, 1)]).unwrap();
    raw.runtime.block_on(raw.wait(21, u64::MAX)).unwrap();
}

pub(crate) fn chunks_that_are_wrong_are_refused(harness: &Harness) {
    let mut raw = Raw::open(harness, 1);
    let block = raw.alloc(1, 8 << 20).unwrap();
    let (begin, large) = (raw.begin(2, block, 8, 0), vec![0; (2 << 20) + 1]);
    let of_four = |at, crc32c| Part::Chunk(Chunk { at, data: b"free".to_vec().into(), crc32c });
    let wrong = [
        (vec![begin.clone(), chunk(0, &large)], "a chunk has 1 to 2097152 bytes, this one 2097153"),
        (vec![begin.clone(), chunk(0, &vec![0; 17 << 20])], "a message is too long: a chunk has at most 2097152 bytes"),
        (vec![begin.clone(), chunk(0, b"")], "a chunk has 1 to 2097152 bytes, this one 0"),
        (vec![begin.clone(), chunk(1, b"free")], "the server has 0 bytes of the upload: continue there, not at byte 1"),
        (vec![begin.clone(), chunk(0, b"ninebytes")], "the upload has 8 bytes: 9 from byte 0 on are too many"),
        (
            vec![begin.clone(), of_four(0, 7)],
            "the chunk at byte 0 has the checksum 60ce1d40 and not 00000007: send it again",
        ),
        (vec![begin.clone(), begin.clone()], "second begin of an upload: send chunks, then the end"),
        (vec![chunk(0, b"free")], "the upload has no begin: send it first"),
        (vec![begin.clone(), end(b"")], "the server has 0 bytes of the upload: continue there, not at byte 8"),
    ];
    for (parts, message) in wrong {
        assert_eq!(raw.upload(parts).unwrap_err().message(), message);
    }
    let parts = vec![begin, chunk(0, b"free"), chunk(4, b"hold"), end(b"freehold")];
    assert!(raw.upload(parts).unwrap().complete);
}

pub(crate) fn an_upload_with_another_checksum_is_not_complete(harness: &Harness) {
    let mut raw = Raw::open(harness, 1);
    let block = raw.alloc(1, 4).unwrap();
    let parts = vec![raw.begin(2, block, 4, 0), chunk(0, b"free"), Part::End(UploadEnd { crc32c: 7 })];
    let refused = raw.upload(parts).unwrap_err();
    let message =
        "the upload has the checksum 60ce1d40 and not 00000007: its bytes are in the block; upload them again";
    assert_eq!((refused.code(), refused.message()), (Code::DataLoss, message));
    assert!(!raw.resume(2).complete);
}

pub(crate) fn a_client_that_does_not_read_is_disconnected(harness: &Harness) {
    // Longer than between two calls on any machine.
    let life = Duration::from_secs(3);
    let mut raw = Raw::brief(harness, 1, life.as_millis() as u64, 65_535);
    let block = raw.alloc(1, 64 << 20).unwrap();
    let session = raw.session.clone();
    let request = proto::DownloadRequest { session, block, offset: 0, bytes: 0, chunk_bytes: 1 << 20 };
    let mut unread = raw.runtime.block_on(raw.client.download(request)).unwrap();
    // Other sessions are still served, until this one has ended, which it does not while a download is in progress.
    let remote = harness.remote();
    let other = remote.alloc(1 << 20).unwrap();
    until_is("only the other session is left", 1, || {
        remote.upload(&other, 0, &[1; 1 << 16]).unwrap();
        remote.stats().unwrap().sessions
    });
    let told = raw.runtime.block_on(async {
        let mut chunks = 0;
        loop {
            match unread.message().await {
                Ok(Some(_)) => chunks += 1,
                Ok(None) => panic!("an aborted download ends with an error"),
                Err(status) => return (chunks < 64, status.code(), status.message().to_owned()),
            }
        }
    });
    let message = format!("the download was not read for {} s: request the rest when you read it", life.as_secs());
    assert_eq!(told, (true, Code::DeadlineExceeded, message));
    drop(other);
    until_free(&remote);
}

pub(crate) fn what_is_leased_for_reading_is_not_written(harness: &Harness) {
    let remote = harness.remote();
    let block = remote.alloc(100).unwrap();
    remote.upload(&block, 0, &[1; 100]).unwrap();
    remote.publish("a", block, Policy::Restore).unwrap();
    let block = remote.lease("a", Access::Read).unwrap();
    let failure = remote.upload(&block, 0, &[2; 100]).unwrap_err();
    let message = "block 2 is read-only: lease it for writing";
    assert_eq!((failure.code, failure.message.as_str()), (Code::PermissionDenied, message));
    let second = remote.alloc(100).unwrap();
    let RemoteBlockError { block: second, error: failure, .. } =
        remote.publish("a", second, Policy::Restore).unwrap_err();
    assert_eq!((failure.origin, failure.code), (ErrorOrigin::Caller, Code::AlreadyExists));
    // It still exists, and still belongs to this session.
    remote.upload(&second, 0, &[2; 100]).unwrap();
    let mut to = [0; 100];
    remote.download(&block, 0, &mut to).unwrap();
    assert_eq!(to, [1; 100]);
}
