//! The merges of a word of many symbols, in the order of BytePairs and in a time near to linear.

use crate::byte_pairs::{BytePairs, NONE};
use ahash::{AHashMap, RandomState};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

struct Symbol {
    id: u32,
    previous: u32,
    next: u32,
    rank: u32, // of the pair of this symbol and the next one; NONE in a symbol that was merged away
}

/// A word of many symbols: the places of its pairs by rank. Places that came before the first look at a rank are
/// sorted then; later ones, which are few, wait in a heap. One may be used for many words, one after the other.
pub struct LongWord<'a> {
    pairs: &'a BytePairs,
    symbols: Vec<Symbol>,
    ranks: BinaryHeap<Reverse<(u32, usize)>>, // with the index in `places`; each rank once
    places: Vec<Places>,
    index_of: AHashMap<u32, usize>, // rank, index in `places`
}

#[derive(Default)]
struct Places {
    sorted: Vec<u32>, // once `is_open`
    done: usize,
    late: BinaryHeap<Reverse<u32>>,
    is_open: bool,
}

impl Places {
    fn put(&mut self, place: u32) {
        match self.is_open {
            true => self.late.push(Reverse(place)),
            false => self.sorted.push(place),
        }
    }

    /// Takes the leftmost place.
    fn take(&mut self) -> Option<u32> {
        if !self.is_open {
            self.is_open = true;
            self.sorted.sort(); // few ascending runs, which this sort merges
        }
        let first = self.sorted.get(self.done).copied();
        let late = self.late.peek().map(|&Reverse(place)| place);
        if late.is_some_and(|late| first.is_none_or(|first| late < first)) {
            self.late.pop();
            return late;
        }
        self.done += 1;
        first
    }
}

impl<'a> LongWord<'a> {
    pub fn new(pairs: &'a BytePairs) -> LongWord<'a> {
        let index_of = AHashMap::with_hasher(RandomState::new());
        LongWord { pairs, symbols: Vec::new(), ranks: BinaryHeap::new(), places: Vec::new(), index_of }
    }

    /// Takes a word of two symbols or more and merges them.
    pub fn merge(&mut self, ids: &[u32]) {
        let n = ids.len() as u32;
        let link = |place: u32| if place < n { place } else { NONE };
        let symbol = |(i, &id): (usize, &u32)| {
            let i = i as u32;
            Symbol { id, previous: link(i.wrapping_sub(1)), next: link(i + 1), rank: NONE }
        };
        self.symbols.clear();
        self.symbols.extend(ids.iter().enumerate().map(symbol));
        self.places.clear();
        for place in 0..n - 1 {
            self.pair_up(place);
        }
        self.merge_all();
    }

    /// Yields the tokens of the word merged last, each with the place of its first symbol.
    pub fn tokens(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let mut place = 0;
        std::iter::from_fn(move || {
            let symbol = self.symbols.get(place as usize)?; // none is at NONE
            let token = (symbol.id, place as usize);
            place = symbol.next;
            Some(token)
        })
    }

    /// Writes the rank of the pair that begins at `place` and remembers the pair.
    fn pair_up(&mut self, place: u32) {
        let Symbol { id, next, .. } = self.symbols[place as usize];
        let rank = if next == NONE { NONE } else { self.pairs.rank(id, self.symbols[next as usize].id) };
        self.symbols[place as usize].rank = rank;
        if rank == NONE {
            return;
        }
        let index = *self.index_of.entry(rank).or_insert_with(|| {
            self.ranks.push(Reverse((rank, self.places.len())));
            self.places.push(Places::default());
            self.places.len() - 1
        });
        self.places[index].put(place);
    }

    fn merge_all(&mut self) {
        while let Some(&Reverse((rank, index))) = self.ranks.peek() {
            match self.places[index].take() {
                Some(place) if self.symbols[place as usize].rank == rank => self.merge_at(place, rank),
                Some(_) => {} // the pair went with another merge
                None => {
                    self.ranks.pop();
                    self.index_of.remove(&rank);
                    self.places[index] = Places::default();
                }
            }
        }
    }

    fn merge_at(&mut self, place: u32, rank: u32) {
        let Symbol { previous, next: right, .. } = self.symbols[place as usize];
        let next = self.symbols[right as usize].next;
        self.symbols[right as usize].rank = NONE;
        self.symbols[place as usize].id = self.pairs.merged(rank);
        self.symbols[place as usize].next = next;
        if next != NONE {
            self.symbols[next as usize].previous = place;
        }
        if previous != NONE {
            self.pair_up(previous);
        }
        self.pair_up(place);
    }
}
