//! Device memory that outlives its process: a broker creates it and leases it to tenants. The leases survive the
//! broker's death.
//!
//! One program plays several roles ([`Role`], [`run_role`]), each in a process of its own:
//!
//! - the **fdstore** ([`fdstore::run`]) holds every file descriptor and restarts the broker. It never loads a driver;
//! - the **broker** (`daemon`) creates memory as descriptors and leases it, without mapping it;
//! - the **scrubber** overwrites memory with zeros before another tenant gets it;
//! - **workers** run kernels for tenants. They are tenants themselves, and borrow the leases that a call names.
//!
//! **Tenants** are other programs. They use [`Broker`] (leases that are used like blocks), [`Caller`] (kernels that a
//! worker runs, without a device of their own) or [`Link`] (the bare connection). [`Gpu`] is one handle for a local
//! device, a broker or a [`GpuBackend`]. `docs/protocol.md` describes the messages.
//!
//! # Modules, lowest layer first
//!
//! A folder imports only folders listed before it, and imports never form a cycle; a test of `freehold-testing` checks
//! both. The daemon, the worker, the fdstore and the scrubber do not import each other; of the four, only the
//! worker imports the client.
//!
//! - `os`: the operating system. `shared_memory`, `seqpacket`, `eventfd`, [`signals`], [`socket_path`].
//! - `protocol`: the messages between the processes. `types`, `name`, `request_error`, `message`: messages as bytes,
//!   public as [`wire`]. `ring`: requests and replies in shared memory, without system calls while both sides spin.
//!   `call_ring`, `call_codec`, `call_failure`: the same between tenant and worker. `fd_channel`, `scrub`,
//!   `worker_order`: messages between the broker and its other processes.
//! - `state`: the state of the broker, without I/O: a message goes in, effects come out.
//! - `client`: the tenant's side. `link`, `session`, `broker`, `calls`, `unmapper`, `host` (named host memory),
//!   `robust_lock`.
//! - [`tensors`]: sets of tensors under one name, and their list in front of the memory.
//! - `process`: the configuration of the processes, and how one starts another.
//! - `fdstore`, `scrubber`, `worker`, `daemon`: the processes. `daemon::journal`: the state as records in memory that
//!   outlives it.
//! - `role`: runs one of them. `gpu`: [`Gpu`] over all of this. `simulation`: the state under random requests and
//!   deaths, for tests and fuzzing.
//!
//! A lease request goes into the tenant's ring. The broker asks the state, writes the changed records, then the reply.
//! A call goes into the ring that tenant and worker share; the worker checks every argument, launches, and lets the
//! stream write the call's number into a semaphore. The broker is asked only for leases and modules that are new to the
//! worker.
//!
//! # Invariants
//!
//! - Records are written before a reply reports them. Each has two copies and a word that selects one, so that the
//!   broker can be killed between any two stores. The next broker completes or undoes the one request that was under
//!   way.
//! - Freed memory goes to another tenant only when the work that used it is complete, or its process has ended, and it
//!   has been scrubbed.
//! - Nothing that a tenant writes is trusted: ids are looked up and must belong to the sender.
//! - The broker waits for no tenant. One that does not read its socket is disconnected; one that does not read its ring
//!   is not served.
//! - A tenant loses no lease when its worker fails. A call that was not taken from the ring was not executed; one that
//!   was taken and is not reported may have been ([`Executed`]).
//! - One scrubber writes at a time: the next starts when the last process has ended, whichever broker started it.
//! - A forked child of a tenant can use nothing that it inherits.

#![warn(missing_docs)]

mod client;
mod daemon;
pub mod fdstore;
mod gpu;
mod os;
mod process;
mod protocol;
mod role;
mod scrubber;
#[cfg(any(test, fuzzing))]
pub mod simulation;
#[forbid(unsafe_code)]
mod state;
pub mod tensors;
mod worker;

pub use client::{
    Answer, Broker, Call, CallError, Caller, Code, Error, ErrorOrigin, Executed, Given, Granted, Host, HostGuard,
    Kernel, Launch, Lease, LeaseError, Link, LinkError, ListedModule, Module, NamedLease, Result, SpinPolicy,
    StopReport,
};
pub use freehold::signature::{Kind, Parameter, Signature, kernels};
pub use gpu::{Buffer, Gpu, GpuBackend, GpuError, GpuKernel, GpuResult};
pub use os::{signals, socket_path};
pub use process::{BrokerLimits, Config, DeviceInfo, Role};
pub use protocol::call_codec::{Argument, Content};
pub use protocol::module_text::MODULE_BYTES_MAX;
pub use protocol::name::{Name, NameError};
pub use protocol::types::{Access, Policy};
pub use role::run_role;

/// The messages between tenants and broker.
pub mod wire {
    pub use crate::os::seqpacket::TAIL_BYTES_MAX;
    pub use crate::protocol::message::{BrokerStats, Frame, Reply, Request};
    pub use crate::protocol::request_error::RequestError;
    pub use crate::protocol::types::{Access, DecodeError, Fence, Hash, Id, MemoryKind, Policy, QuotaChange, VERSION};
}

/// The pages whose programs need this crate; doctests compile them.
#[cfg(doctest)]
mod docs_pages {
    #[doc = include_str!("../README.md")]
    mod crate_readme {}
    #[doc = include_str!("../../freehold/tests/newcomer/program/src/broker.md")]
    mod broker {}
    #[doc = include_str!("../../../docs/processes.md")]
    mod processes {}
}

/// The handles can be sent to other threads and shared with them; a [`Link`] is for one thread at a time.
const _: () = {
    const fn send<T: Send>() {}
    const fn send_and_sync<T: Send + Sync>() {}
    send::<Link>();
    send_and_sync::<Broker>();
    send_and_sync::<Buffer<f32>>();
    send_and_sync::<CallError>();
    send_and_sync::<Error>();
    send_and_sync::<Gpu>();
    send_and_sync::<GpuError>();
    send_and_sync::<GpuKernel>();
    send_and_sync::<Kernel>();
    send_and_sync::<Lease<f32>>();
    send_and_sync::<LeaseError<f32>>();
    send_and_sync::<LinkError>();
    send_and_sync::<Module>();
    send_and_sync::<NamedLease>();
};
