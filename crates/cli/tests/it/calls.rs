//! `freehold module` and `freehold call`: their output, their errors for bad input, and their exit status.

use crate::broker_fixture;

use std::ops::Deref;

use broker_fixture::BrokerFixture;

const KERNELS: &str = include_str!("../../../broker/tests/calls/kernels.ptx");

/// How long a kernel may run in most tests, in seconds. No machine is so slow that a kernel which ends by itself takes as
/// long.
const LAUNCH_TIME: &str = "1000";

/// The same for the test that waits until a kernel is killed.
const SHORT_LAUNCH_TIME: &str = "2.5";

/// A broker that ends kernels after a while.
struct CallFixture(BrokerFixture);

impl Deref for CallFixture {
    type Target = BrokerFixture;

    fn deref(&self) -> &BrokerFixture {
        &self.0
    }
}

impl CallFixture {
    fn new() -> Self {
        Self::with_launch_time(LAUNCH_TIME)
    }

    fn with_launch_time(seconds: &str) -> Self {
        Self(BrokerFixture::with(&["--launch-time", seconds]))
    }

    /// Returns the error and status of a command that fails.
    fn error_of(&self, words: &[&str]) -> (String, i32) {
        let (error, status) = self.0.error_of(words);
        (error, status.expect("the command exits"))
    }

    /// Returns published memory as numbers.
    fn floats(&self, name: &str) -> Vec<f32> {
        let path = self.sandbox.folder.join("out");
        self.stdout_of(&["get", name, "-o", path.to_str().expect("text")]);
        let bytes = std::fs::read(path).expect("the file was written");
        bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
    }

    /// Starts a broker with a module of kernels, and with `y` and `x` of 1000 numbers.
    fn with_memory(launch_time: &str) -> Self {
        let fixture = Self::with_launch_time(launch_time);
        fixture.stdout_of(&["module", "put", &fixture.file("kernels.ptx", KERNELS.as_bytes()), "--name", "blas/saxpy"]);
        for (name, number) in [("y", 1.0_f32), ("x", 2.0)] {
            let bytes: Vec<u8> = (0..1000).flat_map(|_| number.to_le_bytes()).collect();
            fixture.stdout_of(&["put", &fixture.file(name, &bytes), "--name", name]);
        }
        fixture
    }

    fn call(&self, kernel: &str, arguments: &[&str]) -> (String, i32) {
        let mut words = vec!["call", "blas/saxpy", kernel, "--grid", "4", "--block", "256"];
        arguments.iter().for_each(|argument| words.extend(["--arg", argument]));
        self.error_of(&words)
    }
}

#[test]
fn a_stopped_broker_counts_names_and_modules_apart() {
    let fixture = CallFixture::with_memory(LAUNCH_TIME);
    let lost = fixture.stdout_of(&["stop", "--force"]);
    assert!(lost.ends_with(" stopped; 2 names with 7.8 KiB and 1 module are lost\n"), "{lost}");
}

#[test]
fn a_module_is_put_listed_and_dropped() {
    let fixture = CallFixture::new();
    assert_eq!(fixture.stdout_of(&["module", "ls"]), "no modules; publish one with `freehold module put NAME FILE`\n");
    let file = fixture.file("kernels.ptx", KERNELS.as_bytes());
    let kernels =
        "empty(), saxpy(u64, u64, f32, u32), step(u64, u32, u32), spin(u64), stray(u64, u64), sum(u64, 12 bytes)";
    assert_eq!(
        fixture.stdout_of(&["module", "put", &file, "--name", "blas/saxpy"]),
        format!("blas/saxpy: {kernels}\n")
    );
    // The file is the argument that exists, in either order.
    for words in [["a", file.as_str()], [file.as_str(), "a"]] {
        assert_eq!(fixture.stdout_of(&["module", "put", words[0], words[1]]), format!("a: {kernels}\n"));
        assert_eq!(fixture.stdout_of(&["module", "drop", "a"]), "a: dropped\n");
    }
    let (said, _) = fixture.error_of(&["module", "put", &file]);
    assert_eq!(said, format!("error: {file} needs a name: use `freehold module put NAME {file}`\n"));
    let listed = fixture.stdout_of(&["module", "ls"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "name              size  hash          kernels");
    assert!(lines[1].starts_with("blas/saxpy     2.5 KiB  ") && lines[1].ends_with(kernels), "{}", lines[1]);
    let told: serde_json::Value =
        serde_json::from_str(&fixture.stdout_of(&["module", "ls", "--json"])).expect("one JSON object");
    let module = &told["modules"][0];
    assert_eq!((module["name"].as_str(), module["bytes"].as_u64()), (Some("blas/saxpy"), Some(KERNELS.len() as u64)));
    assert_eq!(module["kernels"][1]["parameters"], serde_json::json!(["u64", "u64", "f32", "u32"]));
    assert_eq!(module["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(fixture.stdout_of(&["module", "drop", "blas/saxpy"]), "blas/saxpy: dropped\n");
    assert_eq!(fixture.stdout_of(&["module", "ls", "--json"]), "{\"modules\":[]}\n");
}

#[test]
fn a_call_changes_what_has_a_name_and_reads_what_it_is_to_read() {
    let fixture = CallFixture::with_memory(LAUNCH_TIME);
    let arguments = ["lease:y", "read:x", "f32:3.0", "u32:1000"];
    let mut words = vec!["call", "blas/saxpy", "saxpy", "--grid", "4", "--block", "256"];
    arguments.iter().for_each(|argument| words.extend(["--arg", argument]));
    let said = fixture.stdout_of(&words);
    assert!(said.starts_with("saxpy of blas/saxpy: done in "), "{said}");
    assert_eq!(fixture.floats("y"), [7.0; 1000]);
    assert_eq!(fixture.floats("x"), [2.0; 1000]);
    words.push("--json");
    let told: serde_json::Value = serde_json::from_str(&fixture.stdout_of(&words)).expect("one JSON object");
    assert_eq!((told["module"].as_str(), told["kernel"].as_str()), (Some("blas/saxpy"), Some("saxpy")));
    assert!(told["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert_eq!(fixture.floats("y"), [13.0; 1000]);
    // With an offset, and with the same name twice.
    assert_eq!(fixture.call("saxpy", &["lease:y+400", "lease:y", "f32:1.0", "u32:10"]).1, 0);
    let y = fixture.floats("y");
    assert_eq!((&y[..100], &y[100..110], &y[110..]), (&[13.0; 100][..], &[26.0; 10][..], &[13.0; 890][..]));
}

#[test]
fn every_bad_call_is_one_sentence_and_changes_nothing() {
    let fixture = CallFixture::with_memory(LAUNCH_TIME);
    let good = ["lease:y", "read:x", "f32:3.0", "u32:1000"];
    let wrong = |said: &str| (format!("error: {said}\n"), 2);
    let with = |at: usize, argument: &'static str| {
        let mut arguments = good;
        arguments[at] = argument;
        fixture.call("saxpy", &arguments)
    };
    assert_eq!(
        fixture.error_of(&["call", "blas/saxpi", "saxpy", "--grid", "1", "--block", "1"]),
        (
            "error: there is no module blas/saxpi: `freehold module put blas/saxpi FILE` makes one; nearest: \
             blas/saxpy\n"
                .to_owned(),
            1
        )
    );
    assert_eq!(
        fixture.call("saxpi", &good),
        wrong("module blas/saxpy has no kernel saxpi; it has empty, saxpy, step, spin, stray, sum")
    );
    assert_eq!(fixture.call("saxpy", &good[..3]), wrong("kernel saxpy takes 4 arguments, 3 were given"));
    assert_eq!(with(2, "u32:3"), wrong("argument 3 of saxpy is f32, u32 was given"));
    assert_eq!(with(3, "u64:3"), wrong("argument 4 of saxpy is u32, u64 was given"));
    assert_eq!(with(3, "read:x"), wrong("argument 4 of saxpy is u32: a lease needs a parameter of 8 bytes"));
    assert_eq!(with(1, "read:x+4000"), wrong("argument 2 of saxpy begins at byte 4000 of a lease of 4000 bytes"));
    let (said, status) = with(1, "read:z");
    assert!(said == "error: z: there is no such name\n" && status == 1, "{said}");
    let (said, status) = with(2, "f33:3.0");
    assert!(said.contains("unknown kind \"f33\"") && status == 2, "{said}");
    let (said, status) = fixture.error_of(&["call", "blas/saxpy", "empty", "--grid", "0", "--block", "1"]);
    assert!(
        said.contains("expected one to three positive numbers such as 4096 or 64,64, found \"0\"") && status == 2,
        "{said}"
    );
    let (said, status) = fixture.error_of(&["call", "blas/saxpy", "empty", "--grid", "1", "--block", "2000"]);
    assert!(said.ends_with("[1, 1, 1] of [2000, 1, 1] requested\n") && status == 2, "{said}");
    assert_eq!(fixture.floats("y"), [1.0; 1000]);
    assert_eq!(fixture.call("saxpy", &good).1, 0, "a valid call failed");
}

#[test]
fn a_kernel_that_goes_wrong_is_named_and_leaves_what_was_published() {
    let fixture = CallFixture::with_memory(SHORT_LAUNCH_TIME);
    let may = "it may have been executed, as a whole or in part";
    let (said, status) = fixture.call("stray", &["lease:y", "u64:1099511627776"]);
    let start = "error: kernel stray of blas/saxpy ended its worker: CUDA_ERROR_ILLEGAL_ADDRESS (700), PTX line 89, block \
                 (0,0,0), thread (0,0,0) writes 4 bytes of global memory at 0x";
    assert!(said.starts_with(start) && said.ends_with(&format!("; {may}\n")), "{said}");
    assert_eq!(status, 1);
    assert_eq!(
        fixture.call("spin", &["lease:y"]),
        (format!("error: kernel spin of blas/saxpy ran for more than 2.5 s and was ended; {may}\n"), 1)
    );
    let (said, status) = fixture.call("saxpy", &["read:y", "read:x", "f32:3.0", "u32:1000"]);
    assert!(said.contains("ended its worker") && status == 1, "a lease for reading was written: {said}");
    assert_eq!(fixture.floats("y"), [1.0; 1000]);
}

#[test]
fn every_bad_module_is_one_sentence() {
    let fixture = CallFixture::new();
    let folder = fixture.sandbox.folder.to_str().expect("text").to_owned();
    let put = |file: &str| fixture.error_of(&["module", "put", file, "--name", "a"]);
    let nowhere = format!("{folder}/nowhere");
    assert_eq!(put(&nowhere), (format!("error: {nowhere}: No such file or directory (os error 2)\n"), 2));
    assert_eq!(put(&folder), (format!("error: {folder}: not a regular file: expected a PTX file\n"), 2));
    assert_eq!(
        put(&fixture.file("none", b"")),
        ("error: a module has 1 to 16777216 bytes, this one 0\n".to_owned(), 2)
    );
    let (said, status) = put(&fixture.file("elf", b"\x7fELF\xff"));
    assert!(said.ends_with("not UTF-8: expected PTX, as written by `nvcc -ptx`\n") && status == 2, "{said}");
    let broken = KERNELS.replace("fma.rn.f32 %f3", "fma.rn.f32 %nowhere");
    let (said, status) = put(&fixture.file("broken", broken.as_bytes()));
    assert!(said.starts_with("error: the module does not compile:\n") && said.contains("line 35"), "{said}");
    assert_eq!(status, 2);
    let none = "error: there is no module a: `freehold module put a FILE` makes one\n";
    assert_eq!(fixture.error_of(&["module", "drop", "a"]), (none.to_owned(), 1));
    let (said, status) = fixture.error_of(&["module", "put", &nowhere, "--name", "/a"]);
    assert!(said.contains("part 1 of the name has 0 bytes") && status == 2, "{said}");
    let unserved = fixture.error_of(&["module", "ls", "--socket", &nowhere]);
    assert_eq!(unserved, (format!("error: no broker is running at {nowhere}: start one with `freehold serve`\n"), 3));
}

#[test]
fn the_librarys_own_module_is_not_listed() {
    let fixture = CallFixture::with_memory(LAUNCH_TIME);
    // Before a kernel writes published memory, the library copies it with a kernel of its own.
    assert_eq!(fixture.call("stray", &["lease:y", "u64:0"]).1, 0);
    let listed = fixture.stdout_of(&["module", "ls"]);
    let names: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["blas/saxpy"]);
}
