//! The thread of the broker that calls the driver: it creates device memory as descriptors, and closes them. So a slow
//! driver call delays only the tenant that requested it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use freehold::open::{self, Opened};
use freehold_driver::cuda::{
    CUerror, CUmemAllocationHandleType, CUmemAllocationProp, DriverError, allocation, context, primary,
};

use crate::os::eventfd;
use crate::protocol::types::Id;

/// A task of the thread.
#[derive(Debug)]
enum DriverTask {
    CreateSegment { segment: Id, bytes: u64 },
    Close(Arc<OwnedFd>),
}

/// A segment's descriptor, or the error code of the driver.
pub(crate) type CreatedSegment = (Id, Result<OwnedFd, u32>);

#[derive(Debug)]
pub(crate) struct DriverThread {
    tasks: Sender<DriverTask>,
    created: Receiver<CreatedSegment>,
}

impl DriverThread {
    /// Starts the thread, which notifies `doorbell` for each segment that it has created.
    pub(crate) fn start(device: Option<String>, doorbell: Arc<OwnedFd>) -> Self {
        let (tasks, todo) = channel::<DriverTask>();
        let (done, made) = channel();
        thread::spawn(move || {
            let mut device = Driver { selector: device, opened: None };
            for task in todo {
                match task {
                    DriverTask::CreateSegment { segment, bytes } => {
                        if done.send((segment, device.create_segment(bytes))).is_err() {
                            return;
                        }
                        // The counter of an eventfd does not fill up.
                        let _ = eventfd::notify(&doorbell);
                    }
                    DriverTask::Close(descriptor) => drop(descriptor),
                }
            }
        });
        Self { tasks, created: made }
    }

    pub(crate) fn create_segment(&self, segment: Id, bytes: u64) {
        self.tasks
            .send(DriverTask::CreateSegment { segment, bytes })
            .expect("the driver thread runs as long as the process");
    }

    pub(crate) fn close(&self, descriptor: Arc<OwnedFd>) {
        self.tasks.send(DriverTask::Close(descriptor)).expect("the driver thread runs as long as the process");
    }

    pub(crate) fn created(&self) -> impl Iterator<Item = CreatedSegment> {
        self.created.try_iter()
    }
}

/// The driver, opened when it is first needed.
#[derive(Debug)]
struct Driver {
    selector: Option<String>,
    opened: Option<Opened>,
}

impl Driver {
    fn create_segment(&mut self, bytes: u64) -> Result<OwnedFd, u32> {
        let Opened { api, device, .. } = self.opened()?;
        let prop = CUmemAllocationProp::on_device(*device, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR);
        let code = |error: DriverError| error.code.number();
        let handle = allocation::create(api, bytes as usize, &prop).map_err(code)?;
        let exported = allocation::export(api, handle);
        // The descriptor alone keeps the memory alive (experiments 1.4.1 to 1.4.8).
        let released = allocation::release(api, handle);
        let descriptor = exported.map_err(code)?;
        released.map_err(code)?;
        Ok(descriptor)
    }

    fn opened(&mut self) -> Result<&Opened, u32> {
        if self.opened.is_none() {
            // SAFETY: every driver call here uses only handles that were created here.
            let opened = unsafe { open::open(self.selector.as_deref()) }.map_err(|error| {
                tracing::error!(target: "freehold", %error, "the device does not open");
                CUerror::NO_DEVICE.number()
            })?;
            let current = primary::retain(&opened.api, opened.device);
            let current = current.and_then(|primary| context::set_current(&opened.api, primary));
            current.map_err(|error| error.code.number())?;
            self.opened = Some(opened);
        }
        Ok(self.opened.as_ref().expect("it was opened above"))
    }
}
