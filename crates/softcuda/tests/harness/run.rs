//! Loads and launches one kernel, and reads its output back.

use std::ffi::{CString, c_void};

use freehold_driver::BlockBounds;
use freehold_driver::cuda::extension::{self, BlockAnnotation};
use freehold_driver::cuda::{
    Api, CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUstream, DriverError, context, copy, launch, memory, module,
};

use super::Kernel;
use super::describe::{Argument, Description, Launch};
use super::record::{Output, Record};

/// Size of the margins before and after every buffer, which no kernel may change.
const MARGIN_BYTES: usize = 256;
const MARGIN: u8 = 0xa5;

/// Runs a kernel in the current context. What it printed is not in the record.
pub(crate) fn run(api: &Api, kernel: &Kernel) -> Result<Record, String> {
    let description = Description::parse(kernel.source)?;
    let mut arguments = Vec::new();
    for argument in &description.arguments {
        arguments.push(match argument {
            Argument::Buffer { element, count, content, .. } => {
                buffer(api, &content.bytes(*element, *count)).map_err(told)?
            }
            Argument::Value(bytes) => aligned(bytes),
        });
    }
    let _described = describe(api, &description, &arguments)?;
    let module = load(api, kernel.ptx)?;
    for launch in &description.launches {
        let name = CString::new(kernel.entry(&launch.function)?).map_err(|_| "the function's name has a NUL in it")?;
        let function = module::function(api, module, &name).map_err(told)?;
        start(api, function, launch, &mut arguments).map_err(told)?;
    }
    context::synchronize(api).map_err(told)?;
    let mut record = Record::default();
    for (index, argument) in description.arguments.iter().enumerate() {
        let Argument::Buffer { element, count, output, .. } = argument else { continue };
        let bytes = read(api, CUdeviceptr(arguments[index][0]), count * element.bytes())
            .map_err(|error| format!("argument {index}: {error}"))?;
        if output.is_some() {
            let bits = bytes.chunks(element.bytes()).map(|bytes| element.read(bytes)).collect();
            record.outputs.push(Output { argument: index, element: *element, bits });
        }
    }
    module::unload(api, module).map_err(told)?;
    Ok(record)
}

/// Registers the buffers with a driver that has the extension, so that a kernel that leaves one, or is wrongly reported
/// to, is noticed.
fn describe(api: &Api, description: &Description, arguments: &[Vec<u64>]) -> Result<Option<BlockAnnotation>, String> {
    let Some(extension) = extension::find(api) else { return Ok(None) };
    let buffers = description.arguments.iter().zip(arguments).filter_map(|(argument, words)| match argument {
        Argument::Buffer { element, count, .. } => Some((words[0], (count * element.bytes()) as u64)),
        Argument::Value(_) => None,
    });
    let buffers: Vec<_> = buffers.collect();
    let block = move |address: u64| {
        let holds = |&&(base, bytes): &&(u64, u64)| address.wrapping_sub(base) < bytes + MARGIN_BYTES as u64;
        buffers.iter().find(holds).map(|&(base, bytes)| BlockBounds { base, bytes, is_live: true })
    };
    let described = extension.annotate_blocks(0, 1 << 47, Box::new(block));
    described.map(Some).map_err(|code| code.to_string())
}

/// Loads PTX. An error contains the driver's log.
fn load(api: &Api, ptx: &str) -> Result<CUmodule, String> {
    let image = CString::new(ptx).map_err(|_| "the PTX has a NUL in it")?;
    let mut log = vec![0_u8; 4096];
    let mut options = module::Options::new()
        .with(CUjit_option::ERROR_LOG_BUFFER, log.as_mut_ptr() as usize)
        .with(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES, log.len());
    // SAFETY: the image is a text that ends in a NUL; the log has the bytes that its option says.
    let loaded = unsafe { module::load_with(api, image.as_ptr().cast(), &mut options) };
    loaded.map_err(|error| {
        let text: Vec<u8> = log.iter().copied().take_while(|byte| *byte != 0).collect();
        format!("{error}: {}", String::from_utf8_lossy(&text))
    })
}

fn told(error: DriverError) -> String {
    error.to_string()
}

/// Returns a value as words, so that it is aligned for every type.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.collect()
}

/// Creates a buffer with this content between its margins, and returns its address as an argument.
fn buffer(api: &Api, bytes: &[u8]) -> Result<Vec<u64>, DriverError> {
    let mut whole = vec![MARGIN; bytes.len() + 2 * MARGIN_BYTES];
    whole[MARGIN_BYTES..MARGIN_BYTES + bytes.len()].copy_from_slice(bytes);
    let start = memory::alloc(api, whole.len())?;
    copy::host_to_device(api, start, &whole)?;
    Ok(vec![start.0 + MARGIN_BYTES as u64])
}

/// Reads a buffer and frees it. Fails if its margins have changed.
fn read(api: &Api, start: CUdeviceptr, bytes: usize) -> Result<Vec<u8>, String> {
    let whole = CUdeviceptr(start.0 - MARGIN_BYTES as u64);
    let mut host = vec![0; bytes + 2 * MARGIN_BYTES];
    copy::device_to_host(api, &mut host, whole).map_err(told)?;
    memory::free(api, whole).map_err(told)?;
    let inner = MARGIN_BYTES..MARGIN_BYTES + bytes;
    let outside = host.iter().enumerate().find(|(at, byte)| !inner.contains(at) && **byte != MARGIN);
    if let Some((at, _)) = outside {
        return Err(format!("byte {} of {bytes} was written", at as i64 - MARGIN_BYTES as i64));
    }
    Ok(host[inner].to_vec())
}

fn start(api: &Api, function: CUfunction, launch: &Launch, arguments: &mut [Vec<u64>]) -> Result<(), DriverError> {
    let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
    let shape = launch.shape;
    if launch.is_cooperative {
        // SAFETY: the description has an argument for each parameter, of its type and aligned for it; the buffers are
        // memory of the device that nobody else uses.
        return unsafe { launch::cooperative(api, function, shape, CUstream::LEGACY, &mut pointers) };
    }
    // SAFETY: as above.
    unsafe { launch::kernel(api, function, shape, CUstream::LEGACY, &mut pointers) }
}
