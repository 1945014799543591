//! The report as text: a table, and below each row that matters why it does and what to do.

use crate::{
    check::Report,
    row::{Row, Severity},
};

/// Columns of a line, the one of the report included.
const WIDTH: usize = 100;
const NAME_WIDTH: usize = 16;
const CURRENT_WIDTH: usize = 40;
/// Where the name column starts; notes below a row are aligned with it.
const INDENT: usize = 12;
const WANTED_WIDTH: usize = WIDTH - INDENT - NAME_WIDTH - CURRENT_WIDTH - 4;

/// Renders the report.
pub(crate) fn render(report: &Report) -> String {
    let plan = &report.plan;
    let mut text = format!("place   {}\n", report.place);
    let cpus = match crate::plan::cpu_list(&plan.cpus) {
        list if list.is_empty() => "not pinned".to_owned(),
        list => format!("on CPU {list}"),
    };
    text += &format!(
        "plan    {} {} {cpus}, {} connections, {} sessions, {} connections to one backend\n\n",
        plan.shards,
        if plan.shards == 1 { "shard" } else { "shards" },
        plan.connections,
        plan.sessions,
        plan.upstream_connections,
    );
    line(&mut text, "  #", "result", ["check", "found", "wanted"]);
    for row in &report.rows {
        render_row(&mut text, row);
    }
    let counts = Severity::ALL.map(|severity| {
        let count = report.count(severity);
        format!("{count} {}", severity.name())
    });
    text += &format!("\n{}\n", counts.join(", "));
    text
}

fn render_row(text: &mut String, row: &Row) {
    let columns = [
        wrap(row.name, NAME_WIDTH),
        wrap(&row.current, CURRENT_WIDTH),
        wrap(row.wanted, WANTED_WIDTH),
    ];
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    for index in 0..height {
        let (number, result) = match index {
            0 => (format!("{:>3}", row.number), row.severity.name()),
            _ => (String::new(), ""),
        };
        let cell = |column: usize| columns[column].get(index).map_or("", String::as_str);
        line(text, &number, result, [cell(0), cell(1), cell(2)]);
    }
    if matches!(row.severity, Severity::Warn | Severity::Fatal) {
        note(text, "why", row.why);
    }
    if !row.fix.is_empty() {
        note(text, "fix", &row.fix);
    }
    if !row.unseen.is_empty() {
        note(text, "not seen", &row.unseen.join("; "));
    }
}

fn line(text: &mut String, number: &str, result: &str, [name, current, wanted]: [&str; 3]) {
    let line = format!(
        "{number:<3}  {result:<6} {name:<NAME_WIDTH$}  {current:<CURRENT_WIDTH$}  {wanted}"
    );
    text.push_str(line.trim_end());
    text.push('\n');
}

fn note(text: &mut String, label: &str, words: &str) {
    let label_width = 10;
    for (index, part) in wrap(words, WIDTH - INDENT - label_width).iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        *text += &format!("{:INDENT$}{label:<label_width$}{part}\n", "");
    }
}

/// Breaks at blanks so that no part is wider than `width`; a longer word stands alone.
fn wrap(words: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + length <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_kept_whole() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("abcdef g", 3), ["abcdef", "g"]);
        assert!(wrap("  ", 3).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn wrapping_loses_no_word(text in "[a-zü ]{0,80}", width in 1_usize..20) {
            let lines = wrap(&text, width);
            let before: Vec<&str> = text.split_whitespace().collect();
            let joined = lines.join(" ");
            let after: Vec<&str> = joined.split_whitespace().collect();
            prop_assert_eq!(before, after);
            for line in lines {
                prop_assert!(line.chars().count() <= width || !line.contains(' '));
            }
        }
    }
}
