//! The lab's experiments: what a CUDA driver, a CUDA runtime or an OpenCL driver does, and what recorded devices did.
//!
//! `freehold lab` selects experiments, compares the answers and prints them. Each experiment runs in its own process: [`answers`]
//! starts the program again as `experiment ID`, which has to call [`child::run`].
//!
//! An experiment is one function over a driver's table, with an id, a question and a short literal answer (`experiments/`); those
//! of `runtime/` call a CUDA runtime, which is loaded by its name. `reference/h200.json` has the answers of a GPU.
//!
//! - Pending work never depends on time: a stream or a kernel waits for a word, which the experiment writes (`latch.rs`).
//! - Whether a call waits is decided by the CPU time of the experiment's threads (`cpu_time.rs`), so a busy machine changes no
//!   answer.
//! - An experiment that needs another process starts a partner and sends it one driver call at a time (`partner_request.rs`).
//! - With `--trace` every process logs each driver call before and after it (`trace/`).
//!
//! # Modules
//!
//! - `id`, `experiment`, `failure`: an experiment, its id, and why one fails.
//! - `experiments`, `runtime`, `opencl`: the experiments, by what they ask.
//! - `fixture` and the files beside it: what experiments use, such as kernels, other processes and latches.
//! - [`child`], `partner`: the process of an experiment, and that of its partner.
//! - `target`: the driver under test. `reference`: recorded answers. `trace`: every driver call of a run.
//! - `runner`: runs experiments, several at once on the software device.

pub mod child;

mod answer_text;
mod cpu_time;
mod experiment;
mod experiments;
mod failure;
mod fixture;
mod free_memory;
mod host_buffer;
mod id;
mod kernels;
mod latch;
mod mapped;
mod opencl;
mod output_capture;
mod partner;
mod partner_request;
mod reference;
mod runner;
mod runtime;
mod shared_host;
mod target;
mod trace;

pub use experiment::{ExperimentInfo, QUESTIONS};
pub use experiments::is_unchecked;
pub use failure::error_name;
pub use id::{Id, IdPrefix, OPENCL};
pub use reference::{Reference, ReferenceError, ReferenceWriter};
pub use runner::{RunError, RuntimeLibrary, answers, signal_name};
pub use runtime::QUESTION as RUNTIME;
pub use runtime::functions::{LoadError, open as open_runtime};
pub use target::{OPENCL_QUESTIONS, Target, cuda_experiments, opencl_experiments, question};
pub use trace::{Trace, TraceError};
