//! Reads pages of a gateway's admin listener, and counters out of its metrics.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// How long the listener may take for anything.
const PATIENCE: Duration = Duration::from_secs(3);
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// The body of a page.
pub fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // Version 1.0: the body ends with the connection and comes without chunks.
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other("an answer that is not HTTP"))?;
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(body.to_owned()),
        Some(status) => Err(io::Error::other(format!(
            "{path} is answered with {status}"
        ))),
        None => Err(io::Error::other("an answer that is not HTTP")),
    }
}

/// Metrics in the Prometheus text format: values by name, those of several labels in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics(BTreeMap<String, Vec<f64>>);

impl Metrics {
    /// Reads `/metrics`.
    pub fn read(address: SocketAddr) -> io::Result<Self> {
        get(address, "/metrics").map(|text| Self::parse(&text))
    }

    /// Reads the text; what is no sample is passed over.
    pub fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let value = line
                .rsplit_once(' ')
                .and_then(|(_, value)| value.parse().ok());
            if let (false, Some(value)) = (name.is_empty(), value) {
                all.0.entry(name.to_owned()).or_default().push(value);
            }
        }
        all
    }

    /// The values of a name, one a label set.
    pub fn values(&self, name: &str) -> &[f64] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Their sum; none when the name is not there.
    pub fn sum(&self, name: &str) -> Option<f64> {
        let values = self.values(name);
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_by_name() {
        let metrics = Metrics::parse(
            "# TYPE a counter\na{shard=\"0\"} 3\na{shard=\"1\"} 4.5\nb 1e3\n\nodd\nc{x=\"y z\"} 2\n",
        );
        assert_eq!(metrics.values("a"), [3.0, 4.5]);
        assert_eq!(metrics.sum("a"), Some(7.5));
        assert_eq!(
            (metrics.sum("b"), metrics.sum("c")),
            (Some(1000.0), Some(2.0))
        );
        assert_eq!(metrics.sum("odd"), None);
        assert_eq!(metrics.names().count(), 3);
    }
}
