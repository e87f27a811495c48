//! Formats of texels, and their conversion to the results of a fetch.

/// The result of a fetch for elements of 8 and 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// The element.
    Element,
    /// A fraction of the largest element, as a floating-point number.
    Fraction,
}

/// The type of a texel's channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// An integer of 8 bits.
    Unsigned8,
    /// An integer of 16 bits.
    Unsigned16,
    /// An integer of 32 bits.
    Unsigned32,
    /// An integer of 8 bits.
    Signed8,
    /// An integer of 16 bits.
    Signed16,
    /// An integer of 32 bits.
    Signed32,
    /// A floating-point number of 16 bits.
    Half,
    /// A floating-point number of 32 bits.
    Float,
}

/// The format of a texel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The type of each channel.
    pub channel: Channel,
    /// One, two or four.
    pub channels: u32,
}

impl Format {
    /// Returns the size of a texel.
    pub fn bytes(self) -> u64 {
        self.channel_bytes() * u64::from(self.channels)
    }

    pub(crate) fn channel_bytes(self) -> u64 {
        match self.channel {
            Channel::Unsigned8 | Channel::Signed8 => 1,
            Channel::Unsigned16 | Channel::Signed16 | Channel::Half => 2,
            Channel::Unsigned32 | Channel::Signed32 | Channel::Float => 4,
        }
    }

    /// Returns whether a fetch returns floating-point numbers, which can be filtered.
    pub fn returns_float(self, read: ReadMode) -> bool {
        match self.channel {
            Channel::Half | Channel::Float => true,
            Channel::Unsigned32 | Channel::Signed32 => false,
            _ => read == ReadMode::Fraction,
        }
    }

    /// Converts the bits of a channel to the result of a fetch.
    pub(crate) fn decode(self, bits: u32, read: ReadMode) -> u32 {
        match (self.channel, read) {
            (Channel::Unsigned8, ReadMode::Fraction) => (bits as f32 / 255.0).to_bits(),
            (Channel::Unsigned16, ReadMode::Fraction) => (bits as f32 / 65535.0).to_bits(),
            (Channel::Signed8, ReadMode::Fraction) => (f32::from(bits as i8) / 127.0).max(-1.0).to_bits(),
            (Channel::Signed16, ReadMode::Fraction) => (f32::from(bits as i16) / 32767.0).max(-1.0).to_bits(),
            (Channel::Signed8, _) => i32::from(bits as i8).cast_unsigned(),
            (Channel::Signed16, _) => i32::from(bits as i16).cast_unsigned(),
            (Channel::Half, _) => half_to_single(bits as u16),
            _ => bits,
        }
    }

    /// Converts a number to the bits of a channel.
    pub(crate) fn encode(self, bits: u32) -> u32 {
        let signed = bits.cast_signed();
        match self.channel {
            Channel::Unsigned8 => bits.min(0xff),
            Channel::Unsigned16 => bits.min(0xffff),
            Channel::Signed8 => signed.clamp(-128, 127).cast_unsigned() & 0xff,
            Channel::Signed16 => signed.clamp(-32768, 32767).cast_unsigned() & 0xffff,
            _ => bits,
        }
    }
}

/// Converts a number of 16 bits exactly.
fn half_to_single(bits: u16) -> u32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match exponent {
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    sign | magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(channel: Channel, bits: u32, read: ReadMode) -> u32 {
        Format { channel, channels: 1 }.decode(bits, read)
    }

    #[test]
    fn integers_are_extended_by_their_sign() {
        assert_eq!(decode(Channel::Signed8, 0x80, ReadMode::Element), 0xffff_ff80);
        assert_eq!(decode(Channel::Unsigned8, 0x80, ReadMode::Element), 0x80);
        assert_eq!(decode(Channel::Signed16, 0xfffe, ReadMode::Element), 0xffff_fffe);
        assert_eq!(decode(Channel::Unsigned32, 0x8000_0000, ReadMode::Fraction), 0x8000_0000);
    }

    #[test]
    fn fractions_reach_one_and_minus_one() {
        let fraction = |channel, bits| f32::from_bits(decode(channel, bits, ReadMode::Fraction));
        assert_eq!(fraction(Channel::Unsigned8, 255), 1.0);
        assert_eq!(fraction(Channel::Unsigned16, 65535), 1.0);
        assert_eq!(fraction(Channel::Signed8, 127), 1.0);
        assert_eq!(fraction(Channel::Signed8, 0x80), -1.0);
        assert_eq!(fraction(Channel::Signed16, 0x8001), -1.0);
        assert_eq!(fraction(Channel::Unsigned8, 51), 0.2);
    }

    #[test]
    fn halves_are_converted_exactly() {
        let half = |bits| f32::from_bits(half_to_single(bits));
        assert_eq!(half(0x3c00), 1.0);
        assert_eq!(half(0xc000), -2.0);
        assert_eq!(half(0x0001), 2.0f32.powi(-24));
        assert_eq!(half(0x03ff), 1023.0 * 2.0f32.powi(-24));
        assert_eq!(half(0x7bff), 65504.0);
        assert_eq!(half(0x7c00), f32::INFINITY);
        assert!(half(0x7e00).is_nan());
        assert_eq!(half_to_single(0x8000), 0x8000_0000);
    }
}
