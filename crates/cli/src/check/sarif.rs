//! The report in SARIF 2.1.0, the format of static analysis tools, for services that show findings beside the code. What is
//! suppressed is left out: most of these services do not know suppressions.

use std::path::{Path, PathBuf};

use freehold_check::{Access, Finding, Frame, Kind, Location};
use serde_json::{Value, json};

use super::fold;
use super::kinds::{self, Sentences};
use super::program::Exit;
use super::report::Report;
use super::{describe, source, text};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The name of the fingerprint, with the version of its calculation.
const FINGERPRINT: &str = "places/v1";

/// The name of the folder that relative paths start from.
const ROOT: &str = "ROOT";

/// Returns the document. Files below `folder` get relative paths.
pub(super) fn sarif(report: &Report, folder: &Path) -> String {
    let paths = Paths { folder: folder.to_owned() };
    let results: Vec<Value> = report.findings.iter().map(|finding| result(finding, &paths)).collect();
    let mut document = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "freehold check",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": Kind::ALL.iter().copied().map(rule).collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": { ROOT: { "uri": uri(folder) + "/" } },
            "invocations": [invocation(report)],
            "results": results,
        }],
    });
    if let Some(search) = &report.search {
        document["runs"][0]["properties"] = json!({ "search": search, "searchResult": search.sentence() });
    }
    let mut text = serde_json::to_string_pretty(&document).expect("a document holds numbers and strings");
    text.push('\n');
    text
}

fn rule(kind: Kind) -> Value {
    let Sentences { short, effect, help } = kinds::sentences(kind);
    json!({
        "id": kind.name(),
        "shortDescription": { "text": short },
        "fullDescription": { "text": format!("{short} {effect}") },
        "help": { "text": help },
        "defaultConfiguration": { "level": level(kind) },
    })
}

fn level(kind: Kind) -> &'static str {
    if kind == Kind::Leak { "warning" } else { "error" }
}

fn invocation(report: &Report) -> Value {
    let mut invocation = json!({
        "commandLine": report.program.join(" "),
        "arguments": report.program.iter().skip(1).collect::<Vec<_>>(),
        "executionSuccessful": text::ending(report.outcome).is_none(),
    });
    match report.outcome.exit {
        Exit::Status(status) => invocation["exitCode"] = status.into(),
        Exit::Signal(signal) => invocation["exitSignalNumber"] = signal.into(),
    }
    invocation
}

fn result(finding: &Finding, paths: &Paths) -> Value {
    let index = Kind::ALL.iter().position(|kind| *kind == finding.kind).expect("all kinds are listed");
    let message = match &finding.advice {
        Some(advice) => format!("{}. {advice}", finding.message.trim_end_matches('.')),
        None => finding.message.clone(),
    };
    let memory = finding.memory.as_ref();
    let allocated = memory.and_then(|memory| memory.allocated.as_ref());
    let access = finding.access.as_ref();
    // Of a leak, the place is that of the allocation.
    let main = access.map(|access| &access.location).or(allocated);
    let mut result = json!({
        "ruleId": finding.kind.name(),
        "ruleIndex": index,
        "level": level(finding.kind),
        "message": { "text": message },
        "locations": main.map(|main| paths.location(main)).into_iter().collect::<Vec<_>>(),
        "occurrenceCount": finding.count,
        "partialFingerprints": { FINGERPRINT: fingerprint(finding) },
        "properties": { "process": finding.process },
    });
    let related = related(finding);
    let numbered = related.iter().zip(1_u32..).map(|((message, location), id)| {
        let mut place = paths.location(location);
        place["id"] = id.into();
        place["message"] = json!({ "text": message });
        place
    });
    result["relatedLocations"] = numbered.collect();
    let own = access.map(|access| (heading(access), &access.location));
    let stacks = own.iter().chain(&related).filter(|(_, location)| !location.stack.is_empty());
    result["stacks"] = stacks.map(|(message, location)| paths.stack(message, location)).collect();
    result
}

/// Returns the places beside that of the access that shows the error, each with what happened there.
fn related(finding: &Finding) -> Vec<(String, &Location)> {
    let other = finding.other.iter().map(|access| (heading(access), &access.location));
    let memory = finding.memory.iter().flat_map(|memory| {
        let block = describe::memory(memory);
        let ends = [("allocated", &memory.allocated), ("freed", &memory.freed)];
        let known = ends.into_iter().filter_map(|(verb, location)| Some((verb, location.as_ref()?)));
        known.map(move |(verb, location)| (format!("{verb} by {}: {block}", location.function), location))
    });
    other.chain(memory).collect()
}

fn heading(access: &Access) -> String {
    format!("{} {}", access.location.function, access.action)
}

struct Paths {
    /// Files below it get relative paths.
    folder: PathBuf,
}

impl Paths {
    /// Returns a place: the line of a kernel, else the innermost line of the program.
    fn location(&self, location: &Location) -> Value {
        self.place(describe::source(location), Some(&location.function))
    }

    fn stack(&self, message: &str, location: &Location) -> Value {
        let frames: Vec<Value> = location.stack.iter().map(|frame| self.frame(frame)).collect();
        json!({ "message": { "text": message }, "frames": frames })
    }

    fn frame(&self, frame: &Frame) -> Value {
        let mut shown = json!({ "location": self.place(frame.source.as_deref(), frame.function.as_deref()) });
        if let Some(object) = &frame.object {
            shown["module"] = object.as_str().into();
        }
        shown
    }

    fn place(&self, source: Option<&str>, function: Option<&str>) -> Value {
        let mut place = json!({});
        if let Some(source) = source {
            let (file, line) = source::split(source);
            place["physicalLocation"] = json!({ "artifactLocation": self.artifact(Path::new(file)) });
            if let Some(line) = line {
                place["physicalLocation"]["region"] = json!({ "startLine": line });
            }
        }
        if let Some(function) = function {
            place["logicalLocations"] = json!([{ "fullyQualifiedName": function, "kind": "function" }]);
        }
        place
    }

    fn artifact(&self, file: &Path) -> Value {
        let relative = if file.is_relative() { Some(file) } else { file.strip_prefix(&self.folder).ok() };
        match relative {
            Some(relative) => json!({ "uri": encoded(&relative.to_string_lossy()), "uriBaseId": ROOT }),
            None => json!({ "uri": uri(file) }),
        }
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", encoded(&path.to_string_lossy()))
}

/// Encodes a path for a URI.
fn encoded(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'+' => text.push(byte.into()),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Returns a number that is the same for findings that are folded, on every machine: FNV-1a.
fn fingerprint(finding: &Finding) -> String {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", fold::key(finding).bytes().fold(0xcbf2_9ce4_8422_2325, add))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{leak, race, report};
    use super::super::search;
    use super::*;

    fn document() -> Value {
        serde_json::from_str(&sarif(&report(), Path::new("/my work"))).unwrap()
    }

    /// Checks that an object has these properties, and no others than those and the optional ones.
    fn assert_properties(object: &Value, required: &[&str], optional: &[&str]) {
        let object = object.as_object().unwrap_or_else(|| panic!("not an object: {object}"));
        for name in required {
            assert!(object.contains_key(*name), "{name} is missing: {object:?}");
        }
        for name in object.keys() {
            assert!(required.contains(&name.as_str()) || optional.contains(&name.as_str()), "{name}: {object:?}");
        }
    }

    fn assert_location(location: &Value) {
        assert_properties(location, &[], &["id", "message", "physicalLocation", "logicalLocations"]);
        if let Some(physical) = location.get("physicalLocation") {
            assert_properties(physical, &["artifactLocation"], &["region"]);
            assert_properties(&physical["artifactLocation"], &["uri"], &["uriBaseId"]);
            if let Some(region) = physical.get("region") {
                assert!(region["startLine"].as_u64().unwrap() >= 1);
            }
        }
    }

    #[test]
    fn the_document_has_what_the_schema_requires_and_nothing_that_it_does_not_know() {
        let document = document();
        assert_properties(&document, &["version", "runs", "$schema"], &[]);
        assert_eq!(document["version"], "2.1.0");
        let run = &document["runs"][0];
        assert_properties(run, &["tool", "results"], &["columnKind", "originalUriBaseIds", "invocations"]);
        assert_properties(&run["tool"], &["driver"], &[]);
        assert_properties(&run["tool"]["driver"], &["name", "rules", "version"], &[]);
        let invocation = &run["invocations"][0];
        let optional = ["commandLine", "arguments", "exitCode", "exitSignalNumber"];
        assert_properties(invocation, &["executionSuccessful"], &optional);
        assert_eq!((&invocation["executionSuccessful"], &invocation["exitSignalNumber"]), (&false.into(), &11.into()));
        for result in run["results"].as_array().unwrap() {
            let known =
                ["locations", "relatedLocations", "stacks", "occurrenceCount", "partialFingerprints", "properties"];
            assert_properties(result, &["message", "ruleId", "ruleIndex", "level"], &known);
            assert_properties(&result["message"], &["text"], &[]);
            let lists = [&result["locations"], &result["relatedLocations"]];
            lists.into_iter().flat_map(|list| list.as_array().unwrap()).for_each(assert_location);
            for stack in result["stacks"].as_array().unwrap() {
                assert_properties(stack, &["frames", "message"], &[]);
                for frame in stack["frames"].as_array().unwrap() {
                    assert_properties(frame, &[], &["location", "module"]);
                    assert_location(&frame["location"]);
                }
            }
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        }
    }

    #[test]
    fn a_search_is_a_property_of_the_run() {
        assert!(document()["runs"][0].get("properties").is_none());
        let mut report = report();
        report.search = Some(search::sample());
        let document: Value = serde_json::from_str(&sarif(&report, Path::new("/my work"))).unwrap();
        let properties = &document["runs"][0]["properties"];
        assert_eq!(properties["search"]["shown"]["schedule"], "seed:18,switches:1");
        assert!(properties["searchResult"].as_str().unwrap().starts_with("shown by FREEHOLD_SOFT_SCHEDULE=seed:18"));
    }

    #[test]
    fn there_is_a_rule_with_help_for_each_kind() {
        let document = document();
        let rules = document["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), Kind::ALL.len());
        for rule in rules {
            assert_properties(
                rule,
                &["id", "shortDescription", "fullDescription", "help", "defaultConfiguration"],
                &[],
            );
            for text in ["shortDescription", "fullDescription", "help"] {
                assert!(!rule[text]["text"].as_str().unwrap().is_empty(), "{rule}");
            }
        }
    }

    #[test]
    fn a_race_has_both_places_and_all_stacks() {
        let document = document();
        let results = document["runs"][0]["results"].as_array().unwrap();
        assert_eq!(results.len(), 2, "what is suppressed is left out");
        let race = &results[0];
        assert_eq!(race["ruleId"], "stream-race");
        assert_eq!(race["occurrenceCount"], 2);
        let text = "scale writes bytes that cuMemcpyDtoHAsync reads. Record an event in stream 1 after the copy, \
                    and let stream 2 wait for it.";
        assert_eq!(race["message"]["text"], text);
        let at = |place: &Value| {
            let physical = &place["physicalLocation"];
            (physical["artifactLocation"]["uri"].clone(), physical["region"]["startLine"].clone())
        };
        assert_eq!(at(&race["locations"][0]), ("saxpy.cu".into(), 31.into()));
        assert_eq!(at(&race["relatedLocations"][0]), ("saxpy.cu".into(), 92.into()));
        assert_eq!(race["relatedLocations"][0]["message"]["text"], "cuMemcpyDtoHAsync reads 1024 bytes");
        assert_eq!(at(&race["relatedLocations"][1]), ("saxpy.cu".into(), 70.into()));
        assert_eq!(race["stacks"].as_array().unwrap().len(), 3);
        assert_eq!(race["stacks"][0]["frames"][1]["module"], "saxpy+0x1234");
        assert_eq!(at(&results[1]["locations"][0]), ("saxpy.cu".into(), 70.into()), "of a leak, the allocation");
    }

    #[test]
    fn a_fingerprint_is_that_of_the_places() {
        let mut elsewhere = race();
        elsewhere.access.as_mut().unwrap().location.thread = None;
        elsewhere.process = 7;
        assert_eq!(fingerprint(&race()), fingerprint(&elsewhere));
        elsewhere.access.as_mut().unwrap().location.source = None;
        assert_ne!(fingerprint(&race()), fingerprint(&elsewhere));
        assert_eq!(fingerprint(&leak()).len(), 16);
    }

    #[test]
    fn paths_below_the_folder_are_relative_and_encoded() {
        let paths = Paths { folder: "/my work".into() };
        assert_eq!(paths.artifact(Path::new("/my work/a b.cu")), json!({ "uri": "a%20b.cu", "uriBaseId": "ROOT" }));
        assert_eq!(paths.artifact(Path::new("/usr/\u{e9}.h")), json!({ "uri": "file:///usr/%C3%A9.h" }));
    }
}
