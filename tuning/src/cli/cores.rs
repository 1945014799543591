//! `shardgate tune cores`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use loadgen::run::Pattern;
use shards::topology::Topology;

use super::{
    Cpus, Gateway, complain, cpus,
    planning::{PlanningArguments, duration, objective, rate},
    say,
};
use crate::{
    cores::{Advice, Campaign, Scratch, measure},
    measured::Measured,
    model::{Point, curve::Objective},
};

/// Some rate has no answer.
const EXIT_NO_ANSWER: u8 = 1;
/// Nothing was measured.
const EXIT_SETUP: u8 = 3;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PatternName {
    /// A kept connection for each session: calls are local.
    Sticky,
    /// Sessions share connections, as through a front proxy: some calls are forwarded.
    Pooled,
    /// No call comes on a connection of its session's shard: all are forwarded.
    Spread,
}

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Read these runs instead of measuring: folders of `tune cores`, or of the load generator,
    /// as FOLDER=SHARDS when the run does not tell its target's shards.
    #[arg(long, num_args = 1.., value_name = "RUN")]
    from: Vec<String>,
    /// What has to be kept.
    #[arg(long, default_value = "p99=5ms,errors=0.1%", value_parser = objective)]
    slo: Objective,
    /// Rates to answer, calls per second; several, or none for some around what was measured.
    #[arg(long, value_delimiter = ',', value_parser = rate)]
    rate: Vec<f64>,
    /// Most shards to measure [default: one for each usable core].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    max_shards: Option<u16>,
    /// CPUs to use, the shards' first, as 0-3,6 [default: the usable ones].
    #[arg(long, value_parser = cpus)]
    cpu_list: Option<Cpus>,
    /// Length of one try.
    #[arg(long, default_value = "5s", value_parser = duration)]
    probe: Duration,
    /// Before each try.
    #[arg(long, default_value = "1s", value_parser = duration)]
    warm_up: Duration,
    /// Tries of a search at the most.
    #[arg(long, default_value_t = 14)]
    tries: u32,
    /// First rate of each search, for each shard.
    #[arg(long, default_value_t = 2000.0, value_parser = rate)]
    first_rate: f64,
    /// Kept connections of the load generator.
    #[arg(long, default_value_t = 64)]
    load_connections: u32,
    /// How calls spread over them.
    #[arg(long, value_enum, default_value = "sticky")]
    pattern: PatternName,
    /// Folder for the measured points (cores.json) and the page (cores.html).
    #[arg(long)]
    output: Option<PathBuf>,
    /// Report as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    planning: PlanningArguments,
}

/// Measures or reads, then answers.
pub(super) fn run(arguments: Arguments, gateway: &Gateway) -> ExitCode {
    let measured = if arguments.from.is_empty() {
        campaign(&arguments).and_then(|(campaign, _scratch)| measure(&campaign, gateway, progress))
    } else {
        Measured::load(&arguments.from)
    };
    let measured = match measured {
        Ok(measured) => measured,
        Err(fault) => {
            complain(fault);
            return ExitCode::from(EXIT_SETUP);
        }
    };
    let mut question = arguments.planning.question(arguments.slo);
    question.host_cores = question.host_cores.or(measured.cores);
    let advice = Advice::new(measured, &question, &arguments.rate);
    if let Some(folder) = &arguments.output
        && let Err(fault) = advice.save(folder)
    {
        complain(fault);
        return ExitCode::from(EXIT_SETUP);
    }
    finish(&advice, arguments.json)
}

/// Prints advice; the exit code says whether all was answered.
pub(super) fn finish(advice: &Advice, is_json: bool) -> ExitCode {
    say(&if is_json {
        format!("{:#}\n", advice.to_json())
    } else {
        advice.to_text()
    });
    if advice.is_complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_NO_ANSWER)
    }
}

fn campaign(arguments: &Arguments) -> Result<(Campaign, Scratch), String> {
    let cpus = match &arguments.cpu_list {
        Some(cpus) => cpus.0.clone(),
        None => Topology::read().cpus,
    };
    let cores = u16::try_from(cpus.len()).unwrap_or(u16::MAX);
    let shards_max = arguments.max_shards.unwrap_or(cores);
    let scratch = Scratch::new()?;
    let campaign = Campaign {
        shards: shard_counts(shards_max),
        objective: arguments.slo,
        cpus,
        probe: arguments.probe,
        warm_up: arguments.warm_up,
        tries: arguments.tries,
        connections: arguments.load_connections,
        pattern: match arguments.pattern {
            PatternName::Sticky => Pattern::Sticky,
            PatternName::Pooled => Pattern::Pooled,
            PatternName::Spread => Pattern::Spread,
        },
        first_rate: arguments.first_rate,
        program: std::env::current_exe().map_err(|error| error.to_string())?,
        folder: scratch.path().to_owned(),
    };
    Ok((campaign, scratch))
}

/// All up to eight, then steps that grow: a fit needs many at the start and reach at the end.
fn shard_counts(max: u16) -> Vec<u16> {
    let mut counts: Vec<u16> = (1..=max.min(8)).collect();
    let mut next = 12;
    while next < max {
        counts.push(next);
        next += next / 3;
    }
    if max > 8 {
        counts.push(max);
    }
    counts
}

fn progress(point: &Point) {
    use std::io::Write;
    let busy = point.busiest.map_or_else(String::new, |busy| {
        format!(", busiest shard {:.0} %", busy * 100.0)
    });
    let _ = writeln!(
        std::io::stderr(),
        "{} {}, {:.0} calls/s: p99 {:.2} ms, {:.2} % errors, {:.1} % sent{busy}: {}",
        point.shards,
        if point.shards == 1 { "shard" } else { "shards" },
        point.rate,
        point.p99_us / 1000.0,
        point.error_share * 100.0,
        point.sent_share * 100.0,
        if point.is_met { "kept" } else { "not kept" },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_shards_are_all_measured_and_many_in_steps() {
        assert_eq!(shard_counts(2), [1, 2]);
        assert_eq!(shard_counts(8), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(shard_counts(9).last(), Some(&9));
        assert_eq!(shard_counts(24), [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 21, 24]);
    }
}
