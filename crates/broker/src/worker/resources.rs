//! The modules that a worker has loaded, each once, and the leases that it has borrowed, until they are recalled.
//!
//! The broker counts the memory of a module from before it is loaded until the worker reports that it is unloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freehold::signature::{Signature, device_bytes, kernels};
use freehold::{Device, Image, PendingUnload, Stream};
use freehold_driver::Code;
use freehold_driver::cuda::CUerror;

use super::exit::kill_self;
use crate::client::{Answer, Broker, Error, Lease, LinkError};
use crate::protocol::call_failure::{CallFailure, SuspectCount};
use crate::protocol::call_ring::CallRing;
use crate::protocol::message::{Reply, Request};
use crate::protocol::module_text::read_text;
use crate::protocol::request_error::RequestError;
use crate::protocol::ring::Waiter;
use crate::protocol::types::{Fence, Hash, Id};

/// How long a load waits for unloads to free memory. If it takes longer, kernels are running.
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
    /// The tenant that it was borrowed from.
    lender: Id,
    /// The fence that must be complete before it is used.
    pub(super) ready: Fence,
    /// The last call of each stream that used it, by the stream's semaphore.
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
    /// Modules that are being unloaded by the driver.
    unloads: Vec<(Id, PendingUnload)>,
    /// The call rings of the tenants.
    rings: BTreeMap<Id, Arc<CallRing>>,
    /// By the lease that it was borrowed from.
    leases: BTreeMap<Id, BorrowedLease>,
}

/// A loaded module, and the tenants that have called it: it is unloaded when the last of them is gone.
#[derive(Debug)]
struct LoadedModule {
    module: freehold::Module,
    kernels: Vec<LoadedKernel>,
    users: BTreeSet<Id>,
    /// Set when it was dropped: how far each call ring must be taken before it is unloaded, so that earlier calls are
    /// executed.
    unload_after: Option<Vec<(Id, u32)>>,
}

/// A failure and its text.
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

    /// Borrows a lease of a tenant, unless it is borrowed already.
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

    /// Adds a tenant.
    pub(super) fn add_tenant(&mut self, tenant: Id, calls: Arc<CallRing>) {
        self.rings.insert(tenant, calls);
    }

    /// Returns the leases that were borrowed from a closing tenant, and reports that none is left.
    pub(super) fn remove_tenant(&mut self, tenant: Id) {
        self.rings.remove(&tenant);
        self.leases.retain(|_, borrowed| borrowed.lender != tenant);
        let is_unused = |held: &mut LoadedModule| held.users.remove(&tenant) && held.users.is_empty();
        let unused: Vec<Id> =
            self.modules.iter_mut().filter_map(|(&module, held)| is_unused(held).then_some(module)).collect();
        unused.into_iter().for_each(|module| self.begin_unload(module));
        self.report_unloaded();
        // An error is logged by the broker, or the broker is gone.
        let _ = self.call_broker(Request::Drained { tenant });
    }

    /// Calls the broker. If it is gone, this process ends.
    fn call_broker(&self, request: Request) -> Result<Answer, LinkError> {
        match self.broker.connection().map_err(|_| LinkError::ForkedChild).and_then(|mut link| link.call(request)) {
            Err(LinkError::Closed) => kill_self(),
            answer => answer,
        }
    }

    /// Begins to unload a module. Its memory is free when the driver has done it.
    fn begin_unload(&mut self, module: Id) {
        if let Some(held) = self.modules.remove(&module) {
            self.unloads.push((module, held.module.pending_unload()));
        }
    }

    /// Unloads dropped modules once every earlier call has been taken.
    pub(super) fn unload_dropped(&mut self) {
        while let Some(module) = self.broker.connection().ok().and_then(|mut link| link.next_dropped()) {
            // The order may be repeated by a broker that took over, or the module may be unloaded already.
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

    /// Whether modules are being unloaded, which the driver does while no kernel runs.
    pub(super) fn is_unloading(&self) -> bool {
        !self.unloads.is_empty()
    }

    /// Reports the modules that the driver has unloaded.
    pub(super) fn report_unloaded(&mut self) {
        // A failed device is noticed elsewhere.
        let is_over = |(_, unload): &mut (Id, PendingUnload)| unload.is_complete().unwrap_or(false);
        let over: Vec<_> = self.unloads.extract_if(.., is_over).collect();
        for (module, _) in over {
            // An error is logged by the broker.
            let _ = self.call_broker(Request::Unload { module });
        }
    }

    /// The borrowed lease of a tenant's lease.
    pub(super) fn borrowed(&self, lease: Id) -> &BorrowedLease {
        &self.leases[&lease]
    }

    /// Records that a call of a stream uses a lease.
    pub(super) fn record_use(&mut self, lease: Id, word: usize, number: u64) {
        let Some(borrowed) = self.leases.get_mut(&lease) else { return };
        match borrowed.uses.iter_mut().find(|(known, _)| *known == word) {
            Some((_, last)) => *last = number,
            None => borrowed.uses.push((word, number)),
        }
    }

    /// Records that a lease need no longer be waited for.
    pub(super) fn set_ready(&mut self, lease: Id) {
        if let Some(borrowed) = self.leases.get_mut(&lease) {
            borrowed.ready = Fence::default();
        }
    }

    /// A loaded kernel.
    pub(super) fn kernel(&self, module: Id, index: u32) -> Option<&LoadedKernel> {
        self.modules.get(&module)?.kernels.get(index as usize)
    }

    /// Returns recalled leases, after the work that uses them.
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
        // Dropped modules are unloaded first, to make room.
        self.unload_dropped();
        self.report_unloaded();
        let mut text = self.fetch_text(module);
        // A driver unloads when the last semaphore of a stream is written, which is a moment after the end of the
        // calls.
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

    /// Fetches the text of a module and the size of its variables. From now on that is counted.
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

    /// Compiles and loads a text. On failure, returns the pending unload of a module that was loaded nevertheless.
    fn compile(
        &self,
        device: &Device,
        module: Id,
        text: ModuleText,
    ) -> Result<(freehold::Module, Vec<LoadedKernel>), CompileError> {
        let ModuleText { file, bytes, hash, device_bytes: said_bytes } = text;
        let text = read_text(file, bytes, &hash).ok_or_else(|| (without_text(CallFailure::HashMismatch), None))?;
        // The variables of a text that does not parse cannot be counted, so it is not given to the driver.
        let unread = |error: freehold_ptx::Error| ((CallFailure::CompileFailed, error.to_string()), None);
        // More than was declared and counted is refused.
        if device_bytes(&text).map_err(unread)? > said_bytes {
            return Err((without_text(CallFailure::HashMismatch), None));
        }
        let signatures = kernels(&text).map_err(unread)?;
        let loaded =
            Image::ptx(&text).and_then(|image| device.module(&image)).map_err(|error| (image_failure(error), None))?;
        // SAFETY: nobody guarantees what the kernels of tenants do, so they run in a process that does nothing else: a
        // stray one can only damage this process, which ends with the first fault, and the leases of the tenants that
        // it serves.
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

/// The text of a module as the broker sends it, with the declared values.
struct ModuleText {
    file: OwnedFd,
    bytes: u64,
    hash: Hash,
    /// Device memory of its variables.
    device_bytes: u64,
}

/// Why a text was not loaded, and the pending unload of the module if the driver had loaded it.
type CompileError = (FailureText, Option<PendingUnload>);

fn image_failure(error: freehold::Error) -> FailureText {
    match error {
        freehold::Error::ImageRefused { log, code } if log.is_empty() => (CallFailure::CompileFailed, code.to_string()),
        freehold::Error::ImageRefused { log, .. } => (CallFailure::CompileFailed, log.into()),
        freehold::Error::NotAnImage | freehold::Error::NotPtx => (CallFailure::CompileFailed, error.to_string()),
        error => without_text(device_failure(&error)),
    }
}

/// Error codes of a driver whose context is unusable.
const CONTEXT_LOST_CODES: [CUerror; 3] =
    [CUerror::DEINITIALIZED, CUerror::INVALID_CONTEXT, CUerror::CONTEXT_IS_DESTROYED];

/// A kernel has faulted. Which one is determined when the failure is reported.
pub(super) fn faulted(code: u32) -> CallFailure {
    CallFailure::Faulted { code, among: SuspectCount::default() }
}

/// The failure for an error of the device.
pub(super) fn device_failure(error: &freehold::Error) -> CallFailure {
    match error {
        // Codes that drivers return when a kernel has ended the context.
        freehold::Error::Call(error) if CONTEXT_LOST_CODES.map(CUerror::number).contains(&number(error.code)) => {
            faulted(number(error.code))
        }
        freehold::Error::Call(error) => CallFailure::Device { code: number(error.code) },
        freehold::Error::Faulted(fault) => faulted(number(fault.noticed.code)),
        // Out of memory.
        _ => CallFailure::Device { code: 2 },
    }
}

/// The number of a code on the wire. Only CUDA devices share memory, and CUDA codes fit.
fn number(code: Code) -> u32 {
    u32::try_from(code.number).unwrap_or(CUerror::UNKNOWN.number())
}

#[cfg(test)]
mod tests {
    use freehold_driver::cuda::{DriverError, Function};

    use super::*;

    #[test]
    fn a_context_that_a_kernel_has_ended_is_a_fault_whatever_the_driver_calls_it() {
        let of =
            |code| device_failure(&freehold::Error::Call(DriverError { call: Function::cuLaunchKernel, code }.into()));
        assert_eq!(of(CUerror::INVALID_CONTEXT), faulted(201));
        assert_eq!(of(CUerror::CONTEXT_IS_DESTROYED), faulted(709));
        assert_eq!(of(CUerror::INVALID_VALUE), CallFailure::Device { code: 1 });
    }
}
