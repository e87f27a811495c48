//! A file that a command writes at its end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whether a path means standard output, or standard input.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

#[derive(Debug, thiserror::Error)]
#[error("failed to write {}: {error}", .path.display())]
pub(crate) struct WriteError {
    path: PathBuf,
    error: io::Error,
}

impl WriteError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self { path, error }
    }
}

/// A file that is opened before the work whose result it gets, so that an unwritable path fails at once. Its old
/// content stays until then.
pub(crate) struct OutputFile<'a> {
    path: &'a Path,
    file: File,
    /// Whether the file was created here; it is then removed if nothing is written.
    is_empty: bool,
}

impl<'a> OutputFile<'a> {
    pub(crate) fn open(path: &'a Path) -> Result<Self, WriteError> {
        let is_empty = !path.exists();
        let file = File::options().create(true).append(true).open(path).map_err(WriteError::at(path))?;
        Ok(Self { path, file, is_empty })
    }

    /// Returns what is the same for two paths to one file: its device, and its number there. `None` for a pipe or a device.
    pub(crate) fn identity(&self) -> Result<Option<(u64, u64)>, WriteError> {
        let found = self.file.metadata().map_err(WriteError::at(self.path))?;
        Ok(found.is_file().then(|| (found.dev(), found.ino())))
    }

    pub(crate) fn write(mut self, text: &str) -> Result<(), WriteError> {
        // A pipe or a device has no length.
        let is_file = self.file.metadata().is_ok_and(|found| found.is_file());
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        emptied.and_then(|()| self.file.write_all(text.as_bytes())).map_err(WriteError::at(self.path))?;
        self.is_empty = false;
        Ok(())
    }
}

impl Drop for OutputFile<'_> {
    fn drop(&mut self) {
        if self.is_empty {
            // A file that remains is empty, and so shows that nothing was written.
            let _ = fs::remove_file(self.path);
        }
    }
}
