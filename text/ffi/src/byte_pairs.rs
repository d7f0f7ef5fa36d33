//! The merges of a BPE model, applied as the crate tokenizers does (Word::merge_all of 0.23.2): again and again the
//! adjacent pair of the lowest rank, of equal ones the leftmost. The time is near to linear in the word's length.

use ahash::{AHashMap, RandomState};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No merge; also no symbol, as a place.
const NONE: u32 = u32::MAX;
/// Longer words keep their pairs by rank; shorter ones are searched for the lowest rank after each merge.
const SHORT: usize = 40;

pub struct BytePairs {
    ranks: AHashMap<(u32, u32), u32>,
    merged: Vec<u32>, // by rank
}

impl BytePairs {
    /// `merges`: left and right token and what they become, by rank.
    pub fn new(merges: impl ExactSizeIterator<Item = (u32, u32, u32)>) -> BytePairs {
        let mut ranks = AHashMap::with_capacity_and_hasher(merges.len(), RandomState::new());
        let mut merged = Vec::with_capacity(merges.len());
        for (rank, (left, right, whole)) in merges.enumerate() {
            ranks.insert((left, right), rank as u32); // of a pair that is listed twice, the later rank counts
            merged.push(whole);
        }
        BytePairs { ranks, merged }
    }

    /// Merges the symbols of one word.
    pub fn merge(&self, symbols: &mut Vec<u32>) {
        match symbols.len() {
            0 | 1 => {}
            2..=SHORT => self.merge_short(symbols),
            _ => LongWord::new(self, std::mem::take(symbols)).merge(symbols),
        }
    }

    fn rank(&self, left: u32, right: u32) -> u32 {
        self.ranks.get(&(left, right)).copied().unwrap_or(NONE)
    }

    fn merge_short(&self, symbols: &mut Vec<u32>) {
        let mut ranks = [NONE; SHORT];
        let mut n_pairs = symbols.len() - 1;
        for (i, pair) in symbols.windows(2).enumerate() {
            ranks[i] = self.rank(pair[0], pair[1]);
        }
        while let Some((at, &rank)) = ranks[..n_pairs].iter().enumerate().min_by_key(|(_, &rank)| rank) {
            if rank == NONE {
                break;
            }
            symbols[at] = self.merged[rank as usize];
            symbols.remove(at + 1);
            ranks.copy_within(at + 1..n_pairs, at);
            n_pairs -= 1;
            if at > 0 {
                ranks[at - 1] = self.rank(symbols[at - 1], symbols[at]);
            }
            if at < n_pairs {
                ranks[at] = self.rank(symbols[at], symbols[at + 1]);
            }
        }
    }
}

struct Symbol {
    id: u32,
    previous: u32,
    next: u32,
    rank: u32, // of the pair of this symbol and the next one; NONE in a symbol that was merged away
}

/// A word of many symbols: the places of its pairs by rank. Places that came before the first look at a rank are
/// sorted then; later ones, which are few, wait in a heap.
struct LongWord<'a> {
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
    fn new(pairs: &'a BytePairs, ids: Vec<u32>) -> LongWord<'a> {
        let n = ids.len() as u32;
        let link = |place: u32| if place < n { place } else { NONE };
        let symbol = |(i, &id): (usize, &u32)| {
            let i = i as u32;
            Symbol { id, previous: link(i.wrapping_sub(1)), next: link(i + 1), rank: NONE }
        };
        let symbols = ids.iter().enumerate().map(symbol).collect();
        let index_of = AHashMap::with_hasher(RandomState::new());
        let mut word = LongWord { pairs, symbols, ranks: BinaryHeap::new(), places: Vec::new(), index_of };
        for place in 0..n - 1 {
            word.pair_up(place);
        }
        word
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

    fn merge(mut self, ids: &mut Vec<u32>) {
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
        let mut place = 0;
        while place != NONE {
            ids.push(self.symbols[place as usize].id);
            place = self.symbols[place as usize].next;
        }
    }

    fn merge_at(&mut self, place: u32, rank: u32) {
        let Symbol { previous, next: right, .. } = self.symbols[place as usize];
        let next = self.symbols[right as usize].next;
        self.symbols[right as usize].rank = NONE;
        self.symbols[place as usize].id = self.pairs.merged[rank as usize];
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
