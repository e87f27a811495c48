//! Gives the library its name, and writes the exports that the one list of functions does not tell: the names for
//! per-thread default streams, and the symbols that are only refused.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use freehold_driver::cuda::Function;
use freehold_driver::cuda::symbols::{SYMBOLS, Symbol};

/// Written by hand in `lib.rs`, with its signature.
const OLDER_FORMS: &[&str] = &["cuGetProcAddress"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // It is carried within another program: the names of its functions are kept, their lines, which are most of it, are not.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
    let folder = env::var_os("OUT_DIR").expect("cargo names a folder");
    let symbols = || SYMBOLS.iter().flat_map(|forms| forms.iter());
    let (served, others): (Vec<_>, Vec<_>) =
        symbols().filter(|symbol| !OLDER_FORMS.contains(&symbol.name)).partition(|symbol| is_served(symbol));
    let text = per_thread(&served) + &refused(&others);
    fs::write(Path::new(&folder).join("exports.rs"), text).expect("cargo's folder can be written to");
}

fn is_served(symbol: &Symbol) -> bool {
    Function::named(symbol.name).is_some()
}

/// A macro that gives an item the exported name of a function's per-thread variant, and drops it where there is none.
fn per_thread(served: &[&Symbol]) -> String {
    let mut text = "macro_rules! per_thread {\n".to_owned();
    for symbol in served {
        if let Some(name) = symbol.per_thread {
            writeln!(text, "({}, $item:item) => {{ #[unsafe(export_name = \"{name}\")] $item }};", symbol.name)
                .expect("a string takes all that is written");
        }
    }
    text + "($function:ident, $item:item) => {};\n}\n"
}

/// A call of the macro `refused` with every symbol that is not served.
fn refused(others: &[&Symbol]) -> String {
    let names: Vec<_> = others.iter().flat_map(|symbol| [Some(symbol.name), symbol.per_thread]).flatten().collect();
    format!("refused! {{ {} }}\n", names.join(" "))
}
