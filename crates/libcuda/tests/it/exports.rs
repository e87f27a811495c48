//! `src/exports.rs` contains the exports that the list of functions does not cover: the names for per-thread default
//! streams, and the symbols that are not supported. It is checked in, so that a build does not compile the driver crate
//! twice.
//!
//! `FREEHOLD_WRITE_EXPORTS=1 cargo test -p freehold-libcuda exports` rewrites it.

use std::fmt::Write;
use std::fs;

use freehold_driver::cuda::Function;
use freehold_driver::cuda::symbols::{SYMBOLS, Symbol};

/// Written by hand in `lib.rs`, with its signature.
const OLDER_FORMS: &[&str] = &["cuGetProcAddress"];

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/exports.rs");

#[test]
fn exports_are_those_of_the_list_of_symbols() {
    let symbols = SYMBOLS.iter().flat_map(|forms| forms.iter());
    let (implemented, others): (Vec<_>, Vec<_>) =
        symbols.filter(|symbol| !OLDER_FORMS.contains(&symbol.name)).partition(|symbol| is_implemented(symbol));
    let note = "// Generated from the list of driver symbols: see tests/it/exports.rs.\n";
    let text = note.to_owned() + &per_thread(&implemented) + &unsupported(&others);
    if std::env::var_os("FREEHOLD_WRITE_EXPORTS").is_some() {
        return fs::write(PATH, text).unwrap();
    }
    let is_same = fs::read_to_string(PATH).unwrap() == text;
    assert!(is_same, "{PATH} is outdated: set FREEHOLD_WRITE_EXPORTS=1 and run this test again");
}

fn is_implemented(symbol: &Symbol) -> bool {
    Function::named(symbol.name).is_some()
}

/// Returns a macro that gives an item the exported name of a function's per-thread variant, and drops it if there is
/// none.
fn per_thread(implemented: &[&Symbol]) -> String {
    let mut text = "macro_rules! per_thread {\n".to_owned();
    for symbol in implemented {
        if let Some(name) = symbol.per_thread {
            writeln!(text, "({}, $item:item) => {{ #[unsafe(export_name = \"{name}\")] $item }};", symbol.name)
                .expect("writing to a string does not fail");
        }
    }
    text + "($function:ident, $item:item) => {};\n}\n"
}

/// Returns a call of the macro `unsupported` with every symbol that is not implemented.
fn unsupported(others: &[&Symbol]) -> String {
    let names: Vec<_> = others.iter().flat_map(|symbol| [Some(symbol.name), symbol.per_thread]).flatten().collect();
    format!("unsupported! {{ {} }}\n", names.join(" "))
}
