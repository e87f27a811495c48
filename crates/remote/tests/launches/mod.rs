//! Launches on a server: on blocks and on names, through `Gpu`, invalid and repeated.

use std::time::Duration;

use freehold::Grid;
use freehold_broker::{Access, Argument, Policy};
use freehold_remote::proto::{self, argument::Value};
use freehold_remote::{Code, ErrorOrigin, Executed, Remote, RemoteArgument, RemoteBlock, RemoteError, RemoteModule};

use freehold_testing::at_effort;

use crate::harness::{Harness, until_free};
use crate::raw::{Raw, chunk, end};

pub(crate) const TEXT: &str = include_str!("../../../broker/tests/calls/kernels.ptx");

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(remote: &Remote, block: &RemoteBlock) -> Vec<u32> {
    let mut bytes = vec![0; block.bytes() as usize];
    remote.download(block, 0, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

fn filled(remote: &Remote, words: &[u32]) -> RemoteBlock {
    let block = remote.alloc(4 * words.len() as u64).unwrap();
    remote.upload(&block, 0, &bytes_of(words)).unwrap();
    block
}

/// x = 3 x + k.
fn step(remote: &Remote, module: &RemoteModule, x: RemoteArgument<'_>, k: u32, n: u32) -> Result<(), RemoteError> {
    let [k, n_given] = [k, n].map(Argument::from);
    let given = [x, RemoteArgument::Value(&k), RemoteArgument::Value(&n_given)];
    remote.launch(module, "step", Grid::cover(n, 64), &given)?.wait()
}

pub(crate) fn a_kernel_runs_on_blocks_of_a_session(harness: &Harness) {
    let remote = harness.remote();
    let module = remote.put_module("test/kernels", TEXT).unwrap();
    assert_eq!(remote.module("test/kernels").unwrap().hash(), module.hash());
    let shown: Vec<_> = module.kernels().iter().map(|kernel| kernel.name.to_string()).collect();
    assert_eq!(shown, ["empty", "saxpy", "step", "spin", "stray", "sum"]);
    let [x, y] = [[2.0_f32; 1000], [1.0; 1000]].map(|of| filled(&remote, &of.map(f32::to_bits)));
    let [a, n] = [Argument::from(3.0_f32), Argument::from(1000_u32)];
    let given = [
        RemoteArgument::Block(&y, 0),
        RemoteArgument::Block(&x, 0),
        RemoteArgument::Value(&a),
        RemoteArgument::Value(&n),
    ];
    // Nobody waits for the launch, but a download sees its result.
    let call = remote.launch(&module, "saxpy", Grid::cover(1000_u32, 256), &given).unwrap();
    assert_eq!(words(&remote, &y), [7.0_f32.to_bits(); 1000]);
    call.wait().unwrap();
    step(&remote, &module, RemoteArgument::Block(&x, 400), 1, 10).unwrap();
    let stepped = 2.0_f32.to_bits().wrapping_mul(3).wrapping_add(1);
    assert_eq!(
        words(&remote, &x)[98..112],
        [[2.0_f32.to_bits(); 2].as_slice(), &[stepped; 10], &[2.0_f32.to_bits(); 2]].concat()
    );
    let structure = Argument::bytes(bytes_of(&[1, 20, 300]));
    let given = [RemoteArgument::Block(&x, 0), RemoteArgument::Value(&structure)];
    remote.launch(&module, "sum", Grid::line(1, 1), &given).unwrap().wait().unwrap();
    assert_eq!(words(&remote, &x)[0], 321);
    let listed: Vec<_> = remote.modules().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(listed, ["test/kernels"]);
    remote.drop_module("test/kernels").unwrap();
    assert_eq!(remote.module("test/kernels").unwrap_err().code, Code::NotFound);
    drop((x, y));
    until_free(&remote);
}

pub(crate) fn names_are_arguments(harness: &Harness) {
    let remote = harness.remote();
    let module = remote.put_module("test/kernels", TEXT).unwrap();
    remote.publish("x", filled(&remote, &[5; 100]), Policy::Restore).unwrap();
    step(&remote, &module, RemoteArgument::Named("x", Access::Write, 0), 2, 100).unwrap();
    step(&remote, &module, RemoteArgument::Named("x", Access::Write, 4), 1, 99).unwrap();
    let block = remote.lease("x", Access::Read).unwrap();
    assert_eq!(words(&remote, &block), [[17_u32].as_slice(), &[52; 99]].concat());
    drop(block);
    let failure = step(&remote, &module, RemoteArgument::Named("y", Access::Write, 0), 2, 1).unwrap_err();
    assert_eq!((failure.code, failure.executed), (Code::NotFound, Executed::No));
    remote.drop_name("x").unwrap();
    until_free(&remote);
}

pub(crate) fn one_handle_is_the_same_elsewhere(harness: &Harness) {
    let gpu = harness.remote().gpu();
    // SAFETY: `step` stays within the first `n` elements of its buffer, which has as many.
    let step = unsafe { gpu.kernel(TEXT, "step") }.unwrap();
    let mut x = gpu.upload(&[1_u32; 300]).unwrap();
    let mut wanted = 1_u32;
    for k in 0..20 {
        gpu.launch(&step, Grid::cover(300_u32, 64), &[x.argument(0), k.into(), 300_u32.into()]).unwrap();
        wanted = wanted.wrapping_mul(3).wrapping_add(k);
    }
    assert_eq!(gpu.download(&x).unwrap(), [wanted; 300]);
    gpu.write(&mut x, &[5; 300]).unwrap();
    gpu.launch(&step, Grid::cover(10_u32, 64), &[x.argument(290), 2_u32.into(), 10_u32.into()]).unwrap();
    gpu.wait().unwrap();
    assert_eq!(gpu.download(&x).unwrap()[288..], [5, 5, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17]);
    let refused = gpu.launch(&step, Grid::line(1, 1), &[x.argument(0)]).unwrap_err().to_string();
    assert_eq!(refused, "kernel step takes 3 arguments, 1 were given");
    drop((x, gpu));
    until_free(&harness.remote());
}

pub(crate) fn a_repeated_launch_is_launched_once(harness: &Harness) {
    let mut raw = Raw::open(harness, 1);
    let block = raw.alloc(1, 4).unwrap();
    let one = 1_u32.to_le_bytes();
    raw.upload(vec![raw.begin(2, block, 4, 0), chunk(0, &one), end(&one)]).unwrap();
    let module = raw.put(3, TEXT);
    let number = |bits| {
        let kind = proto::Kind::Unsigned.into();
        proto::Argument { value: Some(Value::Number(proto::NumberArgument { kind, bytes: 4, bits })) }
    };
    let x = proto::Argument { value: Some(Value::Block(proto::BlockArgument { block, offset: 0 })) };
    let request = proto::LaunchRequest {
        call: raw.call(4),
        module,
        kernel: "step".to_owned(),
        arguments: vec![x, number(5), number(1)],
        ..proto::LaunchRequest::default()
    };
    for _ in 0..5 {
        let launched = raw.runtime.block_on(raw.client.call(request.clone())).unwrap();
        assert_eq!(launched.launch, 4);
        raw.runtime.block_on(raw.wait(4, 10_000)).unwrap();
    }
    let request =
        proto::DownloadRequest { session: raw.session.clone(), block, bytes: 4, ..proto::DownloadRequest::default() };
    let told = raw.runtime.block_on(async {
        let mut chunks = raw.client.download(request).await.unwrap();
        chunks.message().await.unwrap().unwrap().chunk.unwrap()
    });
    assert_eq!(told.data[..], 8_u32.to_le_bytes());
}

pub(crate) fn a_launch_that_never_was_is_not_waited_for(harness: &Harness) {
    let (_server, port) = harness.server_without_tls();
    let mut raw = Raw::at_port(port, 1);
    let module = raw.put(1, TEXT);
    assert_eq!(raw.launch(2, module, "empty", vec![]).unwrap(), 2);
    raw.runtime.block_on(raw.wait(2, 10_000)).unwrap();
    // The number of another call; one in the future; none at all.
    for number in [1, 3, 0, u64::MAX] {
        let refused = raw.runtime.block_on(raw.wait(number, 10_000)).unwrap_err();
        let sentence = format!("the session has no launch {number}: wait for the number that Launch returned");
        assert_eq!((refused.code(), refused.message()), (Code::NotFound, sentence.as_str()));
    }
}

pub(crate) fn launches_that_are_forgotten_went_well(harness: &Harness) {
    let remote = harness.remote();
    let module = remote.put_module("test/kernels", TEXT).unwrap();
    let launch = |_| remote.launch(&module, "empty", Grid::line(1, 1), &[]).unwrap();
    // More than a session may have in progress, at most efforts, and nobody waits for one.
    let calls: Vec<_> = (0..at_effort(100, 1100, 5000)).map(launch).collect();
    calls.iter().for_each(|call| call.wait().unwrap());
}

pub(crate) fn a_refused_launch_holds_nothing(harness: &Harness) {
    let remote = harness.remote();
    let module = remote.put_module("test/kernels", TEXT).unwrap();
    remote.publish("x", filled(&remote, &[5; 100]), Policy::Restore).unwrap();
    let named = |name, offset| RemoteArgument::Named(name, Access::Write, offset);
    let [one, float] = [Argument::from(1_u32), Argument::from(1.0_f32)];
    let [one, float] = [&one, &float].map(RemoteArgument::Value);
    let far = Argument::from(1_u64 << 40);
    let wrong: [(&str, &[RemoteArgument<'_>]); 5] = [
        // Found before anything is leased; by the broker; by the worker; and by the device.
        ("step", &[named("x", 0)]),
        ("step", &[named("x", 0), float, one]),
        ("saxpy", &[named("x", 0), named("y", 0), float, one]),
        ("step", &[named("x", 400), one, one]),
        ("stray", &[named("x", 0), RemoteArgument::Value(&far)]),
    ];
    for (kernel, given) in wrong {
        let launched = remote.launch(&module, kernel, Grid::line(1, 1), given).and_then(|call| call.wait());
        assert!(launched.is_err(), "{kernel} was launched");
        let names = remote.names().unwrap();
        assert_eq!((names[0].version, names[0].readers, names[0].writers), (1, 0, 0), "after {kernel}");
    }
    // More failed launches than a session may have, at most efforts.
    for _ in 0..at_effort(100, 1100, 5000) {
        let refused = remote.launch(&module, "step", Grid::line(1, 1), &[named("y", 0), one, one]).unwrap_err();
        assert_eq!(refused.code, Code::NotFound);
    }
    step(&remote, &module, named("x", 0), 2, 100).unwrap();
    let names = remote.names().unwrap();
    assert_eq!((names[0].version, names[0].readers, names[0].writers), (2, 0, 0));
}

pub(crate) fn a_long_refusal_says_that_it_was_cut(harness: &Harness) {
    let remote = harness.remote();
    // The message would list all kernels.
    let kernels = (100..300).map(|number| format!(".visible .entry kernel_number_{number}()\n{{\n    ret;\n}}\n"));
    let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n{}", kernels.collect::<String>());
    let module = remote.put_module("many", &text).unwrap();
    let failure = remote.launch(&module, "none", Grid::line(1, 1), &[]).unwrap_err();
    assert_eq!((failure.origin, failure.code), (ErrorOrigin::Caller, Code::NotFound));
    let begin = "module many has no kernel none; it has kernel_number_100, kernel_number_101, ";
    assert!(failure.message.starts_with(begin), "{failure}");
    assert!(failure.message.ends_with("… (the last 1789 bytes were cut off)"), "{failure}");
}

pub(crate) fn bad_launches_are_refused_in_a_sentence(harness: &Harness) {
    let remote = harness.remote();
    let module = remote.put_module("blas/saxpy", TEXT).unwrap();
    let x = filled(&remote, &[1; 8]);
    let [one, float] = [Argument::from(1_u32), Argument::from(1.0_f32)];
    let (block, one, float) =
        (RemoteArgument::Block(&x, 0), RemoteArgument::Value(&one), RemoteArgument::Value(&float));
    let refused = |kernel: &str, grid: Grid, given: &[RemoteArgument<'_>]| {
        let failure = remote.launch(&module, kernel, grid, given).and_then(|call| call.wait()).unwrap_err();
        assert_eq!((failure.origin, failure.executed), (ErrorOrigin::Caller, Executed::No), "{failure}");
        failure.message
    };
    let line = Grid::line(1, 1);
    assert_eq!(
        remote.module("blas/saxpi").unwrap_err().message,
        "there is no module blas/saxpi: `freehold module put blas/saxpi FILE` makes one; nearest: blas/saxpy"
    );
    assert_eq!(
        refused("stop", line, &[]),
        "module blas/saxpy has no kernel stop; it has empty, saxpy, step, spin, stray, sum"
    );
    assert_eq!(refused("step", line, &[block]), "kernel step takes 3 arguments, 1 were given");
    assert_eq!(refused("step", line, &[block, float, one]), "argument 2 of step is u32, f32 was given");
    assert_eq!(
        refused("step", line, &[block, block, one]),
        "argument 2 of step is u32: a lease needs a parameter of 8 bytes"
    );
    assert_eq!(
        refused("step", line, &[RemoteArgument::Block(&x, 32), one, one]),
        "argument 1 of step begins at byte 32 of a lease of 32 bytes"
    );
    assert_eq!(
        refused("empty", Grid::line(0, 32), &[]),
        "a launch has 1 to 2147483647 blocks, 1 to 65535 in y and z, of 1 to 1024 threads: [0, 1, 1] of [32, 1, 1] requested"
    );
    let failure = remote.put_module("bad", "nonsense").unwrap_err();
    assert_eq!((failure.origin, failure.code), (ErrorOrigin::Caller, Code::InvalidArgument));
    assert!(failure.message.starts_with("the module does not compile:\n"), "{failure}");
    let failure = remote.put_module("blas/saxpy", &TEXT.replace("saxpy", "other")).unwrap_err();
    assert_eq!((failure.origin, failure.code), (ErrorOrigin::Caller, Code::AlreadyExists));
    step(&remote, &module, block, 1, 8).unwrap();
    assert_eq!(words(&remote, &x), [4; 8]);
}

pub(crate) fn a_kernel_that_faults(harness: &Harness) {
    let remote = harness.remote();
    let module = remote.put_module("test/kernels", TEXT).unwrap();
    let x = filled(&remote, &[5; 8]);
    let far = Argument::from(1_u64 << 40);
    let given = [RemoteArgument::Block(&x, 0), RemoteArgument::Value(&far)];
    let failure = remote.launch(&module, "stray", Grid::line(1, 1), &given).unwrap().wait().unwrap_err();
    assert_eq!((failure.origin, failure.executed), (ErrorOrigin::Kernel, Executed::Unknown));
    assert!(failure.message.starts_with("kernel stray of test/kernels ended its worker: "), "{failure}");
    // Its memory stays valid, and there is a new worker.
    step(&remote, &module, RemoteArgument::Block(&x, 0), 2, 8).unwrap();
    assert_eq!(words(&remote, &x), [17; 8]);
}

pub(crate) fn a_kernel_that_hangs(patient: &Harness) {
    let spin = |harness: &Harness| {
        let remote = harness.remote();
        let module = remote.put_module("test/kernels", TEXT).unwrap();
        let x = filled(&remote, &[5; 8]);
        let call = remote.launch(&module, "spin", Grid::line(1, 1), &[RemoteArgument::Block(&x, 0)]).unwrap();
        (remote, x, call)
    };
    // If it may run for long, another session is served while it does.
    let (_remote, _x, _spinning) = spin(patient);
    let neighbour = patient.remote();
    let (theirs, y) = (neighbour.module("test/kernels").unwrap(), filled(&neighbour, &[5; 8]));
    step(&neighbour, &theirs, RemoteArgument::Block(&y, 0), 2, 8).unwrap();
    assert_eq!(words(&neighbour, &y), [17; 8]);
    let hasty = Harness::with_launches_of(Duration::from_secs(1));
    let (remote, x, spinning) = spin(&hasty);
    let failure = spinning.wait().unwrap_err();
    assert_eq!(failure.origin, ErrorOrigin::Kernel);
    assert!(failure.message.starts_with("kernel spin of test/kernels ran for more than 1 s"), "{failure}");
    // Its memory stays valid.
    assert_eq!(words(&remote, &x), [5; 8]);
}
