//! The modifiers of an opcode: each is taken once, and a remaining one is an error.

use crate::arith::Rounding;
use crate::ir::{MemorySpace, Relation};
use crate::observer::{Ordering, Scope};
use crate::syntax::tree::Type;

#[derive(Debug, Clone)]
pub(super) struct Modifiers<'t> {
    modifiers: &'t [&'t str],
    /// A bit for each word that was taken.
    taken: u64,
}

/// The maximum number of modifiers of an instruction.
pub(super) const MODIFIERS_MAX: usize = 32;

impl<'t> Modifiers<'t> {
    pub(super) fn new(modifiers: &'t [&'t str]) -> Self {
        assert!(modifiers.len() <= MODIFIERS_MAX, "instructions with more modifiers are refused before");
        Self { modifiers, taken: 0 }
    }

    /// Takes the first word for which `meaning` returns a value.
    pub(super) fn take<T>(&mut self, meaning: impl Fn(&'t str) -> Option<T>) -> Option<T> {
        for (index, word) in self.modifiers.iter().enumerate() {
            if self.taken >> index & 1 == 0
                && let Some(found) = meaning(word)
            {
                self.taken |= 1 << index;
                return Some(found);
            }
        }
        None
    }

    pub(super) fn has(&mut self, wanted: &str) -> bool {
        self.take(|word| (word == wanted).then_some(())).is_some()
    }

    pub(super) fn has_any(&mut self, wanted: &[&str]) -> bool {
        self.take(|word| wanted.contains(&word).then_some(())).is_some()
    }

    pub(super) fn ty(&mut self) -> Option<Type> {
        self.take(type_of)
    }

    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        self.take(|word| match word {
            "rn" => Some(Rounding::Nearest),
            "rz" => Some(Rounding::Zero),
            "rm" => Some(Rounding::Down),
            "rp" => Some(Rounding::Up),
            "rna" => Some(Rounding::NearestAway),
            _ => None,
        })
    }

    pub(super) fn integral_rounding(&mut self) -> Option<Rounding> {
        self.take(|word| match word {
            "rni" => Some(Rounding::Nearest),
            "rzi" => Some(Rounding::Zero),
            "rmi" => Some(Rounding::Down),
            "rpi" => Some(Rounding::Up),
            _ => None,
        })
    }

    pub(super) fn space(&mut self) -> Option<MemorySpace> {
        self.take(|word| match word {
            "global" => Some(MemorySpace::Global),
            "const" => Some(MemorySpace::Const),
            "shared" | "shared::cta" => Some(MemorySpace::Shared),
            "shared::cluster" => Some(MemorySpace::Cluster),
            "local" => Some(MemorySpace::Local),
            "param" | "param::entry" | "param::func" => Some(MemorySpace::Param),
            _ => None,
        })
    }

    pub(super) fn vector(&mut self) -> usize {
        let known = |word| match word {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        };
        self.take(known).unwrap_or(1)
    }

    pub(super) fn relation(&mut self) -> Option<Relation> {
        self.take(|word| {
            Some(match word {
                "eq" => Relation::Eq,
                "ne" => Relation::Ne,
                "lt" | "lo" => Relation::Lt,
                "le" | "ls" => Relation::Le,
                "gt" | "hi" => Relation::Gt,
                "ge" | "hs" => Relation::Ge,
                "equ" => Relation::Equ,
                "neu" => Relation::Neu,
                "ltu" => Relation::Ltu,
                "leu" => Relation::Leu,
                "gtu" => Relation::Gtu,
                "geu" => Relation::Geu,
                "num" => Relation::Num,
                "nan" => Relation::Nan,
                _ => return None,
            })
        })
    }

    /// Takes the scope of an access or a fence. That of a cluster is not told apart from that of the device.
    pub(super) fn scope(&mut self) -> Option<Scope> {
        self.take(|word| match word {
            "cta" => Some(Scope::Block),
            "cluster" | "gpu" => Some(Scope::Device),
            "sys" => Some(Scope::System),
            _ => None,
        })
    }

    /// Takes order, scope, caching and eviction of a memory access. Every access here is at least as strong as these
    /// require, and caches are not modelled: only observers need the ordering. Returns `None` for a weak access.
    pub(super) fn memory_qualifiers(&mut self) -> Option<Ordering> {
        let mut ordering = None;
        let mut scope = None;
        loop {
            let strong = self.take(|word| match word {
                "relaxed" | "volatile" | "mmio" | "cv" | "wt" => Some((false, false)),
                "acquire" => Some((true, false)),
                "release" => Some((false, true)),
                "acq_rel" | "sc" => Some((true, true)),
                _ => None,
            });
            let found = self.scope();
            scope = scope.or(found);
            ordering = ordering.or(strong);
            let is_skipped = self.has_any(&SKIPPED) || self.take(|word| is_hint(word).then_some(())).is_some();
            if strong.is_none() && found.is_none() && !is_skipped {
                break;
            }
        }
        match (ordering, scope) {
            (None, None) => None,
            _ => {
                let (acquires, releases) = ordering.unwrap_or_default();
                Some(Ordering { scope: Some(scope.unwrap_or(Scope::System)), acquires, releases })
            }
        }
    }

    /// Returns the first word that was not taken.
    pub(super) fn unused(&self) -> Option<&'t str> {
        self.modifiers.iter().enumerate().find(|(index, _)| self.taken >> index & 1 == 0).map(|(_, word)| *word)
    }
}

/// Words of an access that change nothing here.
const SKIPPED: [&str; 11] = ["weak", "unified", "ca", "cg", "cs", "lu", "wb", "nc", "L2::64B", "L2::128B", "L2::256B"];

/// Returns whether a word is a cache hint without an operand.
fn is_hint(word: &str) -> bool {
    let hint = word.strip_prefix("L1::").or_else(|| word.strip_prefix("L2::"));
    hint.is_some_and(|hint| {
        matches!(hint, "evict_normal" | "evict_unchanged" | "evict_first" | "evict_last" | "no_allocate")
    })
}

pub(super) fn type_of(word: &str) -> Option<Type> {
    Some(match word {
        "b8" => Type::B8,
        "b16" => Type::B16,
        "b32" => Type::B32,
        "b64" => Type::B64,
        "b128" => Type::B128,
        "u8" => Type::U8,
        "u16" => Type::U16,
        "u32" => Type::U32,
        "u64" => Type::U64,
        "s8" => Type::S8,
        "s16" => Type::S16,
        "s32" => Type::S32,
        "s64" => Type::S64,
        "f16" => Type::F16,
        "f16x2" => Type::F16x2,
        "bf16" => Type::Bf16,
        "bf16x2" => Type::Bf16x2,
        "f32" => Type::F32,
        "f64" => Type::F64,
        "pred" => Type::Pred,
        _ => return None,
    })
}

impl Type {
    pub(super) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    pub(super) fn is_integer(self) -> bool {
        self.is_signed() || matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    pub(super) fn is_untyped(self) -> bool {
        matches!(self, Self::B8 | Self::B16 | Self::B32 | Self::B64 | Self::B128)
    }

    pub(super) fn is_float(self) -> bool {
        !self.is_integer() && !self.is_untyped() && self != Self::Pred
    }

    /// Returns whether an instruction of this type accepts a register of that type. Sizes are compared elsewhere.
    pub(super) fn agrees_with(self, register: Self) -> bool {
        let same_kind = (self.is_integer() && register.is_integer()) || self == register;
        self.is_untyped() || register.is_untyped() || same_kind
    }
}
