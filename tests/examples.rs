//! The examples are accepted as they are, and the pages say nothing that cannot be typed: command
//! lines parse, links lead somewhere, tables agree with the code.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of these tests fail the test that calls them"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use shardgate::{
    config::{
        document::{Document, parse_document, parse_document_under},
        user_config::DocumentRules,
    },
    session::SessionId,
    settings::{
        CONNECTION_GATEWAY_VARIABLES, Environment, Invocation, SETTINGS, Settings, StoreSource,
    },
};
use shards::slots::{SlotTable, slot_of};

/// The top of the tree.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// README, security notes and the book, with their paths.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec!["README.md".to_owned(), ".github/SECURITY.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if Path::new(&name).extension().is_some_and(|end| end == "md") {
            paths.push(format!("docs/{name}"));
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), read(&path)))
        .collect()
}

/// The commands of a page's `sh` blocks, continuation lines joined, without comments.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    let mut pending = String::new();
    for line in page.lines() {
        match line.trim_end() {
            "```sh" => is_inside = true,
            "```" => is_inside = false,
            line if is_inside => match line.strip_suffix('\\') {
                Some(part) => pending.push_str(part),
                None => {
                    let command = std::mem::take(&mut pending) + line;
                    let command = command.split(" #").next().unwrap_or_default().trim();
                    if !command.is_empty() {
                        found.push(command.to_owned());
                    }
                }
            },
            _ => {}
        }
    }
    found
}

/// The arguments of the gateway in a command line, its name first; `None`: another program's.
fn invocation(command: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["shardgate", ..] => Some(words),
        ["cargo", "run", rest @ ..] if !rest.contains(&"-p") => {
            let arguments = rest.iter().position(|word| *word == "--")? + 1;
            let mut line = vec!["shardgate"];
            line.extend(&rest[arguments..]);
            Some(line)
        }
        _ => None,
    }
}

fn document(path: &str) -> Document {
    parse_document(&read(path), path).unwrap_or_else(|findings| panic!("{path}: {findings:?}"))
}

#[test]
fn the_example_documents_have_no_findings() {
    let users = document("examples/users.json");
    assert_eq!(users.findings, []);
    let alice = users.of_subject("alice@example.com").unwrap();
    let hosts: Vec<_> = alice.virtual_hosts.keys().collect();
    assert_eq!(hosts, ["dev", "ops"]);
    assert_eq!(alice.virtual_hosts["dev"].backends.len(), 2);
    let anyone = users.of_subject("bob@example.com").unwrap();
    assert!(anyone.virtual_hosts.contains_key("public"));

    let servers = document("examples/mcp-servers.json");
    assert_eq!(servers.findings, []);
    let host = &servers.everyone.unwrap().virtual_hosts["default"];
    let keys: Vec<_> = host.backends.keys().collect();
    assert_eq!(keys, ["docs", "local", "tickets"]);
}

#[test]
fn every_json_block_of_the_book_is_a_document_without_faults() {
    let mut count = 0;
    for (path, page) in pages() {
        for block in page.split("```json\n").skip(1) {
            let text = block.split("```").next().unwrap();
            let rules = DocumentRules {
                allow_stdio: true,
                ..DocumentRules::default()
            };
            let document = parse_document_under(rules, text, &path);
            let findings = document.unwrap_or_else(|findings| panic!("{path}: {findings:?}"));
            assert_eq!(findings.findings, [], "{path}");
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} blocks were found");
}

#[test]
fn the_example_settings_resolve_without_a_fault_or_a_note() {
    let line = [
        "shardgate",
        "serve",
        "--settings",
        "examples/shardgate.toml",
    ];
    let flags = Invocation::parse(line).unwrap().flags;
    let secret = "0123456789abcdef0123456789abcdef";
    let environment = Environment::from_pairs([("TOKEN_KEY", secret), ("HOME", "/home/operator")]);
    // Tests run at the top of the tree, as the file's first line asks for.
    let (settings, notes) =
        Settings::load(&flags, &environment, shardgate::settings::Purpose::Serve)
            .unwrap_or_else(|faults| panic!("{faults:?}"));
    assert_eq!(notes, []);
    assert_eq!(
        settings.store.source,
        StoreSource::File(PathBuf::from("examples/users.json"))
    );
    assert_eq!(
        settings.access.default_virtual_host.as_deref(),
        Some("public")
    );
    assert_eq!(settings.limits.sessions_per_principal_max, 100);
    assert!(settings.auth.secret.is_some());
}

#[test]
fn every_command_line_of_the_pages_is_understood() {
    let mut ours = 0;
    for (path, page) in pages() {
        for command in commands(&page) {
            let Some(line) = invocation(&command) else {
                // Variables may stand before the program.
                let is_program = |word: &str| word == "cargo" || root().join(word).is_file();
                let is_there = command.split(' ').any(is_program);
                assert!(is_there, "{path}: {command}");
                continue;
            };
            ours += 1;
            match Invocation::parse(line) {
                Ok(_) => {}
                // Asking for help is answered by clap itself.
                Err(error) if error.exit_code() == 0 => {}
                Err(error) => panic!("{path}: {command}\n{error}"),
            }
        }
    }
    assert!(ours >= 7, "only {ours} command lines were found");
}

#[test]
fn every_link_and_every_named_file_is_there() {
    let mut count = 0;
    for (path, page) in pages() {
        let folder = root().join(&path);
        let folder = folder.parent().unwrap();
        for link in page.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(folder.join(target).exists(), "{path} links to {target}");
            count += 1;
        }
        for named in page.split('`').skip(1).step_by(2) {
            let is_ours = [
                "src/",
                "shards/",
                "tests/",
                "docs/",
                "examples/",
                "scripts/",
            ]
            .iter()
            .any(|start| named.starts_with(start))
                && !named.contains([' ', '*', '{'])
                // Stands for a name of the reader's choice.
                && !named.ends_with("/TARGET");
            if is_ours {
                // A test has its name behind that of its file.
                let (file, _) = named.split_once("::").unwrap_or((named, ""));
                assert!(root().join(file).exists(), "{path} names {named}");
                count += 1;
            }
        }
    }
    assert!(count >= 60, "only {count} were found");
}

/// Whether a Rust file has a test of this name.
fn has_test(file: &str, name: &str) -> bool {
    let start = format!("fn {name}(");
    let text = read(file);
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    lines
        .windows(2)
        .any(|pair| pair[0] == "#[test]" && pair[1].starts_with(&start))
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let mut count = 0;
    for (path, page) in pages() {
        for named in page.split('`').skip(1).step_by(2) {
            let Some((file, name)) = named.split_once(".rs::") else {
                continue;
            };
            assert!(
                has_test(&format!("{file}.rs"), name),
                "{path} names {named}"
            );
            count += 1;
        }
    }
    assert!(count >= 100, "only {count} were found");
    assert!(!has_test("tests/examples.rs", "has_test") && !has_test("tests/examples.rs", "none"));
}

/// The rows of the connection gateway's contract: all there are, each with a test, or another row.
#[test]
fn every_row_of_the_connection_gateway_is_on_its_page() {
    let page = read("docs/conformance.md");
    let (_, chapter) = page.split_once("## The connection gateway").unwrap();
    let mut rows = BTreeSet::new();
    for line in chapter.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [row, _, proof] = cells[..] else {
            panic!("three cells: {line}");
        };
        let row = row.trim_start_matches("| ");
        assert!(
            row == "row" || proof.contains(".rs::") || row == "D21" || row == "5.3",
            "{line}"
        );
        // A row may be two, or about a part of a section.
        rows.extend(row.split(", ").map(str::to_owned));
        rows.extend(row.split('-').next().map(str::to_owned));
    }
    let sections = [
        "1", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "3", "3.1", "3.2", "3.3",
        "3.4", "3.5", "5.1", "5.2", "5.3", "6", "7",
    ];
    let defects = (1..=27).map(|number| format!("D{number}"));
    let wanted = sections.map(str::to_owned).into_iter().chain(defects);
    let missing: Vec<String> = wanted.filter(|row| !rows.contains(row)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_architecture_names_every_module_at_the_top_of_both_halves() {
    let page = read("docs/architecture.md");
    let mut missing = BTreeSet::new();
    for folder in ["src", "shards/src"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let named = format!("`{folder}/{name}`");
            if name.ends_with(".rs") && name != "lib.rs" && !page.contains(&named) {
                missing.insert(named);
            }
        }
    }
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn the_architecture_names_the_files_with_unsafe_code_and_no_others() {
    let page = read("docs/architecture.md");
    let (_, section) = page.split_once("## Where unsafe code is").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut wrong = Vec::new();
    let mut folders = vec![root().join("shards/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(root().join("shards/src")).unwrap();
            let name = name.to_str().unwrap().to_owned();
            let has_unsafe = fs::read_to_string(&path).unwrap().lines().any(|line| {
                let code = line.split("//").next().unwrap_or_default();
                code.contains("unsafe {") || code.contains("unsafe impl")
            });
            if section.contains(&format!("`{name}`")) != has_unsafe {
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_limits_of_the_readme_are_the_defaults() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("## Limits").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut count = 0;
    for row in section.lines().filter(|line| line.contains("| `--")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let flag = cells[2].trim_matches('`').trim_start_matches("--");
        let setting = SETTINGS.iter().find(|setting| setting.flag == flag);
        let setting = setting.unwrap_or_else(|| panic!("no setting {flag}"));
        assert_eq!(setting.default, Some(cells[3]), "{flag}");
        count += 1;
    }
    assert!(count >= 15, "only {count} rows were found");
}

#[test]
fn every_variable_of_the_connection_gateway_is_in_its_page_with_its_default() {
    let page = read("docs/connection-gateway.md");
    for (name, default) in CONNECTION_GATEWAY_VARIABLES {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        if let Some(default) = default {
            assert!(row.contains(&format!("| `{default}` |")), "{row}");
        }
    }
}

#[test]
fn every_reason_of_a_backend_failure_is_in_the_status_page() {
    let page = read("docs/status-codes.md");
    let source = read("src/upstream/fault.rs");
    let mut count = 0;
    for rest in source.split("#[error(\"").skip(1) {
        let text = rest.split("\")]").next().unwrap().replace("{0}", "N");
        assert!(page.contains(&format!("* {text}")), "{text}");
        count += 1;
    }
    assert!(count >= 20, "only {count} reasons were found");
}

#[test]
fn the_worked_example_of_a_session_id_is_computed_here() {
    let page = read("docs/sessions.md");
    let (_, example) = page.split_once("### A worked example").unwrap();
    let id = example.split('`').nth(1).unwrap();
    assert!(SessionId::parse(id.as_bytes()).is_some());

    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in id.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    let low = ((hash >> 32) ^ (hash & 0xffff_ffff)) & 0xfff;
    let slot = slot_of(id.as_bytes());
    assert_eq!(u64::from(slot), low);

    let mut rows = vec![
        format!("| FNV-1a 64 | `{hash:016x}` |"),
        format!("low 12 bits | `{low:03x}` |"),
        format!("| slot | {slot} |"),
    ];
    for shards in [1, 2, 3, 4, 8, 16] {
        let owner = SlotTable::new(shards).owner(slot);
        let plural = if shards == 1 { "" } else { "s" };
        rows.push(format!("| owner of {shards} shard{plural} | {owner} |"));
    }
    for row in rows {
        assert!(example.contains(&row), "{row}");
    }
}
