//! The commands that speak to a broker elsewhere, as a person meets them: what they print, what they say to bad input, and how they
//! exit.

#![allow(clippy::unwrap_used, reason = "as in any test")]

mod common;
mod scene;

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use scene::{LONGEST, command};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A broker that serves clients elsewhere, which are on this machine.
struct Open {
    folder: std::path::PathBuf,
    machine: String,
    serve: Child,
    url: String,
}

impl Open {
    fn new(name: &str) -> Self {
        let machine = format!("remote-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(format!("freehold-{machine}"));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("cert.pem", &own.cert.pem());
        write("key.pem", &own.signing_key.serialize_pem());
        write("token", TOKEN);
        std::fs::set_permissions(folder.join("token"), Permissions::from_mode(0o600)).unwrap();
        let mut serve = command(&folder, &machine);
        serve.args(["serve", "--memory", "64MiB", "--listen", "127.0.0.1:0", "--tls", "cert.pem", "key.pem"]);
        serve.args(["--token-file", "token"]).current_dir(&folder).stdout(Stdio::piped());
        serve.stderr(File::create(folder.join("said")).unwrap());
        let mut serve = serve.spawn().expect("the binary starts");
        let said = BufReader::new(serve.stdout.take().unwrap()).lines().nth(2).unwrap().unwrap();
        let port = said.strip_prefix("clients elsewhere find it at https://127.0.0.1:").expect("it says where");
        let url = format!("https://localhost:{port}");
        Self { folder, machine, serve, url }
    }

    /// A command, without what says where and who.
    fn run_as(&self, words: &[&str]) -> Output {
        let mut command = command(&self.folder, &self.machine);
        // No broker of this machine is to be found by accident.
        command.env("FREEHOLD_BROKER", self.folder.join("nowhere")).current_dir(&self.folder);
        command.args(words).output().expect("the binary starts")
    }

    fn run(&self, words: &[&str]) -> Output {
        let at = ["--at", &self.url, "--ca", "cert.pem", "--token-file", "token"];
        self.run_as(&[&at[..], words].concat())
    }

    fn said(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
        text(&output.stdout).to_owned()
    }

    fn refused(&self, words: &[&str]) -> (String, Option<i32>) {
        of(&self.run(words))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.serve), Signal::TERM);
        let _ = self.serve.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn of(output: &Output) -> (String, Option<i32>) {
    (text(&output.stderr).to_owned(), output.status.code())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text was printed")
}

#[test]
fn a_file_goes_elsewhere_and_comes_back() {
    let open = Open::new("file");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    std::fs::write(open.folder.join("in"), &bytes).unwrap();
    assert_eq!(open.said(&["put", "in", "--name", "model/weights"]), "model/weights: 2.9 MiB\n");
    assert_eq!(open.said(&["get", "model/weights", "-o", "out"]), "out: 2.9 MiB\n");
    assert!(std::fs::read(open.folder.join("out")).unwrap() == bytes);
    assert_eq!(open.said(&["totals"]), "4.0 MiB of 64.0 MiB made, 0 B leased, 2.9 MiB under 1 names\n");
    let taken = "error: the name is taken: drop it first, or lease it for writing\n".to_owned();
    assert_eq!(open.refused(&["put", "in", "--name", "model/weights"]), (taken, Some(1)));
    let none = "error: there is no such name; nearest: model/weights\n".to_owned();
    assert_eq!(open.refused(&["get", "model/weigths", "-o", "none"]), (none, Some(1)));
    assert!(!open.folder.join("none").exists());
    assert_eq!(open.said(&["drop", "model/weights"]), "model/weights: dropped\n");
    assert_eq!(open.said(&["ls", "--json"]), "{\"names\":[]}\n");
}

#[test]
fn a_kernel_runs_elsewhere() {
    let open = Open::new("kernel");
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/../broker/tests/calls/kernels.ptx");
    let said = open.said(&["module", "put", kernels, "--name", "test/kernels"]);
    assert!(said.starts_with("test/kernels: empty(), saxpy(u64, u64, f32, u32), step(u64, u32, u32)"), "{said}");
    std::fs::write(open.folder.join("x"), [5, 0, 0, 0].repeat(100)).unwrap();
    open.said(&["put", "x", "--name", "x"]);
    let shape = ["call", "test/kernels", "step", "--grid", "1", "--block", "128"];
    open.said(&[&shape[..], &["--arg", "lease:x", "--arg", "u32:2", "--arg", "u32:100"]].concat());
    open.said(&["get", "x", "-o", "out"]);
    assert_eq!(std::fs::read(open.folder.join("out")).unwrap(), [17, 0, 0, 0].repeat(100));
    let refused = open.refused(&[&shape[..], &["--arg", "lease:x"]].concat());
    assert_eq!(refused, ("error: kernel step takes 3 arguments, 1 were given\n".to_owned(), Some(2)));
    open.said(&["module", "drop", "test/kernels"]);
}

#[test]
fn who_is_not_let_in_is_told_what_to_do() {
    let open = Open::new("token");
    let at = ["--at", open.url.as_str(), "--ca", "cert.pem"];
    let refused = |words: &[&str]| of(&open.run_as(&[&at[..], words].concat()));
    let none =
        "error: there is no token: say --token-file FILE, or set FREEHOLD_TOKEN; `openssl rand -hex 32` makes one\n";
    assert_eq!(refused(&["ls"]), (none.to_owned(), Some(2)));
    std::fs::write(open.folder.join("other"), "another-token-of-32-letters-here").unwrap();
    std::fs::set_permissions(open.folder.join("other"), Permissions::from_mode(0o644)).unwrap();
    let everybody = "error: other: everybody may read the token: say `chmod 600 other`\n";
    assert_eq!(refused(&["ls", "--token-file", "other"]), (everybody.to_owned(), Some(2)));
    std::fs::set_permissions(open.folder.join("other"), Permissions::from_mode(0o600)).unwrap();
    let another = "error: the token is another: use the one that `freehold serve` was started with\n";
    assert_eq!(refused(&["ls", "--token-file", "other"]), (another.to_owned(), Some(3)));
    let alone = "error: --at: this command works on this machine alone; put, get, ls, drop, totals, module and call work elsewhere\n";
    assert_eq!(refused(&["quota"]), (alone.to_owned(), Some(2)));
}

#[test]
fn what_cannot_be_opened_to_others_is_refused_before_it_is_served() {
    let open = Open::new("open");
    let serve = |words: &[&str]| {
        let all = [&["serve", "--memory", "4MiB", "--token-file", "token", "--listen"][..], words].concat();
        of(&open.run_as(&all))
    };
    let clear = "error: --listen 0.0.0.0:0: without TLS everybody on the way reads the token; say --tls CERTIFICATE KEY, or listen at 127.0.0.1\n";
    assert_eq!(serve(&["0.0.0.0:0"]), (clear.to_owned(), Some(2)));
    let wrong = "error: --tls cert.pem token: this is no certificate with its key: name both as PEM\n";
    assert_eq!(serve(&["127.0.0.1:0", "--tls", "cert.pem", "token"]), (wrong.to_owned(), Some(2)));
    let port = open.url.rsplit_once(':').unwrap().1;
    let (said, status) = serve(&[&format!("127.0.0.1:{port}")]);
    assert!(said.starts_with(&format!("error: --listen 127.0.0.1:{port}: Address already in use")), "{said}");
    assert_eq!(status, Some(2));
}

#[test]
fn a_gate_that_dies_is_replaced_and_names_stay() {
    let open = Open::new("gate");
    std::fs::write(open.folder.join("in"), b"freehold").unwrap();
    open.said(&["put", "in", "--name", "a"]);
    let socket = open.folder.join("broker");
    let gate = || {
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find(
            |process: &i32| {
                let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
                words.contains(&&b"gate"[..]) && words.contains(&socket.as_os_str().as_encoded_bytes())
            },
        )
    };
    let first = gate().expect("there is a gate");
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    let begun = Instant::now();
    while gate().is_none_or(|process| process == first) {
        assert!(begun.elapsed() < LONGEST, "no gate took its place");
    }
    assert_eq!(open.said(&["get", "a", "-o", "out"]), "out: 8 B\n");
    assert_eq!(std::fs::read(open.folder.join("out")).unwrap(), b"freehold");
}
