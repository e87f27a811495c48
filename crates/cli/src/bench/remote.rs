//! `freehold bench remote`: uploads to a gRPC server and downloads from it, over loopback, next to plain TCP and plain
//! gRPC of the same bytes in the same run; and single calls. Starts its own broker and server.

mod grpc_baseline;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Instant;

use anstyle::Style;
use freehold::Grid;
use freehold_remote::{Remote, Token};
use serde::Serialize;

use self::grpc_baseline::GrpcBaseline;
use super::error::{Result, failed};
use super::options::MeasureOptions;
use crate::ephemeral::EphemeralBroker;
use crate::output::table::{TableStyle, columns};
use crate::output::text::{format_ns, json};

/// The token's length. Only this run knows the token, and only this machine is served.
const TOKEN_BYTES: usize = 16;

/// The share of the speed of one plain TCP connection to reach.
const TCP_RATIO_MIN: f64 = 0.8;

/// The chunk length of plain TCP reads and writes.
const CHUNK_BYTES: usize = 1 << 20;

const EMPTY: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry empty()\n{\n    ret;\n}\n";

#[derive(clap::Args)]
pub(crate) struct RemoteArguments {
    #[command(flatten)]
    options: MeasureOptions,
    /// PEM certificate for localhost and its key: measure with TLS
    #[arg(long, num_args = 2, value_names = ["CERTIFICATE", "KEY"])]
    tls: Option<Vec<PathBuf>>,
}

#[derive(Debug, Serialize)]
struct Report {
    device: String,
    processors: usize,
    bytes: u64,
    tls: bool,
    /// The connections that the client uses for large transfers.
    connections: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    id: &'static str,
    what: &'static str,
    median_ns: f64,
    /// `None` for single calls.
    gib_per_s: Option<f64>,
    /// Relative to one plain TCP connection.
    of_tcp: Option<f64>,
    /// Relative to as many plain TCP connections as the client has.
    of_tcp_many: Option<f64>,
    met: Option<bool>,
}

pub(super) fn run(arguments: &RemoteArguments) -> Result<String> {
    let (bytes, times, calls) = if arguments.options.quick { (8 << 20, 1, 10) } else { (1 << 30, 5, 1000) };
    let fixture = RemoteBroker::new(arguments, 2 * bytes as u64)?;
    let remote = fixture.connect(arguments)?;
    let from: Vec<u8> = (0..bytes).map(|at: usize| (at / 7) as u8).collect();
    let mut to = vec![0; bytes];
    let connections = remote.connections();
    let tcp_ns = median(times, || tcp(&from, &mut to, 1))?;
    let tcp_many_ns = median(times, || tcp(&from, &mut to, connections))?;
    let [plain_up_ns, plain_down_ns] = grpc(times, &from, &mut to)?;
    let block = remote.alloc(bytes as u64).map_err(|error| failed("memory", error))?;
    let up_ns = median(times, || remote.upload(&block, 0, &from).map_err(|error| failed("an upload", error)))?;
    to.fill(0);
    let down_ns = median(times, || remote.download(&block, 0, &mut to).map_err(|error| failed("a download", error)))?;
    if to != from {
        return Err(failed("a download", "the downloaded data differs from the uploaded data"));
    }
    let call_ns = median(calls, || remote.stats().map(drop).map_err(|error| failed("a call", error)))?;
    let module = remote.put_module("bench/empty", EMPTY).map_err(|error| failed("a module", error))?;
    let launch_ns = median(calls, || {
        let launched = remote.launch(&module, "empty", Grid::line(1, 1), &[]).and_then(|call| call.wait());
        launched.map_err(|error| failed("a launch", error))
    })?;
    let moved = |id, what, median_ns: f64, is_judged: bool| {
        let gib_per_s = Some(bytes as f64 / median_ns * 1e9 / (1_u64 << 30) as f64);
        let (of_tcp, of_tcp_many) = (tcp_ns / median_ns, Some(tcp_many_ns / median_ns));
        let met = is_judged.then_some(of_tcp >= TCP_RATIO_MIN);
        Row { id, what, median_ns, gib_per_s, of_tcp: Some(of_tcp), of_tcp_many, met }
    };
    let (gib_per_s, of_tcp, of_tcp_many, met) = (None, None, None, None);
    let single = |id, what, median_ns| Row { id, what, median_ns, gib_per_s, of_tcp, of_tcp_many, met };
    let report = Report {
        device: fixture.broker.device.clone(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        bytes: bytes as u64,
        tls: arguments.tls.is_some(),
        connections,
        rows: vec![
            moved("tcp", "plain TCP, one connection", tcp_ns, false),
            moved("tcp_many", "plain TCP, as many connections as the client", tcp_many_ns, false),
            moved("grpc_up", "plain gRPC upload, one connection", plain_up_ns, false),
            moved("grpc_down", "plain gRPC download, one connection", plain_down_ns, false),
            moved("up", "upload to the device", up_ns, true),
            moved("down", "download from the device", down_ns, true),
            single("call", "a call and its answer", call_ns),
            single("launch", "an empty kernel, launched and waited for", launch_ns),
        ],
    };
    Ok(if arguments.options.json { json(&report) } else { report.table(TableStyle::for_stdout()) })
}

/// Returns the median of `times` runs, in nanoseconds.
fn median(times: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        work()?;
        taken.push(began.elapsed().as_nanos() as f64);
    }
    taken.sort_unstable_by(f64::total_cmp);
    Ok(taken[taken.len() / 2])
}

/// Sends bytes from memory to memory over several connections, in equal parts.
fn tcp(from: &[u8], to: &mut [u8], connections: usize) -> Result<()> {
    let refused = |error: std::io::Error| failed("plain TCP", error);
    let each = from.len().div_ceil(connections);
    let move_part = |(from, to): (&[u8], &mut [u8])| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || {
                let mut stream = TcpStream::connect(address)?;
                from.chunks(CHUNK_BYTES).try_for_each(|piece| stream.write_all(piece))
            });
            let (mut stream, _) = listener.accept()?;
            to.chunks_mut(CHUNK_BYTES).try_for_each(|piece| stream.read_exact(piece))?;
            sender.join().expect("a sender does not panic")
        })
    };
    std::thread::scope(|scope| {
        let parts = from.chunks(each).zip(to.chunks_mut(each));
        let movers: Vec<_> = parts.map(|part| scope.spawn(move || move_part(part))).collect();
        movers.into_iter().try_for_each(|mover| mover.join().expect("a mover does not panic")).map_err(refused)
    })
}

/// Sends bytes over one gRPC connection, up and down.
fn grpc(times: usize, from: &[u8], to: &mut [u8]) -> Result<[f64; 2]> {
    let refused = |error: std::io::Error| failed("plain gRPC", error);
    let plain = GrpcBaseline::start(from.to_owned()).map_err(refused)?;
    let up_ns = median(times, || plain.upload().map_err(refused))?;
    Ok([up_ns, median(times, || plain.download(to).map_err(refused))?])
}

/// A broker and a gRPC server, which end with this.
struct RemoteBroker {
    broker: EphemeralBroker,
    token: String,
}

impl RemoteBroker {
    fn new(arguments: &RemoteArguments, memory_bytes: u64) -> Result<Self> {
        let mut random = [0; TOKEN_BYTES];
        let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
        read.map_err(|error| failed("/dev/urandom", error))?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let broker = EphemeralBroker::start(&memory_bytes.to_string(), arguments.options.device.as_deref(), |serve| {
            serve.args(["--listen", "127.0.0.1:0"]).env("FREEHOLD_TOKEN", &token);
            if let Some(tls) = &arguments.tls {
                serve.arg("--tls").args(tls);
            }
        });
        Ok(Self { broker: broker.map_err(|error| failed("a broker", error))?, token })
    }

    fn connect(&self, arguments: &RemoteArguments) -> Result<Remote> {
        let token = Token::parse(&self.token).expect("the token is valid");
        let ca = match arguments.tls.as_deref() {
            Some([certificate, _]) => Some(std::fs::read(certificate).map_err(|error| failed("--tls", error))?),
            _ => None,
        };
        let url = self.broker.url.as_deref().expect("the broker was started with --listen");
        Remote::connect(url, &token, ca.as_deref()).map_err(|error| failed("the gRPC server", error))
    }
}

const NAMES: [&str; 6] = ["what", "median", "GiB/s", "of one TCP", "of as many TCP", "target"];

impl Report {
    fn table(&self, style: TableStyle) -> String {
        let cells = |row: &Row| {
            let speed = row.gib_per_s.map_or_else(String::new, |speed| format!("{speed:.2}"));
            let part = |part: Option<f64>| part.map_or_else(String::new, |part| format!("{:.0} %", 100.0 * part));
            let target = if row.met.is_some() {
                format!("≥ {:.0} % of one TCP", 100.0 * TCP_RATIO_MIN)
            } else {
                String::new()
            };
            let cells =
                [row.what.to_owned(), format_ns(row.median_ns), speed, part(row.of_tcp), part(row.of_tcp_many), target];
            (cells, row.met)
        };
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        let bold = style.style(Style::new().bold());
        let (mib, with) = (self.bytes >> 20, if self.tls { "with TLS" } else { "without TLS" });
        let (device, processors, connections) = (&self.device, self.processors, self.connections);
        let heading = format!("{device}, {processors} processors, {mib} MiB {with}, client connections: {connections}");
        let is_number = [false, true, true, true, true, false];
        format!("{bold}{heading}{bold:#}\n\n{}", columns(&NAMES, &is_number, &rows, style))
    }
}
