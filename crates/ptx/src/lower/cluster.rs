//! Lowers instructions of clusters: their barrier, and addresses of shared memory of other blocks.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::ir::{MemorySpace, Op};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    /// `barrier.cluster.arrive` and `barrier.cluster.wait`
    pub(super) fn cluster_barrier(
        &mut self,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let target = self.unit.module.target;
        if target < 90 {
            return Err(self.error(format!("'barrier.cluster' needs sm_90 or higher, but the target is sm_{target}")));
        }
        let [] = self.operands(operands)?;
        let _aligned = modifiers.has("aligned");
        let op = match (modifiers.has("arrive"), modifiers.has("wait")) {
            (true, false) => {
                let _order = modifiers.has_any(&["release", "relaxed"]);
                Op::ClusterArrive
            }
            (false, true) => {
                let _order = modifiers.has("acquire");
                Op::ClusterWait
            }
            _ => return Err(self.error("expected '.arrive' or '.wait'")),
        };
        self.emit(op);
        Ok(())
    }

    /// Returns whether the addresses of `mapa` and `getctarank` are generic, and their type.
    fn cluster_address(&mut self, modifiers: &mut Modifiers<'m>) -> Result<(bool, Type), Error> {
        let is_generic = match modifiers.space() {
            None => true,
            Some(MemorySpace::Cluster) => false,
            Some(_) => return Err(self.error("expected '.shared::cluster' or no space")),
        };
        let ty = self.some_type(modifiers)?;
        if !matches!(ty, Type::U32 | Type::U64) || is_generic && ty == Type::U32 {
            return Err(self.wrong_type(ty));
        }
        Ok((is_generic, ty))
    }

    pub(super) fn map_rank(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let (is_generic, ty) = self.cluster_address(modifiers)?;
        let [to, from, rank] = self.operands(operands)?;
        let (from, rank) = (self.source(from, ty)?, self.narrow(rank, Type::U32)?);
        let to = self.target(to, ty)?;
        self.emit(Op::MapRank { is_generic, to, from, rank });
        Ok(())
    }

    pub(super) fn rank_of(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let (is_generic, ty) = self.cluster_address(modifiers)?;
        let [to, from] = self.operands(operands)?;
        let from = self.source(from, ty)?;
        let to = self.narrow_target(to, Type::U32)?;
        self.emit(Op::RankOf { is_generic, to, from });
        Ok(())
    }
}
