//! Shell completions, man pages and the help of one command, all generated from the declared commands.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;
use clap_complete::Shell;

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

pub(crate) fn complete(arguments: &CompletionArguments) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "freehold", &mut text);
    print(&text)
}

/// Exits with status 2 if the pages cannot be written.
pub(crate) fn write_man_pages(arguments: &ManArguments) -> ExitCode {
    let folder = arguments.folder.as_path();
    match try_write_man_pages(folder) {
        Ok(()) => print(
            format!("wrote the man pages; show the first one with man -l {}\n", folder.join("freehold.1").display())
                .as_bytes(),
        ),
        Err(error) => {
            eprintln!("error: {}: {error}: expected a writable folder", folder.display());
            ExitCode::from(2)
        }
    }
}

fn try_write_man_pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(crate::Arguments::command(), folder)
}

/// Prints what `--help` prints after the same commands. Exits with status 2 for an unknown command.
pub(crate) fn help(words: &[impl AsRef<str>]) -> ExitCode {
    let mut all = crate::Arguments::command();
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
    print(found.render_long_help().to_string().as_bytes())
}

/// Prints clap's parse error as one sentence, or the requested help or version.
pub(crate) fn report_parse_error(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if !matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion) {
        let words = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok());
        eprintln!("error: {}", sentence(&error.render().to_string(), words));
        return ExitCode::from(2);
    }
    let status = if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    exit_code(error.print(), status)
}

/// Joins clap's error and tips into one line, and adds where to find help.
fn sentence(told: &str, words: impl Iterator<Item = String>) -> String {
    let told = told.strip_prefix("error: ").unwrap_or(told);
    let own = told.split("\n\n").take_while(|part| !part.starts_with("Usage:") && !part.starts_with("For more"));
    let parts: Vec<String> = own.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let (mut command, mut said) = (crate::Arguments::command(), "freehold".to_owned());
    for word in words {
        if let Some(within) = command.find_subcommand(&word) {
            said = format!("{said} {word}");
            command = within.clone();
        }
    }
    format!("{}; see `{said} --help`", parts.join("; ").replace("; tip: ", "; "))
}

fn print(text: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    exit_code(out.write_all(text).and_then(|()| out.flush()), ExitCode::SUCCESS)
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
        let (mut all, mut found) = (crate::Arguments::command(), Vec::new());
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
        let Err(error) = crate::Arguments::command().try_get_matches_from(&words) else {
            panic!("the command line is valid");
        };
        sentence(&error.render().to_string(), words.into_iter().skip(1))
    }

    #[test]
    fn a_usage_error_is_one_sentence_that_points_to_the_help() {
        for (words, sentence) in [
            (
                "freehold lap",
                "unrecognized subcommand 'lap'; a similar subcommand exists: 'lab'; \
                 see `freehold --help`",
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
    fn the_clap_declaration_is_valid() {
        crate::Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example_of_itself_that_parses() {
        let leaves = leaves();
        assert!(leaves.len() > 20, "too few commands: {}", leaves.len());
        for (words, command) in leaves {
            let example = example(&command).unwrap_or_else(|| panic!("{words} --help shows no example"));
            let of_itself = words.split(' ').all(|word| example.split(' ').any(|said| said == word));
            assert!(of_itself, "the example of {words} shows another command: {example}");
            if let Err(error) = crate::Arguments::command().try_get_matches_from(example.split(' ')) {
                panic!("{example}: {error}");
            }
        }
    }

    #[test]
    fn the_help_of_all_commands_fits_a_screen() {
        let help = crate::Arguments::command().term_width(80).render_long_help().to_string();
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
