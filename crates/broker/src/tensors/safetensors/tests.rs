//! Files that are read, and files that lie.

use serde_json::{Value, json};

use super::*;

fn file(header: &str, data_bytes: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![7; data_bytes]].concat()
}

fn read(bytes: &[u8]) -> Result<SafetensorsFile, SafetensorsError> {
    SafetensorsFile::read(bytes, bytes.len() as u64, Policy::Restore)
}

fn refused(header: &Value, data_bytes: usize) -> String {
    read(&file(&header.to_string(), data_bytes)).expect_err("the file is wrong").to_string()
}

fn tensor(dtype: &str, shape: &[u64], from: u64, to: u64) -> Value {
    json!({"dtype": dtype, "shape": shape, "data_offsets": [from, to]})
}

#[test]
fn tensors_are_listed_in_the_order_of_the_file() {
    let header = json!({
        "a": tensor("F32", &[2, 3], 2, 26), "b": tensor("U8", &[2], 0, 2), "none": tensor("BF16", &[0], 26, 26),
        "__metadata__": {"format": "pt"}
    });
    let found = read(&file(&header.to_string(), 26)).unwrap();
    let start = 8 + header.to_string().len() as u64;
    let listed: Vec<_> =
        found.manifest.tensors().iter().map(|one| (one.name.as_str(), one.dtype, one.offset, one.bytes)).collect();
    let expected = [("b", Dtype::Uint8, 0, 2), ("a", Dtype::Float32, 256, 24), ("none", Dtype::Bfloat16, 512, 0)];
    assert_eq!(listed, expected);
    assert_eq!(found.starts, [start, start + 2, start + 26]);
    assert_eq!(found.manifest.get("a").unwrap().strides, [3, 1]);
    assert_eq!(found.manifest.get("a").unwrap().hash, Some([0; 32]));
}

#[test]
fn every_wrong_file_is_refused_in_a_sentence() {
    assert_eq!(read(b"1234567").unwrap_err().to_string(), "not a safetensors file: it has 7 bytes");
    let sentence = format!("not a safetensors file: its header would have {} bytes", u64::MAX);
    assert_eq!(read(&[0xff; 64]).unwrap_err().to_string(), sentence);
    let whole = file(&json!({ "a": tensor("U8", &[8], 0, 8) }).to_string(), 8);
    assert_eq!(
        read(&whole[..20]).unwrap_err().to_string(),
        format!("the file is truncated: its header ends at byte {} of 20", whole.len() - 8)
    );
    let sentence = "the header describes 8 bytes of tensors, and the file has 7: it is truncated or damaged";
    assert_eq!(read(&whole[..whole.len() - 1]).unwrap_err().to_string(), sentence);
    let sentence = "the header describes 8 bytes of tensors, and the file has 9: it is truncated or damaged";
    assert_eq!(read(&[&whole[..], b"x"].concat()).unwrap_err().to_string(), sentence);
    for (header, data_bytes) in [
        // Overlapping, with a gap, backwards.
        (json!({"a": tensor("U8", &[8], 0, 8), "b": tensor("U8", &[8], 4, 12)}), 12),
        (json!({"a": tensor("U8", &[8], 0, 8), "b": tensor("U8", &[8], 9, 17)}), 17),
        (json!({ "a": tensor("U8", &[8], 8, 0) }), 8),
        // Another size than the shape says, and a size that overflows.
        (json!({ "a": tensor("F32", &[8], 0, 8) }), 8),
        (json!({ "a": tensor("F32", &[1 << 40, 1 << 40], 0, 8) }), 8),
        (json!({ "a": tensor("F33", &[2], 0, 8) }), 8),
        (json!({ "a": {"dtype": "U8", "shape": [8]} }), 8),
        (json!([]), 0),
    ] {
        let sentence = refused(&header, data_bytes);
        assert!(sentence.starts_with("the header is damaged: ") && sentence.lines().count() == 1, "{sentence}");
    }
    let sentence = "tensor \"a\" has the type F4, which has no whole bytes or no name here: convert it first";
    assert_eq!(refused(&json!({ "a": tensor("F4", &[16], 0, 8) }), 8), sentence);
    assert_eq!(refused(&json!({}), 0), "the list has no tensors: expected at least one");
}

proptest::proptest! {
    #![proptest_config(crate::tensors::cases())]

    #[test]
    fn a_changed_byte_does_not_lead_outside(at in 0_usize..200, byte: u8) {
        let header = json!({"a": tensor("F32", &[2, 2], 0, 16), "b": tensor("U8", &[8], 16, 24)}).to_string();
        let mut bytes = file(&header, 24);
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(found) = read(&bytes) {
            for (start, one) in found.starts.iter().zip(found.manifest.tensors()) {
                proptest::prop_assert!(start + one.bytes <= bytes.len() as u64);
            }
        }
    }
}

#[test]
fn a_header_names_each_tensor_once_and_begins_with_a_brace() {
    let one = r#""a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    let refused = |header: &str| read(&file(header, 4)).expect_err("the file is wrong").to_string();
    let twice = refused(&format!("{{{one},{one}}}"));
    assert!(twice.starts_with("the header is damaged: two tensors have the name \"a\""), "{twice}");
    assert_eq!(refused(&format!(" {{{one}}}")), "the header is damaged: it does not begin with a brace");
    assert!(read(&file(&format!("{{{one}}} "), 4)).is_ok());
}
