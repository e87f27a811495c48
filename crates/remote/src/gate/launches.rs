//! Modules and launches of a session: what its worker was asked to run, and what became of it.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freehold::{Grid, Stream};
use freehold_broker::wire::Point;
use freehold_broker::{
    Access, Argument, Broker, Call, CallError, Caller, Kernel, Kind, Launch, Module, Named, Parameter, Signature,
};
use tonic::Code;

use super::known::Known;
use super::lock;
use super::over::Over;
use crate::failure::Failure;
use crate::proto::{self, BlockArgument, argument::Value};

/// Launches of a session that are under way, or went wrong and were not waited for.
const LAUNCHES_MAX: usize = 1024;

/// Modules that a session knows. What others have dropped is forgotten first.
const MODULES_MAX: usize = 256;

/// The longest that one call waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(super) struct Launches {
    caller: Caller,
    modules: Mutex<Known<Module>>,
    calls: Mutex<Calls>,
    /// The points behind the last launch of each stream.
    last: Mutex<BTreeMap<u32, Point>>,
}

#[derive(Default)]
struct Calls {
    put: BTreeMap<u64, Arc<Put>>,
    /// Of those that went well no more is kept than their numbers, when there are many.
    over: Over,
}

/// A launch that was put in.
struct Put {
    call: Call,
    /// What has a name, and is there again when the launch is over.
    named: Mutex<Vec<Named>>,
    /// Whether somebody heard that it went wrong.
    is_told: AtomicBool,
}

impl Put {
    /// Whether nobody has to wait for it.
    fn is_settled(&self) -> bool {
        let is_over = || self.is_told.load(Ordering::Relaxed) || matches!(self.call.is_done(), Ok(true));
        lock(&self.named).is_empty() && is_over()
    }
}

impl Launches {
    pub(super) fn new(broker: &Broker) -> Result<Self, Failure> {
        let (modules, calls, last) = (Mutex::new(Known::new(MODULES_MAX)), Mutex::default(), Mutex::default());
        Ok(Self { caller: Caller::of(broker)?, modules, calls, last })
    }

    /// Its number: [`describe`](Self::describe) says the rest.
    pub(super) fn put(&self, name: &str, text: &str) -> Result<proto::Module, Failure> {
        self.expect_known(name)?;
        let module = self.know(self.caller.put_module(name, text)?)?;
        Ok(proto::Module { module, ..proto::Module::default() })
    }

    pub(super) fn find(&self, name: &str) -> Result<proto::Module, Failure> {
        self.expect_known(name)?;
        let module = self.know(self.caller.module(name)?)?;
        self.describe(module)
    }

    pub(super) fn list(&self) -> Result<proto::Modules, Failure> {
        let modules = self.caller.modules()?.into_iter().map(|one| proto::ListedModule {
            name: one.name,
            bytes: one.bytes,
            user: one.user,
            sha256: one.hash,
            age_s: one.age_s,
        });
        Ok(proto::Modules { modules: modules.collect() })
    }

    pub(super) fn drop_module(&self, name: &str) -> Result<(), Failure> {
        self.caller.drop_module(name)?;
        lock(&self.modules).remove(name);
        Ok(())
    }

    /// Sees that one more module of a name can be known, before anything is done with it.
    fn expect_known(&self, name: &str) -> Result<(), Failure> {
        if lock(&self.modules).has_room(name) {
            return Ok(());
        }
        let listed: HashSet<String> = self.caller.modules()?.into_iter().map(|one| one.name).collect();
        let mut modules = lock(&self.modules);
        modules.retain(|name| listed.contains(name));
        if modules.has_room(name) { Ok(()) } else { Err(too_many()) }
    }

    fn know(&self, module: Module) -> Result<u64, Failure> {
        let (number, name) = (module.id().0, module.name().clone());
        if lock(&self.modules).add(number, &name, module) { Ok(number) } else { Err(too_many()) }
    }

    fn known(&self, module: u64) -> Result<Module, Failure> {
        lock(&self.modules).get(module).cloned().ok_or_else(|| {
            let sentence = format!("the session knows no module {module}: put it, or find it by its name first");
            Failure::caller(Code::NotFound, sentence)
        })
    }

    pub(super) fn describe(&self, module: u64) -> Result<proto::Module, Failure> {
        let known = self.known(module)?;
        Ok(proto::Module {
            module,
            name: known.name().to_string(),
            bytes: known.bytes(),
            sha256: known.hash().to_vec(),
            kernels: known.kernels().iter().map(kernel).collect(),
        })
    }

    /// Puts a launch in. `block` makes arguments of the session's blocks.
    pub(super) fn launch(
        &self,
        number: u64,
        request: &proto::LaunchRequest,
        block: impl Fn(&Caller, &BlockArgument) -> Result<Argument<'static>, Failure>,
    ) -> Result<(), Failure> {
        let module = self.known(request.module)?;
        // SAFETY: this process has no memory of the device, and a worker runs the kernel that has nothing but leases of this user. What
        // a client's kernel does to the client's memory is for the client to answer.
        let kernel = unsafe { module.kernel(&request.kernel) }?;
        // A name is not leased for a launch that is none.
        let kinds = |place, given: &proto::Argument| match &given.value {
            Some(Value::Name(_) | Value::Block(_)) => Ok(Argument::any_memory()),
            given => value(place, given.as_ref()),
        };
        let (grid, arguments) = shape(request, kinds)?;
        Launch { stream: request.stream, ..Launch::new(&kernel, grid, &arguments) }.check()?;
        self.expect_room()?;
        let named = self.lease_named(&request.arguments)?;
        let put = self.put_in(&kernel, request, |place, given| match &given.value {
            Some(Value::Name(wish)) => Ok(named[&wish.name].argument(wish.offset)),
            Some(Value::Block(given)) => block(&self.caller, given),
            given => value(place, given.as_ref()),
        });
        let named = Mutex::new(named.into_values().collect());
        match put {
            Ok(call) => {
                let put = Put { call, named, is_told: AtomicBool::new(false) };
                lock(&self.calls).put.insert(number, Arc::new(put));
                Ok(())
            }
            Err(failure) => {
                self.give_back(&named)?;
                Err(failure)
            }
        }
    }

    fn put_in<'a>(
        &self,
        kernel: &Kernel,
        request: &proto::LaunchRequest,
        argument: impl Fn(usize, &proto::Argument) -> Result<Argument<'a>, Failure>,
    ) -> Result<Call, Failure> {
        let (grid, arguments) = shape(request, argument)?;
        let call = self.caller.call(&Launch { stream: request.stream, ..Launch::new(kernel, grid, &arguments) })?;
        // Another may have been put in meanwhile, behind this one.
        let (mut last, point) = (lock(&self.last), call.point());
        let known = last.entry(request.stream).or_insert(point);
        if known.tenant != point.tenant || known.value < point.value {
            *known = point;
        }
        drop(last);
        Ok(call)
    }

    fn expect_room(&self) -> Result<(), Failure> {
        let mut calls = lock(&self.calls);
        let Calls { put, over } = &mut *calls;
        if put.len() >= LAUNCHES_MAX {
            for (number, put) in put.extract_if(.., |_, put| put.is_settled()) {
                if !put.is_told.load(Ordering::Relaxed) {
                    over.add(number);
                }
            }
        }
        if put.len() < LAUNCHES_MAX {
            return Ok(());
        }
        let sentence = format!("{LAUNCHES_MAX} launches are under way or went wrong: wait for some first");
        Err(Failure::caller(Code::ResourceExhausted, sentence))
    }

    /// Leases what arguments name, each name once.
    fn lease_named(&self, arguments: &[proto::Argument]) -> Result<BTreeMap<String, Named>, Failure> {
        let wishes = || {
            arguments.iter().filter_map(|given| match &given.value {
                Some(Value::Name(wish)) => Some(wish),
                _ => None,
            })
        };
        let mut named = BTreeMap::new();
        for wish in wishes() {
            if named.contains_key(&wish.name) {
                continue;
            }
            let is_written = wishes().any(|other| other.name == wish.name && other.access() == proto::Access::Write);
            let access = if is_written { Access::Write } else { Access::Read };
            match self.caller.lease_named(&wish.name, access) {
                Ok(one) => drop(named.insert(wish.name.clone(), one)),
                Err(error) => {
                    self.give_back(&Mutex::new(named.into_values().collect()))?;
                    return Err(error.into());
                }
            }
        }
        Ok(named)
    }

    /// Names that no launch has written are what they were.
    fn give_back(&self, named: &Mutex<Vec<Named>>) -> Result<(), Failure> {
        let mut named = lock(named);
        while let Some(one) = named.pop() {
            self.caller.give_back(one)?;
        }
        Ok(())
    }

    fn settle(&self, named: &Mutex<Vec<Named>>) -> Result<(), Failure> {
        let mut named = lock(named);
        while let Some(one) = named.pop() {
            self.caller.settle(one)?;
        }
        Ok(())
    }

    /// Waits until a launch is over.
    pub(super) fn wait(&self, number: u64, timeout: Duration) -> Result<(), Failure> {
        let calls = lock(&self.calls);
        if calls.over.has(number) {
            return Ok(());
        }
        let put = calls.put.get(&number).cloned().ok_or_else(|| {
            let sentence = format!("the session knows no launch {number}: wait for the number that Launch answered");
            Failure::caller(Code::NotFound, sentence)
        })?;
        drop(calls);
        match put.call.wait_for(timeout.min(WAIT_MAX)) {
            Ok(()) => self.settle(&put.named),
            Err(error @ CallError::TimedOut { .. }) => Err(error.into()),
            Err(error) => {
                put.is_told.store(true, Ordering::Relaxed);
                self.give_back(&put.named)?;
                Err(error.into())
            }
        }
    }

    /// Lets a stream's next work wait for all launches so far, on the device.
    pub(super) fn precede(&self, broker: &Broker, stream: &Stream) -> Result<(), Failure> {
        let points: Vec<Point> = lock(&self.last).values().copied().collect();
        for point in points {
            broker.await_point(stream, point)?;
        }
        Ok(())
    }
}

fn too_many() -> Failure {
    let sentence = format!("the session knows {MODULES_MAX} modules: drop one, or use another session");
    Failure::caller(Code::ResourceExhausted, sentence)
}

/// What is launched: the grid, and the arguments, which are counted from 1.
fn shape<'a>(
    request: &proto::LaunchRequest,
    argument: impl Fn(usize, &proto::Argument) -> Result<Argument<'a>, Failure>,
) -> Result<(Grid, Vec<Argument<'a>>), Failure> {
    let arguments = (1..).zip(&request.arguments).map(|(place, given)| argument(place, given));
    let [blocks, threads] = [&request.blocks, &request.threads].map(|told| dimensions(told.as_ref()));
    Ok((Grid { blocks, threads, shared_bytes: request.shared_bytes }, arguments.collect::<Result<_, _>>()?))
}

fn dimensions(told: Option<&proto::Dimensions>) -> [u32; 3] {
    told.map_or([1; 3], |told| [told.x, told.y, told.z])
}

/// A number or a structure.
fn value(place: usize, given: Option<&Value>) -> Result<Argument<'static>, Failure> {
    match given {
        Some(Value::Structure(bytes)) => Ok(Argument::bytes(bytes.as_slice())),
        Some(Value::Number(number)) => {
            let kind = match number.kind() {
                proto::Kind::Unsigned => Kind::Unsigned,
                proto::Kind::Signed => Kind::Signed,
                proto::Kind::Float => Kind::Float,
                proto::Kind::Bits => Kind::Bits,
                proto::Kind::Bytes => {
                    return Err(Failure::wrong(format!("argument {place} is a number of bytes: give a structure")));
                }
            };
            let bytes = number.bytes;
            if !matches!(bytes, 1 | 2 | 4 | 8) || bytes < 8 && number.bits >> (8 * bytes) != 0 {
                let sentence =
                    format!("argument {place} is a number of {bytes} bytes: it has 1, 2, 4 or 8, and fits into them");
                return Err(Failure::wrong(sentence));
            }
            Ok(Argument::number(Parameter { kind, bytes }, number.bits))
        }
        _ => Err(Failure::wrong(format!("argument {place} is nothing: give a block, a name, a number or a structure"))),
    }
}

fn kernel(signature: &Signature) -> proto::Kernel {
    let parameters = signature.parameters.iter().map(|parameter| {
        let kind = match parameter.kind {
            // The worker tells them apart.
            Kind::Unsigned | Kind::Pointer => proto::Kind::Unsigned,
            Kind::Signed => proto::Kind::Signed,
            Kind::Float => proto::Kind::Float,
            Kind::Bits => proto::Kind::Bits,
            Kind::Bytes => proto::Kind::Bytes,
        };
        proto::Parameter { kind: kind.into(), bytes: parameter.bytes }
    });
    proto::Kernel { name: signature.name.to_string(), parameters: parameters.collect() }
}
