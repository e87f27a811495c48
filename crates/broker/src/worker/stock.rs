//! What a worker has: modules that it has loaded, each once, and leases that it has borrowed, until they are wanted back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use freehold::{Device, Image, Stream};
use freehold_driver::Code;
use freehold_driver::cuda::CUerror;

use super::end;
use crate::client::{Broker, Error, Lease, LinkError, text_of};
use crate::kernels::{Signature, kernels};
use crate::ring::Doorstep;
use crate::trouble::Trouble;
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
}

#[derive(Debug)]
pub(super) struct Stock {
    broker: Broker,
    modules: BTreeMap<Id, Vec<Loaded>>,
    /// By the lease that it was borrowed of.
    leases: BTreeMap<Id, Borrowed>,
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
                self.leases.insert(lease, Borrowed { lease: borrowed, of, ready });
                Ok(())
            }
            Err(Error::Link(LinkError::Gone)) => end(),
            Err(Error::Device(error)) => Err(lack(of_device(&error))),
            Err(_) => Err(lack(Trouble::NoLease { argument: 0 })),
        }
    }

    /// What was borrowed.
    pub(super) fn borrowed(&self, lease: Id) -> &Borrowed {
        &self.leases[&lease]
    }

    /// What had to pass before it is used has.
    pub(super) fn set_ready(&mut self, lease: Id) {
        if let Some(borrowed) = self.leases.get_mut(&lease) {
            borrowed.ready = Point::default();
        }
    }

    /// A kernel that is loaded.
    pub(super) fn kernel(&self, module: Id, index: u32) -> Option<&Loaded> {
        self.modules.get(&module)?.get(index as usize)
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

    /// Loads a module, unless it is loaded.
    pub(super) fn load(&mut self, device: &Device, module: Id) -> Result<(), Lack> {
        if let Entry::Vacant(vacant) = self.modules.entry(module) {
            let loaded = load(&self.broker, device, module)?;
            vacant.insert(loaded);
        }
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
    let (Reply::Module { bytes, hash, .. }, Some(file)) = (answer.reply, answer.descriptors.pop()) else {
        return Err(lack(Trouble::Malformed));
    };
    let text = text_of(file, bytes, &hash).ok_or_else(|| lack(Trouble::OtherContent))?;
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

/// What the device refused.
pub(super) fn of_device(error: &freehold::Error) -> Trouble {
    match error {
        freehold::Error::Call(error) => Trouble::Device { code: number(error.code) },
        freehold::Error::Faulted(fault) => Trouble::Faulted { code: number(fault.noticed.code) },
        // Out of memory, in whatever form.
        _ => Trouble::Device { code: 2 },
    }
}

/// A code as it travels: those of CUDA, which alone shares memory, fit.
fn number(code: Code) -> u32 {
    u32::try_from(code.number).unwrap_or(CUerror::UNKNOWN.number())
}
