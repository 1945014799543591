//! `loadgen compare`: two runs side by side.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use super::{EXIT_SETUP, complain};
use crate::{
    record::Recording,
    report::{
        compare::{Comparison, Condition, Side},
        folder::FolderFault,
    },
};

const LESSON: &str = "\
A condition is METRIC>BOUND or METRIC<BOUND. Metrics: pN (p50, p99.9, ...), mean and max of response
times; service.pN, slip.pN and lag.pN for the other times; rate (good calls per second), errors and sent
(shares). tools_call:p99 is of one operation. A bound with a sign is a change from A to B: p99>+10%,
p99>+200us, rate<-5%. Without one it is a limit on B: p99>5ms, errors>0.1%, rate<1000.

A change marked ~ could be chance: each run knows its percentile only so well.

Exit codes: 0 passed; 1 a condition holds; 2 a run sent less than 99 % of its schedule, so that its
figures say nothing; 3 a run cannot be read.";

#[derive(Debug, Args)]
#[command(after_help = LESSON)]
pub(super) struct CompareArguments {
    /// Folder of the first run, the one to compare with.
    a: PathBuf,
    /// Folder of the second run.
    b: PathBuf,
    /// Fail when this holds, as 'p99>+10%'; may be given several times.
    #[arg(long = "fail-if", value_name = "CONDITION")]
    fail_if: Vec<Condition>,
    /// Write a page too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Compares; the exit code is the verdict.
pub(super) fn run(arguments: &CompareArguments) -> ExitCode {
    match compare(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            complain(fault);
            ExitCode::from(EXIT_SETUP)
        }
    }
}

fn compare(arguments: &CompareArguments) -> Result<u8, String> {
    let load = |folder| side(folder).map_err(|fault| fault.to_string());
    let (a, b) = (load(&arguments.a)?, load(&arguments.b)?);
    let comparison = Comparison::new(a, b, &arguments.fail_if);
    if let Some(path) = &arguments.html {
        let written = fs::write(path, comparison.to_html());
        written.map_err(|fault| format!("{}: {fault}", path.display()))?;
    }
    // A closed pipe is the reader's choice.
    let _ = io::stdout().write_all(comparison.to_text().as_bytes());
    Ok(comparison.exit_code())
}

fn side(folder: &Path) -> Result<Side, FolderFault> {
    Ok(Side {
        name: folder.display().to_string(),
        run: Recording::load(folder)?,
    })
}
