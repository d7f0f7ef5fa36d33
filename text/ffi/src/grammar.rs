//! Grammars that decide which tokens may come next, by llguidance: the vocabulary, built once per tokenizer; a
//! compiled grammar; a matcher per sequence.

use crate::error::Failure;
use crate::grammar_source;
use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::toktrie::{InferenceCapabilities, TokRxInfo, TokTrie, TokenId, TokenizerEnv, INVALID_TOKEN};
use llguidance::{Logger, Matcher, ParserFactory};
use std::sync::{Arc, Mutex, PoisonError};

/// The trie of tokens holds at most 1024 bytes a token; longer ones are never allowed.
const MAX_TOKEN_BYTES: usize = 1000;
/// Ids beyond this do not fit the trie.
const MAX_TOKENS: usize = 1 << 21;

/// Bounds of compiling and of one mask, in llguidance's units; the same everywhere, so that the router and both
/// workers accept the same grammars.
fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2000,
        initial_lexer_fuel: 250_000,
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        precompute_large_lexemes: true,
        verbose_errors: false, // would put the grammar and the tokens so far into errors
    }
}

/// Tokens are never forced (`tokenize_is_canonical` is false), so nothing is tokenized here.
struct TokenEnvironment {
    trie: TokTrie,
}

impl TokenizerEnv for TokenEnvironment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }
    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.trie.greedy_tokenize(text)
    }
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

pub struct Vocabulary {
    factory: ParserFactory,
    /// One bit per id that has a token.
    exists: Vec<u32>,
    ends: Vec<TokenId>,
}

pub struct VocabularyInput<'a> {
    pub bytes: &'a [u8],
    pub ends: &'a [u32],
    pub flags: &'a [u8],
    pub end_tokens: &'a [i32],
}

const EXISTS: u8 = 1;
const SPECIAL: u8 = 2;

impl Vocabulary {
    pub fn new(input: &VocabularyInput) -> Result<Vocabulary, Failure> {
        let size = input.ends.len();
        if size == 0 || size != input.flags.len() || size > MAX_TOKENS {
            return Err(Failure::invalid(format!("a vocabulary of {size} tokens cannot be used for grammars")));
        }
        let mut ends = Vec::new();
        for &id in input.end_tokens {
            if id < 0 || id as usize >= size {
                return Err(Failure::invalid(format!("end token {id} is not in the vocabulary of {size} tokens")));
            }
            ends.push(id as TokenId);
        }
        let mut exists = vec![0u32; size.div_ceil(32)];
        let mut words = Vec::with_capacity(size);
        let mut begin = 0;
        for id in 0..size {
            let end = input.ends[id] as usize;
            let bytes = input
                .bytes
                .get(begin..end)
                .ok_or_else(|| Failure::invalid(format!("the bytes of token {id} are not in the table")))?;
            begin = end;
            let mut word = Vec::new();
            if input.flags[id] & EXISTS != 0 {
                exists[id / 32] |= 1 << (id % 32);
                // A marked token is no text: no string of a grammar contains it, whatever its spelling. End tokens
                // count as marked even if the tokenizer calls them ordinary, because they end the sequence.
                if input.flags[id] & SPECIAL != 0 || ends.contains(&(id as TokenId)) {
                    word.push(TokTrie::SPECIAL_TOKEN_MARKER);
                }
                word.extend_from_slice(bytes);
            }
            if word.len() > MAX_TOKEN_BYTES {
                word.clear();
            }
            words.push(word);
        }
        let info = TokRxInfo::new(size as u32, ends.first().copied().unwrap_or(INVALID_TOKEN));
        let mut trie = TokTrie::from(&info, &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(&ends);
        }
        let mut factory = ParserFactory::new_simple(&(Arc::new(TokenEnvironment { trie }) as _))
            .map_err(|e| Failure::invalid(format!("the vocabulary cannot be used for grammars: {e}")))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Vocabulary { factory, exists, ends })
    }

    /// Whether the id is that of a token which may be part of a text.
    pub fn is_part(&self, id: usize) -> bool {
        let exists = id / 32 < self.exists.len() && self.exists[id / 32] & (1 << (id % 32)) != 0;
        exists && !self.is_end(id)
    }

    fn is_end(&self, id: usize) -> bool {
        self.ends.iter().any(|&end| end as usize == id)
    }

    /// Writes the mask to the first words of `words`. An error is the library's text.
    fn fill_mask(&self, matcher: &mut Matcher, words: &mut [u32]) -> Result<(), String> {
        let mask = matcher.compute_mask_or_eos().map_err(|e| e.to_string())?;
        for ((word, bits), exists) in words.iter_mut().zip(mask.as_slice()).zip(&self.exists) {
            *word = bits & exists;
        }
        let stopped = matcher.is_stopped();
        // A Lark grammar that names an end token cannot have it in the middle of a text.
        if !stopped && !matcher.is_accepting().map_err(|e| e.to_string())? {
            self.ends.iter().for_each(|&id| words[id as usize / 32] &= !(1 << (id % 32)));
        }
        if !stopped && words[..self.exists.len()].iter().all(|&word| word == 0) {
            return Err(NO_TOKEN.into());
        }
        Ok(())
    }
}

/// A matcher at the start of the grammar, which matchers of sequences are copies of.
pub struct Grammar {
    start: Mutex<Matcher>,
    vocabulary: Arc<Vocabulary>,
}

impl Grammar {
    pub fn new(vocabulary: &Arc<Vocabulary>, kind: i32, source: &str) -> Result<Grammar, Failure> {
        let grammar = grammar_source::read(kind, source, vocabulary)?;
        let factory = &vocabulary.factory;
        let parser = factory
            .create_parser_from_init_ext(
                GrammarInit::Serialized(grammar),
                Logger::new(0, 0),
                InferenceCapabilities::default(),
                limits(),
            )
            .map_err(|e| Failure::invalid(sentence(&e.to_string())))?;
        let mut start = Matcher::new(Ok(parser));
        // The first mask shows that there is a beginning, and its lexer states are copied to all matchers.
        let mut mask = vec![0; vocabulary.exists.len()];
        vocabulary.fill_mask(&mut start, &mut mask).map_err(|e| Failure::invalid(first_mask_text(&e)))?;
        Ok(Grammar { start: Mutex::new(start), vocabulary: vocabulary.clone() })
    }

    pub fn matcher(&self) -> GrammarMatcher {
        // A panic while another thread copied it left it unchanged: copying only reads.
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        // Deep: matchers share no lexer, so what one of them hits is no error of another.
        GrammarMatcher { matcher: start.deep_clone(), vocabulary: self.vocabulary.clone() }
    }
}

pub struct GrammarMatcher {
    matcher: Matcher,
    vocabulary: Arc<Vocabulary>,
}

const NO_TOKEN: &str = "no token is allowed";

pub const ACCEPTING: i32 = 1;
pub const DONE: i32 = 2;
pub const FAILED: i32 = 4;

impl GrammarMatcher {
    pub fn copy(&self) -> GrammarMatcher {
        GrammarMatcher { matcher: self.matcher.deep_clone(), vocabulary: self.vocabulary.clone() }
    }

    pub fn fill_mask(&mut self, words: &mut [u32]) -> Result<(), Failure> {
        let exists = &self.vocabulary.exists;
        if words.len() < exists.len() {
            return Err(Failure::invalid(format!(
                "a mask of {} words is too short for a vocabulary of {}",
                words.len(),
                exists.len()
            )));
        }
        words.fill(0);
        self.vocabulary.fill_mask(&mut self.matcher, words).map_err(|e| limit_failure(&e))
    }

    pub fn push(&mut self, token: i32) -> Result<(), Failure> {
        let not_allowed = || Failure::invalid(format!("token {token} is not what the grammar allows here"));
        let is_end = token >= 0 && self.vocabulary.is_end(token as usize);
        if !is_end && !(token >= 0 && self.vocabulary.is_part(token as usize)) {
            return Err(not_allowed());
        }
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return if is_end { Ok(()) } else { Err(not_allowed()) };
        }
        match self.matcher.try_consume_tokens(&[token as TokenId]) {
            Ok(1) => Ok(()),
            // The library says the same of a token whose lexer states are beyond the limit; its next mask tells.
            Ok(_) => match self.matcher.compute_mask_or_eos() {
                Ok(_) => Err(not_allowed()),
                Err(e) => Err(limit_failure(&e.to_string())),
            },
            Err(e) => Err(limit_failure(&e.to_string())),
        }
    }

    pub fn state(&mut self) -> i32 {
        if self.matcher.is_error() {
            return FAILED;
        }
        if self.matcher.is_stopped() {
            return DONE | ACCEPTING;
        }
        match self.matcher.is_accepting() {
            Ok(true) => ACCEPTING,
            Ok(false) => 0,
            Err(_) => FAILED,
        }
    }
}

fn limit_failure(error: &str) -> Failure {
    Failure::exhausted(format!("the grammar hit a limit: {}", sentence(error)))
}

fn first_mask_text(error: &str) -> String {
    match sentence(error).as_str() {
        "NoExtensionBias" | NO_TOKEN => "no token of the vocabulary begins a text of this grammar".into(),
        other => format!("the grammar hits a limit at its start: {other}"),
    }
}

/// The first part of an error of llguidance, without its notes on state and stack.
fn sentence(error: &str) -> String {
    const MAX_BYTES: usize = 600;
    let text = error.split("\n<").next().unwrap_or_default().trim_end();
    let text = match text.strip_prefix("panic: ") {
        Some(panic) => format!("the grammar library cannot compile this grammar ({panic})"),
        None => text.to_string(),
    };
    match text.char_indices().nth(MAX_BYTES) {
        Some((at, _)) => format!("{} ...", &text[..at]),
        None => text,
    }
}

/// Handles are used by several threads (baton_text.h).
const fn is_shared<T: Send + Sync>() {}
const _: () = is_shared::<Vocabulary>();
const _: () = is_shared::<Grammar>();
const fn is_sent<T: Send>() {}
const _: () = is_sent::<GrammarMatcher>();
