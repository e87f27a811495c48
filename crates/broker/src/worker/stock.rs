//! What a worker has: modules that it has loaded, each once, and leases that it has borrowed, until they are wanted back.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use freehold::{Device, Image, Stream};
use freehold_driver::Code;
use freehold_driver::cuda::CUerror;

use super::end;
use crate::client::{Broker, Error, Lease, LinkError, text_of};
use crate::kernels::{Signature, device_bytes, kernels};
use crate::ring::Doorstep;
use crate::trouble::{Among, Trouble};
use crate::wire::{Id, Point, Refusal, Reply, Request};

/// A kernel that can be launched.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) signature: Signature,
    pub(super) kernel: freehold::Kernel,
}

#[derive(Debug)]
pub(super) struct Borrowed {
    pub(super) lease: Lease<u8>,
    /// Whose it was borrowed of.
    of: Id,
    /// What has to pass before it is used.
    pub(super) ready: Point,
    /// The last call that used it, by the word of its stream.
    uses: Vec<(usize, u64)>,
}

impl Borrowed {
    /// The last calls of other streams that used it.
    pub(super) fn uses_beside(&self, word: usize) -> impl Iterator<Item = (usize, u64)> {
        self.uses.iter().copied().filter(move |&(other, _)| other != word)
    }
}

#[derive(Debug)]
pub(super) struct Stock {
    broker: Broker,
    modules: BTreeMap<Id, Held>,
    /// By the lease that it was borrowed of.
    leases: BTreeMap<Id, Borrowed>,
}

/// A module that is loaded, and those that have called it: it is unloaded when the last of them is gone.
#[derive(Debug)]
struct Held {
    kernels: Vec<Loaded>,
    users: BTreeSet<Id>,
}

/// Why there is none, and what there is to say of it.
pub(super) type Lack = (Trouble, String);

fn lack(trouble: Trouble) -> Lack {
    (trouble, String::new())
}

impl Stock {
    pub(super) fn new(broker: Broker) -> Self {
        Self { broker, modules: BTreeMap::new(), leases: BTreeMap::new() }
    }

    pub(super) fn doorstep(&self) -> Arc<Doorstep> {
        self.broker.doorstep()
    }

    pub(super) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Borrows what a tenant has leased, unless it is borrowed.
    pub(super) fn borrow(&mut self, stream: &Stream, lease: Id, of: Id) -> Result<(), Lack> {
        if self.leases.get(&lease).is_some_and(|known| known.of == of) {
            return Ok(());
        }
        match self.broker.borrow(stream, lease, of) {
            Ok((borrowed, ready)) => {
                self.leases.insert(lease, Borrowed { lease: borrowed, of, ready, uses: Vec::new() });
                Ok(())
            }
            Err(Error::Link(LinkError::Gone)) => end(),
            Err(Error::Device(error)) => Err(lack(of_device(&error))),
            Err(Error::Link(LinkError::Refused { refusal, .. })) => {
                Err(lack(Trouble::NotBorrowed { argument: 0, refusal }))
            }
            Err(_) => Err(lack(Trouble::NotBorrowed { argument: 0, refusal: Refusal::Malformed })),
        }
    }

    /// Gives back what was borrowed of a tenant that goes, and says that nothing is left of it here.
    pub(super) fn finish(&mut self, tenant: Id) {
        self.leases.retain(|_, borrowed| borrowed.of != tenant);
        self.modules.retain(|_, held| {
            held.users.remove(&tenant);
            !held.users.is_empty()
        });
        let finished = self.broker.link().map(|mut link| link.call(Request::Finish { tenant }));
        if let Ok(Err(LinkError::Gone)) = finished {
            end();
        }
    }

    /// What was borrowed.
    pub(super) fn borrowed(&self, lease: Id) -> &Borrowed {
        &self.leases[&lease]
    }

    /// A call of a stream uses it.
    pub(super) fn note_use(&mut self, lease: Id, word: usize, number: u64) {
        let Some(borrowed) = self.leases.get_mut(&lease) else { return };
        match borrowed.uses.iter_mut().find(|(known, _)| *known == word) {
            Some((_, last)) => *last = number,
            None => borrowed.uses.push((word, number)),
        }
    }

    /// What had to pass before it is used has.
    pub(super) fn set_ready(&mut self, lease: Id) {
        if let Some(borrowed) = self.leases.get_mut(&lease) {
            borrowed.ready = Point::default();
        }
    }

    /// A kernel that is loaded.
    pub(super) fn kernel(&self, module: Id, index: u32) -> Option<&Loaded> {
        self.modules.get(&module)?.kernels.get(index as usize)
    }

    /// Gives back what the broker wants back, behind the work with it.
    pub(super) fn return_recalled(&mut self) {
        loop {
            let recalled = match self.broker.link() {
                Ok(mut link) => link.next_recalled(),
                Err(_) => return,
            };
            let Some(own) = recalled else { return };
            self.leases.retain(|_, borrowed| borrowed.lease.id() != own);
        }
    }

    /// Loads a module for a tenant, unless it is loaded.
    pub(super) fn load(&mut self, device: &Device, module: Id, tenant: Id) -> Result<(), Lack> {
        let held = match self.modules.entry(module) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(vacant) => {
                let kernels = load(&self.broker, device, module)?;
                vacant.insert(Held { kernels, users: BTreeSet::new() })
            }
        };
        held.users.insert(tenant);
        Ok(())
    }
}

fn load(broker: &Broker, device: &Device, module: Id) -> Result<Vec<Loaded>, Lack> {
    let ask = |request| match broker.link().map_err(|_| LinkError::ForkedChild).and_then(|mut link| link.call(request))
    {
        Err(LinkError::Gone) => end(),
        answer => answer,
    };
    let mut answer = match ask(Request::Module { id: module, name: None }) {
        Ok(answer) => answer,
        Err(LinkError::Refused { refusal: Refusal::NoModule, .. }) => return Err(lack(Trouble::NoModule)),
        Err(_) => return Err(lack(Trouble::Malformed)),
    };
    let (Reply::Module { bytes, hash, device_bytes: said_bytes, .. }, Some(file)) =
        (answer.reply, answer.descriptors.pop())
    else {
        return Err(lack(Trouble::Malformed));
    };
    let text = text_of(file, bytes, &hash).ok_or_else(|| lack(Trouble::OtherContent))?;
    // More than was said, and counted, is not had.
    if device_bytes(&text).is_ok_and(|wanted_bytes| wanted_bytes > said_bytes) {
        return Err(lack(Trouble::OtherContent));
    }
    let of_image = |error: freehold::Error| match error {
        freehold::Error::ImageRefused { log, code } if log.is_empty() => (Trouble::Image, code.to_string()),
        freehold::Error::ImageRefused { log, .. } => (Trouble::Image, log.into()),
        freehold::Error::NotAnImage => (Trouble::Image, error.to_string()),
        error => lack(of_device(&error)),
    };
    let loaded = Image::ptx(&text).and_then(|image| device.module(&image)).map_err(of_image)?;
    let signatures = kernels(&text).map_err(|error| (Trouble::Image, error.to_string()))?;
    let load = |signature: Signature| {
        let kernel = loaded.kernel(&signature.name).map_err(of_image)?;
        Ok(Loaded { signature, kernel })
    };
    let kernels = signatures.into_iter().map(load).collect::<Result<Vec<_>, Lack>>()?;
    match ask(Request::Prove { module }) {
        Ok(_) => Ok(kernels),
        Err(_) => Err(lack(Trouble::NoModule)),
    }
}

/// Nothing works any more in a context of which a driver says so.
const LOST: [CUerror; 3] = [CUerror::DEINITIALIZED, CUerror::INVALID_CONTEXT, CUerror::CONTEXT_IS_DESTROYED];

/// A kernel has faulted: which is looked for when all is told.
pub(super) fn faulted(code: u32) -> Trouble {
    Trouble::Faulted { code, among: Among::default() }
}

/// What the device refused.
pub(super) fn of_device(error: &freehold::Error) -> Trouble {
    match error {
        // What a driver answers whose context a kernel has ended, in whatever words.
        freehold::Error::Call(error) if LOST.map(CUerror::number).contains(&number(error.code)) => {
            faulted(number(error.code))
        }
        freehold::Error::Call(error) => Trouble::Device { code: number(error.code) },
        freehold::Error::Faulted(fault) => faulted(number(fault.noticed.code)),
        // Out of memory, in whatever form.
        _ => Trouble::Device { code: 2 },
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
        let of = |code| of_device(&freehold::Error::Call(CallError { call: Function::cuLaunchKernel, code }.into()));
        assert_eq!(of(CUerror::INVALID_CONTEXT), faulted(201));
        assert_eq!(of(CUerror::CONTEXT_IS_DESTROYED), faulted(709));
        assert_eq!(of(CUerror::INVALID_VALUE), Trouble::Device { code: 1 });
    }
}
