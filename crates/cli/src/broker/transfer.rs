//! `freehold put` and `freehold get`: files into memory of the broker's, and out of it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use freehold::{Device, Stream, open};
use freehold_broker::signals::Signals;
use freehold_broker::wire::{Refusal, Request};
use freehold_broker::{Access, Broker, Lease, LinkError, Name, Policy};
use indicatif::{ProgressBar, ProgressStyle};

use super::elsewhere::{self, Elsewhere};
use super::{At, Failure, bytes, names};

/// How much is moved at once: enough that the device is busy, little enough that the bar moves.
const PIECE_BYTES: usize = 16 << 20;

/// A file and the name that it gets, in either order.
#[derive(clap::Args)]
pub(super) struct FileAndName {
    /// The name that the file gets, as in model/weights
    #[arg(value_name = "NAME")]
    first: PathBuf,
    /// The file; in either order, the file is the one of the two that exists
    #[arg(value_name = "FILE")]
    second: Option<PathBuf>,
    /// The name, where the file is the only word
    #[arg(long)]
    name: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    what: FileAndName,
    #[command(flatten)]
    at: At,
    /// The broker's device: soft, cuda or cuda:N; without it FREEHOLD_DEVICE, or an NVIDIA GPU if there is one
    #[arg(long)]
    device: Option<String>,
    /// One object that says what was done, and no bar
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct GetArguments {
    /// The name, as `freehold ls` shows it
    name: String,
    /// The file to write; a file that is there is written over
    file: Option<PathBuf>,
    /// The same
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    output: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    /// The broker's device: soft, cuda or cuda:N; without it FREEHOLD_DEVICE, or an NVIDIA GPU if there is one
    #[arg(long)]
    device: Option<String>,
    /// One object that says what was done, and no bar
    #[arg(long)]
    json: bool,
}

pub(crate) fn put(arguments: &PutArguments, elsewhere: &Elsewhere) -> ExitCode {
    super::end(try_put(arguments, elsewhere))
}

pub(crate) fn get(arguments: &GetArguments, elsewhere: &Elsewhere) -> ExitCode {
    super::end(try_get(arguments, elsewhere))
}

impl FileAndName {
    /// The file and the name that `command` is told. Of two words the file is the one that exists and is not a folder.
    pub(super) fn parse(&self, command: &str) -> Result<(&Path, Name), Failure> {
        let wrong = |sentence: String| Err(Failure::Wrong(sentence));
        let say = format!("say `freehold {command} FILE --name NAME`");
        let is_file = |path: &Path| !path.is_dir() && fs::symlink_metadata(path).is_ok();
        let (file, name) = match (&self.first, &self.second, &self.name) {
            (file, None, Some(name)) => (file, name.as_str()),
            (file, None, None) => return wrong(format!("{} needs a name: {say}", file.display())),
            (one, Some(other), named) => {
                let (file, name) = match (is_file(one), is_file(other)) {
                    (true, false) => (one, other),
                    (false, true) => (other, one),
                    (true, true) => {
                        return wrong(format!("{} and {} are both files: {say}", one.display(), other.display()));
                    }
                    (false, false) => {
                        let (one, other) = (one.display(), other.display());
                        return wrong(format!("neither {one} nor {other} is a file: expected NAME and FILE"));
                    }
                };
                if let Some(named) = named {
                    return wrong(format!("a name was given twice: {} and --name {named}", name.display()));
                }
                (file, name.to_str().ok_or_else(|| Failure::Wrong(format!("{} is not a name", name.display())))?)
            }
        };
        Ok((file, names::name(name)?))
    }
}

fn connect(at: &At, device: Option<&str>) -> Result<(Device, Broker), Failure> {
    let device = open::device(device).map_err(|error| Failure::Failed(error.to_string()))?;
    let broker = Broker::connect_at(&device, &at.path())?;
    Ok((device, broker))
}

/// The broker first, and the name: where one of them will not do nothing is asked of a device.
fn expect_free(at: &At, name: &Name) -> Result<(), Failure> {
    match at.connect()?.call(Request::Find { name: name.clone() }) {
        Ok(_) | Err(LinkError::Refused { refusal: Refusal::OtherMemory { .. }, .. }) => {
            Err(Failure::Broker(Refusal::NameTaken.into()))
        }
        Err(LinkError::Refused { refusal: Refusal::NoName, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn expect_there(at: &At, name: &Name) -> Result<(), Failure> {
    at.connect()?.call(Request::Find { name: name.clone() })?;
    Ok(())
}

fn bar(total_bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}");
    ProgressBar::new(total_bytes).with_style(style.expect("the template is a template"))
}

fn of_file<T>(path: &Path, outcome: std::io::Result<T>) -> Result<T, Failure> {
    outcome.map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))
}

/// A file with bytes, and how many.
fn regular(path: &Path) -> Result<(File, u64), Failure> {
    // Before it is opened: that of a pipe waits for who writes into it.
    let found = of_file(path, fs::metadata(path))?;
    if !found.is_file() {
        let what = if found.is_dir() { "a folder" } else { "no regular file" };
        return Err(Failure::Wrong(format!("{} is {what}: name a file", path.display())));
    }
    let file = of_file(path, File::open(path))?;
    if found.len() == 0 {
        return Err(Failure::Wrong(format!("{} is empty: there is nothing to publish", path.display())));
    }
    Ok((file, found.len()))
}

fn try_put(arguments: &PutArguments, elsewhere: &Elsewhere) -> Result<(), Failure> {
    let (path, name) = arguments.what.parse("put")?;
    let (mut file, total_bytes) = regular(path)?;
    let bar = if arguments.json { ProgressBar::hidden() } else { bar(total_bytes) };
    match elsewhere.connect()? {
        Some(remote) => elsewhere::put(&remote, name.as_str(), &file, total_bytes, &bar)?,
        None => put_here(arguments, &name, (path, &mut file), total_bytes, &bar)?,
    }
    if arguments.json {
        super::say(serde_json::json!({ "name": name.as_str(), "bytes": total_bytes }))?;
    } else {
        super::say(format_args!("{name}: {}", bytes::show(total_bytes)))?;
    }
    Ok(())
}

fn put_here(
    arguments: &PutArguments,
    name: &Name,
    (path, file): (&Path, &mut File),
    total_bytes: u64,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    expect_free(&arguments.at, name)?;
    let (device, broker) = connect(&arguments.at, arguments.device.as_deref())?;
    let stream = device.stream()?;
    let mut lease: Lease<u8> = broker.reserve(&stream, total_bytes as usize)?;
    let mut piece = vec![0; PIECE_BYTES.min(total_bytes as usize)];
    let mut at = 0;
    while at < total_bytes as usize {
        let wanted = PIECE_BYTES.min(total_bytes as usize - at);
        of_file(path, file.read_exact(&mut piece[..wanted]))?;
        stream.write(&mut lease.view_mut(at..at + wanted)?, &piece[..wanted])?;
        at += wanted;
        bar.set_position(at as u64);
    }
    stream.synchronize()?;
    bar.finish_and_clear();
    broker.publish(name.as_str(), lease, Policy::Restore).map_err(|(_, error)| error.into())
}

fn try_get(arguments: &GetArguments, elsewhere: &Elsewhere) -> Result<(), Failure> {
    let name = names::name(&arguments.name)?;
    let path = arguments.file.as_ref().or(arguments.output.as_ref());
    let no_file = || Failure::Wrong("no file was named to write to: say `freehold get NAME FILE`".to_owned());
    let (path, partial) = (path.ok_or_else(no_file)?, Partial::watched()?);
    let bar_of = |bytes| if arguments.json { ProgressBar::hidden() } else { bar(bytes) };
    let total_bytes = match elsewhere.connect()? {
        Some(remote) => {
            let block = elsewhere::lease(&remote, name.as_str())?;
            let bar = bar_of(block.bytes());
            write_over(path, &partial, |file| elsewhere::get(&remote, &block, path, file, &bar))?;
            bar.finish_and_clear();
            block.bytes()
        }
        None => {
            expect_there(&arguments.at, &name)?;
            let (device, broker) = connect(&arguments.at, arguments.device.as_deref())?;
            let stream = device.stream()?;
            let lease: Lease<u8> = broker.lease(&stream, name.as_str(), Access::Read)?;
            let bar = bar_of(lease.len() as u64);
            write_over(path, &partial, |file| write_all(&stream, &lease, path, file, &bar))?;
            bar.finish_and_clear();
            lease.len() as u64
        }
    };
    if arguments.json {
        super::say(serde_json::json!({ "name": name.as_str(), "file": path, "bytes": total_bytes }))?;
    } else {
        super::say(format_args!("{}: {}", path.display(), bytes::show(total_bytes)))?;
    }
    Ok(())
}

/// The file that is not whole yet, which a signal that ends this process takes along.
struct Partial(Arc<Mutex<Option<PathBuf>>>);

impl Partial {
    /// Before a driver has threads: a signal would end the process in one of them.
    fn watched() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Failed(format!("signals cannot be waited for: {error}"));
        let signals = Signals::block().map_err(failed)?;
        let path = Arc::new(Mutex::new(None::<PathBuf>));
        let watched = path.clone();
        let remove = move || {
            let path = watched.lock().unwrap_or_else(PoisonError::into_inner).take();
            // It may be whole by now, and have its name.
            let _ = path.map(fs::remove_file);
        };
        std::thread::Builder::new().spawn(move || signals.end_behind(remove)).map_err(failed)?;
        Ok(Self(path))
    }

    fn is(&self, path: &Path) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.to_owned());
    }
}

/// Writes a file beside the one that is there first: what that had is lost only to a whole one. What is no regular file, a device or
/// a pipe, is written to as it is.
fn write_over(
    path: &Path,
    unfinished: &Partial,
    write: impl FnOnce(&mut File) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(Failure::Wrong(format!("{} is a folder: name a file", path.display())));
    }
    if before.as_ref().is_some_and(|found| !found.is_file()) {
        return write(&mut of_file(path, File::options().write(true).open(path))?);
    }
    // Behind a link: the link stays.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut partial = target.clone().into_os_string();
    partial.push(format!(".{}.part", std::process::id()));
    let partial = PathBuf::from(partial);
    unfinished.is(&partial);
    let mut file = of_file(path, File::options().write(true).create_new(true).open(&partial))?;
    let written = write(&mut file).and_then(|()| {
        of_file(path, file.sync_all())?;
        if let Some(found) = before {
            of_file(path, file.set_permissions(found.permissions()))?;
        }
        of_file(path, fs::rename(&partial, &target))
    });
    if written.is_err() {
        // The first failure says more.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Writes all of a lease to a file.
fn write_all(
    stream: &Stream,
    lease: &Lease<u8>,
    path: &Path,
    file: &mut File,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let (mut at, total) = (0, lease.len());
    while at < total {
        let wanted = PIECE_BYTES.min(total - at);
        let piece = stream.download(&lease.view(at..at + wanted)?)?;
        of_file(path, file.write_all(&piece))?;
        at += wanted;
        bar.set_position(at as u64);
    }
    Ok(())
}
