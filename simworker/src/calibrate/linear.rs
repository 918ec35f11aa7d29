//! Weighted least squares over few unknowns, with how far each unknown may be off.

/// One equation: a time is the sum of the unknowns, each by its coefficient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row<const N: usize> {
    pub(super) coefficients: [f64; N],
    pub(super) ns: f64,
    /// Relative standard error of the time.
    pub(super) error: f64,
}

/// What solves the equations best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Solution<const N: usize> {
    pub(super) values: [f64; N],
    /// Variance of each value, if the errors of the rows are true; 0 for unknowns that are not used.
    pub(super) variances: [f64; N],
}

/// Least squares over relative errors; unknowns that are not `used` are 0. Nothing if the equations do not decide: then
/// a pivot is 0, or something is divided by it.
pub(super) fn solve<const N: usize>(rows: &[Row<N>], used: [bool; N]) -> Option<Solution<N>> {
    // Columns differ by many orders of magnitude, so each is scaled to 1.
    let mut scale = [0.0_f64; N];
    for Row { coefficients, ns, error } in rows {
        for (scale, value) in scale.iter_mut().zip(coefficients) {
            *scale = scale.max((value / ns / error).abs());
        }
    }
    let mut normal = [[0.0; N]; N];
    let mut right = [0.0; N];
    for Row { coefficients, ns, error } in rows {
        let weight = ns * error;
        let row: [f64; N] =
            std::array::from_fn(|i| if used[i] { coefficients[i] / weight / scale[i] } else { 0.0 });
        for (i, value) in row.iter().enumerate() {
            right[i] += value / error;
            for (cell, other) in normal[i].iter_mut().zip(row) {
                *cell += value * other;
            }
        }
    }
    for (i, used) in used.iter().enumerate().filter(|(_, used)| !**used) {
        normal[i][i] = f64::from(u8::from(!used));
    }
    let scaled = eliminate(normal, right)?;
    let mut solution = Solution { values: [0.0; N], variances: [0.0; N] };
    for i in (0..N).filter(|i| used[*i]) {
        let column = eliminate(normal, std::array::from_fn(|at| f64::from(u8::from(at == i))))?;
        solution.values[i] = scaled[i] / scale[i];
        solution.variances[i] = column[i].max(0.0) / scale[i].powi(2);
    }
    let all = solution.values.iter().chain(&solution.variances);
    all.into_iter().all(|value| value.is_finite()).then_some(solution)
}

/// The same with all values at least 0: the most negative one is left out, until none is. Variances are those of the
/// equations with all unknowns, so that a value of 0 is not taken for certain.
pub(super) fn solve_positive<const N: usize>(rows: &[Row<N>], used: [bool; N]) -> Option<Solution<N>> {
    let first = solve(rows, used)?;
    let (mut used, mut values) = (used, first.values);
    while let Some((worst, _)) =
        values.iter().enumerate().filter(|(_, value)| **value < 0.0).min_by(|a, b| a.1.total_cmp(b.1))
    {
        used[worst] = false;
        values = solve(rows, used)?.values;
    }
    Some(Solution { values, ..first })
}

/// Gaussian elimination with pivots; nothing for a matrix that is singular.
fn eliminate<const N: usize>(mut matrix: [[f64; N]; N], mut right: [f64; N]) -> Option<[f64; N]> {
    for column in 0..N {
        let pivot =
            (column..N).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        if matrix[pivot][column].abs() < 1e-12 {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..N {
            let factor = matrix[row][column] / matrix[column][column];
            let above = matrix[column];
            for (cell, above) in matrix[row].iter_mut().zip(above) {
                *cell -= factor * above;
            }
            right[row] -= factor * right[column];
        }
    }
    let mut solution = [0.0; N];
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| matrix[row][column] * solution[column]).sum();
        solution[row] = (right[row] - known) / matrix[row][row];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 1e-9, "{got} for {expected}");
    }

    fn row<const N: usize>(coefficients: [f64; N], ns: f64, error: f64) -> Row<N> {
        Row { coefficients, ns, error }
    }

    #[test]
    fn the_variance_is_that_of_the_rows() {
        // Two looks at one number, each with 1 % of error: 1 % / √2.
        let rows = [row([1.0, 0.0], 100.0, 0.01), row([1.0, 0.0], 100.0, 0.01)];
        let solution = solve(&rows, [true, false]).unwrap();
        near(solution.values[0], 100.0);
        near(solution.variances[0].sqrt(), 1.0 / 2.0_f64.sqrt());
        assert_eq!((solution.values[1], solution.variances[1]), (0.0, 0.0));
        assert_eq!(solve(&rows, [true, true]), None, "nothing is said of the second");
    }

    #[test]
    fn rows_with_small_errors_count_more() {
        let rows = [row([1.0], 100.0, 0.01), row([1.0], 200.0, 1e-5)];
        let value = solve(&rows, [true]).unwrap().values[0];
        assert!((199.0..=200.0).contains(&value), "{value}");
    }

    #[test]
    fn what_would_be_negative_is_nothing_and_not_certain() {
        // y = 10 − 1·x, of which a step time makes y = 8 or so.
        let rows =
            [([1.0, 1.0], 9.0), ([1.0, 2.0], 8.0), ([1.0, 3.0], 7.0)].map(|(by, ns)| row(by, ns, 0.01));
        let solution = solve_positive(&rows, [true, true]).unwrap();
        assert_eq!(solution.values[1], 0.0);
        assert!((7.0..9.0).contains(&solution.values[0]) && solution.variances[1] > 0.0, "{solution:?}");
    }
}
