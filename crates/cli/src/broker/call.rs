//! `freehold call`: a worker of the broker launches a kernel of a module on published memory. This process needs no
//! device.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use freehold::Grid;
use freehold_broker::{Access, Argument, Caller, Executed, Launch, Name, NamedLease};
use freehold_remote::{Remote, RemoteArgument};

use super::remote::RemoteOptions;
use super::{ClientOptions, Failure, names};
use crate::output::size;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The module, as `freehold module ls` shows it
    module: String,
    /// The kernel, as `freehold module ls` shows it
    kernel: String,
    /// Grid size: blocks in x, or in x, y and z, such as 4096 or 64,64
    #[arg(long, value_parser = dimensions, value_name = "X[,Y,Z]")]
    grid: [u32; 3],
    /// Block size: threads in x, or in x, y and z
    #[arg(long, value_parser = dimensions, value_name = "X[,Y,Z]")]
    block: [u32; 3],
    /// Dynamic shared memory per block
    #[arg(long, value_parser = size::parse, value_name = "SIZE", default_value = "0")]
    shared: u64,
    /// An argument: lease:NAME (published memory, to read and write), read:NAME (to read), both optionally with +BYTES
    /// as an offset; a number such as u32:7, i64:-1, f32:2.0 (8 to 64 bits); or a structure such as bytes:0a0b0c
    #[arg(long = "arg", value_parser = parse, value_name = "KIND:VALUE", allow_hyphen_values = true)]
    arguments: Vec<CallArgument>,
    /// Share a worker with all processes of this user that give the same label
    #[arg(long, value_name = "LABEL")]
    share: Option<String>,
    #[command(flatten)]
    options: ClientOptions,
}

/// A parsed argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallArgument {
    Value(Argument<'static>),
    Named { name: Name, access: Access, offset_bytes: u64 },
}

impl CallArgument {
    /// Returns the argument, with its name's lease.
    fn argument<'a>(&self, leases: &'a BTreeMap<Name, NamedLease>) -> Argument<'a> {
        match self {
            Self::Value(value) => value.clone(),
            Self::Named { name, offset_bytes, .. } => leases[name].argument(*offset_bytes),
        }
    }

    /// Returns the argument's kind, without its memory.
    fn kind(&self) -> Argument<'static> {
        match self {
            Self::Value(value) => value.clone(),
            Self::Named { .. } => Argument::any_memory(),
        }
    }
}

/// Parses one to three numbers separated by commas.
fn dimensions(text: &str) -> Result<[u32; 3], String> {
    let wrong = || format!("expected one to three positive numbers such as 4096 or 64,64, found {text:?}");
    let numbers = text.split(',').map(|part| part.trim().parse().ok().filter(|&number| number > 0));
    let numbers: Vec<u32> = numbers.collect::<Option<_>>().ok_or_else(wrong)?;
    match numbers[..] {
        [x] => Ok([x, 1, 1]),
        [x, y] => Ok([x, y, 1]),
        [x, y, z] => Ok([x, y, z]),
        _ => Err(wrong()),
    }
}

fn parse(text: &str) -> Result<CallArgument, String> {
    let Some((kind, value)) = text.split_once(':') else {
        return Err(format!(
            "expected KIND:VALUE such as lease:NAME, read:NAME, u32:7, f32:2.0 or bytes:0a0b, found {text:?}"
        ));
    };
    macro_rules! number {
        ($ty:ty) => {{
            let number: $ty = value
                .parse()
                .map_err(|_| format!("expected a number that fits into {kind}, such as {kind}:7, found {value:?}"))?;
            Ok(CallArgument::Value(number.into()))
        }};
    }
    match kind {
        "u8" => number!(u8),
        "u16" => number!(u16),
        "u32" => number!(u32),
        "u64" => number!(u64),
        "i8" => number!(i8),
        "i16" => number!(i16),
        "i32" => number!(i32),
        "i64" => number!(i64),
        "f32" => number!(f32),
        "f64" => number!(f64),
        "bytes" => Ok(CallArgument::Value(Argument::bytes(digits(value)?))),
        "lease" | "read" => {
            let (name, offset) = value.split_once('+').unwrap_or((value, "0"));
            let name = Name::parse(name).map_err(|wrong| format!("{name:?}: {wrong}"))?;
            let access = if kind == "read" { Access::Read } else { Access::Write };
            Ok(CallArgument::Named { name, access, offset_bytes: size::parse(offset)? })
        }
        _ => {
            Err(format!("unknown kind {kind:?}: expected lease, read, bytes, or a number type such as u32, i64 or f32"))
        }
    }
}

/// Parses bytes, two hexadecimal digits each.
fn digits(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("expected two hexadecimal digits per byte, such as 0a0b0c, found {text:?}");
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return Err(wrong());
    }
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())).collect()
}

pub(crate) fn run(arguments: &Arguments, remote_options: &RemoteOptions) -> ExitCode {
    super::exit_code(call(arguments, remote_options))
}

fn call(arguments: &Arguments, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let module = names::parse_name(&arguments.module)?;
    let shared_bytes =
        u32::try_from(arguments.shared).map_err(|_| Failure::Wrong("--shared: expected at most 227KiB".to_owned()))?;
    let grid = Grid { blocks: arguments.grid, threads: arguments.block, shared_bytes };
    let took = match remote_options.connect()? {
        Some(remote) => call_remote(&remote, module.as_str(), &arguments.kernel, grid, &arguments.arguments)?,
        None => call_local(arguments, &module, grid)?,
    };
    if arguments.options.json {
        let (module, kernel) = (module.as_str(), &arguments.kernel);
        return super::print_line(
            serde_json::json!({ "module": module, "kernel": kernel, "seconds": took.as_secs_f64() }),
        );
    }
    super::print_line(format_args!("{} of {module}: done in {took:.1?}", arguments.kernel))
}

/// Returns how long the call took.
fn call_local(arguments: &Arguments, module: &Name, grid: Grid) -> Result<Duration, Failure> {
    let caller = Caller::connect_at(&arguments.options.at.path())?;
    let caller = match &arguments.share {
        Some(label) => caller.share_worker(label),
        None => caller,
    };
    let module = caller.module(module.as_str())?;
    // SAFETY: this process has no device memory; the user who calls the kernel is responsible for what it does to
    // leased memory.
    let kernel = unsafe { module.kernel(&arguments.kernel) }?;
    // Checks the arguments before leasing any name.
    let kinds: Vec<Argument> = arguments.arguments.iter().map(CallArgument::kind).collect();
    Launch::new(&kernel, grid, &kinds).check()?;
    let leases = lease(&caller, &arguments.arguments)?;
    let given: Vec<_> = arguments.arguments.iter().map(|call_argument| call_argument.argument(&leases)).collect();
    let began = Instant::now();
    let outcome = caller.call(&Launch::new(&kernel, grid, &given)).and_then(|call| call.wait());
    let took = began.elapsed();
    if let Err(error) = outcome {
        // Memory that was not written is unchanged.
        if error.executed() == Executed::No {
            leases.into_values().try_for_each(|named| caller.discard(named))?;
        }
        return Err(error.into());
    }
    for (_, named) in leases {
        caller.commit(named)?;
    }
    Ok(took)
}

/// Runs a kernel on published memory, and waits for it. Returns how long it took.
fn call_remote(
    remote: &Remote,
    module: &str,
    kernel: &str,
    grid: Grid,
    arguments: &[CallArgument],
) -> Result<Duration, Failure> {
    let module = remote.module(module)?;
    module.expect_kernel(kernel)?;
    let given = arguments.iter().map(|argument| match argument {
        CallArgument::Value(value) => RemoteArgument::Value(value),
        CallArgument::Named { name, access, offset_bytes } => {
            RemoteArgument::Named(name.as_str(), *access, *offset_bytes)
        }
    });
    let given: Vec<_> = given.collect();
    let began = Instant::now();
    remote.launch(&module, kernel, grid, &given)?.wait()?;
    Ok(began.elapsed())
}

/// Leases each name once: for writing, if any argument writes it.
fn lease(caller: &Caller, all: &[CallArgument]) -> Result<BTreeMap<Name, NamedLease>, Failure> {
    let mut leases = BTreeMap::new();
    for call_argument in all {
        let CallArgument::Named { name, .. } = call_argument else { continue };
        if !leases.contains_key(name) {
            let is_written = |call_argument: &CallArgument| matches!(call_argument, CallArgument::Named { name: other, access: Access::Write, .. } if other == name);
            let access = if all.iter().any(is_written) { Access::Write } else { Access::Read };
            leases.insert(name.clone(), caller.lease_named(name.as_str(), access)?);
        }
    }
    Ok(leases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_parsed_by_its_prefix() {
        assert_eq!(parse("u32:7"), Ok(CallArgument::Value(7_u32.into())));
        assert_eq!(parse("i64:-1"), Ok(CallArgument::Value((-1_i64).into())));
        assert_eq!(parse("f32:2.5"), Ok(CallArgument::Value(2.5_f32.into())));
        assert_eq!(parse("bytes:0aFF"), Ok(CallArgument::Value(Argument::bytes([10, 255]))));
        let named =
            |access, offset_bytes| CallArgument::Named { name: Name::parse("a/y").unwrap(), access, offset_bytes };
        assert_eq!(parse("lease:a/y"), Ok(named(Access::Write, 0)));
        assert_eq!(parse("read:a/y+4KiB"), Ok(named(Access::Read, 4096)));
    }

    #[test]
    fn an_invalid_argument_is_one_sentence() {
        let refused = |text| parse(text).unwrap_err();
        assert_eq!(
            refused("7"),
            "expected KIND:VALUE such as lease:NAME, read:NAME, u32:7, f32:2.0 or bytes:0a0b, found \"7\""
        );
        assert_eq!(
            refused("u33:7"),
            "unknown kind \"u33\": expected lease, read, bytes, or a number type such as u32, i64 or f32"
        );
        assert_eq!(refused("u8:256"), "expected a number that fits into u8, such as u8:7, found \"256\"");
        assert_eq!(refused("bytes:abc"), "expected two hexadecimal digits per byte, such as 0a0b0c, found \"abc\"");
        assert_eq!(refused("lease:/y"), "\"/y\": part 1 of the name has 0 bytes: expected 1 to 64 between slashes");
    }

    #[test]
    fn sizes_of_grids_are_one_to_three_numbers() {
        assert_eq!(dimensions("4096"), Ok([4096, 1, 1]));
        assert_eq!(dimensions("4, 5,6"), Ok([4, 5, 6]));
        for text in ["", "0", "1,2,3,4", "-1", "1,,2", "x"] {
            let said = format!("expected one to three positive numbers such as 4096 or 64,64, found {text:?}");
            assert_eq!(dimensions(text), Err(said));
        }
    }
}
