//! Modules: images loaded into a context, and their kernels. A module stays loaded while it has kernel handles and
//! until its last launch is complete; nothing waits for that.

use std::ffi::CString;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use freehold_driver::{LoadError, Parameter, handle};

use crate::api::image::Image;
use crate::api::memory::Pod;
use crate::api::stream::Stream;
use crate::base::signature::{Signature, kernels};
use crate::device::context::Context;
use crate::device::deferred::Deferred;
use crate::error::{Error, Result};

/// A handle to a loaded image. Its kernels keep it loaded too.
///
/// ```
/// use freehold::{Grid, Image};
///
/// let device = freehold::open()?;
/// let stream = device.new_stream()?;
/// let module = device.module(&Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
/// // SAFETY: `count` takes no arguments, and touches a variable of its module alone.
/// let count = unsafe { module.kernel("count")? };
/// stream.launch(&count, Grid::line(1, 1), ())?;
/// assert_eq!(stream.read_variable::<u32>(&module, "counter")?, 1);
/// module.close(); // returns at once: pending launches complete
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("image", &self.inner.image)
            .field("context", &self.inner.context)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    raw: handle::Module,
    image: Image,
    /// The signatures of its kernels; empty if the image is not PTX.
    signatures: OnceLock<Vec<Signature>>,
    context: Context,
    /// Held until the driver has unloaded the module.
    loaded: Arc<()>,
}

/// Shows when the driver has unloaded a module and freed the memory of its variables.
///
/// ```
/// # let device = freehold::open()?;
/// let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
/// let unload = module.pending_unload();
/// assert!(!unload.is_complete()?);
/// drop(module);
/// assert!(unload.is_complete()?); // no work was pending
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it only reports when the module is unloaded"]
pub struct PendingUnload {
    context: Context,
    loaded: Weak<()>,
}

impl PendingUnload {
    /// Whether it is unloaded. First unloads what no longer has to wait; does not wait itself.
    ///
    /// # Errors
    /// Those of the driver, and [`Error::ForkedChild`].
    pub fn is_complete(&self) -> Result<bool> {
        if self.loaded.strong_count() > 0 {
            self.context.inner.device.run_deferred()?;
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
/// let stream = device.new_stream()?;
/// let module = device.module(&Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
/// // SAFETY: `scale` multiplies the first `n` elements of `x`; every launch below has an `n` of at most `x.len()`.
/// let scale = unsafe { module.kernel("scale")? };
/// assert_eq!(scale.parameters().len(), 3);
/// let mut x = stream.upload(&[1.0f32, 2.0])?;
/// let error = stream.launch(&scale, Grid::line(1, 2), (&mut x, 2.0f32)).expect_err("one argument is missing");
/// assert_eq!(error.to_string(), "scale(u64, f32, u32) takes 3 arguments; 2 were given");
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Kernel {
    pub(crate) raw: handle::Kernel,
    name: Arc<str>,
    /// The number of its name, for faults.
    pub(crate) number: u32,
    parameters: Arc<[Parameter]>,
    /// `None` if the image has none.
    signature: Option<Signature>,
    module: Module,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.shown()).finish()
    }
}

impl Module {
    pub(crate) fn load(context: Context, image: &Image) -> Result<Self> {
        let inner = &context.inner;
        inner.check()?;
        inner.device.run_deferred()?;
        let (device, asked) = (&inner.device, inner.device.now());
        let backend = &inner.state.backend;
        if !backend.supports(image.kind()) {
            return Err(Error::ImageNotTaken { kind: image.kind() });
        }
        let shared = inner.enter()?;
        // SAFETY: text ends in a NUL, and the caller that made a binary image guaranteed that it is valid.
        let loaded = unsafe { backend.load(image.kind(), image.bytes()) };
        drop(shared);
        match loaded {
            Ok(raw) => {
                if device.timeline.is_on() {
                    device.timeline.of_module("load", raw.as_raw(), asked, device.now());
                }
                let (signatures, loaded) = (OnceLock::new(), Arc::default());
                Ok(Self { inner: Arc::new(Inner { raw, image: image.clone(), signatures, context, loaded }) })
            }
            Err(LoadError::Image { code, log }) => Err(Error::ImageRefused { code, log }),
            Err(LoadError::Call(error)) => Err(device.failed(error)),
            Err(error) => Err(Error::ImageRefused { code: error.code(), log: error.to_string().into() }),
        }
    }

    /// Loads the image again, as a module with its own variables.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
    /// let other = module.duplicate()?; // with its own counter
    /// // SAFETY: `count` touches a variable of its module alone.
    /// stream.launch(&unsafe { other.kernel("count")? }, freehold::Grid::line(1, 1), ())?;
    /// assert_eq!(stream.read_variable::<u32>(&module, "counter")?, 0);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn duplicate(&self) -> Result<Self> {
        Self::load(self.inner.context.clone(), &self.inner.image)
    }

    /// Returns the context that it is loaded in.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Looks up a kernel by name. Launching it is safe; looking it up is not, because nothing checks what its code
    /// does.
    ///
    /// The caller guarantees what every launch of the handle does. So expose a function that takes blocks instead, and
    /// that derives counts from their lengths:
    ///
    /// ```
    /// use freehold::{Block, Grid, Image, Kernel, Module, Result, Stream};
    ///
    /// /// Multiplies blocks by a number.
    /// struct Scale(Kernel);
    ///
    /// impl Scale {
    ///     fn of(module: &Module) -> Result<Self> {
    ///         // SAFETY: `scale` reads and writes the first `n` elements of `x`; the one launch is below, where `n` is its length.
    ///         Ok(Self(unsafe { module.kernel("scale")? }))
    ///     }
    ///
    ///     fn run(&self, stream: &Stream, x: &mut Block<f32>, by: f32) -> Result<()> {
    ///         let n = u32::try_from(x.len()).expect("fewer than 2^32 elements");
    ///         stream.launch(&self.0, Grid::cover(n, 256), (x, by, n))
    ///     }
    /// }
    ///
    /// let device = freehold::open()?;
    /// let stream = device.new_stream()?;
    /// let scale = Scale::of(&device.module(&Image::ptx(include_str!("../../examples/kernels.ptx"))?)?)?;
    /// let mut x = stream.upload(&[1.0f32; 1000])?;
    /// scale.run(&stream, &mut x, 2.0)?;
    /// assert_eq!(stream.download(&x)?, [2.0; 1000]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Safety
    /// Every launch that is made with the handle and its clones, with the arguments and the grid of that launch:
    /// - reads only memory of its arguments and variables of its module;
    /// - writes only those variables and memory that it was given as `&mut` (or with
    ///   [`Block::unordered`](crate::Block::unordered));
    /// - stays within the blocks, views and vectors that it was given, whatever its other arguments count or index;
    /// - follows no address that it finds in a number, in a variable or in memory, unless it was given as
    ///   [`RawAddress`](crate::RawAddress).
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], with the names that the image has.
    pub unsafe fn kernel(&self, name: &str) -> Result<Kernel> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        let (device, backend, failed) = (&context.device, &context.state.backend, |error| context.device.failed(error));
        let c_name = CString::new(name).map_err(|_| Error::NulInName { name: name.to_owned() })?;
        // SAFETY: the module is loaded while this handle exists, and its context is not destroyed while its destroy
        // lock is held shared.
        let Some(raw) = unsafe { backend.kernel(self.inner.raw, &c_name) }.map_err(failed)? else {
            return Err(Error::NoSuchKernel { name: name.to_owned(), known: self.kernels()? });
        };
        // SAFETY: it is a kernel of the module, which is loaded.
        let parameters = unsafe { backend.parameters(raw) }.map_err(failed)?.into();
        let signature = self.signatures().iter().find(|signature| &*signature.name == name).cloned();
        let name: Arc<str> = name.into();
        let number = device.number_kernel(&name);
        Ok(Kernel { raw, number, parameters, signature, name, module: self.clone() })
    }

    fn signatures(&self) -> &[Signature] {
        // Text that only the driver understands has no signatures here: then only sizes are checked.
        let read = || self.inner.image.ptx_text().and_then(|text| kernels(text).ok()).unwrap_or_default();
        self.inner.signatures.get_or_init(read)
    }

    /// Returns the names of all kernels.
    pub fn kernels(&self) -> Result<Vec<String>> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        // SAFETY: the module is loaded while this handle exists, and its context is not destroyed while its destroy
        // lock is held shared.
        unsafe { context.state.backend.kernel_names(self.inner.raw) }.map_err(|error| context.device.failed(error))
    }

    /// Returns the address and the size of a variable.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
    /// let (address, bytes) = module.variable("counter")?;
    /// assert!(address != 0 && bytes == 4);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn variable(&self, name: &str) -> Result<(u64, usize)> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        let c_name = CString::new(name).map_err(|_| Error::NulInName { name: name.to_owned() })?;
        // SAFETY: as above.
        let found = unsafe { context.state.backend.global(self.inner.raw, &c_name) };
        let found = found.map_err(|error| context.device.failed(error))?;
        found.ok_or_else(|| Error::NoSuchVariable { name: name.to_owned() })
    }

    /// Returns a value that shows when the module is unloaded, once it and its kernels are dropped.
    pub fn pending_unload(&self) -> PendingUnload {
        PendingUnload { context: self.inner.context.clone(), loaded: Arc::downgrade(&self.inner.loaded) }
    }

    /// Drops the handle. The module is unloaded when its kernels are dropped and no work of its context is pending: the
    /// driver's unload waits for all of that, so it is not called before.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let inner = &self.context.inner;
        if inner.is_closed() || !inner.device.is_good() {
            return;
        }
        let device = &inner.device;
        let (context_state, loaded) = (inner.state.clone(), self.loaded.clone());
        device.defer(Deferred::Unload { context_state, raw: self.raw, asked: device.now(), _loaded: loaded });
        if let Err(error) = device.run_deferred() {
            device.note_drop_error(error);
        }
    }
}

impl Kernel {
    /// Returns its name in the image.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns its module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Returns its parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns its signature, which is known for PTX but not for binaries.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
    /// // SAFETY: it is never launched.
    /// let scale = unsafe { module.kernel("scale")? };
    /// assert_eq!(scale.signature().map(ToString::to_string).as_deref(), Some("scale(u64, f32, u32)"));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.as_ref()
    }

    /// Returns its name, with its parameters if they are known, for errors.
    pub(crate) fn shown(&self) -> Arc<str> {
        self.signature.as_ref().map_or_else(|| self.name.clone(), |signature| signature.to_string().into())
    }
}

impl Stream {
    /// Reads a variable of a module, in the order of this stream, and waits for the copy. Kernels do not declare which
    /// variables they use, so the program itself must order this against kernels in other streams.
    pub fn read_variable<T: Pod>(&self, module: &Module, name: &str) -> Result<T> {
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

    /// Writes a variable of a module, in the order of this stream. Waits for the copy, and for the work before it.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// # let module = device.module(&freehold::Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
    /// stream.write_variable(&module, "counter", &41u32)?;
    /// // SAFETY: `count` touches a variable of its module alone.
    /// stream.launch(&unsafe { module.kernel("count")? }, freehold::Grid::line(1, 1), ())?;
    /// assert_eq!(stream.read_variable::<u32>(&module, "counter")?, 42);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn write_variable<T: Pod>(&self, module: &Module, name: &str, value: &T) -> Result<()> {
        let address = self.variable::<T>(module, name)?;
        let _shared = module.inner.context.inner.enter()?;
        let bytes = value.as_bytes();
        self.put_and_wait("write variable", &[], false, |backend, raw| {
            // SAFETY: `value` is borrowed until the wait for the copy is over.
            unsafe { backend.upload(address, bytes.as_ptr(), bytes.len(), raw) }
        })
    }

    fn variable<T: Pod>(&self, module: &Module, name: &str) -> Result<u64> {
        if !Arc::ptr_eq(&module.inner.context.inner.device, &self.inner.context.inner.device) {
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
