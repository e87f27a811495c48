//! The list of opcodes, each with the family that lowers it.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::syntax::tree::Operand;

/// Returns the first target that supports an instruction.
fn first_target(opcode: &str) -> u32 {
    match opcode {
        "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vmad" | "vset" => 20,
        "vadd2" | "vsub2" | "vavrg2" | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" | "vadd4" | "vsub4" | "vavrg4"
        | "vabsdiff4" | "vmin4" | "vmax4" | "vset4" => 30,
        "lop3" => 50,
        "dp4a" | "dp2a" => 61,
        "match" | "nanosleep" | "bmsk" | "szext" | "mma" | "wmma" => 70,
        "ldmatrix" | "movmatrix" => 75,
        "redux" | "mbarrier" | "cp" | "discard" | "applypriority" | "createpolicy" => 80,
        "elect" | "mapa" | "getctarank" | "griddepcontrol" | "setmaxnreg" | "stmatrix" | "tensormap" | "wgmma" => 90,
        _ => 0,
    }
}

impl<'m> Builder<'_, 'm> {
    /// Lowers one instruction.
    pub(super) fn select(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let (target, since) = (self.unit.module.target, first_target(opcode));
        if target < since {
            return Err(self.error(format!("'{opcode}' needs sm_{since} or higher, but the target is sm_{target}")));
        }
        match opcode {
            "add" | "sub" => self.sum(opcode, modifiers, operands),
            "addc" | "subc" => self.carried_sum(opcode, modifiers, operands, true),
            "mul" => self.product(modifiers, operands),
            "mad" | "fma" => self.mad(opcode, modifiers, operands),
            "madc" => self.carried_mad(modifiers, operands),
            "div" | "rem" | "min" | "max" => self.two_operands(opcode, modifiers, operands),
            "neg" | "abs" | "sqrt" | "rsqrt" | "rcp" | "sin" | "cos" | "ex2" | "lg2" | "tanh" => {
                self.one_operand(opcode, modifiers, operands)
            }
            "copysign" => self.copysign(modifiers, operands),
            "sad" => self.sad(modifiers, operands),
            "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vmad" | "vset" | "vadd2" | "vsub2"
            | "vavrg2" | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" | "vadd4" | "vsub4" | "vavrg4" | "vabsdiff4"
            | "vmin4" | "vmax4" | "vset4" => self.video(opcode, modifiers, operands),
            "and" | "or" | "xor" => self.logic(opcode, modifiers, operands),
            "not" | "cnot" => self.complement(opcode, modifiers, operands),
            "setp" => self.setp(modifiers, operands),
            "set" => self.set(modifiers, operands),
            "selp" => self.selp(modifiers, operands),
            "slct" => self.slct(modifiers, operands),
            "testp" => self.testp(modifiers, operands),
            "shl" | "shr" | "shf" | "lop3" | "bfe" | "bfi" | "bfind" | "brev" | "clz" | "popc" | "prmt" | "mul24"
            | "mad24" | "dp4a" | "dp2a" | "szext" | "bmsk" | "fns" => self.bit_operation(opcode, modifiers, operands),
            "mov" => self.mov(modifiers, operands),
            "cvt" => self.cvt(modifiers, operands),
            "cvta" => self.cvta(modifiers, operands),
            "isspacep" => self.isspacep(modifiers, operands),
            "ld" | "ldu" | "st" | "atom" | "red" | "membar" | "fence" | "prefetch" | "prefetchu" | "cp" | "discard"
            | "applypriority" | "createpolicy" | "mapa" | "getctarank" => {
                self.memory_access(opcode, modifiers, operands)
            }
            "bar" | "barrier" | "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => {
                self.warp_operation(opcode, modifiers, operands)
            }
            "tex" | "tld4" | "suld" | "sust" | "txq" | "suq" => self.texture_operation(opcode, modifiers, operands),
            "mbarrier" => self.mbarrier(modifiers, operands),
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "nanosleep" | "pmevent" | "setmaxnreg"
            | "griddepcontrol" => self.control(opcode, modifiers, operands),
            "mma" | "wmma" | "ldmatrix" | "stmatrix" | "movmatrix" => {
                self.matrix_operation(opcode, modifiers, operands)
            }
            "tensormap" => self.tensor_map(modifiers, operands),
            "wgmma" => self.group_matrix_operation(modifiers, operands),
            "sured"
            | "istypep"
            | "multimem"
            | "alloca"
            | "stacksave"
            | "stackrestore"
            | "tcgen05"
            | "clusterlaunchcontrol"
            | "bmma"
            | "sparse" => Err(self.unsupported(format!("'{opcode}' is not supported"))),
            _ => Err(self.error(format!("unknown instruction '{opcode}'"))),
        }
    }
}
