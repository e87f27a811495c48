//! The broker's side of workers: starts them, assigns tenants, checks heartbeats, and ends them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::net::sockopt::set_socket_passcred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::connection::{Connection, NewTenant, Route, TenantConnections};
use super::fd_set::fd_key;
use super::server::Daemon;
use super::worker_checks::{CHECK_INTERVAL, GRACE, Heartbeat};
use crate::os::eventfd;
use crate::os::seqpacket::{self, socket_pair};
use crate::os::shared_memory::SharedMemory;
use crate::process::Role;
use crate::protocol::call_ring::CallRing;
use crate::protocol::fd_channel::FdKey;
use crate::protocol::message::{Frame, Reply};
use crate::protocol::request_error::RequestError;
use crate::protocol::ring::RING_BYTES;
use crate::protocol::types::{Id, SEMAPHORES};
use crate::protocol::worker_order::WorkerOrder;
use crate::state::Resource;
use crate::state::slot_map::index;

impl Daemon {
    /// Starts the process of a worker. If that fails, the worker is removed.
    pub(super) fn start_worker(&mut self, worker: Id) {
        let started = self.spawn_worker(worker);
        match started {
            Ok(process) => self.state.worker_started(worker, process),
            Err(error) => {
                tracing::error!(target: "freehold", %error, "could not start a worker");
                self.state.remove_tenant(worker, &TenantConnections(&self.connections));
            }
        }
    }

    fn spawn_worker(&mut self, worker: Id) -> io::Result<u32> {
        let (child, control_socket) = self.config.spawn(Role::Worker)?;
        let process = Arc::new(pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?);
        let (ours, theirs) = socket_pair()?;
        // Every message carries the id of its sender.
        set_socket_passcred(&ours, true)?;
        let doorbell = || eventfd::create().map(Arc::new);
        let new_tenant = NewTenant {
            socket: Arc::new(ours),
            process,
            ring: SharedMemory::create("freehold-ring", RING_BYTES)?,
            semaphores: SharedMemory::create("freehold-semaphores", SEMAPHORES as usize * 8)?,
            doorbell: doorbell()?,
        };
        let begin = WorkerOrder::Begin { worker, device: self.config.device_uuid, limit: self.config.launch_limit() };
        let files = [new_tenant.ring.shared_fd(), new_tenant.semaphores.shared_fd()];
        let beside = [theirs.as_fd(), files[0].as_fd(), files[1].as_fd(), new_tenant.doorbell.as_fd()];
        seqpacket::send(&control_socket, &begin.to_words(), &[], &beside)?;
        self.store_fd(FdKey::WorkerSocket(worker), Arc::new(control_socket));
        self.store_fd(FdKey::WorkerDoorbell(worker), doorbell()?);
        self.store_tenant_fds(worker, &new_tenant);
        self.add(Connection::new(worker, new_tenant, child.id()))?;
        self.watch_heartbeat(worker);
        Ok(child.id())
    }

    /// Opens the session of a tenant at a worker, and replies with it.
    pub(super) fn open_session(&mut self, to: Id, number: u32, worker: Id, session_index: u32) -> io::Result<()> {
        if let Err(error) = self.assign_session(to, worker, session_index) {
            return self.reply_error(to, number, error, Route::Socket);
        }
        let Some(connection) = self.connections.get(&(index(to) as u32)) else { return Ok(()) };
        let slot = Frame { number, is_retry: false, message: Reply::SessionOpened { worker, session_index } }.encode();
        let beside = [FdKey::CallRing(to), FdKey::Semaphores(worker), FdKey::WorkerDoorbell(worker)]
            .map(|what| self.fds[&what].clone());
        let beside: Vec<BorrowedFd<'_>> = beside.iter().map(|descriptor| descriptor.as_fd()).collect();
        match seqpacket::send(&connection.socket, &slot, &[], &beside) {
            Ok(()) => Ok(()),
            Err(_) => self.disconnect(index(to) as u32),
        }
    }

    /// Tells a worker which tenant it serves. Repeating this is harmless.
    fn assign_session(&mut self, tenant: Id, worker: Id, session_index: u32) -> Result<(), RequestError> {
        let is_there = self.connections.contains_key(&(index(worker) as u32));
        if !is_there || !self.fds.contains_key(&FdKey::WorkerSocket(worker)) {
            return Err(RequestError::NoDescriptors);
        }
        if !self.fds.contains_key(&FdKey::CallRing(tenant)) {
            let calls = CallRing::create().map_err(|_| RequestError::NoDescriptors)?;
            self.store_fd(FdKey::CallRing(tenant), calls.shared().shared_fd());
        }
        self.send_order(
            worker,
            WorkerOrder::Serve { tenant, session_index },
            &[FdKey::CallRing(tenant), FdKey::WorkerDoorbell(worker)],
        );
        Ok(())
    }

    /// Starts checking the heartbeat of a worker, in the ring that only it and the broker share.
    pub(super) fn watch_heartbeat(&mut self, worker: Id) {
        let Some(connection) = self.connection(worker) else { return };
        let (count, since) = (connection.ring.heartbeats(), Instant::now());
        // Without workers nothing is checked.
        if self.workers.heartbeats.is_empty() {
            self.workers.last_check = Some(since);
        }
        self.workers.heartbeats.insert(worker, Heartbeat { count, since });
    }

    /// Sends an order to a worker. One that does not read is killed.
    fn send_order(&mut self, worker: Id, order: WorkerOrder, beside: &[FdKey]) {
        let Some(control_socket) = self.fds.get(&FdKey::WorkerSocket(worker)) else { return };
        let beside: Vec<Arc<OwnedFd>> = beside.iter().filter_map(|what| self.fds.get(what).cloned()).collect();
        let beside: Vec<BorrowedFd<'_>> = beside.iter().map(|descriptor| descriptor.as_fd()).collect();
        if seqpacket::send(control_socket, &order.to_words(), &[], &beside).is_err() {
            self.kill_worker(worker);
        }
    }

    /// Asks a worker to finish the calls of a tenant that is closing.
    pub(super) fn drain_session(&mut self, worker: Id, tenant: Id) {
        self.send_order(worker, WorkerOrder::Drain { tenant }, &[]);
    }

    /// Asks a worker that serves no tenant to exit.
    pub(super) fn stop_worker(&mut self, worker: Id) {
        self.send_order(worker, WorkerOrder::Stop, &[]);
        self.workers.deadlines.insert(worker, Instant::now() + GRACE);
    }

    pub(super) fn kill_worker(&self, worker: Id) {
        if let Some(process) = self.fds.get(&FdKey::Pidfd(worker)) {
            // It may be gone already.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }

    /// Kills workers that should have exited, or whose heartbeat is late.
    pub(super) fn check_workers(&mut self, now: Instant) {
        let late: Vec<Id> = self
            .workers
            .deadlines
            .iter()
            .filter(|&(_, &deadline)| deadline <= now)
            .map(|(&worker, _)| worker)
            .collect();
        for worker in late {
            self.workers.deadlines.remove(&worker);
            self.kill_worker(worker);
        }
        if self.workers.last_check.is_none_or(|looked| now < looked + CHECK_INTERVAL) {
            return;
        }
        let missed = self.workers.missed(now);
        self.workers.last_check = Some(now);
        let patience = self.config.launch_limit() + GRACE;
        let mut silent = Vec::new();
        for (&worker, beat) in &mut self.workers.heartbeats {
            let Some(connection) = self.connections.get(&(index(worker) as u32)) else { continue };
            beat.leave_out(missed, now);
            if beat.is_silent(connection.ring.heartbeats(), now, patience) {
                silent.push(worker);
            }
        }
        silent.into_iter().for_each(|worker| self.kill_worker(worker));
    }

    /// Ends the call ring of a tenant and wakes its sleepers, which then find that the worker is gone.
    pub(super) fn close_call_ring(&mut self, tenant: Id) {
        if let Some(Ok(calls)) = self.fds.get(&FdKey::CallRing(tenant)).map(|calls| CallRing::open(calls.clone())) {
            calls.notify_progress();
        }
        self.drop_fd(FdKey::CallRing(tenant));
    }

    /// The process of a worker has ended.
    pub(super) fn remove_worker(&mut self, worker: Id) {
        self.workers.deadlines.remove(&worker);
        self.workers.heartbeats.remove(&worker);
        self.drop_fd(FdKey::WorkerSocket(worker));
        self.drop_fd(FdKey::WorkerDoorbell(worker));
    }

    /// Stores the descriptor that came with a request.
    pub(super) fn store_received_fd(&mut self, what: Resource) {
        if let Some(arrived) = self.received_fd.take() {
            self.store_fd(fd_key(what), Arc::new(arrived));
        }
    }
}
