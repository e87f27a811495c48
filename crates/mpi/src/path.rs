//! Chooses the path of transfers from the environment, the device and a probe. All ranks use the same path.

use freehold::Device;

use crate::error::{Error, Result};
use crate::probe::{self, ProbeResult};
use crate::raw::{Comm, Library};
use crate::settings::{Path, Settings};

/// The paths that all ranks use, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChoice {
    /// The path of messages and one-sided transfers.
    pub transfers: Path,
    /// The path of collective calls, in which the library itself reads and writes the memory.
    pub collectives: Path,
    /// The reason, in words.
    pub reason: String,
}

/// The length of a rank's probe result.
const REASON_BYTES: usize = 1200;
/// Two flags and the length of the reason precede the reason.
const HEAD_BYTES: usize = 4;

/// Chooses the path together with all ranks.
pub(crate) fn choose(
    library: &Library,
    comm: Comm,
    settings: &Settings,
    is_host_visible: bool,
    device: &Device,
) -> Result<PathChoice> {
    let mine = (settings.path, is_host_visible);
    let all = library.allgather(comm, &encode(mine))?;
    if all.iter().any(|other| other[0] != encode(mine)[0]) {
        return Err(Error::Disagreement { what: "FREEHOLD_MPI must have the same value at all ranks" });
    }
    let all_visible = all.iter().all(|other| other[1] == 1);
    let (transfers, why) = match settings.path {
        Some(path) => (path, format!("forced by FREEHOLD_MPI={}", path.name())),
        None if all_visible => (Path::Direct, "the host can access device memory, so every MPI library can".to_owned()),
        None => return choose_by_probe(library, comm, device),
    };
    let collectives = if transfers == Path::Direct && all_visible { Path::Direct } else { Path::Staged };
    Ok(PathChoice { transfers, collectives, reason: why })
}

fn encode((path, is_host_visible): (Option<Path>, bool)) -> [u8; 2] {
    let path = match path {
        None => 0,
        Some(Path::Direct) => 1,
        Some(Path::Staged) => 2,
        Some(Path::Shared) => 3,
    };
    [path, u8::from(is_host_visible)]
}

/// Probes once per machine, and chooses the paths that work on every machine.
fn choose_by_probe(library: &Library, comm: Comm, device: &Device) -> Result<PathChoice> {
    let machine = library.node_comm(comm)?;
    let (place, _) = library.rank_and_size(machine)?;
    let finding = if place == 0 { probe::find_or_probe(device)? } else { ProbeResult::UNNEEDED };
    let mut words = [0; REASON_BYTES];
    words[0] = u8::from(finding.takes_messages);
    words[1] = u8::from(finding.takes_reductions);
    let text = finding.why.as_bytes();
    let length = text.len().min(REASON_BYTES - HEAD_BYTES);
    words[2..HEAD_BYTES].copy_from_slice(&(length as u16).to_le_bytes());
    words[HEAD_BYTES..HEAD_BYTES + length].copy_from_slice(&text[..length]);
    let all = library.allgather(comm, &words)?;
    let takes = |at: usize| all.iter().all(|words| words[at] == 1);
    // The reason of the first machine that refuses, or else of the first machine.
    let deciding = all.iter().find(|words| words[0] == 0).unwrap_or(&all[0]);
    let length = usize::from(u16::from_le_bytes([deciding[2], deciding[3]])).min(REASON_BYTES - HEAD_BYTES);
    let why = String::from_utf8_lossy(&deciding[HEAD_BYTES..HEAD_BYTES + length]).into_owned();
    // `World::new` checks next which ranks can share memory.
    let transfers = if takes(0) { Path::Direct } else { Path::Shared };
    let collectives = if takes(0) && takes(1) { Path::Direct } else { Path::Staged };
    Ok(PathChoice { transfers, collectives, reason: why })
}

/// Returns whether the flag is set at any rank.
pub(crate) fn any_rank(library: &Library, comm: Comm, mine: bool) -> Result<bool> {
    Ok(library.allgather(comm, &[u8::from(mine)])?.contains(&[1]))
}
