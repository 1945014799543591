//! The Redis key of a user's configuration, byte for byte (contextforge.md section 3.1).

use rmp::encode::{ByteBuf, write_array_len, write_str};

/// The key that the control plane writes for `subject`: MessagePack `["UserConfig", subject]`.
///
/// The named form (a map) is not used by any writer and is a different key.
#[must_use]
pub fn user_key(subject: &str) -> Vec<u8> {
    let mut key = ByteBuf::with_capacity(subject.len() + 16);
    // Writing to memory cannot fail, and the types say so.
    let Ok(_) = write_array_len(&mut key, 2);
    let Ok(()) = write_str(&mut key, "UserConfig");
    let Ok(()) = write_str(&mut key, subject);
    key.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect()
    }

    #[test]
    fn an_email_subject_gives_the_documented_bytes() {
        let expected = bytes(
            "92 aa 55 73 65 72 43 6f 6e 66 69 67 b1 61 64 6d 69 6e 40 65 78 61 6d 70 6c 65 2e 63 \
             6f 6d",
        );
        assert_eq!(expected.len(), 30);
        assert_eq!(user_key("admin@example.com"), expected);
    }

    #[test]
    fn a_uuid_subject_gives_the_documented_bytes() {
        let subject = "123e4567-e89b-12d3-a456-426614174000";
        let mut expected = bytes("92 aa 55 73 65 72 43 6f 6e 66 69 67 d9 24");
        expected.extend_from_slice(subject.as_bytes());
        assert_eq!(expected.len(), 50);
        assert_eq!(user_key(subject), expected);
    }

    #[test]
    fn the_string_header_follows_the_length() {
        for (length, header) in [
            (0, &[0xa0][..]),
            (31, &[0xbf]),
            (32, &[0xd9, 32]),
            (255, &[0xd9, 255]),
            (256, &[0xda, 1, 0]),
            (65535, &[0xda, 255, 255]),
            (65536, &[0xdb, 0, 1, 0, 0]),
        ] {
            let key = user_key(&"s".repeat(length));
            assert_eq!(&key[12..12 + header.len()], header);
            assert_eq!(key.len(), 12 + header.len() + length);
        }
    }
}
