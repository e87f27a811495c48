//! Shell completions, man pages and the help of one command, all generated from the declared commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap_complete::Shell;

use crate::output::text;

#[derive(clap::Args)]
pub(crate) struct CompletionArguments {
    /// The shell
    shell: Shell,
}

#[derive(clap::Args)]
pub(crate) struct ManArguments {
    /// Folder for the pages, created if missing; `man` searches the man1 folders in MANPATH
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct HelpArguments {
    /// The command and its subcommand
    #[arg(value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
}

pub(crate) fn complete(arguments: &CompletionArguments, mut all: Command) -> ExitCode {
    all.build();
    let (mut shown, mut text) = (visible(&all), Vec::new());
    clap_complete::generate(arguments.shell, &mut shown, "freehold", &mut text);
    print(&text)
}

/// Returns a built command without what its help does not show: clap completes that too.
fn visible(command: &Command) -> Command {
    // Those that `build` has added are among the arguments.
    let shown = Command::new(command.get_name().to_owned()).disable_help_flag(true).disable_version_flag(true);
    let shown = shown.disable_help_subcommand(true).about(command.get_about().cloned().unwrap_or_default());
    let shown = command.get_version().map_or(shown.clone(), |version| shown.version(version.to_owned()));
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let shown = shown.args(arguments.map(|argument| argument.clone().global(false)));
    shown.subcommands(command.get_subcommands().filter(|within| !within.is_hide_set()).map(visible))
}

/// Exits with status 2 if the pages cannot be written.
pub(crate) fn write_man_pages(arguments: &ManArguments, all: Command) -> ExitCode {
    let folder = arguments.folder.as_path();
    match try_write_man_pages(folder, all) {
        Ok(()) => print(format!(
            "wrote the man pages; show the first one with man -l {}\n",
            folder.join("freehold.1").display()
        )),
        Err(error) => {
            eprintln!("error: {}: {error}: expected a writable folder", folder.display());
            ExitCode::from(2)
        }
    }
}

fn try_write_man_pages(folder: &Path, all: Command) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(all, folder)
}

/// Prints what `--help` prints after the same commands. Exits with status 2 for an unknown command.
pub(crate) fn help(words: &[impl AsRef<str>], mut all: Command) -> ExitCode {
    all.build();
    let mut found = &mut all;
    let said: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    for word in &said {
        let Some(within) = found.find_subcommand_mut(word) else {
            eprintln!("error: unknown command {:?}: see `freehold --help`", said.join(" "));
            return ExitCode::from(2);
        };
        found = within;
    }
    print(found.render_long_help().to_string())
}

/// Prints clap's parse error as one sentence, or the requested help or version.
pub(crate) fn report_parse_error(error: &clap::Error, all: Command) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if !matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion) {
        let words = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok());
        eprintln!("error: {}", sentence(error, words, all));
        return ExitCode::from(2);
    }
    let status = if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    exit_code(error.print(), status)
}

/// Words that are not commands, and the commands that they usually mean, below a command.
const SYNONYMS: &[(&str, &[&str], &str)] = &[
    ("freehold", &["rm", "remove", "delete", "del", "unpublish"], "drop"),
    ("freehold", &["status", "stat", "stats", "info", "usage", "df"], "totals"),
    ("freehold", &["list", "names", "dir"], "ls"),
    ("freehold", &["start", "server", "daemon", "broker", "up"], "serve"),
    ("freehold", &["kill", "quit", "shutdown", "down"], "stop"),
    ("freehold", &["upload", "publish", "push", "store", "load"], "put"),
    ("freehold", &["download", "fetch", "pull", "cat", "save"], "get"),
    ("freehold", &["launch", "invoke"], "call"),
    ("freehold", &["exec"], "run"),
    ("freehold", &["gpu", "gpus", "smi"], "devices"),
    ("freehold", &["benchmark", "perf", "measure"], "bench"),
    ("freehold", &["modules", "kernel", "kernels"], "module"),
    ("freehold", &["limit", "budget"], "quota"),
    ("freehold", &["watch", "monitor"], "top"),
    ("freehold", &["test", "experiments"], "lab"),
    ("freehold", &["memcheck", "racecheck", "sanitize", "sanitizer", "races"], "check"),
    ("freehold", &["example", "mesh"], "demo"),
    ("bench", &["alloc", "allocation", "malloc", "allocate"], "pool"),
    ("bench", &["free", "drop"], "release"),
    ("bench", &["broker", "ipc", "lease"], "share"),
    ("bench", &["launch", "kernel"], "call"),
    ("bench", &["network", "net", "grpc"], "remote"),
    ("module", &["rm", "remove", "delete", "del"], "drop"),
    ("module", &["list"], "ls"),
    ("module", &["add", "upload", "publish", "load"], "put"),
];

/// Joins clap's error and tips into one line, and adds where to find help.
fn sentence(error: &clap::Error, words: impl Iterator<Item = String>, mut command: Command) -> String {
    let mut said = "freehold".to_owned();
    for word in words {
        if let Some(within) = command.find_subcommand(&word) {
            said = format!("{said} {word}");
            command = within.clone();
        }
    }
    let text = match (error.kind(), argument(error)) {
        (ErrorKind::InvalidSubcommand, Some(word)) => unknown_command(&command, word, error),
        (ErrorKind::UnknownArgument, Some(option)) if command.has_subcommands() && option.starts_with('-') => {
            let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
            let names: Vec<&str> = commands.map(clap::Command::get_name).collect();
            format!("expected a command before '{option}': {}", names.join(", "))
        }
        (ErrorKind::UnknownArgument, Some(option)) if matches!(said.as_str(), "freehold run" | "freehold check") => {
            unknown_run_option(option, error)
        }
        _ => as_one_line(&error.render().to_string()),
    };
    format!("{text}; see `{said} --help`")
}

/// Returns what the error is about: a word in the place of a command, or an option.
fn argument(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand).or_else(|| error.get(ContextKind::InvalidArg)) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    }
}

/// Names the command that a word usually means, else those that are spelled like it.
fn unknown_command(command: &clap::Command, word: &str, error: &clap::Error) -> String {
    let mut similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(one)) => vec![one.as_str()],
        Some(ContextValue::Strings(several)) => several.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    similar.retain(|name| command.find_subcommand(name).is_some_and(|found| !found.is_hide_set()));
    let synonym = SYNONYMS.iter().find(|(of, words, _)| *of == command.get_name() && words.contains(&word));
    if let Some((.., meant)) = synonym {
        similar = vec![meant];
    }
    let tip = match similar[..] {
        [] => String::new(),
        _ => format!(": try {}", similar.join(" or ")),
    };
    format!("unknown command '{word}'{tip}")
}

/// An option of `run` or `check`, or a program whose name looks like one.
fn unknown_run_option(option: &str, error: &clap::Error) -> String {
    let tip = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(similar)) => format!(": try {similar}"),
        _ => String::new(),
    };
    format!("unknown option '{option}'{tip}; put `--` before a program whose name begins with a dash")
}

fn as_one_line(told: &str) -> String {
    let told = told.strip_prefix("error: ").unwrap_or(told);
    let own = told.split("\n\n").take_while(|part| !part.starts_with("Usage:") && !part.starts_with("For more"));
    let parts: Vec<String> = own.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    parts.join("; ").replace("; tip: ", "; ")
}

fn print(text: impl AsRef<[u8]>) -> ExitCode {
    exit_code(text::print(text), ExitCode::SUCCESS)
}

/// Returns the status, or a failure if the output could not be printed.
fn exit_code(printed: io::Result<()>, status: ExitCode) -> ExitCode {
    match printed {
        // A reader that closes the pipe early is not a failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: standard output: {error}");
            ExitCode::FAILURE
        }
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every visible command that has no subcommands, with its full name.
    fn leaves() -> Vec<(String, clap::Command)> {
        fn walk(words: &str, command: &clap::Command, found: &mut Vec<(String, clap::Command)>) {
            let seen: Vec<_> = command.get_subcommands().filter(|within| !within.is_hide_set()).collect();
            if seen.is_empty() {
                found.push((words.to_owned(), command.clone()));
            }
            for within in seen {
                walk(&format!("{words} {}", within.get_name()), within, found);
            }
        }
        let (mut all, mut found) = (crate::command(), Vec::new());
        all.build();
        walk("freehold", &all, &mut found);
        found
    }

    /// Returns the command line of an example: from the program's name up to a redirection.
    fn example(command: &clap::Command) -> Option<String> {
        let told = command.get_after_help()?.to_string();
        let line = told.strip_prefix("Example: ")?;
        let own = &line[line.find("freehold")?..];
        Some(own.split(" > ").next().unwrap_or(own).to_owned())
    }

    /// Returns the error for this command line.
    fn said(words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let Err(error) = crate::command().try_get_matches_from(&words) else {
            panic!("the command line is valid");
        };
        sentence(&error, words.into_iter().skip(1), crate::command())
    }

    #[test]
    fn a_usage_error_is_one_sentence_that_points_to_the_help() {
        for (words, sentence) in [
            ("freehold lap", "unknown command 'lap': try lab; see `freehold --help`"),
            ("freehold rm x", "unknown command 'rm': try drop; see `freehold --help`"),
            ("freehold status", "unknown command 'status': try totals; see `freehold --help`"),
            ("freehold start", "unknown command 'start': try serve; see `freehold --help`"),
            ("freehold experimen", "unknown command 'experimen'; see `freehold --help`"),
            ("freehold bench alloc", "unknown command 'alloc': try pool; see `freehold bench --help`"),
            (
                "freehold bench --quick",
                "expected a command before '--quick': release, pool, share, call, remote; see `freehold bench --help`",
            ),
            (
                "freehold lab --onyl 2",
                "unexpected argument '--onyl' found; a similar argument exists: '--only'; \
                 see `freehold lab --help`",
            ),
            (
                "freehold module put",
                "the following required arguments were not provided: <NAME>; \
                 see `freehold module put --help`",
            ),
            (
                "freehold demo --steps many",
                "invalid value 'many' for '--steps <COUNT>': expected a number from 1 to 4294967295; \
                 see `freehold demo --help`",
            ),
            (
                "freehold completions csh",
                "invalid value 'csh' for '<SHELL>' [possible values: bash, elvish, fish, powershell, zsh]; \
                 a similar value exists: 'zsh'; see `freehold completions --help`",
            ),
        ] {
            assert_eq!(said(words), sentence);
        }
    }

    #[test]
    fn completions_offer_what_the_help_shows_and_nothing_else() {
        let mut all = crate::command();
        all.build();
        let mut shown = visible(&all);
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut shown, "freehold", &mut text);
            let text = String::from_utf8(text).expect("a script is text");
            for internal in ["share-partner", "demo-worker", "remote-server", "own-of", "run one experiment"] {
                assert!(!text.contains(internal), "{shell}: {internal}");
            }
            for public in ["devices", "put", "token-file", "print-libcuda", "version", "Publish a file"] {
                let is_missing = !(text.contains(public) || shell == Shell::Bash && public.contains(' '));
                assert!(!is_missing, "{shell}: {public}");
            }
        }
        for internal in ["role", "experiment", "partner", "help"] {
            assert!(shown.find_subcommand(internal).is_none(), "{internal}");
        }
        let devices = shown.find_subcommand("devices").expect("it is a command");
        assert!(devices.get_arguments().all(|argument| argument.get_id() != "at"));
    }

    #[test]
    fn the_clap_declaration_is_valid() {
        crate::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example_of_itself_that_parses() {
        let leaves = leaves();
        assert!(leaves.len() > 20, "too few commands: {}", leaves.len());
        for (words, command) in leaves {
            let example = example(&command).unwrap_or_else(|| panic!("{words} --help shows no example"));
            let of_itself = words.split(' ').all(|word| example.split(' ').any(|said| said == word));
            assert!(of_itself, "the example of {words} shows another command: {example}");
            if let Err(error) = crate::command().try_get_matches_from(example.split(' ')) {
                panic!("{example}: {error}");
            }
        }
    }

    #[test]
    fn synonyms_lead_to_commands_and_are_none_themselves() {
        for (of, words, meant) in SYNONYMS {
            let mut command = crate::command();
            if *of != "freehold" {
                command = command.find_subcommand(of).expect("it is a command").clone();
            }
            assert!(command.find_subcommand(meant).is_some_and(|found| !found.is_hide_set()), "{of} {meant}");
            for word in *words {
                assert!(command.find_subcommand(word).is_none(), "{of} {word}");
            }
        }
    }

    #[test]
    fn the_options_of_a_remote_broker_are_in_the_help_of_commands_that_use_them() {
        for (words, mut command) in leaves() {
            let help = command.render_long_help().to_string();
            let named = |option: &str| help.contains(&format!("{option} <"));
            let shown = crate::shown_remote_options(words.split(' ').nth(1).expect("a command"));
            for (option, id) in [("--at", "at"), ("--token-file", "token_file"), ("--ca", "ca")] {
                assert_eq!(named(option), shown.contains(&id), "{words} {option}");
            }
        }
        for words in ["freehold --at http://[::1]:7 ls", "freehold ls --at http://[::1]:7", "freehold devices --at x"] {
            let found = crate::command().try_get_matches_from(words.split(' ')).expect("it is accepted");
            let parsed = <crate::Arguments as clap::FromArgMatches>::from_arg_matches(&found).expect("it is complete");
            assert!(parsed.remote_options.is_on_command_line(), "{words}");
        }
    }

    #[test]
    fn the_help_of_all_commands_fits_a_screen() {
        let help = crate::command().term_width(80).render_long_help().to_string();
        let (lines, columns) = (help.lines().count(), help.lines().map(|line| line.chars().count()).max());
        assert!(lines <= 24, "{lines} lines:\n{help}");
        assert!(columns <= Some(80), "{columns:?} columns:\n{help}");
        for (words, _) in leaves() {
            let first = words.split(' ').nth(1).expect("a command follows the program's name");
            let is_listed = help.lines().any(|line| line.split_whitespace().next() == Some(first));
            assert!(is_listed, "{first} is not in the list:\n{help}");
        }
    }
}
