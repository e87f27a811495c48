//! Kernels on the software driver: how a faulting kernel ends and is reported, `printf`, and `malloc`.

use crate::common;

use std::ffi::{CStr, c_char, c_void};
use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::kernels::Argument;
use common::{Context, Refused, at, child, pages};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUlimit, CUlogLevel, CUstream, context, host, host_register_flags, library, logs, memory,
    module, stream,
};

/// Kernels that fault, print and allocate.
const TEXT: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 values);
.extern .func (.param .b64 result) malloc(.param .b64 bytes);
.extern .func free(.param .b64 start);
.global .align 1 .b8 format[4] = {37, 100, 10, 0};
.visible .const .align 4 .u32 fixed = 3;

.visible .entry load(.param .u64 from)
{
    .reg .b64 %at;
    .reg .b32 %r;
    ld.param.u64 %at, [from];
    ld.global.u32 %r, [%at];
    ret;
}

.visible .entry store(.param .u64 to)
{
    .reg .b64 %at;
    .reg .b32 %r;
    ld.param.u64 %at, [to];
    mov.u32 %r, 1;
    st.global.u32 [%at], %r;
    ret;
}

.visible .entry add(.param .u64 to)
{
    .reg .b64 %at;
    .reg .b32 %r;
    ld.param.u64 %at, [to];
    atom.global.add.u32 %r, [%at], 1;
    ret;
}

.visible .entry trap_late()
{
    .reg .b32 %r;
    .reg .pred %p;
    mov.u32 %r, %ctaid.x;
    setp.ne.u32 %p, %r, 500;
    @%p ret;
    trap;
}

.visible .entry forever()
{
again:
    bra again;
}

.visible .entry print(.param .u32 value)
{
    .local .align 8 .b8 values[8];
    .reg .b64 %at<5>;
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [value];
    mov.u64 %at1, values;
    cvta.local.u64 %at2, %at1;
    st.local.u32 [%at1], %r1;
    mov.u64 %at3, format;
    cvta.global.u64 %at4, %at3;
    {
        .param .b64 a;
        .param .b64 b;
        .param .b32 c;
        st.param.b64 [a], %at4;
        st.param.b64 [b], %at2;
        call.uni (c), vprintf, (a, b);
        ld.param.b32 %r2, [c];
    }
    ret;
}

// *result = malloc(bytes)
.visible .entry allocate(.param .u64 bytes, .param .u64 result)
{
    .reg .b64 %at<4>;
    ld.param.u64 %at1, [bytes];
    ld.param.u64 %at2, [result];
    {
        .param .b64 a;
        .param .b64 b;
        st.param.b64 [a], %at1;
        call.uni (b), malloc, (a);
        ld.param.b64 %at3, [b];
    }
    st.global.u64 [%at2], %at3;
    ret;
}

.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c) .noreturn;
.global .align 1 .b8 text[3] = {110, 111, 0};
.visible .entry assert()
{
    .reg .b64 %at<3>;
    mov.u64 %at1, text;
    cvta.global.u64 %at2, %at1;
    {
        .param .b64 m;
        .param .b64 f;
        .param .b32 l;
        .param .b64 n;
        .param .b64 c;
        st.param.b64 [m], %at2;
        st.param.b64 [f], %at2;
        st.param.b32 [l], 12;
        st.param.b64 [n], %at2;
        st.param.b64 [c], 1;
        call.uni __assertfail, (m, f, l, n, c);
    }
    ret;
}

.visible .entry release(.param .u64 start)
{
    .reg .b64 %at;
    ld.param.u64 %at, [start];
    {
        .param .b64 a;
        st.param.b64 [a], %at;
        call.uni free, (a);
    }
    ret;
}
";

impl Context {
    /// Launches a kernel of this file's text, one block of one thread, and waits for its end.
    fn end_of(&self, name: &CStr, arguments: &[Argument]) -> Result<(), CUerror> {
        let loaded = self.load(TEXT).unwrap();
        self.run(self.function(loaded, name), LaunchConfig::linear(1, 1), CUstream::NULL, arguments).unwrap();
        stream::synchronize(&self.api, CUstream::NULL).map_err(|error| error.code)
    }

    /// Returns the driver's log.
    fn log(&self) -> String {
        logs::dump(&self.api, None, 25_600, 0).unwrap()
    }
}

/// Runs a test in its own process, because a fault is sticky.
fn faulting(name: &str, body: impl FnOnce(&Context)) {
    child::run_in_child(name, || {
        let own = Context::create();
        body(&own);
        std::mem::forget(own);
    });
}

#[test]
fn a_kernel_of_an_unloaded_library_is_an_invalid_handle() {
    let own = Context::create();
    // SAFETY: the text ends in a NUL, and there are no options.
    let loaded = unsafe { library::load(&own.api, TEXT.as_ptr().cast(), &mut module::Options::new()) }.unwrap();
    let kernel = library::kernel(&own.api, loaded, c"store").unwrap();
    library::unload(&own.api, loaded).unwrap();
    let launched = own.run(kernel.into(), LaunchConfig::linear(1, 1), CUstream::NULL, &[0u64.into()]);
    assert_eq!(launched.code(), CUerror::INVALID_HANDLE);
}

#[test]
fn a_store_beyond_a_block_is_an_illegal_address_and_said_to_be_beyond_it() {
    faulting("a_store_beyond_a_block_is_an_illegal_address_and_said_to_be_beyond_it", |own| {
        let block = own.block(100);
        assert_eq!(own.end_of(c"store", &[(block.0 + 100).into()]), Err(CUerror::ILLEGAL_ADDRESS));
        let log = own.log();
        assert!(log.contains("[CUDA][E] kernel store, PTX line "), "{log}");
        let what = format!(
            "block (0,0,0), thread (0,0,0) writes 4 bytes of global memory at {:#x}: 0 bytes beyond the end of a \
             block of 100 bytes at {:#x}\n",
            block.0 + 100,
            block.0
        );
        assert!(log.ends_with(&what), "{log}");
        assert_eq!(memory::alloc(&own.api, 4).code(), CUerror::ILLEGAL_ADDRESS);
    });
}

#[test]
fn the_last_word_of_a_block_may_be_stored_and_one_that_reaches_beyond_may_not() {
    faulting("the_last_word_of_a_block_may_be_stored_and_one_that_reaches_beyond_may_not", |own| {
        // A word at 100 has all but its last byte within.
        let block = own.block(103);
        assert_eq!(own.end_of(c"store", &[(block.0 + 96).into()]), Ok(()));
        assert_eq!(own.end_of(c"store", &[(block.0 + 100).into()]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn a_load_from_a_freed_block_is_an_illegal_address_and_said_to_be_freed() {
    faulting("a_load_from_a_freed_block_is_an_illegal_address_and_said_to_be_freed", |own| {
        let (block, _neighbour) = (own.block(64), own.block(64));
        let load = own.function(own.load(TEXT).unwrap(), c"load");
        memory::free(&own.api, block).unwrap();
        own.run(load, LaunchConfig::linear(1, 1), CUstream::NULL, &[(block.0 + 4).into()]).unwrap();
        assert_eq!(context::synchronize(&own.api).code(), CUerror::ILLEGAL_ADDRESS);
        let log = own.log();
        assert!(log.contains(&format!("4 bytes into a freed block of 64 bytes at {:#x}", block.0)), "{log}");
    });
}

#[test]
fn an_address_that_was_never_allocated_is_illegal() {
    faulting("an_address_that_was_never_allocated_is_illegal", |own| {
        assert_eq!(own.end_of(c"load", &[0x7000_0000u64.into()]), Err(CUerror::ILLEGAL_ADDRESS));
        assert!(own.log().ends_with("never allocated\n"), "{}", own.log());
    });
}

#[test]
fn pageable_memory_of_the_host_is_an_illegal_address() {
    faulting("pageable_memory_of_the_host_is_an_illegal_address", |own| {
        let word = Box::new(1u32);
        let at = std::ptr::from_ref(&*word) as u64;
        assert_eq!(own.end_of(c"load", &[at.into()]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn registered_memory_that_is_gone_is_an_illegal_address() {
    faulting("registered_memory_that_is_gone_is_an_illegal_address", |own| {
        let start = pages(4096);
        // SAFETY: that the memory is unmapped while it is registered is what this test is about.
        unsafe { host::register(&own.api, start, 4096, 0) }.unwrap();
        assert_eq!(own.end_of(c"store", &[(start as u64).into()]), Ok(()));
        // SAFETY: the mapping is this test's own, and nothing but the driver refers to it.
        assert_eq!(unsafe { libc::mprotect(start, 4096, libc::PROT_NONE) }, 0);
        assert_eq!(own.end_of(c"store", &[(start as u64).into()]), Err(CUerror::ILLEGAL_ADDRESS));
        assert!(own.log().contains("the program has unmapped"), "{}", own.log());
    });
}

#[test]
fn memory_registered_to_be_read_is_not_written() {
    faulting("memory_registered_to_be_read_is_not_written", |own| {
        let start = pages(4096);
        // SAFETY: the pages are never unmapped, and nothing but the driver refers to them.
        unsafe { host::register(&own.api, start, 4096, host_register_flags::READ_ONLY) }.unwrap();
        assert_eq!(own.end_of(c"load", &[(start as u64).into()]), Ok(()));
        assert_eq!(own.end_of(c"add", &[(start as u64).into()]), Err(CUerror::ILLEGAL_ADDRESS));
        assert!(own.log().contains("read only"), "{}", own.log());
    });
}

#[test]
fn a_constant_is_not_written_by_a_kernel() {
    faulting("a_constant_is_not_written_by_a_kernel", |own| {
        let loaded = own.load(TEXT).unwrap();
        let fixed = module::global(&own.api, loaded, c"fixed").unwrap();
        assert_eq!(own.end_of(c"store", &[fixed.base.0.into()]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn a_misaligned_address_is_one() {
    faulting("a_misaligned_address_is_one", |own| {
        let block = own.block(64);
        assert_eq!(own.end_of(c"load", &[(block.0 + 2).into()]), Err(CUerror::MISALIGNED_ADDRESS));
    });
}

#[test]
fn a_trap_of_one_block_ends_the_kernel_and_every_call_after_it() {
    faulting("a_trap_of_one_block_ends_the_kernel_and_every_call_after_it", |own| {
        let trap = own.function(own.load(TEXT).unwrap(), c"trap_late");
        own.run(trap, LaunchConfig::linear(1000, 32), CUstream::NULL, &[]).unwrap();
        assert_eq!(context::synchronize(&own.api).code(), CUerror::LAUNCH_FAILED);
        assert_eq!(memory::alloc(&own.api, 4).code(), CUerror::LAUNCH_FAILED);
        assert!(own.log().contains("kernel trap_late, PTX line 46, block (500,0,0)"), "{}", own.log());
    });
}

#[test]
fn a_failed_assertion_is_printed_on_standard_error() {
    let name = "a_failed_assertion_is_printed_on_standard_error";
    if child::is_child(name) {
        let own = Context::create();
        assert_eq!(own.end_of(c"assert", &[]), Err(CUerror::ASSERT));
        return std::mem::forget(own);
    }
    let outcome = child::run(name, &[]);
    assert!(outcome.status.success(), "{}", outcome.output);
    let told = "no:12: no: block: [0,0,0], thread: [0,0,0] Assertion `no` failed.\n";
    assert!(outcome.output.contains(told), "{}", outcome.output);
}

#[test]
fn a_fault_ends_kernels_of_other_streams() {
    faulting("a_fault_ends_kernels_of_other_streams", |own| {
        let loaded = own.load(TEXT).unwrap();
        let (forever, trap) = (own.function(loaded, c"forever"), own.function(loaded, c"trap_late"));
        let (one, two, three) = (own.stream(), own.stream(), own.stream());
        own.run(forever, LaunchConfig::linear(1, 1), one, &[]).unwrap();
        own.run(forever, LaunchConfig::linear(300, 64), two, &[]).unwrap();
        own.run(trap, LaunchConfig::linear(501, 1), three, &[]).unwrap();
        assert_eq!(stream::synchronize(&own.api, two).code(), CUerror::LAUNCH_FAILED);
        assert_eq!(context::synchronize(&own.api).code(), CUerror::LAUNCH_FAILED);
    });
}

#[test]
fn a_kernel_that_runs_too_long_is_ended_if_there_is_a_limit() {
    for schedule in ["threads", "eager", "seed:5"] {
        let name = "a_kernel_that_runs_too_long_is_ended_if_there_is_a_limit";
        if !child::is_child(name) {
            let variables = [("FREEHOLD_SOFT_KERNEL_SECONDS", "0.05"), ("FREEHOLD_SOFT_SCHEDULE", schedule)];
            let outcome = child::run(name, &variables);
            assert!(outcome.status.success(), "{schedule}: {}", outcome.output);
            continue;
        }
        let own = Context::create();
        let start = Instant::now();
        assert_eq!(own.end_of(c"forever", &[]), Err(CUerror::LAUNCH_TIMEOUT));
        assert!(start.elapsed() > Duration::from_millis(50));
        assert_eq!(memory::alloc(&own.api, 4).code(), CUerror::LAUNCH_TIMEOUT);
        assert!(own.log().contains("kernel forever ran for more than 0.05 seconds"), "{}", own.log());
        return std::mem::forget(own);
    }
}

#[test]
fn a_process_with_an_endless_kernel_can_be_interrupted() {
    let name = "a_process_with_an_endless_kernel_can_be_interrupted";
    for schedule in ["threads", "eager", "seed:5"] {
        if !child::is_child(name) {
            let outcome = child::run(name, &[("FREEHOLD_SOFT_SCHEDULE", schedule)]);
            assert_eq!(outcome.status.signal(), Some(libc::SIGINT), "{schedule}: {}", outcome.output);
            continue;
        }
        // SAFETY: no handler is set. A shell that starts the tests in the background ignores the signal.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        let own = Context::create();
        let forever = own.function(own.load(TEXT).unwrap(), c"forever");
        own.run(forever, LaunchConfig::linear(1000, 64), CUstream::NULL, &[]).unwrap();
        // SAFETY: the process signals itself; its end is what the test is about.
        std::thread::spawn(|| unsafe { libc::kill(std::process::id() as libc::pid_t, libc::SIGINT) });
        context::synchronize(&own.api).unwrap();
    }
}

#[test]
fn a_process_may_end_while_a_kernel_runs() {
    let name = "a_process_may_end_while_a_kernel_runs";
    if !child::is_child(name) {
        let outcome = child::run(name, &[]);
        assert_eq!(outcome.status.code(), Some(7), "{}", outcome.output);
        return;
    }
    let own = Context::create();
    let forever = own.function(own.load(TEXT).unwrap(), c"forever");
    own.run(forever, LaunchConfig::linear(1000, 64), CUstream::NULL, &[]).unwrap();
    std::process::exit(7);
}

#[test]
fn a_fault_is_written_where_cuda_log_file_says() {
    let name = "a_fault_is_written_where_cuda_log_file_says";
    if child::is_child(name) {
        let own = Context::create();
        own.end_of(c"load", &[64u64.into()]).unwrap_err();
        return std::mem::forget(own);
    }
    let outcome = child::run(name, &[("CUDA_LOG_FILE", "stderr")]);
    assert!(outcome.status.success(), "{}", outcome.output);
    assert!(outcome.output.contains("[CUDA][E] kernel load, PTX line "), "{}", outcome.output);
}

#[test]
fn a_log_callback_reports_a_fault() {
    static HEARD: Mutex<String> = Mutex::new(String::new());
    unsafe extern "C" fn hear(_: *mut c_void, level: CUlogLevel, message: *mut c_char, length: usize) {
        // SAFETY: the driver gives a text that ends in a NUL.
        let text = unsafe { CStr::from_ptr(message) }.to_str().unwrap();
        assert_eq!((level, text.len()), (CUlogLevel::ERROR, length));
        HEARD.lock().unwrap().push_str(text);
    }
    faulting("a_log_callback_reports_a_fault", |own| {
        // SAFETY: the function is good in any thread and uses no data.
        unsafe { logs::register(&own.api, hear, std::ptr::null_mut()) }.unwrap();
        own.end_of(c"load", &[64u64.into()]).unwrap_err();
        assert!(HEARD.lock().unwrap().starts_with("kernel load, PTX line "));
    });
}

#[test]
fn what_a_kernel_prints_is_seen_when_the_program_synchronizes() {
    let name = "what_a_kernel_prints_is_seen_when_the_program_synchronizes";
    if child::is_child(name) {
        let own = Context::create();
        let print = own.function(own.load(TEXT).unwrap(), c"print");
        let stream = own.stream();
        own.run(print, LaunchConfig::linear(2, 2), stream, &[11u32.into()]).unwrap();
        own.run(print, LaunchConfig::linear(1, 1), stream, &[22u32.into()]).unwrap();
        while !stream::query(&own.api, stream).unwrap() {}
        // SAFETY: the format has no directives.
        unsafe { libc::printf(c"before\n".as_ptr()) };
        own.finish(stream);
        // SAFETY: as above.
        unsafe { libc::printf(c"after\n".as_ptr()) };
        // SAFETY: a null stream means all.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        return;
    }
    let outcome = child::run(name, &[]);
    assert!(outcome.status.success(), "{}", outcome.output);
    assert!(outcome.output.contains("before\n11\n11\n11\n11\n22\nafter\n"), "{}", outcome.output);
}

#[test]
fn memory_of_a_kernels_malloc_is_good_for_later_kernels_until_it_is_freed() {
    faulting("memory_of_a_kernels_malloc_is_good_for_later_kernels_until_it_is_freed", |own| {
        let result = own.block(8);
        own.end_of(c"allocate", &[1000u64.into(), result.0.into()]).unwrap();
        let start = u64::from_le_bytes(own.read(result, 8).try_into().unwrap());
        assert_ne!(start, 0);
        own.end_of(c"store", &[(start + 996).into()]).unwrap();
        // The host cannot use it.
        assert_eq!(memory::free(&own.api, CUdeviceptr(start)).code(), CUerror::INVALID_VALUE);
        own.end_of(c"release", &[start.into()]).unwrap();
        assert_eq!(own.end_of(c"store", &[(start + 996).into()]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn a_kernels_malloc_ends_at_its_limit_with_null() {
    let own = Context::create();
    context::set_limit(&own.api, CUlimit::MALLOC_HEAP_SIZE, 1 << 20).unwrap();
    let result = own.block(16);
    let allocate = |bytes: u64| {
        own.end_of(c"allocate", &[bytes.into(), at(result, 8).0.into()]).unwrap();
        u64::from_le_bytes(own.read(at(result, 8), 8).try_into().unwrap())
    };
    assert_eq!(allocate((1 << 20) + 1), 0);
    let half = allocate(1 << 19);
    assert_ne!(half, 0);
    assert_eq!(allocate((1 << 19) + 1), 0);
    own.end_of(c"release", &[half.into()]).unwrap();
    assert_ne!(allocate(1 << 20), 0);
}
