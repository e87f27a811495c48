//! Memory of the broker: publishing arrays under a name, and leases of them.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_broker::tensors::{Dtype, Manifest, ManifestError, SafetensorsFile, Tensor, TensorError};
use freehold_broker::wire::{Request, RequestError};
use freehold_broker::{Access, Broker, Error, LinkError, Name, Policy, socket_path};
use pyo3::exceptions::{PyConnectionError, PyLookupError, PyPermissionError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;

use crate::array::{Array, Layout, Shape};
use crate::block::{in_use, size};
use crate::dtype::DType;
use crate::error::{Error as LibraryError, OutOfMemoryError};
use crate::memory::{Memory, Release, order_after};
use crate::stream::Stream;

type DeviceStream = freehold::Stream;
type DeviceLease = freehold_broker::Lease<u8>;

/// Returns the exception for an error of the broker.
fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Name(_) => PyValueError::new_err(text),
        Error::TimedOut { .. } | Error::Link(LinkError::TimedOut) => PyTimeoutError::new_err(text),
        Error::Link(LinkError::NoBroker { .. } | LinkError::Closed) => PyConnectionError::new_err(text),
        Error::Link(LinkError::NotAllowed { .. }) => PyPermissionError::new_err(text),
        Error::Link(LinkError::PathTooLong(_)) => PyValueError::new_err(text),
        Error::Link(LinkError::Request { error, .. }) => match error {
            RequestError::NoName => PyLookupError::new_err(text),
            RequestError::ForeignName => PyPermissionError::new_err(text),
            RequestError::NameTaken | RequestError::InvalidName(_) | RequestError::WrongMemoryKind { .. } => {
                PyValueError::new_err(text)
            }
            RequestError::OutOfMemory { .. } | RequestError::UserQuota { .. } | RequestError::TenantQuota { .. } => {
                OutOfMemoryError::new_err(text)
            }
            _ => LibraryError::new_err(text),
        },
        _ => LibraryError::new_err(text),
    }
}

/// Returns the exception for an error with a set of tensors.
fn raised_by_set(error: TensorError) -> PyErr {
    match error {
        TensorError::Broker(error) => raised(error),
        TensorError::Io(error) => error.into(),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// The list of arrays is read in one piece if it is not longer.
const HEAD_BYTES: usize = 1 << 14;

/// Name, type, shape and strides of an array, and its offset in bytes.
type Entry = (String, String, Vec<i64>, Vec<i64>, u64);

/// Returns the list of arrays that lie as the caller says.
fn listed(policy: Policy, entries: Vec<Entry>) -> PyResult<Manifest> {
    let wrong = |text: String| PyValueError::new_err(text);
    let tensors = entries.into_iter().map(|(name, dtype, shape, strides, offset)| {
        let Some(dtype) = Dtype::named(&dtype) else {
            return Err(wrong(format!("array {name:?} has the unknown type {dtype:?}")));
        };
        let positive = |numbers: Vec<i64>| numbers.into_iter().map(u64::try_from).collect::<Result<Vec<_>, _>>();
        let (Ok(shape), Ok(strides)) = (positive(shape), positive(strides)) else {
            return Err(wrong(format!("array {name:?} has a negative stride: copy it first")));
        };
        Tensor::strided(&name, dtype, &shape, &strides, offset).map_err(|error| wrong(error.to_string()))
    });
    let tensors = tensors.collect::<PyResult<Vec<_>>>()?;
    Manifest::new(policy, tensors).map_err(|error| wrong(error.to_string()))
}

fn policy_named(policy: &str) -> PyResult<Policy> {
    Policy::named(policy).ok_or_else(|| {
        let text = format!("{policy:?} is not a policy: expected \"restore\", \"drop\" or \"open\"");
        PyValueError::new_err(text)
    })
}

fn failed(error: freehold::Error) -> PyErr {
    LibraryError::new_err(error.to_string())
}

fn raw(stream: &DeviceStream) -> Stream {
    Stream(freehold_driver::cuda::CUstream::from(stream.raw()).0)
}

/// A connection of this process to a broker.
#[pyclass(module = "freehold", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    broker: Broker,
    /// In which headers are read, while copies of publishers wait in streams of their own.
    headers: DeviceStream,
    device: i32,
    socket: PathBuf,
}

impl Connection {
    /// Connects with the device of that number, or with the one whose memory the broker leases.
    fn open(socket: PathBuf, wanted: Option<i32>) -> PyResult<Self> {
        let mut number = wanted.unwrap_or(0);
        loop {
            let device = freehold::open::device(Some(&format!("cuda:{number}")));
            match Broker::connect_at(&device.map_err(failed)?, &socket) {
                Ok(broker) => {
                    let headers = broker.device().new_stream().map_err(failed)?;
                    return Ok(Self { inner: Arc::new(Inner { broker, headers, device: number, socket }) });
                }
                Err(error @ Error::OtherDevice { .. }) if wanted.is_none() => {
                    number += 1;
                    if freehold::open::device(Some(&format!("cuda:{number}"))).is_err() {
                        return Err(raised(error));
                    }
                }
                Err(error) => return Err(raised(error)),
            }
        }
    }
}

#[pymethods]
impl Connection {
    /// Connects to the broker at a socket: this user's, unless another is given.
    #[new]
    #[pyo3(signature = (socket = None, device = None))]
    fn new(py: Python<'_>, socket: Option<PathBuf>, device: Option<i32>) -> PyResult<Self> {
        let socket = socket.unwrap_or_else(socket_path::resolve);
        py.detach(|| Self::open(socket, device))
    }

    /// The path of the broker's socket.
    #[getter]
    fn socket(&self) -> PathBuf {
        self.inner.socket.clone()
    }

    /// The number of the device whose memory the broker leases.
    #[getter]
    fn device(&self) -> i32 {
        self.inner.device
    }

    /// Copies arrays to new memory of the broker, after their list, and publishes that under a name: as a new name, or as its next
    /// generation. Each array has an offset from the first one. Waits for nothing but the copy of the list, and for all copies of an
    /// update. Returns the generation.
    fn publish(
        &self,
        py: Python<'_>,
        name: &str,
        entries: Vec<Entry>,
        arrays: Vec<(Py<Array>, usize)>,
        policy: &str,
        is_update: bool,
    ) -> PyResult<u64> {
        let policy = policy_named(policy)?;
        let manifest = listed(policy, entries)?;
        let (header, start) = (manifest.header(), manifest.data_start() as usize);
        let nbytes = manifest.memory_bytes() as usize;
        let Inner { broker, device, .. } = &*self.inner;
        // Checked first, so that a mistake costs no copy.
        Name::parse(name).map_err(|error| raised(error.into()))?;
        let (mut lease, stream) = py.detach(|| {
            // Its own: copies that wait for an array delay no other publication.
            let stream = broker.device().new_stream().map_err(failed)?;
            let mut lease = match is_update {
                true => broker.lease_next::<u8>(&stream, name, nbytes).map_err(raised)?,
                false => broker.reserve::<u8>(&stream, nbytes).map_err(raised)?,
            };
            if lease.version() != 0 {
                return Err(raised_by_set(TensorError::InPlace { name: name.to_owned() }));
            }
            let mut start = lease.view_mut(..header.len()).map_err(failed)?;
            stream.write(&mut start, &header).map_err(failed)?;
            // The header is read without regard to the copies.
            stream.synchronize().map_err(failed)?;
            Ok::<_, PyErr>((lease, stream))
        })?;
        for (array, offset) in &arrays {
            let array = array.get();
            let (bytes, offset) = (array.layout.span(), start.saturating_add(*offset));
            if array.memory.device() != *device {
                let text =
                    format!("the array is on device {}, the broker's memory on device {device}", array.memory.device());
                return Err(PyValueError::new_err(text));
            }
            if offset.checked_add(bytes).is_none_or(|end| end > nbytes) {
                return Err(PyValueError::new_err("an array does not fit in the published memory"));
            }
            array.memory.lend(raw(&stream))?;
            let (target, source) = (lease.address() + offset as u64, array.address as u64);
            // SAFETY: both have that many bytes: an array's layout was checked, or is its library's. The copy follows the work of the
            // array's stream, and both are kept until it is done.
            let copied = unsafe { broker.device().backend().copy(target, source, bytes, stream.raw()) };
            copied.map_err(|error| LibraryError::new_err(error.to_string()))?;
            lease.note_use(&stream).map_err(failed)?;
        }
        py.detach(|| {
            if is_update {
                // A reader of the new generation keeps it even if this process ends.
                stream.synchronize().map_err(failed)?;
            }
            broker.publish_version(name, &mut lease, policy).map_err(raised)
        })
    }

    /// Publishes the tensors of a safetensors file. Returns the generation.
    fn put(&self, py: Python<'_>, path: PathBuf, name: &str, is_replaced: bool, is_update: bool) -> PyResult<u64> {
        py.detach(|| {
            let broker = &self.inner.broker;
            let file = File::open(&path)?;
            let read = SafetensorsFile::read(&file, file.metadata()?.len(), Policy::Restore);
            let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(format!("{}: {error}", path.display()));
            let SafetensorsFile { manifest, starts } = read.map_err(|error| wrong(&error))?;
            let stream = broker.device().new_stream().map_err(failed)?;
            let writer = match is_update {
                true => broker.update_tensors(&stream, name, manifest),
                false => broker.create_tensors(&stream, name, manifest),
            };
            let mut writer = writer.map_err(raised_by_set)?;
            writer.fill(&stream, &file, &starts, |_| ()).map_err(raised_by_set)?;
            // As late as possible: in between, the name does not exist.
            if is_replaced {
                match broker.drop_name(name) {
                    Ok(()) | Err(Error::Link(LinkError::Request { error: RequestError::NoName, .. })) => {}
                    Err(error) => return Err(raised(error)),
                }
            }
            writer.publish(&stream).map_err(raised_by_set)
        })
    }

    /// Leases the memory that is published under a name.
    fn lease(&self, py: Python<'_>, name: &str, access: &str) -> PyResult<Lease> {
        let access = match access {
            "read" => Access::Read,
            "write" => Access::Write,
            _ => {
                let text = format!("{access:?} is not an access: expected \"read\" or \"write\"");
                return Err(PyValueError::new_err(text));
            }
        };
        let inner = &self.inner;
        let (lease, stream) = py.detach(|| {
            // Its own: a lease whose publisher is not done makes users of other leases wait otherwise.
            let stream = inner.broker.device().new_stream().map_err(failed)?;
            let lease = inner.broker.lease_generation::<u8>(&stream, name, access).map_err(raised_by_set)?;
            Ok::<_, PyErr>((lease, stream))
        })?;
        let memory = LeaseMemory {
            connection: inner.clone(),
            device: inner.device,
            stream: raw(&stream),
            address: lease.address() as usize,
            bytes: lease.len(),
            is_read_only: access == Access::Read,
            name: name.to_owned(),
            generation: lease.version(),
            is_lent: AtomicBool::new(false),
            held: Mutex::new(Some((lease, stream))),
        };
        Ok(Lease { memory: Arc::new(memory) })
    }

    /// Removes a name. Its memory is freed when the last lease ends.
    fn drop(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.inner.broker.drop_name(name)).map_err(raised)
    }

    /// Returns the lines of the broker's list of names.
    fn lines(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| {
            let mut lines: Vec<String> = Vec::new();
            loop {
                let last = lines.last().and_then(|line| line.split('\t').next());
                let after = last.and_then(|name| Name::parse(name).ok());
                // SAFETY: the request changes nothing.
                let mut link = unsafe { self.inner.broker.link() }.map_err(raised)?;
                let answer = link.call(Request::List { after }).map_err(|error| raised(error.into()))?;
                let before = lines.len();
                lines.extend(answer.text.lines().map(str::to_owned));
                if lines.len() == before {
                    return Ok(lines);
                }
            }
        })
    }

    /// Returns how many bytes are leased, named and being reclaimed, and how many processes, names and leases there are.
    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u32, u32, u32)> {
        let stats = py.detach(|| self.inner.broker.stats()).map_err(raised)?;
        let bytes = (stats.leased_bytes, stats.named_bytes, stats.reclaiming_bytes);
        Ok((bytes.0, bytes.1, bytes.2, stats.tenants, stats.names, stats.leases))
    }

    /// Waits for all work of the device: what was published is then complete.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.broker.device().synchronize()).map_err(failed)
    }
}

/// Memory that this process leases.
#[pyclass(module = "freehold", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Lease {
    memory: Arc<LeaseMemory>,
}

#[derive(Debug)]
struct LeaseMemory {
    connection: Arc<Inner>,
    device: i32,
    /// The handle of its stream, which waits for the publisher's work.
    stream: Stream,
    address: usize,
    bytes: usize,
    is_read_only: bool,
    name: String,
    generation: u64,
    /// Whether work of other streams uses it.
    is_lent: AtomicBool,
    /// None after the end.
    held: Mutex<Option<(DeviceLease, DeviceStream)>>,
}

impl LeaseMemory {
    fn held(&self) -> MutexGuard<'_, Option<(DeviceLease, DeviceStream)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lease to the broker, after all work with it.
    fn end(&self) {
        let Some((lease, stream)) = self.held().take() else { return };
        if !self.is_lent.load(Ordering::Relaxed) {
            return;
        }
        let release = move || {
            // A lease that cannot be returned ends with the process.
            if lease.note_use(&stream).is_ok() {
                drop((lease, stream));
            }
        };
        Release { device: self.device, stream: self.stream, release: Box::new(release) }.run();
    }
}

impl Memory for LeaseMemory {
    fn device(&self) -> i32 {
        self.device
    }

    fn stream(&self) -> Option<Stream> {
        Some(self.stream)
    }

    fn lend(&self, consumer: Stream) -> PyResult<()> {
        order_after(self.device, consumer, self.stream)?;
        self.lend_to_any();
        Ok(())
    }

    fn lend_to_any(&self) {
        self.is_lent.store(true, Ordering::Relaxed);
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn name(&self) -> String {
        format!("lease {:?}", self.name)
    }
}

impl Drop for LeaseMemory {
    fn drop(&mut self) {
        self.end();
    }
}

impl Lease {
    fn check(&self) -> PyResult<()> {
        if self.memory.held().is_some() { Ok(()) } else { Err(PyValueError::new_err("the lease was closed")) }
    }

    /// Copies the first bytes to the host.
    fn head(&self, py: Python<'_>, nbytes: usize) -> PyResult<Vec<u8>> {
        py.detach(|| {
            let held = self.memory.held();
            let (lease, _) = held.as_ref().ok_or_else(|| PyValueError::new_err("the lease was closed"))?;
            let Inner { broker, headers, .. } = &*self.memory.connection;
            let mut bytes = vec![0; nbytes.min(lease.len())];
            // Not through the library, whose copy would follow all work of the publisher.
            // SAFETY: the lease has that many bytes and is held until the copy is done. What is read was complete when the name was
            // published, or is whatever another publisher has there.
            let copied = unsafe {
                broker.device().backend().download(bytes.as_mut_ptr(), lease.address(), bytes.len(), headers.raw())
            };
            // Before an error of the copy is reported: the memory that it fills is freed then.
            headers.synchronize().map_err(failed)?;
            copied.map_err(|error| LibraryError::new_err(error.to_string()))?;
            Ok(bytes)
        })
    }
}

#[pymethods]
impl Lease {
    /// The address on the device.
    #[getter]
    fn ptr(&self) -> usize {
        self.memory.address
    }

    /// The size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.bytes
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.memory.held().is_none()
    }

    /// The version of the name, or 0.
    #[getter]
    fn generation(&self) -> u64 {
        self.memory.generation
    }

    /// Returns the policy of the arrays in the memory, and their list, with offsets from its beginning. Does not wait for unfinished
    /// work of the publisher.
    fn manifest(&self, py: Python<'_>) -> PyResult<(&'static str, Vec<Entry>)> {
        let wrong = |error: ManifestError| match error {
            ManifestError::NotASet => {
                let text = format!(
                    "{} was published without a list of arrays: take its bytes with lease_bytes",
                    self.memory.name
                );
                PyValueError::new_err(text)
            }
            error => PyValueError::new_err(format!("{}: {error}", self.memory.name)),
        };
        let memory_bytes = self.memory.bytes as u64;
        let mut head = self.head(py, HEAD_BYTES)?;
        let needed = Manifest::header_bytes(&head, memory_bytes).map_err(wrong)? as usize;
        if needed > head.len() {
            head = self.head(py, needed)?;
        }
        let manifest = Manifest::parse(&head, memory_bytes).map_err(wrong)?;
        let entries = manifest.tensors().iter().map(|tensor| {
            // They are checked: no element is further away than the memory is long.
            let numbers = |numbers: &[u64]| numbers.iter().map(|&number| number as i64).collect();
            let (shape, strides) = (numbers(&tensor.shape), numbers(&tensor.strides));
            let offset = manifest.data_start() + tensor.offset;
            (tensor.name.clone(), tensor.dtype.name().to_owned(), shape, strides, offset)
        });
        Ok((manifest.policy().name(), entries.collect()))
    }

    /// Returns an array of the memory from byte `offset` on. Strides are in elements.
    #[pyo3(signature = (dtype, shape = None, *, strides = None, offset = 0))]
    fn view(&self, dtype: DType, shape: Option<Shape>, strides: Option<Vec<i64>>, offset: usize) -> PyResult<Array> {
        self.check()?;
        let (memory, place) = (self.memory.clone(), (self.memory.address, self.memory.bytes));
        match (shape, strides) {
            (Some(shape), Some(strides)) => {
                let layout = Layout::strided(dtype, shape.lengths(), strides)?;
                Array::within(memory, place, offset, layout)
            }
            (shape, _) => Array::view_of(memory, place, dtype, shape, offset),
        }
    }

    /// Ends the lease, after the work submitted so far; does not wait. Raises BufferError while arrays use it.
    fn close(&self) -> PyResult<()> {
        match Arc::strong_count(&self.memory) - 1 {
            0 => {
                self.memory.end();
                Ok(())
            }
            count => Err(in_use("lease", count)),
        }
    }

    fn __repr__(&self) -> String {
        let LeaseMemory { name, bytes, address, .. } = &*self.memory;
        format!("<lease {name:?} of {} at {address:#x}>", size(*bytes))
    }
}
