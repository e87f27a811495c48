//! The commands that talk to a remote broker: their output, their errors for bad input, and their exit status.

use crate::{broker_fixture, common};

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output};

use broker_fixture::command;
use common::text;
use freehold_testing::process::{self, Sandbox, until};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A broker that serves remote clients, which run on this machine.
struct RemoteBrokerFixture {
    sandbox: Sandbox,
    serve: Child,
    url: String,
}

impl RemoteBrokerFixture {
    fn new() -> Self {
        let sandbox = Sandbox::new("remote");
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        sandbox.file("cert.pem", own.cert.pem());
        sandbox.file("key.pem", own.signing_key.serialize_pem());
        std::fs::set_permissions(sandbox.file("token", TOKEN), Permissions::from_mode(0o600)).unwrap();
        let mut serve = command(&sandbox.folder, &sandbox.machine);
        serve.args(["serve", "--memory", "64MiB", "--listen", "127.0.0.1:0", "--tls", "cert.pem", "key.pem"]);
        serve.args(["--token-file", "token"]).current_dir(&sandbox.folder);
        let (serve, line) = sandbox.start(&mut serve, 3);
        let port =
            line.strip_prefix("remote clients connect to https://127.0.0.1:").expect("the third line has the URL");
        let url = format!("https://localhost:{port}");
        Self { sandbox, serve, url }
    }

    /// Runs a command without URL and token.
    fn run_as(&self, words: &[&str]) -> Output {
        let mut command = command(&self.sandbox.folder, &self.sandbox.machine);
        // No broker of this machine can be found by accident.
        command.env("FREEHOLD_BROKER", self.sandbox.folder.join("nowhere")).current_dir(&self.sandbox.folder);
        command.args(words).output().expect("the binary starts")
    }

    fn run(&self, words: &[&str]) -> Output {
        let at = ["--at", &self.url, "--ca", "cert.pem", "--token-file", "token"];
        self.run_as(&[&at[..], words].concat())
    }

    fn stdout_of(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
        text(&output.stdout).to_owned()
    }

    fn error_of(&self, words: &[&str]) -> (String, Option<i32>) {
        error_and_status(&self.run(words))
    }
}

impl Drop for RemoteBrokerFixture {
    fn drop(&mut self) {
        process::terminate(&mut self.serve);
    }
}

fn error_and_status(output: &Output) -> (String, Option<i32>) {
    (text(&output.stderr).to_owned(), output.status.code())
}

#[test]
fn a_file_round_trips_through_a_remote_broker() {
    let open = RemoteBrokerFixture::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    std::fs::write(open.sandbox.folder.join("in"), &bytes).unwrap();
    assert_eq!(open.stdout_of(&["put", "in", "--name", "model/weights"]), "model/weights: 2.9 MiB\n");
    assert_eq!(open.stdout_of(&["get", "model/weights", "-o", "out"]), "out: 2.9 MiB\n");
    assert!(std::fs::read(open.sandbox.folder.join("out")).unwrap() == bytes);
    assert_eq!(
        open.stdout_of(&["totals"]),
        "4.0 MiB of 64.0 MiB allocated, 0 B leased, 2.9 MiB published under 1 name\n"
    );
    let sentence = "the name is taken: drop it first, lease it for writing, or use `freehold put --replace`";
    let taken = format!("error: model/weights: {sentence}\n");
    assert_eq!(open.error_of(&["put", "in", "--name", "model/weights"]), (taken, Some(1)));
    std::fs::write(open.sandbox.folder.join("new"), "other bytes").unwrap();
    assert_eq!(open.stdout_of(&["put", "new", "model/weights", "--replace"]), "model/weights: 11 B\n");
    assert_eq!(open.stdout_of(&["get", "model/weights", "-"]), "other bytes");
    let none = "error: model/weigths: there is no such name; nearest: model/weights\n".to_owned();
    assert_eq!(open.error_of(&["get", "model/weigths", "-o", "none"]), (none, Some(1)));
    assert!(!open.sandbox.folder.join("none").exists());
    assert_eq!(open.stdout_of(&["drop", "model/weights"]), "model/weights: dropped\n");
    assert_eq!(open.stdout_of(&["ls", "--json"]), "{\"names\":[]}\n");
}

#[test]
fn a_kernel_runs_on_a_remote_broker() {
    let open = RemoteBrokerFixture::new();
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/../broker/tests/calls/kernels.ptx");
    let said = open.stdout_of(&["module", "put", kernels, "--name", "test/kernels"]);
    assert!(said.starts_with("test/kernels: empty(), saxpy(u64, u64, f32, u32), step(u64, u32, u32)"), "{said}");
    std::fs::write(open.sandbox.folder.join("x"), [5, 0, 0, 0].repeat(100)).unwrap();
    open.stdout_of(&["put", "x", "--name", "x"]);
    let shape = ["call", "test/kernels", "step", "--grid", "1", "--block", "128"];
    open.stdout_of(&[&shape[..], &["--arg", "lease:x", "--arg", "u32:2", "--arg", "u32:100"]].concat());
    open.stdout_of(&["get", "x", "-o", "out"]);
    assert_eq!(std::fs::read(open.sandbox.folder.join("out")).unwrap(), [17, 0, 0, 0].repeat(100));
    let refused = open.error_of(&[&shape[..], &["--arg", "lease:x"]].concat());
    assert_eq!(refused, ("error: kernel step takes 3 arguments, 1 were given\n".to_owned(), Some(2)));
    open.stdout_of(&["module", "drop", "test/kernels"]);
}

#[test]
fn a_rejected_client_is_told_what_to_do() {
    let open = RemoteBrokerFixture::new();
    let at = ["--at", open.url.as_str(), "--ca", "cert.pem"];
    let refused = |words: &[&str]| error_and_status(&open.run_as(&[&at[..], words].concat()));
    let none =
        "error: no token: give --token-file FILE or set FREEHOLD_TOKEN; create one with `openssl rand -hex 32`\n";
    assert_eq!(refused(&["ls"]), (none.to_owned(), Some(2)));
    std::fs::write(open.sandbox.folder.join("other"), "another-token-of-32-letters-here").unwrap();
    std::fs::set_permissions(open.sandbox.folder.join("other"), Permissions::from_mode(0o644)).unwrap();
    let everybody = "error: other: the token is readable by everyone: run `chmod 600 other`\n";
    assert_eq!(refused(&["ls", "--token-file", "other"]), (everybody.to_owned(), Some(2)));
    std::fs::set_permissions(open.sandbox.folder.join("other"), Permissions::from_mode(0o600)).unwrap();
    let another = "error: wrong token: use the one that `freehold serve` was started with\n";
    assert_eq!(refused(&["ls", "--token-file", "other"]), (another.to_owned(), Some(3)));
}

#[test]
fn a_wrong_address_is_reported_before_a_missing_token() {
    let mut command = command(&std::env::temp_dir(), "nobody");
    command.args(["ls"]).env("FREEHOLD_AT", "foo").env_remove("FREEHOLD_TOKEN");
    let sentence = "error: \"foo\" is not the address of a server: expected https://HOST:PORT\n";
    let output = command.output().expect("the binary starts");
    assert_eq!(error_and_status(&output), (sentence.to_owned(), Some(2)));
}

#[test]
fn local_commands_are_rejected_with_a_remote_broker() {
    let alone = "error: this command does not work with a remote broker: omit --at and FREEHOLD_AT, or run it on the broker's machine; \
                 put, get, ls, drop, totals, module, call and demo --remote do\n";
    let folder = std::env::temp_dir();
    let run = |words: &[&str], variable: &str| {
        let mut command = command(&folder, "nobody");
        // Had it looked for a broker, it would have reported that there is none.
        command.env("FREEHOLD_BROKER", folder.join("freehold-nowhere")).env("FREEHOLD_AT", variable);
        error_and_status(&command.args(words).output().expect("the binary starts"))
    };
    for words in
        [&["stop"][..], &["stop", "--force"], &["quota"], &["quota", "4MiB"], &["top", "--once"], &["top", "--json"]]
    {
        let said = [&["--at", "https://localhost:1"][..], words].concat();
        assert_eq!(run(&said, ""), (alone.to_owned(), Some(2)), "{said:?}");
        assert_eq!(run(words, "https://localhost:1"), (alone.to_owned(), Some(2)), "{words:?}");
        assert_eq!(run(words, "").1, Some(3), "{words:?}");
    }
    // Commands that talk to no broker are not affected.
    assert_eq!(run(&["lab", "--only", "nothing"], "https://localhost:1"), run(&["lab", "--only", "nothing"], ""));
}

/// The expected error: the whole text, or its start and a part of it.
enum Expected {
    All(&'static str),
    Like(&'static str, &'static str),
}

#[test]
fn bad_calls_fail_the_same_locally_and_remotely() {
    use Expected::{All, Like};
    let open = RemoteBrokerFixture::new();
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/../broker/tests/calls/kernels.ptx");
    open.stdout_of(&["module", "put", kernels, "--name", "blas/saxpy"]);
    std::fs::write(open.sandbox.folder.join("x"), [5, 0, 0, 0].repeat(100)).unwrap();
    open.stdout_of(&["put", "x", "--name", "x"]);
    let text = std::fs::read_to_string(kernels).unwrap();
    std::fs::write(open.sandbox.folder.join("broken.ptx"), text.replace("fma.rn.f32 %f3", "fma.rn.f32 %nowhere"))
        .unwrap();
    std::fs::write(open.sandbox.folder.join("other.ptx"), text.replace("saxpy", "other")).unwrap();
    std::fs::write(open.sandbox.folder.join("none"), "").unwrap();
    let call = |kernel, shape: [&'static str; 2], given: &[&'static str]| {
        let mut words = vec!["call", "blas/saxpy", kernel, "--grid", shape[0], "--block", shape[1]];
        given.iter().for_each(|given| words.extend(["--arg", given]));
        words
    };
    let (one, step) = (["1", "1"], ["lease:x", "u32:2", "u32:100"]);
    let missing = "there is no module no/such: `freehold module put no/such FILE` makes one";
    let table: Vec<(Vec<&str>, Expected, i32)> = vec![
        (vec!["call", "no/such", "step", "--grid", "1", "--block", "1"], Like(missing, ""), 1),
        (vec!["call", "/no", "step", "--grid", "1", "--block", "1"], Like("\"/no\": part 1 of the name", ""), 2),
        (vec!["module", "drop", "no/such"], Like(missing, ""), 1),
        (
            call("stop", one, &[]),
            All("module blas/saxpy has no kernel stop; it has empty, saxpy, step, spin, stray, sum"),
            2,
        ),
        (call("step", one, &step[..1]), All("kernel step takes 3 arguments, 1 were given"), 2),
        (call("step", one, &["lease:x", "f32:2", "u32:100"]), All("argument 2 of step is u32, f32 was given"), 2),
        (call("step", one, &["lease:x", "u64:2", "u32:100"]), All("argument 2 of step is u32, u64 was given"), 2),
        (
            call("step", one, &["lease:x", "read:x", "u32:100"]),
            All("argument 2 of step is u32: a lease needs a parameter of 8 bytes"),
            2,
        ),
        (call("sum", one, &["lease:x", "bytes:0a0b"]), All("argument 2 of sum is 12 bytes, 2 bytes was given"), 2),
        (
            call("step", one, &["lease:x+400", "u32:2", "u32:1"]),
            All("argument 1 of step begins at byte 400 of a lease of 400 bytes"),
            2,
        ),
        (
            call("empty", ["1", "2000"], &[]),
            Like("a launch has 1 to 2147483647 blocks, ", "[1, 1, 1] of [2000, 1, 1]"),
            2,
        ),
        (call("empty", ["1,70000", "1"], &[]), Like("a launch has 1 to 2147483647 blocks, ", "[1, 70000, 1] of"), 2),
        (call("step", one, &["lease:y", "u32:2", "u32:100"]), All("y: there is no such name"), 1),
        // A lease for reading is mapped for reading.
        (
            call("step", one, &["read:x", "u32:2", "u32:100"]),
            Like("kernel step of blas/saxpy ended its worker: ", ""),
            1,
        ),
        (
            call("stray", one, &["lease:x", "u64:1099511627776"]),
            Like("kernel stray of blas/saxpy ended its worker: ", ""),
            1,
        ),
        (vec!["module", "put", "broken.ptx", "--name", "a"], Like("the module does not compile:\n", "line 35"), 2),
        (vec!["module", "put", "none", "--name", "a"], All("a module has 1 to 16777216 bytes, this one 0"), 2),
        (
            vec!["module", "put", "other.ptx", "--name", "blas/saxpy"],
            All("blas/saxpy: a module of that name exists with a different text: drop it first"),
            1,
        ),
        (vec!["put", "x", "--name", "x"], Like("x: the name is taken: ", ""), 1),
        (vec!["put", "none", "--name", "a"], All("none is empty: expected at least one byte"), 2),
        (vec!["get", "y", "-o", "out"], All("y: there is no such name"), 1),
        (vec!["drop", "y"], All("y: there is no such name"), 1),
    ];
    for (words, said, status) in table {
        let socket = open.sandbox.folder.join("broker");
        let here = error_and_status(&open.run_as(&[&words[..], &["--socket", socket.to_str().unwrap()]].concat()));
        assert_eq!(open.error_of(&words), here, "{words:?}");
        let told = here.0.strip_prefix("error: ").and_then(|told| told.strip_suffix('\n')).unwrap_or(&here.0);
        match said {
            All(said) => assert_eq!(told, said, "{words:?}"),
            Like(begin, within) => assert!(told.starts_with(begin) && told.contains(within), "{words:?}: {told}"),
        }
        assert_eq!(here.1, Some(status), "{words:?}: {told}");
    }
    // Nothing was written by these, and nothing is held.
    let listed: serde_json::Value = serde_json::from_str(&open.stdout_of(&["ls", "--json"])).unwrap();
    let x = &listed["names"][0];
    assert_eq!((x["version"].as_u64(), x["readers"].as_u64(), x["writers"].as_u64()), (Some(1), Some(0), Some(0)));
    open.stdout_of(&call("step", ["1", "128"], &step));
    open.stdout_of(&["get", "x", "-o", "out"]);
    assert_eq!(std::fs::read(open.sandbox.folder.join("out")).unwrap(), [17, 0, 0, 0].repeat(100));
}

#[test]
fn what_cannot_be_opened_to_others_is_refused_before_it_is_served() {
    let open = RemoteBrokerFixture::new();
    let serve = |words: &[&str]| {
        let all = [&["serve", "--memory", "4MiB", "--token-file", "token", "--listen"][..], words].concat();
        error_and_status(&open.run_as(&all))
    };
    let clear = "error: --listen 0.0.0.0:0: without TLS the token is sent in clear text: give --tls CERTIFICATE KEY, or listen on 127.0.0.1\n";
    assert_eq!(serve(&["0.0.0.0:0"]), (clear.to_owned(), Some(2)));
    let wrong = "error: --tls cert.pem token: not a certificate with its key: expected both as PEM\n";
    assert_eq!(serve(&["127.0.0.1:0", "--tls", "cert.pem", "token"]), (wrong.to_owned(), Some(2)));
    let port = open.url.rsplit_once(':').unwrap().1;
    let (said, status) = serve(&[&format!("127.0.0.1:{port}")]);
    assert!(said.starts_with(&format!("error: --listen 127.0.0.1:{port}: Address already in use")), "{said}");
    assert_eq!(status, Some(2));
}

#[test]
fn a_remote_server_that_dies_is_restarted_and_names_stay() {
    let open = RemoteBrokerFixture::new();
    std::fs::write(open.sandbox.folder.join("in"), b"freehold").unwrap();
    open.stdout_of(&["put", "in", "--name", "a"]);
    let server = || open.sandbox.processes("remote-server").first().copied();
    let first = server().expect("the gRPC server runs");
    process::kill(first);
    until("another gRPC server runs", || server().filter(|&process| process != first));
    assert_eq!(open.stdout_of(&["get", "a", "-o", "out"]), "out: 8 B\n");
    assert_eq!(std::fs::read(open.sandbox.folder.join("out")).unwrap(), b"freehold");
}

/// `serve` restarts the gRPC server when it ends, and the broker may have been stopped by then.
#[test]
fn a_remote_server_without_a_broker_lets_serve_report_it() {
    let machine = format!("no-broker-{}", std::process::id());
    let mut server = command(&std::env::temp_dir().join(&machine), &machine);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    server.arg("remote-server").env("FREEHOLD_TOKEN", TOKEN).stdin(std::os::fd::OwnedFd::from(listener));
    let output = server.output().unwrap();
    assert_eq!((text(&output.stdout), error_and_status(&output)), ("no broker\n", (String::new(), Some(3))));
}

#[test]
fn bench_remote_compares_with_tcp_and_grpc() {
    let machine = format!("bench-remote-{}", std::process::id());
    let mut bench = command(&std::env::temp_dir().join(&machine), &machine);
    let output = bench.args(["bench", "remote", "--quick", "--json", "--device", "soft"]).output().unwrap();
    assert_eq!(error_and_status(&output), (String::new(), Some(0)));
    let told: serde_json::Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let ids: Vec<_> = told["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["tcp", "tcp_many", "grpc_up", "grpc_down", "up", "down", "call", "launch"]);
    assert!(told["connections"].as_u64().is_some_and(|connections| (1..=4).contains(&connections)));
    let rows = told["rows"].as_array().unwrap();
    assert_eq!((rows[0]["of_tcp"].as_f64(), rows[1]["of_tcp_many"].as_f64()), (Some(1.0), Some(1.0)));
    assert_eq!((told["bytes"].as_u64(), told["tls"].as_bool()), (Some(8 << 20), Some(false)));
}
