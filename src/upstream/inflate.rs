//! Content codings of backends' replies, decoded within a limit (market.md S6). We ask for
//! `identity`; some backends answer otherwise.

use std::io::Read;

use crate::{http::Encoding, upstream::CallFault};

/// Decodes `bytes`, giving up past `bytes_max` decoded bytes.
pub fn inflate(encoding: Encoding, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, CallFault> {
    match encoding {
        Encoding::Identity => Ok(bytes.to_vec()),
        Encoding::Gzip => read_all(flate2::read::MultiGzDecoder::new(bytes), bytes_max),
        // RFC 9110 section 8.4.1.2: zlib; some senders mean raw deflate.
        Encoding::Deflate => read_all(flate2::read::ZlibDecoder::new(bytes), bytes_max).or_else(
            |fault| match fault {
                CallFault::Encoding => {
                    read_all(flate2::read::DeflateDecoder::new(bytes), bytes_max)
                }
                other => Err(other),
            },
        ),
        Encoding::Brotli => read_all(
            brotli_decompressor::Decompressor::new(bytes, 4096),
            bytes_max,
        ),
        Encoding::Unknown => Err(CallFault::Encoding),
    }
}

fn read_all(reader: impl Read, bytes_max: usize) -> Result<Vec<u8>, CallFault> {
    let mut out = Vec::new();
    // One byte past the limit tells "at the limit" from "over it".
    let limit = u64::try_from(bytes_max)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    reader
        .take(limit)
        .read_to_end(&mut out)
        .map_err(|_| CallFault::Encoding)?;
    if out.len() > bytes_max {
        Err(CallFault::TooLarge)
    } else {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn codings_decode() {
        let text = b"{\"a\":1}";
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(text).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        raw.write_all(text).unwrap();
        // "{"a":1}" stored uncompressed by a brotli encoder (RFC 7932).
        let brotli = [
            0x0b, 0x03, 0x80, 0x7b, 0x22, 0x61, 0x22, 0x3a, 0x31, 0x7d, 0x03,
        ];
        for (encoding, bytes) in [
            (Encoding::Identity, text.to_vec()),
            (Encoding::Gzip, gzip(text)),
            (Encoding::Deflate, zlib.finish().unwrap()),
            (Encoding::Deflate, raw.finish().unwrap()),
            (Encoding::Brotli, brotli.to_vec()),
        ] {
            assert_eq!(
                inflate(encoding, &bytes, 100).unwrap(),
                text,
                "{encoding:?}"
            );
        }
    }

    #[test]
    fn bombs_and_damage_are_refused() {
        let bomb = gzip(&vec![b' '; 1 << 20]);
        assert_eq!(
            inflate(Encoding::Gzip, &bomb, 1 << 16),
            Err(CallFault::TooLarge)
        );
        assert_eq!(
            inflate(Encoding::Gzip, b"not gzip", 100),
            Err(CallFault::Encoding)
        );
        assert_eq!(
            inflate(Encoding::Unknown, b"", 100),
            Err(CallFault::Encoding)
        );
        let cut = &gzip(b"hello")[..10];
        assert_eq!(inflate(Encoding::Gzip, cut, 100), Err(CallFault::Encoding));
    }
}
