//! Captures what a driver prints for kernels.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Redirects a stream to a file while this value lives.
pub(crate) struct OutputCapture {
    file: File,
    /// The stream's original descriptor.
    before: OwnedFd,
    descriptor: RawFd,
}

impl OutputCapture {
    pub(crate) fn stdout() -> io::Result<Self> {
        Self::of(libc::STDOUT_FILENO)
    }

    pub(crate) fn stderr() -> io::Result<Self> {
        Self::of(libc::STDERR_FILENO)
    }

    fn of(descriptor: RawFd) -> io::Result<Self> {
        // SAFETY: the name ends in a NUL; the call returns a new descriptor or a negative number.
        let file = unsafe { libc::memfd_create(c"printed".as_ptr(), 0) };
        // SAFETY: the call takes a number and returns a new descriptor or a negative number.
        let before = unsafe { libc::dup(descriptor) };
        if file < 0 || before < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and belongs to nothing else.
        let file = unsafe { File::from_raw_fd(file) };
        // SAFETY: as for `file`.
        let before = unsafe { OwnedFd::from_raw_fd(before) };
        flush();
        // SAFETY: the call takes two descriptors, both open.
        if unsafe { libc::dup2(file.as_raw_fd(), descriptor) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, before, descriptor })
    }

    /// Returns what was printed so far.
    pub(crate) fn text(&self) -> io::Result<String> {
        flush();
        let mut file = &self.file;
        let end = file.stream_position()?;
        file.seek(SeekFrom::Start(0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(text)
    }
}

impl Drop for OutputCapture {
    fn drop(&mut self) {
        flush();
        // SAFETY: the call takes two open descriptors. If it fails, the answer is not printed, and the lab reports
        // that.
        unsafe { libc::dup2(self.before.as_raw_fd(), self.descriptor) };
    }
}

/// Flushes the buffers of the C library.
fn flush() {
    // SAFETY: null means every open file of the C library.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}
