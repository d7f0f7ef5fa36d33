//! The merges of a BPE model, applied as the crate tokenizers does (Word::merge_all of 0.23.2): again and again the
//! adjacent pair of the lowest rank, of equal ones the leftmost. The time is near to linear in the word's length.

use crate::long_word::LongWord;
use ahash::{AHashMap, RandomState};

/// No merge; also no symbol, as a place.
pub const NONE: u32 = u32::MAX;
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
            _ => {
                let mut word = LongWord::new(self);
                word.merge(symbols);
                symbols.clear();
                symbols.extend(word.tokens().map(|(id, _)| id));
            }
        }
    }

    /// Returns the rank of a pair, or NONE.
    pub fn rank(&self, left: u32, right: u32) -> u32 {
        self.ranks.get(&(left, right)).copied().unwrap_or(NONE)
    }

    /// Returns what a pair of this rank becomes.
    pub fn merged(&self, rank: u32) -> u32 {
        self.merged[rank as usize]
    }

    fn merge_short(&self, symbols: &mut Vec<u32>) {
        self.merge_watched(symbols, &mut [NONE; SHORT], |_, _, _| {});
    }

    /// Merges the symbols of a word by a search for each merge. `ranks`: room for those of all pairs. `watch` is told
    /// the rank of each merge, its place, and the symbols after it.
    pub fn merge_watched(&self, symbols: &mut Vec<u32>, ranks: &mut [u32], mut watch: impl FnMut(u32, usize, &[u32])) {
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
            watch(rank, at, symbols);
        }
    }
}
