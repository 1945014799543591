//! What a run is worth: whether everything held that had to, and whether its figures count.

use crate::{
    record::{HONEST_SHARE, Recording, Verdict},
    run::Report,
    slo::Slo,
};

/// What is wanted of sessions that count.
const SESSIONS: &str = "every session counts on";
/// What is wanted of replies.
const REPLIES: &str = "every reply is to its request and has the content it must have";
/// What is wanted of the schedule.
const SCHEDULE: &str = "at least 99 % of the schedule is sent";

/// How a run ended; each has its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything held.
    Passed,
    /// An objective was missed, or a reply was wrong.
    Broken,
    /// The schedule was not kept: the figures say nothing.
    NotHonest,
}

impl Outcome {
    /// 0, 1 or 2; 3 is for what could not be run at all.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Broken => 1,
            Self::NotHonest => 2,
        }
    }
}

/// Judges a run and writes the verdicts into its recording. A wrong reply counts however the
/// schedule went; an objective only counts when the schedule was kept.
pub fn judge(report: &mut Report, slo: &Slo) -> Outcome {
    let mut verdicts = Vec::new();
    if report.has_counter {
        let measured = match (report.violations.first(), report.violation_count) {
            (None, 0) => format!("{} calls, no violation", report.sent),
            (None, count) => format!("{count} violations"),
            (Some(first), count) => format!("{count} violations, first: {first}"),
        };
        verdicts.push(Verdict {
            wanted: SESSIONS.to_owned(),
            measured,
            is_met: report.violation_count == 0,
        });
    }
    verdicts.push(Verdict {
        wanted: REPLIES.to_owned(),
        measured: format!("{} wrong", report.wrong_count),
        is_met: report.wrong_count == 0,
    });
    report.recording.verdicts.extend(verdicts);
    judge_recording(&mut report.recording, slo)
}

/// The same for a recording, whose verdicts on replies and sessions are in it.
pub fn judge_recording(recording: &mut Recording, slo: &Slo) -> Outcome {
    let is_of_replies = |verdict: &Verdict| [SESSIONS, REPLIES].contains(&&*verdict.wanted);
    // Of runs that are joined, the objectives are judged anew.
    let mut others: Vec<Verdict> = std::mem::take(&mut recording.verdicts);
    others.retain(|verdict| is_of_replies(verdict) || verdict.wanted.starts_with("soak:"));
    let are_others_met = others.iter().all(|verdict| verdict.is_met);
    let goals = slo.judge(recording);
    let are_goals_met = goals.iter().all(|verdict| verdict.is_met);
    let is_honest = recording.is_honest();
    recording.verdicts = others;
    if !is_honest || recording.asked.mode == crate::record::Mode::Open {
        let share = recording.sent_share() * 100.0;
        recording.verdicts.push(Verdict {
            wanted: SCHEDULE.to_owned(),
            measured: format!("{share:.1} %"),
            is_met: recording.sent_share() >= HONEST_SHARE,
        });
    }
    recording.verdicts.extend(goals);
    match (are_others_met, is_honest, are_goals_met) {
        (false, _, _) => Outcome::Broken,
        (true, false, _) => Outcome::NotHonest,
        (true, true, false) => Outcome::Broken,
        (true, true, true) => Outcome::Passed,
    }
}

/// The verdicts as lines for a terminal.
pub fn to_text(recording: &Recording) -> String {
    let lines = recording.verdicts.iter().map(|verdict| {
        let mark = if verdict.is_met { "ok    " } else { "BROKEN" };
        format!("{mark} {} ({})\n", verdict.wanted, verdict.measured)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Recorder, Timing};
    use std::time::Duration;

    fn recording(sent: u64, failed: u64, unsent: u64) -> Recording {
        let mut recorder = Recorder::new(true, Duration::ZERO);
        let call = recorder.operation("tools/call");
        let zero = Duration::ZERO;
        let timing = Timing {
            intended: zero,
            sent: zero,
            done: Duration::from_millis(5),
        };
        (0..sent).for_each(|_| recorder.good(call, None, timing, 1));
        let text = || String::new();
        (0..failed).for_each(|_| recorder.failed(call, None, timing, "status", text));
        (0..unsent).for_each(|_| recorder.unsent(call, zero));
        recorder.finish(0)
    }

    #[test]
    fn outcomes_in_their_order() {
        let wrong = Verdict {
            wanted: REPLIES.to_owned(),
            measured: "1 wrong".to_owned(),
            is_met: false,
        };
        for (sent, failed, unsent, is_wrong, slo, outcome) in [
            (100, 0, 0, false, "p99=6ms", Outcome::Passed),
            (100, 0, 0, false, "p99=4ms", Outcome::Broken),
            (100, 1, 0, false, "errors=0%", Outcome::Broken),
            (100, 1, 0, false, "errors=1%", Outcome::Passed),
            (100, 0, 2, false, "p99=6ms", Outcome::NotHonest),
            (100, 0, 2, false, "p99=4ms", Outcome::NotHonest),
            (100, 0, 1, false, "p99=6ms", Outcome::Passed),
            (100, 0, 0, true, "p99=6ms", Outcome::Broken),
            (100, 0, 2, true, "p99=6ms", Outcome::Broken),
        ] {
            let mut recording = recording(sent, failed, unsent);
            recording.verdicts.extend(is_wrong.then(|| wrong.clone()));
            let found = judge_recording(&mut recording, &slo.parse().unwrap());
            assert_eq!(found, outcome, "{sent} {failed} {unsent} {is_wrong} {slo}");
        }
        let codes = [Outcome::Passed, Outcome::Broken, Outcome::NotHonest];
        assert_eq!(codes.map(Outcome::exit_code), [0, 1, 2]);
    }

    #[test]
    fn joined_runs_are_judged_by_what_they_are_together() {
        let mut one = recording(100, 2, 0);
        let slo: Slo = "errors=1%".parse().unwrap();
        assert_eq!(judge_recording(&mut one, &slo), Outcome::Broken);
        let mut other = recording(200, 0, 0);
        assert_eq!(judge_recording(&mut other, &slo), Outcome::Passed);
        one.merge(&other);
        assert_eq!(judge_recording(&mut one, &slo), Outcome::Passed);
        assert!(to_text(&one).contains("ok     errors <= 1 % (0.6623 % (2 of 302))"));
    }
}
