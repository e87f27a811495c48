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

/// Returns the direction of a point on a face, with coordinates from -1 to 1.
fn direction(face: u32, across: f32, down: f32) -> [f32; 3] {
    match face {
        0 => [1.0, -down, -across],
        1 => [-1.0, -down, across],
        2 => [across, 1.0, down],
        3 => [across, -1.0, -down],
        4 => [across, -down, 1.0],
        _ => [-across, -down, -1.0],
    }
}

/// Returns the texels that indices of a face refer to, at most one beyond its edges: the face and the indices there.
/// Beyond a corner, the three texels around it stand in for the missing one.
pub(super) fn across(face: u32, [x, y]: [i64; 2], size: u32) -> Vec<(u32, [u32; 2])> {
    let last = i64::from(size) - 1;
    let is_outside = |index: i64| index < 0 || index > last;
    let inside = |x: i64, y: i64| [x.clamp(0, last) as u32, y.clamp(0, last) as u32];
    match (is_outside(x), is_outside(y)) {
        (false, false) => vec![(face, inside(x, y))],
        (true, true) => {
            let [beside, below] = [[x, y.clamp(0, last)], [x.clamp(0, last), y]].map(|at| beyond(face, at, size));
            vec![(face, inside(x, y)), beside, below]
        }
        _ => vec![beyond(face, [x, y], size)],
    }
}

/// Returns the texel beside an edge of a face.
fn beyond(face: u32, [x, y]: [i64; 2], size: u32) -> (u32, [u32; 2]) {
    let last = i64::from(size) - 1;
    // A point just beyond the edge, at the height of the texel's middle.
    let coordinate = |index: i64| match index {
        _ if index < 0 => -1.0 - 0.5 / size as f32,
        _ if index > last => 1.0 + 0.5 / size as f32,
        _ => (index as f32 + 0.5) * 2.0 / size as f32 - 1.0,
    };
    let found = project(direction(face, coordinate(x), coordinate(y)));
    let along = if x < 0 || x > last { y } else { x };
    let is_edge = |place: f32| place < 0.75 / size as f32 || place > 1.0 - 0.75 / size as f32;
    let at = [found.at[0], found.at[1]];
    let edge = if is_edge(at[0]) && !(is_edge(at[1]) && (at[1] - 0.5).abs() > (at[0] - 0.5).abs()) { 0 } else { 1 };
    let mut indices = [0; 2];
    indices[edge] = if at[edge] < 0.5 { 0 } else { last };
    indices[1 - edge] = {
        let (place, mirrored) = (at[1 - edge], last - along);
        let distance = |index: i64| (place - (index as f32 + 0.5) / size as f32).abs();
        if distance(along) <= distance(mirrored) { along } else { mirrored }
    };
    (found.face, indices.map(|index| index as u32))
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
    fn beyond_an_edge_lies_the_next_face() {
        // To the right of +x is -z, above it +y; to the left of -z is +x.
        assert_eq!(across(0, [4, 1], 4), [(5, [0, 1])]);
        assert_eq!(across(0, [1, -1], 4), [(2, [3, 2])]);
        assert_eq!(across(5, [-1, 3], 4), [(0, [3, 3])]);
        assert_eq!(across(2, [0, 4], 4), [(4, [0, 0])]);
        assert_eq!(across(0, [2, 3], 4), [(0, [2, 3])]);
    }

    #[test]
    fn beyond_a_corner_lie_three_texels() {
        assert_eq!(across(4, [-1, -1], 4), [(4, [0, 0]), (1, [3, 0]), (2, [0, 3])]);
    }

    #[test]
    fn the_middle_of_a_face_is_at_one_half() {
        assert_eq!(project([0.0, -7.0, 0.0]), OnFace { face: 3, at: [0.5, 0.5] });
        assert_eq!(project([2.0, 1.0, -1.0]), OnFace { face: 0, at: [0.75, 0.25] });
    }
}
