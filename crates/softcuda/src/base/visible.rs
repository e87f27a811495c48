//! `CUDA_VISIBLE_DEVICES`: which devices of the machine a process sees, and in which order.

/// Returns the devices that a list names, by their index on the machine, in its order. The list has either indices or
/// UUIDs, as its first entry says. It ends before the first entry that names no device; a device that occurs twice makes
/// it empty.
///
/// A UUID may be abbreviated to the first characters after `GPU-` that no other device has.
pub(crate) fn parse(list: &str, uuids: &[String]) -> Vec<usize> {
    let has_uuids = list.trim_start().starts_with("GPU-");
    let mut found = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let index = if has_uuids { by_uuid(entry, uuids) } else { by_number(entry, uuids.len()) };
        match index {
            None => break,
            Some(index) if found.contains(&index) => return Vec::new(),
            Some(index) => found.push(index),
        }
    }
    found
}

/// Reads the number that an entry starts with, as `strtoul` does.
fn by_number(entry: &str, count: usize) -> Option<usize> {
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok().filter(|&index| index < count)
}

/// Finds the only device whose UUID starts with an entry.
fn by_uuid(entry: &str, uuids: &[String]) -> Option<usize> {
    let is_uuid = entry.starts_with("GPU-");
    let mut named = uuids.iter().enumerate().filter(|(_, uuid)| is_uuid && uuid.starts_with(entry));
    let (index, _) = named.next()?;
    named.next().is_none().then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible(list: &str) -> Vec<usize> {
        let uuids = ["GPU-aa00", "GPU-ab00", "GPU-b000"].map(str::to_owned);
        parse(list, &uuids)
    }

    #[test]
    fn indices_give_the_devices_and_their_order() {
        assert_eq!(visible("2,0"), [2, 0]);
        assert_eq!(visible(" 1 , 2"), [1, 2]);
        // The number counts, as with NVIDIA's driver.
        assert_eq!(visible("1gpu,+2"), [1, 2]);
    }

    #[test]
    fn the_list_ends_before_the_first_entry_that_names_no_device() {
        assert_eq!(visible("1,3,0"), [1]);
        assert_eq!(visible("0,-1,2"), [0]);
        assert_eq!(visible("0,,2"), [0]);
        assert_eq!(visible("0,GPU-b0"), [0]);
        assert_eq!(visible("GPU-b0,0"), [2]);
        for nothing in ["", "-1", "3", "none", "99999999999999999999", "MIG-1"] {
            assert_eq!(visible(nothing), [0; 0], "{nothing}");
        }
    }

    #[test]
    fn a_uuid_may_be_abbreviated_while_it_names_one_device() {
        assert_eq!(visible("GPU-b000,GPU-aa"), [2, 0]);
        assert_eq!(visible("GPU-b,GPU-a,GPU-ab"), [2]);
        assert_eq!(visible("GPU-"), [0; 0]);
        assert_eq!(visible("GPU-b0001"), [0; 0]);
    }

    #[test]
    fn a_device_that_occurs_twice_hides_all() {
        assert_eq!(visible("1,1"), [0; 0]);
        assert_eq!(visible("0,1,0"), [0; 0]);
        assert_eq!(visible("GPU-b,GPU-b0"), [0; 0]);
    }
}
