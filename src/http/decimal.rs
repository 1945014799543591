//! Numbers as they are written in heads, ids and events: decimal, without the formatting machinery
//! and without memory of their own.

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// A number in decimal.
#[derive(Debug, Clone, Copy)]
pub struct Decimal {
    digits: [u8; DIGITS_MAX],
    start: u8,
}

impl Decimal {
    /// Of this number.
    pub fn new(number: u64) -> Self {
        let mut digits = [0; DIGITS_MAX];
        let mut at = DIGITS_MAX;
        let mut rest = number;
        loop {
            at -= 1;
            // A digit is below 10.
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Self {
            digits,
            // Below 20.
            start: at as u8,
        }
    }

    /// Its digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[usize::from(self.start)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for number in [0, 7, 10, 999, 65_535, u64::MAX] {
            let text = number.to_string();
            assert_eq!(Decimal::new(number).as_bytes(), text.as_bytes());
        }
    }
}
