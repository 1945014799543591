//! `shardgate tune apply`.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Args;

use super::{HostArguments, complain, say};
use crate::apply::{Change, Changes, Record};

/// Something was not changed that should have been.
const EXIT_NOT_DONE: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Change the settings; the old values are recorded first.
    #[arg(long, conflicts_with = "revert")]
    apply: bool,
    /// Write the recorded values back.
    #[arg(long)]
    revert: bool,
    /// Write a script that sets and sets back, instead of printing commands.
    #[arg(long, conflicts_with_all = ["apply", "revert"])]
    output_script: Option<PathBuf>,
    /// Where the old values are kept [default: /var/lib/shardgate/tune.json].
    #[arg(long)]
    record: Option<PathBuf>,
    #[command(flatten)]
    host: HostArguments,
}

/// Plans, and does what was asked for.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let record = Record::at(arguments.record, arguments.host.root.as_deref());
    if arguments.revert {
        let outcomes = record.revert();
        return match outcomes {
            Ok(outcomes) if outcomes.is_empty() => {
                say(&format!(
                    "nothing to revert: no {}\n",
                    record.path().display()
                ));
                ExitCode::SUCCESS
            }
            Ok(outcomes) => {
                let back = |change: &Change| (change.wanted.clone(), change.current.clone());
                report(&outcomes, back)
            }
            Err(fault) => failed(fault),
        };
    }
    let changes = Changes::plan(&arguments.host.options());
    for left in &changes.left {
        say(&format!("left: {}: {}\n", left.what, left.why));
    }
    if changes.changes.is_empty() {
        say("nothing to change\n");
    } else if let Some(path) = &arguments.output_script {
        if let Err(error) = fs::write(path, changes.script()) {
            return failed(format_args!("{}: {error}", path.display()));
        }
        say(&format!(
            "wrote {} (sh FILE apply, sh FILE revert)\n",
            path.display()
        ));
    } else if arguments.apply {
        return match changes.apply(&record) {
            Ok(outcomes) => {
                let forth = |change: &Change| (change.current.clone(), change.wanted.clone());
                let code = report(&outcomes, forth);
                say(&format!(
                    "old values are in {}; --revert writes them back\n",
                    record.path().display()
                ));
                code
            }
            Err(fault) => failed(fault),
        };
    } else {
        say("\n");
        for change in &changes.changes {
            say(&format!(
                "echo '{}' > {}   # ({}) was {}\n",
                change.wanted, change.path, change.number, change.current
            ));
        }
        say("\nnothing was changed: --apply does it, --output-script FILE writes it down\n");
    }
    ExitCode::SUCCESS
}

fn report(
    outcomes: &[(Change, Option<String>)],
    values: impl Fn(&Change) -> (String, String),
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (change, fault) in outcomes {
        let (from, to) = values(change);
        match fault {
            None => say(&format!("{}: {from} -> {to}\n", change.path)),
            Some(fault) => {
                complain(format_args!("{}: {fault}", change.path));
                code = ExitCode::from(EXIT_NOT_DONE);
            }
        }
    }
    code
}

fn failed(fault: impl std::fmt::Display) -> ExitCode {
    complain(fault);
    ExitCode::from(EXIT_NOT_DONE)
}
