//! What callers do: the methods of MCP, how often each, and what its reply must be.

use std::str::FromStr;

use crate::{era::Era, random::Random, units::parse_bytes};

/// A method a caller can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// A new session in place of the caller's; the old one is ended with DELETE.
    Initialize,
    /// `ping`.
    Ping,
    /// `tools/list`.
    ListTools,
    /// `tools/call`.
    CallTool,
    /// `resources/list`.
    ListResources,
    /// `resources/read`.
    ReadResource,
    /// `prompts/list`.
    ListPrompts,
    /// `prompts/get`.
    GetPrompt,
    /// `server/discover`.
    Discover,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Initialize,
        Self::Ping,
        Self::ListTools,
        Self::CallTool,
        Self::ListResources,
        Self::ReadResource,
        Self::ListPrompts,
        Self::GetPrompt,
        Self::Discover,
    ];

    /// Its name in messages (mcp.md 3).
    pub fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::ListTools => "tools/list",
            Self::CallTool => "tools/call",
            Self::ListResources => "resources/list",
            Self::ReadResource => "resources/read",
            Self::ListPrompts => "prompts/list",
            Self::GetPrompt => "prompts/get",
            Self::Discover => "server/discover",
        }
    }

    /// Whether clients of this era have it.
    pub fn is_of(self, era: Era) -> bool {
        match self {
            Self::Initialize | Self::Ping => era == Era::Legacy,
            Self::Discover => era == Era::Stateless,
            _ => true,
        }
    }

    /// Whether a stateless result must say how long it may be kept (mcp.md 2.5).
    pub(crate) fn can_be_kept(self) -> bool {
        !matches!(self, Self::CallTool | Self::GetPrompt)
    }

    /// The parameter that says of what, where there is one.
    pub(crate) fn target_key(self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::GetPrompt => Some("name"),
            Self::ReadResource => Some("uri"),
            _ => None,
        }
    }

    fn list() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|method| method.name() == text);
        found.ok_or_else(|| format!("`{text}` is no method; there are {}", Self::list()))
    }
}

/// What replies must be beside no error, with the right id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// Nothing more.
    #[default]
    Success,
    /// JSON of this size, give or take 32 bytes (a gateway puts its own ids in).
    Bytes(usize),
    /// The number after the last one of the session (`increment` of a counter).
    Counter,
    /// The text that was sent as the argument `text`.
    Echo,
}

/// Sizes of a payload, evenly over their orders of magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Smallest, bytes.
    pub min: usize,
    /// Largest, bytes.
    pub max: usize,
}

impl Sizes {
    /// Largest payload sent.
    pub const BYTES_MAX: usize = 4 * 1024 * 1024;

    /// The next one.
    pub(crate) fn draw(self, random: &mut Random) -> usize {
        if self.min == self.max {
            return self.min;
        }
        let (min, max) = ((self.min + 1) as f64, (self.max + 1) as f64);
        let size = min * (max / min).powf(random.unit());
        (size as usize).saturating_sub(1).clamp(self.min, self.max)
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let sizes = parse_bytes(min).zip(parse_bytes(max));
        sizes
            .map(|(min, max)| Self { min, max })
            .filter(|sizes| sizes.min <= sizes.max && sizes.max <= Self::BYTES_MAX)
            .ok_or_else(|| format!("`{text}` is no size (write 200, 16k, or 64..64k; up to 4m)"))
    }
}

/// One kind of thing callers do.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Name in reports.
    pub name: String,
    /// What it is.
    pub method: Method,
    /// Tool or prompt name, or resource URI.
    pub target: String,
    /// Arguments of a tool or prompt, a JSON object.
    pub arguments: String,
    /// Bytes of the argument `text`, in place of what `arguments` has.
    pub payload: Option<Sizes>,
    /// What replies must be.
    pub check: Check,
    /// How often, against the other operations.
    pub weight: f64,
}

impl Operation {
    /// The method with its own name, no arguments and weight 1.
    pub fn of(method: Method) -> Self {
        Self {
            name: method.name().to_owned(),
            method,
            target: match method {
                Method::CallTool => "echo".to_owned(),
                Method::GetPrompt => "prompt_001".to_owned(),
                Method::ReadResource => "sample:///resource/1".to_owned(),
                _ => String::new(),
            },
            arguments: "{}".to_owned(),
            payload: None,
            check: Check::default(),
            weight: 1.0,
        }
    }
}

/// Draws operations by weight.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    /// Sums of the weights up to and including each.
    sums: Vec<f64>,
}

impl Mix {
    pub(crate) fn new(operations: &[Operation]) -> Self {
        let mut sum = 0.0;
        let sums = operations.iter().map(|operation| {
            sum += operation.weight;
            sum
        });
        Self {
            sums: sums.collect(),
        }
    }

    /// The number of the next operation.
    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        if self.sums.len() < 2 {
            return 0;
        }
        let whole = self.sums.last().copied().unwrap_or_default();
        let at = random.unit() * whole;
        // The draw is below the last sum; a rounding could make it equal.
        let found = self.sums.partition_point(|sum| *sum <= at);
        found.min(self.sums.len() - 1)
    }
}

/// Reads `tools/call=90,tools/list=5,initialize=5`.
pub fn parse_mix(text: &str) -> Result<Vec<(Method, f64)>, String> {
    let mut mix: Vec<(Method, f64)> = Vec::new();
    for part in text.split(',') {
        let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
        let method: Method = name.trim().parse()?;
        let weight: f64 = weight
            .trim()
            .parse()
            .ok()
            .filter(|weight: &f64| weight.is_finite() && *weight > 0.0)
            .ok_or_else(|| format!("`{weight}` is no weight of {name}: a number above 0"))?;
        if mix.iter().any(|(known, _)| *known == method) {
            return Err(format!("{name} stands twice"));
        }
        mix.push((method, weight));
    }
    Ok(mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_and_kept() {
        let mix = parse_mix("tools/call=90, tools/list=5,ping").unwrap();
        assert_eq!(
            mix,
            [
                (Method::CallTool, 90.0),
                (Method::ListTools, 5.0),
                (Method::Ping, 1.0)
            ]
        );
        for text in ["", "x=1", "ping=0", "ping=-1", "ping=nan", "ping=1,ping=2"] {
            assert!(parse_mix(text).is_err(), "{text}");
        }
        let operations: Vec<_> = mix
            .iter()
            .map(|(method, weight)| Operation {
                weight: *weight,
                ..Operation::of(*method)
            })
            .collect();
        let (mix, mut random, mut counts) = (Mix::new(&operations), Random::new(1), [0_u32; 3]);
        for _ in 0..96_000 {
            counts[mix.draw(&mut random)] += 1;
        }
        assert!(counts[0].abs_diff(90_000) < 800, "{counts:?}");
        assert!(counts[1].abs_diff(5_000) < 700, "{counts:?}");
    }

    #[test]
    fn sizes_spread_over_their_magnitudes() {
        assert_eq!(
            "16k".parse(),
            Ok(Sizes {
                min: 16_384,
                max: 16_384
            })
        );
        let sizes: Sizes = "64..64k".parse().unwrap();
        let mut random = Random::new(1);
        let drawn: Vec<_> = (0..10_000).map(|_| sizes.draw(&mut random)).collect();
        assert!(drawn.iter().all(|size| (64..=65_536).contains(size)));
        // Half of them below the geometric mean, 2048.
        let small = drawn.iter().filter(|size| **size < 2048).count();
        assert!(small.abs_diff(5000) < 500, "{small}");
        for text in ["", "x", "64k..64", "5m", "1..2..3"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
        assert_eq!(Sizes { min: 0, max: 0 }.draw(&mut random), 0);
    }

    #[test]
    fn every_method_is_found_by_its_name() {
        for method in Method::ALL {
            assert_eq!(method.name().parse(), Ok(method));
        }
        assert!(
            "tools/calls"
                .parse::<Method>()
                .unwrap_err()
                .contains("tools/call,")
        );
    }
}
