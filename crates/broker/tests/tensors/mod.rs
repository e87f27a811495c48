//! Sets of tensors: a reader keeps its generation, and a generation is complete whichever process is killed.

use std::io::Write;

use freehold::Stream;
use freehold_broker::tensors::{Dtype, Manifest, TensorError, TensorSet};
use freehold_broker::wire::Request;
use freehold_broker::{Access, Broker, Link, Policy};
use freehold_testing::{Random, at_effort, seed};

use crate::harness::{self, Harness, kill_role, stats};
use crate::leases::Outcome;

/// Generations differ in length, so that their memory does too.
fn manifest(generation: u64, policy: Policy) -> Manifest {
    let lens = [60_000 + generation % 5 * 1000, 1, 30_000];
    let shapes = lens.map(|len| [len]);
    let names = ["embedding", "scale", "head"];
    let tensors = names.iter().zip(&shapes).map(|(&name, shape)| (name, Dtype::Uint64, &shape[..]));
    Manifest::packed(policy, tensors).and_then(Manifest::with_room_for_hashes).expect("a valid list")
}

/// Publishes a set whose elements are all the number of its generation.
fn publish(broker: &Broker, stream: &Stream, generation: u64) -> Result<u64, TensorError> {
    let manifest = manifest(generation, Policy::Restore);
    let mut writer = match generation {
        1 => broker.create_tensors(stream, "model", manifest)?,
        _ => broker.update_tensors(stream, "model", manifest)?,
    };
    for at in 0..writer.manifest().tensors().len() {
        let bytes = generation.to_le_bytes().repeat(writer.manifest().tensors()[at].bytes as usize / 8);
        writer.write(stream, at, &bytes)?;
    }
    writer.verify(stream)?;
    writer.publish(stream)
}

/// Checks that a set is of one generation, and is the one that it says.
fn check(stream: &Stream, set: &TensorSet) -> Outcome {
    let generation = set.generation();
    set.verify(stream)?;
    assert_eq!(set.manifest(), &{
        let mut expected = manifest(generation, Policy::Restore);
        (0..).zip(set.manifest().tensors()).for_each(|(at, one)| expected.set_hash(at, one.hash.expect("a hash")));
        expected
    });
    for tensor in set.manifest().tensors() {
        let bytes = stream.download(&set.get(&tensor.name).expect("it is listed").view()?)?;
        let expected = generation.to_le_bytes();
        assert!(bytes.chunks_exact(8).all(|word| word == expected), "{} of generation {generation}", tensor.name);
    }
    Ok(())
}

/// Runs one task with a device.
pub(crate) fn act(broker: &Broker, stream: &Stream, task: &str) -> Outcome {
    match task {
        "tensors-generations" => generations(broker, stream)?,
        "tensors-refusals" => refusals(broker, stream)?,
        "tensors-python" => python(broker, stream)?,
        "tensors-publish" => assert_eq!(publish(broker, stream, 1)?, 1),
        "tensors-read" => check(stream, &broker.lease_tensors(stream, "model")?)?,
        "tensors-update" => {
            println!("{}", broker.tenant().0);
            std::io::stdout().flush()?;
            let mut generation = broker.lease_tensors(stream, "model")?.generation();
            loop {
                generation += 1;
                assert_eq!(publish(broker, stream, generation)?, generation);
            }
        }
        other => panic!("there is no task {other}"),
    }
    Ok(())
}

/// A reader keeps its generation; `model@1` is an error when it is not the current one.
fn generations(broker: &Broker, stream: &Stream) -> Outcome {
    assert_eq!(publish(broker, stream, 1)?, 1);
    let first = broker.lease_tensors(stream, "model@1")?;
    let mut unfinished = broker.update_tensors(stream, "model", manifest(2, Policy::Restore))?;
    let length = unfinished.manifest().tensors()[0].bytes as usize;
    unfinished.write(stream, 0, &vec![0xff; length])?;
    let busy = broker.update_tensors(stream, "model", manifest(2, Policy::Restore)).unwrap_err().to_string();
    assert!(busy.starts_with("the name is in use: "), "{busy}");
    check(stream, &broker.lease_tensors(stream, "model")?)?;
    drop(unfinished);
    assert_eq!(publish(broker, stream, 2)?, 2);
    let second = broker.lease_tensors(stream, "model@2")?;
    check(stream, &second)?;
    check(stream, &first)?;
    assert_eq!((first.generation(), second.generation()), (1, 2));
    assert_eq!(first.get("scale").expect("it is listed").address() % 256, 0);
    assert!(first.get("none").is_none());
    let refused = broker.lease_tensors(stream, "model@1").unwrap_err().to_string();
    assert_eq!(refused, "model@1 is not the current generation: the broker has model@2");
    first.close()?;
    Ok(())
}

fn refusals(broker: &Broker, stream: &Stream) -> Outcome {
    let refused = |outcome: Result<TensorSet, TensorError>| outcome.unwrap_err().to_string();
    assert_eq!(refused(broker.lease_tensors(stream, "model")), "model: there is no such name");
    let missing = broker.update_tensors(stream, "model", manifest(1, Policy::Restore)).unwrap_err().to_string();
    assert_eq!(missing, "model: there is no such name");
    broker.publish("bytes", broker.reserve::<u8>(stream, 1000)?, Policy::Restore)?;
    let plain = "bytes: the memory has no list of tensors: it was published as plain bytes";
    assert_eq!(refused(broker.lease_tensors(stream, "bytes")), plain);
    let in_place = "open is written in place and has no generations: publish it with the policy restore";
    broker.create_tensors(stream, "open", manifest(1, Policy::Open))?.publish(stream)?;
    for policy in [Policy::Open, Policy::Restore] {
        let refused = broker.update_tensors(stream, "open", manifest(1, policy)).unwrap_err().to_string();
        assert_eq!(refused, in_place);
    }
    let not_a_set = broker.update_tensors(stream, "bytes", manifest(1, Policy::Restore)).unwrap_err().to_string();
    assert_eq!(not_a_set, plain);
    // To refuse an update changes nothing.
    broker.create_tensors(stream, "dropped", manifest(1, Policy::Drop))?.publish(stream)?;
    assert!(broker.update_tensors(stream, "dropped", manifest(1, Policy::Restore)).is_err());
    assert_eq!(broker.lease_tensors(stream, "dropped")?.generation(), 1);
    // A tensor whose hash nobody set.
    let unset = broker.create_tensors(stream, "unset", manifest(1, Policy::Restore))?;
    unset.verify(stream)?;
    unset.publish(stream)?;
    let unset = broker.lease_tensors(stream, "unset")?;
    unset.verify(stream)?;
    assert_eq!(unset.manifest().tensors()[0].hash, None);
    // A set whose content is not what its list says.
    let mut writer = broker.create_tensors(stream, "model", manifest(1, Policy::Restore))?;
    writer.set_hash(1, [7; 32]);
    let damaged =
        "tensor \"scale\" of model does not have the content that its publisher listed: publish the set again";
    assert_eq!(writer.verify(stream).unwrap_err().to_string(), damaged);
    let too_long = writer.view_mut(1, 0..9).map(|_| ()).unwrap_err();
    assert!(writer.view_mut(1, 0..8).is_ok(), "{too_long}");
    writer.publish(stream)?;
    assert_eq!(broker.lease_tensors(stream, "model")?.verify(stream).unwrap_err().to_string(), damaged);
    let taken = broker.create_tensors(stream, "model", manifest(1, Policy::Restore))?.publish(stream).unwrap_err();
    assert!(taken.to_string().starts_with("model: the name is taken: "), "{taken}");
    Ok(())
}

/// Arrays as version 1 of the Python package publishes them.
fn python(broker: &Broker, stream: &Stream) -> Outcome {
    let text =
        r#"{"version":1,"policy":"open","arrays":{"":{"dtype":"uint16","shape":[2,2],"strides":[1,2],"offset":0}}}"#;
    let header = [b"FHARRAYS", &(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut memory = header.clone();
    memory.resize(header.len().next_multiple_of(256), 0);
    memory.extend_from_slice(&[1, 0, 2, 0, 3, 0, 4, 0]);
    memory.resize(memory.len().next_multiple_of(256), 0);
    let mut lease = broker.reserve::<u8>(stream, memory.len())?;
    stream.write(&mut lease, &memory)?;
    broker.publish("arrays", lease, Policy::Open)?;
    let set = broker.lease_tensors(stream, "arrays@1")?;
    let array = set.get("").expect("it is listed");
    assert_eq!((array.tensor().dtype, &array.tensor().strides[..]), (Dtype::Uint16, &[1, 2][..]));
    assert_eq!(stream.download(&array.view()?)?, [1, 0, 2, 0, 3, 0, 4, 0]);
    set.verify(stream)?;
    assert_eq!(broker.lease::<u8>(stream, "arrays", Access::Write)?.version(), 1);
    Ok(())
}

pub(crate) fn a_reader_keeps_its_generation_and_may_require_one(harness: &Harness) {
    assert_eq!(harness.device("tensors-generations", 0), Some(String::new()));
}

pub(crate) fn what_is_not_a_set_or_has_no_generations_is_refused_in_a_sentence(harness: &Harness) {
    assert_eq!(harness.device("tensors-refusals", 0), Some(String::new()));
}

pub(crate) fn arrays_of_the_python_package_are_a_set(harness: &Harness) {
    assert_eq!(harness.device("tensors-python", 0), Some(String::new()));
}

/// Writers and brokers are killed at random moments: a reader finds one generation, whole.
pub(crate) fn a_set_is_of_one_generation_whoever_is_killed(harness: &Harness) {
    let mut random = Random::new(seed());
    assert_eq!(harness.device("tensors-publish", 0), Some(String::new()));
    let mut link = harness.link();
    let mut last = 1;
    for _ in 0..at_effort(4, 12, 60) {
        let (mut writer, _) = harness.start_device("tensors-update");
        // The next generations, so that the kill comes during one.
        let wanted = last + 1 + random.below(4);
        harness::until("the set has more generations", || (version(&mut link) >= wanted).then_some(()));
        if random.below(2) == 0 {
            kill_role(&harness.socket(), "broker");
        }
        assert_eq!(harness.device("tensors-read", 0), Some(String::new()));
        harness::kill(writer.id());
        writer.wait().expect("it is a child of this process");
        assert_eq!(harness.device("tensors-read", 0), Some(String::new()));
        let now = version(&mut link);
        assert!(now >= wanted, "generation {now} after {wanted}");
        last = now;
    }
    harness::until("nothing of a killed writer is left", || {
        let stats = stats(&mut link);
        let is_one = stats.named_bytes == manifest(last, Policy::Restore).memory_bytes();
        (is_one && stats.leases == 0 && stats.reclaiming_bytes == 0).then_some(())
    });
}

/// The version of the only name, as it is listed.
fn version(link: &mut Link) -> u64 {
    let text = link.call(Request::List { after: None }).expect("a broker serves").text;
    text.split('\t').nth(7).expect("one name is listed").parse().expect("a number")
}
