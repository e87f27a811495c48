//! Objects of the program that graphs keep alive, by reference counts. A thread calls the destructor at zero.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::thread;

use freehold_driver::cuda::{CUerror, CUresult};

use crate::base::sync::lock;
use crate::engine::work::{HostFunction, call_host_function};

#[derive(Debug)]
pub(crate) struct UserObject {
    destroy: unsafe extern "C" fn(*mut c_void),
    /// The program's pointer, which only its destructor dereferences.
    data: usize,
    counts: Mutex<Counts>,
}

/// The references to an object by their owners. It is destroyed when there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    program: u64,
    graphs: u64,
}

impl UserObject {
    pub(crate) fn new(destroy: unsafe extern "C" fn(*mut c_void), data: usize, references: u64) -> Self {
        Self { destroy, data, counts: Mutex::new(Counts { program: references, graphs: 0 }) }
    }

    /// Adds references of the program.
    ///
    /// # Errors
    /// There are no references: the object is destroyed.
    pub(crate) fn retain(&self, count: u64) -> CUresult {
        self.change(|counts| Some(Counts { program: counts.program + count, ..counts }))
    }

    /// Releases references of the program.
    ///
    /// # Errors
    /// There are fewer.
    pub(crate) fn release(&self, count: u64) -> CUresult {
        self.change(|counts| Some(Counts { program: counts.program.checked_sub(count)?, ..counts }))
    }

    /// Changes the counts of an object that is not destroyed, and destroys it with the last reference.
    fn change(&self, change: impl FnOnce(Counts) -> Option<Counts>) -> CUresult {
        const NONE: Counts = Counts { program: 0, graphs: 0 };
        let mut counts = lock(&self.counts);
        let new = if *counts == NONE { None } else { change(*counts) };
        *counts = new.ok_or(CUerror::INVALID_VALUE)?;
        let is_last = *counts == NONE;
        drop(counts);
        if is_last {
            self.destroy();
        }
        Ok(())
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        *lock(&self.counts) == Counts { program: 0, graphs: 0 }
    }

    fn destroy(&self) {
        let (function, data) = (HostFunction::Function(self.destroy), self.data);
        let run = move || call_host_function(function, data);
        if thread::Builder::new().name("freehold-user-object".to_owned()).spawn(run).is_err() {
            // If no thread can be started, the destructor runs here.
            call_host_function(function, data);
        }
    }
}

/// References of a graph to one object, which are released when the value is dropped.
#[derive(Debug)]
pub(crate) struct UserReferences {
    object: Arc<UserObject>,
    count: u64,
}

impl UserReferences {
    /// Adds references to an object.
    pub(crate) fn new(object: &Arc<UserObject>, count: u64) -> Result<Self, CUerror> {
        object.change(|counts| Some(Counts { graphs: counts.graphs + count, ..counts }))?;
        Ok(Self { object: Arc::clone(object), count })
    }

    /// Takes over references of the program.
    pub(crate) fn from_program(object: &Arc<UserObject>, count: u64) -> Result<Self, CUerror> {
        object.change(|Counts { program, graphs }| {
            Some(Counts { program: program.checked_sub(count)?, graphs: graphs + count })
        })?;
        Ok(Self { object: Arc::clone(object), count })
    }

    pub(crate) fn is_to(&self, object: &Arc<UserObject>) -> bool {
        Arc::ptr_eq(&self.object, object)
    }

    /// Takes over references to the same object.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.count += std::mem::take(&mut other.count);
    }

    /// Releases some of the references.
    ///
    /// # Errors
    /// There are fewer.
    pub(crate) fn release(&mut self, count: u64) -> CUresult {
        self.count = self.count.checked_sub(count).ok_or(CUerror::INVALID_VALUE)?;
        self.give_back(count)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns one more reference, for a copy of what holds these.
    pub(crate) fn duplicate(&self) -> Self {
        Self::new(&self.object, 1).expect("an object with references is not destroyed")
    }

    fn give_back(&self, count: u64) -> CUresult {
        self.object.change(|counts| Some(Counts { graphs: counts.graphs.checked_sub(count)?, ..counts }))
    }
}

impl Drop for UserReferences {
    fn drop(&mut self) {
        if self.count > 0 {
            self.give_back(self.count).expect("the references are this value's");
        }
    }
}
