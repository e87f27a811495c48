//! Shared memory and events when processes end. For each way to share, and each order and way of exiting, the remaining
//! processes keep their data, and the memory is freed when the last of them exits.
//!
//! The test itself never uses the driver. A witness process, which shares nothing, reports the free memory of the
//! device.

use crate::peer;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use peer::socket::{pair, send};
use peer::{End, Kind, Machine, Message, Peer, block_bytes, close_descriptors, gate_and_follow_words, is_soft};

/// A share: what names it, and the descriptors that come with it.
#[derive(Debug)]
struct Shared {
    kind: Kind,
    made: Message,
}

impl Shared {
    fn make(peer: &Peer, kind: Kind, value: u32) -> Self {
        Self { kind, made: peer.ask_with(format!("make {kind:?} {value}"), &[]) }
    }

    #[track_caller]
    fn take(&self, peer: &Peer) {
        peer.ask_with(format!("take {:?} {}", self.kind, self.made.text), &self.made.descriptors);
    }
}

/// The start of a case: two processes share something and have seen each other's writes.
#[derive(Debug)]
struct Scene {
    machine: Machine,
    witness: Peer,
    /// Free memory before the others started.
    before: usize,
    exporter: Peer,
    importer: Peer,
    shared: Shared,
    case: String,
}

impl Scene {
    fn set(kind: Kind, case: String) -> Self {
        let machine = Machine::new();
        let witness = machine.peer();
        let before = witness.free_bytes();
        let (exporter, importer) = (machine.peer(), machine.peer());
        let shared = Shared::make(&exporter, kind, 1);
        shared.take(&importer);
        importer.ask("check 1");
        importer.ask("write 2");
        exporter.ask("check 2");
        if kind == Kind::Event {
            exporter.ask("record");
            importer.ask("follow 1");
            importer.ask("finish");
        }
        Self { machine, witness, before, exporter, importer, shared, case }
    }
}

/// The exporter ends first: the importer continues unaffected.
fn exporter_first(kind: Kind) {
    for how in End::ALL {
        let scene = Scene::set(kind, format!("{kind:?}, exporter by {how:?}"));
        let Scene { witness, before, importer, shared, case, .. } = scene;
        scene.exporter.end(how);
        importer.ask("check 2");
        importer.ask("write 3");
        importer.ask("check 3");
        // Whether a legacy handle or a block of a pool can be opened again without its exporter is unspecified.
        if kind == Kind::Descriptor {
            importer.ask("again 3");
        }
        if kind == Kind::Event {
            importer.ask("follow 2");
            importer.ask("finish");
        }
        let held = witness.free_bytes();
        assert!(held + kind.device_bytes() <= before, "{case}: {held} bytes are free, {before} were before");
        close_descriptors(shared);
        importer.ask("close");
        witness.await_free(format!("{case}, importer closed"), |free| free >= held + kind.device_bytes());
        importer.end(End::Exit);
        witness.await_free(case, |free| free == before);
    }
}

/// The importer ends first: the exporter continues, and another importer can open the share.
fn importer_first(kind: Kind) {
    for how in End::ALL {
        let scene = Scene::set(kind, format!("{kind:?}, importer by {how:?}"));
        let Scene { machine, witness, before, exporter, shared, case, .. } = scene;
        scene.importer.end(how);
        exporter.ask("check 2");
        exporter.ask("write 3");
        exporter.ask("again 3");
        let later = machine.peer();
        shared.take(&later);
        later.ask("check 3");
        later.ask("write 4");
        exporter.ask("check 4");
        if kind == Kind::Event {
            exporter.ask("record");
            later.ask("follow 2");
            later.ask("finish");
        }
        later.ask("again 4");
        let held = witness.free_bytes();
        assert!(held + kind.device_bytes() <= before, "{case}: {held} bytes are free, {before} were before");
        close_descriptors(shared);
        later.ask("close");
        later.end(End::Exit);
        exporter.ask("check 4");
        let held = witness.free_bytes();
        exporter.ask("close");
        witness.await_free(format!("{case}, exporter closed"), |free| free >= held + kind.device_bytes());
        exporter.end(End::Exit);
        witness.await_free(case, |free| free == before);
    }
}

/// Both end, and only the test's descriptors are left.
fn both(kind: Kind) {
    for how in End::ALL {
        let scene = Scene::set(kind, format!("{kind:?}, both by {how:?}"));
        scene.exporter.end(how);
        scene.importer.end(how);
        close_descriptors(scene.shared);
        scene.witness.await_free(scene.case, |free| free == scene.before);
    }
}

#[test]
fn a_descriptors_memory_outlives_its_exporter() {
    exporter_first(Kind::Descriptor);
}

#[test]
fn a_descriptors_memory_outlives_an_importer() {
    importer_first(Kind::Descriptor);
}

#[test]
fn a_descriptors_memory_returns_after_both() {
    both(Kind::Descriptor);
}

#[test]
fn an_opened_block_outlives_its_exporter() {
    exporter_first(Kind::Legacy);
}

#[test]
fn an_opened_block_outlives_an_importer() {
    importer_first(Kind::Legacy);
}

#[test]
fn an_opened_block_returns_after_both() {
    both(Kind::Legacy);
}

#[test]
fn a_pools_block_outlives_its_exporter() {
    exporter_first(Kind::Pool);
}

#[test]
fn a_pools_block_outlives_an_importer() {
    importer_first(Kind::Pool);
}

#[test]
fn a_pools_block_returns_after_both() {
    both(Kind::Pool);
}

#[test]
fn an_event_and_its_words_outlive_their_exporter() {
    exporter_first(Kind::Event);
}

#[test]
fn an_event_and_its_words_outlive_an_importer() {
    importer_first(Kind::Event);
}

#[test]
fn an_event_takes_nothing_of_the_device_after_both() {
    both(Kind::Event);
}

#[test]
fn a_descriptor_in_a_process_without_a_driver_keeps_memory_and_content() {
    let machine = Machine::new();
    let witness = machine.peer();
    let before = witness.free_bytes();
    let (exporter, holder) = (machine.peer(), machine.idle());
    let shared = Shared::make(&exporter, Kind::Descriptor, 5);
    holder.ask_with("hold", &shared.made.descriptors);
    close_descriptors(shared);
    exporter.end(End::Kill);
    witness.await_free("only the descriptor is left", |free| free == before - block_bytes());
    let given = holder.ask_with("give", &[]);
    assert_eq!(given.descriptors.len(), 1);
    let importer = machine.peer();
    let again = Shared { kind: Kind::Descriptor, made: Message { text: "00".repeat(64), ..given } };
    again.take(&importer);
    close_descriptors(again);
    importer.ask("check 5");
    importer.ask("write 6");
    importer.end(End::Kill);
    witness.await_free("the importer is gone, the holder is not", |free| free == before - block_bytes());
    let later = machine.peer();
    let given = holder.ask_with("give", &[]);
    let again = Shared { kind: Kind::Descriptor, made: Message { text: "00".repeat(64), ..given } };
    again.take(&later);
    close_descriptors(again);
    later.ask("check 6");
    holder.end(End::Kill);
    later.ask("check 6");
    later.end(End::Exit);
    witness.await_free("all are gone", |free| free == before);
}

#[test]
fn a_descriptor_on_its_way_keeps_memory() {
    let machine = Machine::new();
    let witness = machine.peer();
    let before = witness.free_bytes();
    let exporter = machine.peer();
    let shared = Shared::make(&exporter, Kind::Descriptor, 5);
    exporter.end(End::Kill);
    let (near, far) = pair();
    let descriptors: Vec<_> = shared.made.descriptors.iter().map(AsFd::as_fd).collect();
    send(&near, "nobody reads this", &descriptors).unwrap();
    close_descriptors(shared);
    witness.await_free("the descriptor is in a message", |free| free == before - block_bytes());
    close_descriptors((near, far));
    witness.await_free_later("the message is gone", |free| free == before);
}

/// Mapping, handle and descriptor each keep the memory; releasing the last of them, in any order, frees it.
#[test]
fn memory_returns_with_the_last_of_mapping_handle_and_descriptor() {
    const ORDERS: [[&str; 3]; 6] = [
        ["unmap", "release", "drop-descriptor"],
        ["unmap", "drop-descriptor", "release"],
        ["release", "unmap", "drop-descriptor"],
        ["release", "drop-descriptor", "unmap"],
        ["drop-descriptor", "unmap", "release"],
        ["drop-descriptor", "release", "unmap"],
    ];
    let machine = Machine::new();
    let (witness, importer) = (machine.peer(), machine.peer());
    // The first mapping of a process may allocate extra memory, which stays allocated.
    importer.ask("make Descriptor 1");
    importer.ask("close");
    for order in ORDERS {
        let before = witness.free_bytes();
        let exporter = machine.peer();
        let shared = Shared::make(&exporter, Kind::Descriptor, 7);
        shared.take(&importer);
        exporter.end(End::Kill);
        close_descriptors(shared);
        witness.await_free(format!("{order:?}, all three"), |free| is_about(free, before - block_bytes()));
        for (index, step) in order.into_iter().enumerate() {
            if order[index..].contains(&"unmap") {
                importer.ask("check 7");
            }
            importer.ask(step);
            let held = if index < 2 { block_bytes() } else { 0 };
            witness.await_free(format!("{order:?}, after {step}"), |free| is_about(free, before - held));
        }
    }
    importer.end(End::Exit);
}

/// Returns whether `wanted` bytes are free, except for what NVIDIA's driver keeps in a process that has imported: less
/// than a tenth of a block.
fn is_about(free: usize, wanted: usize) -> bool {
    free.abs_diff(wanted) <= if is_soft() { 0 } else { block_bytes() / 10 }
}

#[test]
fn a_stream_waits_for_an_event_of_another_process() {
    for how in [End::Kill, End::Fault] {
        let machine = Machine::new();
        let (exporter, importer) = (machine.peer(), machine.peer());
        let shared = Shared::make(&exporter, Kind::Event, 1);
        shared.take(&importer);
        let words: &OwnedFd = &shared.made.descriptors[0];
        let (gate, followed) = gate_and_follow_words(words);
        exporter.ask("record-behind-gate");
        importer.ask("follow 9");
        let bystander = machine.peer();
        shared.take(&bystander);
        bystander.ask("follow 9");
        // The end of one waiting process does not affect the others.
        bystander.end(how);
        assert_eq!(followed.load(Ordering::SeqCst), 0, "the event has not happened");
        gate.store(1, Ordering::SeqCst);
        importer.ask("finish");
        assert_eq!(followed.load(Ordering::SeqCst), 9);
        exporter.ask("finish");
        importer.end(End::Exit);
        exporter.ask("record");
        exporter.end(End::Exit);
    }
}

#[test]
fn a_stream_waits_for_a_word_that_a_stream_of_another_process_writes() {
    let machine = Machine::new();
    let (exporter, importer) = (machine.peer(), machine.peer());
    let shared = Shared::make(&exporter, Kind::Event, 1);
    shared.take(&importer);
    for turn in [1, 2] {
        importer.ask(format!("wait-value {turn}"));
        importer.tell("finish", &[]);
        exporter.ask(format!("write-value {turn}"));
        exporter.ask("finish");
        importer.answer("finish").unwrap();
    }
    exporter.ask("wait-value 3");
    exporter.tell("finish", &[]);
    importer.ask("write-value 3");
    importer.ask("finish");
    exporter.answer("finish").unwrap();
}
