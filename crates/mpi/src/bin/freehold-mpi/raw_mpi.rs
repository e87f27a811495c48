//! Raw MPI calls on host memory, or on device memory that the library accepts: the baseline of the benchmark.

use std::ffi::c_int;

use mpi::ffi;

/// Memory that raw calls send and receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawBuffer {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

impl RawBuffer {
    fn start(self) -> *mut std::ffi::c_void {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }

    /// # Safety
    /// The library can read the memory.
    pub(crate) unsafe fn send(self, to: i32) {
        // SAFETY: constants of the library.
        let kind = unsafe { ffi::RSMPI_UINT8_T };
        // SAFETY: as above.
        let comm = unsafe { ffi::RSMPI_COMM_WORLD };
        // SAFETY: the caller guarantees the memory; its length fits into a count.
        let code = unsafe { ffi::MPI_Send(self.start(), self.bytes as c_int, kind, to, 1, comm) };
        assert_eq!(code, 0, "MPI_Send");
    }

    /// # Safety
    /// The library can write the memory, and nothing else uses it.
    pub(crate) unsafe fn recv(self, from: i32) {
        // SAFETY: constants of the library.
        let kind = unsafe { ffi::RSMPI_UINT8_T };
        // SAFETY: as above.
        let comm = unsafe { ffi::RSMPI_COMM_WORLD };
        // SAFETY: as above.
        let ignored = unsafe { ffi::RSMPI_STATUS_IGNORE };
        // SAFETY: the caller guarantees the memory; its length fits into a count.
        let code = unsafe { ffi::MPI_Recv(self.start(), self.bytes as c_int, kind, from, 1, comm, ignored) };
        assert_eq!(code, 0, "MPI_Recv");
    }

    /// Sends the memory `times` times at once, and waits.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub(crate) unsafe fn send_many(self, to: i32, times: usize) {
        let begun = |_| {
            // SAFETY: constants of the library.
            let kind = unsafe { ffi::RSMPI_UINT8_T };
            // SAFETY: as above.
            let comm = unsafe { ffi::RSMPI_COMM_WORLD };
            // SAFETY: as above.
            let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
            // SAFETY: the caller guarantees the memory until the wait below.
            let code = unsafe { ffi::MPI_Isend(self.start(), self.bytes as c_int, kind, to, 1, comm, &mut request) };
            assert_eq!(code, 0, "MPI_Isend");
            request
        };
        wait_all((0..times).map(begun).collect());
    }

    /// Receives into the memory `times` times at once, and waits.
    ///
    /// # Safety
    /// As for [`recv`](Self::recv).
    pub(crate) unsafe fn recv_many(self, from: i32, times: usize) {
        let begun = |_| {
            // SAFETY: constants of the library.
            let kind = unsafe { ffi::RSMPI_UINT8_T };
            // SAFETY: as above.
            let comm = unsafe { ffi::RSMPI_COMM_WORLD };
            // SAFETY: as above.
            let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
            // SAFETY: the caller guarantees the memory until the wait below. The benchmark receives all messages into
            // one buffer by definition; nothing reads them.
            let code = unsafe { ffi::MPI_Irecv(self.start(), self.bytes as c_int, kind, from, 1, comm, &mut request) };
            assert_eq!(code, 0, "MPI_Irecv");
            request
        };
        wait_all((0..times).map(begun).collect());
    }
}

fn wait_all(mut requests: Vec<ffi::MPI_Request>) {
    // SAFETY: a constant of the library.
    let ignored = unsafe { ffi::RSMPI_STATUSES_IGNORE };
    // SAFETY: the list holds live requests, and outlives the call.
    let code = unsafe { ffi::MPI_Waitall(requests.len() as c_int, requests.as_mut_ptr(), ignored) };
    assert_eq!(code, 0, "MPI_Waitall");
}
