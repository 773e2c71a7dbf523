//! The rules of the house, read from the sources: ARCHITECTURE.md says why they are so.
//!
//! Each rule is a function from a source to its findings, and is tried below on snippets that break
//! it. A finding says where it is and what to do.

mod imports;
mod source;
mod unsafety;
mod words;

use std::fs;
use std::path::Path;

use source::{Finding, Source};

/// Every rule. A new one is a line here and a test beside it.
const RULES: &[fn(&Source) -> Vec<Finding>] = &[
    imports::rooms,
    imports::star_of_homa,
    unsafety::only_where_allowed,
    unsafety::says_why,
    unsafety::never,
    words::banned,
    words::unfinished,
    words::machine_paths,
    words::long_lines,
    words::long_functions,
    words::long_files,
];

/// What is read: sources of ours, and what people read. Generated files are not ours to shape.
fn is_ours(path: &str) -> bool {
    let ends = [
        ".rs", ".c", ".h", ".md", ".toml", ".sh", ".in", "Makefile", ".ci/run",
    ];
    ends.iter().any(|end| path.ends_with(end))
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a folder's entry is readable").path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let relative = path.strip_prefix(root).expect("it is below the root");
        let relative = relative.to_string_lossy().into_owned();
        if path.is_dir() {
            let skipped = ["target", ".git", "corpus", "artifacts"];
            if !skipped.contains(&name.as_str()) {
                collect(root, &path, sources);
            }
        } else if is_ours(&relative) {
            let text = fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{relative} must be text: {error}"));
            sources.push(Source::new(&relative, &text));
        }
    }
}

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    collect(root, root, &mut sources);
    assert!(
        sources.len() > 10,
        "the sources were not found below {}",
        root.display()
    );
    let findings: Vec<String> = sources
        .iter()
        .flat_map(|source| RULES.iter().flat_map(move |rule| rule(source)))
        .map(|finding| finding.to_string())
        .collect();
    assert!(
        findings.is_empty(),
        "\n{}\n{} to tidy",
        findings.join("\n"),
        findings.len()
    );
}
