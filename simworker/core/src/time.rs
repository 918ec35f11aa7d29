//! Exact time: nanoseconds with a binary fraction.
//!
//! A decode step costs a fraction of a nanosecond more with every token of context. Sums of such steps must be the
//! same whether they are added one by one or in closed form, so time is an integer of 2⁻³² ns and never a float.

use std::ops::{Add, AddAssign, Div, Mul};

/// Bits behind the binary point.
const FRACTION_BITS: u32 = 32;

/// A moment since the start of the run, or a span, in units of 2⁻³² ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticks(u128);

impl Ticks {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Whole nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self((ns as u128) << FRACTION_BITS)
    }

    /// The nearest tick to `seconds` (at least 0 and below 500 days).
    #[must_use]
    pub(crate) const fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e9 * (1u64 << FRACTION_BITS) as f64 + 0.5) as u128)
    }

    /// The nearest tick to `factor` times this span; itself if that is 1.
    #[must_use]
    pub(crate) fn scaled(self, factor: f64) -> Self {
        if factor == 1.0 { self } else { Self((self.0 as f64 * factor + 0.5) as u128) }
    }

    /// The nanosecond it lies in.
    #[must_use]
    pub const fn ns(self) -> u64 {
        (self.0 >> FRACTION_BITS) as u64
    }

    /// The time from `earlier` to here, none if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Ticks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Ticks {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Mul<u64> for Ticks {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0 * u128::from(times))
    }
}

/// Rounded down.
impl Div<u64> for Ticks {
    type Output = Self;
    fn div(self, by: u64) -> Self {
        Self(self.0 / u128::from(by))
    }
}
