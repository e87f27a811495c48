//! Programs as modules, and kernels whose arguments are set and launched in one turn.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::super::kernel::{self, Place};
use super::super::{handle, memory, program};
use super::{Context, Result, call, locked};
use crate::backend::{Arguments, ImageKind, Kernels, Parameter, Passed, Shape};
use crate::error::LoadError;
use crate::handle::{Kernel, Module, Stream};

/// Built so that what kernels take is known.
const OPTIONS: &CStr = c"-cl-kernel-arg-info";

/// What was loaded.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    last: AtomicU64,
    modules: Mutex<HashMap<u64, Unit>>,
    kernels: RwLock<HashMap<u64, Arc<Entry>>>,
}

/// A module.
#[derive(Debug)]
struct Unit {
    program: handle::Program,
    /// The kernels of it that were asked for.
    kernels: Vec<Kernel>,
}

/// A kernel.
#[derive(Debug)]
struct Entry {
    /// Held while arguments are set and the launch is put in: there is one set of arguments.
    turn: Mutex<handle::Kernel>,
    taken: Vec<Taken>,
}

/// What a kernel takes at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// An address of memory.
    Address,
    /// Memory of the group, which is no argument of a launch: its shape says how much.
    Local,
    /// A value of so many bytes, where they are known.
    Value(Option<usize>),
    /// The driver does not tell.
    Unknown,
}

impl Loaded {
    pub(super) fn close(&self) -> Result<()> {
        let modules: Vec<_> = locked(&self.modules).drain().collect();
        modules.into_iter().try_for_each(|(_, unit)| self.unload(unit))
    }

    fn unload(&self, unit: Unit) -> Result<()> {
        let gone: Vec<_> = {
            let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
            unit.kernels.iter().filter_map(|kernel| kernels.remove(&kernel.0)).collect()
        };
        // OpenCL keeps what is pending: launches of these go on.
        gone.iter().try_for_each(|entry| kernel::release(*locked(&entry.turn)))?;
        program::release(unit.program)
    }

    fn entry(&self, kernel: Kernel) -> Result<Arc<Entry>> {
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        kernels.get(&kernel.0).cloned().ok_or_else(|| call::wrong_kernel("clEnqueueNDRangeKernel"))
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn program(&self, module: Module) -> Result<handle::Program> {
        let modules = locked(&self.modules);
        modules.get(&module.0).map(|unit| unit.program).ok_or_else(|| call::wrong_program("clGetProgramInfo"))
    }
}

impl Kernels for Context {
    fn takes(&self, kind: ImageKind) -> bool {
        match kind {
            ImageKind::OpenCl => true,
            ImageKind::SpirV => self.found.facts.takes_spirv,
            ImageKind::Ptx | ImageKind::Binary => false,
        }
    }

    unsafe fn load(&self, kind: ImageKind, image: &[u8]) -> std::result::Result<Module, LoadError> {
        let made = match kind {
            ImageKind::SpirV => program::from_spirv(self.raw, image),
            _ => program::from_source(self.raw, &String::from_utf8_lossy(image.strip_suffix(b"\0").unwrap_or(image))),
        };
        let program = made.map_err(|error| of_image(error, String::new()))?;
        if let Err(error) = program::build(program, self.found.device, OPTIONS) {
            let log = program::log(program, self.found.device);
            program::release(program)?;
            return Err(of_image(error, log?));
        }
        let module = Module(self.loaded.next());
        locked(&self.loaded.modules).insert(module.0, Unit { program, kernels: Vec::new() });
        Ok(module)
    }

    fn unload(&self, module: Module) -> Result<()> {
        let unit = locked(&self.loaded.modules).remove(&module.0);
        self.loaded.unload(unit.ok_or_else(|| call::wrong_program("clReleaseProgram"))?)
    }

    fn kernel(&self, module: Module, name: &CStr) -> Result<Option<Kernel>> {
        let program = self.loaded.program(module)?;
        let raw = match kernel::create(program, name) {
            Ok(raw) => raw,
            Err(error) if call::is_unknown_name(error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let taken = taken(raw).or_else(|error| kernel::release(raw).and(Err(error)))?;
        let made = Kernel(self.loaded.next());
        let entry = Arc::new(Entry { turn: Mutex::new(raw), taken });
        self.loaded.kernels.write().unwrap_or_else(PoisonError::into_inner).insert(made.0, entry);
        if let Some(unit) = locked(&self.loaded.modules).get_mut(&module.0) {
            unit.kernels.push(made);
        }
        Ok(Some(made))
    }

    fn kernel_names(&self, module: Module) -> Result<Vec<String>> {
        program::kernel_names(self.loaded.program(module)?)
    }

    fn parameters(&self, kernel: Kernel) -> Result<Vec<Parameter>> {
        let entry = self.loaded.entry(kernel)?;
        let bytes = |taken: &Taken| match taken {
            Taken::Address => Some(Some(size_of::<u64>())),
            Taken::Local => None,
            Taken::Value(bytes) => Some(*bytes),
            Taken::Unknown => Some(None),
        };
        Ok(entry.taken.iter().filter_map(bytes).map(|bytes| Parameter { bytes }).collect())
    }

    /// OpenCL has no names for variables of a program.
    fn variable(&self, _module: Module, _name: &CStr) -> Result<Option<(u64, usize)>> {
        Ok(None)
    }

    unsafe fn launch(&self, kernel: Kernel, shape: Shape, stream: Stream, arguments: Arguments<'_>) -> Result<()> {
        let entry = self.loaded.entry(kernel)?;
        let turn = locked(&entry.turn);
        // SAFETY: the caller vouches for an argument of its size for each parameter.
        let parts = unsafe { self.set_arguments(*turn, &entry.taken, shape, &arguments) }?;
        let put = self.streams.put(stream, |queue| {
            let (groups, group) = (shape.grid.map(|count| count as usize), shape.block.map(|count| count as usize));
            // SAFETY: every argument is set; memory that it names is its owner's to keep until the stream has passed this.
            unsafe { kernel::launch(queue, *turn, groups, group, &[]) }
        });
        // The launch keeps what it uses.
        parts.into_iter().try_for_each(memory::release)?;
        put
    }
}

impl Context {
    /// Sets all arguments. The parts of buffers that were made for it come back.
    ///
    /// # Safety
    /// There is an argument for each parameter that is not memory of the group, of its size.
    unsafe fn set_arguments(
        &self,
        raw: handle::Kernel,
        taken: &[Taken],
        shape: Shape,
        arguments: &Arguments<'_>,
    ) -> Result<Vec<handle::Memory>> {
        let mut parts = Vec::new();
        let mut given = arguments.pointers.iter().zip(arguments.passed);
        for (index, taken) in (0_u32..).zip(taken) {
            if *taken == Taken::Local {
                kernel::set_local(raw, index, shape.shared_bytes as usize)?;
                continue;
            }
            let Some((&start, &passed)) = given.next() else { return Err(call::wrong_argument("clSetKernelArg")) };
            let is_address = match (taken, passed) {
                (Taken::Address, _) => passed.bytes() == size_of::<u64>(),
                (Taken::Unknown, Passed::Address) => true,
                _ => false,
            };
            if is_address {
                // SAFETY: the caller vouches for the argument, which has eight bytes.
                let address = unsafe { start.cast::<u64>().read_unaligned() };
                parts.extend(self.space.set_argument(raw, index, address)?);
            } else {
                // SAFETY: the caller vouches for an argument of its size.
                let value = unsafe { bytes_at(start, passed.bytes()) };
                kernel::set_value(raw, index, value)?;
            }
        }
        Ok(parts)
    }
}

/// # Safety
/// At `start` are so many bytes, for as long as what comes back is used.
unsafe fn bytes_at<'a>(start: *mut c_void, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller vouches for the bytes.
    unsafe { std::slice::from_raw_parts(start.cast(), bytes) }
}

/// What a kernel takes.
fn taken(raw: handle::Kernel) -> Result<Vec<Taken>> {
    (0..kernel::parameter_count(raw)?)
        .map(|index| match kernel::parameter(raw, index) {
            Ok(parameter) => Ok(match parameter.place {
                Place::Global | Place::Constant => Taken::Address,
                Place::Local => Taken::Local,
                Place::Private => Taken::Value(bytes_of(&parameter.type_name)),
            }),
            Err(error) if call::is_untold_parameter(error) => Ok(Taken::Unknown),
            Err(error) => Err(error),
        })
        .collect()
}

/// How many bytes a type of OpenCL C has, where it is one that every program knows.
fn bytes_of(name: &str) -> Option<usize> {
    let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    let (scalar, count) = name.split_at(name.len() - digits);
    let scalar = match scalar {
        "char" | "uchar" | "unsigned char" | "bool" => 1,
        "short" | "ushort" | "unsigned short" | "half" => 2,
        "int" | "uint" | "unsigned int" | "unsigned" | "float" => 4,
        "long" | "ulong" | "unsigned long" | "double" | "size_t" | "ptrdiff_t" => 8,
        _ => return None,
    };
    match count {
        "" => Some(scalar),
        // Three lie as four do.
        "3" => Some(scalar * 4),
        count => {
            count.parse::<usize>().ok().filter(|count| matches!(count, 2 | 4 | 8 | 16)).map(|count| scalar * count)
        }
    }
}

/// A load that failed: because of the image, as the compiler says, or for another reason.
fn of_image(error: crate::error::CallError, log: String) -> LoadError {
    if call::is_of_image(error) {
        LoadError::Image { code: error.code, log: log.into() }
    } else {
        LoadError::Call(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_opencl_has_the_bytes_that_its_name_says() {
        assert_eq!(["uint", "float", "ulong", "uchar", "unsigned int"].map(bytes_of), [4, 4, 8, 1, 4].map(Some));
        assert_eq!(["float4", "float3", "uchar16", "double2"].map(bytes_of), [16, 16, 16, 16].map(Some));
    }

    #[test]
    fn a_type_of_the_program_s_own_is_not_guessed() {
        assert_eq!(["pair", "float5", "struct s", "", "3"].map(bytes_of), [None; 5]);
    }
}
