//! A worker: a process that leases the domain and computes its rows. If it is killed, the generation that it was
//! reading is intact, and a semaphore says how far it came.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use freehold::{Device, open, timeline::Recording};
use freehold_broker::{Access, Broker};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::notes::{Event, Note, now_ns};
use crate::plan::{Plan, TILE};
use crate::progress::Progress;
use crate::strip::Strip;

/// How often the host polls for something that it has to know.
const LOOK: Duration = Duration::from_micros(200);

/// Reports an epoch, what happened, and the live bytes.
type Tell<'a> = &'a mut dyn FnMut(u32, Event, u64) -> Result<()>;

/// The task of a worker, passed as one argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub plan: Plan,
    pub worker: u32,
    /// The prefix of the names at the broker.
    pub name: String,
    pub socket: PathBuf,
    pub device: Option<String>,
    /// The file for the timeline.
    pub trace: Option<PathBuf>,
    /// The epoch that no worker begins before the victim was killed.
    pub held_epoch: Option<u32>,
}

impl Task {
    /// Encodes the task as an argument.
    pub fn word(&self) -> String {
        serde_json::to_string(self).expect("numbers and text")
    }

    pub fn parse(word: &str) -> Option<Self> {
        serde_json::from_str(word).ok()
    }

    /// The names of both generations: even ones are in the first.
    pub(crate) fn generations(name: &str) -> [String; 2] {
        [format!("{name}/even"), format!("{name}/odd")]
    }

    /// The name of the memory for steep flags: one word per tile, for even and for odd flag passes.
    pub(crate) fn flags(name: &str) -> String {
        format!("{name}/steep")
    }

    /// Runs it. `semaphores` is a descriptor of their memory; notes are written to `out`.
    pub fn run(&self, semaphores: BorrowedFd<'_>, mut out: impl Write) -> Result<()> {
        let device = open::device(self.device.as_deref())?;
        let mut tell = |epoch, event, live_bytes| {
            let (at_ns, process, reserved_bytes) = (now_ns(), std::process::id(), device.stats().reserved_bytes);
            let note = Note { at_ns, worker: self.worker, process, epoch, event, live_bytes, reserved_bytes };
            let line = serde_json::to_string(&note).expect("numbers and words") + "\n";
            out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(Error::system("the parent"))
        };
        tell(0, Event::Opened, 0)?;
        let recording = self.trace.as_deref().map(|path| device.record(Some(path))).transpose()?;
        self.compute(&device, semaphores, recording.as_ref(), &mut tell)?;
        recording.map_or(Ok(()), |recording| Ok(recording.finish()?))
    }

    fn compute(
        &self,
        device: &Device,
        semaphores: BorrowedFd<'_>,
        trace: Option<&Recording>,
        tell: Tell<'_>,
    ) -> Result<()> {
        let Self { plan, worker, .. } = *self;
        let indexes = Progress { workers: plan.workers };
        // The recording is in the file before a worker is killed.
        let flush = || trace.map_or(Ok(()), Recording::flush);
        let semaphores = device.shared_semaphores(semaphores, indexes.count())?;
        let (stream, broker) = (device.new_stream()?, Broker::connect_at(device, &self.socket)?);
        let [even, odd] = Self::generations(&self.name);
        let mut even = broker.lease::<f32>(&stream, &even, Access::Write)?;
        let mut odd = broker.lease::<f32>(&stream, &odd, Access::Write)?;
        let flags = broker.open_host(&Self::flags(&self.name))?;
        let rows = plan.strip(worker);
        let mut strip = Strip::new(device, &stream, &plan, rows.clone())?;
        // The offset of the flags of a pass, in words.
        let flags_of = |look: u32| (look % 2 * plan.tiles() + rows.start * plan.tile_rows()) as usize;
        // A predecessor finished this many epochs. The one that it was in is computed again.
        let first_epoch = semaphores.read(indexes.done(worker)) as u32;
        tell(first_epoch, Event::Leased, strip.live_bytes())?;
        let reads = plan.reads(&rows);
        let (read, own) = (plan.cells_of(&reads), plan.cells_of(&(rows.start * TILE..rows.end * TILE)));
        let mut idle_epochs = 0;
        for epoch in first_epoch..plan.epochs() {
            let look = plan.look_of(epoch);
            if epoch == first_epoch || look != plan.look_of(epoch - 1) {
                // The flag pass was made some epochs ago, and the device has more work queued after it.
                while semaphores.read(indexes.looked(worker)) < u64::from(look) + 1 {
                    flush()?;
                    std::thread::sleep(LOOK);
                }
                let steep = &flags.atomic_u32s()[flags_of(look)..][..strip.count() as usize];
                let steep: Vec<u32> = steep.iter().map(|flag| flag.load(Ordering::Relaxed)).collect();
                strip.refine(&stream, &steep)?;
                tell(epoch, Event::Refined { tiles: strip.refined as u32 }, strip.live_bytes())?;
                // Memory that earlier passes freed goes back to the driver now.
                device.trim()?;
            }
            if epoch > first_epoch && semaphores.read(indexes.done(worker)) >= u64::from(epoch) {
                idle_epochs += 1;
            }
            for neighbour in [worker.wrapping_sub(1), worker + 1].into_iter().filter(|&other| other < plan.workers) {
                stream.wait_value(&semaphores, indexes.done(neighbour), epoch.into())?;
            }
            if self.held_epoch == Some(epoch) {
                stream.wait_value(&semaphores, indexes.struck(), 1)?;
            }
            let (from, to) = if epoch % 2 == 0 { (&even, &mut odd) } else { (&odd, &mut even) };
            let from = from.view(read.clone())?;
            if let Some(look) = plan.look_at(epoch) {
                let mut part = flags.slice::<u32>(&stream, flags_of(look) as u64 * 4, strip.count() as usize)?;
                strip.look(&stream, epoch, (&from, reads.start), &mut part.view_mut(..)?)?;
                stream.write_value(&semaphores, indexes.looked(worker), u64::from(look) + 1)?;
            }
            strip.epoch(&stream, epoch, (&from, reads.start), &mut to.view_mut(own.clone())?)?;
            stream.write_value(&semaphores, indexes.done(worker), u64::from(epoch) + 1)?;
            flush()?;
        }
        stream.synchronize()?;
        tell(plan.epochs(), Event::Ended { copied_bytes: strip.copied_bytes, idle_epochs }, strip.live_bytes())
    }
}
