//! `freehold top`: who holds what, live, on the whole screen.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use freehold_broker::wire::{BrokerStats, MemoryKind, Reply, Request};
use freehold_broker::{Link, LinkError};

use super::{Failure, SocketOption, names};
use crate::output::size;
use crate::output::text::count;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    at: SocketOption,
    /// Print once, and exit
    #[arg(long)]
    once: bool,
    /// Print one JSON object, and exit
    #[arg(long)]
    json: bool,
}

/// How often the screen is redrawn.
const REFRESH_PERIOD: Duration = Duration::from_millis(500);

/// How long to wait for an update before keys are read: too short to notice.
const INPUT_POLL: Duration = Duration::from_millis(50);

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    super::exit_code(top(arguments))
}

fn top(arguments: &Arguments) -> Result<(), Failure> {
    let mut link = arguments.at.connect()?;
    if arguments.json {
        let (sums, listed) = fetch(&mut link)?;
        let sums = serde_json::json!({
            "budget_bytes": sums.budget_bytes, "made_bytes": sums.segment_bytes, "leased_bytes": sums.leased_bytes,
            "named_bytes": sums.named_bytes, "leaving_bytes": sums.reclaiming_bytes, "host_bytes": host_bytes(&listed),
            "tenants": sums.tenants, "leases": sums.leases,
        });
        super::print_line(serde_json::json!({ "sums": sums, "names": listed }))?;
        return Ok(());
    }
    if arguments.once || !io::stdout().is_terminal() {
        super::print_line(lines(&mut link)?.join("\n"))?;
        return Ok(());
    }
    let failed = |error: io::Error| Failure::Failed(error.to_string());
    // The thread that reads keys must not wait: a broker may hang.
    let (tell, told) = sync_channel(0);
    std::thread::Builder::new().spawn(move || poll_broker(link, &tell)).map_err(failed)?;
    let _screen = Screen::enter().map_err(failed)?;
    let (mut shown, mut heard) = (Vec::new(), Instant::now());
    loop {
        match told.recv_timeout(INPUT_POLL) {
            Ok(Ok(lines)) => (shown, heard) = (lines, Instant::now()),
            Ok(Err(LinkError::TimedOut)) | Err(_) => {}
            Ok(Err(error)) => return Err(error.into()),
        }
        let mut lines = shown.clone();
        match heard.elapsed().as_secs() {
            // After the totals.
            0 => lines.iter_mut().skip(1).take(1).for_each(|line| line.push_str("   q quits")),
            seconds => lines.insert(0, format!("no answer from the broker for {seconds} s; q quits")),
        }
        draw(&lines).map_err(failed)?;
        if has_quit(REFRESH_PERIOD).map_err(failed)? {
            return Ok(());
        }
    }
}

/// Polls the broker whenever the last answer has been shown, until the receiver or the broker is gone.
fn poll_broker(mut link: Link, tell: &SyncSender<Result<Vec<String>, LinkError>>) {
    loop {
        let seen = lines(&mut link);
        let is_over = matches!(&seen, Err(error) if *error != LinkError::TimedOut);
        if tell.send(seen).is_err() || is_over {
            return;
        }
    }
}

/// Returns whether a key that quits is pressed within this time.
fn has_quit(longest: Duration) -> io::Result<bool> {
    let mut wait = longest;
    while poll(wait)? {
        wait = Duration::ZERO;
        if let Event::Key(key) = read()? {
            let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn fetch(link: &mut Link) -> Result<(BrokerStats, Vec<names::NameEntry>), LinkError> {
    let Reply::Stats(sums) = link.call(Request::Stats)?.reply else { return Err(LinkError::Malformed) };
    Ok((sums, names::list_local(link)?))
}

/// Returns the published host memory.
fn host_bytes(listed: &[names::NameEntry]) -> u64 {
    listed.iter().filter(|one| one.memory == MemoryKind::Host).map(|one| one.bytes).sum()
}

fn lines(link: &mut Link) -> Result<Vec<String>, LinkError> {
    let (sums, listed) = fetch(link)?;
    let part = |bytes: u64| 40 * bytes / sums.budget_bytes.max(1);
    let (made, leased) = (part(sums.segment_bytes) as usize, part(sums.leased_bytes.max(sums.named_bytes)) as usize);
    let bar: String = (0..40)
        .map(|at| {
            if at < leased {
                '█'
            } else if at < made {
                '▒'
            } else {
                '·'
            }
        })
        .collect();
    let mut lines = vec![
        format!("{bar}  {} of {}", size::format(sums.segment_bytes), size::format(sums.budget_bytes)),
        format!(
            "named {}   leased {}   freeing {}   host {}   {}   {}",
            size::format(sums.named_bytes),
            size::format(sums.leased_bytes),
            size::format(sums.reclaiming_bytes),
            size::format(host_bytes(&listed)),
            // This connection is not counted.
            count(u64::from(sums.tenants.saturating_sub(1)), "tenant"),
            count(u64::from(sums.leases), "lease")
        ),
        String::new(),
    ];
    lines.extend(names::table(&listed));
    Ok(lines)
}

fn draw(lines: &[String]) -> io::Result<()> {
    let (width, height) = terminal::size()?;
    let mut out = io::stdout().lock();
    queue!(out, cursor::MoveTo(0, 0))?;
    for line in lines.iter().take(usize::from(height)) {
        let cut: String = line.chars().take(usize::from(width)).collect();
        queue!(out, Clear(ClearType::CurrentLine))?;
        write!(out, "{cut}\r\n")?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    out.flush()
}

/// The terminal in the mode that `top` needs; restored on drop.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone: nothing to restore then.
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
