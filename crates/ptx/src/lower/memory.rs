//! Lowers loads, stores, atomics and fences.

use super::function::Builder;
use super::modifiers::Modifiers;
use super::scope::Variable;
use crate::arith::half::Half;
use crate::error::Error;
use crate::ir::{Atomic, AtomicKind, AtomicOp, MbarrierOp, MemorySpace, Op};
use crate::observer::{Ordering, Scope};
use crate::syntax::tree::{Base, Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn memory_access(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let operands = self.without_policy(modifiers, operands)?;
        match opcode {
            "createpolicy" => self.create_policy(modifiers, operands),
            "applypriority" | "discard" => self.cache_lines(opcode, modifiers, operands),
            "ld" | "ldu" => self.load(modifiers, operands),
            "st" => self.store(modifiers, operands),
            "atom" | "red" => self.atomic(opcode, modifiers, operands),
            "membar" | "fence" => self.fence(modifiers, operands),
            "cp" => self.copy(modifiers, operands),
            "mapa" => self.map_rank(modifiers, operands),
            "getctarank" => self.rank_of(modifiers, operands),
            "prefetch" | "prefetchu" => {
                let _hint = modifiers.space();
                if !modifiers.has_any(&["L1", "L2", "L2::evict_last", "L2::evict_normal", "tensormap"]) {
                    return Err(self.error("expected a cache"));
                }
                let [at] = self.operands(operands)?;
                // The address is checked, but nothing is read.
                self.address(at, MemorySpace::Generic).map(|_| ())
            }
            _ => Err(self.unsupported(format!("'{opcode}' is not supported"))),
        }
    }

    /// Takes the cache policy after the other operands. Caches are not modelled.
    fn without_policy<'o>(
        &mut self,
        modifiers: &mut Modifiers<'m>,
        operands: &'o [Operand<'m>],
    ) -> Result<&'o [Operand<'m>], Error> {
        if !modifiers.has("L2::cache_hint") {
            return Ok(operands);
        }
        let Some((policy, rest)) = operands.split_last() else { return Err(self.error("expected a cache policy")) };
        self.wide(policy, Type::B64)?;
        Ok(rest)
    }

    /// `createpolicy`: the value of a policy is opaque.
    fn create_policy(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let kind = modifiers.take(|word| ["fractional", "range", "cvt"].iter().find(|&&known| known == word).copied());
        let _space = modifiers.has("global");
        while modifiers.take(|word| (word == "L2" || word.starts_with("L2::")).then_some(())).is_some() {}
        if modifiers.ty() != Some(Type::B64) {
            return Err(self.error("expected '.b64'"));
        }
        let to = match (kind, operands) {
            (Some("fractional"), [to]) => to,
            (Some("fractional"), [to, fraction]) => {
                self.narrow(fraction, Type::F32)?;
                to
            }
            (Some("range"), [to, at, primary, total]) => {
                self.address(at, MemorySpace::Global)?;
                self.narrow(primary, Type::B32)?;
                self.narrow(total, Type::B32)?;
                to
            }
            (Some("cvt"), [to, property]) => {
                self.wide(property, Type::B64)?;
                to
            }
            _ => return Err(self.error("expected '.fractional d', '.range d, [a], size, size' or '.cvt d, property'")),
        };
        let from = self.constant_wide(crate::ir::Constant::Bits(0));
        let to = self.target(to, Type::B64)?;
        self.emit_move(to, from)
    }

    /// `applypriority` and `discard` of a line of 128 bytes. What is discarded may stay as it is.
    fn cache_lines(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let _space = modifiers.has("global");
        let level = if opcode == "discard" { "L2" } else { "L2::evict_normal" };
        if !modifiers.has(level) {
            return Err(self.error(format!("expected '.{level}'")));
        }
        let [at, Operand::Integer(128)] = operands else { return Err(self.error("expected the operands '[a], 128'")) };
        self.address(at, MemorySpace::Generic).map(|_| ())
    }

    /// Checks that an access has the order and the scope that its kind can have.
    fn check_order(&self) -> Result<(), Error> {
        let Some(instruction) = self.current else { return Ok(()) };
        let find = |known: &[&str]| instruction.modifiers.iter().copied().find(|word| known.contains(word));
        let (opcode, wrong): (_, &[&str]) = match instruction.opcode {
            "ld" => ("ld", &["release", "acq_rel", "sc"]),
            "st" => ("st", &["acquire", "acq_rel", "sc"]),
            "red" => ("red", &["acquire", "acq_rel", "sc"]),
            _ => return Ok(()),
        };
        if let Some(word) = find(wrong) {
            return Err(self.error_in_name(word, format!("'.{word}' is not allowed on '{opcode}'")));
        }
        let (order, scope) = (find(&["relaxed", "acquire", "release"]), find(&["cta", "cluster", "gpu", "sys"]));
        match (order, scope) {
            _ if opcode == "red" => Ok(()),
            (Some(order), None) => {
                Err(self
                    .error_in_name(order, format!("'.{order}' needs a scope: '.cta', '.cluster', '.gpu' or '.sys'")))
            }
            (None, Some(scope)) => {
                Err(self.error_in_name(scope, format!("'.{scope}' needs an order such as '.relaxed'")))
            }
            _ => Ok(()),
        }
    }

    /// Checks that values of a type can be loaded and stored as such.
    fn check_access_type(&self, ty: Type) -> Result<(), Error> {
        match ty {
            Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2 => Err(self.wrong_type(ty)),
            _ => Ok(()),
        }
    }

    fn load(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        self.check_order()?;
        let space = self.access_space(modifiers)?;
        self.ordering = modifiers.memory_qualifiers();
        let vector = modifiers.vector();
        let ty = self.some_type(modifiers)?;
        self.check_access_type(ty)?;
        let [to, at] = self.operands(operands)?;
        if ty == Type::B128 && vector == 1 {
            return self.load_pair(space, to, at);
        }
        let (width, signed) = (self.width(ty)?, ty.is_signed());
        if vector > 1 {
            self.check_vector(vector, ty)?;
            let regs = self.target_vector(to, ty, vector)?;
            let (space, at) = self.access_address(at, space)?;
            self.emit(Op::LoadVector { space, width, signed, to: regs, at });
            self.truncate_signed(to, ty);
            return Ok(());
        }
        // The assembler accepts a single element in braces.
        let register = match to {
            Operand::Vector(parts) if parts.len() == 1 => &parts[0],
            Operand::Sink => return Err(self.error_at(to, "a load of one element needs a register")),
            _ => to,
        };
        let to = self.target_as(register, ty, true)?;
        if let Operand::Address { base: Base::Name(name), offset } = at
            && matches!(space, MemorySpace::Param | MemorySpace::Generic)
            && let Some(Variable::Kernel { offset: start }) = self.find_variable(name)
            && !self.is_register(name)
        {
            let Ok(offset) = u32::try_from(i64::from(start).wrapping_add(*offset)) else {
                return Err(self.error("the address lies outside the parameters"));
            };
            self.emit(Op::LoadParameter { width, signed, to, offset });
        } else {
            let (space, at) = self.access_address(at, space)?;
            self.emit(Op::Load { space, width, signed, to, at });
        }
        self.truncate_signed(register, ty);
        Ok(())
    }

    fn store(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let Some((operands, barrier)) = self.async_operands(modifiers, operands)? else {
            return self.store_now(modifiers, operands);
        };
        // The store is complete when the instruction is.
        let vector = modifiers.clone().vector() as u32;
        let ty = modifiers.clone().ty().map_or(0, Type::bytes);
        self.store_now(modifiers, operands)?;
        self.complete_bytes(barrier, vector * ty)
    }

    /// Returns the operands and the barrier of an asynchronous instruction, and nothing for another one.
    fn async_operands<'o>(
        &self,
        modifiers: &mut Modifiers<'m>,
        operands: &'o [Operand<'m>],
    ) -> Result<Option<(&'o [Operand<'m>], &'o Operand<'m>)>, Error> {
        if !modifiers.has("async") {
            return Ok(None);
        }
        if !modifiers.has("mbarrier::complete_tx::bytes") {
            return Err(self.unsupported("an asynchronous store without an mbarrier"));
        }
        match operands {
            [rest @ .., barrier] if rest.len() == 2 => Ok(Some((rest, barrier))),
            _ => Err(self.error("expected the operands '[a], b, [mbar]'")),
        }
    }

    /// Completes bytes at a barrier of the cluster.
    fn complete_bytes(&mut self, barrier: &Operand<'m>, bytes: u32) -> Result<(), Error> {
        self.ordering = None;
        let bytes = self.constant_narrow(bytes);
        self.emit_mbarrier(MemorySpace::Cluster, Some(barrier), MbarrierOp::CompleteBytes { bytes })
    }

    fn store_now(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        self.check_order()?;
        let space = self.access_space(modifiers)?;
        self.ordering = modifiers.memory_qualifiers();
        let vector = modifiers.vector();
        let ty = self.some_type(modifiers)?;
        self.check_access_type(ty)?;
        let [at, from] = self.operands(operands)?;
        if matches!(space, MemorySpace::Const) {
            return Err(self.error("constant memory cannot be written"));
        }
        if let Operand::Address { base: Base::Name(name), .. } = at
            && let Some(Variable::Kernel { .. }) = self.find_variable(name)
            && !self.is_register(name)
        {
            return Err(
                self.error_in_name(name, format!("'{name}' is a parameter of the kernel, which cannot be written"))
            );
        }
        if ty == Type::B128 && vector == 1 {
            return self.store_pair(space, at, from);
        }
        let width = self.width(ty)?;
        if vector > 1 {
            self.check_vector(vector, ty)?;
            let from = self.source_vector(from, ty, vector)?;
            let (space, at) = self.access_address(at, space)?;
            self.emit(Op::StoreVector { space, width, from, at });
            return Ok(());
        }
        let from = match from {
            Operand::Vector(parts) if parts.len() == 1 => self.source_as(&parts[0], ty, true)?,
            _ => self.source_as(from, ty, true)?,
        };
        let (space, at) = self.access_address(at, space)?;
        self.emit(Op::Store { space, width, from, at });
        Ok(())
    }

    fn access_space(&self, modifiers: &mut Modifiers<'m>) -> Result<MemorySpace, Error> {
        Ok(modifiers.space().unwrap_or(MemorySpace::Generic))
    }

    fn check_vector(&self, count: usize, ty: Type) -> Result<(), Error> {
        let module = self.unit.module;
        let bits = ty.bits() as usize * count;
        if bits > 256 {
            return Err(self.error(format!("a vector of {bits} bits is too large")));
        }
        if bits > 128 && (module.version < (8, 8) || module.target < 100) {
            return Err(self.error(format!("a vector of {bits} bits needs '.version 8.8' and sm_100 or higher")));
        }
        Ok(())
    }

    /// Parameters of functions are in the frame.
    pub(super) fn access_address(
        &mut self,
        at: &Operand<'m>,
        space: MemorySpace,
    ) -> Result<(MemorySpace, crate::ir::Address), Error> {
        if space == MemorySpace::Param
            && let Operand::Address { base: Base::Name(name), .. } = at
            && !self.is_register(name)
            && let Some(Variable::Frame { offset, is_param: true, .. }) = self.find_variable(name)
        {
            let base = self.constant_wide(crate::ir::Constant::Local { offset, generic: false });
            let Operand::Address { offset, .. } = *at else { unreachable!("not an address") };
            return Ok((MemorySpace::Local, crate::ir::Address { base, offset }));
        }
        let at = self.address(at, space)?;
        Ok((if space == MemorySpace::Param { MemorySpace::Generic } else { space }, at))
    }

    fn atomic(&mut self, opcode: &str, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let Some((operands, barrier)) = self.async_operands(modifiers, operands)? else {
            return self.atomic_now(opcode, modifiers, operands);
        };
        let bytes = modifiers.clone().ty().map_or(0, Type::bytes);
        self.atomic_now(opcode, modifiers, operands)?;
        self.complete_bytes(barrier, bytes)
    }

    fn atomic_now(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        self.check_order()?;
        let space = self.access_space(modifiers)?;
        self.ordering = modifiers.memory_qualifiers();
        let op = self.atomic_op(modifiers)?;
        let _noftz = modifiers.has("noftz");
        let vector = modifiers.vector();
        let ty = self.some_type(modifiers)?;
        if ty == Type::B128 && vector == 1 && opcode == "atom" {
            if !is_atomic_space(space) {
                return Err(self.error(ATOMIC_SPACES));
            }
            return self.atomic_pair(op, space, operands);
        }
        let kind = self.atomic_kind(op, ty)?;
        let (to, at, operand, swap) = match (opcode, op, operands) {
            ("atom", AtomicOp::CompareExchange, [to, at, compare, swap]) => (Some(to), at, compare, Some(swap)),
            ("atom", _, [to, at, operand]) if op != AtomicOp::CompareExchange => (Some(to), at, operand, None),
            ("red", _, [at, operand]) if !matches!(op, AtomicOp::CompareExchange | AtomicOp::Exchange) => {
                (None, at, operand, None)
            }
            ("atom", AtomicOp::CompareExchange, _) => return Err(self.error("expected the operands 'd, [a], b, c'")),
            ("atom", ..) => return Err(self.error("expected the operands 'd, [a], b'")),
            (_, AtomicOp::CompareExchange | AtomicOp::Exchange, _) => {
                return Err(self.error("'red' has no '.cas' or '.exch': use 'atom'"));
            }
            _ => return Err(self.error("expected the operands '[a], b'")),
        };
        if !is_atomic_space(space) {
            return Err(self.error(ATOMIC_SPACES));
        }
        let mut at = self.address(at, space)?;
        if vector == 1 {
            let to = match to {
                Some(Operand::Sink) | None => None,
                Some(to) => Some(self.target(to, ty)?),
            };
            let operand = self.source(operand, ty)?;
            let swap = swap.map(|swap| self.source(swap, ty)).transpose()?;
            self.emit(Op::Atomic(Box::new(Atomic { space, op, kind, to, at, operand, swap })));
            return Ok(());
        }
        // Each element is atomic, the vector as a whole is not.
        self.check_vector(vector, ty)?;
        let values = self.source_vector(operand, ty, vector)?;
        let targets = match to {
            None => vec![None; vector].into(),
            Some(to) => self.target_vector(to, ty, vector)?,
        };
        // The old values are kept first: a target may be the operand of a later element.
        let mut kept = Vec::new();
        for (&operand, &to) in values.iter().zip(&targets) {
            let aside = to.map(|to| Ok((to, self.new_register(ty)?.reg))).transpose()?;
            kept.extend(aside);
            let to = aside.map(|(_, aside)| aside);
            self.emit(Op::Atomic(Box::new(Atomic { space, op, kind, to, at, operand, swap: None })));
            at.offset = at.offset.wrapping_add(i64::from(ty.bytes()));
        }
        kept.into_iter().try_for_each(|(to, from)| self.emit_move(to, from))
    }

    pub(super) fn atomic_op(&self, modifiers: &mut Modifiers<'m>) -> Result<AtomicOp, Error> {
        let op = modifiers.take(|word| {
            Some(match word {
                "add" => AtomicOp::Add,
                "min" => AtomicOp::Min,
                "max" => AtomicOp::Max,
                "inc" => AtomicOp::Inc,
                "dec" => AtomicOp::Dec,
                "and" => AtomicOp::And,
                "or" => AtomicOp::Or,
                "xor" => AtomicOp::Xor,
                "exch" => AtomicOp::Exchange,
                "cas" => AtomicOp::CompareExchange,
                _ => return None,
            })
        });
        op.ok_or_else(|| self.error("expected an operation such as '.add', '.exch' or '.cas'"))
    }

    pub(super) fn atomic_kind(&self, op: AtomicOp, ty: Type) -> Result<AtomicKind, Error> {
        use AtomicOp as A;
        let bitwise = matches!(op, A::And | A::Or | A::Xor | A::Exchange | A::CompareExchange);
        let number = matches!(op, A::Add | A::Min | A::Max);
        let counter = matches!(op, A::Inc | A::Dec);
        Ok(match ty {
            Type::B16 if op == A::CompareExchange => AtomicKind::Bits16,
            Type::B32 if bitwise => AtomicKind::Unsigned32,
            Type::B64 if bitwise => AtomicKind::Unsigned64,
            Type::U32 if number || counter => AtomicKind::Unsigned32,
            Type::S32 if number => AtomicKind::Signed32,
            Type::U64 if number => AtomicKind::Unsigned64,
            Type::S64 if matches!(op, A::Min | A::Max) => AtomicKind::Signed64,
            Type::F32 if op == A::Add => AtomicKind::Single,
            Type::F64 if op == A::Add => AtomicKind::Double,
            Type::F16 if number => AtomicKind::Half(Half::F16),
            Type::Bf16 if number => AtomicKind::Half(Half::Bf16),
            Type::F16x2 if number => AtomicKind::PackedHalf(Half::F16),
            Type::Bf16x2 if number => AtomicKind::PackedHalf(Half::Bf16),
            _ => return Err(self.wrong_type(ty)),
        })
    }

    fn fence(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        if modifiers.has("tensormap::generic")
            && let [map, Operand::Integer(128)] = operands
        {
            self.address(map, MemorySpace::Generic)?;
        } else {
            let [] = self.operands(operands)?;
        }
        const KNOWN: [&str; 18] = [
            "sc",
            "acq_rel",
            "acquire",
            "release",
            "proxy",
            "alias",
            "async",
            "async::global",
            "async::generic",
            "mbarrier_init",
            "async::shared::cta",
            "op_restrict",
            "sync_restrict::shared::cta",
            "sync_restrict::shared::cluster",
            "async::shared::cluster",
            "global",
            "shared::cta",
            "shared::cluster",
        ];
        let scope = if modifiers.has("gl") { Some(Scope::Device) } else { modifiers.scope() };
        let orders = modifiers.clone().has_any(&["sc", "acq_rel", "acquire", "release"]);
        if scope.is_none() && orders && !modifiers.clone().has_any(&["proxy", "mbarrier_init"]) {
            return Err(self.error("expected a scope: '.cta', '.cluster', '.gpu' or '.sys'"));
        }
        while modifiers.has_any(&KNOWN) {}
        self.ordering = Some(Ordering { scope, acquires: true, releases: true });
        self.emit(Op::Fence);
        Ok(())
    }

    /// `cp.async` copies immediately, so that waiting for it does nothing.
    fn copy(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let reduces = modifiers.has("reduce");
        if !modifiers.has("async") {
            return Err(self.error("expected '.async'"));
        }
        if modifiers.has("bulk") {
            return self.bulk_copy(reduces, modifiers, operands);
        }
        if modifiers.has("commit_group") {
            let [] = self.operands(operands)?;
            return Ok(());
        }
        if modifiers.has("wait_all") || modifiers.has("wait_group") {
            return Ok(());
        }
        if modifiers.has("mbarrier") || modifiers.has("mbarrier::arrive") {
            return self.cp_async_mbarrier_arrive(modifiers, operands);
        }
        modifiers.memory_qualifiers();
        let _to_shared = modifiers.has("shared::cluster") || modifiers.has("shared") || modifiers.has("shared::cta");
        if !modifiers.has("global") {
            return Err(self.error("expected '.shared.global'"));
        }
        modifiers.memory_qualifiers();
        let (to, from, bytes, source) = match operands {
            [to, from, Operand::Integer(bytes)] => (to, from, *bytes, None),
            [to, from, Operand::Integer(bytes), source] => (to, from, *bytes, Some(source)),
            _ => return Err(self.error("expected the operands '[d], [a], size' or '[d], [a], size, source'")),
        };
        if !matches!(bytes, 4 | 8 | 16) {
            return Err(self.error("'cp.async' copies 4, 8 or 16 bytes"));
        }
        let source_bytes = match source {
            Some(source) if matches!(self.register_type(source), Some(Type::Pred)) => {
                // Where the predicate is true, nothing is read.
                let (predicate, negated) = self.predicate(source)?;
                let (to, a, b) = (self.new_narrow(), self.constant_narrow(0), self.constant_narrow(bytes as u32));
                self.emit(Op::SelectNarrow { to, a, b, predicate, negated });
                Some(to)
            }
            Some(source) => Some(self.narrow(source, Type::U32)?),
            None => None,
        };
        let (to, from) = (self.address(to, MemorySpace::Shared)?, self.address(from, MemorySpace::Global)?);
        self.emit(Op::CopyAsync { to, from, bytes: bytes as u32, source_bytes });
        Ok(())
    }
}

const ATOMIC_SPACES: &str = "atomic operations are for global and shared memory";

fn is_atomic_space(space: MemorySpace) -> bool {
    matches!(space, MemorySpace::Generic | MemorySpace::Global | MemorySpace::Shared | MemorySpace::Cluster)
}
