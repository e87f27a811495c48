//! A broker on another machine: its URL, the token, and files to it and from it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use freehold_broker::wire::RequestError;
use freehold_broker::{Access, LinkError, Name, Policy};
use freehold_remote::{Code, Remote, RemoteBlock, RemoteError, Token};
use indicatif::ProgressBar;

use super::Failure;
use crate::output::file::is_dash;

/// How much is written at once to anything but a regular file.
const CHUNK_BYTES: usize = 16 << 20;

/// Shown above the options that every command has, after its own.
const HEADING: &str = "Remote broker";

#[derive(clap::Args)]
pub(crate) struct RemoteOptions {
    /// A remote broker, such as https://host:7070 [default: FREEHOLD_AT, else the broker of this machine]
    #[arg(long, global = true, help_heading = HEADING, value_name = "URL")]
    at: Option<String>,
    /// File with the token that broker and clients share [default: FREEHOLD_TOKEN]
    #[arg(long, global = true, help_heading = HEADING, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A PEM certificate to trust for the remote broker [default: those that this machine trusts]
    #[arg(long, global = true, help_heading = HEADING, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl RemoteOptions {
    /// Returns whether the command line selects a remote broker.
    pub(crate) fn is_on_command_line(&self) -> bool {
        self.at.is_some()
    }

    /// Returns whether the command line or the environment selects a remote broker.
    pub(crate) fn is_set(&self) -> bool {
        self.url().is_some()
    }

    fn url(&self) -> Option<String> {
        self.at.clone().or_else(|| std::env::var("FREEHOLD_AT").ok().filter(|url| !url.is_empty()))
    }

    /// Connects to the remote broker, if one is selected.
    pub(crate) fn connect(&self) -> Result<Option<Remote>, Failure> {
        let Some(url) = self.url() else { return Ok(None) };
        Remote::check_url(&url)?;
        let ca = self.ca.as_deref().map(read).transpose()?;
        Ok(Some(Remote::connect(&url, &self.token()?, ca.as_deref())?))
    }

    /// Returns the token.
    pub(super) fn token(&self) -> Result<Token, Failure> {
        let text = match &self.token_file {
            Some(path) => read_token(path)?,
            None => std::env::var("FREEHOLD_TOKEN").map_err(|_| {
                let sentence =
                    "no token: give --token-file FILE or set FREEHOLD_TOKEN; create one with `openssl rand -hex 32`";
                Failure::Wrong(sentence.to_owned())
            })?,
        };
        Token::parse(&text).map_err(|wrong| Failure::Wrong(wrong.to_string()))
    }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))
}

/// Reads a token from a file that is not readable by everyone.
fn read_token(path: &Path) -> Result<String, Failure> {
    let wrong = |error: std::io::Error| Failure::Wrong(format!("{}: {error}", path.display()));
    let mode = std::fs::metadata(path).map_err(wrong)?.permissions().mode();
    if mode & 0o004 != 0 {
        let path = path.display();
        return Err(Failure::Wrong(format!("{path}: the token is readable by everyone: run `chmod 600 {path}`")));
    }
    std::fs::read_to_string(path).map_err(wrong)
}

/// Uploads a file, and publishes it under a name, which may have to be free.
pub(super) fn put(
    remote: &Remote,
    name: &Name,
    file: &File,
    bytes: u64,
    is_replaced: bool,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    match remote.find(name.as_str()) {
        Ok(_) if is_replaced => {}
        Ok(_) => return Err(LinkError::about(RequestError::NameTaken, name).into()),
        Err(failure) if failure.code == Code::NotFound => {}
        Err(failure) => return Err(failure.into()),
    }
    let block = remote.alloc(bytes)?;
    remote.upload_with(&block, 0, bytes, |at, piece| {
        file.read_exact_at(piece, at)?;
        bar.inc(piece.len() as u64);
        Ok(())
    })?;
    bar.finish_and_clear();
    // As late as possible: in between, the name does not exist.
    if is_replaced {
        match remote.drop_name(name.as_str()) {
            Err(failure) if failure.code == Code::NotFound => {}
            dropped => dropped?,
        }
    }
    Ok(remote.publish(name.as_str(), block, Policy::Restore).map_err(RemoteError::from)?)
}

pub(super) fn lease(remote: &Remote, name: &str) -> Result<RemoteBlock, Failure> {
    Ok(remote.lease(name, Access::Read)?)
}

/// Writes a whole block to a file.
pub(super) fn get(
    remote: &Remote,
    block: &RemoteBlock,
    path: &Path,
    file: &mut File,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Wrong(format!("{}: {error}", path.display()));
    if !is_dash(path) && file.metadata().map_err(failed)?.is_file() {
        remote.download_with(block, 0, block.bytes(), |at, data| {
            bar.inc(data.len() as u64);
            file.write_all_at(data, at)
        })?;
        return Ok(());
    }
    // A pipe accepts bytes only in order, and standard output may be appended to a file.
    let mut piece = vec![0; CHUNK_BYTES.min(block.bytes() as usize)];
    let mut at = 0;
    while at < block.bytes() {
        let wanted = piece.len().min((block.bytes() - at) as usize);
        remote.download(block, at, &mut piece[..wanted])?;
        file.write_all(&piece[..wanted]).map_err(|error| Failure::of_write(path, &error))?;
        at += wanted as u64;
        bar.set_position(at);
    }
    Ok(())
}
