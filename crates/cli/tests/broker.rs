//! The commands that speak to a broker, as a person meets them: what they print, what they say to bad input, and how they exit.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::binary;

/// A broker of its own, in a folder of its own.
struct Scene {
    folder: PathBuf,
    machine: String,
    serve: Child,
}

impl Scene {
    fn new() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let machine = format!("broker-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("freehold-{machine}"));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let mut serve = command(&folder, &machine);
        serve.args(["serve", "--memory", "64MiB", "--device", "soft"]).stdout(Stdio::piped());
        let mut serve = serve.spawn().expect("the binary starts");
        let said = BufReader::new(serve.stdout.take().expect("it is piped")).lines().nth(2);
        assert_eq!(
            said.expect("it says more").expect("it says text"),
            "stop it with Ctrl-C; what it holds is gone then"
        );
        Self { folder, machine, serve }
    }

    fn run(&self, words: &[&str]) -> Output {
        command(&self.folder, &self.machine).args(words).output().expect("the binary starts")
    }

    /// What a command printed, which went well.
    fn said(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
        text(&output.stdout).to_owned()
    }

    /// What a command was refused with.
    fn refused(&self, words: &[&str]) -> (String, Option<i32>) {
        let output = self.run(words);
        (text(&output.stderr).to_owned(), output.status.code())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).expect("a file of the test's");
        path.to_str().expect("text").to_owned()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let process = rustix::process::Pid::from_child(&self.serve);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("the keeper is there");
        assert!(self.serve.wait().expect("it is this process's").success());
        std::fs::remove_dir_all(&self.folder).expect("the test's folder goes");
    }
}

fn command(folder: &Path, machine: &str) -> Command {
    let mut command = Command::new(binary());
    command.env("FREEHOLD_BROKER", folder.join("broker")).env("FREEHOLD_SOFT_MACHINE", machine);
    command.env("FREEHOLD_DEVICE", "soft").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text was printed")
}

#[test]
fn a_file_goes_in_and_comes_out_again() {
    let scene = Scene::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    let file = scene.file("in", &bytes);
    assert_eq!(scene.said(&["put", &file, "--name", "model/weights"]), "model/weights: 2.9 MiB\n");
    let out = scene.folder.join("out");
    let to = out.to_str().unwrap();
    assert_eq!(scene.said(&["get", "model/weights", "-o", to]), format!("{to}: 2.9 MiB\n"));
    assert!(std::fs::read(&out).unwrap() == bytes);
    assert_eq!(scene.said(&["drop", "model/weights"]), "model/weights: dropped\n");
    assert_eq!(scene.said(&["ls", "--json"]), "{\"names\":[]}\n");
}

#[test]
fn what_was_done_is_one_object_with_json() {
    let scene = Scene::new();
    let file = scene.file("in", b"freehold");
    assert_eq!(scene.said(&["put", &file, "--name", "a", "--json"]), "{\"bytes\":8,\"name\":\"a\"}\n");
    let to = scene.folder.join("out").to_str().unwrap().to_owned();
    let said = scene.said(&["get", "a", "-o", &to, "--json"]);
    assert_eq!(said, format!("{{\"bytes\":8,\"file\":\"{to}\",\"name\":\"a\"}}\n"));
    assert_eq!(scene.said(&["drop", "a", "--json"]), "{\"dropped\":\"a\"}\n");
}

#[test]
fn a_name_that_is_taken_is_refused_before_anything_is_uploaded() {
    let scene = Scene::new();
    let file = scene.file("in", b"freehold");
    scene.said(&["put", &file, "--name", "a"]);
    // No such device is ever asked for.
    let refused = scene.refused(&["put", &file, "--name", "a", "--device", "none"]);
    assert_eq!(refused, ("error: the name is taken: drop it first, or lease it for writing\n".to_owned(), Some(1)));
}

#[test]
fn a_name_that_is_not_there_has_nearest_ones_and_leaves_no_file() {
    let scene = Scene::new();
    scene.said(&["put", &scene.file("in", b"freehold"), "--name", "model/weights"]);
    let expected = ("error: there is no such name; nearest: model/weights\n".to_owned(), Some(1));
    let out = scene.folder.join("out");
    assert_eq!(scene.refused(&["get", "model/weigths", "-o", out.to_str().unwrap()]), expected);
    assert_eq!(scene.refused(&["drop", "model/weigths"]), expected);
    assert!(!out.exists() && !scene.folder.join("out.part").exists());
}

#[test]
fn what_cannot_be_put_is_refused_with_what_to_do() {
    let scene = Scene::new();
    let (folder, empty) = (scene.folder.to_str().unwrap().to_owned(), scene.file("empty", b""));
    let refused = scene.refused(&["put", &folder, "--name", "a"]);
    assert_eq!(refused, (format!("error: {folder} is a folder: name a file\n"), Some(2)));
    let refused = scene.refused(&["put", &empty, "--name", "a"]);
    assert_eq!(refused, (format!("error: {empty} is empty: there is nothing to publish\n"), Some(2)));
    let large = scene.file("large", &vec![1; 65 << 20]);
    let refused = scene.refused(&["put", &large, "--name", "a"]);
    let said = "error: the broker has 67108864 bytes left of 67108864: 68157440 were asked for; drop a name, or serve with more --memory\n";
    assert_eq!(refused, (said.to_owned(), Some(1)));
    let refused = scene.refused(&["put", "/dev/zero", "--name", "a"]);
    assert_eq!(refused, ("error: /dev/zero is no regular file: name a file\n".to_owned(), Some(2)));
}

#[test]
fn without_a_broker_it_is_said_how_to_start_one() {
    let nowhere = std::env::temp_dir().join("freehold-nowhere");
    let program = binary();
    let file = program.to_str().unwrap();
    for words in [&["ls"][..], &["drop", "a"], &["get", "a", "-o", "b"], &["put", file, "--name", "a"]] {
        let output = command(&nowhere, "nowhere").args(words).output().expect("the binary starts");
        let socket = nowhere.join("broker");
        let sentence = "start one with `freehold serve --memory 8GiB`";
        let expected = format!("error: no broker is running at {}: {sentence}\n", socket.display());
        assert_eq!((text(&output.stderr), output.status.code()), (expected.as_str(), Some(3)));
    }
}

#[test]
fn a_socket_of_a_path_that_none_can_have_is_refused_in_a_sentence_everywhere() {
    let folder = std::env::temp_dir().join("l".repeat(120));
    let expected = |socket: &str| {
        let (path, bytes) = (folder.join(socket), folder.as_os_str().len() + 1 + socket.len());
        let sentence = "and the path of a socket at most 107: name a shorter one with --socket or FREEHOLD_BROKER";
        format!("error: {} has {bytes} bytes, {sentence}\n", path.display())
    };
    let (program, broker) = (binary(), expected("broker"));
    let file = program.to_str().unwrap();
    for words in
        [&["serve"][..], &["ls"], &["top"], &["quota"], &["get", "a", "-o", "b"], &["put", file, "--name", "a"]]
    {
        let output = command(&folder, "long").args(words).output().expect("the binary starts");
        assert_eq!((text(&output.stderr), output.status.code()), (broker.as_str(), Some(2)), "{words:?}");
    }
    assert!(!folder.exists(), "nothing was made for it");
    // The folder of the user's own broker may be such a one.
    std::fs::create_dir_all(&folder).unwrap();
    let mut ls = command(&folder, "long");
    let output = ls.env_remove("FREEHOLD_BROKER").env("XDG_RUNTIME_DIR", &folder).arg("ls").output().unwrap();
    std::fs::remove_dir(&folder).unwrap();
    assert_eq!((text(&output.stderr), output.status.code()), (expected("freehold/broker").as_str(), Some(2)));
}

#[test]
fn a_device_that_is_none_is_one_error() {
    let folder = std::env::temp_dir().join(format!("freehold-no-device-{}", std::process::id()));
    let output = command(&folder, "none").args(["serve", "--device", "foo"]).output().expect("the binary starts");
    std::fs::remove_dir_all(&folder).unwrap();
    let expected = "error: \"foo\" is no device: say soft, cuda or cuda:N\n";
    assert_eq!((text(&output.stderr), output.status.code()), (expected, Some(2)));
}

#[test]
fn what_is_got_takes_the_place_of_a_file_alone() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let scene = Scene::new();
    scene.said(&["put", &scene.file("in", b"freehold"), "--name", "a"]);
    // A pipe that is read from stays one.
    let pipe = scene.folder.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    scene.said(&["get", "a", "-o", pipe.to_str().unwrap()]);
    assert_eq!(reader.join().unwrap(), b"freehold");
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    // Behind a link lies the file, which stays as private as it was.
    let (target, link) = (scene.file("target", b"before"), scene.folder.join("link"));
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&target, &link).unwrap();
    scene.said(&["get", "a", "-o", link.to_str().unwrap()]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read(&target).unwrap(), b"freehold");
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn who_stops_to_listen_is_no_error_and_a_full_disk_is_told() {
    let scene = Scene::new();
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let said = command(&scene.folder, &scene.machine).arg("ls").stdout(closed()).output().unwrap();
    assert_eq!((text(&said.stderr), said.status.code()), ("", Some(0)));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let said = command(&scene.folder, &scene.machine).arg("ls").stdout(full).output().unwrap();
    let expected = "error: standard output: No space left on device (os error 28)\n";
    assert_eq!((text(&said.stderr), said.status.code()), (expected, Some(1)));
}
