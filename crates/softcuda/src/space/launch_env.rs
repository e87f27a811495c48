//! The environment of a launch: the memory that its kernel can access, the output of `printf`, and the report of its
//! end.

use std::sync::{Arc, Mutex, OnceLock};

use freehold_check::grid::GridCheck;
use freehold_check::sites;
use freehold_check::{Checker, KernelFault, Kind, TaskView};
use freehold_driver::cuda::CUerror;
use freehold_ptx::{Fault, FaultKind, Progress, Slice, ThreadBlock};

use super::address_space::AddressSpace;
use super::checked_block::{CheckedBlock, Paused};
use super::kernel_memory::{KernelMemory, Tlb};
use super::object_table::KernelObjects;
use super::span::SpanKind;
use crate::base::check;
use crate::base::log::{Log, fault_text};
use crate::base::stdio;
use crate::base::sync::lock;
use crate::engine::kernel_env::KernelEnv;
use crate::memory::mem_ref::MemRef;
use crate::objects::context::Context;

/// Size of the address window of shared memory.
const SHARED_WINDOW_BYTES: u64 = 16 << 20;

/// How much memory of a checked kernel is watched for races between its threads.
const GRID_BYTES: u64 = 8 << 20;

/// Size of the workspace of a cooperative launch.
const WORKSPACE_BYTES: u64 = 64;

#[derive(Debug)]
pub(crate) struct LaunchEnv {
    space: &'static AddressSpace,
    log: &'static Log,
    context: Arc<Context>,
    objects: KernelObjects,
    /// The memory through which the blocks of a cooperative launch synchronize. Freed with the environment.
    workspace: Option<u64>,
    /// Left by slices that have ended. `None` once the kernel has.
    tlbs: Mutex<Option<Vec<Tlb>>>,
    /// Boxed: most launches in a queue have not begun.
    checked: OnceLock<Box<Checked>>,
}

/// What is known of a launch that is checked, from its begin on.
#[derive(Debug)]
struct Checked {
    /// The task as which it is checked.
    view: TaskView,
    paused: Mutex<Paused>,
    grid: GridCheck,
}

impl LaunchEnv {
    /// # Errors
    /// There is no memory for the workspace of a cooperative launch.
    pub(crate) fn new(
        space: &'static AddressSpace,
        log: &'static Log,
        context: Arc<Context>,
        is_cooperative: bool,
    ) -> Result<Self, CUerror> {
        let objects = KernelObjects::of(&space.textures, &space.surfaces);
        let tlbs = Mutex::new(Some(Vec::new()));
        let mut env = Self { space, log, context, objects, workspace: None, tlbs, checked: OnceLock::new() };
        if is_cooperative {
            let address = space.alloc(&env.context, WORKSPACE_BYTES, SpanKind::Internal { from_malloc: false })?;
            env.workspace = Some(address);
            MemRef::device(&env.context.device.memory.arena, address).write(0, &[0; WORKSPACE_BYTES as usize])?;
        }
        Ok(env)
    }
}

impl KernelEnv for LaunchEnv {
    fn run(&self, block: &mut ThreadBlock, slice: Slice) -> Result<Progress, Fault> {
        let tlb = lock(&self.tlbs).as_mut().and_then(Vec::pop);
        let mut memory = KernelMemory::new(self.space, &self.context, &self.objects, tlb);
        if let (Some(checker), Some(checked)) = (check::checker(), self.checked.get()) {
            memory.check(CheckedBlock::new(checker, &checked.view, &checked.paused, &checked.grid));
        }
        let ran = block.run(&mut memory, slice);
        let tlb = memory.into_tlb();
        if let Some(tlbs) = lock(&self.tlbs).as_mut() {
            tlbs.push(tlb);
        }
        ran
    }

    fn end(&self) {
        let tlbs = { lock(&self.tlbs).take() };
        drop(tlbs);
    }

    fn begin_checked(&self, view: TaskView) {
        let (paused, grid) = (Mutex::default(), GridCheck::new(GRID_BYTES));
        self.checked.get_or_init(|| Box::new(Checked { view, paused, grid }));
    }

    fn print(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.context.buffer_printf(bytes);
        }
    }

    fn report_fault(&self, fault: &Fault) -> CUerror {
        if let FaultKind::Assert { message } = &fault.kind {
            stdio::to_stderr(assert_message(message, fault).as_bytes());
        }
        self.log.record_fault(fault);
        if let (Some(checker), Some(checked)) = (check::checker(), self.checked.get()) {
            report_fault(checker, &checked.view, fault);
        }
        error_code(&fault.kind)
    }

    fn report_timeout(&self, kernel: &str, seconds: f64) -> CUerror {
        let kernel = sites::demangled(kernel);
        self.log.error(&format!("kernel {kernel} ran for more than {seconds} seconds and was ended"));
        CUerror::LAUNCH_TIMEOUT
    }

    fn workspace(&self) -> Option<u64> {
        self.workspace
    }

    fn try_clone(&self) -> Result<Box<dyn KernelEnv>, CUerror> {
        let env = Self::new(self.space, self.log, Arc::clone(&self.context), self.workspace.is_some())?;
        Ok(Box::new(env))
    }
}

impl Drop for LaunchEnv {
    fn drop(&mut self) {
        if let Some(workspace) = self.workspace {
            // The context's destruction may have freed it already.
            self.space.free_internal(workspace);
        }
    }
}

/// Tells the checker why a kernel was aborted.
fn report_fault(checker: &Checker, view: &TaskView, fault: &Fault) {
    let kind = match &fault.kind {
        FaultKind::Address { what, .. } if what.contains("freed") => Kind::UseAfterFree,
        FaultKind::Address { .. } | FaultKind::Space { .. } => Kind::OutOfBounds,
        FaultKind::Misaligned { .. } => Kind::Misaligned,
        FaultKind::Deadlock { .. } => Kind::BarrierDivergence,
        _ => Kind::KernelFault,
    };
    let (action, address) = match &fault.kind {
        FaultKind::Address { address, bytes, write, space, .. } => {
            let verb = if *write { "writes" } else { "reads" };
            (
                format!("{verb} {bytes} bytes of {space} memory at {address:#x}"),
                (*space == "global").then_some(*address),
            )
        }
        FaultKind::Misaligned { address, bytes, space } => (
            format!("accesses {bytes} bytes of {space} memory at {address:#x}"),
            (*space == "global").then_some(*address),
        ),
        _ => ("is aborted".to_owned(), None),
    };
    let &Fault { line, block, thread, .. } = fault;
    let message = fault_text(fault);
    checker.report_fault(view, KernelFault { kind, line, block, thread, action, message, address });
}

/// Formats a failed assertion as the real driver does, with the block and the thread.
fn assert_message(message: &str, fault: &Fault) -> String {
    let ([bx, by, bz], [tx, ty, tz]) = (fault.block, fault.thread);
    let place = format!(": block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `");
    message.replacen(": assertion `", &place, 1) + ".\n"
}

fn error_code(fault: &FaultKind) -> CUerror {
    match fault {
        // Beyond the window of shared memory, hardware reports an illegal instruction.
        FaultKind::Address { space: "shared", address: SHARED_WINDOW_BYTES.., .. } => CUerror::ILLEGAL_INSTRUCTION,
        // A stack overflow accesses the memory after the stack.
        FaultKind::Address { .. } | FaultKind::Stack { .. } => CUerror::ILLEGAL_ADDRESS,
        FaultKind::Misaligned { .. } => CUerror::MISALIGNED_ADDRESS,
        FaultKind::Space { .. } => CUerror::INVALID_ADDRESS_SPACE,
        FaultKind::Assert { .. } => CUerror::ASSERT,
        FaultKind::Call { .. } | FaultKind::Instruction { .. } => CUerror::ILLEGAL_INSTRUCTION,
        FaultKind::Deadlock { .. } => CUerror::LAUNCH_TIMEOUT,
        // Traps and breakpoints.
        _ => CUerror::LAUNCH_FAILED,
    }
}
