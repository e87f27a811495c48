//! What the state wants, carried out: replies, descriptors, memory that is made, cleaned and closed. First of all the journal is
//! written.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use super::connection::Connection;
use super::helper::Stain;
use super::{Daemon, ROOM_FOR_GIVEN};
use crate::post::Kept;
use crate::shared::Shared;
use crate::state::shelf::index;
use crate::state::{CLOCK_WORDS, Effect, Thing, World};
use crate::wire::{Framed, Id, Point, Refusal, Reply, Request};

/// How a request came, and its reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Ring,
    Socket,
}

impl Daemon {
    pub(super) fn ask(&mut self, from: Id, asked: Framed<Request>, route: Route) -> io::Result<()> {
        self.state.request(from, asked, &Tenants(&self.connections));
        self.carry_out(Some((from, route)))
    }

    pub(super) fn refuse(&mut self, to: Id, number: u32, refusal: Refusal, route: Route) -> io::Result<()> {
        self.reply(to, number, Reply::Refused(refusal), route)
    }

    fn reply(&mut self, to: Id, number: u32, reply: Reply, route: Route) -> io::Result<()> {
        let at = index(to) as u32;
        let Some(connection) = self.connections.get_mut(&at) else { return Ok(()) };
        let slot = Framed { number, is_again: false, message: reply }.encode();
        match route {
            Route::Ring => {
                connection.ring.reply(&slot);
                connection.ring.take();
                connection.is_waiting = false;
                Ok(())
            }
            Route::Socket => self.send(at, &slot, &[], None),
        }
    }

    /// Answers those who put something that the keeper has got by now.
    pub(super) fn reply_kept(&mut self) -> io::Result<()> {
        if self.outbox.is_empty() {
            for (to, number, reply) in std::mem::take(&mut self.unkept) {
                self.reply(to, number, reply, Route::Socket)?;
            }
        }
        Ok(())
    }

    /// Sends over a tenant's socket. Who does not read is parted from.
    pub(super) fn send(
        &mut self,
        at: u32,
        slot: &crate::ring::Slot,
        tail: &[u8],
        beside: Option<Kept>,
    ) -> io::Result<()> {
        let Some(connection) = self.connections.get(&at) else { return Ok(()) };
        let descriptor = beside.and_then(|what| self.held.get(&what));
        let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
        match crate::socket::send(&connection.socket, slot, tail, &descriptors) {
            Ok(()) => Ok(()),
            Err(_) => self.part(at),
        }
    }

    /// Writes the journal, and does what the state wants. `asked` is whose request it was, and how it came.
    pub(super) fn carry_out(&mut self, asked: Option<(Id, Route)>) -> io::Result<()> {
        self.journal.write(&mut self.state);
        let spare = std::mem::take(&mut self.spare);
        let mut effects = self.state.take_effects(spare);
        let (mut at, mut has_kept) = (0, false);
        while at < effects.len() {
            // What is done leaves something in its place that costs nothing.
            let effect = std::mem::replace(&mut effects[at], Effect::Part { tenant: Id::default() });
            at += 1;
            match effect {
                Effect::Reply { to, number, reply } => {
                    let route = asked.filter(|&(from, _)| from == to).map_or(Route::Ring, |(_, route)| route);
                    match has_kept && !self.outbox.is_empty() {
                        true => self.unkept.push((to, number, reply)),
                        false => self.reply(to, number, reply, route)?,
                    }
                }
                Effect::Tell { to, reply } => {
                    if let Some(connection) = self.connections.get_mut(&(index(to) as u32)) {
                        connection.tell(Framed { number: 0, is_again: false, message: reply }.encode());
                    }
                }
                Effect::Text { to, number, text } => {
                    let slot = Framed { number, is_again: false, message: Reply::Told }.encode();
                    self.send(index(to) as u32, &slot, text.as_bytes(), None)?;
                }
                Effect::Hand { to, number, what, bytes } => self.hand(to, number, what, bytes)?,
                Effect::HandWith { to, number, what, reply } => {
                    let slot = Framed { number, is_again: false, message: reply }.encode();
                    self.send(index(to) as u32, &slot, &[], Some(kept(what)))?;
                }
                Effect::Keep { what } => {
                    self.keep(what);
                    has_kept = true;
                }
                Effect::Start { worker } => {
                    self.start_worker(worker);
                    self.journal.write(&mut self.state);
                    effects.extend(self.state.take_effects(Vec::new()));
                }
                Effect::Hire { to, number, worker, seat } => self.hire(to, number, worker, seat)?,
                Effect::Dismiss { worker, tenant } => self.dismiss(worker, tenant),
                Effect::Retire { worker } => self.retire(worker),
                Effect::LetPass { tenant } => {
                    if let Some(connection) = self.connections.get(&(index(tenant) as u32)) {
                        connection.let_pass(CLOCK_WORDS);
                    }
                }
                Effect::Kill { worker } => self.kill_worker(worker),
                Effect::Make { segment, bytes } => {
                    // The reply comes when it is made.
                    if let Some((from, Route::Ring)) = asked
                        && let Some(connection) = self.connections.get_mut(&(index(from) as u32))
                    {
                        connection.is_waiting = true;
                    }
                    self.maker.make(segment, bytes);
                }
                Effect::Clean { what, segment, offset, bytes } => {
                    let whole_bytes = self.state.segments.get(segment).map_or(0, |segment| segment.bytes);
                    self.helper.clean(what, Stain { segment, whole_bytes, offset, bytes });
                    self.helper.give(&self.held, Instant::now());
                }
                Effect::Close { what } => self.close(what),
                Effect::Stop => self.stop()?,
                Effect::Part { tenant } => {
                    self.state.end(tenant, &Tenants(&self.connections));
                    self.journal.write(&mut self.state);
                    effects.extend(self.state.take_effects(Vec::new()));
                }
            }
        }
        effects.clear();
        self.spare = effects;
        Ok(())
    }

    fn hand(&mut self, to: Id, number: u32, what: Thing, bytes: u64) -> io::Result<()> {
        if let Thing::Host(id) = what
            && !self.held.contains_key(&Kept::Host(id))
        {
            match Shared::create("freehold-host", bytes as usize) {
                Ok(shared) => self.hold(Kept::Host(id), shared.shared_file()),
                Err(_) => return self.refuse(to, number, Refusal::NoDescriptors, Route::Socket),
            }
        }
        let slot = Framed { number, is_again: false, message: Reply::Descriptor { bytes } }.encode();
        self.send(index(to) as u32, &slot, &[], Some(kept(what)))
    }

    fn close(&mut self, what: Thing) {
        if let Thing::Clock(tenant) = what {
            // Who waits for work of a process that is gone has waited long enough.
            if let Some(connection) = self.connections.remove(&(index(tenant) as u32)) {
                connection.let_pass(CLOCK_WORDS);
                for gone in [&connection.socket, &connection.bell, &connection.process] {
                    self.unwatch(gone);
                }
            }
            for gone in [Kept::Connection, Kept::Ring, Kept::Bell, Kept::Process] {
                self.drop_held(gone(tenant));
            }
            self.forget_worker(tenant);
        }
        match what {
            Thing::Calls(tenant) => self.close_calls(tenant),
            what => self.drop_held(kept(what)),
        }
    }
}

/// What the state asks of tenants' rings and clocks.
pub(super) struct Tenants<'a>(pub(super) &'a BTreeMap<u32, Connection>);

impl World for Tenants<'_> {
    fn has_room(&self, tenant: Id) -> Result<(), u32> {
        match self.0.get(&(index(tenant) as u32)).map(Connection::room) {
            Some(room) if room >= ROOM_FOR_GIVEN => Ok(()),
            Some(room) => Err(crate::ring::SLOTS - room),
            None => Err(0),
        }
    }

    fn has_passed(&self, point: Point) -> bool {
        let connection = self.0.get(&(index(point.tenant) as u32)).filter(|known| known.tenant == point.tenant);
        connection.is_none_or(|connection| connection.has_passed(point))
    }
}

pub(super) fn kept(thing: Thing) -> Kept {
    match thing {
        Thing::Segment(id) => Kept::Segment(id),
        Thing::Clock(id) => Kept::Clock(id),
        Thing::Host(id) => Kept::Host(id),
        Thing::Calls(id) => Kept::Calls(id),
        Thing::Module(id) => Kept::Module(id),
    }
}
