//! `shardgate tune check`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Serialize;

use super::{Gateway, HostArguments, say};
use crate::{
    check::{Options, Report, check},
    table,
};

/// Version of the JSON report: it grows by new members without changing, and changes with a member
/// that is renamed, removed or means something else.
const JSON_FORMAT: u32 = 1;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Report as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArguments,
    /// Redis of the gateway, HOST:PORT in plain text: asked 100 times PING, for its version, its
    /// eviction policy and its clock.
    #[arg(long)]
    redis: Option<String>,
    /// Document or folder of user configurations: checked, and each backend is asked once.
    #[arg(long)]
    config_file: Option<PathBuf>,
    /// Leave out what measures the timer and the rings.
    #[arg(long)]
    no_probe: bool,
}

/// Prints the report and ends with its verdict.
pub(super) fn run(arguments: Arguments, gateway: &Gateway) -> ExitCode {
    let is_json = arguments.json;
    let report = check(&options(arguments, gateway));
    say(&if is_json {
        json(&report)
    } else {
        table::render(&report)
    });
    ExitCode::from(report.exit_code())
}

fn options(arguments: Arguments, gateway: &Gateway) -> Options {
    let documents = arguments.config_file.as_deref();
    Options {
        redis: arguments.redis,
        documents: documents.map(gateway.read_documents),
        may_measure: !arguments.no_probe,
        ..arguments.host.options()
    }
}

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    exit_code: u8,
    #[serde(flatten)]
    report: &'a Report,
}

fn json(report: &Report) -> String {
    let document = Document {
        format: JSON_FORMAT,
        exit_code: report.exit_code(),
        report,
    };
    // Texts, numbers and lists only: nothing in it can be refused.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::around::Documents;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Options {
        let only = Only::try_parse_from(line.split_whitespace()).unwrap();
        let gateway = Gateway {
            read_documents: |path| Documents {
                findings: vec![path.display().to_string()],
                ..Documents::default()
            },
            prepare: |_, _| Err("nothing to start".to_owned()),
        };
        options(only.arguments, &gateway)
    }

    #[test]
    fn flags_become_options() {
        let options = parse(
            "check --shards 3 --cpu-list 0-1,4 --no-probe --sessions 7 --root x --redis h:1 \
             --config-file users.json",
        );
        assert_eq!(options.shards, Some(3));
        assert_eq!(options.cpus, Some(vec![0, 1, 4]));
        assert_eq!(options.sessions, Some(7));
        assert_eq!(options.root, Some(PathBuf::from("x")));
        assert_eq!(options.redis.as_deref(), Some("h:1"));
        assert_eq!(options.documents.unwrap().findings, ["users.json"]);
        assert!(!options.may_measure);
        assert!(parse("check").may_measure);
        assert!(parse("check").documents.is_none());
    }

    #[test]
    fn json_has_everything_and_its_format() {
        let report = check(&Options {
            root: Some("/nowhere-at-all".into()),
            ..Options::default()
        });
        let value: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        assert_eq!(value["format"], 1);
        assert_eq!(value["exit_code"], 0);
        assert_eq!(value["plan"]["shards"], 1);
        assert_eq!(value["rows"].as_array().unwrap().len(), report.rows.len());
        assert_eq!(value["rows"][0]["severity"], "unseen");
    }
}
