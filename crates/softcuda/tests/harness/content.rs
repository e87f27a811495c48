//! The initial content of a buffer.
//!
//! | in a description | content |
//! |---|---|
//! | `corners` | the corner values of the type, over and over |
//! | `corners slow` | each corner value as often as there are corner values: beside `corners`, all pairs meet |
//! | `corners random 7` | corner values in an order by that seed |
//! | `random 7` | integers of any bits; numbers between -4 and 4 |
//! | `noise 7` | any bits, whatever the type |
//! | `iota` | 0, 1, 2, … |
//! | `value 5` | that value everywhere |
//! | `bits 0x1,0x2` | those values, over and over |
//! | `text "…"` | the bytes of a text, then zeros |

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::element::{CORNERS, Element};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Zeros,
    Corners,
    CornersSlow,
    CornersRandom(u64),
    Random(u64),
    Noise(u64),
    Iota,
    Values(Vec<u64>),
    Text(String),
}

impl Content {
    /// Parses the text after the count.
    pub(crate) fn parse(text: &str, element: Element) -> Result<Self, String> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let seed = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("'{text}' is not a seed"));
        match (kind, rest.trim()) {
            ("", _) => Ok(Self::Zeros),
            ("corners", "") => Ok(Self::Corners),
            ("corners", "slow") => Ok(Self::CornersSlow),
            ("corners", rest) => {
                let rest = rest.strip_prefix("random").ok_or_else(|| format!("corners cannot be '{rest}'"))?;
                Ok(Self::CornersRandom(seed(rest)?))
            }
            ("random", rest) => Ok(Self::Random(seed(rest)?)),
            ("noise", rest) => Ok(Self::Noise(seed(rest)?)),
            ("iota", "") => Ok(Self::Iota),
            ("value" | "bits", rest) => {
                let values = rest.split(',').map(|value| match (kind, value.trim()) {
                    ("bits", value) if !value.starts_with("0x") => element.parse(&format!("0x{value}")),
                    (_, value) => element.parse(value),
                });
                Ok(Self::Values(values.collect::<Result<_, _>>()?))
            }
            ("text", rest) => {
                let inner = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                Ok(Self::Text(inner.ok_or("a text needs quotes")?.to_owned()))
            }
            _ => Err(format!("unknown content '{text}'")),
        }
    }

    /// The bytes of a buffer of `count` elements.
    pub(crate) fn bytes(&self, element: Element, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count * element.bytes());
        if let Self::Text(text) = self {
            bytes.extend_from_slice(text.as_bytes());
            bytes.resize(count * element.bytes(), 0);
            return bytes;
        }
        for index in 0..count {
            element.write(self.element(element, index), &mut bytes);
        }
        bytes
    }

    fn element(&self, element: Element, index: usize) -> u64 {
        match self {
            Self::Zeros | Self::Text(_) => 0,
            Self::Corners => element.corner(index),
            Self::CornersSlow => element.corner(index / CORNERS),
            Self::CornersRandom(seed) => element.corner((scramble(*seed, index) >> 33) as usize),
            Self::Random(seed) => random(element, scramble(*seed, index)),
            Self::Noise(seed) => scramble(*seed, index),
            Self::Iota => index as u64,
            Self::Values(values) => values[index % values.len()],
        }
    }
}

/// A number of the type from 64 random bits.
fn random(element: Element, bits: u64) -> u64 {
    match element {
        Element::F32 => {
            // 24 bits after the binary point, so that every value is exact.
            let value = (bits >> 40) as f32 / (1 << 21) as f32 - 4.0;
            u64::from(value.to_bits())
        }
        Element::F64 => ((bits >> 11) as f64 / (1_u64 << 50) as f64 - 4.0).to_bits(),
        _ => bits,
    }
}

/// 64 bits that follow from a seed and a position. The recorded outputs of a GPU are for this content.
fn scramble(seed: u64, index: usize) -> u64 {
    let (a, b) = (0x2545_f491_4f6c_dd1d, 0x9e37_79b9_7f4a_7c15);
    SplitMix64::seed_from_u64(seed.wrapping_mul(a).wrapping_add((index as u64).wrapping_mul(b))).next_u64()
}
