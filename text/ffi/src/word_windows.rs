//! Words of any length, merged in windows of a bounded size, so that time and memory of a long word are those of many
//! windows: what does not fit into a processor's cache, and pages that are taken from the system anew, cost several
//! times as much per symbol.
//!
//! A word may be cut between two tokens where no merge of the whole word would reach across. The left side and the right
//! one then merge as if alone. The level of a merge is the highest rank among it and those before: all merges below a
//! level, wherever they are, come before the first one of it, so levels of one side are valid on the other, too. A pair
//! across the cut, of a rank c, is merged only when no other pair has a lower rank, nor one to its left the same. It is
//! not, if its left symbol is taken at a level of at most c: until then the left side has a merge of such a rank to offer,
//! and is further to the left. Nor if its right symbol is taken at a level below c.

use crate::byte_pairs::{BytePairs, NONE};
use crate::long_word::LongWord;

/// Symbols of a window: what is kept for them fits into the cache of a core.
pub const WINDOW: usize = 1 << 14;
/// Symbols at the end of a window that the next one merges again, because they depend on what follows.
const OVERLAP: usize = WINDOW / 16;
/// Tokens before the overlap between which a cut is looked for.
const TRIES: usize = 64;
/// Tokens of more symbols are never beside a cut: their merges are replayed by searching.
const LONGEST: usize = 256;

/// A symbol at the border of a token while the token is merged, and the levels between which it stands there.
struct Reign {
    id: u32,
    from: u32,
    until: u32, // NONE: it stays
}

pub struct WordWindows<'a> {
    pairs: &'a BytePairs,
    word: LongWord<'a>,
    symbols: Vec<u32>,         // of the window, before any merge
    tokens: Vec<(u32, usize)>, // of the window: what they are and where they begin
    before: Vec<u32>,          // symbols of the last token that was told
}

impl<'a> WordWindows<'a> {
    pub fn new(pairs: &'a BytePairs) -> WordWindows<'a> {
        let word = LongWord::new(pairs);
        WordWindows { pairs, word, symbols: Vec::with_capacity(WINDOW + 8), tokens: Vec::new(), before: Vec::new() }
    }

    /// Appends the tokens of a word to `ids`. `fill` appends symbols until there are WINDOW or a few more, or until the
    /// word ends, and is called for each window. Returns false where no cut is found: `ids` is to be thrown away then.
    /// Errors: those of `fill`.
    pub fn merge<E>(
        &mut self,
        mut fill: impl FnMut(&mut Vec<u32>) -> Result<(), E>,
        ids: &mut Vec<u32>,
    ) -> Result<bool, E> {
        self.symbols.clear();
        self.before.clear();
        loop {
            fill(&mut self.symbols)?;
            let is_last = self.symbols.len() < WINDOW;
            self.tokens.clear();
            match self.symbols.len() {
                0 => {}
                1 => self.tokens.push((self.symbols[0], 0)),
                _ => {
                    self.word.merge(&self.symbols);
                    self.tokens.extend(self.word.tokens());
                }
            }
            let end = match is_last {
                true => self.tokens.len(),
                false => match self.find_cut() {
                    Some(token) => token,
                    None => return Ok(false),
                },
            };
            // Only now it is known which token is behind the cut before.
            if end > 0 && !self.before.is_empty() && !self.keeps_apart(&self.before, self.symbols_of(0)) {
                return Ok(false);
            }
            ids.extend(self.tokens[..end].iter().map(|&(id, _)| id));
            if is_last {
                return Ok(true);
            }
            let (before, cut) = (self.tokens[end - 1].1, self.tokens[end].1);
            self.before.clear();
            self.before.extend_from_slice(&self.symbols[before..cut]);
            self.symbols.drain(..cut);
        }
    }

    fn symbols_of(&self, token: usize) -> &[u32] {
        let end = self.tokens.get(token + 1).map_or(self.symbols.len(), |&(_, place)| place);
        &self.symbols[self.tokens[token].1..end]
    }

    /// Returns the token before which the window may be cut.
    fn find_cut(&self) -> Option<usize> {
        let end = self.tokens.partition_point(|&(_, place)| place <= WINDOW - OVERLAP);
        let tries = (1..end).rev().take(TRIES);
        tries.into_iter().find(|&token| self.keeps_apart(self.symbols_of(token - 1), self.symbols_of(token)))
    }

    /// Returns whether no merge reaches from a token into the next one, given the symbols of both.
    fn keeps_apart(&self, left: &[u32], right: &[u32]) -> bool {
        if left.len() > LONGEST || right.len() > LONGEST {
            return false;
        }
        let (left, right) = (self.reigns(left, true), self.reigns(right, false));
        let merges = |l: &Reign, r: &Reign| {
            if l.from.max(r.from) > l.until.min(r.until) {
                return false; // they never meet
            }
            let rank = self.pairs.rank(l.id, r.id);
            rank != NONE && rank < l.until && rank <= r.until
        };
        !left.iter().any(|l| right.iter().any(|r| merges(l, r)))
    }

    /// Returns the symbols that stand at a token's end, or at its beginning, one after the other.
    fn reigns(&self, symbols: &[u32], at_end: bool) -> Vec<Reign> {
        let border = |symbols: &[u32]| if at_end { symbols[symbols.len() - 1] } else { symbols[0] };
        let mut reigns = vec![Reign { id: border(symbols), from: 0, until: NONE }];
        let mut level = 0;
        self.pairs.merge_watched(&mut symbols.to_vec(), &mut [NONE; LONGEST], |rank, at, symbols| {
            level = level.max(rank);
            if at == if at_end { symbols.len() - 1 } else { 0 } {
                if let Some(reign) = reigns.last_mut() {
                    reign.until = level;
                }
                reigns.push(Reign { id: symbols[at], from: level, until: NONE });
            }
        });
        reigns
    }
}
