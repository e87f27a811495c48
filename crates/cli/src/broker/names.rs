//! `freehold ls`, `freehold drop` and `freehold quota`: what the broker holds, and under which names.

use std::process::ExitCode;

use freehold_broker::wire::{Reply, Request};
use freehold_broker::{Link, LinkError, Name};

use super::elsewhere::{self, Elsewhere};
use super::{At, Failure, bytes};

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
    /// What the user may have from now on, as in 4GiB; without it nothing is changed
    #[arg(value_parser = bytes::parse, value_name = "SIZE")]
    size: Option<u64>,
    /// The number of the user; without it this one
    #[arg(long)]
    user: Option<u32>,
    #[command(flatten)]
    at: At,
    /// One object with the user, the quota and what is used of it
    #[arg(long)]
    json: bool,
}

/// One name, as the broker tells of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) user: u32,
    pub(crate) process: u32,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    pub(crate) age_s: u64,
    pub(crate) version: u64,
}

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, bytes, user, process, readers, writers, age_s, version] = fields[..] else { return None };
        Some(Self {
            name: name.to_owned(),
            bytes: bytes.parse().ok()?,
            user: user.parse().ok()?,
            process: process.parse().ok()?,
            readers: readers.parse().ok()?,
            writers: writers.parse().ok()?,
            age_s: age_s.parse().ok()?,
            version: version.parse().ok()?,
        })
    }
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
        super::say(format_args!("nothing is published: `freehold put FILE --name NAME` publishes a file"))?;
        return Ok(());
    }
    super::say(table(&listed).join("\n"))?;
    Ok(())
}

/// Names in columns.
pub(crate) fn table(listed: &[Listed]) -> Vec<String> {
    let width = listed.iter().map(|one| one.name.len()).max().unwrap_or(0).max(4);
    let mut lines = vec![format!(
        "{:width$}  {:>10}  {:>8}  {:>7}  {:>6}  {:>8}",
        "name", "size", "owner", "readers", "writer", "age"
    )];
    lines.extend(listed.iter().map(|one| {
        let writer = if one.writers > 0 { "yes" } else { "-" };
        let (size, age) = (bytes::show(one.bytes), age(one.age_s));
        let (name, owner, readers) = (&one.name, one.process, one.readers);
        format!("{name:width$}  {size:>10}  {owner:>8}  {readers:>7}  {writer:>6}  {age:>8}")
    }));
    lines
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
    super::say(format_args!("{made} of {budget} made, {leased} leased, {named} under {names} names"))
}

pub(crate) fn quota(arguments: &QuotaArguments) -> ExitCode {
    super::end(try_quota(arguments))
}

fn try_quota(arguments: &QuotaArguments) -> Result<(), Failure> {
    let user = arguments.user.unwrap_or_else(|| rustix::process::getuid().as_raw());
    if arguments.size == Some(0) {
        return Err(Failure::Wrong("a quota of 0 is none: say 2MiB or more".to_owned()));
    }
    let mut link = arguments.at.connect()?;
    let answer = link.call(Request::Quota { user, bytes: arguments.size.unwrap_or(0) })?;
    let Reply::Number { id, bytes: used } = answer.reply else { return Err(LinkError::Malformed.into()) };
    if arguments.json {
        super::say(serde_json::json!({ "user": user, "quota_bytes": id.0, "used_bytes": used }))?;
    } else {
        super::say(format_args!("user {user} may have {} and has {}", bytes::show(id.0), bytes::show(used)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_broker_is_a_name() {
        let line = "model/weights\t4096\t1000\t77\t2\t0\t61\t3";
        let listed = Listed::parse(line).unwrap();
        assert_eq!((listed.name.as_str(), listed.bytes, listed.readers, listed.age_s), ("model/weights", 4096, 2, 61));
        assert_eq!(Listed::parse("model/weights\t4096"), None);
        assert_eq!(
            table(&[listed]),
            [
                "name                 size     owner  readers  writer       age",
                "model/weights     4.0 KiB        77        2       -     1 min"
            ]
        );
    }
}
