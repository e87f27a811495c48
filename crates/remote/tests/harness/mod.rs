//! A broker and its servers for one test, on a software device of their own, with certificates of their own.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use freehold_broker::{BrokerLimits, Config};
use freehold_remote::{Code, Identity, Remote, RemoteServer, RemoteStats, ServerLimits, Token};
use freehold_testing::process::{self, Sandbox, device, number};

pub(crate) use freehold_testing::Random;
pub(crate) use freehold_testing::process::{until, until_is};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// How long a kernel may run in most tests. None of them waits for that: no machine is so slow that a kernel which ends
/// by itself takes as long.
const LAUNCH: Duration = Duration::from_secs(1000);

/// The configuration of a broker: its socket, and how long a kernel may run, in milliseconds.
pub(crate) fn config(words: &[OsString]) -> Config {
    let [socket, launch_ms] = words else { panic!("a broker needs a socket and a time limit") };
    Config {
        program: process::this_program(),
        leading_args: vec!["role".into()],
        socket: socket.into(),
        device: Some(device()),
        device_uuid: 0,
        memory_bytes: 2 << 30,
        spin_us: 20,
        limits: BrokerLimits { launch_ms_max: Some(number(launch_ms)), ..BrokerLimits::default() },
    }
}

/// Runs a server: its folder, whether it uses TLS, and its limits. Standard input is the listener.
pub(crate) fn run_server(words: &[OsString]) -> io::Result<()> {
    let [folder, with, limits @ ..] = words else { panic!("a server needs a folder and a mode") };
    let (folder, with_tls) = (Path::new(folder), with == "tls");
    let limits: Vec<u64> = limits.iter().map(number).collect();
    let [connections, strangers, greeting_ms, silence_ms] = limits[..] else { panic!("a server has four limits") };
    let limits = ServerLimits {
        connections_max: connections as usize,
        unauthenticated_max: strangers as usize,
        handshake_timeout: Duration::from_millis(greeting_ms),
        idle_timeout: Duration::from_millis(silence_ms),
    };
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let identity = if with_tls {
        Some(Identity::new(std::fs::read(folder.join("cert.pem"))?, std::fs::read(folder.join("key.pem"))?)?)
    } else {
        None
    };
    let token = Token::parse(TOKEN).map_err(io::Error::other)?;
    let device = freehold::open::device(Some(&device())).map_err(io::Error::other)?;
    RemoteServer { listener, identity, token, socket: folder.join("broker"), device, limits }.serve()
}

pub(crate) struct Harness {
    pub(crate) sandbox: Sandbox,
    serve: Child,
    server: std::sync::Mutex<Child>,
    listener: OwnedFd,
    port: u16,
}

impl Harness {
    /// A broker with a server, whose certificate is signed by an authority of its own.
    pub(crate) fn new() -> Self {
        Self::with_launches_of(LAUNCH)
    }

    /// Like [`new`](Self::new), with another time limit for kernels.
    pub(crate) fn with_launches_of(longest: Duration) -> Self {
        let sandbox = Sandbox::new("remote-test");
        certify(&sandbox.folder, "ca.pem", Some(["cert.pem", "key.pem"]));
        certify(&sandbox.folder, "other.pem", None);
        let mut command = sandbox.own_command();
        command.arg("serve").arg(sandbox.socket()).arg(longest.as_millis().to_string());
        let (serve, line) = sandbox.start(&mut command, 1);
        assert_eq!(line, "ready");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let listener = OwnedFd::from(listener);
        let server = std::sync::Mutex::new(start_server(&sandbox, &listener, "tls", ServerLimits::default()));
        Self { sandbox, serve, server, listener, port }
    }

    /// Starts another server without TLS. Returns it and its port.
    pub(crate) fn server_without_tls(&self) -> (ServerProcess, u16) {
        self.limited_server("plain", ServerLimits::default())
    }

    /// Starts another server, with or without TLS. Returns it and its port.
    pub(crate) fn limited_server(&self, with: &str, limits: ServerLimits) -> (ServerProcess, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        (ServerProcess(start_server(&self.sandbox, &listener.into(), with, limits)), port)
    }

    /// Kills the server, and starts another.
    pub(crate) fn restart_server(&self) {
        let mut server = self.server.lock().unwrap();
        server.kill().expect("the server is running");
        server.wait().expect("the server is a child of this process");
        *server = start_server(&self.sandbox, &self.listener, "tls", ServerLimits::default());
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    pub(crate) fn ca(&self) -> Vec<u8> {
        std::fs::read(self.sandbox.folder.join("ca.pem")).expect("the file is there")
    }

    pub(crate) fn remote(&self) -> Remote {
        self.remote_at(&self.url())
    }

    pub(crate) fn remote_at(&self, url: &str) -> Remote {
        connect(url, Some(&self.ca()))
    }
}

/// Connects, also if the server takes longer to start than a connection may.
pub(crate) fn connect(url: &str, ca: Option<&[u8]>) -> Remote {
    until("a server serves", || match Remote::connect(url, &Token::parse(TOKEN).unwrap(), ca) {
        Ok(remote) => Some(remote),
        Err(error) if matches!(error.code, Code::Unavailable | Code::DeadlineExceeded) => None,
        Err(error) => panic!("{error}"),
    })
}

fn start_server(sandbox: &Sandbox, listener: &OwnedFd, with: &str, limits: ServerLimits) -> Child {
    let mut command = sandbox.own_command();
    command.arg("server").arg(&sandbox.folder).arg(with);
    let numbers =
        [limits.connections_max as u128, limits.unauthenticated_max as u128, limits.handshake_timeout.as_millis()];
    command.args(numbers.map(|number| number.to_string())).arg(limits.idle_timeout.as_millis().to_string());
    command.stdin(listener.try_clone().expect("there are descriptors"));
    command.stderr(sandbox.stderr_file()).spawn().expect("this program runs")
}

/// A process that is killed at the end of the test.
pub(crate) struct ServerProcess(pub(crate) Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = self.server.lock().unwrap().kill();
        let _ = self.server.lock().unwrap().wait();
        process::terminate(&mut self.serve);
    }
}

/// Writes the certificate of an authority, and a server certificate with its key.
fn certify(folder: &Path, authority: &str, server: Option<[&str; 2]>) {
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("a file of the test's");
    let mut terms = rcgen::CertificateParams::new(Vec::new()).unwrap();
    terms.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = terms.self_signed(&key).unwrap();
    write(authority, own.pem());
    let Some([certificate, its_key]) = server else { return };
    let issuer = rcgen::Issuer::new(terms, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let terms = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    write(certificate, terms.signed_by(&key, &issuer).unwrap().pem());
    write(its_key, key.serialize_pem());
}

/// Waits until no session holds anything.
pub(crate) fn until_free(remote: &Remote) {
    until_is("all leases have ended", (0, 0), || {
        let RemoteStats { leases, reclaiming_bytes, .. } = remote.stats().expect("the server answers");
        (leases, reclaiming_bytes)
    });
}

/// Random bytes.
pub(crate) fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    let words = count.div_ceil(8);
    let mut bytes: Vec<u8> = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(count);
    bytes
}
