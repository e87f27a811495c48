//! Modules: how long they stay loaded, what each has of its own, and which launches are refused.

use crate::own;

use freehold::{Error, Grid, Image, Module, RawAddress, Value};
use freehold_driver::cuda::{CUdeviceptr, Function, copy};
use own::{Kernels, N, Own, grid, opened};

/// The value of the variable `counter`.
fn counter(own: &Own, module: &Module) -> u32 {
    let (address, bytes) = module.variable("counter").unwrap();
    assert_eq!(bytes, 4);
    let mut value = [0; 4];
    freehold_driver::cuda::context::push_current(&own.api, own.primary).unwrap();
    copy::device_to_host(&own.api, &mut value, CUdeviceptr(address)).unwrap();
    freehold_driver::cuda::context::pop_current(&own.api).unwrap();
    u32::from_le_bytes(value)
}

#[test]
fn a_closed_module_is_unloaded_when_its_last_launch_has_passed() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a] = own.streams();
    let Kernels { module, add, wait, count } = Kernels::load(own.device.primary());
    let mut x = a.upload(&[1_u32; N]).unwrap();
    a.synchronize().unwrap();
    let gate = own.gate();
    a.launch(&wait, Grid::line(1, 1), (gate.address(),)).unwrap();
    a.launch(&add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    drop((add, wait, count));
    module.close();
    own.device.tidy().unwrap();
    assert_eq!(faults.calls_of(Function::cuModuleUnload), 0);
    gate.open();
    assert_eq!(a.download(&x).unwrap(), [2; N]);
    own.device.tidy().unwrap();
    assert_eq!(faults.calls_of(Function::cuModuleUnload), 1);
}

#[test]
fn a_kernel_keeps_its_module_loaded() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a] = own.streams();
    let Kernels { module, add, .. } = Kernels::load(own.device.primary());
    module.close();
    own.device.synchronize().unwrap();
    assert_eq!(faults.calls_of(Function::cuModuleUnload), 0);
    let mut x = a.upload(&[1_u32; N]).unwrap();
    a.launch(&add, grid(), (&mut x, 2_u32, N as u32)).unwrap();
    assert_eq!(a.download(&x).unwrap(), [3; N]);
    drop(add);
    assert_eq!(faults.calls_of(Function::cuModuleUnload), 1);
}

#[test]
fn a_duplicate_has_variables_of_its_own() {
    let own = Own::new();
    let [a] = own.streams();
    let first = &own.kernels.module;
    let second = first.duplicate().unwrap();
    let count = crate::own::kernel(&second, "count").unwrap();
    for _ in 0..3 {
        a.launch(&count, Grid::line(1, 1), ()).unwrap();
    }
    a.launch(&own.kernels.count, Grid::line(1, 1), ()).unwrap();
    a.synchronize().unwrap();
    assert_eq!((counter(&own, first), counter(&own, &second)), (1, 3));
    drop(count);
    second.close();
    a.launch(&own.kernels.count, Grid::line(1, 1), ()).unwrap();
    a.synchronize().unwrap();
    assert_eq!(counter(&own, first), 2);
}

#[test]
fn a_launch_with_other_arguments_than_the_kernels_is_refused() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a] = own.streams();
    let (add, mut x) = (&own.kernels.add, a.upload(&[1_u32; N]).unwrap());
    let calls = faults.calls();
    let error = a.launch(add, grid(), (&mut x, 1_u32)).unwrap_err();
    assert_eq!(error.to_string(), "add(u64, u32, u32) takes 3 arguments; 2 were given");
    let error = a.launch(add, grid(), (&mut x, 1_u64, N as u32)).unwrap_err();
    assert_eq!(error.to_string(), "argument 2 of add(u64, u32, u32) takes 4 bytes; 8 were given");
    let error = a.launch(add, Grid::line(1, 0), (&mut x, 1_u32, N as u32)).unwrap_err();
    assert_eq!(error.to_string(), "0 threads per block: expected at least one");
    a.launch(add, Grid::cover(0, 128), (&mut x, 1_u32, N as u32)).unwrap();
    assert_eq!(faults.calls(), calls, "the driver has seen none of them");
    assert_eq!(a.download(&x).unwrap(), [1; N]);
    a.launch(add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    assert_eq!(a.download(&x).unwrap(), [2; N]);
}

#[test]
fn an_argument_of_another_type_is_refused_if_the_image_has_types() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [a] = own.streams();
    let scale = crate::own::kernel(&own.kernels.module, "scale").unwrap();
    let (mut x, one) = (a.upload(&[1.0_f32; N]).unwrap(), a.upload(&[1.0_f32]).unwrap());
    let calls = faults.calls();
    let refused = [
        a.launch(&scale, grid(), (&mut x, 2.0, N as u32)),
        a.launch(&scale, grid(), (&mut x, 2, N as u32)),
        a.launch(&scale, grid(), (&mut x, N as u32, 2.0_f32)),
        a.launch(&scale, grid(), (&mut x, 2.0_f32, 2.0_f32)),
        a.launch(&scale, grid(), (&mut x, 2.0_f32, &one)),
        a.launch(&scale, grid(), (2.0_f64, 2.0_f32, N as u32)),
    ];
    assert_eq!(
        refused.map(|outcome| outcome.unwrap_err().to_string()),
        [
            "argument 2 of scale(u64, f32, u32) takes 4 bytes; 8 were given (an unsuffixed 1.0 is f64)",
            "argument 2 of scale(u64, f32, u32) takes f32; i32 was given (an unsuffixed 1 is i32)",
            "argument 2 of scale(u64, f32, u32) takes f32; u32 was given",
            "argument 3 of scale(u64, f32, u32) takes u32; f32 was given",
            "argument 3 of scale(u64, f32, u32) takes 4 bytes; 8 were given",
            "argument 1 of scale(u64, f32, u32) takes u64; f64 was given (an unsuffixed 1.0 is f64)",
        ]
    );
    assert_eq!(faults.calls(), calls, "the driver has seen none of them");
    // Compilers write unsigned for signed, and a structure is the program's to know.
    a.launch(&scale, grid(), (&mut x, 2.0_f32, N as i32)).unwrap();
    a.launch(&scale, grid(), (&mut x, Value(2.0_f32.to_bits()), N as u32)).unwrap();
    assert_eq!(a.download(&x).unwrap(), [4.0; N]);
}

#[test]
fn memory_is_not_given_for_a_fraction_of_as_many_bytes() {
    let own = Own::new();
    let text = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry odd(.param .f64 x) { ret; }";
    let module = own.device.module(&Image::ptx(text).unwrap()).unwrap();
    let [a] = own.streams();
    let (odd, x) = (crate::own::kernel(&module, "odd").unwrap(), a.upload(&[1_u32]).unwrap());
    let refused = a.launch(&odd, Grid::line(1, 1), (&x,)).unwrap_err();
    assert_eq!(refused.to_string(), "argument 1 of odd(f64) takes f64; memory was given");
    a.launch(&odd, Grid::line(1, 1), (1.0,)).unwrap();
}

#[test]
fn a_number_is_not_given_for_a_pointer_that_the_text_declares() {
    let own = Own::new();
    let text = ".version 7.0\n.target sm_52\n.address_size 64\n\
                .visible .entry odd(.param .u64 .ptr .global .align 4 x, .param .u64 y) { ret; }";
    let module = own.device.module(&Image::ptx(text).unwrap()).unwrap();
    let [a] = own.streams();
    let (odd, mut x) = (crate::own::kernel(&module, "odd").unwrap(), a.upload(&[1_u32]).unwrap());
    let grid = Grid::line(1, 1);
    let refused = [a.launch(&odd, grid, (5_u64, 5_u64)), a.launch(&odd, grid, (Value(5_u64), 5_u64))];
    assert_eq!(
        refused.map(|outcome| outcome.unwrap_err().to_string()),
        [
            "argument 1 of odd(memory, u64) takes memory; u64 was given",
            "argument 1 of odd(memory, u64) takes memory; 8 bytes was given",
        ]
    );
    // SAFETY: the kernel touches no memory.
    let raw = unsafe { RawAddress::new(0) };
    a.launch(&odd, grid, (raw, 5_u64)).unwrap();
    // Without `.ptr` nothing tells a number from an address.
    let y = a.upload(&[1_u32]).unwrap();
    a.launch(&odd, grid, (&mut x, &y)).unwrap();
}

#[test]
fn a_launch_beyond_a_limit_names_the_limit() {
    let own = Own::new();
    let [a] = own.streams();
    let nothing = crate::own::kernel(&own.kernels.module, "nothing").unwrap();
    let shape = |blocks, threads| Grid { blocks, threads, shared_bytes: 0 };
    let refused = [
        Grid::line(1, 4096),
        shape([1; 3], [1, 1, 65]),
        shape([1, 65_536, 1], [1; 3]),
        shape([1, 1, 70_000], [1; 3]),
        Grid::line(1, 1).with_shared(1 << 20),
    ]
    .map(|grid| a.launch(&nothing, grid, ()).unwrap_err().to_string());
    assert_eq!(
        refused,
        [
            "4096 threads per block; the device allows 1024",
            "65 threads of a block in z; the device allows 64",
            "65536 blocks in y; the device allows 65535",
            "70000 blocks in z; the device allows 65535",
            "1048576 bytes of dynamic shared memory per block; the kernel allows 49152",
        ]
    );
    a.launch(&nothing, shape([1, 65_535, 1], [1; 3]), ()).unwrap();
    a.launch(&nothing, shape([1; 3], [16, 1, 64]), ()).unwrap();
    a.synchronize().unwrap();
}

#[test]
fn a_kernel_is_launched_in_streams_of_its_context_alone() {
    let own = Own::new();
    let other = own.device.new_context().unwrap();
    let stream = other.new_stream().unwrap();
    let error = stream.launch(&own.kernels.count, Grid::line(1, 1), ()).unwrap_err();
    assert_eq!(error.to_string(), "a kernel of the primary context cannot be used in a stream of context 1");
}

#[test]
fn a_kernel_that_is_not_there_is_an_error_with_those_that_are() {
    let own = Own::new();
    let Err(Error::NoSuchKernel { name, known }) = crate::own::kernel(&own.kernels.module, "subtract") else {
        panic!("there is no such kernel")
    };
    assert_eq!(name, "subtract");
    assert!(known.iter().any(|name| name == "add"), "{known:?}");
    let Err(Error::NoSuchVariable { name }) = own.kernels.module.variable("total") else {
        panic!("there is no such variable")
    };
    assert_eq!(name, "total");
}

#[test]
fn a_variable_is_read_and_written_in_its_size() {
    let own = Own::new();
    let [a] = own.streams();
    let module = &own.kernels.module;
    a.write_variable(module, "counter", &41_u32).unwrap();
    a.launch(&own.kernels.count, Grid::line(1, 1), ()).unwrap();
    assert_eq!(a.read_variable::<u32>(module, "counter").unwrap(), 42);
    let error = a.read_variable::<u64>(module, "counter").unwrap_err();
    assert_eq!(error.to_string(), "variable counter has 4 bytes; 8 were given");
    assert!(matches!(a.read_variable::<u32>(module, "absent"), Err(Error::NoSuchVariable { .. })));
}
