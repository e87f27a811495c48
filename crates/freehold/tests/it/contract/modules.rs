//! Modules, launches, and the errors of a device that lacks a feature.

use freehold::{Error, Grid, Image};

use super::rig::{N, ONE, Rig, grid, kernels};

#[test]
fn a_kernel_does_its_work_once_for_each_launch() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.zeros::<u32>(N).unwrap();
    for _ in 0..100 {
        rig.add(&stream, &mut block, 2);
    }
    assert_eq!(stream.download(&block).unwrap(), [200; N]);
}

#[test]
fn a_kernel_is_given_a_part_of_a_block() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.zeros::<u32>(4 * N).unwrap();
    // 2048 bytes: where every device lets a part begin.
    let mut part = block.view_mut(512..).unwrap();
    stream.launch(&rig.add, grid(), (&mut part, 1_u32, N as u32)).unwrap();
    let found = stream.download(&block).unwrap();
    assert_eq!(found[..512], [0; 512]);
    assert_eq!(found[512..512 + N], [1; N]);
}

#[test]
fn floats_are_scaled_and_summed() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let (scale, sum) =
        (crate::own::kernel(&rig.module, "scale").unwrap(), crate::own::kernel(&rig.module, "sum").unwrap());
    let mut x = stream.upload(&[1.0_f32; N]).unwrap();
    let mut total = stream.zeros::<f32>(1).unwrap();
    stream.launch(&scale, grid(), (&mut x, 2.0_f32, N as u32)).unwrap();
    stream.launch(&sum, grid(), (&x, &mut total, N as u32)).unwrap();
    assert_eq!(stream.download(&total).unwrap(), [2000.0]);
}

#[test]
fn an_unknown_kernel_is_refused_with_those_that_there_are() {
    let rig = Rig::new();
    let refused = crate::own::kernel(&rig.module, "unheard_of").unwrap_err();
    let Error::NoSuchKernel { name, known } = refused else { panic!("{refused}") };
    assert_eq!(name, "unheard_of");
    assert!(known.contains(&"add".to_owned()), "{known:?}");
}

#[test]
fn arguments_of_another_number_or_size_are_refused_before_the_device_sees_them() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.zeros::<u32>(N).unwrap();
    let refused = stream.launch(&rig.add, grid(), (&mut block, 1_u32)).unwrap_err();
    assert!(matches!(refused, Error::ArgumentCount { wanted: 3, given: 2, .. }), "{refused}");
    let refused = stream.launch(&rig.add, grid(), (&mut block, 1_u64, N as u32)).unwrap_err();
    assert!(matches!(refused, Error::ArgumentSize { argument: 2, wanted_bytes: 4, given_bytes: 8, .. }), "{refused}");
    let refused = stream.launch(&rig.add, Grid::line(1, 0), (&mut block, 1_u32, N as u32)).unwrap_err();
    assert!(matches!(refused, Error::NoThreads), "{refused}");
    assert_eq!(stream.download(&block).unwrap(), [0; N]);
}

#[test]
fn a_launch_of_no_blocks_does_nothing_but_its_arguments_are_checked() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.zeros::<u32>(N).unwrap();
    for grid in [Grid::cover(0, 128), Grid { blocks: [3, 0, 1], ..grid() }] {
        stream.launch(&rig.add, grid, (&mut block, 1_u32, N as u32)).unwrap();
        let refused = stream.launch(&rig.add, grid, (&mut block, 1_u32)).unwrap_err();
        assert!(matches!(refused, Error::ArgumentCount { wanted: 3, given: 2, .. }), "{refused}");
    }
    assert_eq!(stream.download(&block).unwrap(), [0; N]);
}

#[test]
fn a_grid_over_a_negative_number_or_too_many_is_refused() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.zeros::<u32>(N).unwrap();
    for grid in [Grid::cover(-1, 128), Grid::cover(i64::MIN, 128), Grid::cover(u64::MAX, 1)] {
        let refused = stream.launch(&rig.add, grid, (&mut block, 1_u32, N as u32)).unwrap_err();
        assert!(matches!(refused, Error::ShapeTooLarge { what: "blocks in x", .. }), "{refused}");
    }
    assert_eq!(stream.download(&block).unwrap(), [0; N]);
}

#[test]
fn a_closed_module_stays_until_its_launches_are_done_without_a_wait() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let module = kernels(&rig.device);
    let add = crate::own::kernel(&module, "add").unwrap();
    let mut block = stream.zeros::<u32>(N).unwrap();
    stream.synchronize().unwrap();
    let gate = rig.hold(&stream);
    stream.launch(&add, grid(), (&mut block, 5_u32, N as u32)).unwrap();
    drop(add);
    module.close();
    gate.open();
    assert_eq!(stream.download(&block).unwrap(), [5; N]);
}

#[test]
fn a_text_with_a_mistake_is_refused() {
    let rig = Rig::new();
    let images = [Image::ptx(".version 8.0 no ptx").unwrap(), Image::opencl("no opencl").unwrap()];
    let said = images.map(|image| match rig.device.module(&image).unwrap_err() {
        Error::ImageNotTaken { .. } => "not taken",
        Error::ImageRefused { .. } => "refused",
        other => panic!("{other}"),
    });
    assert!(said.contains(&"refused") && said.contains(&"not taken"), "{said:?}");
}

#[test]
fn a_kernel_without_arguments_is_launched() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    stream.launch(&crate::own::kernel(&rig.module, "nothing").unwrap(), ONE, ()).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn what_a_device_lacks_is_said_at_once_and_in_words() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    match rig.device.new_context() {
        Ok(context) => context.close().unwrap(),
        Err(error) => assert_eq!(error.to_string(), "the device supports one context: use its primary context"),
    }
    if let Err(error) = stream.alloc_shareable::<u32>(N) {
        let said = "the device cannot share memory with other processes: copy through the host instead";
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn a_kernel_keeps_its_module_and_a_duplicate_is_one_of_its_own() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let module = kernels(&rig.device);
    let other = module.duplicate().unwrap();
    let add = crate::own::kernel(&module, "add").unwrap();
    module.close();
    rig.device.synchronize().unwrap();
    let mut block = stream.zeros::<u32>(N).unwrap();
    stream.launch(&add, grid(), (&mut block, 1_u32, N as u32)).unwrap();
    drop(add);
    stream.synchronize().unwrap();
    rig.device.tidy().unwrap();
    stream.launch(&crate::own::kernel(&other, "add").unwrap(), grid(), (&mut block, 2_u32, N as u32)).unwrap();
    assert_eq!(stream.download(&block).unwrap(), [3; N]);
}

#[test]
fn a_variable_that_is_not_there_is_refused() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let refused = stream.read_variable::<u32>(&rig.module, "absent").unwrap_err();
    assert!(matches!(refused, Error::NoSuchVariable { .. }), "{refused}");
}
