//! Lowers branches, calls and exits.

use super::SymbolKind;
use super::function::Builder;
use super::modifiers::Modifiers;
use super::scope::Variable;
use crate::error::Error;
use crate::ir::{Argument, Call, FormalParameter, Op, Signature, Target};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn control(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let _uniform = modifiers.has("uni");
        match opcode {
            "bra" => {
                let [Operand::Name(name)] = self.operands(operands)? else {
                    return Err(self.error("expected a label"));
                };
                let target = self.label(name)?;
                self.emit(Op::Branch { target });
            }
            "brx" => self.branch_indexed(modifiers, operands)?,
            "call" => self.call(operands)?,
            "ret" => {
                let [] = self.operands(operands)?;
                self.emit_return()?;
            }
            "exit" => {
                let [] = self.operands(operands)?;
                self.emit(Op::Exit);
            }
            "trap" => self.emit(Op::Trap),
            "brkpt" => self.emit(Op::Breakpoint),
            "nanosleep" => {
                let _u32 = modifiers.ty();
                let [time] = self.operands(operands)?;
                let nanoseconds = self.narrow(time, Type::U32)?;
                self.emit(Op::Sleep { nanoseconds });
            }
            "pmevent" => {
                let _mask = modifiers.has("mask");
            }
            "setmaxnreg" => {
                let _modifiers = (
                    modifiers.has_any(&["inc", "dec"]),
                    modifiers.has("sync"),
                    modifiers.has("aligned"),
                    modifiers.ty(),
                );
            }
            _ => {
                // The grids that this one depends on are finished when it starts.
                let _modifiers = modifiers.has_any(&["launch_dependents", "wait"]);
            }
        }
        Ok(())
    }

    fn label(&self, name: &str) -> Result<u32, Error> {
        self.find_label(name).ok_or_else(|| self.error_in_name(name, format!("unknown label '{name}'")))
    }

    fn branch_indexed(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        if !modifiers.has("idx") {
            return Err(self.error("expected '.idx'"));
        }
        let [index, Operand::Name(name)] = self.operands(operands)? else {
            return Err(self.error("expected a list of branch targets"));
        };
        let index = self.narrow(index, Type::U32)?;
        let names = self
            .find_targets(name)
            .ok_or_else(|| self.error_in_name(name, format!("unknown list of targets '{name}'")))?;
        let targets = names.iter().map(|name| self.label(name)).collect::<Result<_, _>>()?;
        self.emit(Op::BranchIndexed { index, targets });
        Ok(())
    }

    fn call(&mut self, operands: &[Operand<'m>]) -> Result<(), Error> {
        let (results, rest) = match operands {
            [Operand::List(results), rest @ ..] => (results.as_slice(), rest),
            rest => (&[][..], rest),
        };
        let (callee, rest) = rest.split_first().ok_or_else(|| self.error("expected a function"))?;
        let (arguments, rest) = match rest {
            [Operand::List(arguments), rest @ ..] => (arguments.as_slice(), rest),
            rest => (&[][..], rest),
        };
        let Operand::Name(callee) = *callee else { return Err(self.error("expected a function")) };
        let (target, signature) = if self.is_register(callee) {
            let slot = self.wide(&Operand::Name(callee), Type::B64)?;
            let [Operand::Name(prototype)] = rest else {
                return Err(self.error("a call through a register requires a prototype"));
            };
            let signature = self.prototype(prototype)?;
            self.calls_indirectly = true;
            (Target::Address(slot), signature)
        } else {
            let symbol = self.find_symbol(callee).filter(|&symbol| self.is_function(symbol));
            let symbol = symbol.ok_or_else(|| self.error_in_name(callee, format!("'{callee}' is not a function")))?;
            if self.unit.kernels.contains(callee) {
                return Err(self.error_in_name(callee, format!("'{callee}' is a kernel, which cannot be called")));
            }
            (Target::Symbol(symbol), self.signature_of(symbol))
        };
        let results = self.arguments(results, &signature.returns)?;
        let arguments = self.arguments(arguments, &signature.parameters)?;
        self.emit(Op::Call(Box::new(Call { target, signature, arguments, results })));
        Ok(())
    }

    /// Returns a prototype, or that of a list of functions that all have the same one.
    fn prototype(&mut self, name: &str) -> Result<Signature, Error> {
        if let Some(signature) = self.find_prototype(name) {
            return Ok(signature.clone());
        }
        let first = self.find_targets(name).and_then(|targets| targets.first().copied());
        let symbol = first.and_then(|function| self.find_symbol(function)).filter(|&symbol| self.is_function(symbol));
        let symbol = symbol.ok_or_else(|| self.error_in_name(name, format!("unknown prototype '{name}'")))?;
        Ok(self.signature_of(symbol))
    }

    fn signature_of(&self, symbol: u32) -> Signature {
        match &self.unit.symbols[symbol as usize].kind {
            SymbolKind::Function { signature, .. } => signature.clone(),
            SymbolKind::Alias(target) => self.signature_of(*target),
            SymbolKind::Variable(_) => Signature::default(),
        }
    }

    fn arguments(&mut self, operands: &[Operand<'m>], formals: &[FormalParameter]) -> Result<Vec<Argument>, Error> {
        if operands.len() != formals.len() {
            return Err(self.error(format!(
                "expected {} operands for the function, found {}",
                formals.len(),
                operands.len()
            )));
        }
        operands.iter().zip(formals).map(|(operand, formal)| self.argument(operand, *formal)).collect()
    }

    fn argument(&mut self, operand: &Operand<'m>, formal: FormalParameter) -> Result<Argument, Error> {
        if matches!(operand, Operand::Sink) {
            return Ok(Argument::Nothing);
        }
        if let Operand::Name(name) = *operand
            && !self.is_register(name)
            && let Some(Variable::Frame { offset, bytes, is_param: true }) = self.find_variable(name)
        {
            if bytes != formal.bytes {
                return Err(self.error_at(
                    operand,
                    format!("'{name}' has {bytes} bytes, but the function takes {}", formal.bytes),
                ));
            }
            return Ok(Argument::Frame { offset, bytes });
        }
        let ty = match formal.bytes {
            1 => Type::B8,
            2 => Type::B16,
            4 => Type::B32,
            8 => Type::B64,
            bytes => return Err(self.error(format!("a parameter of {bytes} bytes must be passed as a variable"))),
        };
        self.source_as(operand, ty, formal.bytes < 4).map(Argument::Register)
    }
}
