//! Lowers bulk copies, also of boxes of tensors, and changes of tensor maps.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::ir::{Address, BulkCopy, BulkEnd, MapReplace, MemorySpace, Op, Slot};
use crate::syntax::tree::{Base, Operand, Type};
use crate::tensor_map::{MapField, RANK_MAX};

/// A tensor map and the coordinates of a box, as the copy names them.
type TensorBox = (Address, Box<[Slot]>);

/// What a copy says of its tensor.
#[derive(Debug, Clone, Copy)]
struct Tensor {
    rank: usize,
    /// Whether the map describes columns of pixels.
    is_columns: bool,
    /// Whether offsets are an operand.
    has_offsets: bool,
}

impl Tensor {
    fn offsets(self) -> usize {
        if self.has_offsets { self.rank - 2 } else { 0 }
    }
}

impl<'m> Builder<'_, 'm> {
    /// `cp.async.bulk` and `cp.reduce.async.bulk`
    pub(super) fn bulk_copy(
        &mut self,
        reduces: bool,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        self.needs_hopper("'cp.async.bulk'")?;
        // Copies are complete when they are issued, and so are their groups.
        if modifiers.has("commit_group") {
            let [] = self.operands(operands)?;
            return Ok(());
        }
        if modifiers.has("wait_group") {
            let _read = modifiers.has("read");
            return match operands {
                [Operand::Integer(_)] => Ok(()),
                _ => Err(self.error("expected the number of groups")),
            };
        }
        let prefetches = modifiers.has("prefetch") && modifiers.has("L2");
        let (to, from) = match prefetches {
            true => (None, modifiers.space()),
            false => (modifiers.space(), modifiers.space()),
        };
        let tensor = self.tensor(modifiers, to != Some(MemorySpace::Global))?;
        let (has_barrier, has_group) = (modifiers.has("mbarrier::complete_tx::bytes"), modifiers.has("bulk_group"));
        let (multicasts, masks) = (modifiers.has("multicast::cluster"), modifiers.has("cp_mask"));
        let reduction = match (reduces, tensor) {
            (true, None) => {
                let op = self.atomic_op(modifiers)?;
                let _noftz = modifiers.has("noftz");
                let ty = self.some_type(modifiers)?;
                Some((op, Some(self.atomic_kind(op, ty)?)))
            }
            (true, Some(_)) => Some((self.atomic_op(modifiers)?, None)),
            (false, _) => None,
        };
        if prefetches {
            return match (tensor, operands) {
                (Some(tensor), [at]) if !tensor.has_offsets => self.tensor_box(at, tensor.rank).map(|_| ()),
                (Some(tensor), [at, offsets]) if tensor.has_offsets => {
                    self.offsets(offsets, tensor)?;
                    self.tensor_box(at, tensor.rank).map(|_| ())
                }
                (None, [at, bytes]) => {
                    self.narrow(bytes, Type::U32)?;
                    self.address(at, MemorySpace::Global).map(|_| ())
                }
                _ => {
                    Err(self
                        .error("expected the operands '[a], size', '[map, {x, y}]' or '[map, {c, x, n}], {offset}'"))
                }
            };
        }
        let (Some(to_space), Some(from_space)) = (to, from) else {
            return Err(self.error("expected two state spaces such as '.shared::cluster.global'"));
        };
        let to_shared = matches!(to_space, MemorySpace::Shared | MemorySpace::Cluster);
        let from_shared = from_space == MemorySpace::Shared;
        match (to_shared, to_space, from_space) {
            (true, _, MemorySpace::Global) | (false, MemorySpace::Global, MemorySpace::Shared) => {}
            (true, MemorySpace::Cluster, MemorySpace::Shared) if tensor.is_none() => {}
            _ => return Err(self.error("bulk copies are between global and shared memory, or within a cluster")),
        }
        if (to_shared, !to_shared) != (has_barrier, has_group) {
            let wanted = if to_shared { ".mbarrier::complete_tx::bytes" } else { ".bulk_group" };
            return Err(self.error(format!("expected '{wanted}'")));
        }
        if masks && to_shared || multicasts && from_shared {
            return Err(
                self.error("'.cp_mask' is for copies to global memory, '.multicast::cluster' for those from it")
            );
        }
        let named: Vec<&Operand<'m>> = operands.iter().collect();
        let (ends, rest) = match named.split_at_checked(2) {
            Some((&[to, from], rest)) => ((to, from), rest),
            _ => return Err(self.error("expected the operands '[d], [a], ...'")),
        };
        let (bytes, rest) = match (tensor, rest) {
            (Some(_), rest) => (None, rest),
            (None, [bytes, rest @ ..]) => (Some(self.narrow(bytes, Type::U32)?), rest),
            _ => return Err(self.error("expected the number of bytes")),
        };
        let (barrier, rest) = match (has_barrier, rest) {
            (true, [barrier, rest @ ..]) => (Some(self.address(barrier, MemorySpace::Cluster)?), rest),
            (false, rest) => (None, rest),
            _ => return Err(self.error("expected an mbarrier '[mbar]'")),
        };
        let (offsets, rest) = match (tensor, rest) {
            (Some(tensor), [offsets, rest @ ..]) if tensor.has_offsets => (self.offsets(offsets, tensor)?, rest),
            (Some(tensor), []) if tensor.has_offsets => {
                let count = tensor.offsets();
                return Err(
                    self.error(format!("'.im2col' needs a vector of {count} offsets of 16 bits as the last operand"))
                );
            }
            (_, rest) => (Box::default(), rest),
        };
        let offsets = tensor.filter(|tensor| tensor.is_columns).map(|_| offsets);
        let mask = match (multicasts || masks, rest) {
            (true, [mask]) => Some(self.narrow(mask, Type::B16)?),
            (false, []) => None,
            (true, _) => return Err(self.error("expected a mask of 16 bits as the last operand")),
            (false, _) => return Err(self.error("there are too many operands")),
        };
        let to = self.bulk_end(ends.0, to_space, tensor, &offsets)?;
        let from = self.bulk_end(ends.1, from_space, tensor, &offsets)?;
        let (ranks, byte_mask) = if multicasts { (mask, None) } else { (None, mask) };
        let copy = BulkCopy { from, to, bytes, reduction, byte_mask, barrier, ranks, is_once: false };
        self.emit(Op::BulkCopy(Box::new(copy)));
        Ok(())
    }

    /// Takes the words of a tensor. Offsets belong to copies from it.
    fn tensor(&self, modifiers: &mut Modifiers<'m>, is_source: bool) -> Result<Option<Tensor>, Error> {
        if !modifiers.has("tensor") {
            return Ok(None);
        }
        let rank = modifiers.take(|word| ["1d", "2d", "3d", "4d", "5d"].iter().position(|&known| known == word));
        let rank = rank.ok_or_else(|| self.error("expected '.1d' to '.5d'"))? + 1;
        let columns = if is_source { "im2col" } else { "im2col_no_offs" };
        let mode = modifiers.take(|word| (word == columns).then_some(word));
        if let Some(mode) = mode.filter(|_| rank < 3) {
            return Err(self.error_in_modifier(mode, format!("'.{mode}' needs '.3d', '.4d' or '.5d'")));
        }
        let is_columns = mode.is_some();
        let other = modifiers.take(|word| (word.starts_with("im2col") || word.starts_with("tile::")).then_some(word));
        if let Some(other) = other {
            return Err(match other {
                "im2col" => self.error_in_modifier(other, "a copy to a tensor has '.im2col_no_offs', not '.im2col'"),
                "im2col_no_offs" => self.error_in_modifier(other, "'.im2col_no_offs' is for copies to a tensor"),
                _ if self.unit.module.target < 100 => {
                    let target = self.unit.module.target;
                    let message = format!("'.{other}' needs sm_100a or higher, but the target is sm_{target}");
                    self.error_in_modifier(other, message)
                }
                _ => self.unsupported(format!("'.{other}' is not supported")),
            });
        }
        let _tile = !is_columns && modifiers.has("tile");
        Ok(Some(Tensor { rank, is_columns, has_offsets: is_columns && is_source }))
    }

    /// Returns the offsets of `.im2col`, one for each spatial dimension.
    fn offsets(&mut self, operand: &Operand<'m>, tensor: Tensor) -> Result<Box<[Slot]>, Error> {
        let count = tensor.offsets();
        match operand {
            Operand::Vector(parts) if parts.len() == count => {
                parts.iter().map(|part| self.narrow(part, Type::B16)).collect()
            }
            _ => Err(self.error_at(operand, format!("expected a vector of {count} offsets of 16 bits"))),
        }
    }

    fn bulk_end(
        &mut self,
        operand: &Operand<'m>,
        space: MemorySpace,
        tensor: Option<Tensor>,
        offsets: &Option<Box<[Slot]>>,
    ) -> Result<BulkEnd, Error> {
        match (space, tensor) {
            (MemorySpace::Global, Some(Tensor { rank, .. })) => {
                let (map, coordinates) = self.tensor_box(operand, rank)?;
                Ok(BulkEnd::Box { map, coordinates, offsets: offsets.clone() })
            }
            _ => Ok(BulkEnd::Range { space, at: self.address(operand, space)? }),
        }
    }

    fn tensor_box(&mut self, operand: &Operand<'m>, rank: usize) -> Result<TensorBox, Error> {
        let Operand::Texel { base, offset, coordinates } = operand else {
            return Err(self.error("expected a tensor map and coordinates such as '[map, {x, y}]'"));
        };
        let map = self.address(&Operand::Address { base: Base::Name(base), offset: *offset }, MemorySpace::Generic)?;
        let single = [(**coordinates).clone()];
        let parts = match &**coordinates {
            Operand::Vector(parts) => parts,
            _ => &single[..],
        };
        if parts.len() != rank {
            return Err(self.error(format!("expected {rank} coordinates, found {}", parts.len())));
        }
        let slots = parts.iter().map(|part| self.narrow(part, Type::S32)).collect::<Result<_, _>>()?;
        Ok((map, slots))
    }

    /// `tensormap.replace` and `tensormap.cp_fenceproxy`
    pub(super) fn tensor_map(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        self.needs_hopper("'tensormap'")?;
        if modifiers.has("cp_fenceproxy") {
            return self.publish_map(modifiers, operands);
        }
        if !modifiers.has("replace") || !modifiers.has("tile") {
            return Err(self.error("expected '.replace.tile' or '.cp_fenceproxy'"));
        }
        const FIELDS: [&str; 10] = [
            "global_address",
            "rank",
            "box_dim",
            "global_dim",
            "global_stride",
            "element_stride",
            "elemtype",
            "interleave_layout",
            "swizzle_mode",
            "fill_mode",
        ];
        if modifiers.has("swizzle_atomicity") {
            return Err(self.unsupported("'.swizzle_atomicity' is not supported"));
        }
        let name = modifiers.take(|word| FIELDS.iter().find(|&&known| known == word).copied());
        let name = name.ok_or_else(|| self.error("expected a field such as '.global_address'"))?;
        let space = modifiers.space().unwrap_or(MemorySpace::Generic);
        if !matches!(space, MemorySpace::Generic | MemorySpace::Global | MemorySpace::Shared) {
            return Err(self.error("a tensor map is in global or shared memory"));
        }
        let _whole = modifiers.has("b1024");
        let ty = self.some_type(modifiers)?;
        let (at, number, value) = match operands {
            [at, value] => (at, None, value),
            [at, Operand::Integer(number), value] => (at, Some(*number), value),
            _ => return Err(self.error("expected the operands '[a], value' or '[a], dimension, value'")),
        };
        let dimensions = if name == "global_stride" { RANK_MAX - 1 } else { RANK_MAX } as u64;
        if number.is_some_and(|number| number >= dimensions) {
            return Err(self.error(format!("expected a dimension below {dimensions}")));
        }
        let field = match (name, number.map(|number| number as u32)) {
            ("global_address", None) => MapField::Start,
            ("rank", None) => MapField::Rank,
            ("elemtype", None) => MapField::Element,
            ("interleave_layout", None) => MapField::Interleave,
            ("swizzle_mode", None) => MapField::Swizzle,
            ("fill_mode", None) => MapField::Fill,
            ("box_dim", Some(number)) => MapField::BoxSize(number),
            ("global_dim", Some(number)) => MapField::Size(number),
            ("global_stride", Some(number)) => MapField::Stride(number),
            ("element_stride", Some(number)) => MapField::Step(number),
            (_, None) => return Err(self.error("expected the operands '[a], dimension, value'")),
            (_, Some(_)) => return Err(self.error("expected the operands '[a], value'")),
        };
        let wanted = if field.place().1 == 8 { Type::B64 } else { Type::B32 };
        if ty != wanted {
            return Err(self.wrong_type(ty));
        }
        let (at, value) = (self.address(at, space)?, self.source(value, ty)?);
        self.emit(Op::MapReplace(Box::new(MapReplace { space, at, field, value })));
        Ok(())
    }

    /// `tensormap.cp_fenceproxy`: a warp copies a map from shared to global memory.
    fn publish_map(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let spaces = (modifiers.space(), modifiers.space());
        if spaces != (Some(MemorySpace::Global), Some(MemorySpace::Shared)) {
            return Err(self.error("expected '.global.shared::cta'"));
        }
        let _proxy = modifiers.has("tensormap::generic");
        let _order = modifiers.memory_qualifiers();
        let _warp = modifiers.has("sync") && modifiers.has("aligned");
        let [to, from, Operand::Integer(128)] = operands else {
            return Err(self.error("expected the operands '[d], [a], 128'"));
        };
        let to = BulkEnd::Range { space: MemorySpace::Global, at: self.address(to, MemorySpace::Global)? };
        let from = BulkEnd::Range { space: MemorySpace::Shared, at: self.address(from, MemorySpace::Shared)? };
        let bytes = Some(self.constant_narrow(128));
        let (reduction, byte_mask, barrier, ranks) = (None, None, None, None);
        let copy = BulkCopy { from, to, bytes, reduction, byte_mask, barrier, ranks, is_once: true };
        self.emit(Op::BulkCopy(Box::new(copy)));
        Ok(())
    }

    fn needs_hopper(&self, what: &str) -> Result<(), Error> {
        match self.unit.module.target {
            target if target < 90 => {
                Err(self.error(format!("{what} needs sm_90 or higher, but the target is sm_{target}")))
            }
            _ => Ok(()),
        }
    }
}
