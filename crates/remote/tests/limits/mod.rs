//! What one client may use of a server: connections, permits and threads; and how it may delay other clients.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use freehold_broker::wire::{MemoryKind, QuotaChange, Reply, Request as Ask};
use freehold_broker::{Answer, Link};
use freehold_remote::proto::{self, argument::Value};
use freehold_remote::{Code, Remote, ServerLimits};
use tokio::sync::oneshot;
use tokio_stream::Stream;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use freehold_testing::HANG_TIMEOUT;

use crate::harness::{self, Harness, TOKEN, until};
use crate::launches::TEXT;
use crate::raw::{Raw, chunk, end, is_connection_lost};

const GREETING: Duration = Duration::from_secs(1);

/// Calls that another client makes at the same time, so that a wrongly served one would be noticed.
const MEANWHILE: u32 = 20;

fn hasty() -> ServerLimits {
    ServerLimits { handshake_timeout: GREETING, ..ServerLimits::default() }
}

fn patient() -> ServerLimits {
    ServerLimits { handshake_timeout: HANG_TIMEOUT, ..ServerLimits::default() }
}

fn connect(port: u16) -> Remote {
    harness::connect(&format!("http://127.0.0.1:{port}"), None)
}

/// How long a connection lives that sends this and no more.
fn life_of(port: u16, said: &[u8]) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    stream.write_all(said).unwrap();
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection is not closed: {error}"),
    }
    begun.elapsed()
}

/// The preface of HTTP/2, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub(crate) fn a_client_without_a_token_in_time_is_disconnected(harness: &Harness) {
    let (_plain, port) = harness.limited_server("plain", hasty());
    let (_tls, tls_port) = harness.limited_server("tls", hasty());
    // A connection that has presented the token stays, however long it is idle.
    let mut raw = Raw::at_port(port, 1);
    let block = raw.alloc(1, 4).unwrap();
    let (parts, messages) = tokio::sync::mpsc::channel(4);
    let messages = tokio_stream::wrappers::ReceiverStream::new(messages);
    let send = |part| parts.blocking_send(proto::UploadMessage { part: Some(part) }).unwrap();
    send(raw.begin(2, block, 4, 0));
    let mut client = raw.client.clone();
    let upload = raw.runtime.spawn(async move { client.upload(messages).await });
    // Nothing at all; an incomplete preface; HTTP/2 without a call; an incomplete TLS handshake.
    std::thread::scope(|scope| {
        for (port, said) in
            [(port, &b""[..]), (port, b"PRI * "), (port, PREFACE), (tls_port, b""), (tls_port, b"\x16\x03\x01")]
        {
            scope.spawn(move || {
                let life = life_of(port, said);
                assert!(life >= GREETING, "{said:?} was closed after {life:?}");
            });
        }
    });
    send(chunk(0, b"free"));
    send(end(b"free"));
    assert!(raw.runtime.block_on(upload).unwrap().unwrap().complete);
}

/// Whether a connection ends while nothing is received for this long.
fn is_ended(stream: &mut TcpStream, pause: Duration) -> bool {
    stream.set_read_timeout(Some(pause)).unwrap();
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

pub(crate) fn unauthenticated_connections_make_room_for_later_ones(harness: &Harness) {
    let (_server, port) = harness.limited_server("plain", ServerLimits { unauthenticated_max: 4, ..patient() });
    let known = connect(port);
    let mut strangers: Vec<_> = (0..4).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let second = connect(port);
    assert!(is_ended(&mut strangers[0], HANG_TIMEOUT), "the oldest is closed");
    assert!(!is_ended(&mut strangers[3], Duration::from_millis(100)), "only the oldest is closed");
    // Authenticated connections do not count.
    let more: Vec<_> = (0..8).map(|_| connect(port)).collect();
    for remote in more.iter().chain([&known, &second]) {
        remote.stats().unwrap();
    }
}

/// Whether a connection that sends a preface gets an answer, however late.
fn is_greeted(port: u16) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    stream.write_all(PREFACE).unwrap();
    stream.read_exact(&mut [0; 9]).is_ok()
}

pub(crate) fn so_many_connections_are_served(harness: &Harness) {
    let (_server, port) = harness.limited_server("plain", ServerLimits { connections_max: 2, ..patient() });
    let (first, second) = (connect(port), connect(port));
    std::thread::scope(|scope| {
        let third = scope.spawn(|| is_greeted(port));
        for _ in 0..MEANWHILE {
            first.stats().unwrap();
        }
        assert!(!third.is_finished(), "a third connection is served");
        drop(second);
        assert!(third.join().unwrap());
    });
}

pub(crate) fn questions_without_a_token_are_short(harness: &Harness) {
    let (_server, port) = harness.server_without_tls();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let asked = |letters| {
        runtime.block_on(async {
            let mut client = HealthClient::new(channel(port).await);
            client.check(HealthCheckRequest { service: "a".repeat(letters) }).await.unwrap_err().code()
        })
    };
    assert_eq!(asked(1000), Code::NotFound);
    assert_eq!(asked(1100), Code::OutOfRange);
    // A single header above the limit of all headers is refused too.
    let refused = runtime.block_on(async {
        let mut client = HealthClient::new(channel(port).await);
        let mut request = Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("authorization", "a".repeat(20 << 10).parse().unwrap());
        client.check(request).await.unwrap_err()
    });
    assert_ne!(refused.code(), Code::Ok);
}

/// Calls to the health service, which need no token, keep no connection open: neither one that is answered over and
/// over, nor many.
pub(crate) fn a_client_that_only_asks_for_health_is_disconnected(harness: &Harness) {
    let (_server, port) = harness.limited_server("plain", hasty());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let watch = || {
        runtime.block_on(async {
            let mut client = HealthClient::new(try_channel(port).await.ok()?);
            let mut told = client.watch(HealthCheckRequest::default()).await.ok()?.into_inner();
            told.message().await.ok()?.map(|_| told)
        })
    };
    let mut told = until("a watcher gets the status before its connection is closed", watch);
    let watching = runtime.spawn(async move {
        let mut messages = 1;
        while let Ok(Some(_)) = told.message().await {
            messages += 1;
        }
        messages
    });
    let channel = until("a connection is accepted", || runtime.block_on(try_channel(port)).ok());
    let asking = runtime.spawn(async move {
        let mut client = HealthClient::new(channel);
        while client.check(HealthCheckRequest::default()).await.is_ok() {}
    });
    let ended =
        runtime.block_on(async { tokio::time::timeout(HANG_TIMEOUT, async { (watching.await, asking.await) }).await });
    let (watched, asked) = ended.expect("both connections are closed");
    assert_eq!((watched.unwrap(), asked.is_ok()), (1, true), "a watcher gets no further status");
    connect(port).stats().unwrap();
}

pub(crate) fn an_upload_that_does_not_begin_is_ended(harness: &Harness) {
    let (_server, port) = harness.limited_server("plain", hasty());
    let raw = Raw::at_port(port, 1);
    let mut client = raw.client.clone();
    let refused = raw.runtime.block_on(client.upload(tokio_stream::pending())).unwrap_err();
    let sentence = "no part of the upload came for 1s: send its begin at once";
    assert_eq!((refused.code(), refused.message()), (Code::DeadlineExceeded, sentence));
}

/// A message that never arrives, and a notification that it is being awaited.
struct Silent(Option<oneshot::Sender<()>>);

impl Stream for Silent {
    type Item = proto::AllocRequest;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<proto::AllocRequest>> {
        if let Some(sent) = self.0.take() {
            // The receiver may be gone.
            let _ = sent.send(());
        }
        Poll::Pending
    }
}

/// A call whose message never arrives. `sent` is notified when the rest of it is sent.
/// Returns how the server refuses it, or the error of a connection that is closed already.
async fn silent_call(
    channel: Channel,
    path: &'static str,
    sent: Option<oneshot::Sender<()>>,
) -> Result<Status, tonic::transport::Error> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await?;
    let mut request = Request::new(Silent(sent));
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    let codec = tonic_prost::ProstCodec::<_, proto::Done>::default();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
    Ok(grpc.client_streaming(request, path, codec).await.unwrap_err())
}

async fn channel(port: u16) -> Channel {
    try_channel(port).await.unwrap()
}

async fn try_channel(port: u16) -> Result<Channel, tonic::transport::Error> {
    Channel::from_shared(format!("http://127.0.0.1:{port}")).unwrap().connect().await
}

pub(crate) fn a_call_that_does_not_come_is_ended(harness: &Harness) {
    let (_server, port) = harness.limited_server("plain", hasty());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for path in ["/freehold.v1.Freehold/Alloc", "/freehold.v1.Freehold/PutModule"] {
        // A connection that takes too long to present its token is closed before.
        let refused = until("a call presents its token in time", || {
            let channel = runtime.block_on(try_channel(port)).ok()?;
            let refused = runtime.block_on(silent_call(channel, path, None)).ok()?;
            (!is_connection_lost(&refused)).then_some(refused)
        });
        let sentence = "the request did not arrive in time: send it without pauses";
        assert_eq!((refused.code(), refused.message()), (Code::DeadlineExceeded, sentence));
    }
}

pub(crate) fn a_greedy_session_leaves_lanes(harness: &Harness) {
    let (_server, port) = harness.server_without_tls();
    let mut greedy = Raw::at_port(port, 1);
    let block = greedy.alloc(1, 64 << 20).unwrap();
    // More than the server has transfers, and nobody reads them.
    let asked = (0..40).map(|_| {
        let request =
            proto::DownloadRequest { session: greedy.session.clone(), block, ..proto::DownloadRequest::default() };
        let mut client = greedy.client.clone();
        greedy.runtime.spawn(async move {
            let mut chunks = client.download(request).await.unwrap();
            chunks.message().await.unwrap().unwrap();
            std::future::pending::<()>().await;
            drop(chunks);
        })
    });
    let asked: Vec<_> = asked.collect();
    let honest = connect(port);
    let theirs = honest.alloc(1 << 20).unwrap();
    // Its retry timeout is shorter than the timeout of the greedy session.
    honest.upload(&theirs, 0, &[7; 1 << 20]).unwrap();
    let mut to = vec![0; 1 << 20];
    honest.download(&theirs, 0, &mut to).unwrap();
    assert!(to == [7; 1 << 20]);
    asked.iter().for_each(|task| task.abort());
}

/// A session with the module of the tests, and a kernel in its stream 0 that runs until it is killed.
fn spinning(port: u16, id: u8) -> (Raw, u64) {
    let mut raw = Raw::at_port(port, id);
    let block = raw.alloc(1, 4).unwrap();
    let module = raw.put(2, TEXT);
    let spun = proto::Argument { value: Some(Value::Block(proto::BlockArgument { block, offset: 0 })) };
    raw.launch(3, module, "spin", vec![spun]).unwrap();
    (raw, module)
}

pub(crate) fn a_greedy_session_leaves_waits(harness: &Harness) {
    let (_server, port) = harness.server_without_tls();
    let (greedy, module) = spinning(port, 1);
    let waits: Vec<_> = (0..200).map(|_| greedy.runtime.spawn(greedy.wait(3, 60_000))).collect();
    let mut honest = Raw::at_port(port, 2);
    assert_eq!(honest.put(1, TEXT), module);
    honest.launch(2, module, "empty", vec![]).unwrap();
    honest.runtime.block_on(honest.wait(2, 60_000)).unwrap();
    assert!(waits.iter().all(|wait| !wait.is_finished()), "the other session had to wait for the kernel");
    assert_eq!(honest.totals().sessions, 2);
}

pub(crate) fn so_many_modules_are_taken_in_at_once(harness: &Harness) {
    let (_server, port) = harness.limited_server("plain", patient());
    let bystander = connect(port);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let places: Vec<_> = (0..4)
        .map(|_| {
            let channel = runtime.block_on(channel(port));
            let (sent, is_sent) = oneshot::channel();
            let silent = runtime.spawn(silent_call(channel.clone(), "/freehold.v1.Freehold/PutModule", Some(sent)));
            runtime.block_on(is_sent).unwrap();
            // A call after it on the same connection: when that is answered, the first has its permit.
            runtime.block_on(silent_call(channel, "/freehold.v1.Freehold/Nothing", None)).unwrap();
            silent
        })
        .collect();
    std::thread::scope(|scope| {
        let honest =
            scope.spawn(|| connect(port).with_retry_timeout(HANG_TIMEOUT).put_module("test/kernels", TEXT).map(drop));
        for _ in 0..MEANWHILE {
            bystander.stats().unwrap();
        }
        assert!(!honest.is_finished(), "a fifth module was received");
        // An aborted call frees its permit.
        places[0].abort();
        honest.join().unwrap().unwrap();
    });
}

pub(crate) fn a_session_knows_so_many_modules(harness: &Harness) {
    let (remote, other) = (harness.remote(), harness.remote());
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";
    let name = |number: u32| format!("m/{number}");
    for number in 0..256 {
        remote.put_module(&name(number), text).unwrap();
    }
    let refused = remote.put_module("more", text).unwrap_err();
    let sentence = "the session has 256 modules: drop one, or use another session";
    assert_eq!((refused.code, refused.message.as_str()), (Code::ResourceExhausted, sentence));
    assert_eq!(remote.modules().unwrap().len(), 256, "a refused module is not stored");
    assert_eq!(remote.put_module(&name(7), text).unwrap().name(), name(7), "a known module takes no room");
    // Dropping a module makes room, and a later session has room of its own.
    other.module(&name(3)).unwrap();
    other.drop_module(&name(3)).unwrap();
    remote.put_module("more", text).unwrap();
    remote.drop_module("more").unwrap();
    remote.put_module("again", text).unwrap();
}

pub(crate) fn variables_are_within_the_quota(harness: &Harness) {
    let (quota_bytes, bytes): (u64, u64) = (64 << 20, 28 << 20);
    let mut link = Link::connect(&harness.sandbox.socket()).unwrap();
    let user = rustix::process::getuid().as_raw();
    let change = QuotaChange::Set { bytes: quota_bytes };
    link.call(Ask::Quota { user, memory: MemoryKind::Device, change }).unwrap();
    let text = TEXT.replace("// Nothing.", &format!(".visible .global .align 8 .b8 variable[{bytes}];"));
    let sessions = [(); 3].map(|()| harness.remote());
    // Together they exceed the quota of the user: dropped modules are unloaded.
    for round in 0..10 {
        let name = format!("round/{round}");
        sessions[0].put_module(&name, &text).unwrap_or_else(|failure| panic!("round {round}: {failure}"));
        sessions[0].drop_module(&name).unwrap();
    }
    let had_bytes =
        |link: &mut Link| match link.call(Ask::Quota { user, memory: MemoryKind::Device, change: QuotaChange::Keep }) {
            Ok(Answer { reply: Reply::Number { bytes, .. }, .. }) => bytes,
            other => panic!("{other:?}"),
        };
    let begun = Instant::now();
    while had_bytes(&mut link) > 0 {
        assert!(begun.elapsed() < HANG_TIMEOUT, "a dropped module still counts");
    }
    // Each session has its own worker, and each worker its own variables.
    let refused: Vec<_> = sessions.iter().filter_map(|session| session.put_module("shared", &text).err()).collect();
    let [quota_mib, mib] = [quota_bytes, bytes].map(|bytes| bytes >> 20);
    let sentence = format!(
        "the user's quota is {quota_mib} MiB with {} MiB in use, {mib} MiB requested: drop a name, or raise the \
         quota with `freehold quota SIZE`",
        2 * mib
    );
    assert_eq!(refused.iter().map(|failure| failure.message.as_str()).collect::<Vec<_>>(), [sentence]);
}
