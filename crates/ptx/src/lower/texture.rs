//! Lowers texture and surface instructions. Handles are registers of 64 bits, as of texture objects.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::ir::{
    At, Boundary, Fetch, FetchKind, Op, Query, QuerySubject, Reg, Slot, SurfaceAccess, SurfaceAccessKind,
    TextureProperty,
};
use crate::syntax::tree::{Operand, Type};
use crate::texture::Geometry;

/// The geometry of an instruction, and whether it names a layer.
type Shape = (Geometry, bool);

impl<'m> Builder<'_, 'm> {
    pub(super) fn texture_operation(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        match opcode {
            "tex" => self.tex(modifiers, operands),
            "tld4" => self.tld4(modifiers, operands),
            "suld" | "sust" => self.surface_access(opcode, modifiers, operands),
            "txq" => self.query(QuerySubject::Texture, modifiers, operands),
            _ => self.query(QuerySubject::Surface, modifiers, operands),
        }
    }

    fn tex(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let _base = modifiers.has("base");
        let (is_level, is_gradient) = (modifiers.has("level"), modifiers.has("grad"));
        let shape = self.shape(modifiers)?;
        let ty = self.result_type(modifiers)?;
        let coordinate = modifiers.ty().ok_or_else(|| self.error("expected the type of the coordinates"))?;
        if !matches!(coordinate, Type::F32 | Type::S32) {
            return Err(self.wrong_type(coordinate));
        }
        let (to, at, rest) = match operands {
            [to, at, rest @ ..] => (to, at, rest),
            _ => return Err(self.error("expected the operands 'd, [a, c]'")),
        };
        let at = self.texture_address(at, shape, coordinate)?;
        let kind = match (rest, coordinate) {
            ([level], Type::F32) if is_level => FetchKind::Level(self.narrow(level, Type::F32)?),
            ([x, y], Type::F32) if is_gradient => {
                let count = shape.0.coordinates();
                FetchKind::Gradient(self.coordinates(x, count, Type::F32)?, self.coordinates(y, count, Type::F32)?)
            }
            ([], Type::F32) if !is_level && !is_gradient => FetchKind::Base,
            ([], _) if !is_level && !is_gradient => FetchKind::Index,
            // A level of unfiltered coordinates, offsets and depth comparisons.
            _ => return Err(self.unsupported("this form of 'tex'")),
        };
        let to = self.target_vector(to, ty, 4)?;
        self.emit(Op::Fetch(Box::new(Fetch { at, kind, to })));
        Ok(())
    }

    fn tld4(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let channel = modifiers.take(|word| ["r", "g", "b", "a"].iter().position(|&channel| channel == word));
        let channel = channel.ok_or_else(|| self.error("expected a channel such as '.r'"))?;
        let shape = self.shape(modifiers)?;
        let ty = self.result_type(modifiers)?;
        if !modifiers.has("f32") {
            return Err(self.error("expected coordinates of type .f32"));
        }
        if shape.0 != Geometry::Plane {
            return Err(self.unsupported("'tld4' of other geometries than '.2d' and '.a2d'"));
        }
        let [to, at] = operands else { return Err(self.unsupported("this form of 'tld4'")) };
        let at = self.texture_address(at, shape, Type::F32)?;
        let to = self.target_vector(to, ty, 4)?;
        self.emit(Op::Fetch(Box::new(Fetch { at, kind: FetchKind::Gather(channel), to })));
        Ok(())
    }

    fn surface_access(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let is_converted = modifiers.has("p");
        if !is_converted && !modifiers.has("b") {
            return Err(self.error("expected '.b' or '.p'"));
        }
        if is_converted && opcode == "suld" {
            return Err(self.unsupported("'suld.p'"));
        }
        let shape = self.shape(modifiers)?;
        if shape.0 == Geometry::Cube {
            return Err(self.error("a surface is not a cube"));
        }
        modifiers.memory_qualifiers();
        let count = modifiers.vector();
        let ty = self.some_type(modifiers)?;
        if !ty.is_untyped() {
            return Err(self.wrong_type(ty));
        }
        let boundary = modifiers.take(|word| match word {
            "trap" => Some(Boundary::Trap),
            "clamp" => Some(Boundary::Clamp),
            "zero" => Some(Boundary::Zero),
            _ => None,
        });
        let boundary = boundary.ok_or_else(|| self.error("expected '.trap', '.clamp' or '.zero'"))?;
        let [first, second] = self.operands(operands)?;
        let (at, values) = if opcode == "suld" { (second, first) } else { (first, second) };
        let at = self.texture_address(at, shape, Type::S32)?;
        // A single element may be in braces or not.
        let single = [values.clone()];
        let values = if self.is_vector(values) { values.clone() } else { Operand::Vector(single.to_vec()) };
        let kind = match (opcode, is_converted) {
            ("suld", _) => {
                SurfaceAccessKind::Load { width: self.width(ty)?, to: self.target_vector(&values, ty, count)? }
            }
            (_, false) => {
                SurfaceAccessKind::Store { width: self.width(ty)?, from: self.source_vector(&values, ty, count)? }
            }
            (_, true) if ty == Type::B32 => {
                SurfaceAccessKind::StoreConverted { from: self.source_vector(&values, ty, count)? }
            }
            (_, true) => return Err(self.wrong_type(ty)),
        };
        self.emit(Op::SurfaceAccess(Box::new(SurfaceAccess { at, boundary, kind })));
        Ok(())
    }

    fn query(
        &mut self,
        subject: QuerySubject,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let is_level = modifiers.has("level");
        let property = modifiers.take(|word| {
            Some(match word {
                "width" => TextureProperty::Width,
                "height" => TextureProperty::Height,
                "depth" => TextureProperty::Depth,
                "array_size" => TextureProperty::Layers,
                "num_mipmap_levels" => TextureProperty::Levels,
                "normalized_coords" => TextureProperty::IsNormalized,
                _ => return None,
            })
        });
        let property = property.ok_or_else(|| self.unsupported("this query of a texture or a surface"))?;
        if !modifiers.has("b32") {
            return Err(self.error("expected type .b32"));
        }
        let (to, at, level) = match operands {
            [to, at] if !is_level => (to, at, None),
            [to, at, level] if is_level => (to, at, Some(self.narrow(level, Type::B32)?)),
            _ => return Err(self.error("expected the operands 'd, [a]'")),
        };
        let address = self.address(at, crate::ir::MemorySpace::Generic)?;
        let (handle @ Reg::Wide(_), 0) = (address.base, address.offset) else {
            return Err(self.unsupported("a texture that is not a register"));
        };
        let to = self.narrow_target(to, Type::B32)?;
        self.emit(Op::Query(Box::new(Query { subject, property, handle, level, to })));
        Ok(())
    }

    /// Takes the geometry.
    fn shape(&self, modifiers: &mut Modifiers<'m>) -> Result<Shape, Error> {
        let shape = modifiers.take(|word| {
            Some(match word {
                "1d" => (Geometry::Line, false),
                "2d" => (Geometry::Plane, false),
                "3d" => (Geometry::Solid, false),
                "cube" => (Geometry::Cube, false),
                "a1d" => (Geometry::Line, true),
                "a2d" => (Geometry::Plane, true),
                "acube" => (Geometry::Cube, true),
                _ => return None,
            })
        });
        shape.ok_or_else(|| self.unsupported("expected a geometry such as '.2d': others are not supported"))
    }

    /// Takes the type of a fetch's results.
    fn result_type(&self, modifiers: &mut Modifiers<'m>) -> Result<Type, Error> {
        if modifiers.vector() != 4 {
            return Err(self.unsupported("a fetch of other vectors than '.v4'"));
        }
        let ty = modifiers.take(|word| match word {
            "f32" => Some(Type::F32),
            "s32" => Some(Type::S32),
            "u32" => Some(Type::U32),
            _ => None,
        });
        ty.ok_or_else(|| self.unsupported("a fetch of other types than '.f32', '.s32' and '.u32'"))
    }

    /// Lowers `[handle, {coordinates}]`. A layer comes first; coordinates beyond those of the geometry are ignored.
    fn texture_address(&mut self, operand: &Operand<'m>, shape: Shape, ty: Type) -> Result<At, Error> {
        let Operand::Texel { base, offset: 0, coordinates } = operand else {
            return Err(self.error("expected an address such as '[texture, {x, y}]'"));
        };
        let Some(handle) = self.find_register(base) else {
            return Err(self.unsupported(format!("'{base}' is not a register: only texture objects are supported")));
        };
        if !matches!(handle.reg, Reg::Wide(_)) {
            return Err(self.error_in_name(base, format!("'{base}' has less than 64 bits")));
        }
        let (geometry, is_layered) = shape;
        let count = geometry.coordinates() + usize::from(is_layered);
        let parts = match &**coordinates {
            Operand::Vector(parts) => parts.clone(),
            single => vec![single.clone()],
        };
        if parts.len() != count && parts.len() != count.next_power_of_two() {
            return Err(self.error(format!("expected {count} coordinates, found {}", parts.len())));
        }
        let mut parts = &parts[..count];
        let mut layer = None;
        if is_layered {
            layer = Some(self.narrow(&parts[0], Type::U32)?);
            parts = &parts[1..];
        }
        let slots = parts.iter().map(|part| self.narrow(part, ty)).collect::<Result<_, _>>()?;
        Ok(At { geometry, handle: handle.reg, layer, coordinates: slots })
    }

    /// Lowers a vector of numbers, which may be longer than needed.
    fn coordinates(&mut self, operand: &Operand<'m>, count: usize, ty: Type) -> Result<Box<[Slot]>, Error> {
        let single = [operand.clone()];
        let parts = match operand {
            Operand::Vector(parts) => parts,
            _ => &single[..],
        };
        if parts.len() < count {
            return Err(self.error(format!("expected {count} elements, found {}", parts.len())));
        }
        parts[..count].iter().map(|part| self.narrow(part, ty)).collect()
    }
}
