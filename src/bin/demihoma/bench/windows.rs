//! What short windows of one run tell: medians, since some of them are disturbed.

/// One figure, window by window.
#[derive(Clone, Debug, Default)]
pub struct Windows(Vec<f64>);

impl Windows {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Not a number if there are none.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 1 => sorted[len / 2],
            len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
        }
    }

    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    /// Window by window, how many times the other figure this one is.
    pub fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(values: &[f64]) -> Windows {
        Windows(values.to_vec())
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(windows(&[9.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(windows(&[9.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert!(windows(&[]).median().is_nan());
    }

    #[test]
    fn a_ratio_is_taken_within_each_window() {
        let ratio = windows(&[4.0, 40.0, 6.0]).over(&windows(&[2.0, 20.0, 2.0]));
        assert_eq!((ratio.median(), ratio.least()), (2.0, 2.0));
    }
}
