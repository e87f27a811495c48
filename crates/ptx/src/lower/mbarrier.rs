//! Barriers that live in shared memory.

use super::function::Builder;
use super::words::Words;
use crate::error::Error;
use crate::program::{BarrierWord, BarrierWordOp, MemorySpace, Op};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn mbarrier(&mut self, words: &mut Words<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        const ACTIONS: [&str; 10] = [
            "init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "test_wait", "try_wait",
            "pending_count", "cluster",
        ];
        let action = words.take(|word| ACTIONS.iter().find(|&&known| known == word).copied());
        let action = action.ok_or_else(|| self.error("unknown instruction on a barrier"))?;
        let remote = words.has("shared::cluster");
        let space = words.space().unwrap_or(if remote { MemorySpace::Shared } else { MemorySpace::Generic });
        words.skip_memory_qualifiers();
        let (expects, parity) = (words.has("expect_tx"), words.has("parity"));
        let _no_complete = words.has("noComplete");
        if words.ty() != Some(Type::B64) {
            return Err(self.error("a barrier has .b64"));
        }
        let (at, op) = match (action, operands) {
            ("pending_count", [to, state]) => {
                let op = BarrierWordOp::PendingCount {
                    state: self.wide(state, Type::B64)?,
                    to: self.narrow_target(to, Type::U32)?,
                };
                return self.emit_barrier_word(MemorySpace::Shared, None, op);
            }
            ("init", [at, count]) => (at, BarrierWordOp::Init { count: self.narrow(count, Type::U32)? }),
            ("inval", [at]) => (at, BarrierWordOp::Invalidate),
            ("expect_tx", [at, bytes]) => (at, BarrierWordOp::ExpectBytes { bytes: self.narrow(bytes, Type::U32)? }),
            ("complete_tx", [at, bytes]) => (at, BarrierWordOp::CompleteBytes { bytes: self.narrow(bytes, Type::U32)? }),
            ("arrive" | "arrive_drop", [state, at, rest @ ..]) if rest.len() <= 1 => {
                let state = match state {
                    Operand::Sink => None,
                    _ => Some(self.wide_target(state, Type::B64)?),
                };
                let number = rest.first().map(|number| self.narrow(number, Type::U32)).transpose()?;
                let (count, expect) = if expects { (None, number) } else { (number, None) };
                (at, BarrierWordOp::Arrive { state, count, drop: action == "arrive_drop", expect })
            }
            ("arrive" | "arrive_drop", [at]) => {
                (at, BarrierWordOp::Arrive { state: None, count: None, drop: action == "arrive_drop", expect: None })
            }
            ("test_wait" | "try_wait", [to, at, what, ..]) if operands.len() <= 4 => {
                let to = self.written_predicate(to)?;
                let op = match parity {
                    true => BarrierWordOp::TestParity { to, parity: self.narrow(what, Type::U32)? },
                    false => BarrierWordOp::TestState { to, state: self.wide(what, Type::B64)? },
                };
                (at, op)
            }
            _ => return Err(self.error("wrong operands")),
        };
        self.emit_barrier_word(space, Some(at), op)?;
        if action == "try_wait" {
            self.emit(Op::Yield);
        }
        Ok(())
    }

    fn emit_barrier_word(
        &mut self,
        space: MemorySpace,
        at: Option<&Operand<'m>>,
        op: BarrierWordOp,
    ) -> Result<(), Error> {
        let at = match at {
            Some(at) => self.address(at, space)?,
            None => crate::program::Address {
                base: self.constant_wide(crate::program::Constant::Bits(0)),
                offset: 0,
            },
        };
        self.emit(Op::BarrierWord(Box::new(BarrierWord { space, at, op })));
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`: all copies are done already, so it arrives. Without `.noinc` the expected count
    /// rises by what arrives, and nothing changes.
    pub(super) fn copy_arrives(&mut self, words: &mut Words<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let _arrive = words.has("arrive");
        let counts = words.has("noinc");
        let space = words.space().unwrap_or(MemorySpace::Generic);
        let _b64 = words.ty();
        let [at] = self.operands(operands)?;
        if counts {
            let op = BarrierWordOp::Arrive { state: None, count: None, drop: false, expect: None };
            return self.emit_barrier_word(space, Some(at), op);
        }
        self.address(at, space).map(|_| ())
    }
}
