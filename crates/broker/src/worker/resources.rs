//! What a worker has: modules that it has loaded, each once, and leases that it has borrowed, until they are wanted back.
//!
//! The broker counts what a module takes from before it is loaded until this says that the driver has unloaded it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freehold::signature::{Signature, device_bytes, kernels};
use freehold::{Device, Image, PendingUnload, Stream};
use freehold_driver::Code;
use freehold_driver::cuda::CUerror;

use super::kill_self;
use crate::call_failure::{CallFailure, SuspectCount};
use crate::call_ring::CallRing;
use crate::client::{Answer, Broker, Error, Lease, LinkError, read_text};
use crate::ring::Waiter;
use crate::wire::{Fence, Hash, Id, Reply, Request, RequestError};

/// How long a module that has no room waits for others that are being unloaded. Longer, and kernels run meanwhile.
const UNLOAD_TIMEOUT: Duration = Duration::from_millis(20);

/// A kernel that can be launched.
#[derive(Debug)]
pub(super) struct LoadedKernel {
    pub(super) signature: Signature,
    pub(super) kernel: freehold::Kernel,
}

#[derive(Debug)]
pub(super) struct BorrowedLease {
    pub(super) lease: Lease<u8>,
    /// Whose it was borrowed of.
    lender: Id,
    /// What has to pass before it is used.
    pub(super) ready: Fence,
    /// The last call that used it, by the word of its stream.
    uses: Vec<(usize, u64)>,
}

impl BorrowedLease {
    /// The last calls of other streams that used it.
    pub(super) fn uses_by_others(&self, word: usize) -> impl Iterator<Item = (usize, u64)> {
        self.uses.iter().copied().filter(move |&(other, _)| other != word)
    }
}

#[derive(Debug)]
pub(super) struct Resources {
    broker: Broker,
    modules: BTreeMap<Id, LoadedModule>,
    /// Modules that were let go of, until the driver has unloaded them.
    unloads: Vec<(Id, PendingUnload)>,
    /// The rings of those that are served.
    rings: BTreeMap<Id, Arc<CallRing>>,
    /// By the lease that it was borrowed of.
    leases: BTreeMap<Id, BorrowedLease>,
}

/// A module that is loaded, and those that have called it: it is unloaded when the last of them is gone.
#[derive(Debug)]
struct LoadedModule {
    module: freehold::Module,
    kernels: Vec<LoadedKernel>,
    users: BTreeSet<Id>,
    /// It was dropped: whose ring is to have come how far before it is unloaded, so that what was called before is carried out.
    unload_after: Option<Vec<(Id, u32)>>,
}

/// Why there is none, and what there is to say of it.
pub(super) type FailureText = (CallFailure, String);

fn without_text(failure: CallFailure) -> FailureText {
    (failure, String::new())
}

impl Resources {
    pub(super) fn new(broker: Broker) -> Self {
        let (modules, rings, leases) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { broker, modules, unloads: Vec::new(), rings, leases }
    }

    pub(super) fn waiter(&self) -> Arc<Waiter> {
        self.broker.waiter()
    }

    pub(super) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Borrows what a tenant has leased, unless it is borrowed.
    pub(super) fn borrow(&mut self, stream: &Stream, lease: Id, of: Id) -> Result<(), FailureText> {
        if self.leases.get(&lease).is_some_and(|known| known.lender == of) {
            return Ok(());
        }
        match self.broker.borrow(stream, lease, of) {
            Ok((borrowed, ready)) => {
                self.leases.insert(lease, BorrowedLease { lease: borrowed, lender: of, ready, uses: Vec::new() });
                Ok(())
            }
            Err(Error::Link(LinkError::Closed)) => kill_self(),
            Err(Error::Device(error)) => Err(without_text(device_failure(&error))),
            Err(Error::Link(LinkError::Request { error, .. })) => {
                Err(without_text(CallFailure::BorrowFailed { argument: 0, error }))
            }
            Err(_) => Err(without_text(CallFailure::BorrowFailed { argument: 0, error: RequestError::Malformed })),
        }
    }

    /// A tenant is served from now on.
    pub(super) fn add_tenant(&mut self, tenant: Id, calls: Arc<CallRing>) {
        self.rings.insert(tenant, calls);
    }

    /// Gives back what was borrowed of a tenant that goes, and says that nothing is left of it here.
    pub(super) fn remove_tenant(&mut self, tenant: Id) {
        self.rings.remove(&tenant);
        self.leases.retain(|_, borrowed| borrowed.lender != tenant);
        let is_unused = |held: &mut LoadedModule| held.users.remove(&tenant) && held.users.is_empty();
        let unused: Vec<Id> =
            self.modules.iter_mut().filter_map(|(&module, held)| is_unused(held).then_some(module)).collect();
        unused.into_iter().for_each(|module| self.begin_unload(module));
        self.report_unloaded();
        // What fails is the broker's to say, or its end.
        let _ = self.call_broker(Request::Drained { tenant });
    }

    /// Asks the broker, whose end is this process's.
    fn call_broker(&self, request: Request) -> Result<Answer, LinkError> {
        match self.broker.connection().map_err(|_| LinkError::ForkedChild).and_then(|mut link| link.call(request)) {
            Err(LinkError::Closed) => kill_self(),
            answer => answer,
        }
    }

    /// Lets go of a module. Its memory is free when the driver has unloaded it.
    fn begin_unload(&mut self, module: Id) {
        if let Some(held) = self.modules.remove(&module) {
            self.unloads.push((module, held.module.pending_unload()));
        }
    }

    /// Lets go of modules that were dropped, when all has been taken that was called before.
    pub(super) fn unload_dropped(&mut self) {
        while let Some(module) = self.broker.connection().ok().and_then(|mut link| link.next_dropped()) {
            // A broker that took over may say it again, and one that is unloaded already was told of too late.
            if let Some(held) = self.modules.get_mut(&module).filter(|held| held.unload_after.is_none()) {
                held.unload_after =
                    Some(self.rings.iter().map(|(&tenant, calls)| (tenant, calls.pushed_end())).collect());
            }
        }
        let is_taken =
            |&(tenant, count): &(Id, u32)| self.rings.get(&tenant).is_none_or(|calls| calls.has_taken(count));
        let is_free =
            |held: &LoadedModule| held.unload_after.as_ref().is_some_and(|before| before.iter().all(is_taken));
        let free: Vec<Id> = self.modules.iter().filter_map(|(&module, held)| is_free(held).then_some(module)).collect();
        free.into_iter().for_each(|module| self.begin_unload(module));
    }

    /// Whether modules are to be unloaded that the driver has not yet: it does that while nothing runs.
    pub(super) fn is_unloading(&self) -> bool {
        !self.unloads.is_empty()
    }

    /// Says of modules that the driver has unloaded that they are.
    pub(super) fn report_unloaded(&mut self) {
        // Of a device that has failed is heard elsewhere.
        let is_over = |(_, unload): &mut (Id, PendingUnload)| unload.is_over().unwrap_or(false);
        let over: Vec<_> = self.unloads.extract_if(.., is_over).collect();
        for (module, _) in over {
            // What fails is the broker's to say.
            let _ = self.call_broker(Request::Unload { module });
        }
    }

    /// What was borrowed.
    pub(super) fn borrowed(&self, lease: Id) -> &BorrowedLease {
        &self.leases[&lease]
    }

    /// A call of a stream uses it.
    pub(super) fn record_use(&mut self, lease: Id, word: usize, number: u64) {
        let Some(borrowed) = self.leases.get_mut(&lease) else { return };
        match borrowed.uses.iter_mut().find(|(known, _)| *known == word) {
            Some((_, last)) => *last = number,
            None => borrowed.uses.push((word, number)),
        }
    }

    /// What had to pass before it is used has.
    pub(super) fn set_ready(&mut self, lease: Id) {
        if let Some(borrowed) = self.leases.get_mut(&lease) {
            borrowed.ready = Fence::default();
        }
    }

    /// A kernel that is loaded.
    pub(super) fn kernel(&self, module: Id, index: u32) -> Option<&LoadedKernel> {
        self.modules.get(&module)?.kernels.get(index as usize)
    }

    /// Gives back what the broker wants back, behind the work with it.
    pub(super) fn return_recalled(&mut self) {
        loop {
            let recalled = match self.broker.connection() {
                Ok(mut link) => link.next_recalled(),
                Err(_) => return,
            };
            let Some(own) = recalled else { return };
            self.leases.retain(|_, borrowed| borrowed.lease.id() != own);
        }
    }

    /// Loads a module for a tenant, unless it is loaded.
    pub(super) fn load(&mut self, device: &Device, module: Id, tenant: Id) -> Result<(), FailureText> {
        if let Some(held) = self.modules.get_mut(&module) {
            held.users.insert(tenant);
            return Ok(());
        }
        // What is dropped makes room first.
        self.unload_dropped();
        self.report_unloaded();
        let mut text = self.fetch_text(module);
        // A driver unloads when the last word of a stream is written, which is a moment behind the end of what was called.
        let begun = Instant::now();
        while matches!(text, Err((CallFailure::LoadFailed { .. }, _)))
            && self.is_unloading()
            && begun.elapsed() < UNLOAD_TIMEOUT
        {
            std::thread::yield_now();
            self.report_unloaded();
            text = self.fetch_text(module);
        }
        let text = text?;
        match self.compile(device, module, text) {
            Ok((loaded, kernels)) => {
                let users = BTreeSet::from([tenant]);
                self.modules.insert(module, LoadedModule { module: loaded, kernels, users, unload_after: None });
                Ok(())
            }
            Err((failure, unload)) => {
                match unload {
                    Some(unload) => self.unloads.push((module, unload)),
                    None => drop(self.call_broker(Request::Unload { module })),
                }
                Err(failure)
            }
        }
    }

    /// The text of a module, and what it is said to take of the device. From now on that is counted.
    fn fetch_text(&self, module: Id) -> Result<ModuleText, FailureText> {
        let mut answer = match self.call_broker(Request::Module { id: module, name: None }) {
            Ok(answer) => answer,
            Err(LinkError::Request { error: RequestError::NoModule, .. }) => {
                return Err(without_text(CallFailure::NoModule));
            }
            Err(LinkError::Request { error, .. }) => return Err(without_text(CallFailure::LoadFailed { error })),
            Err(_) => return Err(without_text(CallFailure::Malformed)),
        };
        match (answer.reply, answer.descriptors.pop()) {
            (Reply::Module { bytes, hash, device_bytes, .. }, Some(file)) => {
                Ok(ModuleText { file, bytes, hash, device_bytes })
            }
            _ => Err(without_text(CallFailure::Malformed)),
        }
    }

    /// Has the driver compile and load a text. Where that fails, the end of what was loaded all the same.
    fn compile(
        &self,
        device: &Device,
        module: Id,
        text: ModuleText,
    ) -> Result<(freehold::Module, Vec<LoadedKernel>), CompileError> {
        let ModuleText { file, bytes, hash, device_bytes: said_bytes } = text;
        let text = read_text(file, bytes, &hash).ok_or_else(|| (without_text(CallFailure::HashMismatch), None))?;
        // What cannot be read cannot be counted: it is not given to the driver.
        let unread = |error: freehold_ptx::Error| ((CallFailure::CompileFailed, error.to_string()), None);
        // More than was said, and counted, is not had.
        if device_bytes(&text).map_err(unread)? > said_bytes {
            return Err((without_text(CallFailure::HashMismatch), None));
        }
        let signatures = kernels(&text).map_err(unread)?;
        let loaded =
            Image::ptx(&text).and_then(|image| device.module(&image)).map_err(|error| (image_failure(error), None))?;
        // SAFETY: nobody vouches for the kernels of tenants, and so they run in a process that does nothing else: what a wild one
        // can spoil is this process, which ends with the first fault, and the leases of the tenants that it serves.
        let load = |signature: Signature| match unsafe { loaded.kernel(&signature.name) } {
            Ok(kernel) => Ok(LoadedKernel { signature, kernel }),
            Err(error) => Err((image_failure(error), Some(loaded.pending_unload()))),
        };
        let kernels = signatures.into_iter().map(load).collect::<Result<Vec<_>, CompileError>>()?;
        match self.call_broker(Request::Compiled { module }) {
            Ok(_) => Ok((loaded, kernels)),
            Err(_) => Err((without_text(CallFailure::NoModule), Some(loaded.pending_unload()))),
        }
    }
}

/// A module's text as the broker hands it out, and what who put it says of it.
struct ModuleText {
    file: OwnedFd,
    bytes: u64,
    hash: Hash,
    /// Of the device, for variables.
    device_bytes: u64,
}

/// Why a text is not loaded, and the end of what the driver had loaded of it.
type CompileError = (FailureText, Option<PendingUnload>);

fn image_failure(error: freehold::Error) -> FailureText {
    match error {
        freehold::Error::ImageRefused { log, code } if log.is_empty() => (CallFailure::CompileFailed, code.to_string()),
        freehold::Error::ImageRefused { log, .. } => (CallFailure::CompileFailed, log.into()),
        freehold::Error::NotAnImage => (CallFailure::CompileFailed, error.to_string()),
        error => without_text(device_failure(&error)),
    }
}

/// Nothing works any more in a context of which a driver says so.
const CONTEXT_LOST_CODES: [CUerror; 3] =
    [CUerror::DEINITIALIZED, CUerror::INVALID_CONTEXT, CUerror::CONTEXT_IS_DESTROYED];

/// A kernel has faulted: which is looked for when all is told.
pub(super) fn faulted(code: u32) -> CallFailure {
    CallFailure::Faulted { code, among: SuspectCount::default() }
}

/// What the device refused.
pub(super) fn device_failure(error: &freehold::Error) -> CallFailure {
    match error {
        // What a driver answers whose context a kernel has ended, in whatever words.
        freehold::Error::Call(error) if CONTEXT_LOST_CODES.map(CUerror::number).contains(&number(error.code)) => {
            faulted(number(error.code))
        }
        freehold::Error::Call(error) => CallFailure::Device { code: number(error.code) },
        freehold::Error::Faulted(fault) => faulted(number(fault.noticed.code)),
        // Out of memory, in whatever form.
        _ => CallFailure::Device { code: 2 },
    }
}

/// A code as it travels: those of CUDA, which alone shares memory, fit.
fn number(code: Code) -> u32 {
    u32::try_from(code.number).unwrap_or(CUerror::UNKNOWN.number())
}

#[cfg(test)]
mod tests {
    use freehold_driver::cuda::{CallError, Function};

    use super::*;

    #[test]
    fn a_context_that_a_kernel_has_ended_is_a_fault_whatever_the_driver_calls_it() {
        let of =
            |code| device_failure(&freehold::Error::Call(CallError { call: Function::cuLaunchKernel, code }.into()));
        assert_eq!(of(CUerror::INVALID_CONTEXT), faulted(201));
        assert_eq!(of(CUerror::CONTEXT_IS_DESTROYED), faulted(709));
        assert_eq!(of(CUerror::INVALID_VALUE), CallFailure::Device { code: 1 });
    }
}
