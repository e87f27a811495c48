//! Incomplete fences: which leases and names wait for which semaphore of which tenant. A semaphore is read once,
//! however many wait for it.

use super::slot_map::index;
use super::store::State;
use super::types::{DirtyRecord, Effect, Environment, FenceWaiter, PreviousVersion, Tenant};
use crate::protocol::message::Reply;
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{Fence, Id, Policy, SEMAPHORES};

impl State {
    /// Accepts a fence of the tenant's own semaphores or of its worker's: no tenant may name those of another.
    pub(super) fn check_fence(&self, tenant: Id, fence: Fence) -> Result<Fence, RequestError> {
        if fence.value == 0 {
            return Ok(Fence::default());
        }
        if fence.semaphore >= SEMAPHORES {
            return Err(RequestError::Malformed);
        }
        // Its worker runs its calls. Fences of a worker that has ended are complete.
        let session = self.tenants.get(tenant).and_then(|tenant| tenant.session);
        if fence.tenant == tenant || fence.tenant == Id(0) || self.tenants.get(fence.tenant).is_some() {
            let is_of_worker = session.is_some_and(|session| session.worker == fence.tenant);
            return Ok(if is_of_worker { fence } else { Fence { tenant, ..fence } });
        }
        Ok(Fence::default())
    }

    /// Adds a waiter for a fence.
    pub(super) fn add_fence_waiter(&mut self, fence: Fence, waiter: FenceWaiter) {
        let Some(tenant) = self.tenants.get_mut(fence.tenant).filter(|_| fence.value > 0) else { return };
        tenant.fence_waiters.insert((fence.semaphore, fence.value, waiter));
        self.awaited_tenants.insert(fence.tenant);
    }

    pub(super) fn remove_fence_waiter(&mut self, fence: Fence, waiter: FenceWaiter) {
        let Some(tenant) = self.tenants.get_mut(fence.tenant) else { return };
        tenant.fence_waiters.remove(&(fence.semaphore, fence.value, waiter));
        if tenant.fence_waiters.is_empty() {
            self.awaited_tenants.remove(&fence.tenant);
        }
    }

    /// Whether something waits for fences, or closing tenants have incomplete ones.
    pub(crate) fn has_fence_waiters(&self) -> bool {
        !self.awaited_tenants.is_empty() || !self.closing.is_empty()
    }

    /// Polls all fences: leases end, names become complete, closing tenants are removed.
    pub(crate) fn poll_fences(&mut self, environment: &impl Environment) {
        let mut next = self.awaited_tenants.first().copied();
        while let Some(tenant) = next {
            self.poll_fences_of(tenant, environment);
            next = self
                .awaited_tenants
                .range((std::ops::Bound::Excluded(tenant), std::ops::Bound::Unbounded))
                .next()
                .copied();
        }
        let is_over = |tenant: &Id| self.tenants.get(*tenant).is_none_or(Tenant::is_drained);
        let gone: Vec<Id> = self.closing.iter().copied().filter(is_over).collect();
        gone.into_iter().for_each(|tenant| self.remove_tenant(tenant, environment));
    }

    /// Polls the fences of a tenant. Only the lowest value of each semaphore is checked, and the next when that is
    /// complete.
    pub(super) fn poll_fences_of(&mut self, tenant: Id, environment: &impl Environment) {
        let mut word = 0;
        loop {
            // Leases that an exited tenant had returned may be used by its worker until that has finished.
            let Some(known) = self.tenants.get(tenant).filter(|known| !known.has_exited) else { return };
            let Some(&(at, value, waiter)) = known.fence_waiters.range((word, 0, FenceWaiter::Lease(Id(0)))..).next()
            else {
                return;
            };
            let fence = Fence { tenant, semaphore: at, value };
            if !environment.is_complete(fence) {
                word = at + 1;
                continue;
            }
            word = at;
            match waiter {
                FenceWaiter::Lease(lease) => self.end_lease(lease, Some(Fence::default())),
                FenceWaiter::Name(name) => self.complete_name(name),
                FenceWaiter::Given(lease) => self.complete_given(lease, true),
            }
            self.remove_fence_waiter(fence, waiter);
        }
    }

    /// Sets the fence at which a name is complete.
    pub(super) fn set_ready(&mut self, name: Id, fence: Fence) {
        let named = self.named.get_mut(name).expect("the record exists");
        let before = std::mem::replace(&mut named.ready, fence);
        self.remove_fence_waiter(before, FenceWaiter::Name(name));
        self.add_fence_waiter(fence, FenceWaiter::Name(name));
    }

    /// The current version of a name is complete: its previous one is freed.
    fn complete_name(&mut self, name: Id) {
        let Some(named) = self.named.get_mut(name) else { return };
        named.ready = Fence::default();
        let before = named.previous.take();
        self.mark_dirty(DirtyRecord::Name(index(name)));
        if let Some(PreviousVersion { block, .. }) = before {
            self.unpublish_block(block);
        }
    }

    /// Ends the wait for the giver of a lease: its work is complete, or it has ended.
    fn complete_given(&mut self, lease: Id, is_whole: bool) {
        let Some(given) = self.leases.get_mut(lease) else { return };
        (given.given, given.is_unfinished) = (Some(Fence::default()), given.is_unfinished || !is_whole);
        let holder = given.holder;
        self.mark_dirty(DirtyRecord::Lease(index(lease)));
        if !is_whole {
            self.effects.push(Effect::Notify { to: holder, reply: Reply::Unfinished { lease } });
        }
    }

    /// Restores the previous version of every name that a dead tenant has not completed, or removes the name. Receivers
    /// of leases that it has not completed are notified, before its fences are completed and their streams continue.
    pub(super) fn abandon_incomplete(&mut self, tenant: Id) {
        let waiter = self.tenants.get(tenant).map(|tenant| tenant.fence_waiters.clone()).unwrap_or_default();
        for (word, value, waiter) in waiter {
            let fence = Fence { tenant, semaphore: word, value };
            let name = match waiter {
                FenceWaiter::Name(name) => name,
                FenceWaiter::Given(lease) => {
                    self.complete_given(lease, false);
                    self.remove_fence_waiter(fence, waiter);
                    continue;
                }
                FenceWaiter::Lease(_) => continue,
            };
            self.remove_fence_waiter(fence, waiter);
            let named = self.named.get_mut(name).expect("a waiting name exists");
            named.ready = Fence::default();
            match (named.policy, named.previous.take()) {
                (Policy::Open, before) => {
                    debug_assert!(before.is_none(), "a name that is written in place has no previous version");
                    self.mark_dirty(DirtyRecord::Name(index(name)));
                }
                (_, Some(PreviousVersion { block, version })) => {
                    let half = std::mem::replace(&mut named.block, block);
                    named.version = version;
                    self.mark_dirty(DirtyRecord::Name(index(name)));
                    self.unpublish_block(half);
                }
                (_, None) => self.remove_name(name),
            }
        }
    }

    /// Detaches a block from its name. It is freed with its last lease.
    pub(super) fn unpublish_block(&mut self, block: Id) {
        self.change_block(block, |block| block.is_named = false);
        self.mark_dirty(DirtyRecord::Block(index(block)));
        self.free_block(block);
    }
}
