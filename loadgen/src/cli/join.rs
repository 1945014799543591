//! `loadgen join`: several runs as one.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{EXIT_SETUP, complain, say};
use crate::{
    record::Recording,
    report::folder,
    slo::Slo,
    verdict::{judge_recording, to_text},
};

#[derive(Debug, Args)]
pub(super) struct JoinArguments {
    /// Folders of runs.
    #[arg(required = true, value_name = "FOLDER")]
    runs: Vec<PathBuf>,
    /// Folder for the sum.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// What has to hold of all together.
    #[arg(long, default_value_t)]
    slo: Slo,
}

/// Adds up, writes and judges.
pub(super) fn run(arguments: &JoinArguments) -> ExitCode {
    match join(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            complain(fault);
            ExitCode::from(EXIT_SETUP)
        }
    }
}

fn join(arguments: &JoinArguments) -> Result<u8, folder::FolderFault> {
    let mut sum = Recording::default();
    for path in &arguments.runs {
        sum.merge(&Recording::load(path)?);
    }
    let outcome = judge_recording(&mut sum, &arguments.slo);
    folder::write(&arguments.out, &sum)?;
    let times = sum.response();
    let us = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    say(format_args!(
        "{} runs: {} calls, {:.0} calls/s, {} errors, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us",
        arguments.runs.len(),
        sum.sent(),
        sum.good_per_s(),
        sum.error_count(),
        us(0.5),
        us(0.99),
        us(0.999),
    ));
    say(to_text(&sum).trim_end());
    Ok(outcome.exit_code())
}
