//! nvJitLink for the software device: the documented interface of `nvJitLink.h`, over the linker of the software driver.
//!
//! What it links is an image that the software driver loads, in place of machine code. Programs ask for `libnvJitLink.so.13`,
//! wherever it lies; the audit library answers with this one. Each function is exported under its plain name and under the name
//! of every minor version. `libnvJitLink.so.12` is another library, which forwards to this one (`nvjitlink12`).
//!
//! LTO-IR is NVIDIA's own intermediate code. If the program has NVIDIA's library, that turns LTO-IR into PTX on the host
//! (`-lto -ptx`), which is then linked here. Otherwise LTO-IR is refused.
//!
//! # Modules, from bottom to top
//!
//! - `code`: results and kinds of input.
//! - `options`: what `nvJitLinkCreate` accepts.
//! - `vendor`: NVIDIA's library.
//! - `link`: one link, from its inputs to its image.
//! - `exports`: the C functions, and the table of links that their handles name.

mod code;
mod exports;
mod link;
mod options;
mod vendor;
