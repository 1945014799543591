//! Mutations of bytes from a fixed seed: flips, splices, repeats, numbers, tokens that readers trip
//! over. The same seed gives the same sequence on every machine.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

/// No mutation makes an input longer than this.
const BYTES_MAX: usize = 4096;

/// What parsers of the kinds we have are sensitive to.
const TOKENS: [&[u8]; 46] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\0",
    b"\t",
    b" ",
    b":",
    b";",
    b",",
    b"-",
    b"+",
    b"0x",
    b"\x0b",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xc2\xa0",
    b"\xef\xbb\xbf",
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"-0",
    b"1e400",
    b"\"id\":1,",
    b"\"name\":\"x\",",
    b"18446744073709551616",
    b"4294967295",
    b"ffffffffffffffff",
    b"%00",
    b"%2f",
    b"..",
    b"#",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"chunked",
    b"data: ",
    b"$-1\r\n",
    b"*1\r\n",
];

/// Makes changed copies of seeds.
pub struct Mutator(u64);

impl Mutator {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`, which is not 0 (xorshift64*).
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % bound
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A copy of one of the seeds with one to four changes.
    pub fn mutant(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.pick(seeds).clone();
        for _ in 0..1 + self.below(4) {
            self.change(&mut bytes, seeds);
        }
        bytes
    }

    /// A copy of one of the seeds with one change.
    pub fn near_mutant(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.pick(seeds).clone();
        self.change(&mut bytes, seeds);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let (from, to) = self.range(bytes.len());
        match self.below(10) {
            0 if !bytes.is_empty() => {
                let at = self.below(bytes.len());
                bytes[at] ^= 1 << self.below(8);
            }
            1 if !bytes.is_empty() => {
                let at = self.below(bytes.len());
                bytes[at] = u8::try_from(self.below(256)).unwrap();
            }
            2 => drop(bytes.drain(from..to)),
            3 => {
                let piece = bytes[from..to].to_vec();
                let count = 1 + self.below(4);
                bytes.splice(from..from, piece.repeat(count));
            }
            4 => {
                let other = self.pick(seeds).clone();
                let (start, end) = self.range(other.len());
                bytes.splice(from..to, other[start..end].iter().copied());
            }
            5 => bytes.truncate(from),
            6 => self.change_number(bytes),
            7 if !bytes.is_empty() => {
                let at = self.below(bytes.len());
                let count = 1 + self.below(40);
                bytes.splice(at..at, vec![bytes[at]; count]);
            }
            8 => {
                let piece: Vec<u8> = bytes.drain(from..to).collect();
                let at = self.below(bytes.len() + 1);
                bytes.splice(at..at, piece);
            }
            _ => {
                let token = *self.pick(&TOKENS);
                bytes.splice(from..from, token.iter().copied());
            }
        }
        bytes.truncate(BYTES_MAX);
    }

    /// A range that is short more often than not.
    fn range(&mut self, len: usize) -> (usize, usize) {
        let from = self.below(len + 1);
        let longest = if self.below(4) == 0 { len } else { len.min(12) };
        (from, (from + self.below(longest + 1)).min(len))
    }

    /// Writes another number where one stands.
    fn change_number(&mut self, bytes: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..bytes.len())
            .filter(|at| bytes[*at].is_ascii_digit())
            .filter(|at| *at == 0 || !bytes[*at - 1].is_ascii_digit())
            .collect();
        if starts.is_empty() {
            return;
        }
        let start = *self.pick(&starts);
        let digits = bytes[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        let end = start + digits.count();
        let old: u64 = std::str::from_utf8(&bytes[start..end])
            .ok()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0);
        let new = match self.below(7) {
            0 => old.wrapping_add(1).to_string(),
            1 => old.wrapping_sub(1).to_string(),
            2 => format!("0{old}"),
            3 => format!("-{old}"),
            4 => (1_u64 << self.below(64)).to_string(),
            5 => format!("{old}{old}"),
            _ => self.below(12).to_string(),
        };
        bytes.splice(start..end, new.into_bytes());
    }
}
