//! Programs as modules, and launches that set the arguments and enqueue the kernel under one lock.

use std::ffi::{CStr, CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::kernel::{self, AddressQualifier};
use super::super::{call, handle, memory, program};
use super::Context;
use super::lock::{Result, locked};
use super::module_table::{KernelEntry, LoadedProgram, ParameterKind};
use crate::backend::{ArgKind, Arguments, ImageKind, Kernels, LaunchConfig, LaunchLimits, Parameter};
use crate::error::LoadError;
use crate::handle::{Kernel, Module, Stream};

/// The option that makes the parameters of kernels known, and its absence.
const ARG_INFO: &CStr = c"-cl-kernel-arg-info";
const NO_ARG_INFO: &CStr = c"";

impl Kernels for Context {
    fn supports(&self, kind: ImageKind) -> bool {
        match kind {
            ImageKind::OpenCl => true,
            ImageKind::SpirV => self.device.info.supports_spirv,
            ImageKind::Ptx | ImageKind::Binary => false,
        }
    }

    unsafe fn load(&self, kind: ImageKind, image: &[u8]) -> std::result::Result<Module, LoadError> {
        let unit = match kind {
            ImageKind::SpirV => self.build_spirv(image)?,
            _ => self.build_source(&String::from_utf8_lossy(image.strip_suffix(b"\0").unwrap_or(image)), ARG_INFO)?,
        };
        let module = Module(self.modules.next_id());
        locked(&self.modules.modules).insert(module.0, unit);
        Ok(module)
    }

    unsafe fn unload(&self, module: Module) -> Result<()> {
        let unit = locked(&self.modules.modules).remove(&module.0);
        self.modules.unload(unit.ok_or_else(|| call::invalid_program("clReleaseProgram"))?)
    }

    unsafe fn kernel(&self, module: Module, name: &CStr) -> Result<Option<Kernel>> {
        let (program, arg_info_program) = self.modules.programs(module)?;
        let raw = match kernel::create(program, name) {
            Ok(raw) => raw,
            Err(error) if call::is_unknown_name(error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let taken = parameter_kinds(raw, arg_info_program.map(|arg_info_program| (arg_info_program, name)));
        let taken = taken.or_else(|error| kernel::release(raw).and(Err(error)))?;
        let made = Kernel(self.modules.next_id());
        let entry = Arc::new(KernelEntry { raw: Mutex::new(raw), parameters: taken });
        self.modules.kernels.write().unwrap_or_else(PoisonError::into_inner).insert(made.0, entry);
        if let Some(unit) = locked(&self.modules.modules).get_mut(&module.0) {
            unit.kernels.push(made);
        }
        Ok(Some(made))
    }

    unsafe fn kernel_names(&self, module: Module) -> Result<Vec<String>> {
        program::kernel_names(self.modules.program(module)?)
    }

    unsafe fn parameters(&self, kernel: Kernel) -> Result<Vec<Parameter>> {
        let entry = self.modules.entry(kernel)?;
        let bytes = |taken: &ParameterKind| match taken {
            ParameterKind::Address => Some(Some(size_of::<u64>())),
            ParameterKind::Local => None,
            ParameterKind::Value(bytes) => Some(*bytes),
            ParameterKind::Unknown => Some(None),
        };
        Ok(entry.parameters.iter().filter_map(bytes).map(|bytes| Parameter { bytes }).collect())
    }

    /// OpenCL reports the size of a work-group, which limits each dimension.
    unsafe fn limits(&self, _kernel: Kernel) -> Result<LaunchLimits> {
        let items = self.device.info.group_items_max;
        Ok(LaunchLimits {
            threads_max: items,
            block_threads: [items; 3],
            grid_blocks: [u64::MAX; 3],
            kernel_threads_max: u64::MAX,
            kernel_shared_bytes_max: u64::MAX,
        })
    }

    /// OpenCL has no names for variables of a program.
    unsafe fn global(&self, _module: Module, _name: &CStr) -> Result<Option<(u64, usize)>> {
        Ok(None)
    }

    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: LaunchConfig,
        stream: Stream,
        arguments: Arguments<'_>,
    ) -> Result<()> {
        let entry = self.modules.entry(kernel)?;
        let turn = locked(&entry.raw);
        // SAFETY: the caller guarantees an argument of its size for each parameter.
        let parts = unsafe { self.set_arguments(*turn, &entry.parameters, shape, &arguments) }?;
        let put = self.streams.enqueue(stream, |queue| {
            let (groups, group) = (shape.grid.map(|count| count as usize), shape.block.map(|count| count as usize));
            // SAFETY: every argument is set; the owner of memory that it points to keeps it until the stream has
            // completed the launch.
            unsafe { kernel::launch(queue, *turn, groups, group, &[]) }
        });
        // The launch keeps what it uses alive.
        parts.into_iter().try_for_each(memory::release)?;
        put
    }
}

// Building programs.
impl Context {
    /// Compiles source with the options `told`. Some drivers reject source with these options that they accept without
    /// them: NVIDIA's 580 rejects source with a kernel without parameters.
    fn build_source(&self, text: &str, told: &CStr) -> std::result::Result<LoadedProgram, LoadError> {
        if let Ok(program) = self.build(program::from_source(self.raw, text), told) {
            return Ok(LoadedProgram { program, arg_info_program: None, kernels: Vec::new() });
        }
        let program = self.build(program::from_source(self.raw, text), NO_ARG_INFO)?;
        match self.build_arg_info_program(program, text, told) {
            Ok(arg_info_program) => Ok(LoadedProgram { program, arg_info_program, kernels: Vec::new() }),
            Err(error) => program::release(program).and(Err(error)).map_err(LoadError::Call),
        }
    }

    fn build_spirv(&self, image: &[u8]) -> std::result::Result<LoadedProgram, LoadError> {
        let make = || program::from_spirv(self.raw, image);
        let program = self.build(make(), ARG_INFO).or_else(|_| self.build(make(), NO_ARG_INFO))?;
        Ok(LoadedProgram { program, arg_info_program: None, kernels: Vec::new() })
    }

    /// Compiles the same source again, with a parameter added to each kernel that has none, and with the options
    /// `told`. Returns `None` if the kernels were not the reason for the rejection.
    fn build_arg_info_program(
        &self,
        program: handle::Program,
        text: &str,
        told: &CStr,
    ) -> Result<Option<handle::Program>> {
        let mut whole = String::new();
        for name in program::kernel_names(program)? {
            let bare = CString::new(name.as_str()).expect("a name in OpenCL C contains no NUL");
            let raw = kernel::create(program, &bare)?;
            let count = kernel::parameter_count(raw);
            kernel::release(raw)?;
            if count? == 0 {
                whole.push_str(&format!("#define {name}(none) {name}(int unused)\n"));
            }
        }
        if whole.is_empty() {
            return Ok(None);
        }
        whole.push_str(text);
        // If this source is rejected too, the parameters stay unknown, and the driver checks the arguments.
        Ok(self.build(program::from_source(self.raw, &whole), told).ok())
    }

    /// Builds a program, and releases it if it is rejected.
    fn build(&self, made: Result<handle::Program>, options: &CStr) -> std::result::Result<handle::Program, LoadError> {
        let program = made.map_err(|error| image_error(error, String::new()))?;
        let Err(error) = program::build(program, self.device.device, options) else { return Ok(program) };
        let log = program::log(program, self.device.device);
        program::release(program)?;
        Err(image_error(error, log?))
    }
}

impl Context {
    /// Sets all arguments. Returns the sub-buffers that were made for them.
    ///
    /// # Safety
    /// There is an argument for each parameter that is not local memory, of its size.
    unsafe fn set_arguments(
        &self,
        raw: handle::Kernel,
        taken: &[ParameterKind],
        shape: LaunchConfig,
        arguments: &Arguments<'_>,
    ) -> Result<Vec<handle::Memory>> {
        let mut parts = Vec::new();
        let mut given = arguments.pointers.iter().zip(arguments.kinds);
        for (index, taken) in (0_u32..).zip(taken) {
            if *taken == ParameterKind::Local {
                kernel::set_local(raw, index, shape.shared_bytes as usize)?;
                continue;
            }
            let Some((&start, &passed)) = given.next() else { return Err(call::invalid_argument("clSetKernelArg")) };
            let is_address = match (taken, passed) {
                (ParameterKind::Address, _) => passed.bytes() == size_of::<u64>(),
                (ParameterKind::Unknown, ArgKind::Address | ArgKind::ReadOnly { .. }) => true,
                _ => false,
            };
            if is_address {
                // SAFETY: the caller guarantees that the argument has eight bytes.
                let address = unsafe { start.cast::<u64>().read_unaligned() };
                parts.extend(self.space.set_argument(raw, index, address)?);
            } else {
                // SAFETY: the caller guarantees an argument of its size.
                let value = unsafe { bytes_at(start, passed.bytes()) };
                kernel::set_value(raw, index, value)?;
            }
        }
        Ok(parts)
    }
}

/// # Safety
/// At `start` are that many bytes, for as long as the result is used.
unsafe fn bytes_at<'a>(start: *mut c_void, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller guarantees that the bytes are valid.
    unsafe { std::slice::from_raw_parts(start.cast(), bytes) }
}

/// Returns the kinds of a kernel's parameters, as the kernel itself reports them, or the kernel of that name in another
/// program.
fn parameter_kinds(
    raw: handle::Kernel,
    arg_info_program: Option<(handle::Program, &CStr)>,
) -> Result<Vec<ParameterKind>> {
    let count = kernel::parameter_count(raw)?;
    let Some((program, name)) = arg_info_program else { return query_parameter_kinds(raw, count) };
    let twin = kernel::create(program, name)?;
    let taken = query_parameter_kinds(twin, count);
    kernel::release(twin)?;
    taken
}

/// Returns the kinds of a kernel's first parameters, as it reports them.
fn query_parameter_kinds(raw: handle::Kernel, count: u32) -> Result<Vec<ParameterKind>> {
    (0..count)
        .map(|index| match kernel::parameter(raw, index) {
            Ok(parameter) => Ok(match parameter.qualifier {
                AddressQualifier::Global | AddressQualifier::Constant => ParameterKind::Address,
                AddressQualifier::Local => ParameterKind::Local,
                AddressQualifier::Private => ParameterKind::Value(scalar_bytes(&parameter.type_name)),
            }),
            Err(error) if call::is_arg_info_unavailable(error) => Ok(ParameterKind::Unknown),
            Err(error) => Err(error),
        })
        .collect()
}

/// Returns the size of a scalar or vector type of OpenCL C.
fn scalar_bytes(name: &str) -> Option<usize> {
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
        // A vector of three has the size of four.
        "3" => Some(scalar * 4),
        count => {
            count.parse::<usize>().ok().filter(|count| matches!(count, 2 | 4 | 8 | 16)).map(|count| scalar * count)
        }
    }
}

/// Returns the error of a failed load: the compiler's log if the image is invalid, or the call's error.
fn image_error(error: crate::error::CallError, log: String) -> LoadError {
    if call::is_image_error(error) {
        LoadError::Image { code: error.code, log: log.into() }
    } else {
        LoadError::Call(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, DeviceMemory, Pattern};
    use crate::error::ErrorKind;
    use crate::opencl::MemoryModel;
    use crate::opencl::discovery;
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    const KERNELS: &str = "
        __kernel void add(__global uint *x, uint more) { *x += more; }
        __kernel void nothing(void) {}
    ";

    /// Options for a source that rejects them.
    const REFUSED: &CStr = c"-cl-kernel-arg-info -D REFUSED";

    /// Returns a context on the first device, if this machine has one.
    fn context() -> Option<Context> {
        static FOUND: OnceLock<std::result::Result<Vec<discovery::InstalledDevice>, discovery::DiscoveryError>> =
            OnceLock::new();
        // SAFETY: one thread calls, and the others wait for it.
        match FOUND.get_or_init(|| unsafe { discovery::devices() }) {
            Ok(all) => Some(Context::new(all[0].clone(), MemoryModel::Buffers).unwrap()),
            Err(absence) => {
                println!("nothing was tested: {absence}");
                None
            }
        }
    }

    /// Returns a kernel of a source compiled with [`REFUSED`].
    fn kernel(context: &Context, text: &str, name: &CStr) -> Kernel {
        let unit = context.build_source(text, REFUSED).unwrap();
        locked(&context.modules.modules).insert(1, unit);
        context.modules.last_id.store(1, Ordering::Relaxed);
        // SAFETY: the module is loaded.
        unsafe { context.kernel(Module(1), name) }.unwrap().unwrap()
    }

    #[test]
    fn argument_info_survives_a_rejected_build() {
        let Some(context) = context() else { return };
        // As NVIDIA's driver does: rejects kernels without parameters, and accepts them with one.
        let text = format!("#if defined(REFUSED) && !defined(nothing)\n#error refused\n#endif\n{KERNELS}");
        let add = kernel(&context, &text, c"add");
        assert_eq!(
            context.modules.entry(add).unwrap().parameters,
            [ParameterKind::Address, ParameterKind::Value(Some(4))]
        );
        // SAFETY: the module is loaded.
        let nothing = unsafe { context.kernel(Module(1), c"nothing") }.unwrap().unwrap();
        // SAFETY: it is a kernel of this context.
        assert_eq!(unsafe { context.parameters(nothing) }.unwrap(), []);
        let stream = context.create_stream().unwrap();
        let none = Arguments { pointers: &mut [], kinds: &[] };
        // SAFETY: the kernel has no parameters.
        unsafe { context.launch(nothing, LaunchConfig::linear(1, 1), stream, none) }.unwrap();
        // SAFETY: the stream was made above.
        unsafe { context.wait_until_idle(stream) }.unwrap();
        // SAFETY: nothing of it is still used.
        unsafe { context.close() }.unwrap();
    }

    #[test]
    fn without_argument_info_the_driver_checks_the_arguments() {
        let Some(context) = context() else { return };
        let add = kernel(&context, &format!("#ifdef REFUSED\n#error refused\n#endif\n{KERNELS}"), c"add");
        // SAFETY: it is a kernel of this context.
        assert_eq!(unsafe { context.parameters(add) }.unwrap(), [Parameter { bytes: None }; 2]);
        let (stream, mut x) = (context.create_stream().unwrap(), context.alloc(4096).unwrap());
        // SAFETY: there are as many bytes at `x`, and nothing else uses them.
        unsafe { context.fill(x, Pattern::U8(0), 4096, stream) }.unwrap();
        let mut more = 7_u64;
        let mut launch = |bytes| {
            let mut pointers = [(&raw mut x).cast(), (&raw mut more).cast()];
            let passed = [ArgKind::Address, ArgKind::Value { bytes }];
            let arguments = Arguments { pointers: &mut pointers, kinds: &passed };
            // SAFETY: there are as many bytes as stated, and the driver rejects a wrong size.
            unsafe { context.launch(add, LaunchConfig::linear(1, 1), stream, arguments) }
        };
        let refused = launch(8).unwrap_err();
        assert_eq!((refused.code.name, refused.kind), (Some("CL_INVALID_ARG_SIZE"), ErrorKind::Other));
        launch(4).unwrap();
        let mut found = [0_u8; 4];
        // SAFETY: there is room for four bytes until the stream is idle.
        unsafe { context.download(found.as_mut_ptr(), x, 4, stream) }.unwrap();
        // SAFETY: the stream was made above.
        unsafe { context.wait_until_idle(stream) }.unwrap();
        assert_eq!(found, 7_u32.to_le_bytes());
        // SAFETY: nothing of it is still used.
        unsafe { context.close() }.unwrap();
    }

    #[test]
    fn a_source_with_an_error_is_rejected_with_its_own_log() {
        let Some(context) = context() else { return };
        let failed =
            context.build_source("__kernel void f(__global int *x) { *x = unheard_of; }", REFUSED).unwrap_err();
        assert!(matches!(&failed, LoadError::Image { log, .. } if log.contains("unheard_of")), "{failed}");
        // SAFETY: nothing of it is still used.
        unsafe { context.close() }.unwrap();
    }

    #[test]
    fn a_type_of_opencl_has_the_bytes_that_its_name_says() {
        assert_eq!(["uint", "float", "ulong", "uchar", "unsigned int"].map(scalar_bytes), [4, 4, 8, 1, 4].map(Some));
        assert_eq!(["float4", "float3", "uchar16", "double2"].map(scalar_bytes), [16, 16, 16, 16].map(Some));
    }

    #[test]
    fn the_size_of_a_user_defined_type_is_not_guessed() {
        assert_eq!(["pair", "float5", "struct s", "", "3"].map(scalar_bytes), [None; 5]);
    }
}
