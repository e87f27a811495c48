//! `freehold ls`, `freehold drop` and `freehold quota`: what the broker holds, and under which names.

use std::process::ExitCode;

use freehold_broker::wire::{Change, Memory, Reply, Request};
use freehold_broker::{Host, Link, LinkError, Name, place};
use serde::Serializer;

use super::elsewhere::{self, Elsewhere};
use super::{At, Failure, bytes};
use crate::replay::report::count;

#[derive(clap::Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    at: At,
    /// One object with all names
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct DropArguments {
    /// The name, as `freehold ls` shows it
    name: String,
    #[command(flatten)]
    at: At,
    /// One object that says what was done
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct TotalsArguments {
    #[command(flatten)]
    at: At,
    /// One object with all sums
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct QuotaArguments {
    /// What the user may have from now on, as in 4GiB, or none to take the quota away; without it nothing is changed
    #[arg(value_parser = change, value_name = "SIZE")]
    size: Option<Change>,
    /// Change the quota of named memory of the host, and not of the device's
    #[arg(long, requires = "size")]
    host: bool,
    /// The number of the user; without it this one
    #[arg(long)]
    user: Option<u32>,
    #[command(flatten)]
    at: At,
    /// One object with the user, the quotas and what is used of them
    #[arg(long)]
    json: bool,
}

/// One name, as the broker tells of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    #[serde(serialize_with = "write_memory")]
    pub(crate) memory: Memory,
    pub(crate) user: u32,
    pub(crate) user_name: Option<String>,
    /// Who made it, while that is at the broker.
    pub(crate) process: Option<u32>,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    pub(crate) age_s: u64,
    pub(crate) version: u64,
}

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, bytes, user, process, readers, writers, age_s, version, memory] = fields[..] else { return None };
        let (user, bytes) = (user.parse().ok()?, bytes.parse::<u64>().ok()?);
        let (memory, bytes) = match memory {
            "0" => (Memory::Device, bytes),
            // Who asked for it did not ask for its header.
            "1" => (Memory::Host, bytes.saturating_sub(Host::HEADER_BYTES)),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            bytes,
            memory,
            user,
            user_name: place::user_name(user),
            process: Some(process.parse().ok()?).filter(|&process| process != 0),
            readers: readers.parse().ok()?,
            writers: writers.parse().ok()?,
            age_s: age_s.parse().ok()?,
            version: version.parse().ok()?,
        })
    }
}

fn word(memory: Memory) -> &'static str {
    match memory {
        Memory::Device => "device",
        Memory::Host => "host",
    }
}

fn write_memory<S: Serializer>(memory: &Memory, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(word(*memory))
}

/// All names of a broker.
pub(crate) fn all(link: &mut Link) -> Result<Vec<Listed>, LinkError> {
    let mut listed: Vec<Listed> = Vec::new();
    loop {
        let after = listed.last().and_then(|last| Name::parse(&last.name).ok());
        let text = link.call(Request::List { after })?.text;
        let before = listed.len();
        for line in text.lines() {
            listed.push(Listed::parse(line).ok_or(LinkError::Malformed)?);
        }
        if listed.len() == before {
            return Ok(listed);
        }
    }
}

pub(crate) fn list(arguments: &ListArguments, elsewhere: &Elsewhere) -> ExitCode {
    super::end(try_list(arguments, elsewhere))
}

fn try_list(arguments: &ListArguments, elsewhere: &Elsewhere) -> Result<(), Failure> {
    let listed = match elsewhere.connect()? {
        Some(remote) => elsewhere::all(&remote)?,
        None => all(&mut arguments.at.connect()?)?,
    };
    if arguments.json {
        super::say(serde_json::json!({ "names": listed }))?;
        return Ok(());
    }
    if listed.is_empty() {
        super::say(format_args!("nothing is published: `freehold put NAME FILE` publishes a file"))?;
        return Ok(());
    }
    super::say(table(&listed).join("\n"))?;
    Ok(())
}

/// Names in columns.
pub(crate) fn table(listed: &[Listed]) -> Vec<String> {
    let owners: Vec<String> = listed.iter().map(owner).collect();
    let width = listed.iter().map(|one| one.name.len()).max().unwrap_or(0).max("name".len());
    let owner_width = owners.iter().map(|owner| owner.chars().count()).max().unwrap_or(0).max("owner".len());
    let row = |[name, size, memory, owner, readers, writer, age]: [&str; 7]| {
        format!("{name:width$}  {size:>10}  {memory:6}  {owner:owner_width$}  {readers:>7}  {writer:>6}  {age:>8}",)
    };
    let mut lines = vec![row(["name", "size", "memory", "owner", "readers", "writer", "age"])];
    lines.extend(listed.iter().zip(&owners).map(|(one, owner)| {
        // Memory of the host is not leased.
        let (readers, writer) = match one.memory {
            Memory::Device => (one.readers.to_string(), if one.writers > 0 { "yes" } else { "-" }),
            Memory::Host => ("-".to_owned(), "-"),
        };
        row([&one.name, &bytes::show(one.bytes), word(one.memory), owner, &readers, writer, &age(one.age_s)])
    }));
    lines
}

/// Whose it is: the user, and the process while that is there.
fn owner(one: &Listed) -> String {
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

pub(crate) fn name(text: &str) -> Result<Name, Failure> {
    Name::parse(text).map_err(|wrong| Failure::Wrong(format!("{text:?}: {wrong}")))
}

pub(crate) fn drop_name(arguments: &DropArguments, elsewhere: &Elsewhere) -> ExitCode {
    super::end(try_drop(arguments, elsewhere))
}

fn try_drop(arguments: &DropArguments, elsewhere: &Elsewhere) -> Result<(), Failure> {
    let name = name(&arguments.name)?;
    match elsewhere.connect()? {
        Some(remote) => remote.drop_name(name.as_str())?,
        None => drop(arguments.at.connect()?.call(Request::Drop { name: name.clone() })?),
    }
    if arguments.json {
        super::say(serde_json::json!({ "dropped": name.as_str() }))?;
    } else {
        super::say(format_args!("{name}: dropped"))?;
    }
    Ok(())
}

pub(crate) fn totals(arguments: &TotalsArguments, elsewhere: &Elsewhere) -> ExitCode {
    super::end(try_totals(arguments, elsewhere))
}

fn try_totals(arguments: &TotalsArguments, elsewhere: &Elsewhere) -> Result<(), Failure> {
    let sums = match elsewhere.connect()? {
        Some(remote) => {
            let sums = remote.totals()?;
            [sums.budget_bytes, sums.made_bytes, sums.leased_bytes, sums.named_bytes, sums.names]
        }
        None => {
            let Reply::Sums(sums) = arguments.at.connect()?.call(Request::Totals)?.reply else {
                return Err(LinkError::Malformed.into());
            };
            [sums.budget_bytes, sums.made_bytes, sums.leased_bytes, sums.named_bytes, u64::from(sums.names)]
        }
    };
    let [budget_bytes, made_bytes, leased_bytes, named_bytes, names] = sums;
    if arguments.json {
        let sums = serde_json::json!({
            "budget_bytes": budget_bytes, "made_bytes": made_bytes, "leased_bytes": leased_bytes,
            "named_bytes": named_bytes, "names": names
        });
        return super::say(sums);
    }
    let [budget, made, leased, named] = [budget_bytes, made_bytes, leased_bytes, named_bytes].map(bytes::show);
    super::say(format_args!("{made} of {budget} made, {leased} leased, {named} under {}", count(names, "name")))
}

pub(crate) fn quota(arguments: &QuotaArguments) -> ExitCode {
    super::end(try_quota(arguments))
}

/// A size, or that there is to be none.
fn change(text: &str) -> Result<Change, String> {
    match text {
        "none" => Ok(Change::Clear),
        _ => bytes::parse(text).map(|bytes| Change::Set { bytes }),
    }
}

fn try_quota(arguments: &QuotaArguments) -> Result<(), Failure> {
    let user = arguments.user.unwrap_or_else(|| rustix::process::getuid().as_raw());
    let memory = if arguments.host { Memory::Host } else { Memory::Device };
    let change = arguments.size.unwrap_or(Change::Keep);
    if let Change::Set { bytes } = change
        && bytes < memory.least_bytes()
    {
        let least = memory.least_bytes() >> 10;
        let sentence =
            format!("nothing can be had with {bytes} bytes: say {least}KiB or more, or none to take the quota away");
        return Err(Failure::Wrong(sentence));
    }
    let mut link = arguments.at.connect()?;
    if change != Change::Keep {
        link.call(Request::Quota { user, memory, change })?;
    }
    let [device, host] = [Memory::Device, Memory::Host].map(|memory| ask_quota(&mut link, user, memory));
    let ((quota, used), (host_quota, host_used)) = (device?, host?);
    if arguments.json {
        super::say(serde_json::json!({
            "user": user, "quota_bytes": quota, "used_bytes": used,
            "host_quota_bytes": host_quota, "host_used_bytes": host_used,
        }))
    } else {
        let [quota, used, host_quota, host_used] = [quota, used, host_quota, host_used].map(bytes::show);
        super::say(format_args!(
            "user {user} may have {quota} of the device's memory and has {used}\n\
             user {user} may have {host_quota} of the host's memory and has {host_used}"
        ))
    }
}

/// What a user may have, and has.
fn ask_quota(link: &mut Link, user: u32, memory: Memory) -> Result<(u64, u64), LinkError> {
    match link.call(Request::Quota { user, memory, change: Change::Keep })?.reply {
        Reply::Number { id, bytes } => Ok((id.0, bytes)),
        _ => Err(LinkError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_broker_is_a_name() {
        let listed = Listed::parse("model/weights\t4096\t0\t77\t2\t0\t61\t3\t0").unwrap();
        assert_eq!((listed.name.as_str(), listed.bytes, listed.readers, listed.age_s), ("model/weights", 4096, 2, 61));
        assert_eq!((listed.user_name.as_deref(), listed.process), (Some("root"), Some(77)));
        let host = Listed::parse("shared\t8192\t4294967000\t0\t0\t0\t1\t1\t1").unwrap();
        assert_eq!(
            (host.bytes, host.memory, host.user_name.as_deref(), host.process),
            (4096, Memory::Host, None, None)
        );
        assert_eq!(Listed::parse("model/weights\t4096"), None);
        assert_eq!(Listed::parse("model/weights\t4096\t0\t77\t2\t0\t61\t3\t2"), None);
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
