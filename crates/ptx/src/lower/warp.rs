//! Lowers instructions that synchronize threads: barriers of the thread block, and operations across a warp.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::ir::{Barrier, BarrierKind, BarrierReduce, Op, ReduceOp, ShuffleMode, Slot, VoteMode};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn warp_operation(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        match opcode {
            "bar" if modifiers.has("warp") => {
                if !modifiers.has("sync") {
                    return Err(self.error("expected '.sync'"));
                }
                let [members] = self.operands(operands)?;
                let members = self.narrow(members, Type::B32)?;
                self.emit(Op::WarpBarrier { members });
                Ok(())
            }
            "bar" | "barrier" => self.barrier(opcode, modifiers, operands),
            "shfl" => self.shuffle(modifiers, operands),
            "vote" => self.vote(modifiers, operands),
            "match" => self.match_lanes(modifiers, operands),
            "redux" => self.redux(modifiers, operands),
            "activemask" => {
                let ty = self.some_type(modifiers)?;
                if ty != Type::B32 {
                    return Err(self.wrong_type(ty));
                }
                let [to] = self.operands(operands)?;
                let to = self.narrow_target(to, Type::B32)?;
                self.emit(Op::ActiveMask { to });
                Ok(())
            }
            _ => self.elect(modifiers, operands),
        }
    }

    fn barrier(&mut self, opcode: &str, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        if modifiers.has("cluster") {
            return self.cluster_barrier(modifiers, operands);
        }
        let _of_block = modifiers.has("cta");
        // All threads of a warp execute the same `bar`, and the same `barrier.aligned`.
        let is_aligned = modifiers.has("aligned") || opcode == "bar";
        let kind = modifiers.take(|word| ["sync", "arrive", "red"].iter().find(|&&known| known == word).copied());
        let (id, threads, kind) = match (kind, operands) {
            (Some("sync"), [id]) => (id, None, BarrierKind::Sync),
            (Some("sync"), [id, threads]) => (id, Some(threads), BarrierKind::Sync),
            (Some("arrive"), [id, threads]) => (id, Some(threads), BarrierKind::Arrive),
            (Some("red"), [to, id, rest @ ..]) => {
                let (threads, predicate) = match rest {
                    [predicate] => (None, predicate),
                    [threads, predicate] => (Some(threads), predicate),
                    _ => return Err(self.error("expected the operands 'd, a, p' or 'd, a, b, p'")),
                };
                let op = modifiers.take(|word| match word {
                    "popc" => Some(BarrierReduce::Count),
                    "and" => Some(BarrierReduce::And),
                    "or" => Some(BarrierReduce::Or),
                    _ => None,
                });
                let op = op.ok_or_else(|| self.error("expected '.popc', '.and' or '.or'"))?;
                let to = match op {
                    BarrierReduce::Count => self.target(to, Type::U32)?,
                    _ => crate::ir::Reg::Predicate(self.written_predicate(to)?),
                };
                let _type = modifiers.ty();
                let (predicate, negated) = self.predicate(predicate)?;
                (id, threads, BarrierKind::Reduce { op, to, predicate, negated })
            }
            _ => return Err(self.error("expected '.sync a', '.sync a, b', '.arrive a, b', or '.red' with 'd, a, p'")),
        };
        if let Operand::Integer(16..) = id {
            return Err(self.error_at(id, "the number of a barrier must be between 0 and 15"));
        }
        if let Some(threads @ Operand::Integer(count)) = threads
            && count % 32 != 0
        {
            return Err(self.error_at(threads, format!("{count} threads are not a multiple of 32")));
        }
        let id = self.narrow(id, Type::U32)?;
        let threads = threads.map(|threads| self.narrow(threads, Type::U32)).transpose()?;
        self.emit(Op::Barrier(Box::new(Barrier { id, threads, kind, is_aligned })));
        Ok(())
    }

    fn shuffle(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let sync = modifiers.has("sync");
        let mode = modifiers.take(|word| {
            Some(match word {
                "up" => ShuffleMode::Up,
                "down" => ShuffleMode::Down,
                "bfly" => ShuffleMode::Butterfly,
                "idx" => ShuffleMode::Index,
                _ => return None,
            })
        });
        let mode = mode.ok_or_else(|| self.error("expected '.up', '.down', '.bfly' or '.idx'"))?;
        let ty = self.some_type(modifiers)?;
        if ty != Type::B32 {
            return Err(self.wrong_type(ty));
        }
        self.check_sync("shfl", sync)?;
        let (to, a, b, c, members) = match (sync, operands) {
            (true, [to, a, b, c, members]) => (to, a, b, c, Some(members)),
            (false, [to, a, b, c]) => (to, a, b, c, None),
            _ => return Err(self.error("expected the operands 'd, a, b, c', and with '.sync' 'membermask'")),
        };
        let (to, valid) = self.with_predicate(to, ty)?;
        let (a, b, c) = (self.narrow(a, ty)?, self.narrow(b, Type::B32)?, self.narrow(c, Type::B32)?);
        let members = self.members(members)?;
        self.emit(Op::Shuffle { mode, to, valid, a, b, c, members });
        Ok(())
    }

    fn members(&mut self, operand: Option<&Operand<'m>>) -> Result<Option<Slot>, Error> {
        operand.map(|operand| self.narrow(operand, Type::B32)).transpose()
    }

    /// `d` or `d|p`.
    fn with_predicate(&mut self, to: &Operand<'m>, ty: Type) -> Result<(Slot, Option<Slot>), Error> {
        match to {
            Operand::Pair(pair) => Ok((self.narrow_target(&pair.0, ty)?, self.predicate_target(&pair.1)?)),
            _ => Ok((self.narrow_target(to, ty)?, None)),
        }
    }

    /// Checks that an instruction states the lanes that take part, where the target demands it.
    fn check_sync(&self, opcode: &str, sync: bool) -> Result<(), Error> {
        let module = self.unit.module;
        match sync || module.target < 70 || module.version < (6, 4) {
            true => Ok(()),
            false => Err(self.error(format!("'{opcode}' needs '.sync' for sm_70 and higher"))),
        }
    }

    fn vote(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let sync = modifiers.has("sync");
        let mode = modifiers.take(|word| {
            Some(match word {
                "all" => VoteMode::All,
                "any" => VoteMode::Any,
                "uni" => VoteMode::Uniform,
                "ballot" => VoteMode::Ballot,
                _ => return None,
            })
        });
        let mode = mode.ok_or_else(|| self.error("expected '.all', '.any', '.uni' or '.ballot'"))?;
        let ty = self.some_type(modifiers)?;
        if ty != if mode == VoteMode::Ballot { Type::B32 } else { Type::Pred } {
            return Err(self.wrong_type(ty));
        }
        self.check_sync("vote", sync)?;
        let (to, predicate, members) = match (sync, operands) {
            (true, [to, predicate, members]) => (to, predicate, Some(members)),
            (false, [to, predicate]) => (to, predicate, None),
            _ => return Err(self.error("expected the operands 'd, a', and with '.sync' 'membermask'")),
        };
        let (predicate, negated) = self.predicate(predicate)?;
        let members = self.members(members)?;
        let to = match mode {
            VoteMode::Ballot => self.narrow_target(to, Type::B32)?,
            _ => self.written_predicate(to)?,
        };
        self.emit(Op::Vote { mode, to, predicate, negated, members });
        Ok(())
    }

    fn match_lanes(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let all = modifiers.has("all");
        if !all && !modifiers.has("any") {
            return Err(self.error("expected '.any' or '.all'"));
        }
        if !modifiers.has("sync") {
            return Err(self.error("expected '.sync'"));
        }
        let ty = self.some_type(modifiers)?;
        if !matches!(ty, Type::B32 | Type::B64) {
            return Err(self.wrong_type(ty));
        }
        let [to, from, members] = self.operands(operands)?;
        if let (false, Operand::Pair(_)) = (all, to) {
            return Err(self.error_at(to, "'match.any' has no predicate as a result"));
        }
        let (to, valid) = self.with_predicate(to, Type::B32)?;
        let (from, members) = (self.source(from, ty)?, self.narrow(members, Type::B32)?);
        self.emit(Op::Match { all, to, valid, from, members });
        Ok(())
    }

    fn redux(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        if !modifiers.has("sync") {
            return Err(self.error("expected '.sync'"));
        }
        let name = modifiers
            .take(|word| ["add", "min", "max", "and", "or", "xor"].iter().find(|&&known| known == word).copied());
        let ty = self.some_type(modifiers)?;
        let op = match (name, ty) {
            (Some("add"), Type::U32 | Type::S32) => ReduceOp::Add,
            (Some("min"), Type::U32) => ReduceOp::MinUnsigned,
            (Some("min"), Type::S32) => ReduceOp::MinSigned,
            (Some("max"), Type::U32) => ReduceOp::MaxUnsigned,
            (Some("max"), Type::S32) => ReduceOp::MaxSigned,
            (Some("and"), Type::B32) => ReduceOp::And,
            (Some("or"), Type::B32) => ReduceOp::Or,
            (Some("xor"), Type::B32) => ReduceOp::Xor,
            _ => return Err(self.wrong_type(ty)),
        };
        let [to, from, members] = self.operands(operands)?;
        let (from, members) = (self.narrow(from, ty)?, self.narrow(members, Type::B32)?);
        let to = self.narrow_target(to, ty)?;
        self.emit(Op::Reduce { op, to, from, members });
        Ok(())
    }

    fn elect(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        if !modifiers.has("sync") {
            return Err(self.error("expected '.sync'"));
        }
        let [to, members] = self.operands(operands)?;
        let Operand::Pair(pair) = to else { return Err(self.error("expected 'd|p'")) };
        let to = match &pair.0 {
            Operand::Sink => None,
            to => Some(self.narrow_target(to, Type::B32)?),
        };
        let elected = self.written_predicate(&pair.1)?;
        let members = self.narrow(members, Type::B32)?;
        self.emit(Op::Elect { to, elected, members });
        Ok(())
    }
}
