// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Boxes and arrays: against the standard library's, with allocations that fail.

use kernel::alloc::{flags::GFP_KERNEL, AllocError, KBox, KVVec, KVec};
use kernel::testing;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

/// Counts how many there are.
#[derive(Debug)]
struct Counted(Rc<Cell<i64>>, u64);

impl Counted {
    fn new(alive: &Rc<Cell<i64>>, value: u64) -> Self {
        alive.set(alive.get() + 1);
        Self(alive.clone(), value)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(&self.0, self.1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(u64),
    Reserve(usize),
    Extend(usize, u64),
    Truncate(usize),
    FailAfter(u32),
    FailNever,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<u64>().prop_map(Op::Push),
        1 => (0..40_usize).prop_map(Op::Reserve),
        2 => (0..20_usize, any::<u64>()).prop_map(|(n, v)| Op::Extend(n, v)),
        2 => (0..60_usize).prop_map(Op::Truncate),
        1 => (0..2_u32).prop_map(Op::FailAfter),
        2 => Just(Op::FailNever),
    ]
}

fn values(v: &[Counted]) -> Vec<u64> {
    v.iter().map(|c| c.1).collect()
}

/// Runs the same on both, and compares after each step. Where ours fails, it has changed
/// nothing.
fn agrees(ops: &[Op]) -> Result<(), TestCaseError> {
    let alive = Rc::new(Cell::new(0));
    testing::fail_never();
    let held = testing::held();
    let mut ours = KVVec::new();
    let mut model = Vec::new();
    for op in ops {
        match *op {
            Op::Push(v) => {
                let room = ours.capacity() > ours.len();
                match ours.push(Counted::new(&alive, v), GFP_KERNEL) {
                    Ok(()) => model.push(v),
                    Err(AllocError) => prop_assert!(!room),
                }
            }
            Op::Reserve(n) => {
                if ours.reserve(n, GFP_KERNEL).is_ok() {
                    prop_assert!(ours.capacity() >= ours.len() + n);
                }
            }
            Op::Extend(n, v) => {
                if ours
                    .extend_with(n, Counted::new(&alive, v), GFP_KERNEL)
                    .is_ok()
                {
                    model.extend(std::iter::repeat_n(v, n));
                }
            }
            Op::Truncate(n) => {
                while ours.len() > n {
                    let last = ours.len() - 1;
                    // SAFETY: Element `last` is initialised, and not looked at again.
                    unsafe {
                        ours.set_len(last);
                        ours.as_mut_ptr().add(last).drop_in_place();
                    }
                }
                model.truncate(n);
            }
            Op::FailAfter(n) => testing::fail_after(n),
            Op::FailNever => testing::fail_never(),
        }
        prop_assert_eq!(values(&ours), model.clone());
        prop_assert_eq!(alive.get(), model.len() as i64);
    }
    testing::fail_never();
    prop_assert!(testing::held() <= held + 1);
    drop(ours);
    prop_assert_eq!((alive.get(), testing::held()), (0, held));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn an_array_is_as_the_standard_librarys(ops in proptest::collection::vec(op(), 0..60)) {
        agrees(&ops)?;
    }
}

#[test]
fn pushing_one_by_one_moves_each_element_a_few_times_only() {
    let (mut v, mut moved) = (KVec::new(), 0);
    for i in 0..1000_u32 {
        let before = v.capacity();
        v.push(i, GFP_KERNEL).unwrap();
        if v.capacity() != before {
            moved += v.len();
        }
    }
    assert!(moved < 3 * 1000, "{moved}");
}

#[test]
fn what_is_too_large_fails() {
    assert_eq!(
        KVVec::<u64>::with_capacity(usize::MAX, GFP_KERNEL).err(),
        Some(AllocError)
    );
    assert_eq!(
        KVVec::<u64>::with_capacity(usize::MAX / 8, GFP_KERNEL).err(),
        Some(AllocError)
    );
    let mut v = KVVec::new();
    v.push(1_u8, GFP_KERNEL).unwrap();
    assert_eq!(v.reserve(usize::MAX, GFP_KERNEL), Err(AllocError));
    assert_eq!(v.as_slice(), [1]);
}

#[test]
fn what_has_no_size_needs_no_memory() {
    testing::fail_after(0);
    let mut v = KVec::new();
    for _ in 0..100 {
        v.push((), GFP_KERNEL).unwrap();
    }
    assert_eq!((v.len(), v.capacity()), (100, usize::MAX));
    assert_eq!(v.reserve(usize::MAX, GFP_KERNEL), Err(AllocError));
    let unit = KBox::new((), GFP_KERNEL).unwrap();
    KBox::into_inner(unit);
    testing::fail_never();
}

#[test]
fn what_must_be_aligned_is() {
    #[repr(align(64))]
    struct Line([u8; 48]);
    #[repr(align(4096))]
    struct Page(#[allow(dead_code)] u8);
    for n in 1..20 {
        let mut v = KVVec::with_capacity(n, GFP_KERNEL).unwrap();
        v.push(Line([7; 48]), GFP_KERNEL).unwrap();
        assert_eq!(v.as_ptr() as usize % 64, 0, "{n}");
        assert_eq!(v[0].0, [7; 48]);
    }
    let page = KBox::new(Page(1), GFP_KERNEL).unwrap();
    assert_eq!(&*page as *const Page as usize % 4096, 0);
    #[repr(align(8192))]
    struct Pages(#[allow(dead_code)] u8);
    assert!(KBox::new(Pages(1), GFP_KERNEL).is_err());
}

#[test]
fn a_box_owns_its_value() {
    let alive = Rc::new(Cell::new(0));
    let b = KBox::new(Counted::new(&alive, 5), GFP_KERNEL).unwrap();
    let raw = KBox::into_raw(b);
    assert!(testing::is_allocated(raw) && alive.get() == 1);
    // SAFETY: It is from `into_raw`, and taken once.
    let b = unsafe { KBox::from_raw(raw) };
    let value = KBox::into_inner(b);
    assert!(!testing::is_allocated(raw) && alive.get() == 1 && value.1 == 5);
    let mut cell = KBox::write(KBox::new_uninit(GFP_KERNEL).unwrap(), value);
    cell.1 = 6;
    assert_eq!(cell.1, 6);
    drop(cell);
    assert_eq!(alive.get(), 0);
    testing::fail_after(0);
    assert!(KBox::new(Counted::new(&alive, 5), GFP_KERNEL).is_err());
    testing::fail_never();
    assert_eq!(alive.get(), 0);
}
