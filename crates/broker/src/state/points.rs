//! Points that have not passed: which leases and names wait for which word of whose clock. A word is looked at once, however
//! many wait for it.

use super::shelf::index;
use super::{Before, CLOCK_WORDS, Effect, State, Tenant, Touched, World};
use crate::wire::{Id, Point, Policy, Refusal, Reply};

/// What waits for a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Its memory is somebody else's then.
    Lease(Id),
    /// What it names is whole then.
    Name(Id),
    /// What was given with this lease is whole then. Its giver stays until that is so.
    Gift(Id),
}

impl State {
    /// A point of a tenant's own clock, or of its worker's: nobody speaks for another.
    pub(super) fn own_point(&self, tenant: Id, point: Point) -> Result<Point, Refusal> {
        if point.value == 0 {
            return Ok(Point::default());
        }
        if point.word >= CLOCK_WORDS {
            return Err(Refusal::Malformed);
        }
        // Its worker works for it, and what that one did not finish when it ended has passed.
        let post = self.tenants.get(tenant).and_then(|tenant| tenant.post);
        if point.tenant == tenant || point.tenant == Id(0) || self.tenants.get(point.tenant).is_some() {
            let is_of_worker = post.is_some_and(|post| post.worker == point.tenant);
            return Ok(if is_of_worker { point } else { Point { tenant, ..point } });
        }
        Ok(Point::default())
    }

    /// Remembers what waits for a point.
    pub(super) fn add_due(&mut self, point: Point, due: Due) {
        let Some(tenant) = self.tenants.get_mut(point.tenant).filter(|_| point.value > 0) else { return };
        tenant.due.insert((point.word, point.value, due));
        self.due.insert(point.tenant);
    }

    pub(super) fn remove_due(&mut self, point: Point, due: Due) {
        let Some(tenant) = self.tenants.get_mut(point.tenant) else { return };
        tenant.due.remove(&(point.word, point.value, due));
        if tenant.due.is_empty() {
            self.due.remove(&point.tenant);
        }
    }

    /// Whether something waits for points, or tenants have gone whose points have not passed.
    pub(crate) fn is_ending(&self) -> bool {
        !self.due.is_empty() || !self.leaving.is_empty()
    }

    /// Sees which points have passed: leases end, names are whole, tenants that go are gone.
    pub(crate) fn pass(&mut self, world: &impl World) {
        let mut next = self.due.first().copied();
        while let Some(tenant) = next {
            self.pass_of(tenant, world);
            next = self.due.range((std::ops::Bound::Excluded(tenant), std::ops::Bound::Unbounded)).next().copied();
        }
        let is_over = |tenant: &Id| self.tenants.get(*tenant).is_none_or(Tenant::is_over);
        let gone: Vec<Id> = self.leaving.iter().copied().filter(is_over).collect();
        gone.into_iter().for_each(|tenant| self.end(tenant, world));
    }

    /// Sees which points of a tenant have passed. Of each word the first is looked at, and more only where that has passed.
    pub(super) fn pass_of(&mut self, tenant: Id, world: &impl World) {
        let mut word = 0;
        loop {
            // What one that is gone had returned is its worker's to use until that has come to the end.
            let Some(known) = self.tenants.get(tenant).filter(|known| !known.is_gone) else { return };
            let Some(&(at, value, due)) = known.due.range((word, 0, Due::Lease(Id(0)))..).next() else { return };
            let point = Point { tenant, word: at, value };
            if !world.has_passed(point) {
                word = at + 1;
                continue;
            }
            word = at;
            match due {
                Due::Lease(lease) => self.end_lease(lease, Some(Point::default())),
                Due::Name(name) => self.whole(name),
                Due::Gift(lease) => self.end_gift(lease, true),
            }
            self.remove_due(point, due);
        }
    }

    /// Has a name be ready when a point has passed, and not before.
    pub(super) fn set_ready(&mut self, name: Id, point: Point) {
        let named = self.named.get_mut(name).expect("it is there");
        let before = std::mem::replace(&mut named.ready, point);
        self.remove_due(before, Due::Name(name));
        self.add_due(point, Due::Name(name));
    }

    /// What a name stands for is whole: what it stood for before is no more.
    fn whole(&mut self, name: Id) {
        let Some(named) = self.named.get_mut(name) else { return };
        named.ready = Point::default();
        let before = named.before.take();
        self.touch(Touched::Name(index(name)));
        if let Some(Before { block, .. }) = before {
            self.unname_block(block);
        }
    }

    /// Nothing has to pass any more before a lease is used that was given: the work of who gave it has, or never will.
    fn end_gift(&mut self, lease: Id, is_whole: bool) {
        let Some(given) = self.leases.get_mut(lease) else { return };
        (given.given, given.is_unfinished) = (Some(Point::default()), given.is_unfinished || !is_whole);
        let holder = given.holder;
        self.touch(Touched::Lease(index(lease)));
        if !is_whole {
            self.effects.push(Effect::Tell { to: holder, reply: Reply::Unfinished { lease } });
        }
    }

    /// Names whose last state a tenant that is gone has not finished are what they were before, or are no more. Those that it gave
    /// what it has not finished are told so, before anything lets their streams pass.
    pub(super) fn abandon(&mut self, tenant: Id) {
        let due = self.tenants.get(tenant).map(|tenant| tenant.due.clone()).unwrap_or_default();
        for (word, value, due) in due {
            let point = Point { tenant, word, value };
            let name = match due {
                Due::Name(name) => name,
                Due::Gift(lease) => {
                    self.end_gift(lease, false);
                    self.remove_due(point, due);
                    continue;
                }
                Due::Lease(_) => continue,
            };
            self.remove_due(point, due);
            let named = self.named.get_mut(name).expect("what waits is there");
            named.ready = Point::default();
            match (named.policy, named.before.take()) {
                (Policy::Open, before) => {
                    debug_assert!(before.is_none(), "what all write in place has no state before");
                    self.touch(Touched::Name(index(name)));
                }
                (_, Some(Before { block, version })) => {
                    let half = std::mem::replace(&mut named.block, block);
                    named.version = version;
                    self.touch(Touched::Name(index(name)));
                    self.unname_block(half);
                }
                (_, None) => self.unname(name),
            }
        }
    }

    /// Takes a block from its name: it goes with the last lease of it.
    pub(super) fn unname_block(&mut self, block: Id) {
        self.change_block(block, |block| block.is_named = false);
        self.touch(Touched::Block(index(block)));
        self.release(block);
    }
}
