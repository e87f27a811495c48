//! Memory imported from another process: what is visible, what is refused, and when it is unmapped.

use crate::own;
use crate::shared;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use freehold::ledger::{Kind, State, WrongRelease};
use freehold::{Error, Imported, ImportedSlice, Permission, Result, Stream};
use freehold_driver::cuda::{
    Api, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType, address, allocation,
    context, copy, device, fill, mapping,
};
use own::{N, Own, grid, opened};
use shared::CHUNK;

/// A device of a test's own, where nobody else takes memory.
fn own() -> Own {
    shared::move_in();
    Own::new()
}

#[track_caller]
fn import(own: &Own, descriptor: &OwnedFd, permission: Permission) -> Imported {
    own.device.import(descriptor.as_fd(), CHUNK, permission).unwrap()
}

/// An import of new memory that holds zeros, whose descriptor is closed.
fn zeros(own: &Own, stream: &Stream) -> Imported {
    let imported = import(own, &shared::memory(CHUNK), Permission::ReadWrite);
    stream.fill_bytes(&mut imported.slice::<u8>(stream, 0, CHUNK as usize).unwrap(), 0).unwrap();
    own.device.synchronize().unwrap();
    imported
}

fn add(own: &Own, stream: &Stream, to: &mut ImportedSlice<u32>, more: u32) -> Result<()> {
    stream.launch(&own.kernels.add, grid(), (to, more, N as u32))
}

/// The exporter's own view of what it shares, by calls of the driver.
struct Exporter {
    api: Api,
    start: CUdeviceptr,
}

impl Exporter {
    fn new(own: &Own, descriptor: &OwnedFd) -> Self {
        let (api, location) = (own.api, CUmemLocation { kind: CUmemLocationType::DEVICE, id: opened().device.0 });
        context::push_current(&api, own.primary).unwrap();
        let handle = allocation::import(&api, descriptor.as_fd()).unwrap();
        let start = address::reserve(&api, CHUNK as usize, 0, CUdeviceptr::NULL).unwrap();
        mapping::map(&api, start, CHUNK as usize, 0, handle).unwrap();
        let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::PROT_READWRITE };
        mapping::set_access(&api, start, CHUNK as usize, &[access]).unwrap();
        allocation::release(&api, handle).unwrap();
        Self { api, start }
    }

    fn fill(&self, value: u32) {
        fill::d32(&self.api, self.start, value, CHUNK as usize / 4).unwrap();
        context::synchronize(&self.api).unwrap();
    }

    fn word(&self, index: u64) -> u32 {
        let mut word = [0_u8; 4];
        copy::device_to_host(&self.api, &mut word, CUdeviceptr(self.start.0 + 4 * index)).unwrap();
        u32::from_ne_bytes(word)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        mapping::unmap(&self.api, self.start, CHUNK as usize).unwrap();
        address::free(&self.api, self.start, CHUNK as usize).unwrap();
        context::pop_current(&self.api).unwrap();
    }
}

#[test]
fn a_device_has_the_name_that_its_driver_gives_it() {
    let (own, opened) = (own(), opened());
    let uuid = own.device.uuid().unwrap();
    assert_eq!(uuid, device::uuid(&opened.api, opened.device).unwrap().bytes);
    assert_ne!(uuid, [0; 16]);
}

#[test]
fn each_side_sees_what_the_other_writes() {
    let own = own();
    let [stream] = own.streams();
    let descriptor = shared::memory(CHUNK);
    let exporter = Exporter::new(&own, &descriptor);
    let imported = import(&own, &descriptor, Permission::ReadWrite);
    drop(descriptor);
    assert_eq!((imported.bytes(), imported.permission()), (CHUNK, Permission::ReadWrite));
    exporter.fill(7);
    let mut part = imported.slice::<u32>(&stream, 4096, N).unwrap();
    assert_eq!((part.address(), part.len()), (imported.address() + 4096, N));
    assert_eq!(stream.download(&part).unwrap(), [7; N]);
    add(&own, &stream, &mut part, 2).unwrap();
    stream.write(&mut part.view_mut(..1).unwrap(), &[5]).unwrap();
    stream.synchronize().unwrap();
    assert_eq!([1023, 1024, 1025, 1024 + N as u64 - 1, 1024 + N as u64].map(|at| exporter.word(at)), [7, 5, 9, 9, 7]);
}

#[test]
fn a_part_is_used_like_a_block() {
    let own = own();
    let [stream] = own.streams();
    let imported = zeros(&own, &stream);
    let [mut x, mut y] = [0, 4 * N as u64].map(|offset| imported.slice::<u32>(&stream, offset, N).unwrap());
    stream.write(&mut x, &[3; N]).unwrap();
    stream.copy(&x, &mut y).unwrap();
    add(&own, &stream, &mut y, 1).unwrap();
    let mut block = stream.upload(&[1_u32; N]).unwrap();
    stream.copy(&y, &mut block).unwrap();
    assert_eq!(stream.download(&block).unwrap(), [4; N]);
    stream.copy(&block.view(..2).unwrap(), &mut x.view_mut(1..3).unwrap()).unwrap();
    assert_eq!(stream.download(&x.view(..4).unwrap()).unwrap(), [3, 4, 4, 3]);
}

#[test]
fn memory_that_is_imported_for_reading_is_not_written_and_the_driver_does_not_hear_of_it() {
    shared::move_in();
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [stream, other] = own.streams();
    let descriptor = shared::memory(CHUNK);
    let mut source = other.upload(&[1_u32; N]).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&other, &gate);
    other.fill_bytes(&mut source, 2).unwrap();
    let imported = import(&own, &descriptor, Permission::Read);
    let mut part = imported.slice::<u32>(&stream, 0, N).unwrap();
    let address = imported.address();
    let refused = |outcome: Result<()>| matches!(outcome, Err(Error::ReadOnly { base }) if base == address);
    let calls = faults.calls();
    assert!(refused(stream.write(&mut part, &[1; N])));
    assert!(refused(stream.fill_bytes(&mut part, 1)));
    // The block is in use in another stream, which a copy would wait for.
    assert!(refused(stream.copy(&source, &mut part)));
    assert!(refused(add(&own, &stream, &mut part, 1)));
    assert!(refused(stream.fill_bytes(&mut part.view_mut(1..2).unwrap(), 1)));
    assert_eq!(faults.calls(), calls);
    gate.open();
    let writer = import(&own, &descriptor, Permission::ReadWrite);
    stream.write(&mut writer.slice::<u32>(&stream, 0, N).unwrap(), &[6; N]).unwrap();
    assert_eq!(stream.download(&part).unwrap(), [6; N]);
    stream.launch(&own.kernels.add, grid(), (&mut source, 0_u32, N as u32)).unwrap();
    stream.copy(&part, &mut source).unwrap();
    assert_eq!(stream.download(&source).unwrap(), [6; N]);
}

#[test]
fn a_part_lies_within_the_import_where_elements_can_lie() {
    let own = own();
    let [stream] = own.streams();
    let imported = import(&own, &shared::memory(CHUNK), Permission::Read);
    let last = imported.slice::<u64>(&stream, CHUNK - 8, 1).unwrap();
    assert_eq!(last.address(), imported.address() + CHUNK - 8);
    let outside = |offset, len| match imported.slice::<u64>(&stream, offset, len) {
        Err(Error::OutsideOfImport { offset_bytes, slice_bytes, bytes: CHUNK }) => (offset_bytes, slice_bytes),
        other => panic!("{other:?}"),
    };
    assert_eq!(outside(CHUNK, 1), (CHUNK, 8));
    assert_eq!(outside(CHUNK - 8, 2), (CHUNK - 8, 16));
    assert_eq!(outside(8, CHUNK as usize / 8), (8, CHUNK));
    assert_eq!(outside(u64::MAX - 7, 1), (u64::MAX - 7, 8));
    let refusal = |offset, len| imported.slice::<u64>(&stream, offset, len).unwrap_err();
    assert!(matches!(refusal(4, 1), Error::Misaligned { offset_bytes: 4, alignment_bytes: 8 }));
    assert!(matches!(refusal(0, 0), Error::NothingAsked));
    assert!(matches!(refusal(0, usize::MAX), Error::TooManyElements { elements: usize::MAX, element_bytes: 8 }));
    imported.slice::<u8>(&stream, 3, 1).unwrap();
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let own = own();
    let [stream] = own.streams();
    let imported = import(&own, &shared::memory(CHUNK), Permission::Read);
    let opened = opened();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let other = unsafe { freehold::Device::new(opened.api, opened.device) }.unwrap();
    let foreign = other.new_stream().unwrap();
    assert!(matches!(imported.slice::<u8>(&foreign, 0, 1), Err(Error::OtherDevice { what: "a stream" })));
    let part = imported.slice::<u8>(&stream, 0, 1).unwrap();
    assert!(matches!(part.gather(&foreign), Err(Error::OtherDevice { what: "a stream" })));
    assert!(matches!(foreign.download(&part), Err(Error::OtherDevice { what: "a block" })));
}

#[test]
fn a_wrong_descriptor_or_length_is_refused_and_leaves_nothing() {
    let own = own();
    drop(import(&own, &shared::memory(CHUNK), Permission::Read));
    let free_bytes = own.device.free_bytes().unwrap();
    let descriptor = shared::memory(2 * CHUNK);
    let refusal =
        |descriptor: &dyn AsFd, bytes| own.device.import(descriptor.as_fd(), bytes, Permission::ReadWrite).unwrap_err();
    for other in [OwnedFd::from(File::open("/dev/null").unwrap()), shared::words(2 * CHUNK)] {
        let refused = refusal(&other, 2 * CHUNK);
        assert!(matches!(refused, Error::NotShared { .. }), "{refused:?}");
    }
    for wrong in [0, 1, 4096, CHUNK, 2 * CHUNK - 1, 3 * CHUNK, 1 << 60, u64::MAX, u64::MAX - CHUNK + 1] {
        let refused = refusal(&descriptor, wrong);
        assert!(matches!(refused, Error::OtherLength { bytes } if bytes == wrong), "{wrong}: {refused:?}");
    }
    own.device.import(descriptor.as_fd(), 2 * CHUNK, Permission::Read).unwrap();
    drop(descriptor);
    assert_eq!(own.device.free_bytes().unwrap(), free_bytes);
    assert!(own.device.drop_errors().is_empty());
}

#[test]
fn memory_returns_when_the_descriptor_and_the_last_part_are_gone() {
    let own = own();
    let [stream] = own.streams();
    zeros(&own, &stream);
    own.device.synchronize().unwrap();
    let free_bytes = own.device.free_bytes().unwrap();
    let descriptor = shared::memory(CHUNK);
    let imported = import(&own, &descriptor, Permission::ReadWrite);
    let (copy, part) = (imported.clone(), imported.slice::<u32>(&stream, 0, N).unwrap());
    assert_eq!(own.device.free_bytes().unwrap(), free_bytes - CHUNK);
    drop((descriptor, imported, copy));
    own.device.tidy().unwrap();
    assert_eq!(own.device.free_bytes().unwrap(), free_bytes - CHUNK);
    assert_eq!(stream.download(&part).unwrap().len(), N);
    drop(part);
    assert_eq!(own.device.free_bytes().unwrap(), free_bytes);
    assert!(own.device.drop_errors().is_empty());
}

#[test]
fn an_unmap_is_complete_when_the_work_with_the_last_part_has_passed() {
    let own = own();
    let [stream] = own.streams();
    let imported = import(&own, &shared::memory(CHUNK), Permission::ReadWrite);
    let status = imported.unmap_status();
    let mut part = imported.slice::<u32>(&stream, 0, N).unwrap();
    let gate = own.gate();
    own.hold(&stream, &gate);
    stream.fill_bytes(&mut part, 1).unwrap();
    drop(imported);
    assert!(!status.is_complete().unwrap(), "a part is left");
    drop(part);
    assert!(!status.is_complete().unwrap(), "work is pending");
    gate.open();
    stream.synchronize().unwrap();
    assert!(status.is_complete().unwrap());
    assert!(status.is_complete().unwrap(), "for ever");
    assert!(own.device.drop_errors().is_empty());
}

#[test]
fn an_address_inside_an_import_has_an_owner_that_closes_it() {
    let own = own();
    let imported = import(&own, &shared::memory(CHUNK), Permission::Read);
    let (address, line) = (imported.address(), line!() - 1);
    let owner = own.device.owner_of(address + CHUNK - 1).unwrap();
    assert_eq!((owner.base, owner.bytes, owner.kind), (address, CHUNK, Kind::Imported));
    assert_eq!(own.device.blocks(), [], "memory of others is not among our own");
    let Error::WrongRelease(WrongRelease::Imported { of }) = own.device.release(address).unwrap_err() else {
        panic!("the release is refused as one of imported memory")
    };
    let at = format!("{}:{line}", file!());
    assert_eq!(
        WrongRelease::Imported { of }.to_string(),
        format!("2097152 bytes at {address:#x}, allocated at {at}, are imported: close the import instead")
    );
    drop(imported);
    assert_eq!(own.device.owner_of(address), None);
    assert!(matches!(own.device.release(address), Err(Error::WrongRelease(WrongRelease::AlreadyReleased { .. }))));
}

#[test]
fn uses_of_a_part_in_several_streams_are_ordered() {
    let own = own();
    let [a, b] = own.streams();
    let mut part = zeros(&own, &a).slice::<u32>(&a, 0, N).unwrap();
    let mut copy = b.zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    add(&own, &a, &mut part, 6).unwrap();
    b.copy(&part, &mut copy).unwrap();
    let copied = b.event().unwrap();
    own.pass_by();
    assert!(!copied.is_complete().unwrap());
    gate.open();
    assert_eq!(b.download(&copy).unwrap(), [6; N]);
}

#[test]
fn a_part_comes_behind_the_work_of_dropped_ones_at_its_place_alone() {
    let own = own();
    let [a, b] = own.streams();
    let imported = zeros(&own, &a);
    let mut dropped = imported.slice::<u32>(&a, 4096, N).unwrap();
    let [mut here, mut beside] = [(); 2].map(|()| b.zeros::<u32>(N).unwrap());
    own.device.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&a, &gate);
    add(&own, &a, &mut dropped, 9).unwrap();
    drop(dropped);
    let other = imported.slice::<u32>(&b, 4096 + 4 * N as u64, N).unwrap();
    assert!(!other.pending());
    b.copy(&other, &mut beside).unwrap();
    b.synchronize().unwrap();
    let same = imported.slice::<u32>(&b, 4096 + 4, N).unwrap();
    assert!(same.pending());
    b.copy(&same, &mut here).unwrap();
    let copied = b.event().unwrap();
    own.pass_by();
    assert!(!copied.is_complete().unwrap());
    gate.open();
    let copied = b.download(&here).unwrap();
    assert_eq!((copied[..N - 1] == [9; N - 1], copied[N - 1]), (true, 0));
    assert_eq!(b.download(&beside).unwrap(), [0; N]);
}

#[test]
fn an_import_that_is_dropped_stays_until_the_work_of_all_streams_with_it_has_passed() {
    let own = own();
    let [a, b] = own.streams();
    let descriptor = shared::memory(CHUNK);
    let imported = import(&own, &descriptor, Permission::ReadWrite);
    let mut part = imported.slice::<u32>(&a, 0, N).unwrap();
    let read = imported.slice::<u32>(&b, 4 * N as u64, N).unwrap();
    let mut block = b.zeros::<u32>(N).unwrap();
    a.fill_bytes(&mut part, 0).unwrap();
    own.device.synchronize().unwrap();
    let address = imported.address();
    let gates = [own.gate(), own.gate()];
    own.hold(&a, &gates[0]);
    own.hold(&b, &gates[1]);
    add(&own, &a, &mut part, 4).unwrap();
    b.copy(&read, &mut block).unwrap();
    drop((part, read, imported));
    let is_there = || {
        own.pass_by();
        own.device.tidy().unwrap();
        own.device.owner_of(address).map(|owner| owner.state)
    };
    assert_eq!(is_there(), Some(State::Released { waiting_for: 2 }));
    gates[1].open();
    b.synchronize().unwrap();
    assert!(is_there().is_some());
    gates[0].open();
    a.synchronize().unwrap();
    assert_eq!(is_there(), None);
    let imported = import(&own, &descriptor, Permission::Read);
    assert_eq!(a.download(&imported.slice::<u32>(&a, 0, N).unwrap()).unwrap(), [4; N]);
    assert!(own.device.drop_errors().is_empty());
}

#[test]
fn a_stream_gathers_all_uses_of_a_part_and_the_host_knows_when_they_are_over() {
    let own = own();
    let [a, b, c] = own.streams();
    let mut part = zeros(&own, &a).slice::<u32>(&a, 0, N).unwrap();
    let mut block = b.zeros::<u32>(N).unwrap();
    own.device.synchronize().unwrap();
    assert!(!part.pending());
    let gates = [own.gate(), own.gate()];
    own.hold(&b, &gates[1]);
    b.copy(&part, &mut block).unwrap();
    own.hold(&a, &gates[0]);
    a.copy(&block.view(..1).unwrap(), &mut part.view_mut(..1).unwrap()).unwrap();
    assert!(part.pending());
    part.gather(&c).unwrap();
    let gathered = c.event().unwrap();
    gates[0].open();
    own.pass_by();
    assert!(!gathered.is_complete().unwrap() && part.pending());
    gates[1].open();
    gathered.synchronize().unwrap();
    for stream in [&a, &b] {
        stream.synchronize().unwrap();
    }
    assert!(!part.pending());
}
