//! The commands that talk to a broker: their output, their errors for bad input, and their exit status.

use crate::{broker_fixture, common};

use std::path::Path;
use std::process::Stdio;

use broker_fixture::{BrokerFixture, command, name, user};
use common::{binary, text};
use freehold_broker::wire::{Access, Fence, Policy, Reply, Request};

#[test]
fn a_file_goes_in_and_comes_out_again() {
    let fixture = BrokerFixture::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    let file = fixture.file("in", &bytes);
    assert_eq!(fixture.stdout_of(&["put", &file, "--name", "model/weights"]), "model/weights: 2.9 MiB\n");
    let out = fixture.sandbox.folder.join("out");
    let to = out.to_str().unwrap();
    assert_eq!(fixture.stdout_of(&["get", "model/weights", "-o", to]), format!("{to}: 2.9 MiB\n"));
    assert!(std::fs::read(&out).unwrap() == bytes);
    assert_eq!(fixture.stdout_of(&["drop", "model/weights"]), "model/weights: dropped\n");
    assert_eq!(fixture.stdout_of(&["ls", "--json"]), "{\"names\":[]}\n");
}

#[test]
fn a_file_and_a_name_are_distinguished_by_which_exists() {
    let fixture = BrokerFixture::new();
    let (file, out) = (fixture.file("big.bin", b"freehold"), fixture.sandbox.folder.join("out"));
    let to = out.to_str().unwrap();
    assert_eq!(fixture.stdout_of(&["put", "weights", &file]), "weights: 8 B\n");
    assert_eq!(fixture.stdout_of(&["get", "weights", to]), format!("{to}: 8 B\n"));
    assert_eq!(std::fs::read(&out).unwrap(), b"freehold");
    // A folder with that name is not a file.
    std::fs::create_dir(fixture.sandbox.folder.join("weights")).unwrap();
    let folder = fixture.sandbox.folder.join("weights").to_str().unwrap().to_owned();
    let (said, status) = fixture.error_of(&["put", &folder, &file]);
    assert!(status == Some(2) && !said.contains("both files"), "the folder was taken for a file: {said}");
    // In the other order too: the argument that is not a file is the name.
    assert_eq!(fixture.stdout_of(&["put", &file, "model/weights"]), "model/weights: 8 B\n");
    assert_eq!(fixture.stdout_of(&["drop", "model/weights"]), "model/weights: dropped\n");
    let refused = |words: &[&str]| {
        let (said, status) = fixture.error_of(words);
        assert_eq!(status, Some(2), "{said}");
        said
    };
    let say = "use `freehold put FILE --name NAME`";
    let other = fixture.file("other.bin", b"other");
    assert_eq!(refused(&["put", &other, &file]), format!("error: {other} and {file} are both files: {say}\n"));
    assert_eq!(
        refused(&["put", "one", "another"]),
        "error: there is no file another (nor one): expected NAME and FILE\n"
    );
    assert_eq!(refused(&["put", &file]), format!("error: {file} needs a name: use `freehold put NAME {file}`\n"));
    assert_eq!(refused(&["put", "weights"]), "error: weights needs a file: use `freehold put weights FILE`\n");
    for words in [["put", "-", "weights"], ["put", "weights", "-"]] {
        assert_eq!(refused(&words), "error: standard input cannot be published: expected a file\n");
    }
    assert_eq!(
        refused(&["put", "a", &file, "--name", "b"]),
        "error: a name was given twice: a and --name b\n",
        "two names"
    );
    assert_eq!(refused(&["put", "a b", &file]).lines().count(), 1, "not one line");
    assert_eq!(refused(&["get", "weights"]), "error: no file to write to: use `freehold get NAME FILE`\n");
    assert_eq!(fixture.stdout_of(&["ls", "--json"]).matches("\"name\"").count(), 1, "an error published something");
}

#[test]
fn what_was_done_is_one_object_with_json() {
    let fixture = BrokerFixture::new();
    let file = fixture.file("in", b"freehold");
    assert_eq!(fixture.stdout_of(&["put", &file, "--name", "a", "--json"]), "{\"bytes\":8,\"name\":\"a\"}\n");
    let to = fixture.sandbox.folder.join("out").to_str().unwrap().to_owned();
    let said = fixture.stdout_of(&["get", "a", "-o", &to, "--json"]);
    assert_eq!(said, format!("{{\"bytes\":8,\"file\":\"{to}\",\"name\":\"a\"}}\n"));
    assert_eq!(fixture.stdout_of(&["drop", "a", "--json"]), "{\"dropped\":\"a\"}\n");
}

#[test]
fn a_name_that_is_taken_is_refused_before_anything_is_uploaded() {
    let fixture = BrokerFixture::new();
    let file = fixture.file("in", b"freehold");
    fixture.stdout_of(&["put", &file, "--name", "a"]);
    // The device is never opened: its name is invalid.
    let refused = fixture.error_of(&["put", &file, "--name", "a", "--device", "none"]);
    let sentence = "the name is taken: drop it first, lease it for writing, or use `freehold put --replace`";
    assert_eq!(refused, (format!("error: a: {sentence}\n"), Some(1)));
}

#[test]
fn a_name_is_replaced_by_a_file_of_another_size_and_readers_keep_theirs() {
    let fixture = BrokerFixture::new();
    let (old, new) = (fixture.file("old", b"freehold"), fixture.file("new", b"other bytes"));
    assert_eq!(fixture.stdout_of(&["put", "a", &old, "--replace"]), "a: 8 B\n", "the name may be new");
    let mut link = fixture.link();
    let Reply::Number { id, .. } = link.call(Request::Find { name: name("a") }).unwrap().reply else { panic!("no id") };
    let reader = link.lease(id, Access::Read).unwrap();
    assert_eq!(fixture.stdout_of(&["put", "--replace", "a", &new]), "a: 11 B\n");
    assert_eq!(fixture.run(&["get", "a", "-"]).stdout, b"other bytes");
    assert_eq!(reader.bytes, 8);
    drop(link);
}

#[test]
fn a_dash_is_standard_output_which_then_has_nothing_else() {
    let fixture = BrokerFixture::new();
    fixture.stdout_of(&["put", "a", &fixture.file("in", b"free\0hold")]);
    for words in [["get", "a", "-"].as_slice(), &["get", "a", "-o", "-"]] {
        let output = fixture.run(words);
        assert_eq!((output.stdout.as_slice(), text(&output.stderr)), (b"free\0hold".as_slice(), ""));
        assert_eq!(output.status.code(), Some(0));
    }
    let refused = fixture.error_of(&["get", "a", "-", "--json"]);
    assert_eq!(refused, ("error: --json and the file would share standard output: name a file\n".to_owned(), Some(2)));
    assert!(!Path::new("-").exists());
}

#[test]
fn a_name_that_is_not_there_has_nearest_ones_and_leaves_no_file() {
    let fixture = BrokerFixture::new();
    fixture.stdout_of(&["put", &fixture.file("in", b"freehold"), "--name", "model/weights"]);
    let expected = ("error: model/weigths: there is no such name; nearest: model/weights\n".to_owned(), Some(1));
    let out = fixture.sandbox.folder.join("out");
    assert_eq!(fixture.error_of(&["get", "model/weigths", "-o", out.to_str().unwrap()]), expected);
    assert_eq!(fixture.error_of(&["drop", "model/weigths"]), expected);
    assert!(!out.exists() && !fixture.sandbox.folder.join("out.part").exists());
}

#[test]
fn a_socket_in_a_folder_that_does_not_exist_is_not_served() {
    let fixture = BrokerFixture::new();
    let missing = fixture.sandbox.folder.join("missing");
    let socket = missing.join("broker").display().to_string();
    let expected =
        format!("error: {} does not exist: create it, or name another path with --socket\n", missing.display());
    // With this budget, it would not serve in a folder either.
    assert_eq!(fixture.error_of(&["serve", "--socket", &socket, "--memory", "1MiB"]), (expected, Some(2)));
    assert!(!missing.exists());
}

#[test]
fn a_non_socket_path_is_not_served_and_stays() {
    let fixture = BrokerFixture::new();
    let file = fixture.file("precious.txt", b"freehold");
    let expected = format!("error: {file} exists and is not a socket: name another path with --socket\n");
    assert_eq!(fixture.error_of(&["serve", "--socket", &file]), (expected, Some(2)));
    assert_eq!(std::fs::read(&file).unwrap(), b"freehold");
    let folder = fixture.sandbox.folder.join("folder").to_str().unwrap().to_owned();
    std::fs::create_dir(&folder).unwrap();
    let expected = format!("error: {folder} exists and is not a socket: name another path with --socket\n");
    assert_eq!(fixture.error_of(&["serve", "--socket", &folder]), (expected, Some(2)));
}

#[test]
fn memory_of_the_host_is_listed_and_found_by_names_that_are_like_its_own() {
    let fixture = BrokerFixture::new();
    fixture.stdout_of(&["put", &fixture.file("in", b"freehold"), "--name", "z"]);
    let mut link = fixture.link();
    link.call(Request::Host { bytes: 4096 + 3 * 1024, name: name("shared/numbers") }).expect("memory of the host");
    drop(link);
    let (ls, owner) = (fixture.stdout_of(&["ls"]), user());
    let lines: Vec<Vec<&str>> = ls.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["name", "size", "memory", "owner", "readers", "writer", "age"]);
    assert_eq!(lines[1][..7], ["shared/numbers", "3.0", "KiB", "host", &owner, "-", "-"]);
    assert_eq!(lines[2][..7], ["z", "8", "B", "device", &owner, "0", "-"]);
    assert_eq!(fixture.stdout_of(&["top"]).lines().skip(3).count(), 3);
    let listed: serde_json::Value = serde_json::from_str(&fixture.stdout_of(&["ls", "--json"])).unwrap();
    let [host, device] = [&listed["names"][0], &listed["names"][1]];
    assert_eq!(
        (&host["name"], &host["memory"], &host["bytes"]),
        (&"shared/numbers".into(), &"host".into(), &3072.into())
    );
    assert_eq!((&device["name"], &device["memory"]), (&"z".into(), &"device".into()));
    let top: serde_json::Value = serde_json::from_str(&fixture.stdout_of(&["top", "--json"])).unwrap();
    assert_eq!((&top["stats"]["host_bytes"], &top["names"][0]["memory"]), (&3072.into(), &"host".into()));
    let refused = fixture.error_of(&["drop", "shared/number"]);
    assert_eq!(refused, ("error: shared/number: there is no such name; nearest: shared/numbers\n".to_owned(), Some(1)));
    let refused = fixture.error_of(&["get", "shared/numbers", "-o", "/dev/null"]);
    let sentence = "the name refers to host memory, which is not leased: open it with `Broker::open_host`";
    assert_eq!(refused, (format!("error: shared/numbers: {sentence}\n"), Some(1)));
    let refused = fixture.error_of(&["put", &fixture.file("in", b"freehold"), "--name", "shared/numbers"]);
    assert!(refused.0.starts_with("error: shared/numbers: the name is taken: "), "{}", refused.0);
    let refused = fixture.error_of(&["put", "--replace", &fixture.file("in", b"freehold"), "shared/numbers"]);
    assert_eq!(refused, (format!("error: shared/numbers: {sentence}\n"), Some(1)));
    assert_eq!(fixture.stdout_of(&["drop", "shared/numbers"]), "shared/numbers: dropped\n");
    assert_eq!(fixture.stdout_of(&["ls"]).lines().count(), 2);
}

#[test]
fn top_counts_the_other_tenants_in_text_and_json() {
    let fixture = BrokerFixture::new();
    let (first, second) = (fixture.link(), fixture.link());
    let text = fixture.stdout_of(&["top", "--once"]);
    assert!(text.contains("   2 tenants   "), "{text}");
    let top: serde_json::Value = serde_json::from_str(&fixture.stdout_of(&["top", "--json"])).unwrap();
    assert_eq!(top["stats"]["tenants"], 2);
    drop((first, second));
}

#[test]
fn a_name_is_its_users_and_a_processs_only_while_that_is_there() {
    let fixture = BrokerFixture::new();
    let mut link = fixture.link();
    let lease = link.reserve(4096).expect("the memory fits").lease;
    let (policy, point) = (Policy::Restore, Fence::default());
    link.call(Request::Publish { lease, policy, fence: point, name: name("a") }).expect("the name is free");
    let (user, own) = (user(), rustix::process::getuid().as_raw());
    let listed = || -> serde_json::Value { serde_json::from_str(&fixture.stdout_of(&["ls", "--json"])).unwrap() };
    let process = std::process::id();
    assert!(fixture.stdout_of(&["ls"]).contains(&format!("  {user} ({process})  ")));
    assert_eq!(listed()["names"][0]["process"], process);
    link.close().expect("the broker answers");
    assert!(fixture.stdout_of(&["ls"]).contains(&format!("  {user}  ")));
    assert_eq!(listed()["names"][0]["process"], serde_json::Value::Null);
    assert_eq!((&listed()["names"][0]["user"], &listed()["names"][0]["user_name"]), (&own.into(), &user.into()));
}

#[test]
fn quotas_are_shown_set_and_removed_for_both_memories() {
    let fixture = BrokerFixture::new();
    let user = rustix::process::getuid().as_raw();
    let named = freehold_broker::socket_path::user_text(user);
    let said = |device: &str, host: &str| {
        format!(
            "{named} uses 0 B of {device} of device memory\n\
             {named} uses 0 B of {host} of host memory\n"
        )
    };
    assert_eq!(fixture.stdout_of(&["quota"]), said("64.0 MiB", "64.0 GiB"));
    assert_eq!(fixture.stdout_of(&["quota", "2MiB"]), said("2.0 MiB", "64.0 GiB"));
    assert_eq!(fixture.stdout_of(&["quota", "8KiB", "--host"]), said("2.0 MiB", "8.0 KiB"));
    let refused = fixture.link().call(Request::Host { bytes: 8193, name: name("a") }).unwrap_err().to_string();
    assert_eq!(
        refused,
        "a: the user's quota is 8 KiB of host memory with 0 bytes in use, 8193 bytes (8.0 KiB) requested: drop a name, or \
         raise the quota with `freehold quota SIZE --host`"
    );
    assert_eq!(fixture.stdout_of(&["quota", "none"]), said("64.0 MiB", "8.0 KiB"));
    let small = |least: &str| {
        let sentence = "allows no allocation: expected more, or none to remove the quota";
        (format!("error: a quota below {least} {sentence}\n"), Some(2))
    };
    assert_eq!(fixture.error_of(&["quota", "0", "--host"]), small("8 KiB"));
    assert_eq!(fixture.stdout_of(&["quota", "none", "--host"]), said("64.0 MiB", "64.0 GiB"));
    let json = format!(
        "{{\"host_quota_bytes\":68719476736,\"host_used_bytes\":0,\"quota_bytes\":67108864,\"used_bytes\":0,\"user\":{user}}}\n"
    );
    assert_eq!(fixture.stdout_of(&["quota", "--json"]), json);
    assert_eq!(fixture.error_of(&["quota", "2097151"]), small("2 MiB"));
    assert_eq!(fixture.error_of(&["quota", "1MiB"]), small("2 MiB"));
    assert_eq!(fixture.error_of(&["quota", "8191", "--host"]), small("8 KiB"));
    assert!(fixture.stdout_of(&["quota", "--user", "root"]).starts_with("root (user 0) uses "));
    let unknown =
        "invalid value 'no-such-user' for '--user <USER>': unknown user \"no-such-user\": see `getent passwd`";
    let refused = fixture.error_of(&["quota", "--user", "no-such-user"]);
    assert_eq!(refused, (format!("error: {unknown}; see `freehold quota --help`\n"), Some(2)));
}

#[test]
fn what_cannot_be_put_is_refused_with_what_to_do() {
    let fixture = BrokerFixture::new();
    let (folder, empty) = (fixture.sandbox.folder.to_str().unwrap().to_owned(), fixture.file("empty", b""));
    let refused = fixture.error_of(&["put", &folder, "--name", "a"]);
    assert_eq!(refused, (format!("error: {folder} is a folder: expected a file\n"), Some(2)));
    let refused = fixture.error_of(&["put", &empty, "--name", "a"]);
    assert_eq!(refused, (format!("error: {empty} is empty: expected at least one byte\n"), Some(2)));
    let large = fixture.file("large", &vec![1; 65 << 20]);
    let refused = fixture.error_of(&["put", &large, "--name", "a"]);
    let said =
        "error: the broker has 64 MiB of 64 MiB free, 65 MiB requested: drop a name, or serve with more --memory\n";
    assert_eq!(refused, (said.to_owned(), Some(1)));
    let refused = fixture.error_of(&["put", "/dev/zero", "--name", "a"]);
    assert_eq!(refused, ("error: /dev/zero is not a regular file: expected a file\n".to_owned(), Some(2)));
}

#[test]
fn without_a_broker_the_error_says_how_to_start_one() {
    let nowhere = std::env::temp_dir().join("freehold-nowhere");
    let program = binary();
    let file = program.to_str().unwrap();
    for words in [&["ls"][..], &["drop", "a"], &["get", "a", "-o", "b"], &["put", file, "--name", "a"]] {
        let output = command(&nowhere, "nowhere").args(words).output().expect("the binary starts");
        let socket = nowhere.join("broker");
        let sentence = "start one with `freehold serve`";
        let expected = format!("error: no broker is running at {}: {sentence}\n", socket.display());
        assert_eq!((text(&output.stderr), output.status.code()), (expected.as_str(), Some(3)));
    }
}

#[test]
fn a_socket_of_a_path_that_none_can_have_is_refused_in_a_sentence_everywhere() {
    let folder = std::env::temp_dir().join("l".repeat(120));
    let expected = |socket: &str| {
        let (path, bytes) = (folder.join(socket), folder.as_os_str().len() + 1 + socket.len());
        let sentence = "a socket path at most 107: name a shorter one with --socket or FREEHOLD_BROKER";
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
    assert!(!folder.exists(), "an error created the folder");
    // The folder of the user's own broker may have a long path too.
    std::fs::create_dir_all(&folder).unwrap();
    let mut ls = command(&folder, "long");
    let output = ls.env_remove("FREEHOLD_BROKER").env("XDG_RUNTIME_DIR", &folder).arg("ls").output().unwrap();
    std::fs::remove_dir(&folder).unwrap();
    assert_eq!((text(&output.stderr), output.status.code()), (expected("freehold/broker").as_str(), Some(2)));
}

#[test]
fn an_unknown_device_is_one_error() {
    use std::os::unix::fs::DirBuilderExt;
    let folder = std::env::temp_dir().join(format!("freehold-no-device-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let output = command(&folder, "none").args(["serve", "--device", "foo"]).output().expect("the binary starts");
    std::fs::remove_dir_all(&folder).unwrap();
    let expected = "error: unknown device \"foo\": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N\n";
    assert_eq!((text(&output.stderr), output.status.code()), (expected, Some(2)));
}

#[test]
fn get_replaces_only_a_regular_file() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let fixture = BrokerFixture::new();
    fixture.stdout_of(&["put", &fixture.file("in", b"freehold"), "--name", "a"]);
    // A pipe stays a pipe.
    let pipe = fixture.sandbox.folder.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    fixture.stdout_of(&["get", "a", "-o", pipe.to_str().unwrap()]);
    assert_eq!(reader.join().unwrap(), b"freehold");
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    // The target of a link is replaced, and keeps its permissions.
    let (target, link) = (fixture.file("target", b"before"), fixture.sandbox.folder.join("link"));
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&target, &link).unwrap();
    fixture.stdout_of(&["get", "a", "-o", link.to_str().unwrap()]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read(&target).unwrap(), b"freehold");
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_closed_pipe_is_not_an_error_and_a_full_disk_is() {
    let fixture = BrokerFixture::new();
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let said = fixture.command().arg("ls").stdout(closed()).output().unwrap();
    assert_eq!((text(&said.stderr), said.status.code()), ("", Some(0)));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let said = fixture.command().arg("ls").stdout(full).output().unwrap();
    let expected = "error: standard output: No space left on device (os error 28)\n";
    assert_eq!((text(&said.stderr), said.status.code()), (expected, Some(1)));
}

#[test]
fn a_wrong_device_is_a_usage_error_for_put_and_get_too() {
    let fixture = BrokerFixture::new();
    let file = fixture.file("f", b"bytes");
    fixture.stdout_of(&["put", "there", &file]);
    let sentence = "error: unknown device \"bogus\": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N\n";
    for words in [["put", "--device", "bogus", "new", &file], ["get", "--device", "bogus", "there", "out"]] {
        assert_eq!(fixture.error_of(&words), (sentence.to_owned(), Some(2)));
    }
    let missing = "error: there is no file nofile (nor a): expected NAME and FILE\n";
    assert_eq!(fixture.error_of(&["put", "a", "nofile"]), (missing.to_owned(), Some(2)));
}

#[test]
fn a_closed_pipe_ends_get_silently_and_a_full_device_is_an_error() {
    let fixture = BrokerFixture::new();
    // More than a pipe holds.
    fixture.stdout_of(&["put", "there", &fixture.file("f", &[7; 1 << 20])]);
    let mut command = fixture.command();
    let (reader, writer) = std::io::pipe().expect("there are descriptors");
    drop(reader);
    let closed = command.args(["get", "there", "-"]).stdin(Stdio::null()).stdout(writer).output().expect("it starts");
    assert_eq!((text(&closed.stderr), closed.status.code()), ("", Some(141)));
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("it exists");
    for words in [&["get", "there", "-"][..], &["ls"], &["totals"], &["completions", "bash"], &["help", "put"]] {
        let refused = fixture.command().args(words).stdin(Stdio::null()).stdout(full()).output().expect("it starts");
        let said = text(&refused.stderr);
        assert_eq!(said, "error: standard output: No space left on device (os error 28)\n", "{words:?}");
        assert_eq!(refused.status.code(), Some(1), "{words:?}");
    }
    let sentence = "error: failed to write /dev/full: No space left on device (os error 28)\n";
    assert_eq!(fixture.error_of(&["get", "there", "/dev/full"]), (sentence.to_owned(), Some(1)));
}

#[test]
fn options_of_another_brokers_place_are_refused() {
    let fixture = BrokerFixture::new();
    let at = ["--at", "http://127.0.0.1:1"];
    let local = |option: &str| {
        format!(
            "error: {option} is for a broker on this machine, but --at or FREEHOLD_AT selects a remote one: omit one of them\n"
        )
    };
    let refused = |words: &[&str]| fixture.error_of(words);
    assert_eq!(refused(&["ls", at[0], at[1], "--socket", "x"]), (local("--socket"), Some(2)));
    assert_eq!(refused(&["module", "ls", at[0], at[1], "--socket", "x"]), (local("--socket"), Some(2)));
    assert_eq!(refused(&["get", at[0], at[1], "--device", "soft", "a", "b"]), (local("--device"), Some(2)));
    let remote =
        |option: &str| format!("error: {option} is for a remote broker: give its --at URL too, or omit {option}\n");
    assert_eq!(refused(&["ls", "--ca", "c.pem"]), (remote("--ca"), Some(2)));
    assert_eq!(refused(&["devices", "--token-file", "t"]), (remote("--token-file"), Some(2)));
}
