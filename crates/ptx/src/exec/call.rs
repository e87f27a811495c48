//! Calls: creates and drops frames, and copies parameters and results between them.

use std::sync::Arc;

use super::access::read_le;
use super::frame::{Caller, Frame, Range, Row, lanes_of};
use super::run::{LaneFault, Next, Run, first, sign_extend};
use super::warp::Warp;
use super::{alu, float};
use crate::fault::FaultKind;
use crate::image::Resolved;
use crate::ir::{
    Argument, Call, Constant, FUNCTION_BYTES, FUNCTION_WINDOW, FormalParameter, LOCAL_WINDOW, LaneMask, Op, Reg,
    SHARED_WINDOW, Special, Target,
};
use crate::memory::LANES;

/// The maximum call depth of a thread: beyond it, the recursion is taken to be endless.
const DEPTH_MAX: u32 = 16_384;
/// The maximum number of frames of a warp.
const FRAMES_MAX: usize = 65_536;

impl Warp {
    /// Returns the local memory of a lane, up to the end of a frame.
    pub(super) fn local_of(&self, frame: usize, lane: usize) -> &[u8] {
        let end = self.frame(frame).local_end() as usize;
        self.local.get(lane).map_or(&[][..], |bytes| &bytes[..end.min(bytes.len())])
    }

    pub(super) fn local_of_mut(&mut self, frame: usize, lane: usize) -> &mut [u8] {
        let end = self.frame(frame).local_end() as usize;
        match self.local.get_mut(lane) {
            Some(bytes) => {
                let end = end.min(bytes.len());
                &mut bytes[..end]
            }
            None => &mut [],
        }
    }

    /// Grows the local memory of lanes to `end`.
    pub(super) fn grow_local(&mut self, lanes: u32, end: u32) {
        if end == 0 {
            return;
        }
        if self.local.is_empty() {
            self.local.resize_with(LANES, Vec::new);
        }
        for lane in lanes_of(lanes) {
            if self.local[lane].len() < end as usize {
                self.local[lane].resize(end as usize, 0);
            }
        }
    }
}

/// The registers that the first frames of a launch's warps have in common.
#[derive(Debug)]
pub(crate) struct FrameTemplate {
    frame: Frame,
    /// Registers that differ between the warps of a block.
    by_warp: Vec<(Reg, Special)>,
    /// Registers that differ between blocks.
    by_block: Vec<(Reg, Constant)>,
}

impl FrameTemplate {
    /// Prepares the first frame of a warp for the threads of a block.
    pub(super) fn begin(&self, frame: &mut Frame) {
        for &reg in &self.frame.code.uninitialized {
            frame.fill(reg, 0);
        }
        (frame.carry, frame.references) = (0, 0);
    }
}

impl Run<'_> {
    /// Returns a frame for a function, with its constants filled in.
    pub(super) fn new_frame(&self, function: usize, local_base: u32, depth: u32, caller: Option<Caller>) -> Frame {
        let linked = &self.program.linked.functions[function];
        let code = Arc::clone(&linked.code);
        let mut frame = Frame {
            function,
            unit: linked.unit,
            narrow: vec![Row([0; LANES]); code.slots.narrow.max(1) as usize],
            wide: vec![Row([0; LANES]); code.slots.wide.max(1) as usize],
            ranges: vec![Range::default(); code.slots.wide.max(1) as usize],
            predicates: vec![0; code.slots.predicates.max(1) as usize],
            mask: Box::default(),
            patterns: Box::default(),
            carry: 0,
            local_base,
            depth,
            caller,
            references: 0,
            code: Arc::clone(&code),
        };
        for &(place, constant) in &code.constants {
            let values = self.constant(&frame, constant);
            match place {
                Reg::Predicate(slot) => frame.predicates[slot as usize] = values[0] as u32,
                _ => frame.write(place, super::frame::ALL, &values),
            }
        }
        frame
    }

    /// Makes the first frame of a warp: a copy of the template, with the registers that differ between warps. A warp
    /// that is reused from a block that has ended has the frame of the warp with the same index: its constants are
    /// right, and registers that the kernel writes before it reads them may have any value.
    pub(super) fn make_first_frame(&self, template: &FrameTemplate, warp: &mut Warp) {
        let mut frame = template.frame.clone();
        self.write_special(&mut frame, &template.by_warp);
        self.prelude(&mut frame);
        warp.frames.push(Some(frame));
    }

    /// Writes the registers that differ between blocks, which are the same for all threads of a block.
    pub(super) fn fill_block_registers(&self, template: &FrameTemplate, warps: &mut [Warp]) {
        for &(reg, constant) in &template.by_block {
            let [value, ..] = self.constant(&template.frame, constant);
            warps.iter_mut().for_each(|warp| warp.frame_mut(0).fill(reg, value));
        }
    }

    /// Computes the registers that are the same in every block, for all lanes.
    fn prelude(&self, frame: &mut Frame) {
        let code = Arc::clone(&frame.code);
        for &position in &code.prelude {
            match &code.instructions[position as usize].op {
                Op::LoadParameter { width, signed, to, offset } => {
                    let value = read_le(&self.launch.parameters, u64::from(*offset), *width);
                    let values = [value.expect("the arguments are as long as the parameters"); LANES];
                    let values = if *signed { sign_extend(values, *width) } else { values };
                    frame.write(*to, super::frame::ALL, &values);
                }
                op => {
                    let all = super::frame::ALL;
                    let is_done = alu::execute(frame, op, all) || float::execute(frame, op, all);
                    assert!(is_done, "no kernel has a known result of {op:?}");
                }
            }
        }
    }

    fn write_special(&self, frame: &mut Frame, registers: &[(Reg, Special)]) {
        for &(reg, special) in registers {
            frame.write(reg, super::frame::ALL, &self.special_register(special));
        }
    }

    /// Returns the frame that the warps of a launch begin with.
    pub(super) fn template(&self) -> FrameTemplate {
        let frame = self.new_frame(self.kernel.function, 0, 0, None);
        let (mut by_warp, mut by_block) = (Vec::new(), Vec::new());
        for &(reg, constant) in &frame.code.constants {
            match constant {
                Constant::Special(special @ (Special::Tid(_) | Special::Warp)) => by_warp.push((reg, special)),
                Constant::Symbol { .. } if self.cluster.is_none() => {}
                _ if constant.varies_between_blocks() => by_block.push((reg, constant)),
                _ => {}
            }
        }
        FrameTemplate { by_warp, by_block, frame }
    }

    fn constant(&self, frame: &Frame, constant: Constant) -> [u64; LANES] {
        match constant {
            Constant::Bits(bits) => [bits; LANES],
            Constant::Special(special) => self.special_register(special),
            Constant::Local { offset, generic } => {
                let window = if generic { LOCAL_WINDOW } else { 0 };
                [window + u64::from(frame.local_base.wrapping_add(offset)); LANES]
            }
            Constant::Symbol { symbol, generic, addend } => {
                let address = match self.program.linked.units[frame.unit][symbol as usize] {
                    Resolved::Function(function) => FUNCTION_WINDOW + function as u64 * FUNCTION_BYTES,
                    Resolved::Global(variable) => self.program.addresses[variable],
                    Resolved::Shared(variable) => {
                        let window = if generic { SHARED_WINDOW + self.own_rank_bits() } else { 0 };
                        window + u64::from(self.kernel.shared[variable])
                    }
                    Resolved::DynamicShared => {
                        let window = if generic { SHARED_WINDOW + self.own_rank_bits() } else { 0 };
                        window + u64::from(self.kernel.dynamic_shared)
                    }
                    Resolved::Builtin(_) | Resolved::Unused => 0,
                };
                [address.wrapping_add_signed(addend); LANES]
            }
        }
    }

    fn special_register(&self, special: Special) -> [u64; LANES] {
        let [width, height, _] = self.launch.block;
        let all = |value: u64| [value; LANES];
        match special {
            Special::Tid(axis) => {
                let (mut values, first) = ([0; LANES], self.warp_index * LANES as u32);
                let mut tid = [first % width, first / width % height, first / width / height];
                for value in &mut values {
                    *value = u64::from(tid[axis as usize]);
                    tid[0] += 1;
                    if tid[0] == width {
                        tid = [0, tid[1] + 1, tid[2]];
                    }
                    if tid[1] == height {
                        tid = [tid[0], 0, tid[2] + 1];
                    }
                }
                values
            }
            Special::Ntid(axis) => all(u64::from(self.launch.block[axis as usize])),
            Special::Ctaid(axis) => all(u64::from(self.block[axis as usize])),
            Special::Nctaid(axis) => all(u64::from(self.launch.grid[axis as usize])),
            Special::Lane => std::array::from_fn(|lane| lane as u64),
            Special::Warp => all(u64::from(self.warp_index)),
            Special::Warps => all(64),
            Special::Sm => all(self.block_index % 132),
            Special::Sms => all(132),
            Special::Grid => all(1),
            Special::LaneMask(mask) => std::array::from_fn(|lane| {
                let bit = 1u32 << lane;
                u64::from(match mask {
                    LaneMask::Eq => bit,
                    LaneMask::Lt => bit - 1,
                    LaneMask::Le => bit | (bit - 1),
                    LaneMask::Ge => !(bit - 1),
                    LaneMask::Gt => !(bit | (bit - 1)),
                })
            }),
            Special::DynamicShared => all(u64::from(self.launch.shared_bytes)),
            Special::TotalShared => all(self.shared.len() as u64),
            // The halves of the address, the high one first.
            Special::Env(1) => all(self.launch.workspace >> 32),
            Special::Env(2) => all(self.launch.workspace & 0xffff_ffff),
            Special::Env(_) | Special::Zero => all(0),
            Special::WarpSize => all(LANES as u64),
            Special::ClusterCtaid(axis) => {
                all(u64::from(self.block[axis as usize] % self.launch.cluster_size()[axis as usize]))
            }
            Special::ClusterNctaid(axis) => all(u64::from(self.launch.cluster_size()[axis as usize])),
            Special::ClusterRank => all(u64::from(self.rank())),
            Special::ClusterRanks => all(self.launch.cluster_size().into_iter().map(u64::from).product()),
            Special::Clusterid(axis) => {
                all(u64::from(self.block[axis as usize] / self.launch.cluster_size()[axis as usize]))
            }
            Special::Nclusterid(axis) => {
                all(u64::from(self.launch.grid[axis as usize] / self.launch.cluster_size()[axis as usize]))
            }
            Special::IsExplicitCluster => all(if self.launch.cluster.is_some() { u64::MAX } else { 0 }),
        }
    }

    /// Calls a function with the lanes of a group. Lanes that call different functions diverge.
    pub(super) fn call(&mut self, warp: &mut Warp, group: usize, call: &Call) -> Result<Next, LaneFault> {
        let this = warp.groups[group];
        let frame = warp.frame(this.frame);
        let function = match call.target {
            Target::Symbol(symbol) => match self.program.linked.units[frame.unit][symbol as usize] {
                Resolved::Function(function) => function,
                Resolved::Builtin(builtin) => {
                    self.builtin(warp, this.frame, builtin, call, this.lanes)?;
                    return Ok(Next::Continue(this.position + 1));
                }
                _ => unreachable!("the lowering only calls functions"),
            },
            Target::Address(slot) => {
                let addresses = frame.wide[slot as usize];
                let lane = first(this.lanes);
                let same = lanes_of(this.lanes)
                    .filter(|&other| addresses[other] == addresses[lane])
                    .fold(0, |lanes, lane| lanes | 1 << lane);
                if same != this.lanes {
                    warp.add_group(this.position, this.lanes & !same, this.frame);
                    warp.groups[group].lanes = same;
                }
                let fault = (lane, FaultKind::Call { address: addresses[lane] });
                self.function_at(addresses[lane], call).ok_or(fault)?
            }
        };
        self.enter(warp, group, function, call)?;
        Ok(Next::Enter)
    }

    /// Returns the function at an address, if its signature matches the call's.
    fn function_at(&self, address: u64, call: &Call) -> Option<usize> {
        let offset = address.checked_sub(FUNCTION_WINDOW).filter(|offset| offset % FUNCTION_BYTES == 0)?;
        let function = usize::try_from(offset / FUNCTION_BYTES).ok()?;
        let code = &self.program.linked.functions.get(function)?.code;
        (code.signature == call.signature).then_some(function)
    }

    fn enter(&mut self, warp: &mut Warp, group: usize, function: usize, call: &Call) -> Result<(), LaneFault> {
        let this = warp.groups[group];
        let caller = warp.frame(this.frame);
        let align = self.program.linked.functions[function].code.local_align;
        let (base, depth) = (caller.local_end().next_multiple_of(align), caller.depth + 1);
        let position = this.position;
        let from = Caller { frame: this.frame, position };
        let frame = self.new_frame(function, base, depth, Some(from));
        let end = frame.local_end();
        let limit = self.stack_limit();
        if u64::from(end) > limit || depth > DEPTH_MAX || warp.frames.len() > FRAMES_MAX {
            return Err((first(this.lanes), FaultKind::Stack { limit_bytes: limit }));
        }
        warp.grow_local(this.lanes, end);
        for (argument, formal) in call.arguments.iter().zip(&call.signature.parameters) {
            copy_in(warp, this.frame, this.lanes, base, *argument, *formal);
        }
        let callee = warp.add_frame(frame);
        // The caller loses a group and gains a callee.
        warp.frame_mut(callee).references = 1;
        let group = &mut warp.groups[group];
        (group.frame, group.position) = (callee, 0);
        Ok(())
    }

    /// Returns the local memory that a thread can have. Frames are laid out differently from a compiler's, so the limit
    /// is generous: a kernel that fits on a device fits here.
    fn stack_limit(&self) -> u64 {
        u64::from(self.program.linked.functions[self.kernel.function].code.local_bytes) + 8 * self.launch.stack_bytes
    }

    /// Returns from a call: copies the results to the caller's registers or variables.
    pub(super) fn finish_call(&mut self, warp: &mut Warp, group: usize) -> Result<Next, LaneFault> {
        let this = warp.groups[group];
        let base = warp.frame(this.frame).local_base;
        let Some(caller) = warp.return_to_caller(group) else {
            unreachable!("a kernel ends with exit");
        };
        let code = Arc::clone(&warp.frame(caller.frame).code);
        let Op::Call(call) = &code.instructions[caller.position as usize].op else {
            unreachable!("a caller is at a call");
        };
        for (result, formal) in call.results.iter().zip(&call.signature.returns) {
            copy_out(warp, caller.frame, this.lanes, base, *result, *formal);
        }
        warp.groups[group].position = caller.position + 1;
        Ok(Next::Enter)
    }
}

/// Copies an argument into the local memory of a callee that starts at `base`.
pub(super) fn copy_in(
    warp: &mut Warp,
    frame: usize,
    lanes: u32,
    base: u32,
    argument: Argument,
    formal: FormalParameter,
) {
    let to = (base + formal.offset) as usize;
    match argument {
        Argument::Nothing => {}
        Argument::Frame { offset, bytes } => {
            let from = (warp.frame(frame).local_base + offset) as usize;
            for lane in lanes_of(lanes) {
                warp.local[lane].copy_within(from..from + bytes as usize, to);
            }
        }
        Argument::Register(place) => {
            let values = warp.frame(frame).read(place);
            let bytes = formal.bytes.min(8) as usize;
            for lane in lanes_of(lanes) {
                warp.local[lane][to..to + bytes].copy_from_slice(&values[lane].to_le_bytes()[..bytes]);
            }
        }
    }
}

pub(super) fn copy_out(
    warp: &mut Warp,
    frame: usize,
    lanes: u32,
    base: u32,
    result: Argument,
    formal: FormalParameter,
) {
    let from = (base + formal.offset) as usize;
    match result {
        Argument::Nothing => {}
        Argument::Frame { offset, bytes } => {
            let to = (warp.frame(frame).local_base + offset) as usize;
            for lane in lanes_of(lanes) {
                warp.local[lane].copy_within(from..from + bytes as usize, to);
            }
        }
        Argument::Register(place) => {
            let bytes = formal.bytes.min(8) as usize;
            let mut values = [0u64; LANES];
            for lane in lanes_of(lanes) {
                let mut word = [0; 8];
                word[..bytes].copy_from_slice(&warp.local[lane][from..from + bytes]);
                values[lane] = u64::from_le_bytes(word);
            }
            warp.frame_mut(frame).write(place, lanes, &values);
        }
    }
}
