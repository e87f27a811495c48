//! `freehold module`: texts of kernels that the broker keeps, and what the kernels take.

use std::path::PathBuf;
use std::process::ExitCode;

use freehold_broker::{CallError, Caller, Module, Signature};

use super::{At, Failure, bytes, names};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Keep a text of PTX under a name, when the broker's driver has compiled it
    ///
    /// Example: freehold module put saxpy.ptx --name blas/saxpy
    Put(PutArguments),
    /// List the modules, and what their kernels take
    Ls(ListArguments),
    /// Take a module's name away; workers that have loaded it keep it until they end
    Drop(DropArguments),
}

#[derive(clap::Args)]
pub(crate) struct PutArguments {
    /// The file, of PTX
    file: PathBuf,
    /// The name that it gets, as in blas/saxpy
    #[arg(long)]
    name: String,
    #[command(flatten)]
    at: At,
    /// One object that says what was done
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    at: At,
    /// One object with all modules
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct DropArguments {
    /// The name, as `freehold module ls` shows it
    name: String,
    #[command(flatten)]
    at: At,
    /// One object that says what was done
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    super::end(match command {
        Command::Put(arguments) => put(arguments),
        Command::Ls(arguments) => list(arguments),
        Command::Drop(arguments) => drop_module(arguments),
    })
}

fn put(arguments: &PutArguments) -> Result<(), Failure> {
    let name = names::name(&arguments.name)?;
    let path = &arguments.file;
    let wrong = |said: String| Failure::Wrong(format!("{}: {said}", path.display()));
    // Before it is opened: that of a pipe waits for who writes into it.
    let found = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !found.is_file() {
        return Err(wrong("it is no regular file: name a file of PTX".to_owned()));
    }
    if found.len() > freehold_broker::MODULE_BYTES_MAX as u64 {
        let most = freehold_broker::MODULE_BYTES_MAX;
        return Err(CallError::TooLong { bytes: found.len() as usize, most }.into());
    }
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let text = String::from_utf8(text)
        .map_err(|_| wrong("it is no text: a module is PTX, as `nvcc -ptx` writes it".to_owned()))?;
    let module = Caller::connect_at(&arguments.at.path())?.put_module(name.as_str(), &text)?;
    if arguments.json {
        return super::say(told(&module));
    }
    let kernels: Vec<String> = module.kernels().iter().map(shown).collect();
    super::say(format_args!("{name}: {}", kernels.join(", ")))
}

fn list(arguments: &ListArguments) -> Result<(), Failure> {
    let caller = Caller::connect_at(&arguments.at.path())?;
    let listed = caller.modules()?;
    let mut modules = Vec::with_capacity(listed.len());
    for one in listed {
        match caller.module(&one.name) {
            Ok(module) => modules.push((one, module)),
            // It was dropped meanwhile.
            Err(CallError::NoModule { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if arguments.json {
        let all: Vec<_> = modules
            .iter()
            .map(|(listed, module)| {
                let mut object = told(module);
                object["user"] = listed.user.into();
                object["age_s"] = listed.age_s.into();
                object
            })
            .collect();
        return super::say(serde_json::json!({ "modules": all }));
    }
    if modules.is_empty() {
        return super::say("there are no modules: `freehold module put FILE --name NAME` makes one");
    }
    let width = modules.iter().map(|(listed, _)| listed.name.len()).max().unwrap_or(0).max(4);
    super::say(format_args!("{:width$}  {:>10}  {:12}  kernels", "name", "size", "hash"))?;
    for (listed, module) in &modules {
        let kernels: Vec<String> = module.kernels().iter().map(shown).collect();
        let (size, hash) = (bytes::show(listed.bytes), &listed.hash[..listed.hash.len().min(12)]);
        super::say(format_args!("{:width$}  {size:>10}  {hash:12}  {}", listed.name, kernels.join(", ")))?;
    }
    Ok(())
}

fn drop_module(arguments: &DropArguments) -> Result<(), Failure> {
    let name = names::name(&arguments.name)?;
    Caller::connect_at(&arguments.at.path())?.drop_module(name.as_str())?;
    match arguments.json {
        true => super::say(serde_json::json!({ "dropped": name.as_str() })),
        false => super::say(format_args!("{name}: dropped")),
    }
}

/// A kernel as people write one: `saxpy(u64, u64, f32, u32)`.
fn shown(kernel: &Signature) -> String {
    let parameters: Vec<String> = kernel.parameters.iter().map(ToString::to_string).collect();
    format!("{}({})", kernel.name, parameters.join(", "))
}

fn told(module: &Module) -> serde_json::Value {
    let hash: String = module.hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let kernels: Vec<_> = module
        .kernels()
        .iter()
        .map(|kernel| {
            let parameters: Vec<String> = kernel.parameters.iter().map(ToString::to_string).collect();
            serde_json::json!({ "name": &*kernel.name, "parameters": parameters })
        })
        .collect();
    serde_json::json!({ "name": &**module.name(), "bytes": module.bytes(), "sha256": hash, "kernels": kernels })
}
