//! PTX kernels for the tests, and functions that load and launch them.

#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::ffi::{CStr, c_void};

use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::{CUfunction, CUmodule, CUstream, DriverError, module};

use super::Context;

/// Kernels and variables of the tests.
pub(crate) const TEXT: &CStr = c"
.version 8.0
.target sm_80
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .global .align 8 .b8 table[24];
.visible .const .align 4 .u32 factor = 3;
.global .align 4 .u32 private = 1;

.visible .entry nothing()
{
    ret;
}

// to[i] = value + i, for the i-th thread of the grid.
.visible .entry store(.param .u64 to, .param .u32 value)
{
    .reg .b64 %at<4>;
    .reg .b32 %r<8>;
    ld.param.u64 %at1, [to];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    add.u32 %r6, %r1, %r5;
    mul.wide.u32 %at2, %r5, 4;
    add.u64 %at3, %at1, %at2;
    st.global.u32 [%at3], %r6;
    ret;
}

// Spins until *word is not zero, then adds one to *done.
.visible .entry wait(.param .u64 word, .param .u64 done)
{
    .reg .b64 %at<3>;
    .reg .b32 %r<3>;
    .reg .pred %p;
    ld.param.u64 %at1, [word];
    ld.param.u64 %at2, [done];
again:
    ld.volatile.global.u32 %r1, [%at1];
    setp.eq.u32 %p, %r1, 0;
    @%p bra again;
    atom.global.add.u32 %r2, [%at2], 1;
    ret;
}

// Sets *mine, then spins until *other is set.
.visible .entry meet(.param .u64 mine, .param .u64 other)
{
    .reg .b64 %at<3>;
    .reg .b32 %r<3>;
    .reg .pred %p;
    ld.param.u64 %at1, [mine];
    ld.param.u64 %at2, [other];
    mov.u32 %r1, 1;
    st.volatile.global.u32 [%at1], %r1;
again:
    ld.volatile.global.u32 %r2, [%at2];
    setp.eq.u32 %p, %r2, 0;
    @%p bra again;
    ret;
}

// Every block adds one to *arrived and spins until all blocks have.
.visible .entry gather(.param .u64 arrived)
{
    .reg .b64 %at<2>;
    .reg .b32 %r<4>;
    .reg .pred %p;
    ld.param.u64 %at1, [arrived];
    mov.u32 %r3, %nctaid.x;
    atom.global.add.u32 %r1, [%at1], 1;
again:
    ld.volatile.global.u32 %r2, [%at1];
    setp.lt.u32 %p, %r2, %r3;
    @%p bra again;
    ret;
}

// counter = counter * factor.
.visible .entry multiply()
{
    .reg .b32 %r<4>;
    ld.global.u32 %r1, [counter];
    ld.const.u32 %r2, [factor];
    mul.lo.u32 %r3, %r1, %r2;
    st.global.u32 [counter], %r3;
    ret;
}

.visible .entry bounded() .maxntid 64, 1, 1
{
    ret;
}

.visible .entry required() .reqntid 32, 2, 1
{
    ret;
}

.visible .entry sharing()
{
    .shared .align 4 .b8 room[1024];
    .reg .b32 %r<2>;
    mov.u32 %r1, 1;
    st.shared.u32 [room], %r1;
    ret;
}

// Parameters of several widths: to = a + b + c.
.visible .entry widths(.param .u8 a, .param .u64 to, .param .u16 b, .param .u32 c)
{
    .reg .b64 %at<2>;
    .reg .b32 %r<6>;
    ld.param.u8 %r1, [a];
    ld.param.u64 %at1, [to];
    ld.param.u16 %r2, [b];
    ld.param.u32 %r3, [c];
    add.u32 %r4, %r1, %r2;
    add.u32 %r5, %r4, %r3;
    st.global.u32 [%at1], %r5;
    ret;
}

.visible .entry trapping()
{
    trap;
}
";

/// The kernels of [`TEXT`], in its order.
pub(crate) const NAMES: [&str; 11] =
    ["nothing", "store", "wait", "meet", "gather", "multiply", "bounded", "required", "sharing", "widths", "trapping"];

/// An argument of a kernel: its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument([u8; 8]);

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self(u64::from(value).to_le_bytes())
    }
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self(value.to_le_bytes())
    }
}

impl Context {
    /// Loads a text.
    pub(crate) fn load(&self, text: &CStr) -> Result<CUmodule, DriverError> {
        // SAFETY: a text ends in a NUL.
        unsafe { module::load(&self.api, text.as_ptr().cast()) }
    }

    /// Loads [`TEXT`].
    pub(crate) fn module(&self) -> CUmodule {
        self.load(TEXT).expect("the text is loaded")
    }

    /// A kernel of a module.
    pub(crate) fn function(&self, module: CUmodule, name: &CStr) -> CUfunction {
        module::function(&self.api, module, name).expect("the module has the kernel")
    }

    /// A kernel of [`TEXT`], freshly loaded.
    pub(crate) fn kernel(&self, name: &CStr) -> CUfunction {
        self.function(self.module(), name)
    }

    /// Launches a kernel.
    pub(crate) fn run(
        &self,
        function: CUfunction,
        shape: LaunchConfig,
        stream: CUstream,
        arguments: &[Argument],
    ) -> Result<(), DriverError> {
        let mut arguments = arguments.to_vec();
        let mut pointers = pointers(&mut arguments);
        // SAFETY: there is an argument of eight bytes for each parameter of these tests' kernels, and what they reach
        // of the host's memory is used through atomics.
        unsafe { launch::kernel(&self.api, function, shape, stream, &mut pointers) }
    }
}

/// A pointer to each argument.
pub(crate) fn pointers(arguments: &mut [Argument]) -> Vec<*mut c_void> {
    arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect()
}
