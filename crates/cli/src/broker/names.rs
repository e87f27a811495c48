//! `freehold ls`, `drop`, `totals` and `quota`: what the broker holds, and under which names.

use std::process::ExitCode;

use freehold_broker::wire::{MemoryKind, QuotaChange, Reply, Request, RequestError};
use freehold_broker::{Host, Link, LinkError, Name, socket_path};
use freehold_remote::Remote;
use serde::Serializer;

use super::remote::RemoteOptions;
use super::{ClientOptions, DropArguments, Failure};
use crate::output::size;
use crate::output::text::count;

#[derive(clap::Args)]
pub(crate) struct QuotaArguments {
    /// The new quota, such as 4GiB, or none to remove it [default: show the quota]
    #[arg(value_parser = parse_change, value_name = "SIZE")]
    size: Option<QuotaChange>,
    /// Change the quota of published host memory instead of device memory
    #[arg(long, requires = "size")]
    host: bool,
    /// The user, by name or number [default: this user]
    #[arg(long, value_parser = parse_user, value_name = "USER")]
    user: Option<u32>,
    #[command(flatten)]
    options: ClientOptions,
}

/// A published name, as the broker lists it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct NameEntry {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    #[serde(serialize_with = "serialize_memory")]
    pub(crate) memory: MemoryKind,
    pub(crate) user: u32,
    pub(crate) user_name: Option<String>,
    /// The process that published it, while it is connected.
    pub(crate) process: Option<u32>,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    pub(crate) age_s: u64,
    pub(crate) version: u64,
}

impl NameEntry {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, bytes, user, process, readers, writers, age_s, version, memory] = fields[..] else { return None };
        let (user, bytes) = (user.parse().ok()?, bytes.parse::<u64>().ok()?);
        let (memory, bytes) = match memory {
            "0" => (MemoryKind::Device, bytes),
            // The header was not requested by the user.
            "1" => (MemoryKind::Host, bytes.saturating_sub(Host::HEADER_BYTES)),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            bytes,
            memory,
            user,
            user_name: socket_path::user_name(user),
            process: Some(process.parse().ok()?).filter(|&process| process != 0),
            readers: readers.parse().ok()?,
            writers: writers.parse().ok()?,
            age_s: age_s.parse().ok()?,
            version: version.parse().ok()?,
        })
    }
}

fn memory_word(memory: MemoryKind) -> &'static str {
    match memory {
        MemoryKind::Device => "device",
        MemoryKind::Host => "host",
    }
}

fn serialize_memory<S: Serializer>(memory: &MemoryKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(memory_word(*memory))
}

/// Returns all names at a broker.
pub(crate) fn list_local(link: &mut Link) -> Result<Vec<NameEntry>, LinkError> {
    let mut listed: Vec<NameEntry> = Vec::new();
    loop {
        let after = listed.last().and_then(|last| Name::parse(&last.name).ok());
        let text = link.call(Request::List { after })?.text;
        let before = listed.len();
        for line in text.lines() {
            listed.push(NameEntry::parse(line).ok_or(LinkError::Malformed)?);
        }
        if listed.len() == before {
            return Ok(listed);
        }
    }
}

fn list_remote(remote: &Remote) -> Result<Vec<NameEntry>, Failure> {
    let listed = remote.names()?.into_iter().map(|one| NameEntry {
        name: one.name,
        bytes: one.bytes,
        memory: if one.host { MemoryKind::Host } else { MemoryKind::Device },
        user: one.user,
        // User ids are meaningful only on their own machine.
        user_name: None,
        process: Some(one.process).filter(|&process| process != 0),
        readers: one.readers,
        writers: one.writers,
        age_s: one.age_s,
        version: one.version,
    });
    Ok(listed.collect())
}

pub(crate) fn list(arguments: &ClientOptions, remote_options: &RemoteOptions) -> ExitCode {
    super::exit_code(try_list(arguments, remote_options))
}

fn try_list(arguments: &ClientOptions, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let listed = match remote_options.connect()? {
        Some(remote) => list_remote(&remote)?,
        None => list_local(&mut arguments.at.connect()?)?,
    };
    if arguments.json {
        super::print_line(serde_json::json!({ "names": listed }))?;
        return Ok(());
    }
    if listed.is_empty() {
        super::print_line(format_args!("no names; publish a file with `freehold put NAME FILE`"))?;
        return Ok(());
    }
    super::print_line(table(&listed).join("\n"))?;
    Ok(())
}

/// Formats names as a table.
pub(crate) fn table(listed: &[NameEntry]) -> Vec<String> {
    let owners: Vec<String> = listed.iter().map(owner).collect();
    let width = listed.iter().map(|one| one.name.len()).max().unwrap_or(0).max("name".len());
    let owner_width = owners.iter().map(|owner| owner.chars().count()).max().unwrap_or(0).max("owner".len());
    let row = |[name, size, memory, owner, readers, writer, age]: [&str; 7]| {
        format!("{name:width$}  {size:>10}  {memory:6}  {owner:owner_width$}  {readers:>7}  {writer:>6}  {age:>8}",)
    };
    let mut lines = vec![row(["name", "size", "memory", "owner", "readers", "writer", "age"])];
    lines.extend(listed.iter().zip(&owners).map(|(one, owner)| {
        // Host memory is not leased.
        let (readers, writer) = match one.memory {
            MemoryKind::Device => (one.readers.to_string(), if one.writers > 0 { "yes" } else { "-" }),
            MemoryKind::Host => ("-".to_owned(), "-"),
        };
        row([&one.name, &size::format(one.bytes), memory_word(one.memory), owner, &readers, writer, &age(one.age_s)])
    }));
    lines
}

/// Formats the owner: the user, and the process while it is connected.
fn owner(one: &NameEntry) -> String {
    let user = one.user_name.clone().unwrap_or_else(|| one.user.to_string());
    match one.process {
        Some(process) => format!("{user} ({process})"),
        None => user,
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

pub(crate) fn parse_name(text: &str) -> Result<Name, Failure> {
    Name::parse(text).map_err(|wrong| Failure::Wrong(format!("{text:?}: {wrong}")))
}

pub(crate) fn drop_name(arguments: &DropArguments, remote_options: &RemoteOptions) -> ExitCode {
    super::exit_code(try_drop(arguments, remote_options))
}

fn try_drop(arguments: &DropArguments, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let name = parse_name(&arguments.name)?;
    match remote_options.connect()? {
        Some(remote) => remote.drop_name(name.as_str())?,
        None => drop(arguments.options.at.connect()?.call(Request::Drop { name: name.clone() })?),
    }
    if arguments.options.json {
        super::print_line(serde_json::json!({ "dropped": name.as_str() }))?;
    } else {
        super::print_line(format_args!("{name}: dropped"))?;
    }
    Ok(())
}

pub(crate) fn totals(arguments: &ClientOptions, remote_options: &RemoteOptions) -> ExitCode {
    super::exit_code(try_totals(arguments, remote_options))
}

fn try_totals(arguments: &ClientOptions, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let stats = match remote_options.connect()? {
        Some(remote) => {
            let stats = remote.stats()?;
            [stats.budget_bytes, stats.segment_bytes, stats.leased_bytes, stats.named_bytes, stats.names]
        }
        None => {
            let Reply::Stats(stats) = arguments.at.connect()?.call(Request::Stats)?.reply else {
                return Err(LinkError::Malformed.into());
            };
            [stats.budget_bytes, stats.segment_bytes, stats.leased_bytes, stats.named_bytes, u64::from(stats.names)]
        }
    };
    let [budget_bytes, allocated_bytes, leased_bytes, named_bytes, names] = stats;
    if arguments.json {
        let stats = serde_json::json!({
            "budget_bytes": budget_bytes, "allocated_bytes": allocated_bytes, "leased_bytes": leased_bytes,
            "named_bytes": named_bytes, "names": names
        });
        return super::print_line(stats);
    }
    let bytes = [budget_bytes, allocated_bytes, leased_bytes, named_bytes];
    let [budget, allocated, leased, named] = bytes.map(size::format);
    super::print_line(format_args!(
        "{allocated} of {budget} allocated, {leased} leased, {named} published under {}",
        count(names, "name")
    ))
}

pub(crate) fn quota(arguments: &QuotaArguments) -> ExitCode {
    super::exit_code(try_quota(arguments))
}

fn parse_user(text: &str) -> Result<u32, String> {
    socket_path::user_id(text).ok_or_else(|| format!("unknown user {text:?}: see `getent passwd`"))
}

/// Parses a size, or `none`.
fn parse_change(text: &str) -> Result<QuotaChange, String> {
    match text {
        "none" => Ok(QuotaChange::Clear),
        _ => size::parse(text).map(|bytes| QuotaChange::Set { bytes }),
    }
}

fn try_quota(arguments: &QuotaArguments) -> Result<(), Failure> {
    let user = arguments.user.unwrap_or_else(|| rustix::process::getuid().as_raw());
    let memory = if arguments.host { MemoryKind::Host } else { MemoryKind::Device };
    let change = arguments.size.unwrap_or(QuotaChange::Keep);
    if let QuotaChange::Set { bytes } = change
        && bytes < memory.least_bytes()
    {
        let error = RequestError::QuotaTooSmall { least_bytes: memory.least_bytes() };
        return Err(Failure::Wrong(error.to_string()));
    }
    let mut link = arguments.options.at.connect()?;
    if change != QuotaChange::Keep {
        link.call(Request::Quota { user, memory, change })?;
    }
    let [device, host] = [MemoryKind::Device, MemoryKind::Host].map(|memory| query_quota(&mut link, user, memory));
    let ((quota, used), (host_quota, host_used)) = (device?, host?);
    if arguments.options.json {
        super::print_line(serde_json::json!({
            "user": user, "quota_bytes": quota, "used_bytes": used,
            "host_quota_bytes": host_quota, "host_used_bytes": host_used,
        }))
    } else {
        let [quota, used, host_quota, host_used] = [quota, used, host_quota, host_used].map(size::format);
        let user = socket_path::user_text(user);
        super::print_line(format_args!(
            "{user} uses {used} of {quota} of device memory\n\
             {user} uses {host_used} of {host_quota} of host memory"
        ))
    }
}

/// Returns the quota of a user, and how much is used.
fn query_quota(link: &mut Link, user: u32, memory: MemoryKind) -> Result<(u64, u64), LinkError> {
    match link.call(Request::Quota { user, memory, change: QuotaChange::Keep })?.reply {
        Reply::Number { id, bytes } => Ok((id.0, bytes)),
        _ => Err(LinkError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_broker_is_a_name() {
        let listed = NameEntry::parse("model/weights\t4096\t0\t77\t2\t0\t61\t3\t0").unwrap();
        assert_eq!((listed.name.as_str(), listed.bytes, listed.readers, listed.age_s), ("model/weights", 4096, 2, 61));
        assert_eq!((listed.user_name.as_deref(), listed.process), (Some("root"), Some(77)));
        let host = NameEntry::parse("shared\t8192\t4294967000\t0\t0\t0\t1\t1\t1").unwrap();
        assert_eq!(
            (host.bytes, host.memory, host.user_name.as_deref(), host.process),
            (4096, MemoryKind::Host, None, None)
        );
        assert_eq!(NameEntry::parse("model/weights\t4096"), None);
        assert_eq!(NameEntry::parse("model/weights\t4096\t0\t77\t2\t0\t61\t3\t2"), None);
        assert_eq!(
            table(&[listed, host]),
            [
                "name                 size  memory  owner       readers  writer       age",
                "model/weights     4.0 KiB  device  root (77)         2       -     1 min",
                "shared            4.0 KiB  host    4294967000        -       -       1 s"
            ]
        );
    }
}
