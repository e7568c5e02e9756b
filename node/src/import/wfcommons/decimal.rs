//! Decimal numbers with an exact product: a replayed second is not a rounded one.

use std::fmt;

/// A number from 0 up, as digits and the places after its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    digits: u128,
    places: u32,
}

/// Places of a value, at most.
const MAX_PLACES: u32 = 18;

/// Values stay below this many digits, so that a product of two fits.
const MAX_DIGITS: u128 = 10u128.pow(19);

/// Places of a sleep: microseconds.
const SLEEP_PLACES: u32 = 6;

impl Decimal {
    /// One: recorded times as they are.
    pub const ONE: Decimal = Decimal { digits: 1, places: 0 };

    /// Reads `12`, `0.001` or `1.5e-05`.
    pub fn parse(text: &str) -> Result<Decimal, &'static str> {
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => {
                (&text[..at], text[at + 1..].parse::<i32>().map_err(|_| "the exponent is not a number")?)
            }
            None => (text, 0),
        };
        if mantissa.starts_with('-') {
            return Err("it is negative");
        }
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let joined = format!("{whole}{fraction}");
        if joined.is_empty() || !joined.bytes().all(|b| b.is_ascii_digit()) || whole.is_empty() {
            return Err("it is not a decimal number");
        }
        let mut digits: u128 = joined.parse().map_err(|_| "it has too many digits")?;
        let fraction_places = i32::try_from(fraction.len()).map_err(|_| "it has too many digits")?;
        let mut places = fraction_places.checked_sub(exponent).ok_or("the exponent is too large")?;
        while places > 0 && digits.is_multiple_of(10) {
            digits /= 10;
            places -= 1;
            if digits == 0 {
                places = 0;
            }
        }
        while places < 0 && digits > 0 {
            digits = digits.checked_mul(10).filter(|digits| *digits < MAX_DIGITS).ok_or("it is too large")?;
            places += 1;
        }
        let mut places = u32::try_from(places.max(0)).unwrap_or(0);
        // What is below the last place is far below a microsecond.
        while places > MAX_PLACES || digits >= MAX_DIGITS {
            if places == 0 {
                return Err("it is too large");
            }
            digits /= 10;
            places -= 1;
            if digits == 0 {
                places = 0;
            }
        }
        Ok(Decimal { digits, places })
    }

    /// The exact product.
    pub fn times(self, other: Decimal) -> Result<Decimal, &'static str> {
        let digits = self.digits.checked_mul(other.digits).ok_or("the scaled time is too large")?;
        Ok(Decimal { digits, places: self.places + other.places })
    }

    /// Seconds for `sleep`, rounded to the nearest microsecond.
    pub fn seconds(self) -> String {
        let mut rounded = self;
        if self.places > SLEEP_PLACES {
            let unit = 10u128.pow(self.places - SLEEP_PLACES);
            rounded = Decimal { digits: (self.digits + unit / 2) / unit, places: SLEEP_PLACES };
        }
        rounded.to_string()
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10u128.pow(self.places);
        let (whole, fraction) = (self.digits / unit, self.digits % unit);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{fraction:0width$}", width = self.places as usize);
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

impl std::str::FromStr for Decimal {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Decimal, &'static str> {
        Decimal::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    fn scaled(seconds: &str, scale: &str) -> String {
        let (seconds, scale) = (Decimal::parse(seconds).unwrap(), Decimal::parse(scale).unwrap());
        seconds.times(scale).unwrap().seconds()
    }

    #[test]
    fn products_are_exact_to_the_microsecond() {
        assert_eq!(scaled("1130.461781", "0.001"), "1.130462");
        assert_eq!(scaled("0.035", "1"), "0.035");
        assert_eq!(scaled("1.0", "0.1"), "0.1");
        assert_eq!(scaled("1.5e-05", "1"), "0.000015");
        assert_eq!(scaled("3e2", "2.50"), "750");
        assert_eq!(scaled("0", "0.001"), "0");
        assert_eq!(scaled("0.0000001", "1"), "0");
        assert_eq!(scaled("0.0000005", "1"), "0.000001");
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in
            ["", "-1", "x", "1e99", "1e999999999999", ".5", "1.5.5", "1e", "+1", "99999999999999999999"]
        {
            assert!(Decimal::parse(text).is_err(), "{text}");
        }
        assert!(Decimal::parse("1e-400").is_ok());
    }
}
