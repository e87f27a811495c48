//! Random kernels: arithmetic of every class on special values, branches, loops, accesses, atomic operations, barriers,
//! and occasionally something that faults.

use std::fmt::Write;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng;

use super::{REGISTERS, RESULT_WORDS, TABLE_WORDS, WIDE_REGISTERS};

pub(super) struct Random(pub(super) SplitMix64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    pub(super) fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a small number, a special float, a float near one, or anything.
    pub(super) fn word(&mut self) -> u32 {
        const SPECIAL: [u32; 14] = [
            0,
            0x8000_0000,
            1,
            0x8000_0001,
            0x007f_ffff,
            0x0080_0000,
            0x7f7f_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0xffff_ffff,
            0x7f80_0001,
            0x3f80_0000,
            0x7e80_0001,
        ];
        let any = self.0.next_u64();
        match any >> 61 {
            0 | 1 => SPECIAL[(any % 14) as usize],
            2 | 3 => (any % 64) as u32,
            4 => 0x3f00_0000 | any as u32 & 0x80ff_ffff,
            // Exponents around those at which a product is subnormal.
            5 => any as u32 & 0x81ff_ffff | 0x1f00_0000,
            _ => any as u32,
        }
    }
}

/// A kernel as it is generated.
pub(super) struct Text<'r> {
    pub(super) random: &'r mut Random,
    text: String,
    labels: u32,
    /// How many loops and branches surround the next instruction.
    depth: u32,
}

impl<'r> Text<'r> {
    /// A kernel with up to `parts` parts, which all threads begin together.
    pub(super) fn kernel(random: &'r mut Random, parts: u64) -> String {
        let mut this = Self { random, text: String::new(), labels: 0, depth: 0 };
        this.line(".version 8.6\n.target sm_90\n.address_size 64");
        this.functions();
        this.line(".visible .entry k(.param .u64 p) {");
        this.line(".reg .pred %p<6>; .reg .b32 %r<12>; .reg .b32 %t<12>; .reg .b64 %d<8>; .reg .b64 %a<8>;");
        this.line(".reg .pred %q<4>; .reg .b32 %n<8>; .reg .b16 %h<4>; .shared .align 8 .b8 tile[512];");
        // Registers that are read before they are written, on some paths or in some lanes.
        this.line(".reg .b32 %u<3>; .reg .b64 %w<2>; .reg .pred %v<2>;");
        this.line("ld.param.u64 %a0, [p]; mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x;");
        this.line("mad.lo.u32 %t3, %t1, %t2, %t0; mul.wide.u32 %a1, %t0, 4; add.u64 %a1, %a1, %a0;");
        // The thread's results.
        this.line(&format!("mul.wide.u32 %a2, %t3, {}; add.u64 %a2, %a2, %a0;", 4 * RESULT_WORDS));
        this.line(&format!("add.u64 %a2, %a2, {}; mov.u32 %t4, tile;", 4 * TABLE_WORDS));
        for index in 0..REGISTERS {
            this.line(&format!("ld.global.b32 %r{index}, [%a2+{}];", 4 * index));
        }
        for index in 0..WIDE_REGISTERS {
            this.line(&format!("ld.global.b32 %t5, [%a2+{}];", 4 * (REGISTERS + 2 * index)));
            this.line(&format!("ld.global.b32 %t6, [%a2+{}];", 4 * (REGISTERS + 2 * index + 1)));
            this.line(&format!("mov.b64 %d{index}, {{%t5, %t6}};"));
        }
        this.line("setp.ge.u32 %q3, %t1, 0;");
        for index in 0..4 {
            this.line(&format!("setp.gt.s32 %p{index}, %r{index}, %r{};", index + 4));
        }
        for _ in 0..1 + this.random.below(parts) {
            this.statements(4);
            this.together();
        }
        this.line("mov.u32 %t5, %clock;");
        this.line(&format!("st.global.b32 [%a2+{}], %t5;", 4 * (RESULT_WORDS - 1)));
        for index in 0..REGISTERS {
            this.line(&format!("st.global.b32 [%a2+{}], %r{index};", 4 * index));
        }
        for index in 0..WIDE_REGISTERS {
            this.line(&format!("mov.b64 {{%t5, %t6}}, %d{index};"));
            this.line(&format!("st.global.b32 [%a2+{}], %t5;", 4 * (REGISTERS + 2 * index)));
            this.line(&format!("st.global.b32 [%a2+{}], %t6;", 4 * (REGISTERS + 2 * index + 1)));
        }
        this.line("ret;\n}");
        this.text
    }

    pub(super) fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a string takes any text");
    }

    /// Instructions that all threads of the block execute together.
    fn together(&mut self) {
        let (a, b) = (self.r(), self.r());
        if self.random.below(16) == 0 {
            self.line("@%p1 exit;");
        }
        match self.random.below(6) {
            0 | 1 => self.line("bar.sync 0;"),
            5 => {
                let p = self.p();
                self.line(&format!("bar.red.popc.u32 {a}, 1, {p}; barrier.sync 2;"));
            }
            2 | 3 => {
                let mode = self.random.pick(&["bfly", "down", "up", "idx"]);
                let distance = self.random.pick(&["1", "5", "16", "31", "%t0", "%r3"]);
                let segment = self.random.pick(&["31", "0", "0x1c1f", "0x181f", "%r4"]);
                self.line(&format!("shfl.sync.{mode}.b32 {a}|%p2, {b}, {distance}, {segment}, -1;"));
            }
            _ => self.line(&format!("vote.sync.ballot.b32 {a}, %p1, -1;")),
        }
    }

    fn statements(&mut self, count: u64) {
        for _ in 0..1 + self.random.below(count) {
            match self.random.below(12) {
                0 if self.depth < 3 => self.branch(),
                1 if self.depth < 2 => self.bounded_loop(),
                2 => self.partial_writes(),
                _ => (0..1 + self.random.below(5)).for_each(|_| self.instruction()),
            }
        }
    }

    fn branch(&mut self) {
        let (label, p) = (self.next_label(), self.p());
        let not = self.random.pick(&["", "!"]);
        if self.random.below(2) == 0 {
            let comparison = self.comparison(&p);
            self.line(&comparison);
        }
        self.line(&format!("@{not}{p} bra L{label};"));
        self.depth += 1;
        self.statements(3);
        if self.random.below(2) == 0 {
            self.line(&format!("bra M{label};\nL{label}:"));
            self.statements(3);
            self.line(&format!("M{label}:"));
        } else {
            self.line(&format!("L{label}:"));
        }
        self.depth -= 1;
    }

    /// A loop that each lane leaves at its own time.
    fn bounded_loop(&mut self) {
        let (label, from, depth) = (self.next_label(), self.r(), self.depth);
        let count = self.random.pick(&["7", "15", "3"]);
        self.line(&format!("and.b32 %n{depth}, {from}, {count};\nL{label}:"));
        self.depth += 1;
        self.statements(3);
        self.depth -= 1;
        self.line(&format!("sub.s32 %n{depth}, %n{depth}, 1; setp.gt.s32 %q{depth}, %n{depth}, 0;"));
        self.line(&format!("@%q{depth} bra L{label};"));
    }

    /// Returns the number of a label that is not in use.
    pub(super) fn next_label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    pub(super) fn r(&mut self) -> String {
        format!("%r{}", self.random.below(REGISTERS))
    }

    pub(super) fn d(&mut self) -> String {
        format!("%d{}", self.random.below(WIDE_REGISTERS))
    }

    pub(super) fn p(&mut self) -> String {
        format!("%p{}", self.random.below(4))
    }

    /// A 32-bit operand.
    pub(super) fn x(&mut self) -> String {
        match self.random.below(5) {
            0 => format!("{}", self.random.word() as i32),
            _ => self.r(),
        }
    }

    fn instruction(&mut self) {
        if self.random.below(4) == 0 {
            let p = self.p();
            let not = self.random.pick(&["", "!"]);
            write!(self.text, "@{not}{p} ").expect("a string takes any text");
        }
        let line = match self.random.below(32) {
            0..=3 => self.narrow_integer(),
            4 | 5 => self.wide_integer(),
            6..=9 => self.single(),
            10 => self.double(),
            11 => self.conversion(),
            12 | 13 => {
                let p = self.p();
                self.comparison(&p)
            }
            14 => self.selection(),
            15 | 16 => self.global_access(),
            17 | 18 => self.shared_access(),
            19 | 20 => self.tile_access(),
            21 | 22 => self.uninitialized(),
            23..=30 => self.further(),
            _ => self.rare(),
        };
        self.line(&line);
    }

    fn narrow_integer(&mut self) -> String {
        let (to, a, b, c) = (self.r(), self.r(), self.x(), self.r());
        match self.random.below(4) {
            0 => {
                let op =
                    self.random.pick(&["not.b32", "neg.s32", "abs.s32", "mov.b32", "popc.b32", "clz.b32", "cnot.b32"]);
                format!("{op} {to}, {a};")
            }
            1 => {
                let ops = ["mad.lo.s32", "mad.hi.u32", "bfe.u32", "bfe.s32", "sad.s32", "prmt.b32", "dp4a.s32.u32"];
                let op = self.random.pick(&ops);
                // A constant position is at most 255.
                let b = if op.starts_with("bfe") { &to } else { &b };
                format!("{op} {to}, {a}, {b}, {c};")
            }
            2 => format!("lop3.b32 {to}, {a}, {b}, {c}, {};", self.random.below(256)),
            _ => {
                let ops = [
                    "add.s32",
                    "sub.s32",
                    "mul.lo.u32",
                    "mul.hi.u32",
                    "mul.hi.s32",
                    "min.u32",
                    "min.s32",
                    "max.u32",
                    "max.s32",
                    "and.b32",
                    "or.b32",
                    "xor.b32",
                    "shl.b32",
                    "shr.u32",
                    "shr.s32",
                    "add.sat.s32",
                    "div.u32",
                    "rem.s32",
                ];
                format!("{} {to}, {a}, {b};", self.random.pick(&ops))
            }
        }
    }

    fn wide_integer(&mut self) -> String {
        let (to, a, b, c) = (self.d(), self.d(), self.d(), self.d());
        let (r, x) = (self.r(), self.x());
        match self.random.below(5) {
            0 => {
                let ops = ["mul.wide.u32", "mul.wide.s32"];
                format!("{} {to}, {r}, {x};", self.random.pick(&ops))
            }
            1 => {
                let ops = ["mad.wide.u32", "mad.wide.s32"];
                format!("{} {to}, {r}, {x}, {c};", self.random.pick(&ops))
            }
            2 => {
                let ops = ["shl.b64", "shr.u64", "shr.s64"];
                format!("{} {to}, {a}, {r};", self.random.pick(&ops))
            }
            3 => format!("mad.lo.u64 {to}, {a}, {b}, {c};"),
            _ => {
                let ops = [
                    "add.u64",
                    "sub.s64",
                    "mul.lo.s64",
                    "and.b64",
                    "or.b64",
                    "xor.b64",
                    "min.u64",
                    "min.s64",
                    "max.u64",
                    "max.s64",
                ];
                format!("{} {to}, {a}, {b};", self.random.pick(&ops))
            }
        }
    }

    fn single(&mut self) -> String {
        let (to, a, b, c) = (self.r(), self.r(), self.r(), self.r());
        match self.random.below(4) {
            0 => {
                let ops = ["fma.rn.f32", "fma.rn.ftz.f32", "fma.rz.f32", "fma.rn.sat.f32"];
                format!("{} {to}, {a}, {b}, {c};", self.random.pick(&ops))
            }
            1 => {
                let ops = [
                    "sqrt.rn.f32",
                    "rcp.rn.f32",
                    "rcp.approx.f32",
                    "rcp.approx.ftz.f32",
                    "sqrt.approx.f32",
                    "sqrt.approx.ftz.f32",
                    "rsqrt.approx.f32",
                    "ex2.approx.f32",
                    "ex2.approx.ftz.f32",
                    "lg2.approx.f32",
                    "lg2.approx.ftz.f32",
                    "abs.f32",
                    "neg.f32",
                    "abs.ftz.f32",
                    "sin.approx.f32",
                ];
                format!("{} {to}, {a};", self.random.pick(&ops))
            }
            _ => {
                let ops = [
                    "add.f32",
                    "sub.f32",
                    "mul.f32",
                    "add.ftz.f32",
                    "sub.ftz.f32",
                    "mul.ftz.f32",
                    "div.rn.f32",
                    "div.approx.f32",
                    "div.approx.ftz.f32",
                    "div.full.f32",
                    "min.f32",
                    "max.f32",
                    "min.ftz.f32",
                    "max.NaN.f32",
                    "add.rm.f32",
                    "mul.sat.f32",
                ];
                format!("{} {to}, {a}, {b};", self.random.pick(&ops))
            }
        }
    }

    fn double(&mut self) -> String {
        let (to, a, b, c) = (self.d(), self.d(), self.d(), self.d());
        match self.random.below(3) {
            0 => format!("fma.rn.f64 {to}, {a}, {b}, {c};"),
            1 => format!("{} {to}, {a};", self.random.pick(&["sqrt.rn.f64", "neg.f64", "abs.f64"])),
            _ => {
                let ops = ["add.f64", "sub.f64", "mul.f64", "div.rn.f64", "min.f64", "add.rp.f64"];
                format!("{} {to}, {a}, {b};", self.random.pick(&ops))
            }
        }
    }

    fn conversion(&mut self) -> String {
        let (r, s, d) = (self.r(), self.r(), self.d());
        match self.random.below(3) {
            0 => {
                let ops =
                    ["cvt.u64.u32", "cvt.s64.s32", "cvt.u64.s32", "cvt.rn.f64.s32", "cvt.rn.f64.u32", "cvt.f64.f32"];
                format!("{} {d}, {r};", self.random.pick(&ops))
            }
            1 => {
                let ops = ["cvt.u32.u64", "cvt.s32.s64", "cvt.rn.f32.f64", "cvt.rzi.s32.f64"];
                format!("{} {r}, {d};", self.random.pick(&ops))
            }
            _ => {
                let ops = [
                    "cvt.rn.f32.s32",
                    "cvt.rn.f32.u32",
                    "cvt.rzi.s32.f32",
                    "cvt.rzi.u32.f32",
                    "cvt.rni.s32.f32",
                    "cvt.rz.f32.u32",
                    "cvt.rmi.f32.f32",
                    "cvt.rzi.ftz.s32.f32",
                ];
                format!("{} {r}, {s};", self.random.pick(&ops))
            }
        }
    }

    pub(super) fn comparison(&mut self, p: &str) -> String {
        let other = self.p();
        let integer = ["eq", "ne", "lt", "le", "gt", "ge"];
        let float = ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
        match self.random.below(6) {
            0 => {
                let (relation, kind) = (self.random.pick(&integer), self.random.pick(&["u64", "s64"]));
                format!("setp.{relation}.{kind} {p}, {}, {};", self.d(), self.d())
            }
            1 => {
                let (relation, kind) = (self.random.pick(&float), self.random.pick(&["f32", "ftz.f32"]));
                format!("setp.{relation}.{kind} {p}, {}, {};", self.r(), self.r())
            }
            2 => format!("setp.{}.f64 {p}, {}, {};", self.random.pick(&float), self.d(), self.d()),
            3 => format!("setp.{}.and.s32 {p}|%p4, {}, {}, {other};", self.random.pick(&integer), self.r(), self.x()),
            4 => format!("{} {p}, {other}, %p1;", self.random.pick(&["and.pred", "or.pred", "xor.pred"])),
            _ => {
                let (relation, kind) = (self.random.pick(&integer), self.random.pick(&["u32", "s32"]));
                format!("setp.{relation}.{kind} {p}, {}, {};", self.r(), self.x())
            }
        }
    }

    fn selection(&mut self) -> String {
        let p = self.p();
        match self.random.below(3) {
            0 => format!("selp.b32 {}, {}, {}, {p};", self.r(), self.r(), self.x()),
            1 => format!("selp.b64 {}, {}, {}, {p};", self.d(), self.d(), self.d()),
            _ => format!("not.pred {p}, {};", self.p()),
        }
    }

    /// Leaves in `%a3` an address in the table, consecutive or anywhere.
    fn global_access(&mut self) -> String {
        let (r, s, generic) = (self.r(), self.r(), self.random.pick(&[".global", ""]));
        let address = match self.random.below(4) {
            0 => "mov.b64 %a3, %a1;".to_owned(),
            1 => "mov.b64 %a3, %a0;".to_owned(),
            _ => format!("and.b32 %t5, {r}, 508; cvt.u64.u32 %a3, %t5; add.u64 %a3, %a3, %a0;"),
        };
        let offset = 4 * self.random.below(8);
        let access = match self.random.below(8) {
            0..=2 => format!("ld{generic}.b32 {s}, [%a3+{offset}];"),
            3 | 4 => format!("st{generic}.b32 [%a3+{offset}], {s};"),
            5 => format!("atom{generic}.add.u32 {s}, [%a3], {r};"),
            6 => format!("ld{generic}.u16 {s}, [%a3+2];"),
            _ => format!("red{generic}.max.s32 [%a3+{offset}], {s};"),
        };
        // A guard is for the first instruction only: the address is that of some earlier access where it is false.
        format!("mov.b64 %a3, %a1; {address} {access}")
    }

    fn shared_access(&mut self) -> String {
        let (r, s) = (self.r(), self.r());
        let address = match self.random.below(4) {
            0 => "shl.b32 %t7, %t0, 2;".to_owned(),
            1 => "mov.b32 %t7, 0;".to_owned(),
            _ => format!("and.b32 %t7, {r}, 380;"),
        };
        let (base, convert) = match self.random.below(2) {
            0 => ("%t7", "and.b32 %t7, %t7, 380; add.u32 %t7, %t7, %t4;"),
            _ => ("%a4", "and.b32 %t7, %t7, 380; add.u32 %t7, %t7, %t4; cvt.u64.u32 %a4, %t7;"),
        };
        let offset = 4 * self.random.below(8);
        let access = match self.random.below(6) {
            0 | 1 => format!("ld.shared.b32 {s}, [{base}+{offset}];"),
            2 | 3 => format!("st.shared.b32 [{base}+{offset}], {s};"),
            4 => format!("atom.shared.add.u32 {s}, [{base}+{offset}], {r};"),
            _ => format!("red.shared.add.u32 [{base}+{offset}], {s};"),
        };
        format!("{address} {convert} {access}")
    }

    /// Several loads with the same register and other offsets, as from rows and columns of a tile that is 16 wide. Now
    /// and then the register is written between them, or there is a branch.
    fn tile_access(&mut self) -> String {
        let address = match self.random.below(5) {
            0 => "and.b32 %t9, %t0, 15; shl.b32 %t9, %t9, 2;".to_owned(),
            1 => "and.b32 %t9, %t0, 16; shl.b32 %t9, %t9, 2;".to_owned(),
            2 => "and.b32 %t9, %t0, 31; shl.b32 %t9, %t9, 2;".to_owned(),
            3 => "mov.b32 %t9, 64;".to_owned(),
            _ => format!("and.b32 %t9, {}, 124;", self.r()),
        };
        let (base, convert) = match self.random.below(2) {
            0 => ("%t9", "add.u32 %t9, %t9, %t4;"),
            _ => ("%a6", "add.u32 %t9, %t9, %t4; cvt.u64.u32 %a6, %t9;"),
        };
        // Or the register as it is, perhaps as another path left it.
        let mut text = match self.random.below(3) {
            0 => "mov.b32 %t11, 0;".to_owned(),
            _ => format!("mov.b32 %t9, 0; {address} {convert}"),
        };
        for _ in 0..2 + self.random.below(5) {
            let (r, s, offset) = (self.r(), self.r(), 4 * self.random.below(64));
            let end = self.random.pick(&["8", "8", "8", "8", "8", "8", "8", "8", "8", "448", "6"]);
            text += &match self.random.below(9) {
                0 if base == "%t9" => format!(" add.u32 %t9, %t9, {end};"),
                0 => format!(" add.u64 %a6, %a6, {end};"),
                1 => {
                    let (guard, base) = (self.random.pick(&["%p3", "%q3"]), self.random.pick(&[base, "%t10"]));
                    format!(" and.b32 %t10, {s}, 124; @{guard} ld.shared.b32 {r}, [{base}+{offset}];")
                }
                2 => format!(" st.shared.b32 [{base}+{offset}], {r};"),
                3 => format!(" and.b32 %t10, {s}, 124; ld.shared.b32 {r}, [%t10+{offset}];"),
                _ => format!(" ld.shared.b32 {r}, [{base}+{offset}];"),
            };
        }
        text
    }

    fn uninitialized(&mut self) -> String {
        let (r, s, d, k) = (self.r(), self.r(), self.d(), self.random.below(2));
        match self.random.below(7) {
            0 => format!("mov.b32 %u{k}, {r};"),
            1 => format!("add.s32 {r}, {s}, %u{k};"),
            2 => format!("add.u64 %w{k}, {d}, 1;"),
            3 => format!("sub.s64 {d}, {d}, %w{k};"),
            4 => format!("setp.lt.s32 %v{k}, {r}, {s};"),
            5 => format!("selp.b32 {r}, {r}, {s}, %v{k};"),
            _ => format!("add.s32 {r}, {s}, %u2; mov.b32 %u2, {r};"),
        }
    }

    /// Instructions that may fault, or whose results depend on the count of instructions.
    fn rare(&mut self) -> String {
        let (r, s) = (self.r(), self.r());
        match self.random.below(40) {
            0 => format!("ld.global.b32 {r}, [%a1+2];"),
            1 => format!("st.global.b32 [%a1+65536], {r};"),
            2 => format!("mul.wide.u32 %a5, {s}, 4; add.u64 %a5, %a5, %a0; ld.global.b32 {r}, [%a5];"),
            3 => format!("and.b32 %t8, {s}, 1020; ld.shared.b32 {r}, [%t8];"),
            4 => format!("and.b32 %t8, {s}, 1023; st.shared.b32 [%t8], {r};"),
            5 => "exit;".to_owned(),
            6..=15 => format!("mov.u32 {r}, %clock;"),
            16..=20 => format!("mov.u64 {}, %globaltimer;", self.d()),
            21..=25 => format!("activemask.b32 {r};"),
            _ => format!("mov.b32 {r}, {s};"),
        }
    }
}
