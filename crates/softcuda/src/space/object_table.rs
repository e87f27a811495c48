//! The textures or surfaces of a process: a table of handles, and a map that launches keep. A kernel uses the objects that
//! existed when it was launched, so a program may destroy one while the kernel runs.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use freehold_driver::cuda::CUerror;

use crate::base::handle_table::{HandleReuse, HandleSpace, HandleTable};
use crate::base::sync::{read, write};
use crate::objects::texture::{SurfaceObject, TextureObject};

/// The live objects at one moment, by handle.
type Snapshot<T> = Arc<BTreeMap<usize, Arc<T>>>;

#[derive(Debug)]
pub(crate) struct ObjectTable<T> {
    handles: HandleTable<T>,
    /// Copied when it changes while a launch keeps it.
    live: RwLock<Snapshot<T>>,
}

impl<T> ObjectTable<T> {
    pub(crate) fn new(handles: HandleSpace) -> Self {
        Self { handles: HandleTable::new(handles, HandleReuse::Never), live: RwLock::default() }
    }

    /// Returns the handle of a new object.
    pub(crate) fn insert(&self, object: T) -> usize {
        let mut live = write(&self.live);
        let (handle, object) = self.handles.insert_with(|_| Arc::new(object));
        Arc::make_mut(&mut live).insert(handle, object);
        handle
    }

    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let mut live = write(&self.live);
        Arc::make_mut(&mut live).remove(&handle);
        self.handles.remove(handle)
    }

    pub(crate) fn remove_all(&self, unwanted: impl Fn(&T) -> bool) {
        let mut live = write(&self.live);
        Arc::make_mut(&mut live).retain(|_, object| !unwanted(object));
        self.handles.remove_all(unwanted);
    }

    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>, CUerror> {
        self.handles.get(handle)
    }

    pub(crate) fn find(&self, handle: usize) -> Option<Arc<T>> {
        self.handles.find(handle)
    }

    fn snapshot(&self) -> Snapshot<T> {
        Arc::clone(&read(&self.live))
    }
}

/// The objects that existed when a kernel was launched.
#[derive(Debug)]
pub(crate) struct KernelObjects {
    pub(crate) textures: Snapshot<TextureObject>,
    pub(crate) surfaces: Snapshot<SurfaceObject>,
}

impl KernelObjects {
    pub(crate) fn of(textures: &ObjectTable<TextureObject>, surfaces: &ObjectTable<SurfaceObject>) -> Self {
        Self { textures: textures.snapshot(), surfaces: surfaces.snapshot() }
    }
}
