//! Further instructions of random kernels: halves, conversions, vectors, bits, carries, calls, and communication of
//! lanes that have diverged.

use super::text::Text;

impl Text<'_> {
    /// Functions that kernels call.
    pub(super) fn functions(&mut self) {
        self.line(
            ".func (.reg .b32 r) twice(.reg .b32 x) { .reg .b32 a; .reg .pred q; setp.gt.s32 q, x, 99; @q bra BIG;
            add.u32 r, x, x; ret; BIG: shr.u32 a, x, 3; xor.b32 r, a, x; ret; }
            .func (.param .b32 r) down(.param .b32 n) { .reg .b32 a, b; .reg .pred q; ld.param.b32 a, [n]; and.b32 a, a, 7;
            setp.eq.u32 q, a, 0; @q bra END; sub.u32 b, a, 1; { .param .b32 i; .param .b32 o; st.param.b32 [i], b;
            call (o), down, (i); ld.param.b32 b, [o]; } mad.lo.u32 a, a, 5, b; END: st.param.b32 [r], a; ret; }",
        );
    }

    /// One of the instructions of this file.
    pub(super) fn further(&mut self) -> String {
        let text = match self.random.below(9) {
            0 => self.half(),
            1 => self.half_conversion(),
            2 => self.vector_access(),
            3 => self.further_atomic(),
            4 => self.bits(),
            5 => self.carries(),
            6 => self.call(),
            7 => self.short_lived(),
            _ => self.across_lanes(),
        };
        // A guard is for the first instruction, and none for a block.
        if text.starts_with('{') { format!("mov.b32 %t8, 0; {text}") } else { text }
    }

    fn half(&mut self) -> String {
        let (to, a, b, c) = (self.r(), self.r(), self.r(), self.r());
        match self.random.below(4) {
            0 => {
                let ops =
                    ["fma.rn.f16x2", "fma.rn.bf16x2", "fma.rn.ftz.f16x2", "fma.rn.relu.f16x2", "fma.rn.sat.f16x2"];
                format!("{} {to}, {a}, {b}, {c};", self.random.pick(&ops))
            }
            1 => {
                let ops =
                    ["neg.f16x2", "abs.f16x2", "neg.bf16x2", "abs.bf16x2", "tanh.approx.f16x2", "ex2.approx.f16x2"];
                format!("{} {to}, {a};", self.random.pick(&ops))
            }
            2 => {
                let op = self.random.pick(&["add.f16", "mul.f16", "min.f16", "max.NaN.f16", "sub.bf16", "add.sat.f16"]);
                format!(
                    "mov.b32 {{%h0, %h1}}, {a}; mov.b32 {{%h2, %h3}}, {b}; {op} %h0, %h1, %h2; mov.b32 {to}, {{%h0, %h3}};"
                )
            }
            _ => {
                let ops = [
                    "add.f16x2",
                    "sub.f16x2",
                    "mul.f16x2",
                    "min.f16x2",
                    "max.NaN.bf16x2",
                    "add.ftz.f16x2",
                    "mul.bf16x2",
                ];
                format!("{} {to}, {a}, {b};", self.random.pick(&ops))
            }
        }
    }

    fn half_conversion(&mut self) -> String {
        let (to, a, b) = (self.r(), self.r(), self.r());
        match self.random.below(5) {
            0 => {
                let ops = ["cvt.rn.f16x2.f32", "cvt.rz.bf16x2.f32", "cvt.rn.relu.f16x2.f32", "cvt.pack.sat.s16.s32"];
                format!("{} {to}, {a}, {b};", self.random.pick(&ops))
            }
            1 => {
                let op = self.random.pick(&["cvt.f32.f16", "cvt.f32.bf16", "cvt.rzi.s32.f16", "cvt.rni.u32.f16"]);
                format!("mov.b32 {{%h0, %h1}}, {a}; {op} {to}, %h1;")
            }
            2 => {
                let op = self.random.pick(&["cvt.rn.f16.f32", "cvt.rz.f16.f32", "cvt.rn.bf16.f32", "cvt.rn.f16.s32"]);
                format!("{op} %h0, {a}; mov.b32 {to}, {{%h0, %h0}};")
            }
            3 => {
                let op = self.random.pick(&["cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.satfinite.e5m2x2.f32"]);
                format!("{op} %h0, {a}, {b}; cvt.rn.f16x2.e5m2x2 {to}, %h0;")
            }
            _ => {
                let op = self.random.pick(&[
                    "cvt.s32.s8",
                    "cvt.u32.u16",
                    "cvt.sat.u8.s32",
                    "cvt.s16.s32",
                    "cvt.sat.s16.u32",
                ]);
                format!("{op} {to}, {a};")
            }
        }
    }

    /// Loads and stores of vectors, of 64 bits and of bytes. They leave the address in `%a7`.
    fn vector_access(&mut self) -> String {
        let (a, b, c, d) = (self.r(), self.r(), self.r(), self.r());
        let (wide, at) = (self.d(), 8 * self.random.below(4));
        let address = match self.random.below(3) {
            0 => "and.b32 %t8, %t0, 15; mul.wide.u32 %a7, %t8, 16; add.u64 %a7, %a7, %a0;".to_owned(),
            1 => "mov.b64 %a7, %a0;".to_owned(),
            _ => format!("and.b32 %t8, {a}, 496; cvt.u64.u32 %a7, %t8; add.u64 %a7, %a7, %a0;"),
        };
        let access = match self.random.below(8) {
            0 => format!("ld.global.v2.b32 {{{a}, {b}}}, [%a7+{at}];"),
            1 => format!("ld.global.v4.b32 {{{a}, {b}, {c}, {d}}}, [%a7];"),
            2 => format!("ld.global.v4.b32 {{{a}, _, {c}, _}}, [%a7+16];"),
            3 => format!("st.global.v2.b32 [%a7+{at}], {{{a}, {b}}};"),
            4 => format!("st.global.v4.f32 [%a7], {{{a}, {b}, {c}, {d}}};"),
            5 => format!("ld.global.s8 {a}, [%a7+{at}];"),
            6 => format!("st.global.u16 [%a7+{at}], {a};"),
            _ => format!("{} {wide}, [%a7+{at}];", self.random.pick(&["ld.global.u64", "ld.u64"])),
        };
        format!("mov.b64 %a7, %a0; {address} {access}")
    }

    fn further_atomic(&mut self) -> String {
        let (to, a, b, d) = (self.r(), self.r(), self.r(), self.d());
        let wide = self.d();
        let (base, word, space) = match self.random.below(2) {
            0 => ("%a7", format!("and.b32 %t8, {a}, 504; cvt.u64.u32 %a7, %t8; add.u64 %a7, %a7, %a0;"), "global"),
            _ => ("%t8", format!("and.b32 %t8, {a}, 120; add.u32 %t8, %t8, %t4;"), "shared"),
        };
        let access = match self.random.below(8) {
            0 => format!("atom.{space}.cas.b32 {to}, [{base}], {a}, {b};"),
            1 => format!("atom.{space}.exch.b32 {to}, [{base}], {a};"),
            2 => format!("atom.{space}.inc.u32 {to}, [{base}], {b};"),
            3 => format!("atom.{space}.add.f32 {to}, [{base}], {b};"),
            4 => format!("atom.{space}.add.u64 {d}, [{base}], {wide};"),
            5 => format!("red.{space}.and.b32 [{base}], {b};"),
            6 => format!("atom.{space}.min.s32 {to}, [{base}], {b};"),
            _ => format!("red.{space}.add.noftz.f16x2 [{base}], {b};"),
        };
        format!("mov.b64 %a7, %a0; mov.b32 %t8, %t4; {word} {access}")
    }

    fn bits(&mut self) -> String {
        let (to, a, b, c) = (self.r(), self.r(), self.x(), self.r());
        let (wide, d) = (self.d(), self.d());
        match self.random.below(8) {
            0 => format!("{}.b64 {to}, {d};", self.random.pick(&["popc", "clz"])),
            1 => format!("brev.b64 {wide}, {d};"),
            2 => format!("bfe.{} {wide}, {d}, {a}, 9;", self.random.pick(&["u64", "s64"])),
            3 => format!("bfi.b64 {wide}, {d}, {wide}, {a}, {c};"),
            4 => format!("bfi.b32 {to}, {a}, {c}, 5, {to};"),
            5 => format!(
                "shf.{}.b32 {to}, {a}, {c}, {b};",
                self.random.pick(&["l.wrap", "r.clamp", "l.clamp", "r.wrap"])
            ),
            6 => format!("bfind.{} {to}, {a};", self.random.pick(&["u32", "shiftamt.s32"])),
            _ => {
                let op = self.random.pick(&["vadd2.s32.s32.s32.sat", "vmax4.u32.u32.u32", "vabsdiff4.u32.u32.u32.add"]);
                format!("{op} {to}, {a}, {c}, {c};")
            }
        }
    }

    fn carries(&mut self) -> String {
        let (to, other, a, b) = (self.r(), self.r(), self.r(), self.r());
        match self.random.below(3) {
            0 => format!("add.cc.u32 {to}, {a}, {b}; addc.u32 {other}, {b}, 0;"),
            1 => format!("sub.cc.u32 {to}, {a}, {b}; subc.cc.u32 {other}, {a}, {b}; addc.u32 {to}, {to}, 1;"),
            _ => format!("mad.lo.cc.u32 {to}, {a}, {b}, {a}; madc.hi.u32 {other}, {a}, {b}, 7;"),
        }
    }

    fn call(&mut self) -> String {
        let (to, a) = (self.r(), self.r());
        match self.random.below(3) {
            0 | 1 => format!("call ({to}), twice, ({a});"),
            _ => format!(
                "{{ .param .b32 i; .param .b32 o; st.param.b32 [i], {a}; call (o), down, (i); ld.param.b32 {to}, [o]; }}"
            ),
        }
    }

    /// Registers of a block of their own, which are needed for a few instructions only.
    fn short_lived(&mut self) -> String {
        let (to, a, b, d) = (self.r(), self.r(), self.r(), self.d());
        let p = self.p();
        match self.random.below(4) {
            0 => format!(
                "{{ .reg .b32 x<4>; add.u32 x0, {a}, {b}; xor.b32 x1, x0, {a}; mul.lo.u32 x2, x1, x0; sub.u32 x3, x2, x1;
                @{p} mov.b32 x3, x0; add.u32 {to}, x3, x2; }}"
            ),
            1 => format!(
                "{{ .reg .b64 y<3>; cvt.u64.u32 y0, {a}; mul.lo.u64 y1, y0, {d}; shr.u64 y2, y1, 7; add.u64 {d}, y2, y0; }}"
            ),
            2 => format!(
                "{{ .reg .pred q<3>; .reg .b32 x; setp.lt.u32 q0|q1, {a}, {b}; xor.pred q2, q1, {p}; selp.b32 x, {a}, {b}, q2;
                @q0 add.u32 x, x, 3; mov.b32 {to}, x; }}"
            ),
            _ => format!(
                "{{ .reg .b32 x<3>; @{p} mov.b32 x0, {a}; @!{p} mov.b32 x0, {b}; mov.b32 x1, x0; add.u32 {to}, x1, 1; }}"
            ),
        }
    }

    /// Of the lanes that have come here together.
    fn across_lanes(&mut self) -> String {
        let (to, a, b) = (self.r(), self.r(), self.r());
        let p = self.p();
        let access = match self.random.below(7) {
            0 => format!("shfl.sync.idx.b32 {to}, {a}, {b}, 31, %t8;"),
            1 => format!("shfl.sync.bfly.b32 {to}|%p5, {a}, 3, 31, %t8;"),
            2 => format!("vote.sync.{}.pred {p}, %p1, %t8;", self.random.pick(&["all", "any", "uni"])),
            3 => format!("vote.sync.ballot.b32 {to}, {p}, %t8;"),
            4 => format!("match.any.sync.b32 {to}, {a}, %t8;"),
            5 => format!("redux.sync.{} {to}, {a}, %t8;", self.random.pick(&["add.u32", "min.s32", "xor.b32"])),
            _ => "bar.warp.sync %t8;".to_owned(),
        };
        format!("activemask.b32 %t8; {access}")
    }
}
