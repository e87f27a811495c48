//! What all commands print with: text, sizes, tables, charts, progress. Knows no command.

pub(crate) mod charts;
pub(crate) mod file;
pub(crate) mod progress;
pub(crate) mod size;
pub(crate) mod table;
pub(crate) mod text;
