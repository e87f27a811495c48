//! Cubemaps: from a direction to a face and the coordinates on it.

/// A face, and coordinates on it from zero to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OnFace {
    pub(super) face: u32,
    pub(super) at: [f32; 2],
}

/// Returns the face that a direction points to. Faces are +x, -x, +y, -y, +z, -z.
pub(super) fn project([x, y, z]: [f32; 3]) -> OnFace {
    let size = [x.abs(), y.abs(), z.abs()];
    let (face, across, down, major) = if size[0] > size[1] && size[0] > size[2] {
        if x >= 0.0 { (0, -z, -y, x) } else { (1, z, -y, x) }
    } else if size[1] > size[2] {
        if y >= 0.0 { (2, x, z, y) } else { (3, x, -z, y) }
    } else if z >= 0.0 {
        (4, x, -y, z)
    } else {
        (5, -x, -y, z)
    };
    let scale = 1.0 / major.abs();
    let coordinate = |value: f32| (value * scale + 1.0) * 0.5;
    OnFace { face, at: [coordinate(across), coordinate(down)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_part_of_a_direction_selects_the_face() {
        let faces =
            [[1.0, 0.5, 0.0], [-1.0, 0.5, 0.0], [0.5, 2.0, 0.0], [0.5, -2.0, 0.0], [0.0, 0.0, 3.0], [0.0, 1.0, -3.0]];
        assert_eq!(faces.map(|direction| project(direction).face), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn the_middle_of_a_face_is_at_one_half() {
        assert_eq!(project([0.0, -7.0, 0.0]), OnFace { face: 3, at: [0.5, 0.5] });
        assert_eq!(project([2.0, 1.0, -1.0]), OnFace { face: 0, at: [0.75, 0.25] });
    }
}
