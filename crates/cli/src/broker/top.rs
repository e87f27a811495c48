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

/// How long to wait for an update before keys are read. Short enough that a key is answered at once.
const INPUT_POLL: Duration = Duration::from_millis(50);

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    super::exit_code(top(arguments))
}

fn top(arguments: &Arguments) -> Result<(), Failure> {
    let mut link = arguments.at.connect()?;
    if arguments.json {
        let (stats, listed) = fetch(&mut link)?;
        let stats = serde_json::json!({
            "budget_bytes": stats.budget_bytes, "allocated_bytes": stats.segment_bytes,
            "leased_bytes": stats.leased_bytes, "named_bytes": stats.named_bytes,
            "reclaiming_bytes": stats.reclaiming_bytes, "host_bytes": host_bytes(&listed),
            "tenants": stats.tenants, "leases": stats.leases,
        });
        super::print_line(serde_json::json!({ "stats": stats, "names": listed }))?;
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

/// Fetches the broker's statistics and names. This connection is not counted as a tenant.
fn fetch(link: &mut Link) -> Result<(BrokerStats, Vec<names::NameEntry>), LinkError> {
    let Reply::Stats(mut stats) = link.call(Request::Stats)?.reply else { return Err(LinkError::Malformed) };
    stats.tenants = stats.tenants.saturating_sub(1);
    Ok((stats, names::list_local(link)?))
}

/// Returns the published host memory.
fn host_bytes(listed: &[names::NameEntry]) -> u64 {
    listed.iter().filter(|one| one.memory == MemoryKind::Host).map(|one| one.bytes).sum()
}

fn lines(link: &mut Link) -> Result<Vec<String>, LinkError> {
    let (stats, listed) = fetch(link)?;
    let cells = |bytes: u64| (40 * bytes / stats.budget_bytes.max(1)) as usize;
    let (allocated, leased) = (cells(stats.segment_bytes), cells(stats.leased_bytes.max(stats.named_bytes)));
    let bar: String = (0..40)
        .map(|at| {
            if at < leased {
                '█'
            } else if at < allocated {
                '▒'
            } else {
                '·'
            }
        })
        .collect();
    let mut lines = vec![
        format!("{bar}  {} of {}", size::format(stats.segment_bytes), size::format(stats.budget_bytes)),
        format!(
            "named {}   leased {}   freeing {}   host {}   {}   {}",
            size::format(stats.named_bytes),
            size::format(stats.leased_bytes),
            size::format(stats.reclaiming_bytes),
            size::format(host_bytes(&listed)),
            count(u64::from(stats.tenants), "tenant"),
            count(u64::from(stats.leases), "lease")
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
