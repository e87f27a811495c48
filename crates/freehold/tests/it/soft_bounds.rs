//! Kernels on the software device that access memory outside an argument's block, or write one that they may only read.
//! A fault makes its process unusable, so each test has its own.

use crate::children::{alone, alone_with};
use crate::foreign_pools;
use crate::own;
use crate::shared;

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::Arc;

use foreign_pools::Host;
use freehold::{Arguments, Error, Fault, Grid, Image, Module, Permission, Result, Stream};
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::{CUerror, CUfunction, CUstream, module, stream};
use own::Own;

const TEXT: &std::ffi::CStr = c"
.version 8.0
.target sm_80
.address_size 64

// to[i] = value, for i < count
.visible .entry fill(.param .u64 to, .param .u32 value, .param .u32 count)
{
    .reg .b64 %at<3>;
    .reg .b32 %r<8>;
    .reg .pred %p;
    ld.param.u64 %at1, [to];
    ld.param.u32 %r1, [value];
    ld.param.u32 %r2, [count];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p, %r6, %r2;
    @%p ret;
    mad.wide.u32 %at2, %r6, 4, %at1;
    st.global.u32 [%at2], %r1;
    ret;
}

// to[index] = from[index]
.visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 index)
{
    .reg .b64 %at<5>;
    .reg .b32 %r<3>;
    ld.param.u64 %at1, [to];
    ld.param.u64 %at2, [from];
    ld.param.u32 %r1, [index];
    mad.wide.s32 %at3, %r1, 4, %at1;
    mad.wide.s32 %at4, %r1, 4, %at2;
    ld.global.u32 %r2, [%at4];
    st.global.u32 [%at3], %r2;
    ret;
}

// **list = value
.visible .entry through(.param .u64 list, .param .u32 value)
{
    .reg .b64 %at<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %at1, [list];
    ld.param.u32 %r1, [value];
    ld.global.u64 %at2, [%at1];
    st.global.u32 [%at2], %r1;
    ret;
}

// (is_first ? first : second)[index] = value
.visible .entry choose(.param .u64 first, .param .u64 second, .param .u32 is_first, .param .u32 index, .param .u32 value)
{
    .reg .b64 %at<5>;
    .reg .b32 %r<4>;
    .reg .pred %p;
    ld.param.u64 %at1, [first];
    ld.param.u64 %at2, [second];
    ld.param.u32 %r1, [is_first];
    ld.param.u32 %r2, [index];
    ld.param.u32 %r3, [value];
    setp.ne.u32 %p, %r1, 0;
    selp.b64 %at3, %at1, %at2, %p;
    mad.wide.s32 %at4, %r2, 4, %at3;
    st.global.u32 [%at4], %r3;
    ret;
}

// end[-1 - i] = i, for i < count
.visible .entry backwards(.param .u64 end, .param .u32 count)
{
    .reg .b64 %at<2>;
    .reg .b32 %r<3>;
    .reg .pred %p;
    ld.param.u64 %at1, [end];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, 0;
again:
    add.s64 %at1, %at1, -4;
    st.global.u32 [%at1], %r2;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra again;
    ret;
}

// *word += 1
.visible .entry bump(.param .u64 word)
{
    .reg .b64 %at<2>;
    ld.param.u64 %at1, [word];
    red.global.add.u32 [%at1], 1;
    ret;
}
";

fn module(own: &Own) -> Module {
    own.device.module(&Image::ptx(TEXT.to_str().unwrap()).unwrap()).unwrap()
}

/// Launches a kernel and waits for it.
fn run(stream: &Stream, module: &Module, kernel: &str, threads: u32, arguments: impl Arguments) -> Result<()> {
    // SAFETY: the software device stops a kernel that leaves its arguments.
    let kernel = unsafe { module.kernel(kernel) }.unwrap();
    stream.launch(&kernel, Grid::cover(threads, 128), arguments)?;
    stream.synchronize()
}

/// The fault that a call met, which the device tells all of.
#[track_caller]
fn fault(outcome: Result<()>) -> Arc<Fault> {
    match outcome {
        Err(Error::Faulted(fault)) if fault.details.is_some() => fault,
        other => panic!("the kernel is not reported: {other:?}"),
    }
}

/// What lies where a kernel strayed, in the device's words.
#[track_caller]
fn told(outcome: Result<()>) -> String {
    let fault = fault(outcome);
    assert_eq!(fault.noticed.code, CUerror::ILLEGAL_ADDRESS.into());
    let sentence = &fault.details.as_ref().unwrap().message;
    sentence.split(": ").nth(1).unwrap_or_else(|| panic!("{sentence}")).to_owned()
}

/// Three blocks of so many elements, side by side in one slab.
fn neighbours(stream: &Stream, len: usize) -> [freehold::Block<u32>; 3] {
    let mut blocks: Vec<_> = (0..8).map(|_| stream.upload(&vec![7_u32; len]).unwrap()).collect();
    blocks.sort_by_key(freehold::Block::address);
    let step = blocks[1].address() - blocks[0].address();
    assert_eq!(blocks[2].address() - blocks[1].address(), step, "the blocks are neighbours");
    let mut blocks = blocks.into_iter();
    std::array::from_fn(|_| blocks.next().unwrap())
}

/// Writes one element more than a block has, and looks at its neighbour where the host does.
fn overrun(len: usize) {
    let own = Own::new();
    let (module, stream) = (module(&own), own.device.new_stream().unwrap());
    let [mut x, next, _last] = neighbours(&stream, len);
    let count = len as u32;
    run(&stream, &module, "fill", count, (&mut x, 5_u32, count)).unwrap();
    assert_eq!(stream.download(&x).unwrap(), vec![5; len]);
    // All that the host reads is there before the fault.
    let beyond = run(&stream, &module, "fill", count + 1, (&mut x, 6_u32, count + 1));
    let (bytes, base) = (4 * len, x.address());
    assert_eq!(told(beyond), format!("4 bytes past the end of a block of {bytes} bytes at {base:#x}"));
    for index in 0..len {
        let at = (next.address() as usize + 4 * index) as *const u32;
        // SAFETY: the device's memory is the host's too (`FREEHOLD_SOFT_COHERENT`), the block is live, and no kernel runs.
        assert_eq!(unsafe { at.read_volatile() }, 7, "element {index} of the neighbour");
    }
}

const COHERENT: &[(&str, &str)] = &[("FREEHOLD_SOFT_COHERENT", "1")];

#[test]
fn one_element_past_a_block_with_slack_is_reported_and_the_neighbour_is_as_it_was() {
    let name = "one_element_past_a_block_with_slack_is_reported_and_the_neighbour_is_as_it_was";
    alone_with(name, COHERENT, || overrun(4));
}

#[test]
fn one_element_past_a_block_without_slack_is_reported_and_the_neighbour_is_as_it_was() {
    let name = "one_element_past_a_block_without_slack_is_reported_and_the_neighbour_is_as_it_was";
    alone_with(name, COHERENT, || overrun(128));
}

#[test]
fn a_thousand_elements_in_a_block_of_four_are_reported() {
    alone("a_thousand_elements_in_a_block_of_four_are_reported", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let mut x = stream.zeros::<u32>(4).unwrap();
        let said = told(run(&stream, &module, "fill", 1000, (&mut x, 5_u32, 1000_u32)));
        assert!(said.ends_with(&format!("bytes past the end of a block of 16 bytes at {:#x}", x.address())), "{said}");
    });
}

#[test]
fn one_element_past_a_block_of_its_own_pages_is_reported() {
    alone("one_element_past_a_block_of_its_own_pages_is_reported", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let len = (5 << 20) / 4 + 3;
        let mut x = stream.zeros::<u32>(len).unwrap();
        let last = len as i32 - 1;
        let other = stream.zeros::<u32>(len).unwrap();
        run(&stream, &module, "copy", 1, (&mut x, &other, last)).unwrap();
        let said = told(run(&stream, &module, "copy", 1, (&mut x.view_mut(1000..).unwrap(), &other, last - 999)));
        assert_eq!(said, format!("4 bytes past the end of a block of {} bytes at {:#x}", 4 * len, x.address()));
    });
}

#[test]
fn reading_past_a_block_is_reported_with_kernel_line_block_thread_and_address() {
    alone("reading_past_a_block_is_reported_with_kernel_line_block_thread_and_address", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let (mut x, y) = (stream.zeros::<u32>(8).unwrap(), stream.zeros::<u32>(4).unwrap());
        run(&stream, &module, "copy", 1, (&mut x, &y, 3_i32)).unwrap();
        let fault = fault(run(&stream, &module, "copy", 1, (&mut x, &y, 4_i32)));
        let details = fault.details.as_ref().unwrap();
        let line = 1 + TEXT.to_str().unwrap().lines().position(|line| line.contains("ld.global.u32 %r2")).unwrap();
        assert_eq!((&*details.kernel, details.line as usize), ("copy", line));
        assert_eq!((details.block, details.thread), ([0; 3], [0; 3]));
        assert_eq!(details.address, Some(y.address() + 16));
        let (at, base) = (y.address() + 16, y.address());
        let sentence = format!(
            "kernel copy, PTX line {line}, block (0,0,0), thread (0,0,0) reads 4 bytes of global memory at {at:#x}: \
             4 bytes past the end of a block of 16 bytes at {base:#x}"
        );
        assert_eq!(details.message, sentence);
        assert!(fault.to_string().ends_with(&sentence), "{fault}");
        assert_eq!(&*fault.suspects[0].kernel, "copy");
    });
}

#[test]
fn a_pointer_that_lies_in_memory_leads_anywhere() {
    let own = Own::new();
    let (module, stream) = (module(&own), own.device.new_stream().unwrap());
    let x = stream.zeros::<u32>(4).unwrap();
    let list = stream.upload(&[x.address() + 12]).unwrap();
    run(&stream, &module, "through", 1, (&list, 9_u32)).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [0, 0, 0, 9]);
}

#[test]
fn a_block_that_was_freed_and_handed_out_smaller_before_the_kernel_ran_is_not_reported() {
    let own = Own::new();
    let (module, stream) = (module(&own), own.device.new_stream().unwrap());
    // SAFETY: as above.
    let fill = unsafe { module.kernel("fill") }.unwrap();
    let gate = own.gate();
    own.hold(&stream, &gate);
    let mut x = stream.alloc::<u32>(128).unwrap();
    let address = x.address();
    stream.launch(&fill, Grid::line(1, 128), (&mut x, 1_u32, 128_u32)).unwrap();
    drop(x);
    let mut y = stream.alloc::<u32>(100).unwrap();
    assert_eq!(y.address(), address, "the memory is handed out again");
    stream.launch(&fill, Grid::line(1, 128), (&mut y, 2_u32, 100_u32)).unwrap();
    drop(y);
    let mut z = stream.alloc::<u32>(120).unwrap();
    assert_eq!(z.address(), address, "and again, longer");
    stream.launch(&fill, Grid::line(1, 128), (&mut z, 3_u32, 50_u32)).unwrap();
    gate.open();
    let held = stream.download(&z).unwrap();
    assert_eq!((held[49], held[50], held[99], held[100]), (3, 2, 2, 1));
}

#[test]
fn a_block_that_was_handed_out_smaller_has_its_own_end() {
    alone("a_block_that_was_handed_out_smaller_has_its_own_end", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let x = stream.alloc::<u32>(128).unwrap();
        let address = x.address();
        drop(x);
        let mut y = stream.alloc::<u32>(100).unwrap();
        assert_eq!(y.address(), address, "the memory is handed out again");
        let said = told(run(&stream, &module, "fill", 101, (&mut y, 1_u32, 101_u32)));
        assert_eq!(said, format!("4 bytes past the end of a block of 400 bytes at {address:#x}"));
    });
}

#[test]
fn a_view_in_the_middle_may_be_left_within_its_block() {
    let own = Own::new();
    let (module, stream) = (module(&own), own.device.new_stream().unwrap());
    let (mut x, y) = (stream.zeros::<u32>(8).unwrap(), stream.upload(&[1_u32, 2, 3, 4, 5, 6, 7, 8]).unwrap());
    for index in [-4, 3] {
        let (to, from) = (&mut x.view_mut(4..).unwrap(), &y.view(4..).unwrap());
        run(&stream, &module, "copy", 1, (to, from, index)).unwrap();
    }
    assert_eq!(stream.download(&x).unwrap(), [1, 0, 0, 0, 0, 0, 0, 8]);
}

#[test]
fn of_two_blocks_that_a_kernel_chooses_from_either_may_be_used() {
    let own = Own::new();
    let (module, stream) = (module(&own), own.device.new_stream().unwrap());
    let (mut x, mut y) = (stream.zeros::<u32>(4).unwrap(), stream.zeros::<u32>(100).unwrap());
    run(&stream, &module, "choose", 1, (&mut x, &mut y, 1_u32, 3_i32, 5_u32)).unwrap();
    run(&stream, &module, "choose", 1, (&mut x, &mut y, 0_u32, 99_i32, 6_u32)).unwrap();
    assert_eq!((stream.download(&x).unwrap()[3], stream.download(&y).unwrap()[99]), (5, 6));
    // Also memory that is of no pool: a vector beside a block.
    let mut v = freehold::DeviceVec::<u32>::new(&stream).unwrap();
    v.resize(&stream, 10, 0).unwrap();
    run(&stream, &module, "choose", 1, (&mut x, &mut v, 0_u32, 9_i32, 7_u32)).unwrap();
    assert_eq!(stream.download(&v).unwrap()[9], 7);
}

#[test]
fn past_the_one_that_a_kernel_chose_of_two_blocks_it_is_reported() {
    alone("past_the_one_that_a_kernel_chose_of_two_blocks_it_is_reported", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let (mut x, mut y) = (stream.zeros::<u32>(4).unwrap(), stream.zeros::<u32>(100).unwrap());
        let said = told(run(&stream, &module, "choose", 1, (&mut x, &mut y, 0_u32, 100_i32, 5_u32)));
        assert_eq!(said, format!("4 bytes past the end of a block of 400 bytes at {:#x}", y.address()));
    });
}

/// A launch by foreign code, which the library does not see.
struct Foreign {
    host: Host,
    module: freehold_driver::cuda::CUmodule,
    stream: CUstream,
}

impl Foreign {
    fn new() -> Self {
        let host = Host::new();
        // SAFETY: the text ends in a NUL.
        let module = unsafe { module::load(&host.api, TEXT.as_ptr().cast()) }.unwrap();
        let stream = host.stream();
        Self { host, module, stream }
    }

    fn alloc(&self, len: u64) -> u64 {
        self.host.allocator.alloc(4 * len, self.stream).unwrap()
    }

    fn run(&self, kernel: &std::ffi::CStr, mut words: Vec<u64>) -> std::result::Result<(), CUerror> {
        let kernel: CUfunction = module::function(&self.host.api, self.module, kernel).unwrap();
        let mut pointers: Vec<*mut c_void> = words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        // SAFETY: each parameter has eight bytes at the most, and the kernels of these tests reach device memory alone.
        unsafe { launch::kernel(&self.host.api, kernel, LaunchConfig::linear(1, 128), self.stream, &mut pointers) }
            .unwrap();
        stream::synchronize(&self.host.api, self.stream).map_err(|error| error.code)
    }
}

#[test]
fn a_launch_outside_the_library_is_checked_against_its_blocks() {
    alone("a_launch_outside_the_library_is_checked_against_its_blocks", || {
        let foreign = Foreign::new();
        let block = foreign.alloc(4);
        assert_eq!(foreign.run(c"fill", vec![block, 1, 4]), Ok(()));
        assert_eq!(foreign.run(c"fill", vec![block, 1, 5]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn a_block_that_was_released_before_its_launch_is_reported() {
    alone("a_block_that_was_released_before_its_launch_is_reported", || {
        let foreign = Foreign::new();
        let block = foreign.alloc(4);
        // Nobody uses it: nothing is reported.
        assert_eq!(foreign.run(c"fill", vec![block, 1, 0]), Ok(()));
        foreign.host.allocator.free(block, foreign.stream).unwrap();
        assert_eq!(foreign.run(c"fill", vec![block, 1, 0]), Ok(()));
        assert_eq!(foreign.run(c"fill", vec![block, 1, 1]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn a_pointer_to_the_end_of_a_block_leads_to_that_block() {
    let foreign = Foreign::new();
    // Followed by the rest of its size class, and by the next block.
    for len in [4, 128] {
        let blocks: Vec<u64> = (0..4).map(|_| foreign.alloc(len)).collect();
        for block in &blocks {
            assert_eq!(foreign.run(c"backwards", vec![block + 4 * len, len]), Ok(()));
        }
        for block in blocks {
            foreign.host.allocator.free(block, foreign.stream).unwrap();
        }
    }
}

/// The words for a write to what may only be read.
fn only_read(bytes: u64, base: u64) -> String {
    format!("a block of {bytes} bytes at {base:#x} that the launch may only read")
}

#[test]
fn writing_a_block_that_is_given_to_be_read_is_reported() {
    alone("writing_a_block_that_is_given_to_be_read_is_reported", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let mut x = stream.zeros::<u32>(4).unwrap();
        run(&stream, &module, "fill", 4, (&mut x, 5_u32, 4_u32)).unwrap();
        assert_eq!(told(run(&stream, &module, "fill", 4, (&x, 6_u32, 4_u32))), only_read(16, x.address()));
    });
}

#[test]
fn writing_a_view_that_is_given_to_be_read_is_reported() {
    alone("writing_a_view_that_is_given_to_be_read_is_reported", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let shared = stream.zeros::<u32>(8).unwrap().share();
        let said = told(run(&stream, &module, "bump", 1, (&shared.view(4..).unwrap(),)));
        assert_eq!(said, only_read(32, shared.address()));
    });
}

#[test]
fn writing_a_vector_that_is_given_to_be_read_is_reported() {
    alone("writing_a_vector_that_is_given_to_be_read_is_reported", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let mut v = freehold::DeviceVec::<u32>::new(&stream).unwrap();
        v.resize(&stream, 10, 0).unwrap();
        run(&stream, &module, "bump", 1, (&mut v,)).unwrap();
        let said = told(run(&stream, &module, "bump", 1, (&v,)));
        assert!(said.ends_with(&format!("at {:#x} that the launch may only read", v.address())), "{said}");
    });
}

#[test]
fn writing_a_part_of_an_import_that_is_given_to_be_read_is_reported() {
    alone("writing_a_part_of_an_import_that_is_given_to_be_read_is_reported", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let memory = shared::memory(shared::CHUNK);
        let imported = own.device.import(memory.as_fd(), shared::CHUNK, Permission::ReadWrite).unwrap();
        let mut part = imported.slice::<u32>(&stream, 4096, 4).unwrap();
        run(&stream, &module, "bump", 1, (&mut part,)).unwrap();
        let said = told(run(&stream, &module, "bump", 1, (&part,)));
        assert!(said.ends_with("that the launch may only read"), "{said}");
    });
}

#[test]
fn what_may_be_written_is_written_beside_what_may_only_be_read() {
    let own = Own::new();
    let (module, stream) = (module(&own), own.device.new_stream().unwrap());
    let (mut x, y) = (stream.zeros::<u32>(4).unwrap(), stream.upload(&[1_u32, 2, 3, 4]).unwrap());
    run(&stream, &module, "copy", 1, (&mut x, &y, 2_i32)).unwrap();
    // A kernel that may write either of two does write the one that it may.
    run(&stream, &module, "choose", 1, (&mut x, &y, 1_u32, 0_i32, 5_u32)).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [5, 0, 3, 0]);
    // The next launch may write what the last one could only read.
    let mut y = y;
    run(&stream, &module, "fill", 4, (&mut y, 9_u32, 4_u32)).unwrap();
    assert_eq!(stream.download(&y).unwrap(), [9; 4]);
}

#[test]
fn of_two_blocks_the_one_that_may_only_be_read_is_not_written() {
    alone("of_two_blocks_the_one_that_may_only_be_read_is_not_written", || {
        let own = Own::new();
        let (module, stream) = (module(&own), own.device.new_stream().unwrap());
        let (mut x, y) = (stream.zeros::<u32>(4).unwrap(), stream.zeros::<u32>(4).unwrap());
        let said = told(run(&stream, &module, "choose", 1, (&mut x, &y, 0_u32, 0_i32, 5_u32)));
        assert_eq!(said, only_read(16, y.address()));
    });
}
