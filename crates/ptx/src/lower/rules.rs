//! Modifiers that exclude each other, those that need a newer version or target, and the ranges of constants, as NVIDIA's
//! assembler checks them. The families check what decides about the meaning of an instruction; what is here would have no
//! effect on it.

use super::function::Builder;
use crate::error::Error;
use crate::syntax::tree::{Instruction, Operand};

/// A rule for instructions that have some modifiers.
struct Rule {
    /// The modifiers.
    with: &'static [&'static str],
    /// Those that are refused with them.
    never: &'static [&'static str],
    /// One of them is required with them.
    one_of: &'static [&'static str],
    /// The first target.
    target: u32,
    /// The first version of PTX.
    version: (u32, u32),
    /// Constants: the operand, and the values that it can have.
    constant: Option<(usize, Values)>,
    /// The least and the most operands.
    operands: Option<(usize, usize)>,
}

/// The values of a constant.
#[derive(Clone, Copy)]
struct Values {
    least: u64,
    most: u64,
    /// Of what it is a multiple.
    unit: u64,
    /// Whether a register is refused.
    is_required: bool,
}

const ANY: Rule =
    Rule { with: &[], never: &[], one_of: &[], target: 0, version: (0, 0), constant: None, operands: None };

const fn never(with: &'static [&'static str], never: &'static [&'static str]) -> Rule {
    Rule { with, never, ..ANY }
}

const fn since(with: &'static [&'static str], target: u32, version: (u32, u32)) -> Rule {
    Rule { with, target, version, ..ANY }
}

const fn constant(with: &'static [&'static str], operand: usize, least: u64, most: u64, unit: u64) -> Rule {
    Rule { with, constant: Some((operand, Values { least, most, unit, is_required: false })), ..ANY }
}

/// Like [`constant`], for an operand that cannot be a register.
const fn immediate(with: &'static [&'static str], operand: usize, least: u64, most: u64, unit: u64) -> Rule {
    Rule { with, constant: Some((operand, Values { least, most, unit, is_required: true })), ..ANY }
}

const fn one_of(with: &'static [&'static str], one_of: &'static [&'static str]) -> Rule {
    Rule { with, one_of, ..ANY }
}

const fn operands(with: &'static [&'static str], least: usize, most: usize) -> Rule {
    Rule { with, operands: Some((least, most)), ..ANY }
}

const SUM: [Rule; 2] = [since(&["bf16"], 90, (7, 8)), since(&["bf16x2"], 90, (7, 8))];

const FMA: [Rule; 7] = [
    never(&["relu"], &["sat", "f32", "f64"]),
    never(&["bf16"], &["ftz", "sat"]),
    never(&["bf16x2"], &["ftz", "sat"]),
    since(&["relu"], 80, (7, 0)),
    since(&["bf16"], 80, (7, 0)),
    since(&["bf16x2"], 80, (7, 0)),
    never(&["f64"], &["ftz"]),
];

const MIN: [Rule; 8] = [
    never(&["f64"], &["NaN", "ftz"]),
    since(&["NaN"], 80, (7, 0)),
    since(&["abs"], 86, (7, 2)),
    since(&["f16"], 80, (7, 0)),
    since(&["f16x2"], 80, (7, 0)),
    since(&["relu"], 90, (8, 0)),
    since(&["s16x2"], 90, (8, 0)),
    since(&["u16x2"], 90, (8, 0)),
];

const EX2: [Rule; 2] = [never(&["f16"], &["ftz"]), never(&["f16x2"], &["ftz"])];

const SETP: [Rule; 8] = [
    never(&["f64"], &["ftz"]),
    never(&["s16"], &["ftz"]),
    never(&["u16"], &["ftz"]),
    never(&["s32"], &["ftz"]),
    never(&["u32"], &["ftz"]),
    never(&["s64"], &["ftz"]),
    never(&["u64"], &["ftz"]),
    never(&["bf16"], &["ftz"]),
];

const SELP: [Rule; 1] = [never(&[], &["f16", "f16x2", "bf16", "bf16x2"])];

const MUL: [Rule; 4] = [
    never(&["hi"], &["lo", "wide"]),
    never(&["lo"], &["wide"]),
    since(&["bf16"], 90, (7, 8)),
    since(&["bf16x2"], 90, (7, 8)),
];

const CVT: [Rule; 7] = [
    since(&["bf16"], 80, (7, 0)),
    since(&["bf16x2"], 80, (7, 0)),
    since(&["tf32", "rna"], 80, (7, 0)),
    since(&["tf32", "rn"], 90, (7, 8)),
    since(&["tf32", "rz"], 90, (7, 8)),
    since(&["e4m3x2"], 89, (7, 8)),
    since(&["e5m2x2"], 89, (7, 8)),
];

const FIELD: [Rule; 2] = [constant(&[], 2, 0, 255, 1), constant(&[], 3, 0, 255, 1)];

const INSERT: [Rule; 2] = [constant(&[], 3, 0, 255, 1), constant(&[], 4, 0, 255, 1)];

const CACHED: [&str; 6] = ["ca", "cg", "cs", "lu", "cv", "wt"];

const LOAD: [Rule; 13] = [
    never(&[], &["wt", "wb", "sc", "release", "acq_rel"]),
    never(&["ca"], &["cg", "cs", "lu", "cv"]),
    never(&["cg"], &["cs", "lu", "cv"]),
    never(&["cs"], &["lu", "cv"]),
    never(&["lu"], &["cv"]),
    never(&["volatile"], &CACHED),
    never(&["relaxed"], &CACHED),
    never(&["acquire"], &CACHED),
    never(&["shared"], &["nc", "L2::64B", "L2::128B", "L2::256B"]),
    never(&["const"], &["nc", "volatile"]),
    since(&["L1::evict_last"], 70, (7, 4)),
    since(&["L2::128B"], 75, (7, 4)),
    since(&["L2::256B"], 80, (7, 4)),
];

const STORE: [Rule; 4] = [
    never(&[], &["nc", "ca", "cv", "lu", "sc", "acquire", "acq_rel", "L2::64B", "L2::128B", "L2::256B"]),
    never(&["mbarrier::complete_tx::bytes"], &["b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16"]),
    since(&["async"], 90, (8, 1)),
    never(&["mbarrier::complete_tx::bytes"], &["global"]),
];

const ATOMIC: [Rule; 15] = [
    never(&[], &["sc", "weak", "volatile", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"]),
    never(&["f32"], &["noftz"]),
    never(&["f64"], &["noftz"]),
    since(&["bf16"], 90, (7, 8)),
    since(&["bf16x2"], 90, (7, 8)),
    since(&["v2"], 90, (8, 1)),
    never(&["shared"], &["v2", "v4", "v8"]),
    one_of(&["add", "f16"], &["noftz"]),
    one_of(&["add", "f16x2"], &["noftz"]),
    one_of(&["add", "bf16"], &["noftz"]),
    one_of(&["add", "bf16x2"], &["noftz"]),
    never(&["async", "min"], &["u64", "s64"]),
    never(&["async", "max"], &["u64", "s64"]),
    never(&["async", "and"], &["b64"]),
    never(&["async", "or"], &["b64"]),
];

const FENCE: [Rule; 3] = [
    one_of(&[], &["cta", "cluster", "gpu", "sys", "proxy"]),
    never(&["mbarrier_init"], &["cta", "gpu", "sys"]),
    since(&["proxy", "async"], 90, (8, 0)),
];

const MEMBAR: [Rule; 2] = [one_of(&[], &["cta", "gl", "sys", "proxy"]), never(&[], &["cluster", "gpu"])];

const PREFETCH: [Rule; 1] = [never(&[], &["shared", "shared::cta", "shared::cluster", "const"])];

const PREFETCH_UNIFORM: [Rule; 1] = [never(&[], &["L2"])];

const LOAD_UNIFORM: [Rule; 1] = [never(&[], &["shared", "shared::cta", "const", "local", "param"])];

const POLICY: [Rule; 1] = [since(&[], 80, (7, 4))];

const COPY: [Rule; 15] = [
    one_of(&["async", "shared"], &["ca", "cg", "mbarrier", "bulk"]),
    operands(&["wait_all"], 0, 0),
    immediate(&["wait_group"], 0, 0, u64::MAX, 1),
    operands(&["wait_group"], 1, 1),
    constant(&["cg"], 3, 0, 16, 1),
    constant(&["ca"], 3, 0, 16, 1),
    one_of(&["reduce", "add", "f16"], &["noftz"]),
    one_of(&["reduce", "add", "bf16"], &["noftz"]),
    never(&["reduce"], &["exch", "cas"]),
    never(&["reduce", "shared::cluster"], &["f16", "bf16", "f32", "f64"]),
    since(&["bulk"], 90, (8, 0)),
    since(&["cp_mask"], 100, (8, 6)),
    constant(&["cg"], 2, 16, 16, 1),
    constant(&["bulk", "mbarrier::complete_tx::bytes"], 2, 0, u64::MAX, 16),
    constant(&["bulk", "bulk_group"], 2, 0, u64::MAX, 16),
];

const MBARRIER: [Rule; 14] = [
    operands(&["expect_tx", "arrive"], 3, 3),
    operands(&["noComplete"], 3, 3),
    operands(&["test_wait"], 3, 3),
    never(&["pending_count"], &["shared", "shared::cta", "shared::cluster"]),
    constant(&["parity"], 2, 0, 1, 1),
    never(&[], &["global", "local", "const", "param", "gpu", "sys"]),
    never(&["init"], &["shared::cluster"]),
    never(&["inval"], &["shared::cluster"]),
    never(&["test_wait"], &["shared::cluster", "release"]),
    never(&["try_wait"], &["shared::cluster", "release"]),
    never(&["arrive"], &["acquire"]),
    since(&["try_wait"], 90, (7, 8)),
    since(&["parity"], 80, (7, 1)),
    since(&["expect_tx"], 90, (8, 0)),
];

const CLUSTER: [Rule; 1] = [since(&["cluster", "relaxed"], 90, (8, 0))];

const ELECT: [Rule; 1] = [since(&[], 90, (8, 0))];

const REGISTERS: [Rule; 4] =
    [one_of(&[], &["inc", "dec"]), operands(&[], 1, 1), since(&[], 90, (8, 0)), immediate(&[], 0, 24, 256, 8)];

const ALIGNED: [Rule; 1] = [one_of(&[], &["aligned"])];

const NO_OPERANDS: [Rule; 1] = [operands(&[], 0, 0)];

const LOGIC: [Rule; 2] = [since(&["or"], 70, (8, 2)), since(&["and"], 70, (8, 2))];

const EVENT: [Rule; 3] = [operands(&[], 1, 1), constant(&["mask"], 0, 0, 65535, 1), constant(&[], 0, 0, 65535, 1)];

const SLEEP: [Rule; 1] = [never(&[], &["b32", "s32"])];

const MMA: [Rule; 7] = [
    one_of(&["b1"], &["xor", "and"]),
    never(&["f16"], &["satfinite"]),
    never(&["bf16"], &["satfinite"]),
    never(&["tf32"], &["satfinite"]),
    since(&["m16n8k16"], 80, (7, 0)),
    since(&["e4m3"], 89, (8, 4)),
    since(&["e5m2"], 89, (8, 4)),
];

const MAP: [Rule; 5] = [
    one_of(&["replace"], &["b1024"]),
    immediate(&["interleave_layout"], 1, 0, 2, 1),
    immediate(&["fill_mode"], 1, 0, 1, 1),
    immediate(&["elemtype"], 1, 0, 15, 1),
    immediate(&["swizzle_mode"], 1, 0, 4, 1),
];

const MASK: [Rule; 1] = [never(&[], &["u32", "s32"])];

const BYTES: [Rule; 1] = [never(&[], &["b32"])];

fn rules(opcode: &str) -> &'static [Rule] {
    match opcode {
        "add" | "sub" => &SUM,
        "mul" => &MUL,
        "fma" => &FMA,
        "min" | "max" => &MIN,
        "ex2" => &EX2,
        "setp" => &SETP,
        "selp" => &SELP,
        "cvt" => &CVT,
        "bfe" => &FIELD,
        "bfi" => &INSERT,
        "ld" => &LOAD,
        "ldu" => &LOAD_UNIFORM,
        "st" => &STORE,
        "atom" | "red" => &ATOMIC,
        "fence" => &FENCE,
        "membar" => &MEMBAR,
        "prefetch" => &PREFETCH,
        "prefetchu" => &PREFETCH_UNIFORM,
        "createpolicy" => &POLICY,
        "cp" => &COPY,
        "mbarrier" => &MBARRIER,
        "barrier" => &CLUSTER,
        "elect" => &ELECT,
        "setmaxnreg" => &REGISTERS,
        "ldmatrix" | "stmatrix" | "movmatrix" => &ALIGNED,
        "griddepcontrol" | "trap" | "brkpt" => &NO_OPERANDS,
        "lop3" => &LOGIC,
        "pmevent" => &EVENT,
        "nanosleep" => &SLEEP,
        "mma" => &MMA,
        "tensormap" => &MAP,
        "bmsk" | "fns" => &MASK,
        "dp4a" | "dp2a" => &BYTES,
        _ => &[],
    }
}

impl<'m> Builder<'_, 'm> {
    /// Checks what an instruction must not have, or not yet. Its family has found that it has a meaning.
    pub(super) fn check_rules(&self, instruction: &'m Instruction<'m>) -> Result<(), Error> {
        let words = &instruction.modifiers;
        for rule in rules(instruction.opcode) {
            if !rule.with.iter().all(|word| words.contains(word)) {
                continue;
            }
            if let Some(word) = words.iter().find(|word| rule.never.contains(word)) {
                let message = match rule.with {
                    [] => format!("'.{word}' is not allowed on '{}'", instruction.opcode),
                    with => format!("'.{word}' is not allowed with '.{}'", with.join(".")),
                };
                return Err(self.error_in_modifier(word, message));
            }
            if !rule.one_of.is_empty() && !words.iter().any(|word| rule.one_of.contains(word)) {
                return Err(self.error(format!("expected {}", alternatives(rule.one_of))));
            }
            self.check_age(instruction, rule)?;
            let found = instruction.operands.len();
            if let Some((least, most)) = rule.operands.filter(|&(least, most)| !(least..=most).contains(&found)) {
                let wanted = if found < least { least } else { most };
                return Err(self.error(format!("expected {wanted} operands, found {found}")));
            }
            if let Some((operand, values)) = rule.constant
                && let Some(operand) = instruction.operands.get(operand)
            {
                self.check_constant(operand, values)?;
            }
        }
        Ok(())
    }

    fn check_age(&self, instruction: &'m Instruction<'m>, rule: &Rule) -> Result<(), Error> {
        let (target, version) = (self.unit.module.target, self.unit.module.version);
        let last = rule.with.last().and_then(|last| instruction.modifiers.iter().find(|word| *word == last));
        let refused = |needs: String| {
            let what = last.map_or_else(|| format!("'{}'", instruction.opcode), |word| format!("'.{word}'"));
            let message = format!("{what} {needs}");
            last.map_or_else(|| self.error(message.clone()), |word| self.error_in_modifier(word, message.clone()))
        };
        if target < rule.target {
            return Err(refused(format!("needs sm_{} or higher, but the target is sm_{target}", rule.target)));
        }
        if version < rule.version {
            let (major, minor) = rule.version;
            let needs = format!("needs PTX {major}.{minor} or newer, but the text is for {}.{}", version.0, version.1);
            return Err(refused(needs));
        }
        Ok(())
    }

    fn check_constant(&self, operand: &Operand<'m>, values: Values) -> Result<(), Error> {
        let Values { least, most, unit, is_required } = values;
        let Operand::Integer(value) = *operand else {
            return if is_required { Err(self.error_at(operand, "expected a constant")) } else { Ok(()) };
        };
        if value % unit != 0 {
            return Err(self.error_at(operand, format!("expected a multiple of {unit}, found {value}")));
        }
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let wanted = if least == most { least.to_string() } else { format!("a number from {least} to {most}") };
        Err(self.error_at(operand, format!("expected {wanted}, found {}", value.cast_signed())))
    }
}

/// Returns modifiers as `'.a', '.b' or '.c'`.
fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'.{word}'")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
