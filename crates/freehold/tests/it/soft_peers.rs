//! Copies between two devices, in whatever order their streams advance.

use crate::children::alone_with;
use crate::own;

use freehold::{Device, Error};
use own::N;

/// Runs the body of the test `name` with two devices, under several schedules.
#[track_caller]
fn with_two(name: &str, body: fn(&Device, &Device)) {
    for schedule in ["threads", "seed:1", "seed:2", "seed:3", "seed:4", "seed:5", "seed:6"] {
        let variables =
            [("FREEHOLD_DEVICE", "soft"), ("FREEHOLD_SOFT_DEVICES", "2"), ("FREEHOLD_SOFT_SCHEDULE", schedule)];
        alone_with(name, &variables, || {
            let [here, there] = ["soft", "soft:1"].map(|name| freehold::open::device(Some(name)).unwrap());
            body(&here, &there);
        });
    }
}

#[test]
fn a_copy_from_another_device_follows_its_writes_and_precedes_the_next() {
    with_two("a_copy_from_another_device_follows_its_writes_and_precedes_the_next", |here, there| {
        let (stream, writer, later) =
            (here.new_stream().unwrap(), there.new_stream().unwrap(), there.new_stream().unwrap());
        let mut from = writer.upload(&[1_u32; N]).unwrap();
        let mut to = stream.zeros::<u32>(N).unwrap();
        for round in 0..8 {
            writer.fill(&mut from, round).unwrap();
            stream.copy(&from, &mut to).unwrap();
            later.fill(&mut from, 100).unwrap();
            assert_eq!(stream.download(&to).unwrap(), [round; N]);
        }
        assert_eq!(writer.download(&from).unwrap(), [100; N]);
        assert!(here.drop_errors().is_empty() && there.drop_errors().is_empty());
    });
}

#[test]
fn a_block_that_is_dropped_during_the_copy_is_not_handed_out_before() {
    with_two("a_block_that_is_dropped_during_the_copy_is_not_handed_out_before", |here, there| {
        let (stream, writer) = (here.new_stream().unwrap(), there.new_stream().unwrap());
        let mut to = stream.zeros::<u32>(N).unwrap();
        for round in 0..8 {
            let from = writer.upload(&[round; N]).unwrap();
            stream.copy(&from.view(1..).unwrap(), &mut to.view_mut(1..).unwrap()).unwrap();
            drop(from);
            let others: Vec<_> = (0..4).map(|_| writer.upload(&[100_u32; N]).unwrap()).collect();
            assert_eq!(stream.download(&to.view(1..).unwrap()).unwrap(), [round; N - 1]);
            drop(others);
        }
    });
}

#[test]
fn a_copy_to_a_block_waits_for_its_readers() {
    with_two("a_copy_to_a_block_waits_for_its_readers", |here, there| {
        let (stream, reader, source) =
            (here.new_stream().unwrap(), here.new_stream().unwrap(), there.new_stream().unwrap());
        let from = source.upload(&[7_u32; N]).unwrap();
        let mut to = stream.upload(&[3_u32; N]).unwrap();
        let mut before = reader.zeros::<u32>(N).unwrap();
        reader.copy(&to, &mut before).unwrap();
        stream.copy(&from, &mut to).unwrap();
        assert_eq!(reader.download(&before).unwrap(), [3; N]);
        assert_eq!(reader.download(&to).unwrap(), [7; N]);
    });
}

#[test]
fn a_stream_does_not_write_to_another_device() {
    with_two("a_stream_does_not_write_to_another_device", |here, there| {
        let (stream, other) = (here.new_stream().unwrap(), there.new_stream().unwrap());
        let (from, mut to) = (stream.upload(&[7_u32; N]).unwrap(), other.zeros::<u32>(N).unwrap());
        let refused = stream.copy(&from, &mut to).unwrap_err();
        assert!(matches!(refused, Error::OtherDevice { what: "a block" }), "{refused}");
        assert_eq!(other.download(&to).unwrap(), [0; N]);
    });
}

#[test]
fn blocks_of_other_contexts_are_copied_too() {
    with_two("blocks_of_other_contexts_are_copied_too", |here, there| {
        let context = there.new_context().unwrap();
        let (stream, writer) = (here.new_stream().unwrap(), context.new_stream().unwrap());
        let (from, mut to) = (writer.upload(&[9_u32; N]).unwrap(), stream.zeros::<u32>(N).unwrap());
        stream.copy(&from, &mut to).unwrap();
        assert_eq!(stream.download(&to).unwrap(), [9; N]);
    });
}
