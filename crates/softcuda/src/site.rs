//! Where a kernel runs: the memory that it reaches, where its output goes, and who hears of its end.

use std::sync::Arc;

use freehold_driver::cuda::CUerror;
use freehold_ptx::{Fault, FaultKind};

use crate::context::Context;
use crate::kernel_memory::View;
use crate::memory::place::Place;
use crate::print;
use crate::span::SpanKind;
use crate::world::World;

/// Bytes that instructions of shared memory can tell apart.
const SHARED_WINDOW_BYTES: u64 = 16 << 20;

/// Where the blocks of a cooperative launch meet.
const WORKSPACE_BYTES: u64 = 64;

#[derive(Debug)]
pub(crate) struct Site {
    world: &'static World,
    context: Arc<Context>,
    /// Where the blocks of a cooperative launch meet. It ends with the site.
    workspace: Option<u64>,
}

impl Site {
    /// # Errors
    /// There is no memory for the place where the blocks of a cooperative launch meet.
    pub(crate) fn new(world: &'static World, context: Arc<Context>, is_cooperative: bool) -> Result<Self, CUerror> {
        let mut site = Self { world, context, workspace: None };
        if is_cooperative {
            let address = world.allocate(&site.context, WORKSPACE_BYTES, SpanKind::Hidden { from_malloc: false })?;
            site.workspace = Some(address);
            Place::device(&site.context.device.arena, address).write(0, &[0; WORKSPACE_BYTES as usize])?;
        }
        Ok(site)
    }

    /// The same for one more launch.
    pub(crate) fn again(&self) -> Result<Self, CUerror> {
        Self::new(self.world, Arc::clone(&self.context), self.workspace.is_some())
    }

    /// Where the blocks of a cooperative launch meet.
    pub(crate) fn workspace(&self) -> Option<u64> {
        self.workspace
    }

    /// The memory that the kernel reaches, for one slice of a block.
    pub(crate) fn view(&self) -> View<'_> {
        View::new(self.world, &self.context)
    }

    pub(crate) fn print(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.context.print(bytes);
        }
    }

    /// Writes down how the kernel ended, and says with which code.
    pub(crate) fn report(&self, fault: &Fault) -> CUerror {
        if let FaultKind::Assert { message } = &fault.kind {
            print::to_stderr(as_c_says(message, fault).as_bytes());
        }
        self.world.first_fault.get_or_init(|| fault.clone());
        self.world.log.error(&fault.to_string());
        code(&fault.kind)
    }

    /// Writes down that the kernel ran longer than it may.
    pub(crate) fn report_overtime(&self, kernel: &str, seconds: f64) -> CUerror {
        self.world.log.error(&format!("kernel {kernel} ran for more than {seconds} seconds and was ended"));
        CUerror::LAUNCH_TIMEOUT
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(workspace) = self.workspace {
            // The end of the context may have taken it already.
            self.world.end_hidden(workspace);
        }
    }
}

/// A failed assertion as the real driver tells of it: with the thread, in its own form.
fn as_c_says(message: &str, fault: &Fault) -> String {
    let ([bx, by, bz], [tx, ty, tz]) = (fault.block, fault.thread);
    let place = format!(": block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `");
    message.replacen(": assertion `", &place, 1) + ".\n"
}

fn code(fault: &FaultKind) -> CUerror {
    match fault {
        // Beyond the window that shared memory has among all addresses, hardware finds fault with the instruction.
        FaultKind::Address { space: "shared", address: SHARED_WINDOW_BYTES.., .. } => CUerror::ILLEGAL_INSTRUCTION,
        // A stack that is too short runs into what lies behind it.
        FaultKind::Address { .. } | FaultKind::Stack { .. } => CUerror::ILLEGAL_ADDRESS,
        FaultKind::Misaligned { .. } => CUerror::MISALIGNED_ADDRESS,
        FaultKind::Space { .. } => CUerror::INVALID_ADDRESS_SPACE,
        FaultKind::Trap | FaultKind::Breakpoint => CUerror::LAUNCH_FAILED,
        FaultKind::Assert { .. } => CUerror::ASSERT,
        FaultKind::Call { .. } | FaultKind::Instruction { .. } => CUerror::ILLEGAL_INSTRUCTION,
        FaultKind::Deadlock { .. } => CUerror::LAUNCH_TIMEOUT,
    }
}
