//! Texts to ids for the tokenizers that most models have (byte-pair encoding behind simple normalizers and
//! pre-tokenizers): the ids of the crate tokenizers (0.23.2) in a fraction of its time and memory.

use crate::byte_pairs::BytePairs;
use crate::deadline::Deadline;
use crate::error::Failure;
use crate::word_cuts::WordCuts;
use crate::word_windows::{WordWindows, WINDOW};
use std::borrow::Cow;
use tokenizers::models::bpe::BPE;
use tokenizers::{Model, ModelWrapper, NormalizerWrapper};
use unicode_normalization_alignments::UnicodeNormalization;

/// The bytes of words between two looks at the deadline.
const LOOK_EVERY: usize = 1 << 14;

enum Change {
    Compose, // NFC
    Prepend(String),
    Replace(String, String),
}

pub struct BytePairEncoder {
    changes: Vec<Change>,
    cuts: WordCuts,
    pairs: BytePairs,
    letters: Vec<char>,         // the characters that stand for bytes, if the cuts are at byte level
    byte_ids: Vec<Option<u32>>, // of the letters, or what the bytes of an unknown character become
    unknown: Option<u32>,
    longest: usize, // bytes of the longest token that a whole word may be
}

impl BytePairEncoder {
    /// `merges`: those of the tokenizer.json. `letters`: GPT-2's table, by byte. Returns None for a tokenizer that the
    /// crate has to encode for.
    pub fn of(
        tokenizer: &tokenizers::Tokenizer,
        merges: &[(String, String)],
        letters: Vec<char>,
    ) -> Option<BytePairEncoder> {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else { return None };
        let draws = model.dropout.is_some_and(|share| share != 0.0);
        if draws || model.continuing_subword_prefix.is_some() || model.end_of_word_suffix.is_some() {
            return None;
        }
        let id_of = |token: &str| model.token_to_id(token);
        let mut changes = Vec::new();
        add_changes(tokenizer.get_normalizer(), &mut changes)?;
        let cuts = WordCuts::of(tokenizer.get_pre_tokenizer())?;
        if (cuts.knows_first() && !changes.is_empty()) || (cuts.is_byte_level && model.byte_fallback) {
            return None;
        }
        let byte_ids = match cuts.is_byte_level {
            true => letters.iter().map(|letter| id_of(letter.encode_utf8(&mut [0; 4]))).collect(),
            false => (0..=255u8).map(|byte| id_of(&format!("<{byte:#04X}>"))).collect(),
        };
        let unknown = match &model.unk_token {
            Some(token) => Some(id_of(token)?),
            None => None,
        };
        let ids =
            |(left, right): &(String, String)| Some((id_of(left)?, id_of(right)?, id_of(&(left.clone() + right))?));
        let merges = merges.iter().map(ids).collect::<Option<Vec<_>>>()?;
        let pairs = BytePairs::new(merges.into_iter());
        let longest = match model.ignore_merges {
            true => model.get_vocab().keys().map(String::len).max().unwrap_or(0),
            false => 0,
        };
        Some(BytePairEncoder { changes, cuts, pairs, letters, byte_ids, unknown, longest })
    }

    /// Returns the text as the normalizers leave it.
    pub fn normalize<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::from(text);
        for change in &self.changes {
            match change {
                Change::Compose if text.is_ascii() => {}
                Change::Compose => text = text.nfc().map(|(c, _)| c).collect::<String>().into(),
                Change::Prepend(_) if text.is_empty() => {}
                Change::Prepend(front) => text.to_mut().insert_str(0, front),
                Change::Replace(from, to) if text.contains(from) => text = text.replace(from, to).into(),
                Change::Replace(..) => {}
            }
        }
        text
    }

    /// Appends the ids of a normalized text. `tokenizer`: the one this was made of. `is_first`: nothing is before the
    /// text. Errors: it is late; `what` names the work.
    pub fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
        is_first: bool,
        ids: &mut Vec<u32>,
        deadline: Deadline,
        what: &str,
    ) -> Result<(), Failure> {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else { return Ok(()) };
        let mut symbols = Vec::new();
        let mut letters = String::new();
        let mut unlooked = 0;
        let mut windows = None;
        self.cuts.cut(text, is_first, |word| {
            unlooked += word.len();
            if unlooked >= LOOK_EVERY {
                deadline.check(what)?;
                unlooked = 0;
            }
            if let Some(id) = self.whole(model, word, &mut letters) {
                ids.push(id);
                return Ok(());
            }
            if word.len() > WINDOW {
                let windows = windows.get_or_insert_with(|| WordWindows::new(&self.pairs));
                let n_before = ids.len();
                let mut speller = Speller::new(self, model, word);
                let fill = |symbols: &mut Vec<u32>| {
                    speller.spell(symbols, WINDOW);
                    deadline.check(what)
                };
                if windows.merge(fill, ids)? {
                    return Ok(());
                }
                ids.truncate(n_before); // a word that is cut nowhere is merged whole
            }
            Speller::new(self, model, word).spell(&mut symbols, usize::MAX);
            self.pairs.merge(&mut symbols);
            ids.append(&mut symbols);
            Ok(())
        })
    }

    /// Returns the id of a word that is a token and needs no merges.
    fn whole(&self, model: &BPE, word: &str, letters: &mut String) -> Option<u32> {
        if word.len() > self.longest {
            return None;
        }
        if !self.cuts.is_byte_level {
            return model.token_to_id(word);
        }
        letters.clear();
        letters.extend(word.bytes().map(|byte| self.letters[byte as usize]));
        model.token_to_id(letters)
    }
}

/// Writes the ids of a word's characters, or bytes, before any merge. What has no id becomes the ids of its bytes or the
/// unknown token, which is written before the next known one (as the crate does it).
struct Speller<'a> {
    encoder: &'a BytePairEncoder,
    model: &'a BPE,
    rest: &'a str,        // of the word
    pending: Option<u32>, // unknown
}

impl<'a> Speller<'a> {
    fn new(encoder: &'a BytePairEncoder, model: &'a BPE, word: &'a str) -> Speller<'a> {
        Speller { encoder, model, rest: word, pending: None }
    }

    /// Appends ids to `symbols` until they are `enough`, or a few more, or the word ends.
    fn spell(&mut self, symbols: &mut Vec<u32>, enough: usize) {
        let mut letters = self.rest.chars();
        while symbols.len() < enough {
            let Some(c) = letters.next() else { break };
            let mut buffer = [0; 4];
            let letter = c.encode_utf8(&mut buffer);
            if self.encoder.cuts.is_byte_level {
                letter.bytes().for_each(|byte| self.put(self.encoder.byte_ids[byte as usize], &[], symbols));
            } else {
                self.put(self.model.token_to_id(letter), letter.as_bytes(), symbols);
            }
        }
        self.rest = letters.as_str();
        if self.rest.is_empty() {
            symbols.extend(self.pending.take());
        }
    }

    /// Writes what a character or byte becomes. `bytes`: those that may stand for it.
    fn put(&mut self, id: Option<u32>, bytes: &[u8], symbols: &mut Vec<u32>) {
        if id.is_some() {
            symbols.extend(self.pending.take());
            symbols.extend(id);
            return;
        }
        let fallback = |&byte: &u8| self.encoder.byte_ids[byte as usize];
        if self.model.byte_fallback && bytes.iter().all(|byte| fallback(byte).is_some()) {
            symbols.extend(bytes.iter().filter_map(fallback));
            return;
        }
        if !self.model.fuse_unk {
            symbols.extend(self.pending);
        }
        self.pending = self.encoder.unknown;
    }
}

/// Returns None for normalizers that are not known here.
fn add_changes(normalizer: Option<&NormalizerWrapper>, changes: &mut Vec<Change>) -> Option<()> {
    match normalizer {
        None => {}
        Some(NormalizerWrapper::NFC(_)) => changes.push(Change::Compose),
        Some(NormalizerWrapper::Prepend(front)) => changes.push(Change::Prepend(front.prepend.clone())),
        Some(NormalizerWrapper::Replace(replace)) => {
            let replace = serde_json::to_value(replace).ok()?; // its pattern is not public
            let from = replace["pattern"]["String"].as_str().filter(|from| !from.is_empty())?;
            changes.push(Change::Replace(from.into(), replace["content"].as_str()?.into()));
        }
        Some(NormalizerWrapper::Sequence(sequence)) => {
            for step in sequence.as_ref() {
                add_changes(Some(step), changes)?;
            }
        }
        _ => return None,
    }
    Some(())
}
