//! The rules of each instruction.

use super::rule::{Rule, constant, immediate, never, one_of, operands, since};

const SUM: [Rule; 4] = [
    since(&["bf16"], 90, (7, 8)),
    since(&["bf16x2"], 90, (7, 8)),
    never(&["bf16"], &["ftz", "sat"]),
    never(&["bf16x2"], &["ftz", "sat"]),
];

const FMA: [Rule; 7] = [
    never(&["relu"], &["sat", "f32", "f64"]),
    never(&["bf16"], &["ftz", "sat"]),
    never(&["bf16x2"], &["ftz", "sat"]),
    since(&["relu"], 80, (7, 0)),
    since(&["bf16"], 80, (7, 0)),
    since(&["bf16x2"], 80, (7, 0)),
    never(&["f64"], &["ftz"]),
];

const MIN: [Rule; 10] = [
    never(&["f64"], &["NaN", "ftz"]),
    since(&["NaN"], 80, (7, 0)),
    since(&["abs"], 86, (7, 2)),
    since(&["f16"], 80, (7, 0)),
    since(&["f16x2"], 80, (7, 0)),
    since(&["relu"], 90, (8, 0)),
    since(&["s16x2"], 90, (8, 0)),
    since(&["u16x2"], 90, (8, 0)),
    never(&["bf16"], &["ftz"]),
    never(&["bf16x2"], &["ftz"]),
];

const SIGN: [Rule; 2] = [never(&["bf16"], &["ftz"]), never(&["bf16x2"], &["ftz"])];

const EX2: [Rule; 4] = [
    never(&["f16"], &["ftz"]),
    never(&["f16x2"], &["ftz"]),
    one_of(&["bf16"], &["ftz"]),
    one_of(&["bf16x2"], &["ftz"]),
];

const SELP: [Rule; 1] = [never(&[], &["f16", "f16x2", "bf16", "bf16x2"])];

const MUL: [Rule; 6] = [
    never(&["hi"], &["lo", "wide"]),
    never(&["lo"], &["wide"]),
    since(&["bf16"], 90, (7, 8)),
    since(&["bf16x2"], 90, (7, 8)),
    never(&["bf16"], &["ftz", "sat"]),
    never(&["bf16x2"], &["ftz", "sat"]),
];

const CVT: [Rule; 8] = [
    since(&["bf16"], 80, (7, 0)),
    since(&["bf16x2"], 80, (7, 0)),
    since(&["tf32", "rna"], 80, (7, 0)),
    since(&["tf32", "rn"], 90, (7, 8)),
    since(&["tf32", "rz"], 90, (7, 8)),
    since(&["e4m3x2"], 89, (7, 8)),
    since(&["e5m2x2"], 89, (7, 8)),
    one_of(&["ftz"], &["f32"]),
];

const FIELD: [Rule; 2] = [constant(&[], 2, 0, 255, 1), constant(&[], 3, 0, 255, 1)];

const INSERT: [Rule; 2] = [constant(&[], 3, 0, 255, 1), constant(&[], 4, 0, 255, 1)];

const CACHED: [&str; 6] = ["ca", "cg", "cs", "lu", "cv", "wt"];

/// Orders of accesses to memory that threads share.
const STRONG: [&str; 4] = ["volatile", "relaxed", "acquire", "release"];

/// Hints for the caches of global memory.
const HINTS: [&str; 5] =
    ["L1::evict_first", "L1::evict_last", "L1::evict_unchanged", "L1::no_allocate", "L2::cache_hint"];

/// What is fetched into the L2 cache along with the words of a load.
const SECTORS: [&str; 3] = ["L2::64B", "L2::128B", "L2::256B"];

const CACHED_STORE: [&str; 4] = ["wb", "cg", "cs", "wt"];

const LOAD: [Rule; 21] = [
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
    one_of(&["nc"], &["global"]),
    one_of(&["mmio"], &["relaxed"]),
    never(&["shared"], &HINTS),
    never(&["local"], &STRONG),
    never(&["param"], &STRONG),
    never(&["const"], &["relaxed", "acquire"]),
    never(&["local"], &SECTORS),
    never(&["const"], &SECTORS),
];

const STORE: [Rule; 10] = [
    never(&[], &["nc", "ca", "cv", "lu", "sc", "acquire", "acq_rel", "L2::64B", "L2::128B", "L2::256B"]),
    never(&["mbarrier::complete_tx::bytes"], &["b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16"]),
    since(&["async"], 90, (8, 1)),
    never(&["mbarrier::complete_tx::bytes"], &["global"]),
    never(&["volatile"], &CACHED_STORE),
    never(&["relaxed"], &CACHED_STORE),
    never(&["release"], &CACHED_STORE),
    never(&["wb"], &["cg", "cs", "wt"]),
    never(&["local"], &STRONG),
    never(&["shared"], &HINTS),
];

const ATOMIC: [Rule; 16] = [
    never(&[], &["sc", "weak", "volatile", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"]),
    never(&["f32"], &["noftz"]),
    never(&["f64"], &["noftz"]),
    since(&["bf16"], 90, (7, 8)),
    since(&["bf16x2"], 90, (7, 8)),
    since(&["v2"], 90, (8, 1)),
    never(&["shared"], &["v2", "v4", "v8"]),
    one_of(&["f16"], &["noftz"]),
    one_of(&["f16x2"], &["noftz"]),
    one_of(&["bf16"], &["noftz"]),
    one_of(&["bf16x2"], &["noftz"]),
    never(&["async", "min"], &["u64", "s64"]),
    never(&["async", "max"], &["u64", "s64"]),
    never(&["async", "and"], &["b64"]),
    never(&["async", "or"], &["b64"]),
    never(&["shared"], &["L2::cache_hint"]),
];

const FENCE: [Rule; 8] = [
    one_of(&[], &["cta", "cluster", "gpu", "sys", "proxy"]),
    never(&["mbarrier_init"], &["cta", "gpu", "sys"]),
    since(&["proxy", "async"], 90, (8, 0)),
    never(&["sync_restrict::shared::cta"], &["acquire"]),
    never(&["sync_restrict::shared::cluster"], &["release"]),
    one_of(&["mbarrier_init"], &["release"]),
    operands(&["tensormap::generic", "release"], 0, 0),
    operands(&["tensormap::generic", "acquire"], 2, 2),
];

const MEMBAR: [Rule; 2] = [one_of(&[], &["cta", "gl", "sys", "proxy"]), never(&[], &["cluster", "gpu"])];

const PREFETCH: [Rule; 2] =
    [never(&[], &["shared", "shared::cta", "shared::cluster"]), never(&["tensormap"], &["global"])];

const PREFETCH_UNIFORM: [Rule; 1] = [never(&[], &["L2"])];

const LOAD_UNIFORM: [Rule; 1] = [never(&[], &["shared", "shared::cta", "const", "local", "param"])];

const POLICY: [Rule; 1] = [since(&[], 80, (7, 4))];

const COPY: [Rule; 17] = [
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
    constant(&["bulk", "prefetch"], 1, 0, u64::MAX, 16),
    never(&["reduce", "shared::cluster"], &["b64"]),
];

const MBARRIER: [Rule; 16] = [
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
    operands(&["expect_tx", "arrive_drop"], 3, 3),
    operands(&["arrive"], 2, 3),
];

const CLUSTER: [Rule; 1] = [since(&["cluster", "relaxed"], 90, (8, 0))];

const ELECT: [Rule; 1] = [since(&[], 90, (8, 0))];

const REGISTERS: [Rule; 5] = [
    one_of(&[], &["inc", "dec"]),
    operands(&[], 1, 1),
    since(&[], 90, (8, 0)),
    immediate(&[], 0, 24, 256, 8),
    one_of(&[], &["aligned"]),
];

const ALIGNED: [Rule; 1] = [one_of(&[], &["aligned"])];

const NO_OPERANDS: [Rule; 1] = [operands(&[], 0, 0)];

const LOGIC: [Rule; 3] = [since(&["or"], 70, (8, 2)), since(&["and"], 70, (8, 2)), never(&[], &["xor"])];

const EVENT: [Rule; 2] = [operands(&[], 1, 1), immediate(&[], 0, 0, 65535, 1)];

const SLEEP: [Rule; 1] = [never(&[], &["b32", "s32"])];

const MMA: [Rule; 12] = [
    since(&["e4m3", "f16"], 89, (8, 7)),
    since(&["e5m2", "f16"], 89, (8, 7)),
    since(&["e4m3", "m16n8k16"], 89, (8, 7)),
    since(&["e5m2", "m16n8k16"], 89, (8, 7)),
    one_of(&["b1"], &["xor", "and"]),
    never(&["f16"], &["satfinite"]),
    never(&["bf16"], &["satfinite"]),
    never(&["tf32"], &["satfinite"]),
    since(&["m16n8k16"], 80, (7, 0)),
    since(&["e4m3"], 89, (8, 4)),
    since(&["e5m2"], 89, (8, 4)),
    one_of(&[], &["aligned"]),
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

/// Returns the rules of an instruction.
pub(super) fn rules(opcode: &str) -> &'static [Rule] {
    match opcode {
        "add" | "sub" => &SUM,
        "mul" => &MUL,
        "fma" => &FMA,
        "min" | "max" => &MIN,
        "ex2" => &EX2,
        "abs" | "neg" => &SIGN,
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
