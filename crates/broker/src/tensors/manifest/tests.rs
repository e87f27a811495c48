//! Lists that are read back, lists of the Python package, and lists that are wrong.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tensors::cases;

fn framed(text: &str) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Memory with a list and this many bytes of tensors.
fn parsed(text: &str, data_bytes: u64) -> Result<Manifest, ManifestError> {
    let bytes = framed(text);
    Manifest::parse(&bytes, (bytes.len() as u64).next_multiple_of(ALIGNMENT) + data_bytes)
}

fn entry(dtype: &str, shape: &[u64], strides: &[u64], offset: u64, bytes: u64) -> Value {
    json!({"dtype": dtype, "shape": shape, "strides": strides, "offset": offset, "bytes": bytes})
}

/// The refusal of a list with these tensors, in 4096 bytes.
fn refused(arrays: Value) -> String {
    let text = json!({"version": 2, "policy": "restore", "arrays": arrays}).to_string();
    parsed(&text, 4096).expect_err("the list is wrong").to_string()
}

#[test]
fn a_list_of_version_1_as_python_writes_it_is_read() {
    let text = r#"{"version":1,"policy":"open","arrays":{"w":{"dtype":"float32","shape":[2,3],"strides":[1,2],"offset":0},"":{"dtype":"bfloat16","shape":[],"strides":[],"offset":256},"none":{"dtype":"int8","shape":[0,4],"strides":[1,1],"offset":512}}}"#;
    let manifest = parsed(text, 512).unwrap();
    assert_eq!(manifest.policy(), Policy::Open);
    let listed: Vec<_> = manifest.tensors().iter().map(|tensor| (tensor.name.as_str(), tensor.bytes)).collect();
    assert_eq!(listed, [("w", 24), ("", 2), ("none", 0)]);
    assert_eq!(manifest.get("w").unwrap().strides, [1, 2]);
    assert_eq!(manifest.data_start(), 256);
    assert_eq!(parsed(text, 257).unwrap_err().to_string(), "tensor \"\" ends at byte 258 of 257");
    // As an empty tensor at the end.
    assert_eq!(parsed(text, 511).unwrap_err().to_string(), "tensor \"none\" ends at byte 512 of 511");
}

#[test]
fn tensors_of_the_same_bytes_share_them() {
    let shared = |offset, bytes| {
        let text = json!({"version": 2, "policy": "restore", "arrays": {
            "a": entry("uint8", &[8], &[1], 0, 8), "b": entry("uint64", &[1], &[1], offset, bytes)}});
        parsed(&text.to_string(), 4096)
    };
    assert_eq!(shared(0, 8).unwrap().tensors().len(), 2);
    shared(8, 8).unwrap();
}

#[test]
fn every_wrong_list_is_refused_in_a_sentence() {
    let one = |value: Value| refused(json!({ "w": value }));
    assert_eq!(one(entry("float99", &[1], &[1], 0, 4)), "tensor \"w\" has the unknown type \"float99\"");
    assert_eq!(one(entry("uint8", &[2], &[], 0, 2)), "tensor \"w\" has 1 dimensions and 0 strides");
    assert_eq!(one(entry("uint8", &[1; 65], &[1; 65], 0, 1)), "tensor \"w\" has 65 dimensions: expected at most 64");
    assert_eq!(
        one(entry("float32", &[2], &[1], 0, 4)),
        "tensor \"w\" is listed with 4 bytes: its type, shape and strides need 8"
    );
    assert_eq!(one(entry("float32", &[2], &[1], 2, 8)), "tensor \"w\" begins at byte 2: expected a multiple of 4");
    assert_eq!(one(entry("uint8", &[1], &[1], 4096, 1)), "tensor \"w\" ends at byte 4097 of 4096");
    for (shape, strides, offset) in [
        (&[1 << 33, 1 << 33][..], &[0, 0][..], 0),
        (&[3, 3], &[u64::MAX / 2, 1], 0),
        (&[1 << 62], &[1], 0),
        (&[2], &[1], u64::MAX - 3),
        (&[1], &[1 << 63], 0),
    ] {
        let bytes = if offset == 0 { 4 } else { 8 };
        assert_eq!(one(entry("float32", shape, strides, offset, bytes)), "tensor \"w\" is larger than any memory");
    }
    let hash = json!({"dtype": "uint8", "shape": [1], "strides": [1], "offset": 0, "bytes": 1, "blake3": "00ff"});
    assert_eq!(one(hash), "the hash of tensor \"w\" is not 64 hexadecimal digits");
    let overlap = json!({"a": entry("uint8", &[8], &[1], 0, 8), "b": entry("uint8", &[8], &[1], 4, 8)});
    assert_eq!(refused(overlap), "tensors \"a\" and \"b\" overlap: only tensors of the same bytes may share them");
    // The first one reaches over the second to the third.
    let inside = json!({"a": entry("uint8", &[8], &[1], 0, 8), "b": entry("uint8", &[2], &[1], 0, 2)});
    assert!(refused(inside).contains("overlap"));
    assert_eq!(refused(json!({})), "the list has no tensors: expected at least one");
    let long = refused(json!({ "x".repeat(1025): entry("uint8", &[1], &[1], 0, 1) }));
    assert_eq!(long, "a tensor has a name of 1025 bytes: expected at most 1024");
}

#[test]
fn every_wrong_text_is_refused_in_a_sentence() {
    let refused = |text: &str| parsed(text, 4096).unwrap_err().to_string();
    let tensor = entry("uint8", &[1], &[1], 0, 1);
    assert_eq!(refused(r#"{"version":3,"new":1}"#), "the list of tensors has version 3: update this program");
    assert_eq!(refused(r#"{"version":0}"#), "the list of tensors has version 0: update this program");
    let policy = json!({"version": 2, "policy": "keep", "arrays": {"w": tensor}}).to_string();
    assert_eq!(refused(&policy), "unknown policy \"keep\": expected restore, drop or open");
    let twice = format!(r#"{{"version":2,"policy":"restore","arrays":{{"w":{tensor},"w":{tensor}}}}}"#);
    assert!(refused(&twice).starts_with("the list of tensors is damaged: two tensors have the name \"w\""));
    for text in ["", "{", "[]", "{\"version\":2}", "{\"version\":\"2\"}", "\u{0}", "{\"version\":2} {}"] {
        assert!(refused(text).starts_with("the list of tensors is damaged: "), "{text}");
    }
    for field in ["dtype", "shape", "strides", "offset", "bytes"] {
        let mut tensor = tensor.clone();
        tensor.as_object_mut().unwrap().remove(field);
        let text = json!({"version": 2, "policy": "restore", "arrays": {"w": tensor}}).to_string();
        assert!(refused(&text).starts_with("the list of tensors is damaged: "), "{field}");
    }
    let negative =
        r#"{"version":1,"policy":"restore","arrays":{"w":{"dtype":"int8","shape":[2],"strides":[-1],"offset":1}}}"#;
    assert!(refused(negative).starts_with("the list of tensors is damaged: "));
    let unknown = r#"{"version":2,"policy":"restore","arrays":{},"more":1}"#;
    assert!(refused(unknown).contains("unknown field `more`"));
}

#[test]
fn every_wrong_prefix_is_refused_in_a_sentence() {
    let refused = |bytes: &[u8], memory_bytes| Manifest::parse(bytes, memory_bytes).unwrap_err();
    let prefix = |length: u64| [MAGIC.as_slice(), &length.to_le_bytes()].concat();
    for bytes in [&b""[..], b"FHARRAY", b"FHARRAYS1234567", b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"] {
        assert_eq!(refused(bytes, 4096), ManifestError::NotASet);
    }
    let sentence = "the memory has no list of tensors: it was published as plain bytes";
    assert_eq!(ManifestError::NotASet.to_string(), sentence);
    for bytes in [HEADER_BYTES_MAX + 1, u64::MAX, u64::MAX - 15] {
        assert_eq!(refused(&prefix(bytes), u64::MAX), ManifestError::TooLong { bytes });
    }
    let short = refused(&prefix(100), 115).to_string();
    assert_eq!(short, "the list of tensors ends at byte 116 of 115: publish the set again");
    let text =
        json!({"version": 2, "policy": "restore", "arrays": {"w": entry("uint8", &[0], &[1], 0, 0)}}).to_string();
    let header = framed(&text);
    let short = refused(&header, 255).to_string();
    assert_eq!(short, "the list of tensors ends at byte 256 of 255: publish the set again");
    Manifest::parse(&header, 256).unwrap();
    assert_eq!(refused(&prefix(100), 4096), ManifestError::TooShort { end: 116, memory_bytes: 16 });
}

#[test]
fn a_hash_does_not_move_the_tensors() {
    let mut manifest =
        Manifest::packed(Policy::Restore, [("a", Dtype::Uint8, &[3][..])]).unwrap().with_room_for_hashes().unwrap();
    let before = manifest.header().len();
    manifest.set_hash(0, hash(b"abc"));
    assert_eq!(manifest.header().len(), before);
    let text = String::from_utf8_lossy(&manifest.header()).into_owned();
    assert!(text.contains("\"blake3\":\"6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85\""), "{text}");
    assert_eq!(Manifest::parse(&manifest.header(), manifest.memory_bytes()).unwrap(), manifest);
}

fn tensors() -> impl Strategy<Value = Vec<(String, usize, Vec<u64>)>> {
    let names = proptest::collection::btree_set("\\PC{0,12}", 1..12);
    let one = (0..Dtype::ALL.len(), proptest::collection::vec(0_u64..6, 0..5));
    (names, proptest::collection::vec(one, 12)).prop_map(|(names, rest)| {
        names.into_iter().zip(rest).map(|(name, (dtype, shape))| (name, dtype, shape)).collect()
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_packed_list_is_read_back(listed in tensors(), has_hashes: bool) {
        let tensors = listed.iter().map(|(name, dtype, shape)| (name.as_str(), Dtype::ALL[*dtype], shape.as_slice()));
        let mut manifest = Manifest::packed(Policy::Drop, tensors).unwrap();
        if has_hashes {
            manifest = manifest.with_room_for_hashes().unwrap();
            (0..manifest.tensors().len()).for_each(|at| manifest.set_hash(at, [at as u8 + 1; 32]));
        }
        let header = manifest.header();
        prop_assert_eq!(header.len() as u64, manifest.data_start());
        prop_assert_eq!(Manifest::parse(&header, manifest.memory_bytes()).unwrap(), manifest);
    }

    /// Whatever a list says, what is accepted lies inside of the memory.
    #[test]
    fn no_accepted_tensor_leaves_the_memory(
        tensors in proptest::collection::vec((0..20_usize, proptest::collection::vec(any::<u64>().prop_map(near), 0..4), any::<u64>()), 1..5),
        data_bytes in 0_u64..4096,
    ) {
        let arrays: serde_json::Map<String, Value> = (0..).zip(&tensors).map(|(at, (dtype, numbers, offset))| {
            let (shape, strides) = numbers.split_at(numbers.len() / 2);
            let text = json!({"dtype": Dtype::ALL[*dtype].name(), "shape": shape, "strides": strides, "offset": near(*offset)});
            (format!("t{at}"), text)
        }).collect();
        let text = json!({"version": 1, "policy": "restore", "arrays": arrays}).to_string();
        if let Ok(manifest) = parsed(&text, data_bytes) {
            for tensor in manifest.tensors() {
                let steps = tensor.shape.iter().zip(&tensor.strides).map(|(&length, &stride)| u128::from(length.max(1) - 1) * u128::from(stride));
                let elements = if tensor.shape.contains(&0) { 0 } else { 1 + steps.sum::<u128>() };
                let end = u128::from(tensor.offset) + elements * u128::from(tensor.dtype.bytes());
                prop_assert!(end <= u128::from(data_bytes), "{:?}", tensor);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_list_do_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), is_framed: bool, memory_bytes: u64) {
        if is_framed {
            bytes = [MAGIC.as_slice(), &(bytes.len() as u64).to_le_bytes(), &bytes].concat();
        }
        prop_assert!(Manifest::parse(&bytes, memory_bytes).is_err());
    }

    /// One changed byte gives an error or a list that keeps the rules.
    #[test]
    fn a_changed_byte_does_not_lead_outside(at in 0_usize..512, byte: u8) {
        let shape = [4_u64, 4];
        let manifest = Manifest::packed(Policy::Restore, [("a", Dtype::Float32, &shape[..]), ("b", Dtype::Float64, &shape)]).unwrap();
        let mut header = manifest.header();
        let at = at % header.len();
        header[at] = byte;
        if let Ok(read) = Manifest::parse(&header, manifest.memory_bytes()) {
            prop_assert!(read.memory_bytes() <= manifest.memory_bytes());
        }
    }
}

/// Small numbers, and some near the ends of the range.
fn near(number: u64) -> u64 {
    match number % 8 {
        0 => u64::MAX - number / 8 % 64,
        1 => 1 << (number / 8 % 64),
        _ => number / 8 % 64,
    }
}
