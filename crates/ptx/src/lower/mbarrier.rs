//! Lowers operations on barriers in shared memory.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::ir::{Mbarrier, MbarrierOp, MemorySpace, Op};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn mbarrier(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        const ACTIONS: [&str; 9] = [
            "init",
            "inval",
            "arrive",
            "arrive_drop",
            "expect_tx",
            "complete_tx",
            "test_wait",
            "try_wait",
            "pending_count",
        ];
        let action = modifiers.take(|word| ACTIONS.iter().find(|&&known| known == word).copied());
        let action = action.ok_or_else(|| self.error("unknown instruction on a barrier"))?;
        let space = modifiers.space().unwrap_or(MemorySpace::Generic);
        modifiers.memory_qualifiers();
        let (expects, parity) = (modifiers.has("expect_tx"), modifiers.has("parity"));
        let _no_complete = modifiers.has("noComplete");
        if modifiers.ty() != Some(Type::B64) {
            return Err(self.error("the type of an mbarrier must be .b64"));
        }
        let (at, op) = match (action, operands) {
            ("pending_count", [to, state]) => {
                let op = MbarrierOp::PendingCount {
                    state: self.wide(state, Type::B64)?,
                    to: self.narrow_target(to, Type::U32)?,
                };
                return self.emit_mbarrier(MemorySpace::Shared, None, op);
            }
            ("init", [at, count]) => (at, MbarrierOp::Init { count: self.narrow(count, Type::U32)? }),
            ("inval", [at]) => (at, MbarrierOp::Invalidate),
            ("expect_tx", [at, bytes]) => (at, MbarrierOp::ExpectBytes { bytes: self.narrow(bytes, Type::U32)? }),
            ("complete_tx", [at, bytes]) => (at, MbarrierOp::CompleteBytes { bytes: self.narrow(bytes, Type::U32)? }),
            ("arrive" | "arrive_drop", [state, at, rest @ ..]) if rest.len() <= 1 => {
                let state = match state {
                    Operand::Sink => None,
                    _ if space == MemorySpace::Cluster => {
                        return Err(
                            self.error_at(state, "expected '_': the state of another block's mbarrier is not returned")
                        );
                    }
                    _ => Some(self.wide_target(state, Type::B64)?),
                };
                let number = rest.first().map(|number| self.narrow(number, Type::U32)).transpose()?;
                let (count, expect) = if expects { (None, number) } else { (number, None) };
                (at, MbarrierOp::Arrive { state, count, drop: action == "arrive_drop", expect })
            }
            ("arrive" | "arrive_drop", [at]) => {
                (at, MbarrierOp::Arrive { state: None, count: None, drop: action == "arrive_drop", expect: None })
            }
            ("test_wait" | "try_wait", [to, at, what, ..]) if operands.len() <= 4 => {
                let to = self.written_predicate(to)?;
                let op = match parity {
                    true => MbarrierOp::TestParity { to, parity: self.narrow(what, Type::U32)? },
                    false => MbarrierOp::TestState { to, state: self.wide(what, Type::B64)? },
                };
                (at, op)
            }
            _ => return Err(self.error(format!("expected the operands {}", accepted_operands(action)))),
        };
        self.emit_mbarrier(space, Some(at), op)?;
        if action == "try_wait" {
            self.emit(Op::Yield);
        }
        Ok(())
    }

    pub(super) fn emit_mbarrier(
        &mut self,
        space: MemorySpace,
        at: Option<&Operand<'m>>,
        op: MbarrierOp,
    ) -> Result<(), Error> {
        let at = match at {
            Some(at) => self.address(at, space)?,
            None => crate::ir::Address { base: self.constant_wide(crate::ir::Constant::Bits(0)), offset: 0 },
        };
        self.emit(Op::Mbarrier(Box::new(Mbarrier { space, at, op })));
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`: all copies are already done, so it just arrives. Without `.noinc`, the expected
    /// count would rise by the same number, so nothing changes.
    pub(super) fn cp_async_mbarrier_arrive(
        &mut self,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let _arrive = modifiers.has("arrive");
        let counts = modifiers.has("noinc");
        let space = modifiers.space().unwrap_or(MemorySpace::Generic);
        let _b64 = modifiers.ty();
        let [at] = self.operands(operands)?;
        if counts {
            let op = MbarrierOp::Arrive { state: None, count: None, drop: false, expect: None };
            return self.emit_mbarrier(space, Some(at), op);
        }
        self.address(at, space).map(|_| ())
    }
}

/// Returns the operands that an action on a barrier accepts.
fn accepted_operands(action: &str) -> &'static str {
    match action {
        "init" => "'[a], count'",
        "inval" => "'[a]'",
        "expect_tx" | "complete_tx" => "'[a], bytes'",
        "arrive" | "arrive_drop" => "'[a]', 'state, [a]' or 'state, [a], count'",
        "test_wait" | "try_wait" => "'p, [a], state', or with '.parity' 'p, [a], parity'",
        _ => "'count, state'",
    }
}
