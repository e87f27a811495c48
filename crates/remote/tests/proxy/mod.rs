//! A proxy that corrupts connections: it drops, delays, truncates and repeats data, at points that a seed decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::harness::Random;

pub(crate) struct Proxy {
    _runtime: Runtime,
    pub(crate) port: u16,
    state: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    is_faulty: AtomicBool,
    faults: AtomicU64,
    connections: AtomicU64,
    /// Bytes per second and direction of each connection. 0: no limit.
    bytes_per_s_max: AtomicU64,
    /// Increases when all connections are cut.
    cuts: watch::Sender<u64>,
}

/// What happens to one direction of a connection after some bytes.
#[derive(Clone, Copy)]
enum Fault {
    /// Both directions end at once.
    Drop,
    /// A part of the data is forwarded, then nothing.
    Truncate,
    /// The data is forwarded twice.
    Repeat,
    /// One bit is flipped.
    Flip,
    /// Nothing is forwarded for a while.
    Delay(Duration),
}

impl Proxy {
    pub(crate) fn new(to: u16, seed: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::<ProxyState>::default());
        let seen = state.clone();
        runtime.spawn(async move {
            let mut random = Random::new(seed);
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let plans = [(); 2].map(|()| plan(&mut random));
                tokio::spawn(connect(client, to, plans, seen.clone()));
            }
        });
        Self { _runtime: runtime, port, state }
    }

    /// Sets whether new connections are corrupted.
    pub(crate) fn set_faulty(&self, is_bad: bool) {
        self.state.is_faulty.store(is_bad, Ordering::Relaxed);
    }

    /// Limits the speed from now on.
    pub(crate) fn limit_rate(&self, bytes_per_s: u64) {
        self.state.bytes_per_s_max.store(bytes_per_s, Ordering::Relaxed);
    }

    /// Cuts all existing connections.
    pub(crate) fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// The number of corrupted connections.
    pub(crate) fn faults(&self) -> u64 {
        self.state.faults.load(Ordering::Relaxed)
    }
}

/// After how many bytes, and what. Often early, during handshakes and single calls; else within a transfer.
fn plan(random: &mut Random) -> (u64, Fault) {
    let bytes = if random.below(2) == 0 { random.below(16 << 10) } else { random.below(6 << 20) };
    let spoil = match random.below(5) {
        0 => Fault::Drop,
        1 => Fault::Truncate,
        2 => Fault::Repeat,
        3 => Fault::Flip,
        _ => Fault::Delay(Duration::from_millis(random.below(50))),
    };
    (bytes, spoil)
}

async fn connect(client: TcpStream, to: u16, plans: [(u64, Fault); 2], state: Arc<ProxyState>) {
    state.connections.fetch_add(1, Ordering::Relaxed);
    let mut cuts = state.cuts.subscribe();
    cuts.mark_unchanged();
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The first direction that ends also ends the other.
    tokio::select! {
        () = carry(from_client, to_server, plans[0], &state) => {}
        () = carry(from_server, to_client, plans[1], &state) => {}
        _ = cuts.changed() => {}
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, plan: (u64, Fault), state: &ProxyState) {
    let (mut behind, mut spoil) = plan;
    let (mut buffer, mut carried) = (vec![0; 64 << 10], 0);
    loop {
        let Ok(bytes @ 1..) = from.read(&mut buffer).await else { return };
        let mut data = &mut buffer[..bytes];
        carried += bytes as u64;
        if carried > behind && state.is_faulty.load(Ordering::Relaxed) {
            state.faults.fetch_add(1, Ordering::Relaxed);
            match spoil {
                Fault::Drop => return,
                Fault::Truncate => data = &mut data[..bytes / 2],
                Fault::Repeat if to.write_all(data).await.is_err() => return,
                Fault::Repeat => {}
                Fault::Flip => data[bytes / 2] ^= 1,
                Fault::Delay(time) => tokio::time::sleep(time).await,
            }
            if to.write_all(data).await.is_err() || matches!(spoil, Fault::Truncate) {
                return;
            }
            // Every connection is dropped eventually.
            (behind, spoil) = (2 * carried, Fault::Drop);
        } else if to.write_all(data).await.is_err() {
            return;
        }
        let pace = state.bytes_per_s_max.load(Ordering::Relaxed);
        if let Some(micros) = (bytes as u64 * 1_000_000).checked_div(pace) {
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }
}
