//! A device without any optional feature: the errors of the library, and what works without the features.

use crate::own;
use crate::shared;

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use freehold::{Arena, Device, Error};
use freehold_driver::handle::{Event, Kernel, Module, Stream};
use freehold_driver::{
    Arguments, Backend, CallError, Contexts, DeviceMemory, ForeignStreams, HostRegistration, ImageKind, Kernels,
    LaunchConfig, LaunchLimits, LoadError, MemoryInfo, Parameter, Pattern, PeerCopies, PitchedPtr, Sharing,
    StreamMemOps, Timing, VirtualMemory, cuda,
};
use own::{N, grid, image, opened};

type Result<T> = std::result::Result<T, CallError>;

/// What kernels are given begins there.
const ALIGNMENT_BYTES: u64 = 4096;

/// A context without abilities, which takes images or does not, and tells no parameter's size.
#[derive(Debug)]
struct Bare {
    of: cuda::Context,
    takes_images: bool,
}

fn device(takes_images: bool) -> Device {
    let opened = opened();
    let of = cuda::Context::primary(opened.api, opened.device).unwrap();
    // SAFETY: it hands calls on to a context that does what the trait says.
    unsafe { Device::on(Arc::new(Bare { of, takes_images })) }.unwrap()
}

/// Hands calls on as they come.
macro_rules! handed_on {
    ($($(#[$kind:ident])? fn $name:ident($($argument:ident: $of:ty),*) -> $answer:ty;)*) => {
        $(handed_on!(@ $($kind)? fn $name($($argument: $of),*) -> $answer);)*
    };
    (@ fn $name:ident($($argument:ident: $of:ty),*) -> $answer:ty) => {
        fn $name(&self, $($argument: $of),*) -> $answer {
            self.of.$name($($argument),*)
        }
    };
    (@ trusted fn $name:ident($($argument:ident: $of:ty),*) -> $answer:ty) => {
        unsafe fn $name(&self, $($argument: $of),*) -> $answer {
            // SAFETY: the caller guarantees that the arguments of the call are valid.
            unsafe { self.of.$name($($argument),*) }
        }
    };
}

impl Backend for Bare {
    handed_on! {
        fn name() -> Result<String>;
        fn uuid() -> Result<[u8; 16]>;
        fn memory_info() -> Result<MemoryInfo>;
        fn synchronize() -> Result<()>;
        #[trusted] fn close() -> Result<()>;
        fn is_host_visible(address: u64) -> Result<bool>;
        fn alloc_host(bytes: usize) -> Result<NonNull<u8>>;
        #[trusted] fn free_host(start: NonNull<u8>) -> Result<()>;
        fn create_stream() -> Result<Stream>;
        #[trusted] fn destroy_stream(stream: Stream) -> Result<()>;
        #[trusted] fn is_idle(stream: Stream) -> Result<bool>;
        #[trusted] fn wait_until_idle(stream: Stream) -> Result<()>;
        fn create_event() -> Result<Event>;
        #[trusted] fn destroy_event(event: Event) -> Result<()>;
        #[trusted] fn record(event: Event, stream: Stream) -> Result<()>;
        #[trusted] fn is_complete(event: Event) -> Result<bool>;
        #[trusted] fn wait(event: Event) -> Result<()>;
        #[trusted] fn stream_wait_event(stream: Stream, event: Event) -> Result<()>;
        #[trusted] fn upload(to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()>;
        #[trusted] fn download(to: *mut u8, from: u64, bytes: usize, stream: Stream) -> Result<()>;
        #[trusted] fn copy(to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()>;
        #[trusted] fn copy_2d(to: PitchedPtr, from: PitchedPtr, row_bytes: usize, rows: usize, stream: Stream) -> Result<()>;
        #[trusted] fn fill(to: u64, pattern: Pattern, bytes: usize, stream: Stream) -> Result<()>;
    }

    fn alignment_bytes(&self) -> u64 {
        ALIGNMENT_BYTES
    }

    fn stream_mem_ops(&self) -> Option<&dyn StreamMemOps> {
        None
    }

    fn host_registration(&self) -> Option<&dyn HostRegistration> {
        None
    }

    fn contexts(&self) -> Option<&dyn Contexts> {
        None
    }

    fn timing(&self) -> Option<&dyn Timing> {
        None
    }

    fn foreign_streams(&self) -> Option<&dyn ForeignStreams> {
        None
    }

    fn peer_copies(&self) -> Option<&dyn PeerCopies> {
        None
    }
}

impl DeviceMemory for Bare {
    handed_on! {
        fn total_bytes() -> Result<u64>;
        fn alloc(bytes: u64) -> Result<u64>;
        #[trusted] fn free(address: u64) -> Result<()>;
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }
}

impl Kernels for Bare {
    fn supports(&self, kind: ImageKind) -> bool {
        self.takes_images && self.of.supports(kind)
    }

    unsafe fn load(&self, kind: ImageKind, image: &[u8]) -> std::result::Result<Module, LoadError> {
        assert!(self.takes_images, "what is not taken is not loaded");
        // SAFETY: the caller guarantees that the image is valid.
        unsafe { self.of.load(kind, image) }
    }

    unsafe fn parameters(&self, kernel: Kernel) -> Result<Vec<Parameter>> {
        // SAFETY: as the caller says.
        Ok(unsafe { self.of.parameters(kernel) }?.into_iter().map(|_| Parameter { bytes: None }).collect())
    }

    handed_on! {
        #[trusted] fn unload(module: Module) -> Result<()>;
        #[trusted] fn kernel(module: Module, name: &CStr) -> Result<Option<Kernel>>;
        #[trusted] fn kernel_names(module: Module) -> Result<Vec<String>>;
        #[trusted] fn global(module: Module, name: &CStr) -> Result<Option<(u64, usize)>>;
        #[trusted] fn limits(kernel: Kernel) -> Result<LaunchLimits>;
        #[trusted] fn launch(kernel: Kernel, shape: LaunchConfig, stream: Stream, arguments: Arguments<'_>) -> Result<()>;
    }
}

#[test]
fn what_a_device_lacks_is_said_in_one_sentence() {
    shared::move_in();
    let device = device(true);
    let stream = device.new_stream().unwrap();
    let memory = shared::words(1);
    let said = [
        device.new_context().map(drop),
        stream.alloc_shareable::<u32>(N).map(drop),
        device.host_memory(memory.as_fd(), 8).map(drop),
        device.shared_semaphores(memory.as_fd(), 1).map(drop),
    ];
    let sentences = [
        "the device supports one context: use its primary context",
        "the device cannot share memory with other processes: copy through the host instead",
        "the device cannot access host memory in place: copy it to a block instead",
        "the device has no shared semaphores: its streams cannot write or wait for values in memory",
    ];
    assert_eq!(said.map(|outcome| outcome.unwrap_err().to_string()), sentences);
}

#[test]
fn a_device_without_copies_between_devices_refuses_blocks_of_others() {
    let (bare, other) = (device(true), freehold::open::device(None).unwrap());
    let (here, there) = (bare.new_stream().unwrap(), other.new_stream().unwrap());
    let (mut x, mut y) = (here.zeros::<u32>(N).unwrap(), there.upload(&[1_u32; N]).unwrap());
    for refused in [here.copy(&y, &mut x).unwrap_err(), there.copy(&x, &mut y).unwrap_err()] {
        assert!(matches!(refused, Error::OtherDevice { what: "a block" }), "{refused}");
    }
    assert_eq!(there.download(&y).unwrap(), [1; N]);
}

#[test]
fn pieces_of_an_arena_begin_where_the_device_lets_them() {
    let device = device(true);
    let stream = device.new_stream().unwrap();
    let mut arena = Arena::new(&stream, 1 << 20).unwrap();
    arena.scope(|scope| {
        let starts = [1, 300, 513].map(|bytes| scope.alloc::<u8>(bytes).unwrap().address());
        let first = starts[0];
        assert_eq!(starts.map(|start| start - first), [0, ALIGNMENT_BYTES, 2 * ALIGNMENT_BYTES]);
    });
}

#[test]
fn an_image_that_is_not_taken_is_not_loaded() {
    let refused = device(false).module(&image()).unwrap_err();
    assert_eq!(refused.to_string(), "the device cannot load PTX: load an image made for this device");
}

#[test]
fn of_parameters_without_sizes_only_the_number_is_checked() {
    let device = device(true);
    let (stream, module) = (device.new_stream().unwrap(), device.module(&image()).unwrap());
    let (add, mut block) = (own::kernel(&module, "add").unwrap(), stream.zeros::<u32>(N).unwrap());
    let refused = stream.launch(&add, grid(), (&mut block, 1_u32)).unwrap_err();
    assert!(matches!(refused, Error::ArgumentCount { wanted: 3, given: 2, .. }), "{refused}");
    stream.launch(&add, grid(), (&mut block, 7_u32, N as u32)).unwrap();
    assert_eq!(stream.download(&block).unwrap(), [7; N]);
}

#[test]
fn a_recording_has_blocks_and_no_work_where_events_have_no_times() {
    let device = device(true);
    let stream = device.new_stream().unwrap();
    let file = std::env::temp_dir().join(format!("freehold-lacking-{}.json", std::process::id()));
    let recording = device.record(Some(&file)).unwrap();
    drop(stream.upload(&[1_u32; N]).unwrap());
    recording.finish().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(text.contains("reuse 4000 bytes") && text.contains("release 4000 bytes"), "{text}");
    assert!(!text.contains("upload"), "{text}");
    assert!(device.drop_errors().is_empty());
}
