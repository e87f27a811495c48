//! `freehold put` and `freehold get`: files to published memory, and back.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use freehold::{Device, Stream, open};
use freehold_broker::signals::Signals;
use freehold_broker::wire::{Request, RequestError};
use freehold_broker::{Access, Broker, Lease, LinkError, Name, Policy};
use indicatif::ProgressBar;

use super::remote::{self, RemoteOptions};
use super::{Failure, SocketOption, names};
use crate::output::file::is_dash;
use crate::output::{progress, size};

/// How much is copied at once: enough to keep the device busy, little enough that the bar moves.
const CHUNK_BYTES: usize = 16 << 20;

/// A file and its name, in either order.
#[derive(clap::Args)]
pub(super) struct FileAndName {
    /// The name for the file, such as model/weights
    #[arg(value_name = "NAME")]
    first: PathBuf,
    /// The file; in either order, the file is the argument that exists
    #[arg(value_name = "FILE")]
    second: Option<PathBuf>,
    /// The name, if the file is the only argument
    #[arg(long)]
    name: Option<String>,
}

impl FileAndName {
    /// Returns the file of a command that gets its name otherwise.
    pub(super) fn only_file(&self) -> Result<&Path, Failure> {
        match &self.second {
            None => Ok(&self.first),
            Some(_) => Err(Failure::Wrong("a name was given twice: use `freehold put FILE --as NAME`".to_owned())),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    pub(super) what: FileAndName,
    /// Publish the tensors of a safetensors file as a set with this name
    #[arg(long = "as", value_name = "NAME", conflicts_with = "name")]
    pub(super) set: Option<String>,
    /// Replace what has the name. Processes that have leased it keep the old memory
    #[arg(long)]
    pub(super) replace: bool,
    /// Publish the next generation of the set. Processes that have leased it keep the old one
    #[arg(long, requires = "set", conflicts_with_all = ["name", "replace"])]
    pub(super) update: bool,
    #[command(flatten)]
    pub(super) at: SocketOption,
    /// The broker's device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software
    /// device]
    #[arg(long)]
    pub(super) device: Option<String>,
    /// Print one JSON object, and no progress bar
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct GetArguments {
    /// The name, as `freehold ls` shows it
    name: String,
    /// The file to write, or - for standard output; an existing file is replaced
    file: Option<PathBuf>,
    /// The same as FILE
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    output: Option<PathBuf>,
    #[command(flatten)]
    at: SocketOption,
    /// The broker's device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software
    /// device]
    #[arg(long)]
    device: Option<String>,
    /// Print one JSON object, and no progress bar
    #[arg(long)]
    json: bool,
}

pub(crate) fn get(arguments: &GetArguments, remote_options: &RemoteOptions) -> ExitCode {
    super::exit_code(try_get(arguments, remote_options))
}

impl FileAndName {
    /// Returns the file and the name. Of two arguments, the file is the one that exists and is not a folder.
    pub(super) fn parse(&self, command: &str) -> Result<(&Path, Name), Failure> {
        let wrong = |sentence: String| Err(Failure::Wrong(sentence));
        let say = format!("use `freehold {command} FILE --name NAME`");
        let is_file = |path: &Path| !path.is_dir() && fs::symlink_metadata(path).is_ok();
        if [Some(&self.first), self.second.as_ref()].into_iter().flatten().any(|path| is_dash(path)) {
            return wrong("standard input cannot be published: expected a file".to_owned());
        }
        let (file, name) = match (&self.first, &self.second, &self.name) {
            (file, None, Some(name)) => (file, name.as_str()),
            (file, None, None) if is_file(file) => {
                let file = file.display();
                return wrong(format!("{file} needs a name: use `freehold {command} NAME {file}`"));
            }
            (name, None, None) => {
                let name = name.display();
                return wrong(format!("{name} needs a file: use `freehold {command} {name} FILE`"));
            }
            (one, Some(other), named) => {
                let (file, name) = match (is_file(one), is_file(other)) {
                    (true, false) => (one, other),
                    (false, true) => (other, one),
                    (true, true) => {
                        return wrong(format!("{} and {} are both files: {say}", one.display(), other.display()));
                    }
                    (false, false) => return wrong(no_file(one, other)),
                };
                if let Some(named) = named {
                    return wrong(format!("a name was given twice: {} and --name {named}", name.display()));
                }
                (file, name.to_str().ok_or_else(|| Failure::Wrong(format!("{} is not a valid name", name.display())))?)
            }
        };
        Ok((file, names::parse_name(name)?))
    }
}

/// Says which of two arguments should be a file, when none is.
fn no_file(one: &Path, other: &Path) -> String {
    match [one, other].iter().find(|path| path.is_dir()) {
        Some(folder) => format!("{} is a folder: expected a file", folder.display()),
        None => format!("there is no file {} (nor {}): expected NAME and FILE", other.display(), one.display()),
    }
}

pub(super) fn connect(at: &SocketOption, device: Option<&str>) -> Result<(Device, Broker), Failure> {
    let device = open::device(device).map_err(|error| match error {
        // The same as for other options that name what does not exist.
        freehold::Error::Open(error) => Failure::Wrong(error.to_string()),
        error => Failure::Failed(error.to_string()),
    })?;
    let broker = Broker::connect_at(&device, &at.path())?;
    Ok((device, broker))
}

/// Checks broker and name first, so that an error costs no device call. Memory of the host is not replaced.
pub(super) fn expect_free(at: &SocketOption, name: &Name, is_replaced: bool) -> Result<(), Failure> {
    match at.connect()?.call(Request::Find { name: name.clone() }) {
        Ok(_) if is_replaced => Ok(()),
        Ok(_) => Err(LinkError::about(RequestError::NameTaken, name).into()),
        Err(LinkError::Request { error: RequestError::WrongMemoryKind { .. }, .. }) if !is_replaced => {
            Err(LinkError::about(RequestError::NameTaken, name).into())
        }
        Err(LinkError::Request { error: RequestError::NoName, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Drops a name, if there is one.
pub(super) fn drop_old(at: &SocketOption, name: &Name) -> Result<(), Failure> {
    match at.connect()?.call(Request::Drop { name: name.clone() }) {
        Ok(_) | Err(LinkError::Request { error: RequestError::NoName, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn expect_named(at: &SocketOption, name: &Name) -> Result<(), Failure> {
    at.connect()?.call(Request::Find { name: name.clone() })?;
    Ok(())
}

pub(super) fn progress_bar(total_bytes: u64) -> ProgressBar {
    progress::bar(total_bytes, "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}")
}

pub(super) fn file_error<T>(path: &Path, outcome: std::io::Result<T>) -> Result<T, Failure> {
    outcome.map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))
}

/// Opens a regular, non-empty file. Returns it with its length.
pub(super) fn open_regular(path: &Path) -> Result<(File, u64), Failure> {
    // Checked before opening: opening a pipe would wait for its writer.
    let found = file_error(path, fs::metadata(path))?;
    if !found.is_file() {
        let what = if found.is_dir() { "a folder" } else { "not a regular file" };
        return Err(Failure::Wrong(format!("{} is {what}: expected a file", path.display())));
    }
    let file = file_error(path, File::open(path))?;
    if found.len() == 0 {
        return Err(Failure::Wrong(format!("{} is empty: expected at least one byte", path.display())));
    }
    Ok((file, found.len()))
}

/// Publishes a file as it is.
pub(super) fn put_file(arguments: &PutArguments, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let (path, name) = arguments.what.parse("put")?;
    let (mut file, total_bytes) = open_regular(path)?;
    let bar = if arguments.json { ProgressBar::hidden() } else { progress_bar(total_bytes) };
    match remote_options.connect()? {
        Some(remote) => remote::put(&remote, &name, &file, total_bytes, arguments.replace, &bar)?,
        None => put_local(arguments, &name, (path, &mut file), total_bytes, &bar)?,
    }
    if arguments.json {
        super::print_line(serde_json::json!({ "name": name.as_str(), "bytes": total_bytes }))?;
    } else {
        super::print_line(format_args!("{name}: {}", size::format(total_bytes)))?;
    }
    Ok(())
}

fn put_local(
    arguments: &PutArguments,
    name: &Name,
    (path, file): (&Path, &mut File),
    total_bytes: u64,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    expect_free(&arguments.at, name, arguments.replace)?;
    let (device, broker) = connect(&arguments.at, arguments.device.as_deref())?;
    let stream = device.new_stream()?;
    let mut lease: Lease<u8> = broker.reserve(&stream, total_bytes as usize)?;
    let mut piece = vec![0; CHUNK_BYTES.min(total_bytes as usize)];
    let mut at = 0;
    while at < total_bytes as usize {
        let wanted = CHUNK_BYTES.min(total_bytes as usize - at);
        file_error(path, file.read_exact(&mut piece[..wanted]))?;
        stream.write(&mut lease.view_mut(at..at + wanted)?, &piece[..wanted])?;
        at += wanted;
        bar.set_position(at as u64);
    }
    stream.synchronize()?;
    bar.finish_and_clear();
    // As late as possible: in between, the name does not exist.
    if arguments.replace {
        drop_old(&arguments.at, name)?;
    }
    Ok(broker.publish(name.as_str(), lease, Policy::Restore).map_err(freehold_broker::Error::from)?)
}

fn try_get(arguments: &GetArguments, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let name = names::parse_name(&arguments.name)?;
    let path = arguments.file.as_ref().or(arguments.output.as_ref());
    let no_file = || Failure::Wrong("no file to write to: use `freehold get NAME FILE`".to_owned());
    let path = path.ok_or_else(no_file)?;
    if is_dash(path) && arguments.json {
        return Err(Failure::Wrong("--json and the file would share standard output: name a file".to_owned()));
    }
    let partial = PartialFile::remove_on_signal()?;
    let bar_of = |bytes| if arguments.json { ProgressBar::hidden() } else { progress_bar(bytes) };
    let total_bytes = match remote_options.connect()? {
        Some(remote) => {
            let block = remote::lease(&remote, name.as_str())?;
            let bar = bar_of(block.bytes());
            write_over(path, &partial, |file| remote::get(&remote, &block, path, file, &bar))?;
            bar.finish_and_clear();
            block.bytes()
        }
        None => {
            expect_named(&arguments.at, &name)?;
            let (device, broker) = connect(&arguments.at, arguments.device.as_deref())?;
            let stream = device.new_stream()?;
            let lease: Lease<u8> = broker.lease(&stream, name.as_str(), Access::Read)?;
            let bar = bar_of(lease.len() as u64);
            write_over(path, &partial, |file| write_all(&stream, &lease, path, file, &bar))?;
            bar.finish_and_clear();
            lease.len() as u64
        }
    };
    if arguments.json {
        super::print_line(serde_json::json!({ "name": name.as_str(), "file": path, "bytes": total_bytes }))?;
    } else if !is_dash(path) {
        super::print_line(format_args!("{}: {}", path.display(), size::format(total_bytes)))?;
    }
    Ok(())
}

/// The incomplete file, which is removed if a signal ends this process.
struct PartialFile(Arc<Mutex<Option<PathBuf>>>);

impl PartialFile {
    /// Call before a driver starts threads: otherwise a signal would end the process in one of them.
    fn remove_on_signal() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Failed(format!("failed to wait for signals: {error}"));
        let signals = Signals::block().map_err(failed)?;
        let path = Arc::new(Mutex::new(None::<PathBuf>));
        let watched = path.clone();
        let remove = move || {
            let path = watched.lock().unwrap_or_else(PoisonError::into_inner).take();
            // The file may be complete by now, and renamed.
            let _ = path.map(fs::remove_file);
        };
        std::thread::Builder::new().spawn(move || signals.exit_on_signal(remove)).map_err(failed)?;
        Ok(Self(path))
    }

    fn set(&self, path: &Path) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.to_owned());
    }
}

/// Writes a temporary file and renames it, so that only a complete file replaces an existing one. Standard output, and
/// anything but a regular file, such as a device or a pipe, is written directly.
fn write_over(
    path: &Path,
    unfinished: &PartialFile,
    write: impl FnOnce(&mut File) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if is_dash(path) {
        let stdout = std::io::stdout().as_fd().try_clone_to_owned().map_err(|error| Failure::of_write(path, &error))?;
        return write(&mut File::from(stdout));
    }
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(Failure::Wrong(format!("{} is a folder: expected a file", path.display())));
    }
    if before.as_ref().is_some_and(|found| !found.is_file()) {
        return write(&mut file_error(path, File::options().write(true).open(path))?);
    }
    // Follows a link, which stays.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut partial = target.clone().into_os_string();
    partial.push(format!(".{}.part", std::process::id()));
    let partial = PathBuf::from(partial);
    unfinished.set(&partial);
    let mut file = file_error(path, File::options().write(true).create_new(true).open(&partial))?;
    let written = write(&mut file).and_then(|()| {
        file.sync_all().map_err(|error| Failure::of_write(path, &error))?;
        if let Some(found) = before {
            file_error(path, file.set_permissions(found.permissions()))?;
        }
        file_error(path, fs::rename(&partial, &target))
    });
    if written.is_err() {
        // The first error is more useful.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Writes a whole lease to a file.
fn write_all(
    stream: &Stream,
    lease: &Lease<u8>,
    path: &Path,
    file: &mut File,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let (mut at, total) = (0, lease.len());
    while at < total {
        let wanted = CHUNK_BYTES.min(total - at);
        let piece = stream.download(&lease.view(at..at + wanted)?)?;
        file.write_all(&piece).map_err(|error| Failure::of_write(path, &error))?;
        at += wanted;
        bar.set_position(at as u64);
    }
    Ok(())
}
