//! The gateway's own counters, read from the text its admin listener gives at `/metrics`.
//!
//! Names are matched with and without `engine_` after the prefix, and with and without `_total`; a
//! counter that is not there is `None`, never 0.

use std::{collections::BTreeMap, io, net::SocketAddr};

use crate::plain;

/// One reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Value by name and shard label.
    values: BTreeMap<(String, String), f64>,
}

impl Metrics {
    /// Asks the admin listener.
    pub fn read(address: SocketAddr) -> io::Result<Self> {
        plain::read_page(address, "/metrics").map(|text| Self::parse(&text))
    }

    /// Parses the text format; lines of other programs are passed over.
    pub fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        for line in text.lines() {
            let Some(rest) = line.trim().strip_prefix("shardgate_") else {
                continue;
            };
            let rest = rest.strip_prefix("engine_").unwrap_or(rest);
            let (name, labels, value) = match rest.split_once('{') {
                Some((name, rest)) => match rest.rsplit_once('}') {
                    Some((labels, value)) => (name, labels, value),
                    None => continue,
                },
                None => match rest.split_once(' ') {
                    Some((name, value)) => (name, "", value),
                    None => continue,
                },
            };
            let value = value
                .split_whitespace()
                .next()
                .and_then(|text| text.parse::<f64>().ok());
            let Some(value) = value else { continue };
            let shard = labels
                .split(',')
                .find_map(|label| label.trim().strip_prefix("shard=\"")?.strip_suffix('"'))
                .unwrap_or_default();
            let name = name.trim_end_matches("_total").to_owned();
            // Series that differ in other labels count together.
            *metrics.values.entry((name, shard.to_owned())).or_default() += value;
        }
        metrics
    }

    /// The values of `name`, one for each shard.
    pub fn by_shard(&self, name: &str) -> Vec<f64> {
        self.values
            .iter()
            .filter(|((known, _), _)| known == name)
            .map(|(_, value)| *value)
            .collect()
    }

    /// The sum over the shards.
    pub fn total(&self, name: &str) -> Option<f64> {
        let values = self.by_shard(name);
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// How much the sum grew since `earlier`.
    pub fn growth(&self, earlier: &Self, name: &str) -> Option<f64> {
        Some(self.total(name)? - earlier.total(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE shardgate_forwarded_total counter\n\
        shardgate_forwarded_total{shard=\"0\"} 3\n\
        shardgate_engine_forwarded_total{shard=\"1\",x=\"}\"} 4 1700000000\n\
        shardgate_sessions{node=\"a\",shard=\"0\"} 16\nshardgate_sessions{shard=\"1\"} 18\n\
        shardgate_up 1\nother_total 9\nshardgate_bad{shard=\"0\" 1\nshardgate_nan x\n";

    #[test]
    fn names_labels_and_sums() {
        let metrics = Metrics::parse(TEXT);
        assert_eq!(metrics.total("forwarded"), Some(7.0));
        assert_eq!(metrics.by_shard("sessions"), [16.0, 18.0]);
        assert_eq!(metrics.total("up"), Some(1.0));
        assert_eq!(metrics.total("bad"), None);
        assert_eq!(metrics.total("handed_over"), None);
    }

    #[test]
    fn growth_needs_both_readings() {
        let (early, late) = (
            Metrics::parse("shardgate_up 1"),
            Metrics::parse("shardgate_up 5"),
        );
        assert_eq!(late.growth(&early, "up"), Some(4.0));
        assert_eq!(late.growth(&Metrics::default(), "up"), None);
    }
}
