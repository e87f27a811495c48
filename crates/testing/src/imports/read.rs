//! Reads the imports of a crate: which module names items of which other module. It resolves names, not types.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::graph::Import;
use crate::source::blank_non_code;

/// A module of a crate: a file, or a module in braces within one.
#[derive(Debug, Default)]
struct Module {
    /// The path of the module whose file this is in: an import counts for that one.
    file: String,
    /// Whether it contains only modules and re-exports.
    is_facade: bool,
    /// The names of its child modules.
    children: Vec<String>,
    /// What its `use` items bring into scope: a name, and the path behind it. The name of a glob import is `*`.
    names: Vec<(String, Vec<String>)>,
    /// All paths in the code, including those of `use` items, with their lines.
    paths: Vec<(usize, Vec<String>)>,
}

type Modules = BTreeMap<String, Module>;

/// The paths of all modules of a crate, and all imports between its files. `src` has the sources of a library, or of a
/// program if there is no library.
pub(super) fn imports_of(src: &Path) -> (Vec<String>, Vec<Import>) {
    let mut modules = Modules::new();
    let library = src.join("lib.rs");
    let root = if library.exists() { library } else { src.join("main.rs") };
    read_file(&root, src, "", &mut modules);
    let mut imports = Vec::new();
    for (path, module) in modules.iter().filter(|(_, module)| !module.is_facade) {
        for (line, named) in &module.paths {
            if let Some(to) = target(&modules, path, named, 0) {
                let import = Import { from: module.file.clone(), to, line: *line };
                if import.from != import.to {
                    imports.push(import);
                }
            }
        }
    }
    imports.sort_unstable();
    imports.dedup();
    (modules.into_keys().collect(), imports)
}

/// How many re-exports a path passes through at the most.
const RE_EXPORTS_MAX: usize = 6;

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn parent(module: &str) -> String {
    module.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_owned())
}

/// The file that a path leads to, seen from a module. `None` if the path leaves the crate.
fn target(modules: &Modules, module: &str, path: &[String], depth: usize) -> Option<String> {
    // Modules that import all of each other's items lead back here.
    if depth > RE_EXPORTS_MAX {
        return None;
    }
    let mut at = module.to_owned();
    let mut rest = path;
    match path.first().map(String::as_str) {
        Some("crate") => (at, rest) = (String::new(), &path[1..]),
        Some("self") => rest = &path[1..],
        Some("super") => {}
        Some(first) if modules[module].children.iter().any(|child| child == first) => {}
        _ => return None,
    }
    while let Some((name, behind)) = rest.split_first() {
        if name == "super" {
            at = parent(&at);
        } else if modules[&at].children.contains(name) {
            at = joined(&at, name);
        } else if name == "self" || name == "*" {
            break;
        } else {
            return Some(item(modules, &at, name, behind, depth));
        }
        rest = behind;
    }
    Some(modules[&at].file.clone())
}

/// The file that declares an item which a module has in scope.
fn item(modules: &Modules, module: &str, name: &str, behind: &[String], depth: usize) -> String {
    let of = &modules[module];
    let brought = of.names.iter().find(|(brought, _)| brought == name).map(|(_, path)| path.clone());
    let brought =
        brought.into_iter().chain(of.names.iter().filter(|(all, _)| all == "*").map(|(_, path)| path.clone()));
    let mut found = brought.filter_map(|mut path| {
        let is_all = path.last().is_some_and(|last| last == "*");
        if is_all {
            path.pop();
            path.push(name.to_owned());
        }
        path.extend_from_slice(behind);
        target(modules, module, &path, depth + 1)
    });
    found.next().unwrap_or_else(|| of.file.clone())
}

/// Reads a file, and the files of the modules that it declares, which are in `folder`.
fn read_file(path: &Path, folder: &Path, module: &str, modules: &mut Modules) {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (name, at) in read(&text, module, module, modules) {
        let inner = joined(module, &name);
        let beside = path.parent().expect("a file is in a folder");
        let (flat, nested) = (folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs"));
        let found = match at {
            Some(at) => beside.join(at),
            None if flat.exists() => flat,
            None => nested,
        };
        let below: PathBuf = if found.ends_with("mod.rs") { beside_of(&found) } else { found.with_extension("") };
        read_file(&found, &below, &inner, modules);
    }
}

fn beside_of(path: &Path) -> PathBuf {
    path.parent().expect("a file is in a folder").to_owned()
}

/// Reads the text of a module. Returns the modules that it declares in other files, with the path from `#[path]` if there is one.
fn read(text: &str, module: &str, file: &str, modules: &mut Modules) -> Vec<(String, Option<String>)> {
    let tokens = tokens(text);
    let mut reader = Reader { tokens: &tokens, file, modules, elsewhere: Vec::new() };
    reader.module(0, tokens.len(), module);
    reader.elsewhere
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    /// A word, `::`, or one character. Literals are left out, but for the one in `#[path = "…"]`.
    text: String,
    line: usize,
}

/// The words and punctuation of the code.
fn tokens(text: &str) -> Vec<Token> {
    let code = blank_non_code(text);
    let (mut tokens, mut at, mut line) = (Vec::<Token>::new(), 0, 1);
    while at < code.len() {
        let start = at;
        let byte = code[at];
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80 {
            while at < code.len() && (code[at].is_ascii_alphanumeric() || code[at] == b'_' || code[at] >= 0x80) {
                at += 1;
            }
        } else if code[at..].starts_with(b"::") {
            at += 2;
        } else {
            at += 1;
        }
        if byte == b'\n' {
            line += 1;
        }
        if !byte.is_ascii_whitespace() {
            tokens.push(Token { text: text[start..at].to_owned(), line });
        } else if text.as_bytes()[start] == b'"' && ends_with(&tokens, &["path", "="]) {
            let literal: String = text[start + 1..].chars().take_while(|&c| c != '"').collect();
            tokens.push(Token { text: literal, line });
        }
    }
    tokens
}

fn ends_with(tokens: &[Token], words: &[&str]) -> bool {
    tokens.len() >= words.len()
        && tokens[tokens.len() - words.len()..].iter().map(|token| &*token.text).eq(words.iter().copied())
}

struct Reader<'a> {
    tokens: &'a [Token],
    file: &'a str,
    modules: &'a mut Modules,
    elsewhere: Vec<(String, Option<String>)>,
}

impl Reader<'_> {
    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// Reads the items of a module between two tokens.
    fn module(&mut self, from: usize, end: usize, path: &str) {
        let mut module = Module { file: self.file.to_owned(), is_facade: true, ..Module::default() };
        let mut at = from;
        let mut told_path = None;
        while at < end {
            if self.text(at) == "#" {
                let open = if self.text(at + 1) == "!" { at + 2 } else { at + 1 };
                let close = self.matching(open);
                if self.is_test(open, close) {
                    at = self.item_end(close, end);
                    continue;
                }
                if self.text(open + 1) == "path" {
                    told_path = Some(self.text(open + 3).to_owned());
                }
                at = close;
                continue;
            }
            let head = self.behind_visibility(at);
            match self.text(head) {
                "mod" if self.text(head + 2) == ";" => {
                    let name = self.text(head + 1).to_owned();
                    module.children.push(name.clone());
                    self.elsewhere.push((name, told_path.take()));
                    at = head + 3;
                }
                "mod" if self.text(head + 2) == "{" => {
                    let name = self.text(head + 1).to_owned();
                    let close = self.matching(head + 2);
                    self.module(head + 3, close - 1, &joined(path, &name));
                    module.children.push(name);
                    module.is_facade = false;
                    at = close;
                }
                "use" => {
                    let close = self.item_end(head, end);
                    let mut brought = Vec::new();
                    self.tree(head + 1, close - 1, &[], &mut brought);
                    let line = self.tokens[head].line;
                    // A private `use` serves code of the module itself.
                    module.is_facade &= head > at;
                    module.paths.extend(brought.iter().map(|(_, path)| (line, path.clone())));
                    module.names.extend(brought);
                    at = close;
                }
                _ => {
                    module.is_facade = false;
                    at = self.path_or_sign(at, end, &mut module);
                }
            }
        }
        self.modules.insert(path.to_owned(), module);
    }

    /// Notes the path that begins at a token, if one does, and returns the token after it.
    fn path_or_sign(&self, at: usize, end: usize, module: &mut Module) -> usize {
        let is_word = |at: usize| self.text(at).starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if !is_word(at) || self.text(at + 1) != "::" {
            return at + 1;
        }
        let (mut path, mut next) = (vec![self.text(at).to_owned()], at + 1);
        while next + 1 < end && self.text(next) == "::" && is_word(next + 1) {
            path.push(self.text(next + 1).to_owned());
            next += 2;
        }
        module.paths.push((self.tokens[at].line, path));
        next
    }

    /// The paths of a `use` tree, each with the name that it brings into scope.
    fn tree(&self, from: usize, end: usize, before: &[String], brought: &mut Vec<(String, Vec<String>)>) {
        let (mut path, mut at) = (before.to_vec(), from);
        let mut name = None;
        while at < end {
            match self.text(at) {
                "::" => at += 1,
                "," => {
                    self.bring(&path, before, name.take(), brought);
                    path = before.to_vec();
                    at += 1;
                }
                "{" => {
                    let close = self.matching(at);
                    self.tree(at + 1, close - 1, &path, brought);
                    path = before.to_vec();
                    at = close;
                }
                "as" => {
                    name = Some(self.text(at + 1).to_owned());
                    at += 2;
                }
                word => {
                    path.push(word.to_owned());
                    at += 1;
                }
            }
        }
        self.bring(&path, before, name, brought);
    }

    fn bring(
        &self,
        path: &[String],
        before: &[String],
        name: Option<String>,
        brought: &mut Vec<(String, Vec<String>)>,
    ) {
        if path.len() == before.len() {
            return;
        }
        let last = path.iter().rev().find(|word| *word != "self");
        let name = name.or_else(|| last.cloned());
        brought.extend(name.map(|name| (name, path.to_vec())));
    }

    /// Whether an attribute restricts its item to tests.
    fn is_test(&self, open: usize, close: usize) -> bool {
        let words: Vec<&str> = (open..close).map(|at| self.text(at)).collect();
        words.get(1) == Some(&"cfg")
            && !words.contains(&"not")
            && words.iter().any(|word| matches!(*word, "test" | "doctest" | "loom"))
    }

    /// The token after `pub` or `pub(…)`.
    fn behind_visibility(&self, at: usize) -> usize {
        if self.text(at) != "pub" {
            return at;
        }
        if self.text(at + 1) == "(" { self.matching(at + 1) } else { at + 1 }
    }

    /// The token after the item that begins at a token.
    fn item_end(&self, from: usize, end: usize) -> usize {
        let (mut at, head) = (from, self.text(self.behind_visibility(from)).to_owned());
        while at < end {
            match self.text(at) {
                "(" | "[" => at = self.matching(at),
                "{" if head == "use" => at = self.matching(at),
                "{" => return self.matching(at),
                ";" => return at + 1,
                _ => at += 1,
            }
        }
        end
    }

    /// The token after the bracket that closes the one at a token.
    fn matching(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for at in open..self.tokens.len() {
            match self.text(at) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at + 1;
            }
        }
        self.tokens.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of modules with these texts, as `from > to`.
    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let mut modules = Modules::new();
        for (module, text) in files {
            read(text, module, module, &mut modules);
        }
        let mut found = Vec::new();
        for (path, module) in modules.iter().filter(|(_, module)| !module.is_facade) {
            let to = module.paths.iter().filter_map(|(_, named)| target(&modules, path, named, 0));
            found.extend(to.filter(|to| *to != module.file).map(|to| format!("{} > {to}", module.file)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn an_import_through_a_re_export_counts_for_the_declaring_file() {
        let files = [
            ("", "mod a; mod b; pub use b::c::Thing;"),
            ("a", "use crate::b::Thing; fn f() {}"),
            ("b", "//! Facade.\npub(crate) mod c;\npub(crate) use self::c::{Thing, Other as Another};"),
            ("b::c", "pub struct Thing; pub struct Other;"),
        ];
        assert_eq!(imports(&files), ["a > b::c"]);
    }

    #[test]
    fn paths_in_code_count_and_those_in_comments_strings_and_tests_do_not() {
        let files = [
            ("", "mod a; mod b; mod c; mod d; fn main() { a::f() }"),
            (
                "a",
                r#"
                // crate::d::f
                fn f() -> crate::b::Thing { let _ = "crate::d"; super::c::g(&[1; 2]) }
                #[cfg(test)]
                mod tests { use crate::d::f; }
                #[cfg(test)]
                use crate::d;
                "#,
            ),
            ("b", "pub struct Thing;"),
            ("c", "pub fn g() {} #[cfg(not(test))] use crate::b::Thing;"),
            ("d", ""),
        ];
        assert_eq!(imports(&files), [" > a", "a > b", "a > c", "c > b"]);
    }

    #[test]
    fn imports_of_a_parent_and_of_a_module_in_braces_count() {
        let files = [
            ("", "mod a;"),
            ("a", "mod b; mod inner { use super::super::a::b::X; use super::Y; } struct Y; fn f(_: b::X) {}"),
            ("a::b", "use super::{Y, inner}; use std::fmt::{self, Debug}; pub struct X;"),
        ];
        assert_eq!(imports(&files), ["a > a::b", "a::b > a"]);
    }
}
