//! Encodes the state as records of words, and recovers it from the records that a broker left when it died.
//!
//! Only data that cannot be recomputed is recorded. Recovery accepts records as far as they are consistent, and repairs
//! the rest: at most one request was half executed.

use std::collections::BTreeSet;

use super::free_list::{FreeList, span_bytes};
use super::limits::Limits;
use super::slot_map::{SlotMap, index};
use super::store::State;
use super::types::{
    Attachment, Block, CallSession, DirtyRecord, FenceWaiter, Host, Lease, ModuleEntry, ModuleLoad, NameEntry,
    NameTarget, Peer, PreviousVersion, Quota, Resource, Segment, SegmentStage, Tenant, WorkerState,
};
use crate::protocol::name::{NAME_BYTES_MAX, Name};
use crate::protocol::types::{Access, Fence, Id, MemoryKind, Policy, SESSIONS_MAX, halves, pair};

/// The kinds of records, in the order of their tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Tenant,
    Segment,
    Block,
    Lease,
    Name,
    Host,
    Attachment,
    Quota,
    Module,
    Load,
}

const NAME_WORDS: usize = 1 + NAME_BYTES_MAX / 8;

impl RecordKind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Tenant,
        Self::Segment,
        Self::Block,
        Self::Lease,
        Self::Name,
        Self::Host,
        Self::Attachment,
        Self::Quota,
        Self::Module,
        Self::Load,
    ];

    /// Words of a record.
    pub(crate) const fn words(self) -> usize {
        match self {
            Self::Attachment | Self::Quota => 2,
            Self::Tenant => 6,
            Self::Segment | Self::Block | Self::Load => 4,
            Self::Lease => 12,
            Self::Module => 9 + NAME_WORDS,
            Self::Name => 10 + NAME_WORDS,
            Self::Host => 4 + NAME_WORDS,
        }
    }

    /// The most records of a kind.
    pub(crate) fn count(self, limits: &Limits) -> usize {
        match self {
            Self::Tenant => limits.tenants,
            Self::Segment => limits.segments,
            Self::Block => limits.blocks,
            Self::Lease => limits.leases,
            Self::Name => limits.names,
            Self::Host => limits.hosts,
            Self::Attachment => limits.attachments,
            Self::Quota => limits.quotas,
            Self::Module => limits.modules,
            Self::Load => limits.loads,
        }
    }
}

impl DirtyRecord {
    pub(crate) fn kind(self) -> (RecordKind, usize) {
        match self {
            Self::Tenant(index) => (RecordKind::Tenant, index),
            Self::Segment(index) => (RecordKind::Segment, index),
            Self::Block(index) => (RecordKind::Block, index),
            Self::Lease(index) => (RecordKind::Lease, index),
            Self::Name(index) => (RecordKind::Name, index),
            Self::Host(index) => (RecordKind::Host, index),
            Self::Attachment(index) => (RecordKind::Attachment, index),
            Self::Quota(index) => (RecordKind::Quota, index),
            Self::Module(index) => (RecordKind::Module, index),
            Self::Load(index) => (RecordKind::Load, index),
        }
    }
}

/// A record: its id, and its words while the value exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: Id,
    pub(crate) words: Option<Vec<u64>>,
}

/// No device and no host has more bytes: records that add up to more are rejected.
const SUM_BYTES_MAX: u64 = 1 << 60;

/// Adds to a sum. `None` if it exceeds `most`.
fn add(sum: &mut u64, bytes: u64, most: u64) -> Option<()> {
    *sum = sum.checked_add(bytes).filter(|&sum| sum <= most)?;
    Some(())
}

fn name_words(name: &Name) -> [u64; NAME_WORDS] {
    let mut words = [0; NAME_WORDS];
    words[0] = name.as_str().len() as u64;
    for (word, letters) in words[1..].iter_mut().zip(name.as_str().as_bytes().chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..letters.len()].copy_from_slice(letters);
        *word = u64::from_le_bytes(bytes);
    }
    words
}

fn name_of(words: &[u64]) -> Option<Name> {
    let bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = std::str::from_utf8(bytes.get(..usize::try_from(words[0]).ok()?)?).ok()?;
    Name::parse(text).ok()
}

fn lease_words(lease: &Lease) -> [u64; 12] {
    let access = u64::from(lease.access == Access::Write) | u64::from(lease.given.is_some()) << 1;
    let access = access | u64::from(lease.is_unfinished) << 2;
    let name = lease.name.map_or(0, |name| name.0);
    let [at, value] = lease.ending.unwrap_or_default().to_words();
    let [given_at, given_value] = lease.given.unwrap_or_default().to_words();
    let (by, number) = (lease.by.0.0, u64::from(lease.by.1));
    let of = lease.of.map_or(0, |of| of.0);
    [lease.holder.0, lease.block.0, access, name, by, number, at, value, lease.order, given_at, given_value, of]
}

fn fence_of(words: &[u64]) -> Fence {
    Fence::from_words([words[0], words[1]])
}

impl State {
    /// Calls `put` with the current record of a value: its id, and its words while it exists.
    pub(crate) fn record<R>(&self, dirty: DirtyRecord, put: impl FnOnce(Id, Option<&[u64]>) -> R) -> R {
        match dirty {
            DirtyRecord::Tenant(index) => match self.tenants.get_at(index) {
                Some((id, tenant)) => {
                    let over =
                        [tenant.is_disconnected, tenant.is_closing, tenant.has_exited].map(u64::from).iter().sum();
                    let peer = pair(tenant.peer.user, tenant.peer.process);
                    let (worker, session_index) =
                        tenant.session.map_or((0, 0), |session| (session.worker.0, session.session_index));
                    let label = tenant.worker_state.as_ref().map_or(0, |worker_state| worker_state.label);
                    let session_index =
                        tenant.worker_state.as_ref().map_or(session_index, |worker_state| worker_state.sessions_opened);
                    let is_worker = u32::from(tenant.worker_state.is_some());
                    put(
                        id,
                        Some(&[peer, over, u64::from(tenant.last_drop), worker, pair(session_index, is_worker), label]),
                    )
                }
                None => put(self.tenants.last_id_at(index), None),
            },
            DirtyRecord::Segment(index) => match self.segments.get_at(index) {
                Some((id, segment)) => {
                    let owner = segment.owner.map_or(0, |owner| owner.0);
                    let user = pair(segment.user, u32::from(segment.is_exposed));
                    put(id, Some(&[segment.bytes, segment.stage as u64, owner, user]))
                }
                None => put(self.segments.last_id_at(index), None),
            },
            DirtyRecord::Block(index) => match self.blocks.get_at(index) {
                Some((id, block)) => {
                    put(id, Some(&[block.segment.0, block.offset, block.bytes, u64::from(block.is_foreign)]))
                }
                None => put(self.blocks.last_id_at(index), None),
            },
            DirtyRecord::Lease(index) => match self.leases.get_at(index) {
                Some((id, lease)) => put(id, Some(&lease_words(lease))),
                None => put(self.leases.last_id_at(index), None),
            },
            DirtyRecord::Name(index) => match self.named.get_at(index) {
                Some((id, named)) => {
                    let [at, value] = named.ready.to_words();
                    let mut words = vec![named.block.0, u64::from(named.user), named.creator.0, named.policy.to_word()];
                    let before = named.previous.unwrap_or(PreviousVersion { block: Id(0), version: 0 });
                    words.extend([named.version, named.since, at, value, before.block.0, before.version]);
                    words.extend(name_words(&named.name));
                    put(id, Some(&words))
                }
                None => put(self.named.last_id_at(index), None),
            },
            DirtyRecord::Host(index) => match self.hosts.get_at(index) {
                Some((id, host)) => {
                    let mut words = vec![host.bytes, u64::from(host.user), host.creator.0, host.since];
                    words.extend(name_words(&host.name));
                    put(id, Some(&words))
                }
                None => put(self.hosts.last_id_at(index), None),
            },
            DirtyRecord::Attachment(index) => match self.attachments.get_at(index) {
                Some((id, attached)) => put(id, Some(&[attached.tenant.0, attached.segment.0])),
                None => put(self.attachments.last_id_at(index), None),
            },
            DirtyRecord::Quota(index) => match self.quotas.get_at(index) {
                Some((id, quota)) => put(id, Some(&[pair(quota.user, quota.memory.to_word() as u32), quota.bytes])),
                None => put(self.quotas.last_id_at(index), None),
            },
            DirtyRecord::Module(index) => match self.modules.get_at(index) {
                Some((id, module)) => {
                    let mut words = vec![module.bytes, pair(module.user, u32::from(module.is_compiled)), module.since];
                    words.push(module.by.0);
                    words.extend(module.hash);
                    words.push(module.device_bytes);
                    words.extend(name_words(&module.name));
                    put(id, Some(&words))
                }
                None => put(self.modules.last_id_at(index), None),
            },
            DirtyRecord::Load(index) => match self.loads.get_at(index) {
                Some((id, load)) => {
                    put(id, Some(&[load.worker.0, load.module.0, load.bytes, u64::from(load.is_unloading)]))
                }
                None => put(self.loads.last_id_at(index), None),
            },
        }
    }

    /// Recovers the state from the records of a previous broker. `has` says which descriptors are there: objects that
    /// have lost their descriptors are dropped.
    pub(crate) fn recover(
        limits: Limits,
        own_user: u32,
        records: impl Fn(RecordKind) -> Vec<Record>,
        has: impl Fn(Resource) -> bool,
    ) -> Self {
        let mut state = Self::new(limits, own_user);
        state.quotas = restore_slot_map(records(RecordKind::Quota), |_, words| {
            let [user, memory] = halves(words[0]);
            Some(Quota { user, memory: MemoryKind::from_word(u64::from(memory)).ok()?, bytes: words[1] })
        });
        state.tenants = restore_slot_map(records(RecordKind::Tenant), |id, words| {
            let [user, process] = halves(words[0]);
            let [session_index, is_worker] = halves(words[4]);
            has(Resource::Semaphores(id)).then(|| Tenant {
                last_drop: words[2] as u32,
                is_disconnected: words[1] != 0,
                is_closing: words[1] >= 2,
                has_exited: words[1] >= 3,
                session: Some(CallSession { worker: Id(words[3]), session_index })
                    .filter(|session| session.worker.0 != 0 && is_worker == 0),
                worker_state: (is_worker != 0).then(|| WorkerState {
                    label: words[5],
                    sessions_opened: session_index.min(SESSIONS_MAX),
                    ..WorkerState::default()
                }),
                ..Tenant::new(Peer { user, process })
            })
        });
        let mut host_bytes = 0;
        state.hosts = restore_slot_map(records(RecordKind::Host), |id, words| {
            let user = u32::try_from(words[1]).ok()?;
            add(&mut host_bytes, words[0], SUM_BYTES_MAX)?;
            let (creator, since) = (Id(words[2]), words[3]);
            has(Resource::Host(id)).then_some(Host {
                bytes: words[0],
                user,
                creator,
                since,
                name: name_of(&words[4..])?,
            })
        });
        let (mut made_bytes, most_bytes) = (0, state.limits.budget_bytes.min(SUM_BYTES_MAX));
        state.segments = restore_slot_map(records(RecordKind::Segment), |id, words| {
            add(&mut made_bytes, words[0], most_bytes)?;
            let stage = [
                SegmentStage::Creating,
                SegmentStage::Live,
                SegmentStage::Unmapping,
                SegmentStage::Scrubbing,
                SegmentStage::Zeroed,
            ];
            let stage = *stage.get(usize::try_from(words[1]).ok()?)?;
            // The request for a segment that was being created is repeated.
            let is_there = stage != SegmentStage::Creating && has(Resource::Segment(id));
            let [user, is_exposed] = halves(words[3]);
            is_there.then_some(Segment {
                bytes: words[0],
                stage,
                owner: Some(Id(words[2])).filter(|&owner| state.tenants.get(owner).is_some()),
                user,
                is_exposed: is_exposed != 0,
                free_list: FreeList::new(words[0]),
                blocks: BTreeSet::new(),
                unscrubbed: BTreeSet::new(),
                attached: BTreeSet::new(),
            })
        });
        state.recover_modules(&records, &has, made_bytes);
        state.recover_blocks(&records);
        state.recover_leases(&records);
        state.order = state.leases.iter().map(|(_, lease)| lease.order).max().unwrap_or(0);
        state.repair_writers();
        state.repair();
        state
    }

    /// Recovers modules, and the modules that workers have loaded. `made_bytes` is the device memory of segments.
    fn recover_modules(
        &mut self,
        records: &impl Fn(RecordKind) -> Vec<Record>,
        has: &impl Fn(Resource) -> bool,
        made_bytes: u64,
    ) {
        let (mut taken_bytes, most_bytes) = (made_bytes, self.limits.budget_bytes.min(SUM_BYTES_MAX));
        let mut module_bytes = 0;
        self.modules = restore_slot_map(records(RecordKind::Module), |id, words| {
            let [user, is_proved] = halves(words[1]);
            add(&mut module_bytes, words[0], SUM_BYTES_MAX)?;
            add(&mut module_bytes, words[8], SUM_BYTES_MAX)?;
            has(Resource::Module(id)).then_some(ModuleEntry {
                name: name_of(&words[9..])?,
                bytes: words[0],
                device_bytes: words[8],
                hash: [words[4], words[5], words[6], words[7]],
                user,
                by: Id(words[3]),
                since: words[2],
                is_compiled: is_proved != 0,
            })
        });
        self.loads = restore_slot_map(records(RecordKind::Load), |id, words| {
            let (worker, module, bytes) = (Id(words[0]), Id(words[1]), words[2]);
            let worker_state = self.tenants.get_mut(worker)?.worker_state.as_mut()?;
            if worker_state.loaded.contains_key(&module) {
                return None;
            }
            add(&mut taken_bytes, bytes, most_bytes)?;
            worker_state.loaded.insert(module, id);
            Some(ModuleLoad { worker, module, bytes, is_unloading: words[3] != 0 })
        });
    }

    fn recover_blocks(&mut self, records: &impl Fn(RecordKind) -> Vec<Record>) {
        self.attachments = restore_slot_map(records(RecordKind::Attachment), |id, words| {
            let attached = Attachment { tenant: Id(words[0]), segment: Id(words[1]) };
            self.segments.get_mut(attached.segment)?;
            self.tenants.get_mut(attached.tenant)?.attached.insert(attached.segment, id);
            self.segments.get_mut(attached.segment)?.attached.insert(attached.tenant);
            Some(attached)
        });
        self.blocks = restore_slot_map(records(RecordKind::Block), |id, words| {
            let (segment, offset, bytes) = (Id(words[0]), words[1], words[2]);
            let within = self.segments.get_mut(segment).filter(|within| within.stage == SegmentStage::Live)?;
            if bytes > within.bytes || !within.free_list.alloc_at(offset, span_bytes(bytes)) {
                return None;
            }
            within.blocks.insert(id);
            // A block that was being zeroed is zeroed again.
            let is_foreign = words[3] != 0;
            Some(Block { segment, offset, bytes, leases: 0, is_named: false, is_foreign, is_scrubbing: false })
        });
        self.named = restore_slot_map(records(RecordKind::Name), |_, words| {
            let (user, creator) = (u32::try_from(words[1]).ok()?, Id(words[2]));
            let (block, policy) = (Id(words[0]), Policy::from_word(words[3]).ok()?);
            let (version, since, ready) = (words[4], words[5], fence_of(&words[6..]));
            let name = name_of(&words[10..])?;
            self.blocks.get_mut(block)?.is_named = true;
            let before = PreviousVersion { block: Id(words[8]), version: words[9] };
            let before = self.blocks.get_mut(before.block).map(|block| {
                block.is_named = true;
                before
            });
            Some(NameEntry {
                name,
                block,
                user,
                creator,
                policy,
                version,
                since,
                ready,
                previous: before,
                readers: 0,
                writer: None,
            })
        });
    }

    fn recover_leases(&mut self, records: &impl Fn(RecordKind) -> Vec<Record>) {
        self.leases = restore_slot_map(records(RecordKind::Lease), |id, words| {
            let (holder, block) = (Id(words[0]), Id(words[1]));
            let access = if words[2] & 1 == 0 { Access::Read } else { Access::Write };
            let given = (words[2] & 2 != 0).then(|| fence_of(&words[9..]));
            self.blocks.get(block)?;
            let ending = Some(fence_of(&words[6..])).filter(|fence| fence.value > 0);
            self.tenants.get(holder)?;
            match ending {
                // Fences of a dead tenant are complete, so the lease has ended.
                Some(fence) => self.tenants.get_mut(fence.tenant)?.fence_waiters.insert((
                    fence.semaphore,
                    fence.value,
                    FenceWaiter::Lease(id),
                )),
                None => self.tenants.get_mut(holder)?.leases.insert(id),
            };
            self.blocks.get_mut(block)?.leases += 1;
            let name = Some(Id(words[3])).filter(|name| name.0 != 0);
            if let Some(named) = name.and_then(|name| self.named.get_mut(name)) {
                match access {
                    Access::Read => named.readers += 1,
                    Access::Write if named.policy != Policy::Open && ending.is_none() => named.writer = Some(id),
                    Access::Write => {}
                }
            }
            let (of, by) = (Some(Id(words[11])).filter(|of| of.0 != 0), (Id(words[4]), words[5] as u32));
            let (order, is_unfinished) = (words[8], words[2] & 4 != 0);
            Some(Lease { holder, block, access, name, of, by, ending, order, given, is_unfinished })
        });
    }

    /// A name has one writer. If there are two, the lease was being given to another tenant, which keeps it.
    fn repair_writers(&mut self) {
        let names: Vec<(Id, Policy)> = self.named.iter().map(|(id, named)| (id, named.policy)).collect();
        for (name, policy) in names {
            let is_writer =
                |lease: &Lease| lease.name == Some(name) && lease.access == Access::Write && lease.ending.is_none();
            let writers: Vec<Id> = self.leases.iter().filter(|(_, lease)| is_writer(lease)).map(|(id, _)| id).collect();
            if policy == Policy::Open || writers.len() < 2 {
                continue;
            }
            let last = writers.iter().copied().max_by_key(|&writer| self.leases.get(writer).map(|lease| lease.order));
            self.named.get_mut(name).expect("it was listed above").writer = last;
            for writer in writers.into_iter().filter(|&writer| Some(writer) != last) {
                let lease = self.leases.get(writer).expect("it was listed above");
                let (holder, block) = (lease.holder, lease.block);
                self.leases.remove(writer);
                self.tenants.get_mut(holder).expect("the holder of a lease exists").leases.remove(&writer);
                self.blocks.get_mut(block).expect("a leased block exists").leases -= 1;
            }
        }
    }

    /// Recomputes data that is not recorded, and frees objects that nothing refers to.
    fn repair(&mut self) {
        let ready: Vec<_> = self.named.iter().map(|(id, named)| (id, named.ready)).collect();
        ready.into_iter().for_each(|(name, ready)| self.add_fence_waiter(ready, FenceWaiter::Name(name)));
        let gifts: Vec<_> = self.leases.iter().filter_map(|(id, lease)| Some((id, lease.given?))).collect();
        gifts.into_iter().for_each(|(lease, given)| self.add_fence_waiter(given, FenceWaiter::Given(lease)));
        self.awaited_tenants =
            self.tenants.iter().filter(|(_, tenant)| !tenant.fence_waiters.is_empty()).map(|(id, _)| id).collect();
        self.closing = self.tenants.iter().filter(|(_, tenant)| tenant.is_closing).map(|(id, _)| id).collect();
        let hosts =
            self.hosts.iter().map(|(id, host)| (host.name.clone(), NameTarget { memory: MemoryKind::Host, id }));
        let named =
            self.named.iter().map(|(id, named)| (named.name.clone(), NameTarget { memory: MemoryKind::Device, id }));
        self.names = hosts.chain(named).collect();
        let owned: Vec<_> = self.segments.iter().filter_map(|(id, segment)| Some((id, segment.owner?))).collect();
        for (segment, owner) in owned {
            self.tenants.get_mut(owner).expect("the owner of a segment exists").segments.insert(segment);
        }
        self.module_names = self.modules.iter().map(|(id, module)| (module.name.clone(), id)).collect();
        self.accounting = self.recount();
        self.repair_workers();
        self.repair_modules();
        let blocks: Vec<Id> = self.blocks.iter().map(|(id, _)| id).collect();
        blocks.into_iter().for_each(|block| self.free_block(block));
        let segments: Vec<_> = self.segments.iter().map(|(id, segment)| (id, segment.stage)).collect();
        for (id, stage) in segments {
            match stage {
                SegmentStage::Live => self.reclaim_segment(id),
                // Their scrubbing or unmapping may be half done.
                SegmentStage::Unmapping | SegmentStage::Scrubbing => {
                    self.change_segment(id, |segment| segment.stage = SegmentStage::Live);
                    self.reclaim_segment(id);
                }
                SegmentStage::Creating | SegmentStage::Zeroed => {}
            }
        }
        // Every record is rewritten, so that the journal matches the state.
        let all = [
            (0..self.tenants.capacity()).map(DirtyRecord::Tenant as fn(usize) -> DirtyRecord).collect::<Vec<_>>(),
            (0..self.segments.capacity()).map(DirtyRecord::Segment).collect(),
            (0..self.blocks.capacity()).map(DirtyRecord::Block).collect(),
            (0..self.leases.capacity()).map(DirtyRecord::Lease).collect(),
            (0..self.named.capacity()).map(DirtyRecord::Name).collect(),
            (0..self.hosts.capacity()).map(DirtyRecord::Host).collect(),
            (0..self.attachments.capacity()).map(DirtyRecord::Attachment).collect(),
            (0..self.quotas.capacity()).map(DirtyRecord::Quota).collect(),
            (0..self.modules.capacity()).map(DirtyRecord::Module).collect(),
            (0..self.loads.capacity()).map(DirtyRecord::Load).collect(),
        ];
        self.dirty_records = all.into_iter().flatten().collect();
        self.notify_all_given();
    }
}

/// Decodes records into a slot map, each with its own id.
fn restore_slot_map<T>(records: Vec<Record>, mut read: impl FnMut(Id, &[u64]) -> Option<T>) -> SlotMap<T> {
    let mut slots = SlotMap::default();
    for record in &records {
        if let Some(words) = &record.words
            && let Some(value) = read(record.id, words)
        {
            slots.restore(record.id, value);
        }
    }
    slots.finish_restore(records.iter().map(|record| record.id));
    debug_assert!(records.iter().enumerate().all(|(at, record)| index(record.id) == at), "records are in order");
    slots
}
