// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What prices of a linear program's rows prove, reckoned in integers.
//!
//! Take prices `y`, none negative. Where all rows hold, `y * (A x - b)` is not negative, so that the cost
//! `c * x` is at least `y * b + (c - y * A) * x`. Of the last product each unknown's part is least at
//! one of its two ends. So the sum of `y * b` and of these least parts is below every cost, whatever the
//! prices are and wherever they come from.

use crate::lp::Lp;

/// Fractions of prices, as bits.
pub const BITS: u32 = 40;

/// What `prices` of the rows, in units of 2^-[`BITS`], prove to be below the least cost; `None` if they
/// prove nothing: their number is wrong, one is negative, or a sum is out of range.
pub fn proven(lp: &Lp, prices: &[i64]) -> Option<i128> {
    if prices.len() != lp.rows.len() || prices.iter().any(|&y| y < 0) {
        return None;
    }
    // What a unit of each unknown costs beyond what the rows pay for it.
    let costs = lp.columns.iter().map(|c| i128::from(c.cost) << BITS);
    let mut reduced: Vec<i128> = costs.collect();
    let mut total: i128 = 0;
    for (row, &y) in lp.rows.iter().zip(prices) {
        let y = i128::from(y);
        total = total.checked_add(y.checked_mul(row.least.into())?)?;
        for &(column, factor) in &row.terms {
            let paid = y.checked_mul(factor.into())?;
            let left = reduced.get_mut(column)?;
            *left = left.checked_sub(paid)?;
        }
    }
    for (column, d) in lp.columns.iter().zip(reduced) {
        if column.low > column.high {
            return None;
        }
        let at_low = d.checked_mul(column.low.into())?;
        let at_high = d.checked_mul(column.high.into())?;
        total = total.checked_add(at_low.min(at_high))?;
    }
    Some(total >> BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lp::Column;
    use crate::solve;

    /// The least cost over whole numbers, by trying all.
    fn brute_force(lp: &Lp) -> Option<i128> {
        let mut at: Vec<i64> = lp.columns.iter().map(|c| c.low).collect();
        let mut least = None;
        loop {
            let sum = |terms: &[(usize, i64)]| terms.iter().map(|&(j, f)| f * at[j]).sum::<i64>();
            if lp.rows.iter().all(|r| sum(&r.terms) >= r.least) {
                let cost = lp.columns.iter().zip(&at).map(|(c, x)| c.cost * x);
                let cost = i128::from(cost.sum::<i64>());
                least = Some(least.map_or(cost, |l: i128| l.min(cost)));
            }
            let mut j = 0;
            while j < at.len() && at[j] == lp.columns[j].high {
                at[j] = lp.columns[j].low;
                j += 1;
            }
            if j == at.len() {
                return least;
            }
            at[j] += 1;
        }
    }

    fn small() -> impl Strategy<Value = Lp> {
        let column = (0i64..9, -2i64..2, 0i64..4).prop_map(|(cost, low, more)| Column {
            cost,
            low,
            high: low + more,
            order: 0,
        });
        let columns = prop::collection::vec(column, 1..5);
        columns.prop_flat_map(|columns| {
            let factors = prop::collection::vec(-4i64..5, columns.len());
            let rows = prop::collection::vec((factors, -6i64..9), 0..5);
            rows.prop_map(move |rows| {
                let mut lp = Lp {
                    columns: columns.clone(),
                    rows: Vec::new(),
                };
                for (factors, least) in rows {
                    lp.row(factors.into_iter().enumerate(), least);
                }
                lp
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Whatever the prices, nothing dearer than the least cost is proven.
        #[test]
        fn no_prices_prove_too_much(lp in small(), prices in prop::collection::vec(0i64..4 << BITS, 5)) {
            let proven = proven(&lp, &prices[..lp.rows.len()]);
            prop_assert!(proven.is_some());
            if let (Some(proven), Some(least)) = (proven, brute_force(&lp)) {
                prop_assert!(proven <= least, "{proven} {least}");
            }
        }

        /// The solver's prices prove its claim, but for rounding: the check is no weaker than it need be.
        #[test]
        fn the_solver_s_prices_prove_what_it_claims(lp in small()) {
            let Some(least) = brute_force(&lp) else { return Ok(()) };
            let Some(solved) = solve::prices(&lp) else {
                return Err(TestCaseError::fail("no prices"));
            };
            let proven = proven(&lp, &solved.prices);
            prop_assert!(proven.is_some_and(|p| p <= least));
            prop_assert!(proven.is_some_and(|p| p as f64 >= solved.claimed.floor() - 1.0), "{proven:?} {}", solved.claimed);
        }
    }

    #[test]
    fn what_is_no_price_proves_nothing() {
        let mut lp = Lp::default();
        let x = lp.column(Column {
            cost: 3,
            low: 0,
            high: 10,
            order: 0,
        });
        lp.row([(x, 2)], 4);
        let three_halves = 3 << (BITS - 1);
        assert_eq!(proven(&lp, &[three_halves]), Some(6));
        assert_eq!(proven(&lp, &[0]), Some(0));
        // A unit is paid more than it costs: ten of them are what is lost.
        assert_eq!(proven(&lp, &[2 << BITS]), Some(8 - 10));
        assert_eq!(proven(&lp, &[-1]), None);
        assert_eq!(proven(&lp, &[]), None);
    }
}
