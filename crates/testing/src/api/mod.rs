//! The public interface of the crates, read from their sources: `api.txt` beside each `Cargo.toml`, and the list of
//! unsafe functions in `docs/unsafe.md`. Both are checked in, so that a review shows a changed signature, and a test
//! fails if they differ from the source.
//!
//! `FREEHOLD_WRITE_API=1 cargo test -p freehold-testing api` rewrites them.
//!
//! Every `pub` item is listed, under the module that declares it: the lint `unreachable_pub` ensures that each can be
//! reached from outside. What macros generate is listed as the text of the macro and of its call.

mod scan;

use std::fs;
use std::path::{Path, PathBuf};

use self::scan::PublicItem;

/// The crates that programs use, in the order of the page on unsafe functions. `freehold-libcuda` is covered by its
/// exports.
const CRATES: [&str; 9] = ["freehold", "broker", "mpi", "remote", "capi", "driver", "softcuda", "ptx", "check"];

const VARIABLE: &str = "FREEHOLD_WRITE_API";

/// The markers around the list in `docs/unsafe.md`.
const BEGIN: &str = "<!-- The list is written by the tests: see crates/testing/src/api/mod.rs. -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the lines of a crate's `api.txt`: a heading for each module, and its items below it.
fn render(items: &[PublicItem]) -> String {
    let (mut text, mut module) = (String::new(), None);
    for item in items {
        if module != Some(&item.module) {
            text.push_str(&format!("{}[{}]\n", if module.is_some() { "\n" } else { "" }, item.module));
            module = Some(&item.module);
        }
        text.push_str(&item.line);
        text.push('\n');
    }
    text
}

/// Returns the unsafe functions of all crates, as a Markdown list: those of the library first.
fn unsafe_list() -> String {
    let mut text = String::new();
    for name in CRATES {
        let items = scan::public_items(&root().join("crates").join(name).join("src"));
        let mut module = None;
        for item in &items {
            let Some([owner, declared]) = &item.unsafe_fn else { continue };
            if module != Some(&item.module) {
                let of = if name == "freehold" { name.to_owned() } else { format!("freehold-{name}") };
                text.push_str(&format!("\n### `{of}`: `{}`\n\n", item.module));
                module = Some(&item.module);
            }
            let within = if owner.is_empty() { String::new() } else { format!("`{owner}`: ") };
            text.push_str(&format!("- {within}`{declared}`\n"));
            if item.safety.is_empty() {
                assert_eq!(name, "capi", "{declared} has no # Safety section");
                text.push_str("  As its comment in `freehold.h` says.\n");
            }
            for line in &item.safety {
                text.push_str(&format!("  {}\n", strip_links(line)));
            }
        }
    }
    text
}

/// Removes rustdoc links, which have no target on a page.
fn strip_links(line: &str) -> String {
    let mut text = String::new();
    let mut left = line;
    while let Some((before, behind)) = left.split_once("[`") {
        text.push_str(before);
        let Some((name, behind)) = behind.split_once("`]") else { return line.to_owned() };
        text.push_str(&format!("`{name}`"));
        left = behind.strip_prefix('(').and_then(|target| target.split_once(')')).map_or(behind, |(_, rest)| rest);
    }
    text + left
}

/// Compares a file with its expected contents, or writes it.
fn assert_file(path: &Path, wanted: &str) {
    if std::env::var_os(VARIABLE).is_some() {
        return fs::write(path, wanted).expect("cannot write the file");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let (mut old, mut new) = (found.lines(), wanted.lines());
    let difference = loop {
        match (old.next(), new.next()) {
            (None, None) => return,
            (old, new) if old != new => break (old, new),
            _ => {}
        }
    };
    let path = path.strip_prefix(root()).unwrap_or(path).display();
    let (old, new) = (difference.0.unwrap_or("(its end)"), difference.1.unwrap_or("(its end)"));
    panic!(
        "{path} differs from the source; set {VARIABLE}=1 and run this test again\n  recorded: {old}\n  found:    {new}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_items_are_those_that_are_recorded() {
        for name in CRATES {
            let folder = root().join("crates").join(name);
            assert_file(&folder.join("api.txt"), &render(&scan::public_items(&folder.join("src"))));
        }
    }

    #[test]
    fn the_page_on_unsafe_lists_every_public_unsafe_function_with_its_contract() {
        let path = root().join("docs/unsafe.md");
        let page = fs::read_to_string(&path).expect("cannot read the page");
        let (before, _) = page.split_once(BEGIN).expect("the page lacks the marker of the list");
        let list = unsafe_list();
        assert!(list.contains("pub unsafe fn kernel(&self, name: &str) -> Result<Kernel>"), "{list}");
        assert_file(&path, &format!("{before}{BEGIN}{list}"));
    }
}
