//! Consistency of the documentation: links have targets, docs/README.md lists every page, and quoted GPU answers match
//! the record. The programs on the pages are tests of the crates that they use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn events(text: &str) -> impl Iterator<Item = Event<'_>> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Returns the pages of a folder, relative to the root.
fn pages_in(folder: &str) -> impl Iterator<Item = PathBuf> {
    let listed = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = listed.map(|entry| entry.expect("cannot read the folder").path());
    names.filter(|path| path.extension().is_some_and(|extension| extension == "md"))
}

/// Returns all pages of the repository.
fn pages() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("cannot read crates");
    let crates = crates.map(|entry| format!("crates/{}", entry.expect("cannot read the folder").file_name().display()));
    let folders = crates.chain(["", "docs", "bench/peers"].map(str::to_owned));
    folders.flat_map(|folder| pages_in(&folder).collect::<Vec<_>>()).collect()
}

/// Returns the targets of a page's links and images, as written.
fn links(text: &str) -> Vec<String> {
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
        _ => None,
    };
    events(text).filter_map(target).collect()
}

/// Returns the anchors of a page's headings: in lower case, without punctuation, with hyphens for spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut heading) = (BTreeSet::new(), None::<String>);
    for event in events(text) {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::Text(words) | Event::Code(words), Some(heading)) => heading.push_str(&words),
            (Event::End(TagEnd::Heading(_)), _) => found.extend(heading.take().map(|words| anchor(&words))),
            _ => {}
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
}

/// Returns the problem of a link, if it has one. External links are not checked.
fn wrong(page: &Path, link: &str) -> Option<&'static str> {
    if link.contains("://") {
        return None;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.parent().expect("a page is in a folder");
    let target = if path.is_empty() { page.to_owned() } else { folder.join(path) };
    if !target.exists() {
        return Some("the file does not exist");
    }
    (!heading.is_empty() && !anchors(&text(&target)).contains(heading)).then_some("the heading does not exist")
}

#[test]
fn the_architecture_is_read_in_a_few_minutes() {
    let words = text(&root().join("ARCHITECTURE.md")).split_whitespace().count();
    assert!(words <= 1500, "ARCHITECTURE.md has {words} words: move detail to the headers of the crates");
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    assert!(pages.len() > 20, "too few pages were found: {pages:?}");
    let mut found = Vec::new();
    for page in &pages {
        for link in links(&text(page)) {
            found.extend(wrong(page, &link).map(|why| format!("{}: {link}: {why}", page.display())));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let page = root().join("docs/README.md");
    assert_eq!(wrong(&page, "no-such-page.md"), Some("the file does not exist"));
    assert_eq!(wrong(&page, "rust.md#no-such-heading"), Some("the heading does not exist"));
    assert_eq!(wrong(&page, "rust.md#the-pool"), None);
    assert_eq!(anchor("What `cuMemFree` does, and when"), "what-cumemfree-does-and-when");
}

/// Returns the pages that the doctests of a crate include.
fn doctest_pages(folder: &Path) -> Vec<PathBuf> {
    let source = folder.join("src/lib.rs");
    let library = if source.exists() { text(&source) } else { String::new() };
    let named = library.split("#[doc = include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    named.map(|page| folder.join("src").join(page).canonicalize().expect("an included page exists")).collect()
}

#[test]
fn every_page_with_a_rust_program_is_a_doctest() {
    let crates = fs::read_dir(root().join("crates")).expect("cannot read crates");
    let tested: BTreeSet<PathBuf> =
        crates.flat_map(|entry| doctest_pages(&entry.expect("cannot read the folder").path())).collect();
    for page in pages().iter().filter(|page| text(page).contains("```rust")) {
        let page = page.canonicalize().expect("the page exists");
        assert!(tested.contains(&page), "{} is in no crate's doctests", page.display());
    }
}

/// Returns the Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = listed.map(|entry| entry.expect("cannot read the folder").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => Vec::from_iter(path.extension().is_some_and(|extension| extension == "rs").then_some(path)),
        })
        .collect()
}

#[test]
fn a_crate_without_doc_tests_has_no_programs_in_its_comments() {
    let crates = fs::read_dir(root().join("crates")).expect("cannot read crates");
    let crates = crates.map(|entry| entry.expect("cannot read the folder").path());
    let is_without = |folder: &PathBuf| text(&folder.join("Cargo.toml")).lines().any(|line| line == "doctest = false");
    let without: Vec<PathBuf> = crates.chain([root().join("examples/mesh")]).filter(is_without).collect();
    assert!(without.len() > 8, "{without:?}");
    let is_program = |line: &str| line.trim_start().strip_prefix("//").is_some_and(|line| line.contains("```"));
    for file in without.iter().flat_map(|folder| sources(&folder.join("src"))) {
        assert!(!text(&file).lines().any(is_program), "{} has a doc test, which does not run", file.display());
    }
}

#[test]
fn the_contents_name_every_page_of_the_book() {
    let contents = links(&text(&root().join("docs/README.md")));
    for page in pages_in("docs") {
        let name = page.file_name().expect("a page has a name").to_string_lossy().into_owned();
        assert!(name == "README.md" || contents.contains(&name), "docs/README.md does not link to {name}");
    }
}

/// Returns the rows of a page's tables, as text.
fn rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut is_cell) = (Vec::<Vec<String>>::new(), false);
    for event in events(text) {
        match event {
            Event::Start(Tag::TableRow | Tag::TableHead) => rows.push(Vec::new()),
            Event::Start(Tag::TableCell) => {
                rows.last_mut().expect("a cell is in a row").push(String::new());
                is_cell = true;
            }
            Event::End(TagEnd::TableCell) => is_cell = false,
            Event::Text(words) | Event::Code(words) if is_cell => {
                rows.last_mut().and_then(|row| row.last_mut()).expect("text is in a cell").push_str(&words);
            }
            _ => {}
        }
    }
    rows
}

#[test]
fn gpu_answers_quoted_in_docs_are_recorded() {
    let record: serde_json::Value =
        serde_json::from_str(&text(&root().join("crates/lab/reference/h200.json"))).expect("the record is JSON");
    let is_id = |cell: &str| {
        cell.split('.').count() == 3 && cell.chars().all(|letter| letter == '.' || letter.is_ascii_digit())
    };
    let mut said = 0;
    for page in pages_in("docs") {
        for row in rows(&text(&page)).into_iter().filter(|row| row.first().is_some_and(|cell| is_id(cell))) {
            let recorded = record["answers"][&row[0]].as_str();
            assert_eq!(recorded, row.last().map(String::as_str), "{}: {}", page.display(), row[0]);
            said += 1;
        }
    }
    assert!(said >= 40, "too few answers were found in the tables: {said}");
}

#[test]
fn cargo_run_starts_the_command() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = std::process::Command::new(cargo);
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = metadata.output().expect("cargo can be run");
    let workspace: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = workspace["packages"].as_array().expect("the workspace has packages");
    let started: Vec<_> = packages.iter().filter_map(|package| package["default_run"].as_str()).collect();
    assert_eq!(started, ["freehold"]);
}
