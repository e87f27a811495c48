//! `freehold module`: PTX modules that the broker keeps, and their kernels' signatures.

use std::process::ExitCode;

use freehold_broker::{CallError, Caller, Module, Signature};
use freehold_remote::{Code, Remote, RemoteModule};

use super::remote::RemoteOptions;
use super::transfer::FileAndName;
use super::{ClientOptions, DropArguments, Failure, names};
use crate::output::size;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Publish a PTX file under a name, after the broker's driver has compiled it
    #[command(after_help = "Example: freehold module put blas/saxpy saxpy.ptx")]
    Put(PutArguments),
    /// List the modules and their kernels' signatures
    #[command(after_help = "Example: freehold module ls")]
    Ls(ClientOptions),
    /// Remove a module; earlier calls complete, later ones fail
    #[command(after_help = "Example: freehold module drop blas/saxpy")]
    Drop(DropArguments),
}

#[derive(clap::Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    what: FileAndName,
    #[command(flatten)]
    options: ClientOptions,
}

pub(crate) fn run(command: &Command, remote_options: &RemoteOptions) -> ExitCode {
    super::exit_code(match command {
        Command::Put(arguments) => put(arguments, remote_options),
        Command::Ls(arguments) => list(arguments, remote_options),
        Command::Drop(arguments) => drop_module(arguments, remote_options),
    })
}

/// A module at a local or remote broker.
struct ModuleInfo {
    name: String,
    bytes: u64,
    hash: String,
    kernels: Vec<Signature>,
}

fn digits(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl From<Module> for ModuleInfo {
    fn from(module: Module) -> Self {
        let (name, kernels) = (module.name().to_string(), module.kernels().to_vec());
        Self { name, bytes: module.bytes(), hash: digits(module.hash()), kernels }
    }
}

impl From<RemoteModule> for ModuleInfo {
    fn from(module: RemoteModule) -> Self {
        let (name, kernels) = (module.name().to_owned(), module.kernels().to_vec());
        Self { name, bytes: module.bytes(), hash: digits(module.hash()), kernels }
    }
}

fn put(arguments: &PutArguments, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let (path, name) = arguments.what.parse("module put")?;
    let wrong = |said: String| Failure::Wrong(format!("{}: {said}", path.display()));
    // Checked before opening: opening a pipe would wait for its writer.
    let found = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !found.is_file() {
        return Err(wrong("not a regular file: expected a PTX file".to_owned()));
    }
    if found.len() > freehold_broker::MODULE_BYTES_MAX as u64 {
        let most = freehold_broker::MODULE_BYTES_MAX;
        return Err(CallError::ModuleTooLong { bytes: found.len() as usize, most }.into());
    }
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let text =
        String::from_utf8(text).map_err(|_| wrong("not UTF-8: expected PTX, as written by `nvcc -ptx`".to_owned()))?;
    let module: ModuleInfo = match remote_options.connect()? {
        Some(remote) => remote.put_module(name.as_str(), &text)?.into(),
        None => Caller::connect_at(&arguments.options.at.path())?.put_module(name.as_str(), &text)?.into(),
    };
    if arguments.options.json {
        return super::print_line(json(&module));
    }
    let kernels: Vec<String> = module.kernels.iter().map(signature_text).collect();
    super::print_line(format_args!("{name}: {}", kernels.join(", ")))
}

/// Returns all modules, with user ids and ages.
fn list_local(caller: &Caller) -> Result<Vec<(ModuleInfo, u32, u64)>, Failure> {
    let mut modules = Vec::new();
    for one in caller.modules()? {
        match caller.module(&one.name) {
            Ok(module) => modules.push((module.into(), one.user, one.age_s)),
            // The module was dropped in the meantime.
            Err(CallError::NoModule { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(modules)
}

fn list_remote(remote: &Remote) -> Result<Vec<(ModuleInfo, u32, u64)>, Failure> {
    let mut modules = Vec::new();
    for one in remote.modules()? {
        match remote.module(&one.name) {
            Ok(module) => modules.push((module.into(), one.user, one.age_s)),
            // The module was dropped in the meantime.
            Err(failure) if failure.code == Code::NotFound && !failure.is_session_expired => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(modules)
}

fn list(arguments: &ClientOptions, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let modules = match remote_options.connect()? {
        Some(remote) => list_remote(&remote)?,
        None => list_local(&Caller::connect_at(&arguments.at.path())?)?,
    };
    if arguments.json {
        let all: Vec<_> = modules
            .iter()
            .map(|(module, user, age_s)| {
                let mut object = json(module);
                object["user"] = (*user).into();
                object["age_s"] = (*age_s).into();
                object
            })
            .collect();
        return super::print_line(serde_json::json!({ "modules": all }));
    }
    if modules.is_empty() {
        return super::print_line("no modules; publish one with `freehold module put NAME FILE`");
    }
    let width = modules.iter().map(|(module, ..)| module.name.len()).max().unwrap_or(0).max(4);
    super::print_line(format_args!("{:width$}  {:>10}  {:12}  kernels", "name", "size", "hash"))?;
    for (module, ..) in &modules {
        let kernels: Vec<String> = module.kernels.iter().map(signature_text).collect();
        let (size, hash) = (size::format(module.bytes), &module.hash[..module.hash.len().min(12)]);
        super::print_line(format_args!("{:width$}  {size:>10}  {hash:12}  {}", module.name, kernels.join(", ")))?;
    }
    Ok(())
}

fn drop_module(arguments: &DropArguments, at: &RemoteOptions) -> Result<(), Failure> {
    let name = names::parse_name(&arguments.name)?;
    match at.connect()? {
        Some(remote) => remote.drop_module(name.as_str())?,
        None => Caller::connect_at(&arguments.options.at.path())?.drop_module(name.as_str())?,
    }
    match arguments.options.json {
        true => super::print_line(serde_json::json!({ "dropped": name.as_str() })),
        false => super::print_line(format_args!("{name}: dropped")),
    }
}

/// Formats a kernel as `saxpy(u64, u64, f32, u32)`.
fn signature_text(kernel: &Signature) -> String {
    let parameters: Vec<String> = kernel.parameters.iter().map(ToString::to_string).collect();
    format!("{}({})", kernel.name, parameters.join(", "))
}

fn json(module: &ModuleInfo) -> serde_json::Value {
    let kernels: Vec<_> = module
        .kernels
        .iter()
        .map(|kernel| {
            let parameters: Vec<String> = kernel.parameters.iter().map(ToString::to_string).collect();
            serde_json::json!({ "name": &*kernel.name, "parameters": parameters })
        })
        .collect();
    serde_json::json!({ "name": module.name, "bytes": module.bytes, "sha256": module.hash, "kernels": kernels })
}
