//! Any other gateway: started by somebody else, in front of this bench's backends.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
};

use super::{Absence, Case, Contestant};
use crate::{plain::Endpoint, process::Process};

/// Stands in a URL for the name of a case.
const CASE: &str = "{case}";

/// What its operator says of it: `NAME=URL[,pid=NUMBER][,tool=NAME][,HEADER: VALUE]...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Name in tables.
    pub name: String,
    /// Its endpoints; without `{case}` there is one, for 200 bytes of JSON.
    pub url: String,
    /// Number of its process, whose CPU time is read.
    pub process: Option<u32>,
    /// The tool's name behind it.
    pub tool: Option<String>,
    /// Header lines it wants.
    pub headers: Vec<String>,
}

/// Why a peer cannot be one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerFault {
    /// It is not `NAME=URL...`, or the name is one of ours.
    #[error("write NAME=URL, and a name that is no other contestant's")]
    Name,
    /// The URL is not plain HTTP.
    #[error("the URL must be http://HOST:PORT/PATH")]
    Url,
    /// A part is neither a header nor known.
    #[error("`{0}` is neither pid=NUMBER, tool=NAME nor a header line")]
    Part(String),
}

impl FromStr for Peer {
    type Err = PeerFault;

    fn from_str(text: &str) -> Result<Self, PeerFault> {
        let (name, rest) = text.split_once('=').ok_or(PeerFault::Name)?;
        let taken = ["direct", "nginx", "haproxy"];
        if name.is_empty() || taken.contains(&name) || name.starts_with("shardgate") {
            return Err(PeerFault::Name);
        }
        let mut parts = rest.split(',');
        let url = parts.next().unwrap_or_default();
        let mut peer = Self {
            name: name.to_owned(),
            url: url.to_owned(),
            process: None,
            tool: None,
            headers: Vec::new(),
        };
        // The name of the host is looked up when the run starts.
        peer.authority_and_path(Case::Small)?;
        for part in parts {
            peer.take(part)?;
        }
        Ok(peer)
    }
}

impl Peer {
    fn take(&mut self, part: &str) -> Result<(), PeerFault> {
        let strange = || PeerFault::Part(part.split(':').next().unwrap_or_default().to_owned());
        if let Some(number) = part.strip_prefix("pid=") {
            self.process = Some(number.parse().map_err(|_| strange())?);
        } else if let Some(tool) = part.strip_prefix("tool=") {
            self.tool = Some(tool.to_owned());
        } else if part.split_once(':').is_some_and(|(name, _)| is_name(name)) {
            self.headers.push(part.trim_start().to_owned());
        } else {
            // A comma that stood inside a header's value.
            let line = self.headers.last_mut().ok_or_else(strange)?;
            line.push(',');
            line.push_str(part);
        }
        Ok(())
    }

    /// The cases it serves.
    fn cases(&self) -> Vec<Case> {
        if self.url.contains(CASE) {
            Case::ALL.to_vec()
        } else {
            vec![Case::Small]
        }
    }

    fn authority_and_path(&self, case: Case) -> Result<(String, String), PeerFault> {
        let url = self.url.replace(CASE, case.name());
        let rest = url.strip_prefix("http://").ok_or(PeerFault::Url)?;
        let (authority, path) = rest.split_at(rest.find('/').ok_or(PeerFault::Url)?);
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        if authority.contains('@') || port.is_none_or(|port| port.parse::<u16>().is_err()) {
            return Err(PeerFault::Url);
        }
        Ok((authority.to_owned(), path.to_owned()))
    }

    /// Takes it into the field.
    pub(super) fn contestant(&self) -> Result<Contestant, Absence> {
        let process = match self.process {
            None => None,
            Some(id) => Some(Process::watch(id).ok_or(Absence::NoProcess(id))?),
        };
        let mut endpoints = Vec::new();
        for case in self.cases() {
            let parts = self.authority_and_path(case);
            let (authority, path) = parts.map_err(|fault| Absence::NotUp(fault.to_string()))?;
            let address: Option<SocketAddr> = authority.to_socket_addrs()?.next();
            let address = address.ok_or_else(|| Absence::NotUp("no address".to_owned()))?;
            let endpoint = Endpoint {
                authority,
                ..Endpoint::new(address, path, None)
            };
            endpoints.push((case, endpoint));
        }
        let mut contestant = Contestant::new(&self.name, process, endpoints);
        contestant.headers.clone_from(&self.headers);
        contestant.tool.clone_from(&self.tool);
        Ok(contestant)
    }
}

fn is_name(text: &str) -> bool {
    let text = text.trim_start();
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_read_with_all_its_parts() {
        let peer: Peer =
            "other=http://localhost:3000/{case}/mcp,pid=17,tool=b_echo,x-tenant: a,b, c,\
                          Authorization: Bearer t"
                .parse()
                .unwrap();
        assert_eq!(
            (peer.process, peer.tool.as_deref()),
            (Some(17), Some("b_echo"))
        );
        assert_eq!(
            peer.headers,
            ["x-tenant: a,b, c", "Authorization: Bearer t"]
        );
        assert_eq!(peer.cases(), Case::ALL);
        let (authority, path) = peer.authority_and_path(Case::Large).unwrap();
        assert_eq!(
            (authority.as_str(), path.as_str()),
            ("localhost:3000", "/json16k/mcp")
        );
    }

    #[test]
    fn one_url_is_for_one_case_and_nobody_has_to_be_watched() {
        let peer: Peer = "other=http://127.0.0.1:3000/mcp".parse().unwrap();
        let contestant = Contestant::peer(&peer).unwrap();
        assert!(contestant.process.is_none());
        assert!(contestant.endpoint(Case::Large).is_none());
        let url = contestant.endpoint(Case::Small).unwrap().url();
        assert_eq!(url, "http://127.0.0.1:3000/mcp");
        let own: Peer = format!("other=http://127.0.0.1:3000/mcp,pid={}", std::process::id())
            .parse()
            .unwrap();
        let watched = Contestant::peer(&own).unwrap().process.unwrap();
        assert!(watched.memory("VmRSS") > 0);
    }

    #[test]
    fn what_is_no_peer_is_refused() {
        for (text, fault) in [
            ("http://127.0.0.1:1/mcp", PeerFault::Name),
            ("nginx=http://127.0.0.1:1/mcp", PeerFault::Name),
            ("a=https://127.0.0.1:1/mcp", PeerFault::Url),
            ("a=http://127.0.0.1:1", PeerFault::Url),
            ("a=http://127.0.0.1/mcp", PeerFault::Url),
            (
                "a=http://127.0.0.1:1/mcp,pid=x",
                PeerFault::Part("pid=x".into()),
            ),
            (
                "a=http://127.0.0.1:1/mcp,what",
                PeerFault::Part("what".into()),
            ),
        ] {
            assert_eq!(text.parse::<Peer>(), Err(fault), "{text}");
        }
    }
}
