//! The report as one page that needs no other file: a list of the findings, and for each a drawing and its details. The browser may
//! load nothing and run nothing (Content-Security-Policy).

use std::path::Path;

use freehold_check::Finding;

use super::describe::{self, Place};
use super::kinds::{self, Sentences};
use super::markup::Markup;
use super::report::{Report, Suppressed};
use super::source::{Excerpt, Sources};
use super::{drawing, suppressions, text};
use crate::output::text::count;

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>freehold check</title>
<style>
";

/// The arrow head that the drawings share.
const MARKER: &str = "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>\
<marker id=\"head\" viewBox=\"0 0 10 10\" refX=\"8\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
<path class=\"head\" d=\"M0 0L10 5L0 10z\"/></marker></defs></svg>\n";

/// Returns the page. It quotes source files, whose relative paths start from `folder`.
pub(super) fn html(report: &Report, folder: &Path) -> String {
    let mut sources = Sources::new(folder);
    let mut page = Markup::default();
    page.raw(HEAD).raw(include_str!("page.css")).raw("</style>\n</head>\n<body>\n").raw(MARKER);
    header(&mut page, report);
    page.raw("<main>\n");
    if report.findings.len() > 1 {
        index(&mut page, &report.findings);
    }
    for index in 0..report.findings.len() {
        card(&mut page, &report.findings, index, &mut sources);
    }
    suppressed(&mut page, &report.suppressed);
    page.raw("</main>\n<footer>").text(format_args!("freehold check {}", env!("CARGO_PKG_VERSION")));
    page.raw("</footer>\n</body>\n</html>\n");
    page.into_string()
}

fn header(page: &mut Markup, report: &Report) {
    page.raw("<header>\n");
    match report.findings.len() {
        0 => page.raw("<h1 class=\"none\">No findings</h1>\n"),
        number => page.within("<h1>", count(number as u64, "finding"), "</h1>\n"),
    };
    page.within("<div class=\"command mono\">", report.program.join(" "), "</div>\n<ul class=\"chips\">\n");
    for (kind, number) in describe::per_kind(&report.findings) {
        page.within("<li><a class=\"chip\" href=\"#", kind, "\">");
        page.text(format_args!("{number} {kind}")).raw("</a></li>\n");
    }
    let suppressed = report.suppressed.len();
    let ending = text::ending(report.outcome).unwrap_or_else(|| "the program exited with success".to_owned());
    let notes = [Some(ending), (suppressed > 0).then(|| format!("{suppressed} suppressed"))];
    let unused = report.unused.iter().map(|one| format!("{}: {} never matched", one.place, one.text()));
    let unreadable = (report.unreadable > 0).then(|| format!("{} cannot be read", count(report.unreadable, "line")));
    let leaks = report.are_leaks_unknown.then(|| text::LEAKS_UNKNOWN.to_owned());
    for note in notes.into_iter().flatten().chain(leaks).chain(unused).chain(unreadable) {
        page.within("<li class=\"chip plain\">", note, "</li>\n");
    }
    page.raw("</ul>\n");
    if let Some(search) = &report.search {
        page.within("<p class=\"why\">", search.sentence(), "</p>\n");
        if let Some(command) = search.replay(&report.program) {
            page.within("<div class=\"command mono\">", command, "</div>\n");
        }
    }
    page.raw("</header>\n");
}

fn index(page: &mut Markup, findings: &[Finding]) {
    page.raw("<table class=\"index\">\n");
    for (finding, number) in findings.iter().zip(1_usize..) {
        page.within("<tr><td><span class=\"chip\">", finding.kind.name(), "</span></td><td><a href=\"#finding-");
        page.within("", number, "\">").within("", &finding.message, "</a></td><td>");
        page.within("", describe::occurrences(finding).unwrap_or_default(), "</td></tr>\n");
    }
    page.raw("</table>\n");
}

fn card(page: &mut Markup, findings: &[Finding], index: usize, sources: &mut Sources) {
    let finding = &findings[index];
    let (kind, Sentences { short, effect, .. }) = (finding.kind.name(), kinds::sentences(finding.kind));
    page.within("<article id=\"finding-", index + 1, "\">\n<span class=\"chip\"");
    // The header leads to the first of each kind.
    if findings.iter().position(|first| first.kind == finding.kind) == Some(index) {
        page.within(" id=\"", kind, "\"");
    }
    page.within(">", kind, "</span>");
    if let Some(times) = describe::occurrences(finding) {
        page.within(" <span class=\"chip plain\">", times, "</span>");
    }
    page.within(" <span class=\"chip plain\">process ", finding.process, "</span>\n");
    page.within("<h2>", &finding.message, "</h2>\n");
    page.within("<p class=\"why\">", format_args!("{short} {effect}"), "</p>\n");
    let drawing = drawing::accesses(finding);
    if let Some(drawing) = &drawing {
        page.append(drawing).raw("\n");
    }
    if let (Some(advice), None) = (&finding.advice, &drawing) {
        page.within("<p class=\"advice-box\">", advice, "</p>\n");
    }
    let accesses = describe::accesses(finding);
    if !accesses.is_empty() {
        page.raw("<div class=\"accesses\">\n");
        // As in the drawing: the one that was executed last is on the right.
        for (access, class) in accesses.iter().zip(["access last", "access first"]).rev() {
            place(page, access, class, sources);
        }
        page.raw("</div>\n");
    }
    if let Some(memory) = &finding.memory {
        page.within("<section class=\"memory\">\n<h3>Memory: ", describe::memory(memory), "</h3>\n");
        page.append(&drawing::block(memory)).raw("\n<div class=\"accesses\">\n");
        for end in describe::lifetime(memory) {
            place(page, &end, "access", sources);
        }
        page.raw("</div>\n</section>\n");
    }
    if let Some(pattern) = suppressions::narrowest(finding) {
        page.raw("<details><summary>Suppress this</summary>A line for <code>--suppressions</code>: <code>");
        page.text(format_args!("{kind}:{pattern}")).raw("</code></details>\n");
    }
    page.raw("</article>\n");
}

fn place(page: &mut Markup, place: &Place<'_>, class: &'static str, sources: &mut Sources) {
    page.within("<div class=\"", class, "\">\n").within("<h3>", &place.heading, "</h3>\n");
    if let Some(details) = &place.details {
        page.within("<div class=\"place\">", details, "</div>\n");
    }
    if let Some(excerpt) = place.source.and_then(|source| sources.excerpt(source)) {
        quote(page, &excerpt);
    }
    if !place.stack.is_empty() {
        page.raw("<ol class=\"stack\">\n");
        for frame in place.stack {
            page.within("<li>", describe::frame(frame), "</li>\n");
        }
        page.raw("</ol>\n");
    }
    page.raw("</div>\n");
}

fn quote(page: &mut Markup, excerpt: &Excerpt) {
    page.raw("<pre>");
    for (index, line) in excerpt.lines.iter().enumerate() {
        let [start, end] = if index == excerpt.place { ["<mark>", "</mark>"] } else { ["<span>", "</span>"] };
        page.raw(start).within("<i>", format_args!("{:>5}", excerpt.first + index), "</i> ").text(line).raw(end);
    }
    page.raw("</pre>\n");
}

fn suppressed(page: &mut Markup, suppressed: &[Suppressed]) {
    if suppressed.is_empty() {
        return;
    }
    page.within("<details><summary>", suppressed.len(), " suppressed</summary>\n<table class=\"index\">\n");
    for Suppressed { suppression, finding } in suppressed {
        page.within("<tr><td>", finding.kind.name(), "</td><td>").within("", &finding.message, "</td><td><code>");
        page.within("", suppression, "</code></td></tr>\n");
    }
    page.raw("</table>\n</details>\n");
}

#[cfg(test)]
mod tests {
    use freehold_check::Location;

    use super::super::samples::{race, report};
    use super::super::search;
    use super::*;
    use freehold_check::Frame;
    use freehold_testing::process::Sandbox;

    /// Returns the markup of a page: everything between `<` and `>`.
    fn tags(page: &str) -> Vec<&str> {
        let page = &page[page.find("</style>").unwrap()..];
        page.split('<').skip(1).map(|tag| &tag[..tag.find('>').unwrap()]).collect()
    }

    /// Replaces every text of a finding.
    fn renamed(mut finding: Finding, name: &str) -> Finding {
        let name = || name.to_owned();
        let rename = |location: &mut Location| {
            (location.function, location.source) = (name(), Some(name()));
            location.stack = vec![
                Frame { function: Some(name()), source: Some(name()), object: Some(name()) },
                Frame { object: Some(name()), ..Frame::default() },
            ];
        };
        (finding.message, finding.advice) = (name(), Some(name()));
        for access in [&mut finding.access, &mut finding.other].into_iter().flatten() {
            access.action = name();
            rename(&mut access.location);
        }
        let memory = finding.memory.as_mut().unwrap();
        memory.freed = memory.allocated.clone();
        [&mut memory.allocated, &mut memory.freed].into_iter().flatten().for_each(rename);
        finding
    }

    fn page_with(name: &str) -> String {
        let mut report = report();
        report.program = vec![name.to_owned(); 2];
        report.findings = vec![renamed(race(), name); 2];
        for hidden in &mut report.suppressed {
            hidden.suppression = name.to_owned();
            hidden.finding = renamed(race(), name);
        }
        html(&report, Path::new("/nowhere"))
    }

    #[test]
    fn hostile_names_add_no_markup() {
        let harmless = page_with("name");
        for name in [
            "</script><script>alert(1)</script>",
            "\"><img src=x onerror=alert(1)>",
            "' onload='alert(1)",
            "</style></svg></title><b>",
            "&lt;script&gt;",
            "a\u{0}b<!--",
            "]]><![CDATA[",
        ] {
            let page = page_with(name);
            // Attributes with the name are compared without it.
            let shape = |page: &str| -> Vec<String> {
                tags(page).iter().map(|tag| tag.split("aria-label").next().unwrap_or_default().to_owned()).collect()
            };
            assert_eq!(shape(&page), shape(&harmless), "{name}");
            let dangerous = ["<script", "<img", "<b>", "<!--", "<![", " onload='", "\u{0}"];
            assert!(!dangerous.iter().any(|part| page.contains(part)), "{name}");
        }
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = html(&report(), Path::new("/nowhere"));
        for part in ["http:", "https:", "src=", "@import", "<link", "<script"] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""), "{page}");
        assert!(page.contains("@media (prefers-color-scheme: dark)"), "{page}");
    }

    #[test]
    fn every_element_is_closed_in_order() {
        let page = html(&report(), Path::new("/nowhere"));
        let mut open = vec!["html", "head"];
        for tag in tags(&page) {
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            match tag {
                _ if tag.starts_with("/style") || tag.ends_with('/') => {}
                _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{tag}"),
                _ => open.push(name),
            }
        }
        assert_eq!(open, [""; 0]);
    }

    #[test]
    fn the_page_has_what_the_text_has() {
        let page = html(&report(), Path::new("/nowhere"));
        for part in [
            "<h1>2 findings</h1>",
            "<div class=\"command mono\">./saxpy two words</div>",
            "<a class=\"chip\" href=\"#stream-race\">1 stream-race</a>",
            "the program was ended by SIGSEGV",
            "<h2>scale writes bytes that cuMemcpyDtoHAsync reads</h2>",
            "<span class=\"chip plain\">2 times</span>",
            "<h3>scale(float*, int) writes 4 bytes</h3>",
            "at saxpy.cu:31, PTX line 58, block (1,0,0), thread (5,0,0), stream 2, work 7",
            "<li>step(int) at saxpy.cu:80</li>",
            "<li>in saxpy+0x1234</li>",
            "Memory: 20 bytes into a block of 1024 bytes at 0x200000000200",
            "<h3>allocated by cuMemAlloc</h3>",
            "let stream 2 wait for it.",
            "<code>stream-race:saxpy.cu:31</code>",
            "<code>leak:saxpy.cu:70</code>",
            "<summary>1 suppressed</summary>",
            "<code>leak:cuMemAllocHost</code>",
            "my.supp:2: leak:none never matched",
        ] {
            assert!(page.contains(part), "{part} is not in the page");
        }
    }

    #[test]
    fn the_header_has_the_schedule_that_shows_it_and_the_command() {
        let mut report = report();
        report.search = Some(search::sample());
        let page = html(&report, Path::new("/nowhere"));
        let why = "<p class=\"why\">shown by FREEHOLD_SOFT_SCHEDULE=seed:18,switches:1 (1 switch): exit status 1";
        assert!(page.contains(why), "{page}");
        let command = "freehold run --device soft -- ./saxpy ";
        assert!(page.contains(command) && page.contains("two words"), "{page}");
    }

    #[test]
    fn lines_of_source_files_are_quoted_and_escaped() {
        let sandbox = Sandbox::new("page");
        let lines: Vec<String> = (1..=92).map(|number| format!("line <{number}> \u{1b}")).collect();
        sandbox.file("saxpy.cu", lines.join("\n"));
        let page = html(&report(), &sandbox.folder);
        for part in [
            "<span><i>   30</i> line &lt;30&gt; \u{fffd}</span><mark><i>   31</i> line &lt;31&gt; \u{fffd}</mark><span>",
            "<mark><i>   92</i> line &lt;92&gt; \u{fffd}</mark></pre>",
            "<mark><i>   70</i> ",
        ] {
            assert!(page.contains(part), "{part} is not in the page");
        }
        assert!(!page.contains("<i>   80</i>"), "the line of the kernel is further in than that of its launch");
    }

    #[test]
    fn without_findings_the_page_says_so() {
        let mut report = report();
        (report.findings, report.suppressed) = (Vec::new(), Vec::new());
        let page = html(&report, Path::new("/nowhere"));
        assert!(page.contains("No findings") && !page.contains("<article"), "{page}");
    }
}
