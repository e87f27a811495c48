//! The partner process of `freehold bench share`: it receives leases and hands them back.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use freehold::{Grid, Image, open};
use freehold_broker::wire::{Fence, Id};
use freehold_broker::{Broker, Link, SpinPolicy};

/// A kernel that records when it started and ended.
pub(super) const STAMP: &str = include_str!("stamp.ptx");

#[derive(clap::Args)]
pub(crate) struct Arguments {
    task: String,
    /// The tenant that gets everything back
    to: u64,
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    device: Option<String>,
}

/// What it does with what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Hands it back at once, spinning.
    Spin,
    /// Hands it back at once, sleeping until it arrives.
    Sleep,
    /// Runs a kernel after the sender's, and hands it back.
    Kernel,
    /// Echoes standard input, a socket, without a broker.
    Echo,
}

impl Task {
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Sleep => "sleep",
            Self::Kernel => "kernel",
            Self::Echo => "echo",
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let outcome = match arguments.task.as_str() {
        "spin" => return_leases(arguments, SpinPolicy::Forever),
        "sleep" => return_leases(arguments, SpinPolicy::For(Duration::ZERO)),
        "kernel" => kernels(arguments),
        "echo" => echo(),
        _ => Err("this command is internal: run `freehold bench share`".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn return_leases(arguments: &Arguments, patience: SpinPolicy) -> Outcome {
    let mut link = Link::connect(&arguments.socket)?;
    link.spin_policy = patience;
    println!("{}", link.tenant().0);
    loop {
        let given = link.wait_given()?;
        link.give(given.granted.lease, Id(arguments.to), Fence::default())?;
    }
}

fn kernels(arguments: &Arguments) -> Outcome {
    let device = open::device(arguments.device.as_deref())?;
    let stream = device.new_stream()?;
    let module = device.module(&Image::ptx(STAMP)?)?;
    // SAFETY: `stamp` writes two words, and gets views of two.
    let stamp = unsafe { module.kernel("stamp") }?;
    let broker = Broker::connect_at(&device, &arguments.socket)?;
    broker.set_spin_policy(SpinPolicy::Forever)?;
    println!("{}", broker.tenant().0);
    loop {
        let mut lease = broker.receive::<u64>(&stream)?;
        stream.launch(&stamp, Grid::line(1, 1), (&mut lease.view_mut(2..4)?, 0u64))?;
        broker.give(lease, Id(arguments.to))?;
    }
}

fn echo() -> Outcome {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    println!("0");
    let mut message = [0; 64];
    loop {
        if socket.read_exact(&mut message).is_err() {
            return Ok(());
        }
        socket.write_all(&message)?;
    }
}
