//! The house style, as far as a reader of lines can hold it. What formatting, lints and the
//! compiler check is not repeated here.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of these tests fail the test that calls them"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Longer files hold two concepts.
const FILE_LINES_MAX: usize = 700;
/// Comments and long strings too, which the formatter leaves as they are.
const COMMENT_COLUMNS_MAX: usize = 100;
/// Folders that hold nothing of ours.
const SKIPPED: [&str; 6] = [
    ".git",
    ".venv",
    "__pycache__",
    "artifacts",
    "node_modules",
    "target",
];
/// This file names what it forbids.
const THIS: &str = "tests/tidy.rs";

/// A text file of the tree.
struct Source {
    /// Its path from the top of the tree.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_script(&self) -> bool {
        self.text.starts_with("#!/usr/bin/env bash\n")
    }

    /// The lines with their numbers, as `path:number`.
    fn lines(&self) -> impl Iterator<Item = (String, &str)> {
        let numbered = self.text.lines().enumerate();
        numbered.map(|(index, line)| (format!("{}:{}", self.path, index + 1), line))
    }
}

/// All text files below the top of the tree, but this one.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap().to_str().unwrap();
            // Links lead to files that are found where they are, or are not ours.
            if SKIPPED.contains(&name) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let path_from_root = path.strip_prefix(root).unwrap().to_str().unwrap();
            if path_from_root == THIS {
                continue;
            }
            // Seeds and keys may be no text. A file that is gone was another test's.
            if let Ok(text) = fs::read_to_string(&path) {
                found.push(Source {
                    path: path_from_root.to_owned(),
                    text,
                });
            }
        }
    }
    assert!(found.len() > 250, "only {} files were found", found.len());
    found
}

/// The Rust files.
fn rust() -> Vec<Source> {
    let mut found = sources();
    found.retain(Source::is_rust);
    assert!(found.len() > 200, "only {} files were found", found.len());
    found
}

/// Fails with all findings at once.
#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// What is code in a line: without its comment and the texts of its strings, as far as one line
/// can tell.
fn code(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    line.split('"').step_by(2).collect()
}

/// The words of a text: names, numbers and keywords.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
}

#[test]
fn every_module_begins_with_what_it_is_for() {
    let mut findings = Vec::new();
    for source in rust() {
        // A crate's attributes may come first.
        let mut lines = source.text.lines();
        let first = lines.find(|line| !line.is_empty() && !line.starts_with("#!["));
        if !first.is_some_and(|line| line.starts_with("//! ")) {
            findings.push(format!("{} does not begin with //!", source.path));
        }
    }
    assert_none(&findings);
}

#[test]
fn a_module_is_named_by_its_own_file() {
    let files = rust();
    let named = files.iter().map(|source| source.path.clone());
    assert_none(
        &named
            .filter(|path| path.ends_with("/mod.rs"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_file_holds_too_much() {
    let mut findings = Vec::new();
    for source in rust() {
        let count = source.text.lines().count();
        if count > FILE_LINES_MAX {
            findings.push(format!("{}: {count} lines", source.path));
        }
    }
    assert_none(&findings);
}

#[test]
fn comments_fit_the_page() {
    let mut findings = Vec::new();
    for source in rust() {
        for (place, line) in source.lines() {
            let is_comment = line.trim_start().starts_with("//");
            if is_comment && line.chars().count() > COMMENT_COLUMNS_MAX {
                findings.push(place);
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn nothing_is_left_for_later() {
    let later = ["TODO", "FIXME", "XXX"];
    let unfinished = ["todo!", "unimplemented!", "dbg!"];
    let mut findings = Vec::new();
    for source in sources() {
        let is_ours = source.is_rust() || source.is_script() || source.path.ends_with(".md");
        for (place, line) in source.lines().filter(|_| is_ours) {
            if words(line).any(|word| later.contains(&word)) {
                findings.push(format!("{place}: {}", line.trim()));
            }
            if source.is_rust() && unfinished.iter().any(|name| code(line).contains(name)) {
                findings.push(format!("{place}: {}", line.trim()));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn unsafe_code_is_in_the_machine_half_only() {
    let mut findings = Vec::new();
    let mut count = 0;
    for source in rust() {
        let is_allowed = source.path.starts_with("shards/");
        for (place, line) in source.lines() {
            if words(&code(line)).any(|word| word == "unsafe") {
                count += 1;
                if !is_allowed {
                    findings.push(format!("{place}: {}", line.trim()));
                }
            }
        }
    }
    assert_none(&findings);
    assert!(count > 10, "only {count} lines were found");
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let mut findings = Vec::new();
    for source in sources() {
        for (place, line) in source.lines() {
            for folder in ["work", "root", "farm"].map(|name| format!("/{name}/")) {
                // As the start of a path, not inside one or inside an address.
                let is_start = |at: usize| {
                    let before = line[..at].chars().next_back();
                    !before
                        .is_some_and(|before| before.is_alphanumeric() || "./_-}".contains(before))
                };
                if line
                    .match_indices(folder.as_str())
                    .any(|(at, _)| is_start(at))
                {
                    findings.push(format!("{place}: {}", line.trim()));
                }
            }
        }
    }
    assert_none(&findings);
}

/// Programs with a long form of each option our scripts could want. What the shell itself has, and
/// programs with short options only, are not among them.
const LONG_OPTION_PROGRAMS: [&str; 19] = [
    "cargo", "chmod", "cp", "curl", "cut", "grep", "head", "ln", "mkdir", "mktemp", "mv", "node",
    "npm", "pkill", "rm", "sed", "sort", "tail", "touch",
];

/// The short options that a script gives to programs with long ones.
fn short_options(script: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let mut program = None;
    let mut here_document_end: Option<String> = None;
    for (place, line) in script.lines() {
        if let Some(end) = &here_document_end {
            if line == end {
                here_document_end = None;
            }
            continue;
        }
        if line.trim_start().starts_with('#') {
            continue;
        }
        for word in line.split_whitespace() {
            // What a program's name may stand behind: `word="$(name`.
            let name = word.rsplit(['(', '"', '<', '`', '{', '=', '!']).next();
            let name = name.unwrap_or_default();
            if LONG_OPTION_PROGRAMS.contains(&name) {
                program = Some(name.to_owned());
            } else if name == "--" || name.starts_with(['|', ';', '&']) {
                // What comes now is another program's.
                program = None;
            } else if let Some(program) = &program
                && let Some(option) = word.strip_prefix('-')
                && option.starts_with(|first: char| first.is_ascii_alphabetic())
            {
                findings.push(format!("{place}: {program} {word}"));
            }
            if word.ends_with([';', ')']) {
                program = None;
            }
        }
        if let Some((_, end)) = line.split_once("<<'") {
            here_document_end = end.split('\'').next().map(str::to_owned);
        }
        if !line.ends_with('\\') {
            program = None;
        }
    }
    findings
}

#[test]
fn scripts_stop_at_the_first_failure_and_spell_their_options_out() {
    let mut findings = Vec::new();
    let mut count = 0;
    for script in sources().iter().filter(|source| source.is_script()) {
        count += 1;
        if !script.text.contains("\nset -euo pipefail\n") {
            findings.push(format!("{}: no `set -euo pipefail`", script.path));
        }
        findings.extend(short_options(script));
    }
    assert_none(&findings);
    assert!(count >= 7, "only {count} scripts were found");
}

#[test]
fn short_options_are_found() {
    let script = |line: &str| Source {
        path: "s".into(),
        text: format!("#!/usr/bin/env bash\n{line}\n"),
    };
    for line in [
        "rm -rf x",
        "x | grep -q y",
        "v=\"$(sed -n p f)\"",
        "if ! grep \\\n  -q y; then",
    ] {
        assert_eq!(short_options(&script(line)).len(), 1, "{line}");
    }
    for line in [
        "rm --recursive x",
        "set -e",
        "# rm -rf x",
        "rm x; kill -0 1",
        "cargo clippy -- -D warnings",
        "node <<'END'\nrm -rf x\nEND",
    ] {
        assert_eq!(short_options(&script(line)), [""; 0], "{line}");
    }
}
