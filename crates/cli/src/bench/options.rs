//! The options that the benchmarks share.

#[derive(clap::Args)]
pub(super) struct MeasureOptions {
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    pub(super) json: bool,
    /// Device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software device]
    #[arg(long)]
    pub(super) device: Option<String>,
    /// Measure only a few times: a check that it works, not a measurement
    #[arg(long)]
    pub(super) quick: bool,
}
