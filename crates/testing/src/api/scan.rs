//! A parser for Rust items: just enough of the grammar to find what a source file declares. It knows names and texts,
//! not types.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::source::blank_non_code;

/// A line of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicItem {
    /// `block` for items of `src/block.rs`, `crate` for `src/lib.rs`.
    pub(super) module: String,
    /// Indented below its container.
    pub(super) line: String,
    /// For an unsafe function: its container (`impl S`, or empty) and its signature.
    pub(super) unsafe_fn: Option<[String; 2]>,
    /// The `# Safety` section of its documentation, line by line.
    pub(super) safety: Vec<String>,
}

/// Returns everything public that the sources in a folder declare, from `lib.rs` on.
pub(super) fn public_items(src: &Path) -> Vec<PublicItem> {
    let mut all = Vec::new();
    scan_file(src, &src.join("lib.rs"), "crate", &mut all);
    // A trait impl belongs to the interface if the type or the trait does.
    let is_type =
        |line: &str| ["pub struct ", "pub enum ", "pub trait ", "pub union "].iter().any(|kind| line.contains(kind));
    let known: BTreeSet<String> =
        all.iter().filter(|item| is_type(&item.line)).map(|item| item_name(&item.line)).collect();
    all.retain(|item| {
        let words = item.line.split(|c: char| !c.is_alphanumeric() && c != '_');
        !item.line.starts_with("impl")
            || !item.line.contains(" for ")
            || words.into_iter().any(|word| known.contains(word))
    });
    all
}

/// Returns the name after `struct`, `enum` or `trait`.
fn item_name(line: &str) -> String {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.find(|word| matches!(*word, "struct" | "enum" | "trait" | "union"));
    words.next().unwrap_or_default().to_owned()
}

fn scan_file(folder: &Path, path: &Path, module: &str, all: &mut Vec<PublicItem>) {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = Reader {
        code: blank_non_code(&text),
        text,
        module: module.to_owned(),
        modules: Vec::new(),
        owner: String::new(),
        all,
    };
    reader.items(0, reader.code.len(), Container::Module);
    let modules = std::mem::take(&mut reader.modules);
    for name in modules {
        let below = if module == "crate" { folder.to_owned() } else { folder.join(module.replace("::", "/")) };
        let flat = below.join(format!("{name}.rs"));
        let path = if flat.exists() { flat } else { below.join(&name).join("mod.rs") };
        let inner = if module == "crate" { name } else { format!("{module}::{name}") };
        scan_file(folder, &path, &inner, all);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Module,
    /// All of its items are public.
    Trait,
    Impl,
}

struct Reader<'a> {
    text: String,
    code: Vec<u8>,
    module: String,
    /// The modules that have files of their own.
    modules: Vec<String>,
    /// The trait or the impl that is being read.
    owner: String,
    all: &'a mut Vec<PublicItem>,
}

impl Reader<'_> {
    /// Reads the items between two positions.
    fn items(&mut self, mut at: usize, end: usize, within: Container) {
        while let Some(start) = self.next_code(at, end) {
            let docs_from = at;
            let (mut head, mut is_test, mut attributes) = (start, false, String::new());
            while self.code[head] == b'#' {
                let close = self.matching(
                    head + self.code[head..].iter().position(|&byte| byte == b'[').expect("an attribute has brackets"),
                );
                let attribute = &self.text[head..close];
                is_test |= attribute.starts_with("#[cfg(")
                    && ["test", "loom", "fuzzing"].iter().any(|cfg| attribute.contains(cfg));
                let is_told = ["#[derive", "#[non_exhaustive", "#[repr", "#[must_use"]
                    .iter()
                    .any(|one| attribute.starts_with(one));
                if is_told {
                    attributes.push_str(&collapse_whitespace(attribute));
                    attributes.push(' ');
                }
                let Some(next) = self.next_code(close, end) else { return };
                head = next;
            }
            let (body, after) = self.item_extent(head, end);
            if !is_test {
                self.item(docs_from, head, body, after, &attributes, within);
            }
            at = after;
        }
    }

    /// Returns where an item's body begins, if it has one, and where the item ends.
    fn item_extent(&self, head: usize, end: usize) -> (Option<usize>, usize) {
        let (mut at, text) = (head, self.declaration(head, end));
        let is_use = text.starts_with("use ") || text.starts_with("pub use ") || text.starts_with("pub(crate) use ");
        let has_value =
            [" const ", " static "].iter().any(|word| format!(" {text}").contains(word)) && !text.contains("fn ");
        while at < end {
            match self.code[at] {
                b'(' | b'[' => at = self.matching(at),
                b';' => return (None, at + 1),
                b'{' if is_use || has_value => at = self.matching(at),
                b'{' => {
                    let after = self.matching(at);
                    return (Some(at), after);
                }
                _ => at += 1,
            }
        }
        (None, end)
    }

    /// Returns the first words of an item.
    fn declaration(&self, head: usize, end: usize) -> String {
        // The bracket of `pub(crate)` is a part of them.
        let from = if self.code[head..end].starts_with(b"pub(") { self.matching(head + 3) } else { head };
        let stop =
            self.code[from..end].iter().position(|byte| b"{(;=".contains(byte)).map_or(end, |length| from + length);
        collapse_whitespace(&self.text[head..stop])
    }

    fn item(
        &mut self,
        docs_from: usize,
        head: usize,
        body: Option<usize>,
        after: usize,
        attributes: &str,
        within: Container,
    ) {
        let first = self.declaration(head, after);
        let declared = collapse_whitespace(&without_comments(&self.text[head..body.unwrap_or(after)]));
        let declared = declared.trim_end_matches(';').trim_end();
        let is_pub = first.starts_with("pub ") || within == Container::Trait;
        let words: Vec<&str> = first.split_whitespace().filter(|word| !word.starts_with("pub")).collect();
        let has = |word| words.contains(&word);
        let indent = if within == Container::Module { "" } else { "    " };
        match words.as_slice() {
            ["mod", name, ..] => match body {
                Some(body) => self.items(body + 1, after - 1, Container::Module),
                None => {
                    self.modules.push((*name).to_owned());
                    if is_pub {
                        self.add(declared.to_owned());
                    }
                }
            },
            [word, ..] if word.ends_with('!') => {
                // It is not known whether other calls generate public items.
                let has_to_say = ["macro_rules!", "thread_local!"].iter().any(|name| word.starts_with(name));
                let is_told =
                    if has_to_say { self.text[head..after].contains("pub ") } else { within == Container::Module };
                if is_told {
                    self.lines(head, after);
                }
            }
            ["impl", ..] | ["unsafe", "impl", ..] => self.scan_impl(declared, body, after),
            [word, ..] if word.starts_with("impl<") => self.scan_impl(declared, body, after),
            ["struct", ..] | ["union", ..] if is_pub => self.scan_struct(declared, body, after, attributes),
            ["enum", ..] if is_pub => {
                self.add(format!("{attributes}{declared}"));
                let body = body.expect("an enum has a body");
                for variant in self.public_fields(body, after) {
                    self.add(format!("    {variant}"));
                }
            }
            ["trait", ..] | ["unsafe", "trait", ..] if is_pub => {
                self.add(declared.to_owned());
                let body = body.expect("a trait has a body");
                self.owned(declared.split(':').next().unwrap_or(declared), body, after, Container::Trait);
            }
            _ if has("fn") && is_pub => {
                let safety = self.safety(docs_from, head);
                let line = format!("{indent}{declared}");
                let owner = if within == Container::Module { String::new() } else { self.owner.clone() };
                let unsafe_fn = has("unsafe").then(|| [owner, declared.to_owned()]);
                self.all.push(PublicItem { module: self.module.clone(), line, unsafe_fn, safety });
            }
            _ if (has("const") || has("static")) && is_pub => {
                let named = declared.split(" = ").next().unwrap_or(declared);
                self.add(format!("{indent}{named}"));
            }
            _ if is_pub => self.add(format!("{indent}{declared}")),
            _ => {}
        }
    }

    fn scan_impl(&mut self, declared: &str, body: Option<usize>, after: usize) {
        let Some(body) = body else { return };
        self.add(declared.to_owned());
        let before = self.all.len();
        if !declared.contains(" for ") {
            self.owned(declared, body, after, Container::Impl);
            if self.all.len() == before {
                self.all.pop();
            }
        }
    }

    /// Reads the items of a trait or an impl.
    fn owned(&mut self, owner: &str, body: usize, after: usize, within: Container) {
        self.owner = owner.split(" where ").next().unwrap_or(owner).to_owned();
        self.items(body + 1, after - 1, within);
    }

    fn scan_struct(&mut self, declared: &str, body: Option<usize>, after: usize, attributes: &str) {
        match body {
            Some(body) => {
                self.add(format!("{attributes}{declared}"));
                for field in self.public_fields(body, after).into_iter().filter(|field| field.starts_with("pub ")) {
                    self.add(format!("    {field}"));
                }
            }
            // Private fields are not listed.
            None => {
                let (name, fields) = declared.split_once('(').unwrap_or((declared, ")"));
                let fields: Vec<&str> =
                    fields.trim_end_matches(')').split(", ").filter(|field| field.starts_with("pub ")).collect();
                self.add(format!("{attributes}{name}({})", fields.join(", ")));
            }
        }
    }

    /// Returns the parts of a body between commas, without comments and attributes.
    fn public_fields(&self, body: usize, after: usize) -> Vec<String> {
        let (mut parts, mut from, mut at) = (Vec::new(), body + 1, body + 1);
        while at < after {
            match self.code[at] {
                b'(' | b'[' | b'{' => at = self.matching(at),
                b',' | b'}' => {
                    parts.push(collapse_whitespace(&without_attributes(&without_comments(&self.text[from..at]))));
                    at += 1;
                    from = at;
                }
                _ => at += 1,
            }
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    fn add(&mut self, line: String) {
        self.all.push(PublicItem { module: self.module.clone(), line, unsafe_fn: None, safety: Vec::new() });
    }

    /// Lists a macro or its call as written. Unsafe functions that it generates are recognized by their first words.
    fn lines(&mut self, head: usize, after: usize) {
        let (mut at, mut docs_from, mut owner) = (head, head, String::new());
        for written in self.text[head..after].to_owned().split_inclusive('\n') {
            let (start, line) = (at, written.trim());
            at += written.len();
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            self.add(line.to_owned());
            if line.starts_with("impl") {
                owner = line.trim_end_matches('{').trim_end().to_owned();
            } else if line.contains("pub ") && line.contains("unsafe ") && line.contains(" fn ") {
                let from = start + written.find("pub ").expect("the line contains it");
                let (body, end) = self.item_extent(from, after);
                let declared = collapse_whitespace(&without_comments(&self.text[from..body.unwrap_or(end - 1)]));
                let safety = self.safety(docs_from, start);
                let told = self.all.last_mut().expect("it was just added");
                (told.unsafe_fn, told.safety) = (Some([owner.clone(), declared]), safety);
            }
            if !line.starts_with('#') {
                docs_from = at;
            }
        }
    }

    /// Returns the `# Safety` section of the documentation before an item.
    fn safety(&self, from: usize, head: usize) -> Vec<String> {
        let docs = self.text[from..head].lines().filter_map(|line| line.trim().strip_prefix("///")).map(str::trim);
        let below = docs.skip_while(|line| *line != "# Safety").skip(1);
        below.take_while(|line| !line.starts_with('#')).map(str::to_owned).filter(|line| !line.is_empty()).collect()
    }

    /// Returns the next position that is not blank.
    fn next_code(&self, at: usize, end: usize) -> Option<usize> {
        let length = self.code[at..end].iter().position(|byte| !byte.is_ascii_whitespace())?;
        // Skips what an attribute of the file or an unmatched bracket leaves.
        Some(at + length).filter(|&found| self.code[found] != b'}')
    }

    /// Returns the position after the bracket that closes the one at `open`.
    fn matching(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (at, byte) in self.code.iter().enumerate().skip(open) {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at + 1;
            }
        }
        self.code.len()
    }
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line }).collect::<Vec<_>>().join("\n")
}

fn without_attributes(text: &str) -> String {
    let mut left = text.trim_start();
    while left.starts_with("#[") {
        let code = blank_non_code(left);
        let mut depth = 0_usize;
        let close = code.iter().position(|byte| {
            depth = match byte {
                b'[' => depth + 1,
                b']' => depth - 1,
                _ => depth,
            };
            *byte == b']' && depth == 0
        });
        left = left[close.map_or(left.len(), |close| close + 1)..].trim_start();
    }
    left.to_owned()
}

/// Collapses whitespace to single spaces, and removes a trailing comma before a line's end.
fn collapse_whitespace(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("( ", "(").replace(", )", ")").replace(" )", ")").replace("< ", "<").replace(", >", ">")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        items(text).into_iter().map(|item| item.line).collect()
    }

    fn items(text: &str) -> Vec<PublicItem> {
        let mut all = Vec::new();
        let code = blank_non_code(text);
        let mut reader = Reader {
            code,
            text: text.to_owned(),
            module: "crate".to_owned(),
            modules: Vec::new(),
            owner: String::new(),
            all: &mut all,
        };
        reader.items(0, reader.code.len(), Container::Module);
        all
    }

    #[test]
    fn public_items_are_listed_and_private_ones_are_not() {
        let text = r#"
            //! A { that is no code.
            use std::fmt;
            pub use a::{B, C};
            /// A struct.
            #[derive(Clone, Debug)]
            pub struct S<T> { /// A field.
                pub one: Vec<T>, two: u8, pub(crate) three: u8 }
            pub struct H(pub u64, u8);
            struct Hidden;
            pub enum E { #[error("} {0}")] A(u8), B { x: u8 } }
            impl<T> S<T> {
                pub const N: usize = { 1 };
                /// Text.
                /// # Safety
                /// It is so.
                pub unsafe fn f(
                    &self,
                    x: &str,
                ) -> Option<u8> { let _ = '{'; None }
                fn g() {}
                pub(crate) fn h() {}
            }
            pub trait T { type W; fn f(&self) -> u8 { 1 } }
            impl T for Hidden { type W = u8; }
            #[cfg(test)]
            mod tests { pub fn not_this() {} }
            pub const fn c() -> u8 { 1 }
            pub(crate) mod inner { pub fn reached() {} pub(super) fn hidden() {} }
        "#;
        let wanted = [
            "pub use a::{B, C}",
            "#[derive(Clone, Debug)] pub struct S<T>",
            "    pub one: Vec<T>",
            "pub struct H(pub u64)",
            "pub enum E",
            "    A(u8)",
            "    B { x: u8 }",
            "impl<T> S<T>",
            "    pub const N: usize",
            "    pub unsafe fn f(&self, x: &str) -> Option<u8>",
            "pub trait T",
            "    type W",
            "    fn f(&self) -> u8",
            "impl T for Hidden",
            "pub const fn c() -> u8",
            "pub fn reached()",
        ];
        assert_eq!(lines(text), wanted);
    }

    #[test]
    fn an_unsafe_function_is_listed_with_its_path_also_if_a_macro_defines_it() {
        let text = r#"
            impl<T: Pod> Block<T> where T: Copy {
                /// # Safety
                /// One.
                pub unsafe fn one(&self) {}
                pub fn safe(&self) {}
            }
            pub trait Backend: Send { unsafe fn two(&self); }
            pub const unsafe fn three() -> u8 { 1 }
            macro_rules! handles {
                ($($name:ident)*) => {$(
                    impl $name {
                        /// Text.
                        /// # Safety
                        /// Four.
                        #[inline]
                        pub const unsafe fn from_raw(
                            raw: u64,
                        ) -> Self { Self(raw) }
                        pub fn raw(self) -> u64 { self.0 }
                    }
                )*};
            }
        "#;
        let told: Vec<_> =
            items(text).into_iter().filter_map(|item| Some((item.unsafe_fn?, item.safety.concat()))).collect();
        let wanted = [
            ("impl<T: Pod> Block<T>", "pub unsafe fn one(&self)", "One."),
            ("pub trait Backend", "unsafe fn two(&self)", ""),
            ("", "pub const unsafe fn three() -> u8", ""),
            ("impl $name", "pub const unsafe fn from_raw(raw: u64) -> Self", "Four."),
        ];
        assert_eq!(told, wanted.map(|(owner, line, safety)| ([owner.to_owned(), line.to_owned()], safety.to_owned())));
    }

    #[test]
    fn a_changed_signature_is_another_line() {
        let one = lines("impl S { pub fn f(&self, n: u32) {} }");
        assert_ne!(one, lines("impl S { pub fn f(&self, n: u64) {} }"));
        assert_ne!(one, lines("impl S { pub unsafe fn f(&self, n: u32) {} }"));
        assert_eq!(
            one,
            lines(
                "impl S {\n    // Why.\n    pub fn f(\n        &self,\n        n: u32,\n    ) {\n        g()\n    }\n}"
            )
        );
    }
}
