//! Modules: images loaded into a context, and their kernels. A module stays loaded while there are kernels of it, and until
//! its last launch has passed; nobody waits for that.

use std::ffi::CString;
use std::sync::{Arc, Weak};

use freehold_driver::{LoadError, Parameter, handle};

use crate::block::Plain;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::later::Later;
use crate::stream::Stream;

/// A loaded image. A handle: kernels of it keep it loaded too.
///
/// ```
/// use freehold::{Grid, Image};
///
/// let device = freehold::open()?;
/// let stream = device.stream()?;
/// let module = device.module(&Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
/// let count = module.kernel("count")?;
/// stream.launch(&count, Grid::line(1, 1), ())?;
/// assert_eq!(stream.read_variable::<u32>(&module, "counter")?, 1);
/// module.close(); // at once: what was launched comes to its end
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: handle::Module,
    image: Image,
    context: Context,
    /// Held until the driver has unloaded the module.
    loaded: Arc<()>,
}

/// The end of a module that others wait for: when the driver has unloaded it, and what its variables took is free.
///
/// ```
/// # let device = freehold::open()?;
/// let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
/// let unload = module.pending_unload();
/// assert!(!unload.is_over()?);
/// drop(module);
/// assert!(unload.is_over()?); // no work was pending
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Debug)]
pub struct PendingUnload {
    context: Context,
    loaded: Weak<()>,
}

impl PendingUnload {
    /// Whether it is unloaded. Unloads what waited and can go; nothing is waited for.
    ///
    /// # Errors
    /// What the driver says to that. [`Error::ForkedChild`].
    pub fn is_over(&self) -> Result<bool> {
        if self.loaded.strong_count() > 0 {
            self.context.inner.core.tidy()?;
        }
        Ok(self.loaded.strong_count() == 0)
    }
}

/// A kernel of a module, which it keeps loaded.
///
/// ```
/// use freehold::{Grid, Image};
///
/// let device = freehold::open()?;
/// let stream = device.stream()?;
/// let scale = device.module(&Image::ptx(include_str!("../examples/kernels.ptx"))?)?.kernel("scale")?;
/// assert_eq!(scale.parameters().len(), 3);
/// let mut x = stream.upload(&[1.0f32, 2.0])?;
/// let error = stream.launch(&scale, Grid::line(1, 2), (&mut x, 2.0f32)).expect_err("one argument is missing");
/// assert_eq!(error.to_string(), "kernel scale takes 3 arguments, 2 were given");
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) raw: handle::Kernel,
    name: Arc<str>,
    /// The name's number, for faults.
    pub(crate) number: u32,
    parameters: Arc<[Parameter]>,
    module: Module,
}

impl Module {
    pub(crate) fn load(context: Context, image: &Image) -> Result<Self> {
        let inner = &context.inner;
        inner.check()?;
        inner.core.tidy()?;
        let (core, asked) = (&inner.core, inner.core.now());
        let backend = &inner.hall.backend;
        if !backend.takes(image.kind()) {
            return Err(Error::ImageNotTaken { kind: image.kind() });
        }
        let shared = inner.enter()?;
        // SAFETY: an `Image` ends in a NUL or is as long as its headers say.
        let loaded = unsafe { backend.load(image.kind(), image.bytes()) };
        drop(shared);
        match loaded {
            Ok(raw) => {
                if core.timeline.is_on() {
                    core.timeline.of_module("load", raw.0, asked, core.now());
                }
                Ok(Self { inner: Arc::new(Inner { raw, image: image.clone(), context, loaded: Arc::default() }) })
            }
            Err(LoadError::Image { code, log }) => Err(Error::ImageRefused { code, log }),
            Err(LoadError::Call(error)) => Err(core.failed(error)),
        }
    }

    /// Loads the image again: a module with variables of its own (fact 4.2).
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
    /// let other = module.duplicate()?; // with a counter of its own
    /// stream.launch(&other.kernel("count")?, freehold::Grid::line(1, 1), ())?;
    /// assert_eq!(stream.read_variable::<u32>(&module, "counter")?, 0);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn duplicate(&self) -> Result<Self> {
        Self::load(self.inner.context.clone(), &self.inner.image)
    }

    /// The context that it is loaded in.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The kernel with this name.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
    /// assert_eq!(&**module.kernel("scale")?.name(), "scale");
    /// let error = module.kernel("scael").expect_err("there is none");
    /// assert!(error.to_string().starts_with(r#"the image has no kernel "scael"; it has "#));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        let (core, backend, failed) = (&context.core, &context.hall.backend, |error| context.core.failed(error));
        let c_name = CString::new(name).map_err(|_| Error::NulInName { name: name.to_owned() })?;
        let Some(raw) = backend.kernel(self.inner.raw, &c_name).map_err(failed)? else {
            return Err(Error::NoSuchKernel { name: name.to_owned(), known: self.kernels()? });
        };
        let parameters = backend.parameters(raw).map_err(failed)?.into();
        let name: Arc<str> = name.into();
        let number = core.number_kernel(&name);
        Ok(Kernel { raw, number, parameters, name, module: self.clone() })
    }

    /// The names of all kernels.
    pub fn kernels(&self) -> Result<Vec<String>> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        context.hall.backend.kernel_names(self.inner.raw).map_err(|error| context.core.failed(error))
    }

    /// Where the variable with this name lies, and how many bytes it has.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
    /// let (address, bytes) = module.variable("counter")?;
    /// assert!(address != 0 && bytes == 4);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn variable(&self, name: &str) -> Result<(u64, usize)> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        let c_name = CString::new(name).map_err(|_| Error::NulInName { name: name.to_owned() })?;
        let found =
            context.hall.backend.variable(self.inner.raw, &c_name).map_err(|error| context.core.failed(error))?;
        found.ok_or_else(|| Error::NoSuchVariable { name: name.to_owned() })
    }

    /// What tells when the module is unloaded, once it and its kernels are gone.
    pub fn pending_unload(&self) -> PendingUnload {
        PendingUnload { context: self.inner.context.clone(), loaded: Arc::downgrade(&self.inner.loaded) }
    }

    /// Lets go of the module. It is unloaded when its kernels are gone and no work of its context is pending: the driver
    /// waits for all of that, so it is not asked before (fact 4.1).
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let inner = &self.context.inner;
        if inner.is_closed() || !inner.core.is_good() {
            return;
        }
        let core = &inner.core;
        let (hall, loaded) = (inner.hall.clone(), self.loaded.clone());
        core.later(Later::Unload { hall, raw: self.raw, asked: core.now(), _loaded: loaded });
        if let Err(error) = core.tidy() {
            core.trouble(error);
        }
    }
}

impl Kernel {
    /// Its name in the image.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The module that it is of.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// What it takes, in its order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}

impl Stream {
    /// What a variable of a module holds, in the order of this stream. This waits. Kernels use variables without saying so:
    /// with those of other streams the program itself keeps the order.
    pub fn read_variable<T: Plain>(&self, module: &Module, name: &str) -> Result<T> {
        let address = self.variable::<T>(module, name)?;
        let _shared = module.inner.context.inner.enter()?;
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        self.put_and_wait("read variable", &[], false, |backend, raw| {
            // SAFETY: `value` is borrowed until the wait for the copy is over.
            unsafe { backend.download(bytes.as_mut_ptr(), address, bytes.len(), raw) }
        })?;
        Ok(value)
    }

    /// Sets a variable of a module, in the order of this stream. This waits for the copy, and for the work before it.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
    /// stream.write_variable(&module, "counter", &41u32)?;
    /// stream.launch(&module.kernel("count")?, freehold::Grid::line(1, 1), ())?;
    /// assert_eq!(stream.read_variable::<u32>(&module, "counter")?, 42);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn write_variable<T: Plain>(&self, module: &Module, name: &str, value: &T) -> Result<()> {
        let address = self.variable::<T>(module, name)?;
        let _shared = module.inner.context.inner.enter()?;
        let bytes = value.as_bytes();
        self.put_and_wait("write variable", &[], false, |backend, raw| {
            // SAFETY: `value` is borrowed until the wait for the copy is over.
            unsafe { backend.upload(address, bytes.as_ptr(), bytes.len(), raw) }
        })
    }

    fn variable<T: Plain>(&self, module: &Module, name: &str) -> Result<u64> {
        if !Arc::ptr_eq(&module.inner.context.inner.core, &self.home.context.inner.core) {
            return Err(Error::OtherDevice { what: "a variable" });
        }
        let (address, bytes) = module.variable(name)?;
        if bytes != size_of::<T>() {
            let (wanted_bytes, given_bytes) = (bytes, size_of::<T>());
            return Err(Error::VariableSize { name: name.to_owned(), wanted_bytes, given_bytes });
        }
        Ok(address)
    }
}
