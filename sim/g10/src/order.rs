// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The sort of the GNU C++ library.
//!
//! It is not stable, and where the artifact's keys tie, its plans hang on the
//! order it leaves. So the textbook algorithm with that library's parameters:
//! introspective quicksort on the median of three down to 16 elements, heapsort
//! where the recursion is deep, insertion sort at the end. Comparators that
//! contradict themselves, as the artifact's does, stay within bounds.

/// Ranges up to this long are left to the insertion sort.
const SMALL: usize = 16;

/// Sorts `v` so that `less(a, b)` puts `a` before `b`.
pub(super) fn sort<T: Copy>(v: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) {
    if v.len() > 1 {
        let depth = 2 * v.len().ilog2();
        quick(v, depth, less);
        let first = v.len().min(SMALL);
        for i in 1..first {
            if less(&v[i], &v[0]) {
                v[..=i].rotate_right(1);
            } else {
                insert(v, i, less);
            }
        }
        for i in first..v.len() {
            insert(v, i, less);
        }
    }
}

fn quick<T: Copy>(mut v: &mut [T], mut depth: u32, less: &mut impl FnMut(&T, &T) -> bool) {
    while v.len() > SMALL {
        if depth == 0 {
            return heap(v, less);
        }
        depth -= 1;
        median_to_front(v, less);
        let cut = partition(v, less);
        let (left, right) = v.split_at_mut(cut);
        quick(right, depth, less);
        v = left;
    }
}

/// Swaps the median of the second, the middle and the last element to the front.
fn median_to_front<T: Copy>(v: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) {
    let (a, b, c) = (1, v.len() / 2, v.len() - 1);
    let median = if less(&v[a], &v[b]) {
        if less(&v[b], &v[c]) {
            b
        } else if less(&v[a], &v[c]) {
            c
        } else {
            a
        }
    } else if less(&v[a], &v[c]) {
        a
    } else if less(&v[b], &v[c]) {
        c
    } else {
        b
    };
    v.swap(0, median);
}

/// Parts `v[1..]` around `v[0]`; returns where the second part begins.
fn partition<T: Copy>(v: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) -> usize {
    let pivot = v[0];
    let (mut first, mut last) = (1, v.len());
    loop {
        while first < v.len() - 1 && less(&v[first], &pivot) {
            first += 1;
        }
        last -= 1;
        while last > 0 && less(&pivot, &v[last]) {
            last -= 1;
        }
        if first >= last {
            return first;
        }
        v.swap(first, last);
        first += 1;
    }
}

/// Moves element `i` left to its place.
fn insert<T: Copy>(v: &mut [T], i: usize, less: &mut impl FnMut(&T, &T) -> bool) {
    let value = v[i];
    let mut hole = i;
    while hole > 0 && less(&value, &v[hole - 1]) {
        v[hole] = v[hole - 1];
        hole -= 1;
    }
    v[hole] = value;
}

fn heap<T: Copy>(v: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) {
    for parent in (0..v.len() / 2).rev() {
        let value = v[parent];
        sift(v, parent, value, less);
    }
    for last in (1..v.len()).rev() {
        let value = v[last];
        v[last] = v[0];
        sift(&mut v[..last], 0, value, less);
    }
}

/// Lets the hole at `top` sink to a leaf, then `value` rise from there.
fn sift<T: Copy>(v: &mut [T], top: usize, value: T, less: &mut impl FnMut(&T, &T) -> bool) {
    let mut hole = top;
    let mut child = top;
    while child < (v.len() - 1) / 2 {
        child = 2 * (child + 1);
        if less(&v[child], &v[child - 1]) {
            child -= 1;
        }
        v[hole] = v[child];
        hole = child;
    }
    if v.len() % 2 == 0 && child == (v.len() - 2) / 2 {
        child = 2 * (child + 1);
        v[hole] = v[child - 1];
        hole = child - 1;
    }
    while hole > top {
        let parent = (hole - 1) / 2;
        if !less(&v[parent], &value) {
            break;
        }
        v[hole] = v[parent];
        hole = parent;
    }
    v[hole] = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_like_any_other_sort_and_within_bounds() {
        let mut x = 12345u64;
        for n in 0..600usize {
            let v: Vec<u64> = (0..n)
                .map(|_| {
                    x = x
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    (x >> 33) % (1 + n as u64 / 2)
                })
                .collect();
            let (mut ours, mut heaped, mut theirs) = (v.clone(), v.clone(), v.clone());
            sort(&mut ours, &mut |a, b| a < b);
            heap(&mut heaped, &mut |a, b| a < b);
            theirs.sort_unstable();
            assert_eq!(ours, theirs);
            assert_eq!(heaped, theirs);
            // Nonsense comparators must not reach outside.
            sort(&mut ours.clone(), &mut |_, _| true);
            sort(&mut ours, &mut |_, _| false);
        }
    }
}
