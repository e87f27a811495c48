//! Modules and launches of a session, which a worker of the broker runs.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freehold::{Grid, Stream};
use freehold_broker::wire::Fence;
use freehold_broker::{
    Access, Argument, Broker, Call, CallError, Caller, Kernel, Launch, Module, NamedLease, Parameter, Signature,
};
use tonic::Code;

use super::completed_set::CompletedSet;
use super::named_table::NamedTable;
use crate::convert::{kind_from_proto, kind_to_proto};
use crate::error::RemoteError;
use crate::proto::{self, BlockArgument, argument::Value};
use crate::sync::lock;

/// Launches of a session that are running, or have failed and were not waited for.
const LAUNCHES_MAX: usize = 1024;

/// Modules of a session. Those that others have dropped are forgotten first.
const MODULES_MAX: usize = 256;

/// The longest time that one call waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(super) struct Launches {
    caller: Caller,
    modules: Mutex<NamedTable<Module>>,
    launches: Mutex<LaunchTable>,
    /// The fence after the last launch of each stream.
    last_fences: Mutex<BTreeMap<u32, Fence>>,
}

#[derive(Default)]
struct LaunchTable {
    pending: BTreeMap<u64, Arc<PendingLaunch>>,
    /// The numbers of successful launches, when there are too many to keep more.
    completed: CompletedSet,
}

/// A submitted launch.
struct PendingLaunch {
    call: Call,
    /// Named leases, which are committed when the launch is complete.
    named: Mutex<Vec<NamedLease>>,
    /// Whether its failure was reported.
    is_reported: AtomicBool,
}

impl PendingLaunch {
    /// Whether no caller needs to wait for it.
    fn is_finished(&self) -> bool {
        let is_over = || self.is_reported.load(Ordering::Relaxed) || matches!(self.call.is_complete(), Ok(true));
        lock(&self.named).is_empty() && is_over()
    }
}

impl Launches {
    pub(super) fn new(broker: &Broker) -> Result<Self, RemoteError> {
        let (modules, calls, last) = (Mutex::new(NamedTable::new(MODULES_MAX)), Mutex::default(), Mutex::default());
        Ok(Self { caller: Caller::from_broker(broker)?, modules, launches: calls, last_fences: last })
    }

    /// Stores a module. Returns only its number; [`describe_module`](Self::describe_module) returns the rest.
    pub(super) fn put_module(&self, name: &str, text: &str) -> Result<proto::Module, RemoteError> {
        self.check_module_room(name)?;
        let module = self.add_module(self.caller.put_module(name, text)?)?;
        Ok(proto::Module { module, ..proto::Module::default() })
    }

    pub(super) fn find_module(&self, name: &str) -> Result<proto::Module, RemoteError> {
        self.check_module_room(name)?;
        let module = self.add_module(self.caller.module(name)?)?;
        self.describe_module(module)
    }

    pub(super) fn list_modules(&self) -> Result<proto::Modules, RemoteError> {
        let modules = self.caller.modules()?.into_iter().map(|one| proto::ListedModule {
            name: one.name,
            bytes: one.bytes,
            user: one.user,
            sha256: one.hash,
            age_s: one.age_s,
        });
        Ok(proto::Modules { modules: modules.collect() })
    }

    pub(super) fn drop_module(&self, name: &str) -> Result<(), RemoteError> {
        self.caller.drop_module(name)?;
        lock(&self.modules).remove(name);
        Ok(())
    }

    /// Checks that there is room for a module with this name, before anything is done with it.
    fn check_module_room(&self, name: &str) -> Result<(), RemoteError> {
        if lock(&self.modules).has_room(name) {
            return Ok(());
        }
        let listed: HashSet<String> = self.caller.modules()?.into_iter().map(|one| one.name).collect();
        let mut modules = lock(&self.modules);
        modules.retain(|name| listed.contains(name));
        if modules.has_room(name) { Ok(()) } else { Err(too_many_modules()) }
    }

    fn add_module(&self, module: Module) -> Result<u64, RemoteError> {
        let (number, name) = (module.id().0, module.name().clone());
        if lock(&self.modules).insert(number, &name, module) { Ok(number) } else { Err(too_many_modules()) }
    }

    fn module(&self, module: u64) -> Result<Module, RemoteError> {
        lock(&self.modules).get(module).cloned().ok_or_else(|| {
            let message = format!("the session has no module {module}: put it, or find it by name first");
            RemoteError::caller(Code::NotFound, message)
        })
    }

    pub(super) fn describe_module(&self, module: u64) -> Result<proto::Module, RemoteError> {
        let known = self.module(module)?;
        Ok(proto::Module {
            module,
            name: known.name().to_string(),
            bytes: known.bytes(),
            sha256: known.hash().to_vec(),
            kernels: known.kernels().iter().map(proto_kernel).collect(),
        })
    }

    /// Submits a launch. `block` makes arguments of the session's blocks.
    pub(super) fn launch(
        &self,
        number: u64,
        request: &proto::LaunchRequest,
        block: impl Fn(&Caller, &BlockArgument) -> Result<Argument<'static>, RemoteError>,
    ) -> Result<(), RemoteError> {
        let module = self.module(request.module)?;
        // SAFETY: this process has no memory of the device, and the kernel runs in a worker that has nothing but leases
        // of this user. What a client's kernel does to the client's memory is up to the client.
        let kernel = unsafe { module.kernel(&request.kernel) }?;
        // Names are leased only for a valid launch.
        let kinds = |place, given: &proto::Argument| match &given.value {
            Some(Value::Name(_) | Value::Block(_)) => Ok(Argument::any_memory()),
            given => parse_value(place, given.as_ref()),
        };
        let (grid, arguments) = shape(request, kinds)?;
        Launch { stream: request.stream, ..Launch::new(&kernel, grid, &arguments) }.check()?;
        self.check_room()?;
        let named = self.lease_named(&request.arguments)?;
        let put = self.put_in(&kernel, request, |place, given| match &given.value {
            Some(Value::Name(name_argument)) => Ok(named[&name_argument.name].argument(name_argument.offset)),
            Some(Value::Block(given)) => block(&self.caller, given),
            given => parse_value(place, given.as_ref()),
        });
        let named = Mutex::new(named.into_values().collect());
        match put {
            Ok(call) => {
                let put = PendingLaunch { call, named, is_reported: AtomicBool::new(false) };
                lock(&self.launches).pending.insert(number, Arc::new(put));
                Ok(())
            }
            Err(failure) => {
                self.discard(&named)?;
                Err(failure)
            }
        }
    }

    fn put_in<'a>(
        &self,
        kernel: &Kernel,
        request: &proto::LaunchRequest,
        argument: impl Fn(usize, &proto::Argument) -> Result<Argument<'a>, RemoteError>,
    ) -> Result<Call, RemoteError> {
        let (grid, arguments) = shape(request, argument)?;
        let call = self.caller.call(&Launch { stream: request.stream, ..Launch::new(kernel, grid, &arguments) })?;
        // Another launch may have been submitted after this one.
        let (mut last, point) = (lock(&self.last_fences), call.fence());
        let known = last.entry(request.stream).or_insert(point);
        if known.tenant != point.tenant || known.value < point.value {
            *known = point;
        }
        drop(last);
        Ok(call)
    }

    fn check_room(&self) -> Result<(), RemoteError> {
        let mut calls = lock(&self.launches);
        let LaunchTable { pending: put, completed } = &mut *calls;
        if put.len() >= LAUNCHES_MAX {
            for (number, put) in put.extract_if(.., |_, put| put.is_finished()) {
                if !put.is_reported.load(Ordering::Relaxed) {
                    completed.insert(number);
                }
            }
        }
        if put.len() < LAUNCHES_MAX {
            return Ok(());
        }
        let message = format!("{LAUNCHES_MAX} launches are running or have failed: wait for some first");
        Err(RemoteError::caller(Code::ResourceExhausted, message))
    }

    /// Leases the names among the arguments, each once.
    fn lease_named(&self, arguments: &[proto::Argument]) -> Result<BTreeMap<String, NamedLease>, RemoteError> {
        let name_arguments = || {
            arguments.iter().filter_map(|given| match &given.value {
                Some(Value::Name(name_argument)) => Some(name_argument),
                _ => None,
            })
        };
        let mut named = BTreeMap::new();
        for name_argument in name_arguments() {
            if named.contains_key(&name_argument.name) {
                continue;
            }
            let is_written = name_arguments()
                .any(|other| other.name == name_argument.name && other.access() == proto::Access::Write);
            let access = if is_written { Access::Write } else { Access::Read };
            match self.caller.lease_named(&name_argument.name, access) {
                Ok(one) => drop(named.insert(name_argument.name.clone(), one)),
                Err(error) => {
                    self.discard(&Mutex::new(named.into_values().collect()))?;
                    return Err(error.into());
                }
            }
        }
        Ok(named)
    }

    /// Returns names that no launch has written: they keep their versions.
    fn discard(&self, named: &Mutex<Vec<NamedLease>>) -> Result<(), RemoteError> {
        let mut named = lock(named);
        while let Some(one) = named.pop() {
            self.caller.discard(one)?;
        }
        Ok(())
    }

    fn commit(&self, named: &Mutex<Vec<NamedLease>>) -> Result<(), RemoteError> {
        let mut named = lock(named);
        while let Some(one) = named.pop() {
            self.caller.commit(one)?;
        }
        Ok(())
    }

    /// Waits until a launch is complete.
    pub(super) fn wait(&self, number: u64, timeout: Duration) -> Result<(), RemoteError> {
        let calls = lock(&self.launches);
        if calls.completed.contains(number) {
            return Ok(());
        }
        let put = calls.pending.get(&number).cloned().ok_or_else(|| {
            let message = format!("the session has no launch {number}: wait for the number that Launch returned");
            RemoteError::caller(Code::NotFound, message)
        })?;
        drop(calls);
        match put.call.wait_timeout(timeout.min(WAIT_MAX)) {
            Ok(()) => self.commit(&put.named),
            Err(error @ CallError::TimedOut { .. }) => Err(error.into()),
            Err(error) => {
                put.is_reported.store(true, Ordering::Relaxed);
                self.discard(&put.named)?;
                Err(error.into())
            }
        }
    }

    /// Makes a stream wait for all launches so far, on the device.
    pub(super) fn wait_for_launches(&self, broker: &Broker, stream: &Stream) -> Result<(), RemoteError> {
        let points: Vec<Fence> = lock(&self.last_fences).values().copied().collect();
        for point in points {
            broker.wait_fence(stream, point)?;
        }
        Ok(())
    }
}

fn too_many_modules() -> RemoteError {
    let message = format!("the session has {MODULES_MAX} modules: drop one, or use another session");
    RemoteError::caller(Code::ResourceExhausted, message)
}

/// The launch: the grid, and the arguments, which are counted from 1.
fn shape<'a>(
    request: &proto::LaunchRequest,
    argument: impl Fn(usize, &proto::Argument) -> Result<Argument<'a>, RemoteError>,
) -> Result<(Grid, Vec<Argument<'a>>), RemoteError> {
    let arguments = (1..).zip(&request.arguments).map(|(place, given)| argument(place, given));
    let [blocks, threads] = [&request.blocks, &request.threads].map(|told| dimensions(told.as_ref()));
    Ok((Grid { blocks, threads, shared_bytes: request.shared_bytes }, arguments.collect::<Result<_, _>>()?))
}

fn dimensions(told: Option<&proto::Dimensions>) -> [u32; 3] {
    told.map_or([1; 3], |told| [told.x, told.y, told.z])
}

/// Parses a number or a structure.
fn parse_value(place: usize, given: Option<&Value>) -> Result<Argument<'static>, RemoteError> {
    match given {
        Some(Value::Structure(bytes)) => Ok(Argument::bytes(bytes.as_slice())),
        Some(Value::Number(number)) => {
            let kind = match number.kind() {
                proto::Kind::Bytes => {
                    return Err(RemoteError::invalid_argument(format!(
                        "argument {place} is a number of kind BYTES: pass a structure"
                    )));
                }
                kind => kind_from_proto(kind),
            };
            let bytes = number.bytes;
            if !matches!(bytes, 1 | 2 | 4 | 8) || bytes < 8 && number.bits >> (8 * bytes) != 0 {
                let message = format!(
                    "argument {place} is a number of {bytes} bytes: expected 1, 2, 4 or 8, and a value that fits"
                );
                return Err(RemoteError::invalid_argument(message));
            }
            Ok(Argument::number(Parameter { kind, bytes }, number.bits))
        }
        _ => Err(RemoteError::invalid_argument(format!(
            "argument {place} has no value: pass a block, a name, a number or a structure"
        ))),
    }
}

fn proto_kernel(signature: &Signature) -> proto::Kernel {
    let parameters = signature
        .parameters
        .iter()
        .map(|parameter| proto::Parameter { kind: kind_to_proto(parameter.kind).into(), bytes: parameter.bytes });
    proto::Kernel { name: signature.name.to_string(), parameters: parameters.collect() }
}
