//! `shardgate plan`: the models of `tune cores` from recorded runs alone.
//!
//! Ends with 0 when every rate has an answer, 1 when one has none, 3 when nothing could be read or
//! the command line is not understood.

use std::{ffi::OsString, fs, path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;

use super::{
    complain, cores, parse,
    planning::{PlanningArguments, duration, rate},
};
use crate::{cores::Advice, measured::Measured, model::curve::Objective};

/// Nothing could be read.
const EXIT_SETUP: u8 = 3;

/// Says how many shards and hosts a rate takes, from runs that were recorded.
///
/// Ends with 0 when every rate has an answer, 1 when one has none, 3 when nothing could be read.
#[derive(Debug, Parser)]
#[command(
    name = "shardgate plan",
    bin_name = "shardgate plan",
    no_binary_name = true
)]
struct Cli {
    /// Calls per second, all hosts together; several with commas.
    #[arg(long, required = true, value_delimiter = ',', value_parser = rate)]
    rate: Vec<f64>,
    /// Largest 99th percentile of the response time.
    #[arg(long, default_value = "5ms", value_parser = duration)]
    p99: Duration,
    /// Largest share of failed calls, percent.
    #[arg(long, default_value_t = 0.1, value_parser = percent)]
    errors: f64,
    /// Recorded runs: folders of `tune cores`, or of the load generator, as FOLDER=SHARDS when the
    /// run does not tell its target's shards.
    #[arg(long, required = true, num_args = 1.., value_name = "RUN")]
    from: Vec<String>,
    /// Also write the page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Report as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    planning: PlanningArguments,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("must be between 0 and 100 percent".to_owned()),
    }
}

/// Understands the arguments after `shardgate plan` and answers.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let cli: Cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let measured = match Measured::load(&cli.from) {
        Ok(measured) => measured,
        Err(fault) => {
            complain(fault);
            return ExitCode::from(EXIT_SETUP);
        }
    };
    let objective = Objective {
        p99_us: cli.p99.as_secs_f64() * 1e6,
        error_share: cli.errors / 100.0,
    };
    let advice = Advice::new(measured, &cli.planning.question(objective), &cli.rate);
    if let Some(path) = &cli.html
        && let Err(error) = fs::write(path, advice.to_html())
    {
        complain(format_args!("{}: {error}", path.display()));
        return ExitCode::from(EXIT_SETUP);
    }
    cores::finish(&advice, cli.json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound_and_both_ends_are_required() {
        Cli::command().debug_assert();
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        let cli = parse("--rate 50000,1e5 --p99 2ms --from a b=2 --spare-hosts 0").unwrap();
        assert_eq!(cli.rate, [50_000.0, 100_000.0]);
        assert_eq!(cli.from, ["a", "b=2"]);
        assert_eq!(cli.p99, Duration::from_millis(2));
        assert!(parse("--rate 5").is_err() && parse("--from a").is_err());
        assert!(parse("--rate 0 --from a").is_err());
    }
}
