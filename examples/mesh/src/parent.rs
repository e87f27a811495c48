//! The parent: publishes the domain, starts the workers, kills one and replaces it, and reads the field at the end. It
//! computes only the initial field.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use freehold::{Device, Stream};
use freehold_broker::{Access, Broker, Policy};

use crate::error::{Error, Result};
use crate::notes::{Event, Note, now_ns};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::strip::Strip;
use crate::worker::Task;

/// How often the parent polls the progress of the workers.
const LOOK: Duration = Duration::from_millis(1);

/// A run and its environment.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub plan: &'a Plan,
    pub device: &'a Device,
    /// The name with which workers open the device.
    pub device_name: Option<&'a str>,
    /// The socket of the broker.
    pub socket: &'a Path,
    /// A prefix of the names at the broker, unique to this run.
    pub name: &'a str,
    /// Whether a worker is killed in the middle.
    pub kills: bool,
    /// The folder for the timelines of workers.
    pub traces: Option<&'a Path>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub field: Vec<f32>,
    /// Which tiles were refined in the last epoch.
    pub refined: Vec<bool>,
    /// From the start of the first worker to the end of the last.
    pub took: Duration,
    /// The notes of all workers, and the kill, in order of time.
    pub notes: Vec<Note>,
    /// The size of both generations, and the memory that the broker has created for them.
    pub domain_bytes: u64,
    pub segment_bytes: u64,
}

impl Run<'_> {
    /// Runs it. `command` starts a worker; `progress` is called with the number of finished epochs of all workers.
    ///
    /// # Errors
    /// [`Error::Ended`] if a worker exited early, and the errors of the device, the broker and the system.
    pub fn run(&self, command: impl Fn(&Task) -> Command, mut progress: impl FnMut(u64)) -> Result<Outcome> {
        let Self { plan, device, .. } = *self;
        let indexes = Progress { workers: plan.workers };
        let (stream, broker) = (device.new_stream()?, Broker::connect_at(device, self.socket)?);
        self.publish(&stream, &broker)?;
        let descriptor = indexes.create_memory().map_err(Error::system("memory for semaphores"))?;
        let semaphores = device.shared_semaphores(descriptor.as_fd(), indexes.count())?;
        // The first flag pass is already done.
        (0..plan.workers).for_each(|worker| semaphores.write(indexes.looked(worker), 1));
        let (victim, kill_epoch) = plan.victim();
        let held_epoch = self.kills.then(|| (kill_epoch + 2).min(plan.epochs() - 1));
        let start = |worker: u32, life: u32| {
            let task = Task {
                plan: *plan,
                worker,
                name: self.name.to_owned(),
                socket: self.socket.to_owned(),
                device: self.device_name.map(str::to_owned),
                trace: self.traces.map(|folder| trace_file(folder, worker, life)),
                held_epoch,
            };
            Worker::start(command(&task), &descriptor)
        };
        let began = Instant::now();
        let mut workers = (0..plan.workers).map(|worker| start(worker, 0)).collect::<Result<Vec<_>>>()?;
        let (mut is_to_kill, mut notes) = (self.kills, Vec::new());
        while !have_ended(&mut workers)? {
            let done = |worker| semaphores.read(indexes.done(worker));
            progress((0..plan.workers).map(done).sum());
            if is_to_kill && done(victim) >= kill_epoch.into() {
                let place = &mut workers[victim as usize];
                notes.extend(place.kill(victim, done(victim) as u32)?);
                *place = start(victim, 1)?;
                semaphores.write(indexes.struck(), 1);
                is_to_kill = false;
            }
            thread::sleep(LOOK);
        }
        let took = began.elapsed();
        let segment_bytes = broker.stats()?.segment_bytes;
        notes.extend(workers.into_iter().flat_map(|mut worker| worker.notes()));
        notes.sort_by_key(|note| note.at_ns);
        let (field, refined) = self.take(&stream, &broker)?;
        Ok(Outcome { field, refined, took, notes, domain_bytes: 8 * plan.cells() as u64, segment_bytes })
    }

    /// Publishes the initial domain, and which of its tiles are steep.
    fn publish(&self, stream: &Stream, broker: &Broker) -> Result<()> {
        let plan = self.plan;
        let [mut even, odd] = [broker.reserve::<f32>(stream, plan.cells())?, broker.reserve(stream, plan.cells())?];
        let strip = Strip::new(self.device, stream, plan, 0..plan.tile_rows())?;
        strip.begin(stream, &mut even.view_mut(..)?, 0..plan.size)?;
        let flags = broker.host(&Task::flags(self.name), u64::from(plan.tiles()) * 8)?;
        let mut part = flags.slice::<u32>(stream, 0, plan.tiles() as usize)?;
        strip.look(stream, 0, (&even.view(..)?, 0), &mut part.view_mut(..)?)?;
        stream.synchronize()?;
        for (name, lease) in Task::generations(self.name).iter().zip([even, odd]) {
            broker.publish(name, lease, Policy::Open).map_err(freehold_broker::Error::from)?;
        }
        Ok(())
    }

    /// Reads the field after the last epoch and which tiles are refined, and drops the names.
    fn take(&self, stream: &Stream, broker: &Broker) -> Result<(Vec<f32>, Vec<bool>)> {
        let names = Task::generations(self.name);
        let last = broker.lease::<f32>(stream, &names[self.plan.epochs() as usize % 2], Access::Read)?;
        let field = stream.download(&*last)?;
        let (flags, tiles) = (broker.open_host(&Task::flags(self.name))?, self.plan.tiles() as usize);
        let flags = &flags.atomic_u32s()[self.plan.look_of(self.plan.epochs() - 1) as usize % 2 * tiles..][..tiles];
        let refined = flags.iter().map(|flag| flag.load(Ordering::Relaxed) != 0).collect();
        for name in names.iter().chain([&Task::flags(self.name)]) {
            broker.drop_name(name)?;
        }
        Ok((field, refined))
    }
}

/// The timeline file of a worker. Its replacement has another `life`.
pub fn trace_file(folder: &Path, worker: u32, life: u32) -> PathBuf {
    folder.join(format!("worker-{worker}-{life}.json"))
}

/// A worker process, which is killed on drop.
#[derive(Debug)]
struct Worker {
    child: Child,
    told: Option<JoinHandle<Vec<Note>>>,
}

impl Worker {
    /// Starts a worker with the semaphores as its standard input.
    fn start(mut command: Command, semaphores: &OwnedFd) -> Result<Self> {
        let failed = Error::system("a worker");
        let semaphores = semaphores.try_clone().map_err(&failed)?;
        let mut child = command.stdin(Stdio::from(semaphores)).stdout(Stdio::piped()).spawn().map_err(&failed)?;
        let mut lines =
            BufReader::new(child.stdout.take().expect("standard output is piped")).lines().map_while(|line| line.ok());
        // The last line of a killed worker may be incomplete.
        let listen = move || lines.by_ref().map_while(|line| serde_json::from_str(&line).ok()).collect();
        Ok(Self { child, told: Some(thread::spawn(listen)) })
    }

    /// Kills it, and waits until it is gone and its work on the device has ended. Returns its notes, with the kill.
    fn kill(&mut self, worker: u32, epoch: u32) -> Result<Vec<Note>> {
        let process = self.child.id();
        self.child.kill().and_then(|()| self.child.wait()).map_err(Error::system("a worker's end"))?;
        let (at_ns, event) = (now_ns(), Event::Killed);
        let mut notes = self.notes();
        notes.push(Note { at_ns, worker, process, epoch, event, live_bytes: 0, reserved_bytes: 0 });
        Ok(notes)
    }

    /// Its notes until its end.
    fn notes(&mut self) -> Vec<Note> {
        self.told.take().map_or_else(Vec::new, |told| told.join().expect("the reading thread does not panic"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether all workers have exited successfully.
fn have_ended(workers: &mut [Worker]) -> Result<bool> {
    let mut all = true;
    for (worker, place) in (0..).zip(workers) {
        match place.child.try_wait().map_err(Error::system("a worker"))? {
            None => all = false,
            Some(status) if status.success() => {}
            Some(status) => return Err(Error::Ended { worker, status }),
        }
    }
    Ok(all)
}
