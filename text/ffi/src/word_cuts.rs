//! The pre-tokenizers that most models have, on plain text: the words are those of the crate tokenizers (0.23.2), which
//! carries for each byte of a text the place it came from, and so takes tens of times its memory.

use std::borrow::Cow;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::utils::SysRegex;
use tokenizers::SplitDelimiterBehavior;

/// ByteLevel's own way to cut: the crate's pattern, which is not public.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

enum Cut {
    /// Each match is a piece, and what is between two.
    Matches(SysRegex),
    /// Each match ends a piece.
    AfterMatches(SysRegex),
    /// Each character that is a digit or number is a piece of its own, or each run of them.
    Numbers { one_by_one: bool },
    /// Spaces become a mark, one is put in front, and each begins a piece.
    Marks(Metaspace),
}

pub struct WordCuts {
    cuts: Vec<Cut>,
    /// The bytes of a word become characters of GPT-2's table.
    pub is_byte_level: bool,
}

impl WordCuts {
    /// Returns None for pre-tokenizers that are not known here.
    pub fn of(pre_tokenizer: Option<&PreTokenizerWrapper>) -> Option<WordCuts> {
        let mut cuts = WordCuts { cuts: Vec::new(), is_byte_level: false };
        match pre_tokenizer {
            None => {}
            Some(PreTokenizerWrapper::Sequence(sequence)) => {
                for step in sequence.as_ref() {
                    cuts.add(step)?;
                }
            }
            Some(step) => cuts.add(step)?,
        }
        Some(cuts)
    }

    /// True if a piece's place in the text counts.
    pub fn knows_first(&self) -> bool {
        let knows = |cut: &Cut| matches!(cut, Cut::Marks(m) if m.get_prepend_scheme() == PrependScheme::First);
        self.cuts.iter().any(knows)
    }

    fn add(&mut self, step: &PreTokenizerWrapper) -> Option<()> {
        use PreTokenizerWrapper::{ByteLevel, Digits, Metaspace, Split};
        if self.is_byte_level {
            return None; // what comes after sees characters of the table
        }
        match step {
            Split(split) if !split.invert => self.cuts.push(match split.behavior {
                SplitDelimiterBehavior::Isolated => Cut::Matches(copy_of(split)?),
                SplitDelimiterBehavior::MergedWithPrevious => Cut::AfterMatches(copy_of(split)?),
                _ => return None,
            }),
            ByteLevel(level) if !level.add_prefix_space => {
                if level.use_regex {
                    self.cuts.push(Cut::Matches(SysRegex::new(GPT2).ok()?));
                }
                self.is_byte_level = true;
            }
            Digits(digits) => self.cuts.push(Cut::Numbers { one_by_one: digits.individual_digits }),
            Metaspace(marks) if !self.cuts.iter().any(|cut| matches!(cut, Cut::Marks(_))) => {
                self.cuts.push(Cut::Marks(marks.clone()))
            }
            _ => return None,
        }
        Some(())
    }

    /// Calls `word` for each word of `text`, in order. Errors: those of `word`.
    pub fn cut<E>(&self, text: &str, is_first: bool, mut word: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        apply(&self.cuts, text, is_first, &mut word)
    }
}

/// Returns the pattern compiled once more: the crate's is not to be copied.
fn copy_of(split: &tokenizers::pre_tokenizers::split::Split) -> Option<SysRegex> {
    use tokenizers::pre_tokenizers::split::SplitPattern;
    match &split.pattern {
        SplitPattern::String(text) if text.is_empty() => None,
        SplitPattern::String(text) => SysRegex::new(&regex::escape(text)).ok(),
        SplitPattern::Regex(pattern) => SysRegex::new(pattern).ok(),
    }
}

fn apply<E>(cuts: &[Cut], text: &str, is_first: bool, word: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    if text.is_empty() {
        return Ok(());
    }
    let Some((cut, later)) = cuts.split_first() else { return word(text) };
    let mut done = 0;
    let mut piece = |end: usize| {
        let begin = std::mem::replace(&mut done, end);
        apply(later, &text[begin..end], is_first && begin == 0, word)
    };
    match cut {
        Cut::Matches(pattern) => {
            for (begin, end) in pattern.find_iter(text) {
                piece(begin)?;
                piece(end)?;
            }
        }
        Cut::AfterMatches(pattern) => {
            for (_, end) in pattern.find_iter(text) {
                piece(end)?;
            }
        }
        Cut::Numbers { one_by_one } => {
            let mut was_number = false;
            for (at, c) in text.char_indices() {
                let is_number = c.is_numeric();
                if is_number != was_number || (is_number && *one_by_one) {
                    piece(at)?;
                }
                was_number = is_number;
            }
        }
        Cut::Marks(marks) => return apply_marks(marks, later, text, is_first, word),
    }
    piece(text.len())
}

fn apply_marks<E>(
    marks: &Metaspace,
    later: &[Cut],
    text: &str,
    is_first: bool,
    word: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let mark = marks.get_replacement();
    let mut marked = Cow::from(text);
    if text.contains(' ') {
        marked = text.replace(' ', mark.encode_utf8(&mut [0; 4])).into();
    }
    let wants_mark = match marks.get_prepend_scheme() {
        PrependScheme::Always => true,
        PrependScheme::First => is_first,
        PrependScheme::Never => false,
    };
    if wants_mark && !marked.starts_with(mark) {
        marked.to_mut().insert(0, mark);
    }
    if !marks.get_split() {
        return apply(later, &marked, is_first, word);
    }
    let mut done = 0;
    for (at, _) in marked.match_indices(mark) {
        apply(later, &marked[done..at], is_first && done == 0, word)?;
        done = at;
    }
    apply(later, &marked[done..], is_first && done == 0, word)
}
