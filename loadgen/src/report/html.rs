//! `report.html`: one page of a run, for a reader without our tools, the network or scripts.
//!
//! Everything is in the file: style, drawings and figures. Names and texts of others are escaped.

pub(crate) mod charts;
mod heat;
pub mod plot;
mod steps;
pub mod words;

use std::fmt::Write;

use super::{document::Times, utc::utc};
use crate::record::{Machine, Mode, Operation, Recording};
use words::{count, digits, duration, escaped, percent, table, time};

/// The page of a run.
pub fn page(recording: &Recording) -> String {
    let asked = &recording.asked;
    let title = format!("Load test of {}", asked.target);
    let mut body = format!(
        "<header><h1>{}</h1><p>{}</p></header>",
        escaped(&title),
        escaped(&what(recording))
    );
    for (name, note, inside) in [
        ("Outcome", String::new(), outcome(recording)),
        trials(recording),
        (
            "Latency by percentile",
            latency_note(recording),
            latency(recording),
        ),
        (
            "Latency over time",
            "Calls by response time, in the interval in which they ended.".to_owned(),
            heat::chart(recording),
        ),
        ("Throughput", String::new(), charts::throughput(recording)),
        ("Errors", errors_note(recording), errors(recording)),
        ("Operations", String::new(), operations(recording)),
        (
            "Shards of the target",
            owners_note(recording),
            owners(recording),
        ),
        ("Generator", generator_note(recording), generator(recording)),
        ("Environment", String::new(), environment(recording)),
    ] {
        body.push_str(&section(name, &note, &inside));
    }
    document(&title, &body)
}

/// A whole document around its body.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\
         <title>{}</title><style>\n{}</style></head><body>{body}</body></html>\n",
        escaped(title),
        include_str!("html/page.css")
    )
}

/// A part of the page; nothing when there is nothing in it.
pub fn section(name: &str, note: &str, inside: &str) -> String {
    if inside.is_empty() && note.is_empty() {
        return String::new();
    }
    let note = if note.is_empty() {
        String::new()
    } else {
        format!("<p class=\"note\">{}</p>", escaped(note))
    };
    format!(
        "<section><h2>{}</h2>{note}{inside}</section>",
        escaped(name)
    )
}

/// How it was run, in a line.
fn what(recording: &Recording) -> String {
    let asked = &recording.asked;
    let mode = match (asked.mode, asked.rate) {
        (Mode::Open, Some(rate)) => format!("open loop at {} calls/s", digits(rate)),
        (Mode::Open, None) => "open loop".to_owned(),
        (Mode::Closed, _) => format!("closed loop of {} callers", count(asked.callers.into())),
    };
    format!(
        "{mode}, measured for {} from {}",
        duration(recording.measured_s),
        utc(recording.started_unix_ms)
    )
}

fn outcome(recording: &Recording) -> String {
    let times = Times::of(&recording.response());
    let us = |value: f64| time(value * 1000.0);
    let errors = recording.error_count();
    let sent = match recording.asked.mode {
        Mode::Open => format!("{} of offered", percent(recording.sent_share())),
        Mode::Closed => "closed loop".to_owned(),
    };
    let mut html = String::from("<div class=\"tiles\">");
    for (name, value, remark) in [
        (
            "good calls/s",
            digits(recording.good_per_s()),
            count(recording.good()) + " calls",
        ),
        ("median", us(times.p50), "response time".to_owned()),
        ("p99", us(times.p99), "response time".to_owned()),
        ("p99.9", us(times.p999), "response time".to_owned()),
        ("longest", us(times.max), "response time".to_owned()),
        (
            "failed",
            percent(recording.error_share()),
            count(errors) + " calls",
        ),
        ("sent", count(recording.sent()), sent),
    ] {
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            html,
            "<div><span>{name}</span><b>{}</b><small>{}</small></div>",
            escaped(&value),
            escaped(&remark)
        );
    }
    html.push_str("</div>");
    html + &verdicts(recording)
}

fn verdicts(recording: &Recording) -> String {
    let mut rows = Vec::new();
    if !recording.is_honest() {
        rows.push((
            false,
            "The generator could not keep its schedule: the figures tell of it, not of the target"
                .to_owned(),
        ));
    }
    if let Some(found) = &recording.found_max {
        let rate =
            |rate: Option<f64>| rate.map_or("none".to_owned(), |rate| digits(rate) + " calls/s");
        rows.push((
            found.last_good.is_some(),
            format!(
                "Highest rate with {}: {}; first that was too much: {}; knee: {}",
                found.slo,
                rate(found.last_good),
                rate(found.first_bad),
                rate(found.knee)
            ),
        ));
    }
    for verdict in &recording.verdicts {
        rows.push((
            verdict.is_met,
            format!("{}: {}", verdict.wanted, verdict.measured),
        ));
    }
    if rows.is_empty() {
        return String::new();
    }
    marks(&rows, ["met", "missed"])
}

/// A list of what held and what did not; the mark is a word and a sign, not only a colour.
pub fn marks(rows: &[(bool, String)], words: [&str; 2]) -> String {
    let mut html = String::from("<ul class=\"verdict\">");
    for (is_met, text) in rows {
        let (class, sign, word) = if *is_met {
            ("met", '✓', words[0])
        } else {
            ("missed", '✗', words[1])
        };
        let _ = write!(
            html,
            "<li><span class=\"mark {class}\">{sign} {word}</span> {}</li>",
            escaped(text)
        );
    }
    html.push_str("</ul>");
    html
}

fn latency_note(recording: &Recording) -> String {
    match recording.asked.mode {
        Mode::Open => {
            "Response time counts from the intended start of a call, so waiting for a \
                       slow server is in it; service time from its first byte sent."
        }
        Mode::Closed => {
            "Each caller waits for its reply before it calls again: a server that \
                         stalls is asked less, and these times do not show it."
        }
    }
    .to_owned()
}

fn latency(recording: &Recording) -> String {
    let (response, service) = (recording.response(), recording.service());
    match recording.asked.mode {
        Mode::Open => charts::percentiles(&[
            ("two", "service time", &service),
            ("one", "response time", &response),
        ]),
        Mode::Closed => charts::percentiles(&[("one", "response time", &response)]),
    }
}

fn errors_note(recording: &Recording) -> String {
    match recording.error_count() {
        0 => "No call failed.".to_owned(),
        some => format!(
            "{} of {} calls failed.",
            count(some),
            count(recording.sent())
        ),
    }
}

fn errors(recording: &Recording) -> String {
    let errors = recording.errors();
    if errors.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = errors
        .iter()
        .map(|(reason, error)| {
            vec![
                escaped(&format!("{reason} (first: {})", error.first)),
                count(error.count),
                percent(error.count as f64 / recording.sent().max(1) as f64),
            ]
        })
        .collect();
    let head = ["reason", "calls", "of all sent"];
    charts::errors(recording) + &table(&head, &rows)
}

fn operations(recording: &Recording) -> String {
    let row = |(name, one): (&String, &Operation)| {
        let mut row = vec![escaped(name), count(one.sent), count(one.error_count())];
        row.extend(quantiles(&Times::of(one.response.whole())));
        row
    };
    let rows: Vec<_> = recording.operations.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "operation",
        "sent",
        "failed",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
    ];
    table(&head, &rows)
}

fn quantiles(times: &Times) -> Vec<String> {
    let all = [times.p50, times.p90, times.p99, times.p999, times.max];
    if times.count == 0 {
        return vec!["–".to_owned(); all.len()];
    }
    all.iter().map(|us| time(us * 1000.0)).collect()
}

/// The part about trials at several rates: its name, its note and what is in it.
fn trials(recording: &Recording) -> (&'static str, String, String) {
    let name = match recording.found_max {
        Some(_) => "Search for the highest rate",
        None => "Load steps",
    };
    let part = steps::part(recording);
    let note = match (&recording.found_max, recording.asked.rate) {
        _ if part.is_empty() => String::new(),
        (Some(_), Some(rate)) => format!(
            "Each point is one trial at a constant rate. All other parts of this page are of the \
             trial at {} calls/s.",
            digits(rate)
        ),
        _ => "Each point is one step at a constant rate.".to_owned(),
    };
    (name, note, part)
}

fn owners_note(recording: &Recording) -> String {
    if recording.owners.is_empty() {
        return String::new();
    }
    let sent: Vec<u64> = recording.owners.values().map(|owner| owner.sent).collect();
    let mean = sent.iter().sum::<u64>() as f64 / sent.len() as f64;
    let most = sent.iter().max().copied().unwrap_or(0) as f64;
    format!(
        "Calls by the shard that owns their session; the busiest has {} times the mean.",
        digits(if mean > 0.0 { most / mean } else { 1.0 })
    )
}

fn owners(recording: &Recording) -> String {
    if recording.owners.is_empty() {
        return String::new();
    }
    let sent = recording.owners.values().map(|owner| owner.sent);
    let (all, most) = (
        sent.clone().sum::<u64>().max(1),
        sent.max().unwrap_or(0).max(1),
    );
    let rows: Vec<_> = recording
        .owners
        .iter()
        .map(|(shard, owner)| {
            let share = owner.sent as f64 / all as f64;
            let times = Times::of(owner.response.whole());
            let mut row = vec![
                format!("shard {shard}"),
                bar(owner.sent as f64 / most as f64),
                percent(share),
                count(owner.sent),
                count(owner.sessions),
                count(owner.errors),
            ];
            row.extend(quantiles(&times));
            row
        })
        .collect();
    let head = [
        "shard", "", "share", "calls", "sessions", "failed", "p50", "p90", "p99", "p99.9", "max",
    ];
    table(&head, &rows)
}

fn bar(share: f64) -> String {
    format!(
        "<span class=\"bar\"><i style=\"width:{:.1}%\"></i></span>",
        share * 100.0
    )
}

fn generator_note(recording: &Recording) -> String {
    if recording.asked.mode == Mode::Closed {
        return "A closed loop has no schedule that it could be late for.".to_owned();
    }
    let times = Times::of(recording.slip.whole());
    let lag = Times::of(recording.lag.whole());
    let own = if lag.count == 0 {
        String::new()
    } else {
        format!(
            " With a caller free, 99 % were sent within {}: that is the generator's own part.",
            time(lag.p99 * 1000.0)
        )
    };
    let slips = format!(
        "{} of {} calls of the schedule were sent; half of them within {}, 99 % within {} of \
         their time, the latest after {}. A call is late when the generator is, and when all \
         callers wait for replies.",
        count(recording.sent()),
        count(recording.offered()),
        time(times.p50 * 1000.0),
        time(times.p99 * 1000.0),
        time(times.max * 1000.0)
    );
    slips + &own
}

fn generator(recording: &Recording) -> String {
    let rows: Vec<_> = recording
        .generators
        .iter()
        .map(|one| {
            let busy = one.busy.map_or("–".to_owned(), percent);
            let cpu = one.cpu.map_or("–".to_owned(), |cpu| cpu.to_string());
            vec![
                escaped(&format!("{} shard {}", one.host, one.shard)),
                cpu,
                count(one.sent),
                busy,
            ]
        })
        .collect();
    let shards = if rows.is_empty() {
        String::new()
    } else {
        table(&["generator", "core", "calls sent", "busy"], &rows)
    };
    charts::lag(recording) + &shards
}

fn environment(recording: &Recording) -> String {
    let asked = &recording.asked;
    let mut facts = vec![("callers".to_owned(), count(asked.callers.into()))];
    facts.push(("warm-up".to_owned(), duration(asked.warm_up_s)));
    facts.push(("reconnects".to_owned(), count(recording.reconnects)));
    facts.extend(asked.settings.clone());
    let mut html = self::facts(&facts);
    for machine in &recording.machines {
        html.push_str(&self::facts(&machine_facts(machine)));
    }
    html
}

fn machine_facts(machine: &Machine) -> Vec<(String, String)> {
    let pinned = machine.pinned.as_ref().map(|cores| {
        let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
        cores.join(", ")
    });
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let named = [
        ("machine", some(&machine.host)),
        ("processor", machine.cpu.clone()),
        ("cores", Some(machine.cores.to_string())),
        ("kernel", machine.kernel.clone()),
        ("frequency governor", machine.governor.clone()),
        ("congestion control", machine.congestion_control.clone()),
        ("load average", machine.load_average.clone()),
        ("generator", some(&machine.version)),
        ("generator shards", Some(machine.shards.to_string())),
        ("pinned to cores", pinned),
        ("I/O driver", some(&machine.driver)),
        ("command", some(&machine.command)),
    ];
    let mut facts: Vec<(String, String)> = named
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    facts.extend(machine.more.clone());
    facts
}

/// A table of names and what they are.
pub fn facts(rows: &[(String, String)]) -> String {
    let mut html = String::from("<table class=\"facts\"><tbody>");
    for (name, value) in rows {
        let value = if name == "command" {
            format!("<code>{}</code>", escaped(value))
        } else {
            escaped(value)
        };
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{value}</td></tr>",
            escaped(name)
        );
    }
    html.push_str("</tbody></table>");
    html
}
