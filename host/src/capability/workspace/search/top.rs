//! The first results of a search, in order, however many there are and whichever thread finds which first.

use std::borrow::Borrow;
use std::collections::BinaryHeap;

use parking_lot::Mutex;

/// Keeps the `limit` smallest results and whether there were more: the same ones in every run, in memory that only the
/// limit bounds.
pub(in super::super) struct Top<K, V> {
    limit: usize,
    /// One more than the limit: its presence says that there were more.
    heap: Mutex<BinaryHeap<Ranked<K, V>>>,
}

struct Ranked<K, V> {
    key: K,
    value: V,
}

impl<K: Ord, V> PartialEq for Ranked<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<K: Ord, V> Eq for Ranked<K, V> {}

impl<K: Ord, V> PartialOrd for Ranked<K, V> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord, V> Ord for Ranked<K, V> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<K: Ord, V> Top<K, V> {
    pub(in super::super) fn new(limit: u32) -> Self {
        Self { limit: usize::try_from(limit).unwrap_or(usize::MAX), heap: Mutex::new(BinaryHeap::new()) }
    }

    /// How many are kept.
    pub(in super::super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether a result with this key, or a larger one, could still be among the first ones.
    pub(in super::super) fn wants<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let heap = self.heap.lock();
        heap.len() <= self.limit || heap.peek().is_none_or(|last| key <= last.key.borrow())
    }

    /// Adds a result.
    pub(in super::super) fn offer(&self, key: K, value: V) {
        let mut heap = self.heap.lock();
        heap.push(Ranked { key, value });
        if heap.len() > self.limit.saturating_add(1) {
            heap.pop();
        }
    }

    /// The results in order, and whether there were more.
    pub(in super::super) fn finish(self) -> (Vec<(K, V)>, bool) {
        let mut sorted = self.heap.into_inner().into_sorted_vec();
        let more = sorted.len() > self.limit;
        sorted.truncate(self.limit);
        (sorted.into_iter().map(|ranked| (ranked.key, ranked.value)).collect(), more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(limit: u32, keys: impl IntoIterator<Item = u32>) -> (Vec<u32>, bool) {
        let top = Top::new(limit);
        for key in keys {
            if top.wants(&key) {
                top.offer(key, ());
            }
        }
        let (kept, more) = top.finish();
        (kept.into_iter().map(|(key, ())| key).collect(), more)
    }

    #[test]
    fn the_smallest_are_kept_in_any_order_of_arrival() {
        let expected = (vec![0, 1, 2], true);
        assert_eq!(first(3, 0..1000), expected);
        assert_eq!(first(3, (0..1000).rev()), expected);
        assert_eq!(first(3, (0..1000).map(|n| n * 7919 % 1000)), expected);
    }

    #[test]
    fn exactly_the_limit_is_not_truncated() {
        assert_eq!(first(3, [2, 0, 1]), (vec![0, 1, 2], false));
        assert_eq!(first(3, [2, 0, 1, 3]), (vec![0, 1, 2], true));
        assert_eq!(first(3, []), (vec![], false));
    }
}
