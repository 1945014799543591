//! How many stateless requests run at a time on this shard: in all, and for one principal.
//!
//! The total of the process is shared out evenly among the shards; the share of a principal counts
//! on each shard by itself, because one connection is served by one shard.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

type Counts = HashMap<[u8; 16], usize, foldhash::fast::RandomState>;

/// The counts of one kind of thing.
#[derive(Debug)]
pub struct Permits {
    total_max: usize,
    per_principal_max: usize,
    total: Cell<usize>,
    by_principal: RefCell<Counts>,
}

/// One that is held, free again when dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Rc<Permits>,
    principal: Option<[u8; 16]>,
}

impl Permits {
    /// None taken.
    pub fn new(total_max: usize, per_principal_max: usize) -> Self {
        Self {
            total_max,
            per_principal_max,
            total: Cell::new(0),
            by_principal: RefCell::default(),
        }
    }

    /// One more, for a principal if its share counts; `None`: there are too many.
    pub fn take(self: &Rc<Self>, principal: Option<&[u8; 16]>) -> Option<Permit> {
        if self.total.get() >= self.total_max {
            return None;
        }
        if let Some(principal) = principal {
            let mut counts = self.by_principal.borrow_mut();
            let count = counts.entry(*principal).or_insert(0);
            if *count >= self.per_principal_max {
                return None;
            }
            *count += 1;
        }
        self.total.set(self.total.get() + 1);
        Some(Permit {
            permits: self.clone(),
            principal: principal.copied(),
        })
    }

    /// How many are held.
    pub fn held(&self) -> usize {
        self.total.get()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.total.set(self.permits.total.get() - 1);
        if let Some(principal) = self.principal {
            let mut counts = self.permits.by_principal.borrow_mut();
            if let Some(count) = counts.get_mut(&principal) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&principal);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_and_given_back() {
        let permits = Rc::new(Permits::new(3, 2));
        let (a, b) = ([1; 16], [2; 16]);
        let first = permits.take(Some(&a)).unwrap();
        let second = permits.take(Some(&a)).unwrap();
        assert!(permits.take(Some(&a)).is_none());
        let third = permits.take(None).unwrap();
        assert!(permits.take(Some(&b)).is_none());
        drop(first);
        let fourth = permits.take(Some(&b)).unwrap();
        assert_eq!(permits.held(), 3);
        drop((second, third, fourth));
        assert_eq!(permits.held(), 0);
        assert!(permits.by_principal.borrow().is_empty());
    }
}
