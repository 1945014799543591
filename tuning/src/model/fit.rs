//! Linear least squares with a few unknowns that cannot be negative.

/// Rows have a weight on each unknown; the right-hand sides are `wanted`. Tries every set of
/// unknowns (the others are 0) and takes the one without negative ones that leaves least. The first
/// unknown is always in.
pub(super) fn non_negative<const N: usize>(
    rows: &[[f64; N]],
    wanted: &[f64],
) -> Option<([f64; N], f64)> {
    let mut best: Option<([f64; N], f64)> = None;
    for set in 0..1_usize << (N - 1) {
        let columns: Vec<usize> = (0..N)
            .filter(|column| *column == 0 || set >> (column - 1) & 1 == 1)
            .collect();
        if columns.len() > rows.len() {
            continue;
        }
        let Some(solution) = solve(rows, wanted, &columns) else {
            continue;
        };
        if solution.iter().any(|value| *value < 0.0) {
            continue;
        }
        let left = squares(rows, wanted, &solution);
        // A further unknown has to explain something.
        if best.is_none_or(|(_, least)| left < least * (1.0 - 1e-9)) {
            best = Some((solution, left));
        }
    }
    best
}

/// What a solution leaves unexplained: the sum of squares.
fn squares<const N: usize>(rows: &[[f64; N]], wanted: &[f64], solution: &[f64; N]) -> f64 {
    rows.iter()
        .zip(wanted)
        .map(|(row, wanted)| {
            let found: f64 = row.iter().zip(solution).map(|(a, b)| a * b).sum();
            (found - wanted).powi(2)
        })
        .sum()
}

/// The normal equations of some columns, by Gaussian elimination with pivots.
fn solve<const N: usize>(rows: &[[f64; N]], wanted: &[f64], columns: &[usize]) -> Option<[f64; N]> {
    let size = columns.len();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for (row, wanted) in rows.iter().zip(wanted) {
        for (line, one) in matrix.iter_mut().zip(columns) {
            for (cell, other) in line.iter_mut().zip(columns) {
                *cell += row[*one] * row[*other];
            }
            line[size] += row[*one] * wanted;
        }
    }
    for pivot in 0..size {
        let largest = (pivot..size)
            .max_by(|a, b| f64::total_cmp(&matrix[*a][pivot].abs(), &matrix[*b][pivot].abs()))?;
        matrix.swap(pivot, largest);
        let head = matrix[pivot][pivot];
        if head.abs() < 1e-12 {
            return None;
        }
        for line in 0..size {
            if line != pivot {
                let factor = matrix[line][pivot] / head;
                let source = matrix[pivot].clone();
                for (cell, value) in matrix[line].iter_mut().zip(&source) {
                    *cell -= factor * value;
                }
            }
        }
    }
    let mut solution = [0.0; N];
    for (index, column) in columns.iter().enumerate() {
        solution[*column] = matrix[index][size] / matrix[index][index];
    }
    solution
        .iter()
        .all(|value| value.is_finite())
        .then_some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_lines_are_found_and_negative_slopes_are_not() {
        let rows: Vec<[f64; 2]> = (0..5).map(|x| [1.0, f64::from(x)]).collect();
        let up: Vec<f64> = (0..5).map(|x| 3.0 + 2.0 * f64::from(x)).collect();
        let (solution, left) = non_negative(&rows, &up).unwrap();
        assert!((solution[0] - 3.0).abs() < 1e-9 && (solution[1] - 2.0).abs() < 1e-9);
        assert!(left < 1e-9);
        let down: Vec<f64> = (0..5).map(|x| 9.0 - f64::from(x)).collect();
        let (solution, left) = non_negative(&rows, &down).unwrap();
        assert!((solution[0] - 7.0).abs() < 1e-9 && solution[1] == 0.0);
        assert!((left - 10.0).abs() < 1e-9);
        assert!(non_negative::<2>(&[], &[]).is_none());
    }
}
