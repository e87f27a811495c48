//! Rules of sharing between live processes.

use crate::peer;

use freehold_driver::cuda::CUerror;
use peer::{End, Kind, Machine, Message, Peer, block_bytes};

/// Two peers that share something of a kind, and what names it.
fn sharing(kind: Kind) -> (Machine, Peer, Peer, Message) {
    let machine = Machine::new();
    let (exporter, importer) = (machine.peer(), machine.peer());
    let made = exporter.ask_with(format!("make {kind:?} 1"), &[]);
    take(&importer, kind, &made);
    (machine, exporter, importer, made)
}

#[track_caller]
fn take(peer: &Peer, kind: Kind, made: &Message) {
    peer.ask_with(format!("take {kind:?} {}", made.text), &made.descriptors);
}

#[test]
fn each_side_sees_what_the_other_writes() {
    for kind in [Kind::Descriptor, Kind::Legacy, Kind::Pool, Kind::Event] {
        let (_machine, exporter, importer, _made) = sharing(kind);
        importer.ask("check 1");
        for value in [2, 4, 6] {
            importer.ask(format!("write {value}"));
            exporter.ask(format!("check {value}"));
            exporter.ask(format!("write {}", value + 1));
            importer.ask(format!("check {}", value + 1));
        }
        importer.ask("close");
        exporter.ask("check 7");
        exporter.ask("close");
    }
}

#[test]
fn several_importers_see_the_same_memory() {
    for kind in [Kind::Descriptor, Kind::Legacy, Kind::Pool, Kind::Event] {
        let (machine, exporter, first, made) = sharing(kind);
        let second = machine.peer();
        take(&second, kind, &made);
        second.ask("write 3");
        first.ask("check 3");
        first.ask("close");
        second.ask("check 3");
        exporter.ask("check 3");
        second.ask("close");
        exporter.ask("close");
    }
}

#[test]
fn opening_ones_own_handle_is_invalid_context() {
    let (_machine, exporter, importer, _made) = sharing(Kind::Legacy);
    assert_eq!(exporter.refused("open-own"), CUerror::INVALID_CONTEXT);
    importer.ask("check 1");
}

#[test]
fn an_importer_can_neither_free_a_block_nor_export_it_again() {
    let (_machine, exporter, importer, _made) = sharing(Kind::Legacy);
    let address = importer.ask("address");
    assert_eq!(importer.refused(format!("free-address {address}")), CUerror::INVALID_VALUE);
    assert_eq!(importer.refused("export-again"), CUerror::INVALID_VALUE);
    importer.ask("check 1");
    exporter.ask("check 1");
}

#[test]
fn a_block_that_is_freed_while_it_is_open_elsewhere_stays_there() {
    let (machine, exporter, importer, _made) = sharing(Kind::Legacy);
    let witness = machine.peer();
    let held = witness.free_bytes();
    exporter.ask("close");
    importer.ask("check 1");
    importer.ask("write 2");
    importer.ask("check 2");
    witness.await_free("freed by the exporter alone", |free| free < held + block_bytes());
    importer.ask("close");
    witness.await_free("closed by the importer too", |free| free >= held + block_bytes());
}

#[test]
fn a_block_that_is_opened_twice_is_at_one_address_and_closed_twice() {
    let (_machine, _exporter, importer, _made) = sharing(Kind::Legacy);
    importer.ask("again 1");
    importer.ask("check 1");
    let address = importer.ask("address");
    importer.ask("close");
    assert_eq!(importer.refused(format!("read-address {address}")), CUerror::INVALID_VALUE);
    assert_eq!(importer.refused("close"), CUerror::INVALID_VALUE);
}

#[test]
fn memory_of_descriptors_and_pools_has_no_legacy_handle() {
    for kind in [Kind::Descriptor, Kind::Pool] {
        let (_machine, exporter, _importer, _made) = sharing(kind);
        assert_eq!(exporter.refused("export-again"), CUerror::INVALID_VALUE, "{kind:?}");
    }
}

#[test]
fn the_address_of_another_process_means_nothing() {
    let machine = Machine::new();
    let (owner, stranger) = (machine.peer(), machine.peer());
    owner.ask("make Legacy 1");
    let address = owner.ask("address");
    assert_eq!(stranger.refused(format!("free-address {address}")), CUerror::INVALID_VALUE);
    assert_eq!(stranger.refused(format!("read-address {address}")), CUerror::INVALID_VALUE);
    owner.ask("check 1");
}

#[test]
fn the_fault_of_one_process_is_nothing_to_those_it_shares_with() {
    for kind in [Kind::Descriptor, Kind::Legacy, Kind::Pool, Kind::Event] {
        let (machine, exporter, importer, made) = sharing(kind);
        assert_eq!(importer.refused("touch-nothing"), CUerror::ILLEGAL_ADDRESS, "{kind:?}");
        assert_eq!(importer.refused("free"), CUerror::ILLEGAL_ADDRESS, "{kind:?}");
        exporter.ask("check 1");
        exporter.ask("write 2");
        let later = machine.peer();
        take(&later, kind, &made);
        later.ask("check 2");
        importer.end(End::Exit);
        exporter.ask("check 2");
    }
}
