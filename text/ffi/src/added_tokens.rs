//! Finds added tokens in texts as the crate tokenizers does (AddedVocabulary::find_matches of 0.23.2), with two
//! differences: special tokens are found only where the caller allows it, and the time is linear for any text (the
//! crate looks for the white space around a token from the start of the text).

use crate::error::Failure;
use aho_corasick::{AhoCorasick, Input, MatchKind};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tokenizers::{AddedToken, NormalizedString, Normalizer};

/// A part of a text: an added token, or the text between two.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub start: usize,
    pub end: usize,
    pub token: Option<u32>,
}

/// A place of a special token.
pub struct Place {
    pub start: usize,
    pub end: usize,
}

struct Pattern {
    id: u32,
    token: AddedToken,
    length: usize,
    prefixes: Vec<usize>, // the patterns that this one begins with, the longest first
}

/// One of the crate's two sets of added tokens: those found in the text as it is, or in the normalized text.
pub struct AddedTokens {
    automaton: Option<AhoCorasick>,
    patterns: Vec<Pattern>,
}

impl AddedTokens {
    /// `tokens`: by id. `normalizer`: of the text in which the tokens with `normalized` are found; None chooses those
    /// without.
    pub fn new(
        tokens: &BTreeMap<u32, AddedToken>,
        normalizer: Option<Option<&impl Normalizer>>,
    ) -> Result<AddedTokens, Failure> {
        let chosen = tokens.iter().filter(|(_, token)| token.normalized == normalizer.is_some());
        let mut texts = Vec::new();
        let mut patterns = Vec::new();
        for (&id, token) in chosen {
            let mut text = NormalizedString::from(token.content.as_str());
            if let Some(Some(normalizer)) = normalizer {
                normalizer.normalize(&mut text).map_err(|e| Failure::invalid(format!("the token {id}: {e}")))?;
            }
            texts.push(text.get().to_string());
            patterns.push(Pattern { id, token: token.clone(), length: text.get().len(), prefixes: Vec::new() });
        }
        if texts.is_empty() {
            return Ok(AddedTokens { automaton: None, patterns });
        }
        let build = |kind| {
            AhoCorasick::builder()
                .match_kind(kind)
                .build(&texts)
                .map_err(|e| Failure::invalid(format!("the added tokens: {e}")))
        };
        // Standard automata report every match at its end, so a pattern's prefixes are the matches from its start.
        let every = build(MatchKind::Standard)?;
        for (i, text) in texts.iter().enumerate() {
            let found = every.find_overlapping_iter(text).filter(|m| m.start() == 0 && m.end() < text.len());
            patterns[i].prefixes = found.map(|m| m.pattern().as_usize()).collect();
            patterns[i].prefixes.reverse();
        }
        Ok(AddedTokens { automaton: Some(build(MatchKind::LeftmostLongest)?), patterns })
    }

    pub fn has_special(&self) -> bool {
        self.patterns.iter().any(|pattern| pattern.token.special)
    }

    /// Cuts `text` at its added tokens. A special token is found only if `allows` its place.
    pub fn split(&self, text: &str, allows: impl Fn(Place) -> bool) -> Vec<Piece> {
        self.cut(text.as_bytes(), text, allows)
    }

    /// `split` of bytes that nobody has looked at: they are UTF-8 if each part between tokens is. None: a token looks
    /// at the text around it.
    pub fn split_bytes(&self, bytes: &[u8], allows: impl Fn(Place) -> bool) -> Option<Vec<Piece>> {
        let looks_around = |p: &Pattern| p.token.lstrip || p.token.rstrip || p.token.single_word;
        match self.patterns.iter().any(looks_around) {
            true => None,
            false => Some(self.cut(bytes, "", allows)),
        }
    }

    /// `text`: the bytes, for tokens that look at the text around them.
    fn cut(&self, bytes: &[u8], text: &str, allows: impl Fn(Place) -> bool) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut from = 0; // of the search
        let mut done = 0; // the pieces so far end here
        while let Some((first, start)) = self.find(bytes, from) {
            let allowed = |i: &usize| {
                let Pattern { token, length, .. } = &self.patterns[*i];
                !token.special || allows(Place { start, end: start + length })
            };
            let candidates = std::iter::once(&first).chain(&self.patterns[first].prefixes);
            let Some(pattern) = candidates.copied().find(allowed).map(|i| &self.patterns[i]) else {
                from = start + 1; // no token begins inside a character
                continue;
            };
            let end = start + pattern.length;
            from = end;
            if pattern.token.single_word && !is_single_word(text, start, end) {
                continue;
            }
            let mut piece = Piece { start, end, token: Some(pattern.id) };
            if pattern.token.lstrip && done < start {
                piece.start = done + text[done..start].trim_end().len();
            }
            if pattern.token.rstrip {
                piece.end = text.len() - text[end..].trim_start().len();
            }
            if done < piece.start {
                pieces.push(Piece { start: done, end: piece.start, token: None });
            }
            done = piece.end;
            pieces.push(piece);
        }
        if done != bytes.len() {
            pieces.push(Piece { start: done, end: bytes.len(), token: None });
        }
        pieces
    }

    /// Returns the pattern of the next match, the leftmost and of these the longest, and its start.
    fn find(&self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let found = self.automaton.as_ref()?.find(Input::new(bytes).range(from..))?;
        Some((found.pattern().as_usize(), found.start()))
    }
}

fn is_single_word(text: &str, start: usize, end: usize) -> bool {
    static WORD: OnceLock<regex::Regex> = OnceLock::new();
    let word = WORD.get_or_init(|| regex::Regex::new(r"\w").expect("a fixed pattern"));
    let is_word = |c: Option<char>| c.is_some_and(|c| word.is_match(c.encode_utf8(&mut [0; 4])));
    !is_word(text[..start].chars().next_back()) && !is_word(text[end..].chars().next())
}
