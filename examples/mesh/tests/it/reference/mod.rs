//! The solver in plain Rust, structured differently: it refines the whole domain and uses what it needs, while the
//! kernels work tile by tile.

use freehold_mesh::plan::{Frame, Plan, TILE};

struct Field {
    size: i32,
    cells: Vec<f32>,
}

impl Field {
    fn new(size: i32, cell: impl Fn(i32, i32) -> f32) -> Self {
        let cells = (0..size * size).map(|at| cell(at % size, at / size)).collect();
        Self { size, cells }
    }

    /// Beyond the edge is the mirror image.
    fn at(&self, x: i32, y: i32) -> f32 {
        let inside = |at: i32| if at < 0 { -1 - at } else { at.min(2 * self.size - 1 - at) };
        self.cells[(inside(y) * self.size + inside(x)) as usize]
    }

    fn stepped(&self, rate: f32) -> Self {
        Self::new(self.size, |x, y| {
            let here = self.at(x, y);
            let around = (self.at(x - 1, y) + self.at(x + 1, y)) + (self.at(x, y - 1) + self.at(x, y + 1));
            rate.mul_add((-4.0_f32).mul_add(here, around), here)
        })
    }

    fn after(self, steps: i32, rate: f32) -> Self {
        (0..steps).fold(self, |field, _| field.stepped(rate))
    }

    fn with_discs(&self, frame: &Frame) -> Self {
        let is_hot = |x: i32, y: i32, disc: usize| {
            (x - frame.x[disc]).pow(2) + (y - frame.y[disc]).pow(2) <= frame.radius[disc].pow(2)
        };
        Self::new(self.size, |x, y| if (0..4).any(|disc| is_hot(x, y, disc)) { 1.0 } else { self.at(x, y) })
    }

    fn refined(&self) -> Self {
        let slope = |before: f32, here: f32, after: f32| match (here - before, after - here) {
            (first, second) if first > 0.0 && second > 0.0 => first.min(second),
            (first, second) if first < 0.0 && second < 0.0 => first.max(second),
            _ => 0.0,
        };
        Self::new(2 * self.size, |fine_x, fine_y| {
            let (x, y) = (fine_x / 2, fine_y / 2);
            let here = self.at(x, y);
            let across = slope(self.at(x - 1, y), here, self.at(x + 1, y));
            let down = slope(self.at(x, y - 1), here, self.at(x, y + 1));
            let side = |at: i32| if at % 2 == 0 { -0.25_f32 } else { 0.25 };
            side(fine_x).mul_add(across, side(fine_y).mul_add(down, here))
        })
    }

    fn coarsened(&self) -> Self {
        Self::new(self.size / 2, |x, y| {
            let upper = self.at(2 * x, 2 * y) + self.at(2 * x + 1, 2 * y);
            0.25 * (upper + (self.at(2 * x, 2 * y + 1) + self.at(2 * x + 1, 2 * y + 1)))
        })
    }

    fn is_steep(&self, tile: u32) -> bool {
        let tiles = self.size / TILE as i32;
        let (left, top) = (tile as i32 % tiles * TILE as i32, tile as i32 / tiles * TILE as i32);
        let cells = (top - 4..top + 36).flat_map(|y| (left - 4..left + 36).map(move |x| (x, y)));
        cells.into_iter().any(|(x, y)| {
            let here = self.at(x, y);
            (self.at(x + 1, y) - here).abs() > 0.02 || (self.at(x, y + 1) - here).abs() > 0.02
        })
    }
}

/// The field after all steps, and how many tiles were refined in each epoch.
pub(crate) fn solve(plan: &Plan) -> (Vec<f32>, Vec<usize>) {
    let mixed = |bits: u32| {
        let bits = (bits ^ (bits >> 16)).wrapping_mul(0x7feb_352d);
        let bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
        bits ^ (bits >> 16)
    };
    let size = plan.size as i32;
    let mut field = Field::new(size, |x, y| {
        let square = (y * 8 / size * 8 + x * 8 / size) as u32;
        let bits = mixed((plan.seed as u32).wrapping_mul(64).wrapping_add(square));
        if bits.is_multiple_of(4) { (bits >> 24) as f32 * (1.0 / 512.0) } else { 0.0 }
    });
    let (mut looks, mut counts) = (Vec::new(), Vec::new());
    for epoch in 0..plan.epochs() {
        let frame = plan.frame(epoch, 0, 0);
        let began = field.with_discs(&frame);
        if plan.look_at(epoch).is_some() {
            looks.push((0..plan.tiles()).map(|tile| began.is_steep(tile)).collect::<Vec<_>>());
        }
        let steep = &looks[plan.look_of(epoch) as usize];
        counts.push(steep.iter().filter(|&&steep| steep).count());
        let fine = began.refined().after(frame.steps, 0.2).coarsened();
        let coarse = began.after(frame.steps, 0.05);
        field = Field::new(size, |x, y| {
            let tile = (y as u32 / TILE * plan.tile_rows() + x as u32 / TILE) as usize;
            if steep[tile] { fine.at(x, y) } else { coarse.at(x, y) }
        });
    }
    (field.cells, counts)
}
