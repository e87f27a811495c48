//! `freehold check` from the command line. Most programs are shell scripts that append findings to the file themselves, as the
//! software device does; the C program beside this file has errors that the software device finds.

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::{binary, cache, output, refused_with, text};
use freehold_testing::process::Sandbox;
use serde_json::Value;

/// Returns `freehold check OPTIONS -- WORDS`, with the libraries in the tests' cache.
fn check(options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.env("XDG_CACHE_HOME", cache()).stdin(Stdio::null());
    for name in
        ["FREEHOLD_DEVICE", "FREEHOLD_CHECK", "FREEHOLD_CHECK_CALLS", "FREEHOLD_SOFT_SCHEDULE", "LD_LIBRARY_PATH"]
    {
        command.env_remove(name);
    }
    command.arg("check").args(options).arg("--").args(words);
    command
}

/// Returns the same for a script, in which `add NAME` reports a leak of memory that a function of this name allocated, and
/// `race` a race.
fn script(options: &[&str], body: &str) -> Command {
    let functions = r#"
        add() {
            printf '{"kind":"leak","message":"%s leaks","memory":{"address":512,"bytes":64,"offset":0,"allocated":{"function":"cuMemAlloc","stack":[{"function":"%s"}]}},"process":%d}\n' "$1" "$1" $$ >> "$FREEHOLD_CHECK"
        }
        race() {
            printf '{"kind":"stream-race","message":"a race","access":{"action":"writes 4 bytes","location":{"function":"k","source":"k.cu:3"},"position":{"stream":2,"work":1}},"other":{"action":"reads 4 bytes","location":{"function":"k","source":"k.cu:5"},"position":{"stream":1,"work":1}}}\n' >> "$FREEHOLD_CHECK"
        }"#;
    check(options, &["sh", "-c", &format!("{functions}\n{body}")])
}

/// Returns the last line on standard error, and the exit status.
/// What is said of programs that do not use CUDA.
const NOTHING: &str = "nothing was checked: no process of the program used a CUDA device";

fn summary(command: &mut Command) -> (String, Option<i32>) {
    let output = output(command);
    let last = text(&output.stderr).lines().last().unwrap_or_default().to_owned();
    (last, output.status.code())
}

fn ended(summary: &str, status: i32) -> (String, Option<i32>) {
    (summary.to_owned(), Some(status))
}

/// Starts a command with piped streams, and returns it when the program has printed `ready`.
fn started(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut ready = [0; 6];
    let stdout = child.stdout.as_mut().expect("the output is piped");
    stdout.read_exact(&mut ready).expect("the program prints that it is ready");
    assert_eq!(&ready, b"ready\n");
    child
}

/// Returns what a command printed until it ended. Its input stays open until then: the end of it would end some programs.
fn ended_with_open_input(mut child: Child) -> Output {
    let input = child.stdin.take();
    let output = child.wait_with_output().expect("it is a child of this process");
    drop(input);
    output
}

fn signal(child: &Child, signal: i32) {
    let id = i32::try_from(child.id()).expect("an id fits");
    // SAFETY: the child was not waited for yet, so the id is still its own.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

#[test]
fn without_findings_the_status_is_the_programs() {
    assert_eq!(summary(&mut check(&[], &["true"])), ended(NOTHING, 0));
    assert_eq!(summary(&mut script(&[], "exit 7")), ended(NOTHING, 7));
    assert_eq!(summary(&mut script(&[], "kill -SEGV $$")), ended(NOTHING, 139));
    let output = output(&mut check(&[], &["true"]));
    assert_eq!(
        (text(&output.stdout).to_owned(), text(&output.stderr).to_owned()),
        (String::new(), format!("{NOTHING}\n"))
    );
}

#[test]
fn a_program_that_only_counts_devices_is_not_checked() {
    let program = common::runtime_program(&Path::new("check").join("streams"), &["-g", "-pthread"]);
    let program = program.to_str().expect("the path is text");
    assert_eq!(summary(&mut check(&[], &[program, "count"])), ended(NOTHING, 0));
    assert_eq!(summary(&mut check(&[], &[program])), ended("no findings", 0));
}

#[test]
fn an_unknown_option_is_a_usage_error_and_no_program() {
    let (told, status) = summary(Command::new(binary()).args(["check", "--suppresions", "known.txt", "true"]));
    assert!(told.contains("unknown option '--suppresions'") && status == Some(2), "{told} {status:?}");
}

#[test]
fn findings_make_the_status_one() {
    assert_eq!(summary(&mut script(&[], "add f")), ended("1 finding: 1 leak", 1));
    assert_eq!(summary(&mut script(&[], "add f; exit 7")), ended("1 finding: 1 leak", 1));
    let output = output(&mut script(&[], "race; add f; add f; add g; echo printed; echo told >&2"));
    assert_eq!(text(&output.stdout), "printed\n");
    let expected = "told
stream-race: a race
  k writes 4 bytes
    at k.cu:3, stream 2, work 1
  k reads 4 bytes
    at k.cu:5, stream 1, work 1

leak: f leaks (2 times)
  memory: a block of 64 bytes at 0x200
    allocated by cuMemAlloc
      f

leak: g leaks
  memory: a block of 64 bytes at 0x200
    allocated by cuMemAlloc
      g

3 findings: 1 stream-race, 2 leak
";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn the_program_has_the_software_device_and_a_private_file_that_is_removed() {
    let show = "test -e \"${LD_LIBRARY_PATH%%:*}/libcuda.so.1\" && echo \"$FREEHOLD_DEVICE $FREEHOLD_SOFT_SCHEDULE\" \
                && echo \"$FREEHOLD_CHECK\" && stat -c %a \"$FREEHOLD_CHECK\"";
    let output = output(&mut script(&["--seed", "42"], show));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!([lines[0], lines[2]], ["soft seed:42", "600"]);
    let file = PathBuf::from(lines[1]);
    assert!(file.is_absolute() && !file.exists() && !file.parent().unwrap().exists(), "{}", file.display());
}

#[test]
fn findings_of_all_processes_are_reported() {
    let two = "add parent; sh -c 'kill -KILL $$' & (add child; exit 3) & wait";
    assert_eq!(summary(&mut script(&[], two)), ended("2 findings: 2 leak", 1));
}

#[test]
fn processes_that_outlive_the_program_are_waited_for() {
    let sandbox = Sandbox::new("check");
    let pipe = sandbox.folder.join("pipe");
    // Only the program has the pipe open for writing, so the orphan goes on when the program has exited.
    let orphan = format!("mkfifo {0}; {{ cat < {0}; add orphan; }} & exec 3> {0}; exit 4", pipe.display());
    assert_eq!(summary(&mut script(&[], &orphan)), ended("1 finding: 1 leak", 1));
}

#[test]
fn a_second_signal_ends_the_wait_for_processes_that_the_program_left() {
    let body = "trap '' TERM USR1; exec 3<&0; cat <&3 >/dev/null 2>/dev/null & echo ready; exit 4";
    let mut child = started(&mut script(&[], body));
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let start = "the program has exited; waiting for the processes that it started: ";
    assert!(line.starts_with(start) && line.trim_end().len() > start.len(), "{line}");
    // Two pending signals of a kind would count as one.
    signal(&child, libc::SIGTERM);
    signal(&child, libc::SIGUSR1);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, format!("{NOTHING}\n"));
    assert_eq!(ended_with_open_input(child).status.code(), Some(4));
}

#[test]
fn a_killed_program_and_a_truncated_line_leave_the_findings_before() {
    let killed = "add f; printf '{\"kind\":\"leak\",\"mess' >> \"$FREEHOLD_CHECK\"; kill -KILL $$";
    let output = output(&mut script(&[], killed));
    let said = text(&output.stderr);
    assert!(said.ends_with("the program was ended by SIGKILL\n1 finding: 1 leak\n"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(summary(&mut script(&[], "printf '{\"kind\"' >> \"$FREEHOLD_CHECK\"")), ended(NOTHING, 0));
}

#[test]
fn a_line_that_cannot_be_read_is_not_success() {
    let output = output(&mut script(&["--quiet"], "echo nonsense >> \"$FREEHOLD_CHECK\""));
    let told = format!("1 line in the file of findings cannot be read: another version wrote them\n{NOTHING}\n");
    assert_eq!((text(&output.stderr).to_owned(), output.status.code()), (told, Some(1)));
}

#[test]
fn a_signal_is_passed_to_the_program_and_its_findings_are_reported() {
    // Not SIGINT, which is ignored in what a shell starts in the background.
    for (number, name) in [(libc::SIGTERM, "TERM"), (libc::SIGUSR1, "USR1")] {
        let body = format!("trap 'add f; exit 3' {name}; echo ready; while :; do read -r line || :; done");
        let mut child = started(&mut script(&[], &body));
        signal(&child, number);
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        assert!(text(&output.stderr).ends_with("1 finding: 1 leak\n"), "{}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{name}");
    }
}

#[test]
fn a_program_that_a_passed_signal_ends_has_the_status_of_shells() {
    let child = started(&mut script(&[], "echo ready; exec cat"));
    signal(&child, libc::SIGTERM);
    let output = ended_with_open_input(child);
    assert_eq!(text(&output.stderr), format!("the program was ended by SIGTERM\n{NOTHING}\n"));
    assert_eq!(output.status.code(), Some(143));
}

#[test]
fn a_program_that_hangs_for_three_seconds_is_ended_and_what_it_found_is_reported() {
    let mut command = script(&["--timeout", "3", "--json", "-"], "add f; exec cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = ended_with_open_input(command.spawn().unwrap());
    let end = "the program was ended by SIGTERM after its time was up\n1 finding: 1 leak\n";
    assert!(text(&output.stderr).ends_with(end), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["status"], &document["timed_out"]), (&143.into(), &true.into()));
}

#[test]
fn a_program_that_ignores_the_end_of_its_time_is_killed_with_its_children() {
    let mut outer = Command::new("sh");
    // What a shell ignores, the programs that it starts ignore too.
    outer.args(["-c", "trap '' TERM; exec \"$@\"", "sh"]).arg(binary());
    outer
        .args(["check", "--timeout", "0.1", "--", "sh", "-c", "exec 3<&0; cat <&3 & cat"])
        .env("XDG_CACHE_HOME", cache());
    outer.stdin(Stdio::piped()).stderr(Stdio::piped());
    let output = ended_with_open_input(outer.spawn().unwrap());
    assert!(text(&output.stderr).ends_with(&format!("was ended by SIGKILL after its time was up\n{NOTHING}\n")));
    assert_eq!(output.status.code(), Some(137));
}

#[test]
fn a_program_that_cannot_be_started_has_the_status_of_shells() {
    let missing = output(&mut check(&[], &["no-such-program"]));
    let sentence = "error: failed to run no-such-program: it is not in PATH; a program in this folder needs ./\n";
    assert_eq!((text(&missing.stderr), missing.status.code()), (sentence, Some(127)));
    let folder = output(&mut check(&[], &["/"]));
    let sentence = "error: failed to run /: it is a folder, not a program\n";
    assert_eq!((text(&folder.stderr), folder.status.code()), (sentence, Some(126)));
}

#[test]
fn bad_options_are_one_sentence() {
    let help = "see `freehold check --help`";
    let missing = format!("the following required arguments were not provided: <PROGRAM>...; {help}");
    refused_with(Command::new(binary()).arg("check"), &missing);
    let seconds = "expected a number of seconds such as 30 or 0.5, found \"soon\"";
    let sentence = format!("invalid value 'soon' for '--timeout <SECONDS>': {seconds}; {help}");
    refused_with(&mut check(&["--timeout", "soon"], &["true"]), &sentence);
    let kinds = output(&mut check(&["--kinds", "leak,raec"], &["true"]));
    let start = "error: invalid value 'raec' for '--kinds <LIST>': unknown kind \"raec\": expected stream-race, ";
    assert!(text(&kinds.stderr).starts_with(start), "{}", text(&kinds.stderr));
    assert_eq!(kinds.status.code(), Some(2));
    let unsupported = "unsupported device \"opencl\": expected soft, cuda or cuda:N";
    refused_with(&mut check(&["--device", "opencl"], &["true"]), unsupported);
    let seed = "--seed needs the software device: the order of work on a GPU cannot be chosen";
    refused_with(&mut check(&["--device", "cuda:1", "--seed", "3"], &["true"]), seed);
    let search = "--search needs the software device: a GPU has no schedules";
    refused_with(&mut check(&["--device", "cuda", "--search"], &["true"]), search);
    let alone = "the following required arguments were not provided: --search; see `freehold check --help`";
    refused_with(&mut check(&["--search-runs", "3"], &["true"]), alone);
    let unknown = r#"unknown device "gpu": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N"#;
    refused_with(&mut check(&["--device", "gpu"], &["true"]), unknown);
    let both = "only one of --json, --sarif and --html can be written to standard output";
    refused_with(&mut check(&["--json", "-", "--sarif", "-"], &["true"]), both);
}

#[test]
fn only_requested_kinds_are_reported() {
    let kinds = |list: &str| summary(&mut script(&["--kinds", list], "race; add f; exit 5"));
    assert_eq!(kinds("leak"), ended("1 finding: 1 leak", 1));
    assert_eq!(kinds("leak,stream-race"), ended("2 findings: 1 stream-race, 1 leak", 1));
    assert_eq!(kinds("double-free"), ended("no findings", 5));
}

#[test]
fn suppressions_hide_findings_and_unused_ones_are_named() {
    let sandbox = Sandbox::new("check");
    let first = sandbox.file("first", "# known\nleak:f\nleak:never*\n");
    let second = sandbox.file("second", "stream-race:*.cu:5\n");
    let paths = [&first, &second].map(|path| path.to_str().unwrap());
    let options = ["--suppressions", paths[0], "--suppressions", paths[1]];
    let all = output(&mut script(&options, "race; add f; add g"));
    let end = format!("{}:3: the suppression leak:never* never matched\n1 finding: 1 leak; 2 suppressed\n", paths[0]);
    assert!(text(&all.stderr).ends_with(&end), "{}", text(&all.stderr));
    assert_eq!(all.status.code(), Some(1));
    let options = ["--suppressions", paths[0], "--suppressions", paths[1], "--quiet"];
    let quiet = output(&mut script(&options, "race; add f; exit 6"));
    assert_eq!((text(&quiet.stderr), quiet.status.code()), ("no findings; 2 suppressed\n", Some(6)));
}

#[test]
fn a_bad_suppression_file_is_an_error_before_the_program_runs() {
    let sandbox = Sandbox::new("check");
    let bad = sandbox.file("bad", "leak:f\nleak f\n");
    let path = bad.to_str().unwrap();
    let run = |path: &str| check(&["--suppressions", path], &["touch", sandbox.folder.join("ran").to_str().unwrap()]);
    refused_with(&mut run(path), &format!("{path}:2: expected kind:pattern or *:pattern, found \"leak f\""));
    fs::write(&bad, "laek:f\n").unwrap();
    let said = output(&mut run(path));
    let start = format!("error: {path}:1: unknown kind \"laek\": expected stream-race, reuse-race, ");
    assert!(text(&said.stderr).starts_with(&start), "{}", text(&said.stderr));
    let missing = sandbox.folder.join("missing");
    let sentence = format!("failed to read {}: No such file or directory (os error 2)", missing.display());
    refused_with(&mut run(missing.to_str().unwrap()), &sentence);
    assert!(!sandbox.folder.join("ran").exists());
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_before_the_program_runs() {
    let sandbox = Sandbox::new("check");
    let ran = sandbox.folder.join("ran");
    for option in ["--json", "--sarif", "--html"] {
        let mut command = check(&[option, "/no/such/folder/file"], &["touch", ran.to_str().unwrap()]);
        refused_with(&mut command, "failed to write /no/such/folder/file: No such file or directory (os error 2)");
    }
    assert!(!ran.exists());
}

#[test]
fn two_reports_in_one_file_are_an_error_before_the_program_runs() {
    let sandbox = Sandbox::new("check");
    let (ran, file) = (sandbox.folder.join("ran"), sandbox.folder.join("report"));
    let other = sandbox.folder.join(".").join("report");
    for existing in [false, true] {
        if existing {
            fs::write(&file, "before").unwrap();
        }
        let options = ["--json", file.to_str().unwrap(), "--sarif", other.to_str().unwrap()];
        let sentence = format!("only one of --json, --sarif and --html can be written to {}", other.display());
        refused_with(&mut check(&options, &["touch", ran.to_str().unwrap()]), &sentence);
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), existing.then_some("before"));
    }
    assert!(!ran.exists());
}

#[test]
fn json_on_standard_output_is_one_document_after_the_programs_own_output() {
    let output = output(&mut script(&["--json", "-"], "race; add f; add f; echo own; exit 9"));
    let (own, document) = text(&output.stdout).split_once('\n').unwrap();
    assert_eq!(own, "own");
    let document: Value = serde_json::from_str(document).unwrap();
    assert_eq!((&document["version"], &document["status"]), (&1.into(), &9.into()));
    assert_eq!(document["program"][0], "sh");
    assert_eq!(document["findings"][0]["kind"], "stream-race");
    assert_eq!(document["findings"][1]["count"], 2);
    assert_eq!(document["suppressed"], Value::Array(Vec::new()));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn files_have_all_findings_and_text_the_first_twenty() {
    let sandbox = Sandbox::new("check");
    let files = ["json", "sarif", "html"].map(|name| sandbox.folder.join(name).to_str().unwrap().to_owned());
    let options = ["--json", &files[0], "--sarif", &files[1], "--html", &files[2]];
    let body = "i=0; while [ $i -lt 25 ]; do add f$i; i=$((i + 1)); done";
    let some = output(&mut script(&options, body));
    let headlines = |said: &[u8]| text(said).lines().filter(|line| line.starts_with("leak: ")).count();
    assert_eq!(headlines(&some.stderr), 20);
    assert!(text(&some.stderr).contains("\n5 more findings: --all shows them"), "{}", text(&some.stderr));
    assert_eq!(headlines(&output(&mut script(&["--all"], body)).stderr), 25);
    let read = |index: usize| fs::read_to_string(&files[index]).unwrap();
    let document: Value = serde_json::from_str(&read(0)).unwrap();
    assert_eq!(document["findings"].as_array().unwrap().len(), 25);
    let document: Value = serde_json::from_str(&read(1)).unwrap();
    assert_eq!(document["runs"][0]["results"].as_array().unwrap().len(), 25);
    assert_eq!(read(2).matches("<article").count(), 25);
}

/// The line of a C program with a comment.
fn line_of(name: &str, comment: &str) -> String {
    let source = match name {
        "host" => include_str!("check/host.c"),
        "calls" => include_str!("check/calls.c"),
        _ => include_str!("check/streams.c"),
    };
    let found = source.lines().position(|line| line.ends_with(&format!("/* {comment} */")));
    format!("{name}.c:{}", 1 + found.expect("the comment is there"))
}

fn line(comment: &str) -> String {
    line_of("streams", comment)
}

fn findings(words: &[&str]) -> Vec<(String, String, Option<String>)> {
    findings_of("streams", words)
}

/// A script that races when it is checked, and does something else under some schedules.
fn searched(options: &[&str], schedules: &str) -> Output {
    let body =
        format!("if [ -n \"$FREEHOLD_CHECK\" ]; then race; fi; case \"$FREEHOLD_SOFT_SCHEDULE\" in {schedules} esac");
    output(&mut script(&[&["--quiet", "--search"], options].concat(), &body))
}

#[test]
fn a_search_finds_a_schedule_with_another_status_and_the_fewest_switches() {
    let found = searched(&["--json", "-"], "seed:40,switches:[12]) exit 3;; seed:50,*) exit 4;;");
    let told =
        "shown by FREEHOLD_SOFT_SCHEDULE=seed:40,switches:1 (1 switch): exit status 3 instead of exit status 0\n";
    assert!(text(&found.stderr).starts_with(told), "{}", text(&found.stderr));
    let replay = "  FREEHOLD_SOFT_SCHEDULE=seed:40,switches:1 freehold run --device soft -- sh -c '";
    assert!(text(&found.stderr).contains(replay), "{}", text(&found.stderr));
    assert!(text(&found.stderr).ends_with("\n1 finding: 1 stream-race\n"));
    assert_eq!(found.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&found.stdout).expect("the report is JSON");
    // 41 seeds, once more to confirm, and twice with fewer switches.
    assert_eq!(document["search"]["runs"], 44);
    assert_eq!(document["search"]["shown"]["schedule"], "seed:40,switches:1");
}

#[test]
fn a_search_compares_what_is_printed_unless_that_changes_from_run_to_run() {
    let found = searched(&[], "seed:2,*) echo other;; *) echo usual;;");
    let told = "seed:2,switches:0 (0 switches): line 1 of standard output is \"other\" instead of \"usual\"\n";
    assert!(text(&found.stderr).contains(told), "{}", text(&found.stderr));
    let found = searched(&["--search-runs", "5"], "*) echo $$;;");
    let told = "no other result in 5 runs under other schedules\n1 finding: 1 stream-race\n";
    assert_eq!(text(&found.stderr), told);
}

#[test]
fn a_search_ignores_a_difference_that_a_second_run_does_not_have() {
    let sandbox = Sandbox::new("check");
    let once = sandbox.folder.join("once");
    let body = format!("seed:3,*) mkdir {} 2>/dev/null && exit 5;;", once.display());
    let found = searched(&["--search-runs", "8"], &format!("{body} *) exit 1;;"));
    assert!(once.exists(), "the schedule was tried");
    assert!(text(&found.stderr).starts_with("no other result in 8 runs"), "{}", text(&found.stderr));
}

#[test]
fn a_search_ends_in_the_middle_of_a_run_when_its_time_is_up() {
    let sandbox = Sandbox::new("check");
    let pipe = sandbox.folder.join("pipe");
    // Nobody ever writes to the pipe, and the program ignores that it is asked to end.
    let hangs = format!("seed*) trap '' TERM; mkfifo {0}; cat {0};;", pipe.display());
    let found = searched(&["--timeout", "100000", "--search-seconds", "3"], &hangs);
    assert!(text(&found.stderr).starts_with("no other result in "), "{}", text(&found.stderr));
    assert_eq!(found.status.code(), Some(1));
}

#[test]
fn there_is_no_search_without_a_finding_that_order_shows() {
    let folder = Sandbox::new("check");
    let file = folder.folder.join("runs");
    let body = format!("echo run >> {}; add f", file.display());
    assert_eq!(summary(&mut script(&["--search"], &body)), ended("1 finding: 1 leak", 1));
    assert_eq!(fs::read_to_string(&file).expect("the script wrote it"), "run\n");
}

/// Returns the findings of a C program for some words, as kinds and the places of both accesses.
fn findings_of(name: &str, words: &[&str]) -> Vec<(String, String, Option<String>)> {
    let program = common::runtime_program(&Path::new("check").join(name), &["-g", "-pthread"]);
    findings_with(&["--leaks"], &program, words)
}

fn findings_with(options: &[&str], program: &Path, words: &[&str]) -> Vec<(String, String, Option<String>)> {
    let program = program.to_str().expect("the path is text");
    let options = [options, &["--quiet", "--json", "-"]].concat();
    let output = output(&mut check(&options, &[&[program], words].concat()));
    let printed = text(&output.stdout);
    let json = printed.strip_prefix("done\n").unwrap_or_else(|| panic!("{printed}{}", text(&output.stderr)));
    let report: Value = serde_json::from_str(json).expect("the report is JSON");
    let found = report["findings"].as_array().expect("the report has findings");
    assert_eq!(output.status.code(), Some(i32::from(!found.is_empty())));
    let place = |access: &Value| {
        // Functions of the program for one call have no line of their own.
        let inner = ["touch", "handed_out", "freed", "fill", "move", "move_down", "compare"];
        let is_own = |frame: &&Value| !inner.iter().any(|name| frame["function"] == **name);
        let source = access["location"]["stack"].as_array()?.iter().find(is_own)?["source"].as_str()?;
        Some(source.rsplit('/').next().unwrap_or_default().to_owned())
    };
    let kind = |finding: &Value| finding["kind"].as_str().unwrap_or_default().to_owned();
    found
        .iter()
        .map(|finding| (kind(finding), place(&finding["access"]).unwrap_or_default(), place(&finding["other"])))
        .collect()
}

#[test]
fn errors_of_a_program_are_found_in_one_run_with_both_places() {
    let two = |kind: &str, access, other| vec![(kind.to_owned(), line(access), Some(line(other)))];
    assert_eq!(findings(&["race"]), two("stream-race", "access", "other"));
    assert_eq!(findings(&["early"]), two("use-before-allocation", "used", "allocated"));
    assert_eq!(findings(&["twice"]), [("double-free".to_owned(), line("freed"), None)]);
    let leaks = findings(&["leak"]);
    assert_eq!((leaks.len(), leaks[0].0.as_str()), (1, "leak"));
}

#[test]
fn a_correct_program_has_no_findings() {
    for kind in ["race", "early", "twice", "leak"] {
        assert_eq!(findings(&[kind, "fixed"]), [], "{kind}");
    }
}

/// The errors that are visible at calls: the word of the program, the kind, and the comments at both places.
const AT_CALLS: &[(&str, &str, &str, &str)] = &[
    ("copy", "stream-race", "launched", "copied"),
    ("rows", "stream-race", "right", "left"),
    ("legacy", "stream-race", "unordered", "filled"),
    ("waits", "stream-race", "late", "early"),
    ("callback", "stream-race", "beside", "after"),
    ("free", "free-in-use", "freed", "user"),
    ("after", "use-after-free", "used", "gone"),
    ("pinned", "host-memory-freed", "unpinned", "upload"),
    ("reuse", "reuse-race", "heir", "owner"),
    ("beyond", "out-of-bounds", "overrun", "handed"),
    ("interior", "interior-free", "inside", ""),
    ("kind", "invalid-free", "wrong", ""),
    ("graph", "stream-race", "concurrent", "graph"),
    ("child", "stream-race", "beside_child", "child"),
    ("open", "unjoined-capture", "begun", ""),
    ("context", "double-free", "again", ""),
    ("library", "module-in-use", "unloaded", ""),
    ("stream", "stream-in-use", "stale", ""),
];

#[test]
fn errors_at_calls_are_found_without_the_accesses_of_kernels() {
    let program = common::runtime_program(Path::new("check/calls"), &["-g"]);
    for (word, kind, access, other) in AT_CALLS {
        let other = (!other.is_empty()).then(|| line_of("calls", other));
        let expected = [((*kind).to_owned(), line_of("calls", access), other)];
        assert_eq!(findings_with(&["--calls-only"], &program, &[word]), expected, "{word}");
    }
}

#[test]
fn programs_that_are_correct_have_no_findings_at_calls() {
    let program = common::runtime_program(Path::new("check/calls"), &["-g"]);
    let options = &["--calls-only", "--leaks"];
    for (word, ..) in AT_CALLS {
        assert_eq!(findings_with(options, &program, &[word, "fixed"]), [], "{word}");
    }
    // What a kernel does with a block is not known.
    assert_eq!(findings_with(options, &program, &["part"]), []);
}

#[test]
fn a_variable_of_a_module_in_the_memory_of_a_freed_block_is_not_that_block() {
    let program = common::runtime_program(Path::new("check/calls"), &["-g"]);
    assert_eq!(findings_with(&["--leaks"], &program, &["variable"]), []);
}

#[test]
fn leaks_and_second_frees_are_found_at_calls() {
    let program = common::runtime_program(Path::new("check/streams"), &["-g"]);
    let found = |word| findings_with(&["--calls-only", "--leaks"], &program, &[word]);
    assert_eq!(found("twice"), [("double-free".to_owned(), line("freed"), None)]);
    assert_eq!(found("leak").iter().map(|(kind, ..)| kind.as_str()).collect::<Vec<_>>(), ["leak"]);
}

#[test]
fn what_the_driver_keeps_in_memory_that_the_program_freed_is_not_reported() {
    for word in ["count", "keep", "array"] {
        assert_eq!(findings_of("reused", &[word]), [], "{word}");
    }
}

#[test]
fn the_last_destructors_of_a_thread_can_call_the_driver() {
    assert_eq!(findings_of("thread_end", &[]), []);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn loads_and_stores_of_the_host_race_with_copies() {
    let races = |access, other| vec![("host-race".to_owned(), line_of("host", access), Some(line_of("host", other)))];
    assert_eq!(findings_of("host", &["store"]), races("store", "copy to the device"));
    assert_eq!(findings_of("host", &["load"]), races("load", "copy to the host"));
    assert_eq!(findings_of("host", &["thread"]), races("in a thread", "copy to the device"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn each_byte_that_an_instruction_with_a_repeat_prefix_accesses_can_race() {
    let races = |access, other| vec![("host-race".to_owned(), line_of("host", access), Some(line_of("host", other)))];
    assert_eq!(findings_of("host", &["fill"]), races("fill", "copy of a word"));
    assert_eq!(findings_of("host", &["move"]), races("move", "copy to a word"));
    assert_eq!(findings_of("host", &["down"]), races("move down", "copy of a later word"));
    assert_eq!(findings_of("host", &["compare"]), races("comparison", "copy to what is compared"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn many_accesses_to_other_bytes_of_a_page_do_not_hide_a_race() {
    let races =
        |access| vec![("host-race".to_owned(), line_of("host", access), Some(line_of("host", "copy to the device")))];
    assert_eq!(findings_of("host", &["fills"]), races("store after fills"));
    assert_eq!(findings_of("host", &["scan"]), races("store after many loads"));
}

#[test]
fn a_program_that_polls_a_value_may_know_what_has_completed() {
    assert_eq!(findings_of("host", &["poll"]), []);
}

/// What a program whose accesses are watched prints, and how it ends.
fn of_signals(word: &str) -> (String, Option<i32>) {
    let program = common::runtime_program(Path::new("check/signals"), &["-g", "-pthread"]);
    let output = output(&mut check(&["--quiet"], &[program.to_str().expect("the path is text"), word]));
    (text(&output.stdout).to_owned(), output.status.code())
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_fault_ends_the_program_after_each_of_its_handlers_was_called_once() {
    assert_eq!(of_signals("chain"), ended("first\n", 139));
    assert_eq!(of_signals("long"), ended("second\nfirst\n", 139));
    assert_eq!(of_signals("early"), ended("second\nfirst\n", 139));
    assert_eq!(of_signals("once"), ended("once\n", 139));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_handler_that_leaves_with_longjmp_is_called_for_the_next_fault() {
    assert_eq!(of_signals("jumps"), ended("done\n", 0));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn signals_that_are_sent_do_what_they_do_without_the_checker() {
    assert_eq!(of_signals("raised"), ended("", 139));
    assert_eq!(of_signals("sent"), ended("", 139));
    assert_eq!(of_signals("trapped"), ended("", 133));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_handler_of_the_program_runs_with_the_signals_blocked_that_it_asks_for() {
    assert_eq!(of_signals("mask"), ended("done\n", 0));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn accesses_from_small_stacks_are_watched_on_the_stack_for_signals() {
    assert_eq!(of_signals("stacks"), ended("done\n", 0));
}

#[test]
fn loads_and_stores_of_the_host_that_are_ordered_or_elsewhere_are_not_reported() {
    for word in ["halves", "reads", "handler", "flag"] {
        assert_eq!(findings_of("host", &[word]), [], "{word}");
    }
}

#[test]
fn loads_and_stores_of_the_host_are_not_watched_if_that_is_turned_off() {
    let program = common::runtime_program(Path::new("check/host"), &["-g", "-pthread"]);
    let program = program.to_str().expect("the path is text");
    assert_eq!(summary(&mut check(&["--no-host"], &[program, "store"])), ended("no findings", 0));
}

/// Returns what `freehold check` says of the program with errors beyond the end of a block.
fn faults(options: &[&str], words: &[&str]) -> String {
    let program = common::runtime_program(&Path::new("check").join("faults"), &["-g"]);
    let words: Vec<&str> =
        std::iter::once(program.to_str().expect("the path is text")).chain(words.iter().copied()).collect();
    let output = output(&mut check(options, &words));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    text(&output.stderr).to_owned()
}

#[test]
fn an_access_just_beyond_a_block_names_the_block_and_the_kernel_as_it_was_written() {
    for words in [&["kernel"][..], &["kernel", "driver"]] {
        let said = faults(&[], words);
        assert!(said.starts_with("out-of-bounds: kernel sum(float*, int), PTX line 13, block (0,0,0), "), "{said}");
        assert!(said.contains("\n  memory: 0 bytes past the end of a block of 1024 bytes at 0x"), "{said}");
        let allocated = if words.len() > 1 { "cuMemAlloc" } else { "cudaMalloc" };
        assert!(said.contains(&format!("\n    allocated by {allocated}")), "{said}");
    }
}

#[test]
fn leaks_that_a_fault_hides_are_said_to_be_missing() {
    let missing = "leaks are not listed: after the fault of a kernel the program could not free anything\n";
    assert!(faults(&["--leaks"], &["kernel"]).contains(missing));
    assert!(!faults(&[], &["kernel"]).contains(missing));
    assert!(!faults(&["--leaks"], &["copy"]).contains(missing));
}

#[test]
fn a_call_that_the_driver_refuses_because_it_leaves_its_block_is_out_of_bounds() {
    for (word, bytes) in [("copy", "8 bytes"), ("set", "1 byte")] {
        let said = faults(&[], &[word]);
        let function = if word == "copy" { "cudaMemcpy" } else { "cudaMemset" };
        let headline = format!(
            "out-of-bounds: {function} accesses {bytes} beyond the end of a block, so the driver refuses the call\n"
        );
        assert!(said.starts_with(&headline), "{said}");
        assert!(said.contains("\n  memory: 0 bytes past the end of a block of 1024 bytes at 0x"), "{said}");
        assert!(said.ends_with("1 finding: 1 out-of-bounds\n"), "{said}");
    }
}

#[test]
fn options_that_would_change_nothing_are_refused() {
    let left_out = "--leaks finds what --kinds leaves out: add leak to --kinds, or omit --leaks";
    refused_with(&mut check(&["--leaks", "--kinds", "host-race"], &["true"]), left_out);
    let no_host = "--no-host changes nothing where only calls are watched: omit it";
    refused_with(&mut check(&["--no-host", "--calls-only"], &["true"]), no_host);
    let seed = "invalid value 'x' for '--seed <N>': expected a number from 0 to 18446744073709551615, found \"x\"; see \
                `freehold check --help`";
    refused_with(&mut check(&["--seed", "x"], &["true"]), seed);
}

#[test]
fn leaks_are_looked_for_if_they_are_among_the_kinds() {
    let said = faults(&["--kinds", "leak"], &["copy", "driver"]);
    assert!(said.ends_with("\n1 finding: 1 leak\n"), "{said}");
}
