//! `freehold devices`: lists the devices of this machine, and why a kind is missing.

use std::process::ExitCode;

use freehold::open::list::{self, Listed, Missing};
use freehold::open::{self, OpenError};
use serde::Serialize;

use crate::output::size;
use crate::output::text::print;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A line of `--json`: a device, or a missing kind.
#[derive(Serialize)]
struct DeviceLine<'a> {
    device: &'a str,
    #[serde(flatten)]
    said: DeviceStatus<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum DeviceStatus<'a> {
    Found { name: &'a str, driver: &'a str, memory_bytes: u64, abilities: &'a [&'static str], default: bool },
    Missing { missing: &'a str },
}

/// Exits with status 0 even without a GPU. The software device is always listed, unless its settings are invalid. If
/// `FREEHOLD_DEVICE` names none of the devices, the error comes after the list, with status 2.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let (listed, missing) = list::devices();
    let chosen = default_selector();
    let default = chosen.as_deref().unwrap_or_default();
    let text = if arguments.json { json(&listed, &missing, default) } else { table(&listed, &missing, default) };
    if let Err(error) = print(text) {
        eprintln!("error: failed to print the devices: {error}");
        return ExitCode::FAILURE;
    }
    match chosen {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns the selector of the device that commands use without `--device`.
fn default_selector() -> Result<String, OpenError> {
    if let Some(opened) = open::opencl::open(None)? {
        return Ok(opened.selector());
    }
    // SAFETY: nothing is called through the table.
    Ok(unsafe { open::open(None) }?.selector())
}

fn json(listed: &[Listed], missing: &[Missing], default: &str) -> String {
    let found = listed.iter().map(|Listed { device, name, driver, memory_bytes, abilities }| DeviceLine {
        device,
        said: DeviceStatus::Found { name, driver, memory_bytes: *memory_bytes, abilities, default: device == default },
    });
    let missing = missing
        .iter()
        .map(|Missing { kind, why }| DeviceLine { device: kind, said: DeviceStatus::Missing { missing: why } });
    let line = |line| serde_json::to_string(&line).expect("a line holds only strings and numbers") + "\n";
    found.chain(missing).map(line).collect()
}

fn table(listed: &[Listed], missing: &[Missing], default: &str) -> String {
    let names = listed.iter().map(|listed| listed.device.as_str()).chain(missing.iter().map(|missing| missing.kind));
    let width = names.map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for Listed { device, name, driver, memory_bytes, abilities } in listed {
        let (memory, abilities) = (size::format(*memory_bytes), abilities.join(", "));
        let is_default = if device == default { " (default)" } else { "" };
        text.push_str(&format!(
            "{device:width$}  {name}, {memory}{is_default}\n{:width$}  {driver}; {abilities}\n",
            ""
        ));
    }
    for Missing { kind, why } in missing {
        text.push_str(&format!("{kind:width$}  none: {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> (Vec<Listed>, Vec<Missing>) {
        let device = Listed {
            device: "opencl:0".to_owned(),
            name: "pthread".to_owned(),
            driver: "PoCL, OpenCL 3.0, 3.1".to_owned(),
            memory_bytes: 3 << 29,
            abilities: vec!["OpenCL C", "fine SVM"],
        };
        (vec![device], vec![Missing { kind: "cuda", why: "libcuda.so.1 is not on this machine".to_owned() }])
    }

    #[test]
    fn a_device_prints_two_lines_and_a_missing_kind_its_reason() {
        let (listed, missing) = one_of_each();
        assert_eq!(
            table(&listed, &missing, "soft"),
            "opencl:0  pthread, 1.5 GiB\n          PoCL, OpenCL 3.0, 3.1; OpenCL C, fine SVM\n\
             cuda      none: libcuda.so.1 is not on this machine\n"
        );
        assert!(table(&listed, &missing, "opencl:0").starts_with("opencl:0  pthread, 1.5 GiB (default)\n"));
    }

    #[test]
    fn a_json_line_is_a_device_or_a_missing_kind() {
        let (listed, missing) = one_of_each();
        assert_eq!(
            json(&listed, &missing, "opencl:0"),
            "{\"device\":\"opencl:0\",\"name\":\"pthread\",\"driver\":\"PoCL, OpenCL 3.0, 3.1\",\
             \"memory_bytes\":1610612736,\"abilities\":[\"OpenCL C\",\"fine SVM\"],\"default\":true}\n\
             {\"device\":\"cuda\",\"missing\":\"libcuda.so.1 is not on this machine\"}\n"
        );
    }
}
