//! Registers that only some paths write: once, inside a branch, and read there or after it.

use super::text::Text;

impl Text<'_> {
    /// A branch with registers of its own. One side writes them, or each side another one; what is read after the branch
    /// may be what this side wrote, what an earlier iteration of a loop wrote, or nothing.
    pub(super) fn partial_writes(&mut self) {
        let label = self.next_label();
        let (p, not) = (self.p(), self.random.pick(&["", "!"]));
        let (a, b, d) = (self.r(), self.r(), self.d());
        self.line("{ .reg .b32 x<4>; .reg .b64 y<2>; .reg .pred q<2>;");
        if self.random.below(2) == 0 {
            let comparison = self.comparison(&p);
            self.line(&comparison);
        }
        self.line(&format!("@{not}{p} bra P{label};"));
        let value = self.known_value();
        self.line(&format!("{value} add.u32 x1, x0, {a}; setp.lt.u32 q0, x1, {b};"));
        if self.random.below(2) == 0 {
            self.line(&format!("add.u32 {a}, {a}, x1; cvt.u64.u32 y0, x0; selp.b32 {b}, {b}, x0, q0;"));
        }
        if self.random.below(2) == 0 {
            let other = self.known_value().replace("x0", "x2").replace("y0", "y1");
            self.line(&format!("bra Q{label};\nP{label}: {other} setp.ge.s32 q1, x2, {b};\nQ{label}:"));
        } else {
            self.line(&format!("P{label}:"));
        }
        let (to, wide) = (self.r(), self.d());
        let read = match self.random.below(6) {
            0 => format!("add.u32 {to}, {to}, x0;"),
            1 => format!("xor.b32 {to}, x1, x2; mov.b32 x3, {to};"),
            2 => format!("selp.b32 {to}, {a}, {b}, q0;"),
            3 => format!("add.u64 {wide}, {d}, y0; xor.b32 {to}, x0, x2;"),
            4 => format!("@q0 mov.b32 x3, x1; @!q1 add.u32 {to}, x3, x2;"),
            _ => format!("mad.wide.u32 y1, x0, x1, {d}; add.u64 {wide}, y1, y0;"),
        };
        self.line(&format!("{read} }}"));
    }

    /// Writes `x0`, and in some cases `y0`: the value may be known before a block begins.
    fn known_value(&mut self) -> String {
        let (a, x) = (self.r(), self.x());
        match self.random.below(8) {
            0 => "mov.b32 x0, %t0;".to_owned(),
            1 => "mul.lo.u32 x0, %t0, 12;".to_owned(),
            2 => "ld.param.u64 y0, [p]; cvt.u32.u64 x0, y0;".to_owned(),
            3 => format!("mov.b32 x0, {};", self.random.word()),
            4 => "mad.lo.u32 x0, %t1, %t2, %t0; mul.wide.u32 y0, x0, 4;".to_owned(),
            5 => format!("mul.hi.u32 x0, {a}, {x};"),
            6 => format!("mul.wide.u32 y0, {a}, 8; mov.b32 x0, {a};"),
            _ => format!("sub.u32 x0, {a}, {x};"),
        }
    }
}
