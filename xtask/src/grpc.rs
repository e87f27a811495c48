//! The step of `cargo xtask test` in which Python's gRPC, installed by pip, calls a remote server: an independent
//! client, which knows only what the server tells it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::apt;
use crate::command::{Failure, command, root, run_quiet, target};
use crate::pip::{Packages, install};
use crate::programs::freehold;
use crate::runner::Case;

const PACKAGES: Packages = Packages {
    folder: "grpc",
    names: &[
        "grpcio==1.76.0",
        "grpcio-health-checking==1.76.0",
        "grpcio-reflection==1.76.0",
        "protobuf==6.33.1",
        "typing_extensions==4.16.0",
    ],
};

pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    apt::packages()?;
    install(&PACKAGES)?;
    Ok(vec![Case::call("gRPC from Python", "cargo xtask test --only gRPC", peer)])
}

fn peer() -> Result<(), Failure> {
    let freehold = freehold();
    let packages = install(&PACKAGES)?;
    let folder = target().join("grpc-peer");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut openssl =
        command("openssl", &["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"]);
    run_quiet(openssl.current_dir(&folder))?;
    fs::write(folder.join("token"), "0123456789abcdef0123456789abcdef").map_err(failed)?;
    fs::set_permissions(folder.join("token"), fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let (serve, address) = Serve::start(&freehold, &folder)?;
    let mut python = command("python3", &[]);
    python.arg(root().join("examples/python/grpc_peer.py")).args([&address, "cert.pem", "token"]);
    let outcome = run_quiet(python.env("PYTHONPATH", packages).current_dir(&folder));
    drop(serve);
    outcome
}

/// A broker with a remote server, which is stopped when this is dropped.
struct Serve(Child);

impl Serve {
    fn start(freehold: &Path, folder: &Path) -> Result<(Self, String), Failure> {
        let mut serve = command(freehold.to_str().ok_or("the path is not UTF-8")?, &["serve"]);
        serve.args(["--memory", "64MiB", "--device", "soft", "--listen", "127.0.0.1:0", "--token-file", "token"]);
        serve.args(["--tls", "cert.pem", "key.pem"]).arg("--socket").arg(folder.join("broker"));
        serve.env("FREEHOLD_SOFT_MACHINE", "grpc-peer").current_dir(folder).stdout(Stdio::piped());
        let mut serve = Self(serve.spawn().map_err(|error| format!("freehold serve: {error}"))?);
        let output = serve.0.stdout.take().ok_or("the output is not piped")?;
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let port =
            lines.find_map(|line| line.strip_prefix("remote clients connect to https://127.0.0.1:").map(str::to_owned));
        let port = port.ok_or("freehold serve did not start: what it says above is why")?;
        Ok((serve, format!("localhost:{port}")))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // The broker's parent process ends the broker on SIGTERM, but not if it is killed.
        let told = command("kill", &["-TERM", &self.0.id().to_string()]).status();
        if told.is_ok_and(|told| told.success()) {
            let _ = self.0.wait();
        }
    }
}
