//! Every public type can be sent to and shared with other threads. The compiler checks it, so there is nothing to run.

use std::fs::File;

use freehold::foreign::ForeignPool;
use freehold::ledger::{Ledger, Owner, WrongRelease};
use freehold::open::list::Listed;
use freehold::open::{OpenError, Opened};
use freehold::signature::Signature;
use freehold::timeline::Recording;
use freehold::timeline::perfetto::TraceFile;
use freehold::{
    Adopted, Arena, ArenaSlice, Block, Context, Device, DeviceVec, DynArg, Error, Event, Exported, ExternalAccess,
    Fault, ForkGuard, Grid, HostMemory, Image, Imported, ImportedSlice, Kernel, MemoryUse, Module, PendingUnload,
    PoolStats, RawAddress, Scope, Shared, SharedSemaphores, Shortage, Stream, UnmapStatus, Unordered, View, ViewMut,
};

const fn send_and_sync<T: Send + Sync>() {}

/// The handles.
const _: () = {
    send_and_sync::<Arena>();
    send_and_sync::<ArenaSlice<'_, f32>>();
    send_and_sync::<Block<f32>>();
    send_and_sync::<Context>();
    send_and_sync::<Device>();
    send_and_sync::<DeviceVec<f32>>();
    send_and_sync::<Event>();
    send_and_sync::<ExternalAccess>();
    send_and_sync::<ForeignPool>();
    send_and_sync::<HostMemory>();
    send_and_sync::<Imported>();
    send_and_sync::<ImportedSlice<f32>>();
    send_and_sync::<Kernel>();
    send_and_sync::<Module>();
    send_and_sync::<Recording>();
    send_and_sync::<Scope<'_>>();
    send_and_sync::<Shared<f32>>();
    send_and_sync::<SharedSemaphores>();
    send_and_sync::<Stream>();
};

/// What is made of them, and what they tell.
const _: () = {
    send_and_sync::<Adopted>();
    send_and_sync::<UnmapStatus>();
    send_and_sync::<DynArg<'_>>();
    send_and_sync::<Error>();
    send_and_sync::<Exported>();
    send_and_sync::<Fault>();
    send_and_sync::<ForkGuard>();
    send_and_sync::<Grid>();
    send_and_sync::<Image>();
    send_and_sync::<Ledger>();
    send_and_sync::<Listed>();
    send_and_sync::<MemoryUse<'_>>();
    send_and_sync::<OpenError>();
    send_and_sync::<Opened>();
    send_and_sync::<Owner>();
    send_and_sync::<PendingUnload>();
    send_and_sync::<PoolStats>();
    send_and_sync::<RawAddress>();
    send_and_sync::<Shortage>();
    send_and_sync::<Signature>();
    send_and_sync::<TraceFile<File>>();
    send_and_sync::<Unordered<'_, f32>>();
    send_and_sync::<View<'_, f32>>();
    send_and_sync::<ViewMut<'_, f32>>();
    send_and_sync::<WrongRelease>();
};
