// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A linear program over integers.

/// What is to be minimised, and under what.
#[derive(Clone, Debug, Default)]
pub struct Lp {
    /// The unknowns, by their numbers.
    pub columns: Vec<Column>,
    /// What must hold of them.
    pub rows: Vec<Row>,
}

/// An unknown: a number from `low` to `high`, each unit of which costs `cost`.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// What a unit costs.
    pub cost: i64,
    /// The least that it can be.
    pub low: i64,
    /// The most that it can be.
    pub high: i64,
    /// A power of two that such unknowns are of the order of; for the solver's arithmetic alone.
    pub order: u32,
}

/// The sum of some unknowns, each times a number, is no less than `least`.
#[derive(Clone, Debug)]
pub struct Row {
    /// Columns, each once, and what each is multiplied with.
    pub terms: Vec<(usize, i64)>,
    /// The least that the sum can be.
    pub least: i64,
}

impl Lp {
    /// Adds an unknown; returns its number.
    pub fn column(&mut self, column: Column) -> usize {
        self.columns.push(column);
        self.columns.len() - 1
    }

    /// Adds a row, whose terms name each column once.
    pub fn row(&mut self, terms: impl IntoIterator<Item = (usize, i64)>, least: i64) {
        let terms = terms.into_iter().collect();
        self.rows.push(Row { terms, least });
    }
}
