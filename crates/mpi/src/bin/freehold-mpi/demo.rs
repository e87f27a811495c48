//! `mpirun -n 4 freehold demo --mpi`: the solver of `examples/mesh` with ranks as workers. Each rank keeps its rows of
//! both generations in its own memory, and the edges of its neighbours' rows, which it receives after each epoch.

use std::collections::VecDeque;
use std::time::Instant;

use freehold::Stream;
use freehold_broker::Gpu;
use freehold_mesh::plan::{Plan, PlanError, STEPS, TILE};
use freehold_mesh::strip::Strip;
use freehold_mesh::{digest, gpu_solver};
use freehold_mpi::{Edge, Exchange, Rows, World};

use crate::Failure;

/// Message tags: an edge for the previous rank, an edge for the next rank, and rows of the final field.
const UP: i32 = 1;
const DOWN: i32 = 2;
const FIELD: i32 = 3;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Coarse cells along one side of the domain: a multiple of 32
    #[arg(long, value_name = "CELLS", default_value_t = Plan::DEMO.size)]
    size: u32,
    /// Time steps
    #[arg(long, value_name = "COUNT", default_value_t = Plan::DEMO.steps)]
    steps: u32,
    /// Seed of the initial heat and of the paths of the hot discs
    #[arg(long, value_name = "NUMBER", default_value_t = Plan::DEMO.seed)]
    seed: u64,
}

pub(crate) fn run(world: &World, arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let Arguments { size, steps, seed } = *arguments;
    let plan = Plan { size, steps, workers: world.size() as u32, seed };
    plan.check().map_err(|error| {
        Failure::from_call(match error {
            PlanError::Workers { workers, most, .. } => {
                format!("{workers} ranks: expected 1 to {most}, as in mpirun -n {most}")
            }
            error => error.to_string(),
        })
    })?;
    let stream = world.device().new_stream()?;
    let began = Instant::now();
    let own = solve(world, &stream, &plan)?;
    let Some(field) = gather_field(world, &stream, &plan, own)? else { return Ok(()) };
    let took = began.elapsed();
    let alone = Gpu::on(world.device()).and_then(|gpu| gpu_solver::solve(&gpu, &plan, |_| {}));
    let alone = alone.map_err(|error| Failure { message: error.to_string(), status: 1 })?;
    let (field, same, device) = (digest(&field), digest(&alone) == digest(&field), world.device().name()?);
    if json {
        let (ranks, took_ns, path) = (world.size(), took.as_nanos() as u64, world.path_choice().transfers.name());
        let report = serde_json::json!({ "device": device, "ranks": ranks, "size": size, "steps": steps, "seed": seed,
            "messages": path, "took_ns": took_ns, "field": field, "same": same });
        println!("{report}");
    } else {
        println!("{device}\n{size} x {size} cells, {steps} steps, seed {seed}: {:.1} s", took.as_secs_f64());
        println!("{} ranks, messages {}\nfield     {field}", world.size(), world.path_choice().transfers.name());
        println!("          {} to that of one process, bit by bit", if same { "identical" } else { "NOT identical" });
    }
    let said = "the field differs from that of one process".to_owned();
    if same { Ok(()) } else { Err(Failure { message: said, status: 1 }) }
}

/// Computes this rank's rows after all steps.
fn solve(world: &World, stream: &Stream, plan: &Plan) -> Result<Vec<f32>, Failure> {
    let (rank, size) = (world.rank() as u32, plan.size as usize);
    let rows = plan.strip(rank);
    let reads = plan.reads(&rows);
    let cells = plan.cells_of(&reads).len();
    let own = plan.cells_of(&(rows.start * TILE - reads.start..rows.end * TILE - reads.start));
    let mut strip = Strip::new(world.device(), stream, plan, rows)?;
    let [mut from, mut to] = [stream.alloc::<f32>(cells)?, stream.alloc::<f32>(cells)?];
    strip.begin(stream, &mut from.view_mut(..)?, reads.clone())?;
    // Flags are read in another stream, which waits only for the kernel that writes them, not for later epochs.
    let reader = world.device().new_stream()?;
    let mut flags = stream.alloc::<u32>(strip.count() as usize)?;
    let mut exchanges: VecDeque<Exchange> = VecDeque::new();
    for epoch in 0..plan.epochs() {
        if plan.look_at(epoch).is_some() {
            strip.look(stream, epoch, (&from.view(..)?, reads.start), &mut flags.view_mut(..)?)?;
        }
        if epoch == 0 || plan.look_of(epoch) != plan.look_of(epoch - 1) {
            strip.refine(stream, &reader.download(&flags)?)?;
        }
        strip.epoch(stream, epoch, (&from.view(..)?, reads.start), &mut to.view_mut(own.clone())?)?;
        // Two epochs are pending: earlier exchanges into this memory are complete.
        if exchanges.len() == 2 {
            let oldest = exchanges.pop_front().expect("there are two");
            oldest.wait(stream, &mut to.view_mut(..)?)?;
        }
        exchanges.push_back(world.iexchange(stream, &mut to.view_mut(..)?, &edges(world, &own, size))?);
        std::mem::swap(&mut from, &mut to);
    }
    let field = stream.download(&from.view(own)?)?;
    while let Some(exchange) = exchanges.pop_front() {
        let field = if exchanges.is_empty() { &mut from } else { &mut to };
        exchange.wait(stream, &mut field.view_mut(..)?)?;
    }
    Ok(field)
}

/// Returns the rows that a rank sends to its neighbours, and those it receives.
fn edges(world: &World, own: &std::ops::Range<usize>, size: usize) -> Vec<Edge> {
    let row = STEPS as usize * size;
    let part = |start: usize| Rows { start, row_len: row, rows: 1, pitch: row };
    let mut edges = Vec::new();
    if world.rank() > 0 {
        let (give, take) = (part(own.start), part(own.start - row));
        edges.push(Edge { rank: world.rank() - 1, send: give, send_tag: UP, recv: take, recv_tag: DOWN });
    }
    if world.rank() + 1 < world.size() {
        let (give, take) = (part(own.end - row), part(own.end));
        edges.push(Edge { rank: world.rank() + 1, send: give, send_tag: DOWN, recv: take, recv_tag: UP });
    }
    edges
}

/// Gathers all rows at rank 0.
fn gather_field(world: &World, stream: &Stream, plan: &Plan, own: Vec<f32>) -> Result<Option<Vec<f32>>, Failure> {
    if world.rank() > 0 {
        world.send(stream, &stream.upload(&own)?, 0, FIELD)?;
        return Ok(None);
    }
    let mut field = own;
    for rank in 1..plan.workers {
        let rows = plan.strip(rank);
        let cells = ((rows.end - rows.start) * TILE * plan.size) as usize;
        let mut block = stream.alloc::<f32>(cells)?;
        world.recv(stream, &mut block, rank as i32, FIELD)?;
        field.extend(stream.download(&block)?);
    }
    Ok(Some(field))
}
