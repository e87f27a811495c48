//! Modules: how long they stay loaded, what is theirs alone, and which launches are refused.

use crate::own;

use freehold::{Error, Grid, Module};
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
    let count = second.kernel("count").unwrap();
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
    assert_eq!(error.to_string(), "kernel add takes 3 arguments, 2 were given");
    let error = a.launch(add, grid(), (&mut x, 1_u64, N as u32)).unwrap_err();
    assert_eq!(error.to_string(), "argument 1 of kernel add has 4 bytes, 8 were given; the first is 0");
    let error = a.launch(add, Grid::line(0, 128), (&mut x, 1_u32, N as u32)).unwrap_err();
    assert_eq!(error.to_string(), "a launch has at least one block of at least one thread");
    let error = a.launch(add, Grid::cover(0, 128), (&mut x, 1_u32, N as u32)).unwrap_err();
    assert!(matches!(error, Error::EmptyGrid), "{error}");
    assert_eq!(faults.calls(), calls, "the driver has seen none of them");
    assert_eq!(a.download(&x).unwrap(), [1; N]);
    a.launch(add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    assert_eq!(a.download(&x).unwrap(), [2; N]);
}

#[test]
fn a_kernel_is_launched_in_streams_of_its_context_alone() {
    let own = Own::new();
    let other = own.device.context().unwrap();
    let stream = other.stream().unwrap();
    let error = stream.launch(&own.kernels.count, Grid::line(1, 1), ()).unwrap_err();
    assert_eq!(error.to_string(), "a kernel of the primary context cannot be used in a stream of context 1");
}

#[test]
fn a_kernel_that_is_not_there_is_an_error_with_those_that_are() {
    let own = Own::new();
    let Err(Error::NoSuchKernel { name, known }) = own.kernels.module.kernel("subtract") else {
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
    assert_eq!(error.to_string(), "variable counter has 4 bytes, 8 were given");
    assert!(matches!(a.read_variable::<u32>(module, "absent"), Err(Error::NoSuchVariable { .. })));
}
