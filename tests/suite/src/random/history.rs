// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What was done, for the story of a page that went wrong.

use std::collections::VecDeque;

use super::area::Span;

/// Operations kept. Older ones are forgotten.
const KEPT: usize = 200_000;
/// Operations printed of one page.
const SHOWN: usize = 24;

#[derive(Debug)]
struct Entry {
    index: u64,
    area: usize,
    span: Span,
    what: String,
}

/// The last operations, for the report of a failure.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Entry>);

impl History {
    pub(super) fn add(&mut self, index: u64, area: usize, span: Span, what: String) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Entry {
            index,
            area,
            span,
            what,
        });
    }

    /// The last operations on a page of an area.
    pub(super) fn of_page(&self, area: usize, page: usize) -> String {
        let mut lines: Vec<String> = self
            .0
            .iter()
            .rev()
            .filter(|e| e.area == area && e.span.touches(page))
            .take(SHOWN)
            .map(|e| {
                let Span { first, count, step } = e.span;
                format!(
                    "  {:>7}: {} (word {first}, {count} x {step})",
                    e.index, e.what
                )
            })
            .collect();
        lines.reverse();
        lines.join("\n")
    }

    /// The last operations of all.
    pub(super) fn last(&self) -> String {
        let from = self.0.len().saturating_sub(SHOWN);
        let line = |e: &Entry| format!("  {:>7}: area {}: {}", e.index, e.area, e.what);
        self.0
            .iter()
            .skip(from)
            .map(line)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bad_page_is_told_about() {
        let mut history = History::default();
        for index in 0..100 {
            let span = Span {
                first: 512 * index as usize,
                count: 512,
                step: 1,
            };
            history.add(index, 1, span, format!("write {index}"));
        }
        let story = history.of_page(1, 5);
        assert!(
            story.contains("write 5 ") && story.lines().count() == 1,
            "{story}"
        );
        assert_eq!(history.of_page(2, 5), "");
        assert_eq!(history.last().lines().count(), SHOWN);
    }
}
