//! A tokenizer.json behind `tokenizers`, and the table of the bytes each token stands for.

use crate::added_tokens::{AddedTokens, Place};
use crate::byte_pair_encoder::BytePairEncoder;
use crate::deadline::Deadline;
use crate::error::Failure;
use crate::segment_cache::SegmentCache;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::str::FromStr;
use tokenizers::normalizer::Range;
use tokenizers::{Encoding, Model, NormalizedString, Normalizer, OffsetType, PreTokenizedString, PreTokenizer};

/// Returns the bytes as text. `start`: their place in the whole text, for the error.
fn checked(bytes: &[u8], start: usize) -> Result<&str, Failure> {
    std::str::from_utf8(bytes)
        .map_err(|e| Failure::invalid(format!("the text is not valid UTF-8 at byte {}", start + e.valid_up_to())))
}

/// A loaded tokenizer. Immutable: any number of threads may use one.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    added: AddedTokens,            // found in the text
    added_normalized: AddedTokens, // found in what the normalizer makes of the text between these
    encoder: Option<BytePairEncoder>,
    spelling: Spelling,
    leading_space: i32,
}

/// The bytes, flags and existence of every id; the rows of baton_vocabulary.
pub struct TokenTable {
    pub bytes: Vec<u8>,
    pub ends: Vec<u32>,
    pub flags: Vec<u8>,
    pub leading_space: i32,
}

/// Names in errors what is late.
const WHAT: &str = "tokenizing the text";
const EXISTS: u8 = 1;
const SPECIAL: u8 = 2;
const KEEP: i32 = 0;
const STRIP_ONE: i32 = 1;
const STRIP_ALL_FIRST: i32 = 2;
/// Bounds the ids of a file: the token table is as long as the largest id, and a larger one means a broken file.
const MAX_IDS: usize = 1 << 24;

/// The way in which the tokens of a vocabulary spell bytes.
enum Spelling {
    /// Each character stands for a byte (GPT-2's table), found here by the character's code point.
    ByteLevel(Vec<Option<u8>>),
    /// Tokens are text, with replacements ("▁" is a space) and, with `byte_fallback`, `<0xHH>` for a byte.
    Text { replacements: Vec<(String, String)>, byte_fallback: bool },
}

impl Tokenizer {
    /// Loads the content of a tokenizer.json. Errors: invalid, if it is no tokenizer or its decoder cannot be used
    /// token by token.
    pub fn from_json(json: &[u8]) -> Result<Tokenizer, Failure> {
        let text = std::str::from_utf8(json)
            .map_err(|e| Failure::invalid(format!("not valid UTF-8 at byte {}", e.valid_up_to())))?;
        // The decoder is parsed before the file is loaded, because the crate tokenizers panics on some files that are
        // not JSON (cut short inside the decoder).
        let (decoder, merges) = read_parts(text)?;
        let (spelling, leading_space) = read_decoder(&decoder)?;
        let mut inner = tokenizers::Tokenizer::from_str(text)
            .map_err(|e| Failure::invalid(format!("not a tokenizer that can be loaded: {e}")))?;
        // A file may carry the truncation and padding of its last training run; a prompt must stay whole.
        inner.with_truncation(None).map_err(|e| Failure::invalid(format!("truncation cannot be switched off: {e}")))?;
        inner.with_padding(None);
        // A model may have no row for such an id.
        let around = inner.encode_fast("", true).map_err(refused)?;
        if let Some(id) = around.get_ids().iter().find(|&&id| inner.id_to_token(id).is_none()) {
            return Err(Failure::invalid(format!("the post-processor adds the id {id}, which has no token")));
        }
        let tokens = inner.get_added_vocabulary().get_added_tokens_decoder();
        let tokens = tokens.iter().map(|(&id, token)| (id, token.clone())).collect();
        let added = AddedTokens::new(&tokens, None::<Option<&tokenizers::NormalizerWrapper>>)?;
        let added_normalized = AddedTokens::new(&tokens, Some(inner.get_normalizer()))?;
        // A special token of a normalized text counts by its place before, which the crate knows.
        let encoder = match added_normalized.has_special() {
            true => None,
            false => BytePairEncoder::of(&inner, &merges, byte_letters()),
        };
        Ok(Tokenizer { inner, added, added_normalized, encoder, spelling, leading_space })
    }

    /// Returns the ids that the crate tokenizers itself makes of `text`, which `encode_segments` equals. Errors: invalid,
    /// if the tokenizer refuses the text.
    pub fn encode_by_crate(&self, text: &str, add_special_tokens: bool) -> Result<Vec<i32>, Failure> {
        let encoding = self.inner.encode_fast(text, add_special_tokens).map_err(refused)?;
        Ok(encoding.get_ids().iter().map(|&id| id as i32).collect())
    }

    /// Returns the ids of a text whose special tokens are those at `controls`, ascending [begin, end] in bytes; None:
    /// wherever the text spells one, as `encode` has it. What the text between two added tokens becomes depends on
    /// nothing else, so these segments can be cached, those of each salt by themselves; what is found in the cache has
    /// been looked at before, so only the rest is checked for UTF-8. The deadline is looked at before each of them and
    /// between the stages of each, whose time is linear in its text. Errors: invalid, if `bytes` are not UTF-8.
    pub fn encode_segments(
        &self,
        bytes: &[u8],
        controls: Option<&[[u32; 2]]>,
        add_special_tokens: bool,
        cache: Option<(&SegmentCache, u64)>,
        deadline: Deadline,
    ) -> Result<Vec<i32>, Failure> {
        let allows = |start: usize, end: usize| match controls {
            None => true,
            Some(controls) => controls.binary_search(&[start as u32, end as u32]).is_ok(),
        };
        let cache = cache.filter(|_| !self.added_normalized.has_special());
        let mut ids: Vec<u32> = Vec::new();
        let allows_place = |place: Place| allows(place.start, place.end);
        let pieces = match cache.and_then(|_| self.added.split_bytes(bytes, allows_place)) {
            Some(pieces) => pieces,
            None => self.added.split(checked(bytes, 0)?, allows_place),
        };
        for piece in pieces {
            let segment = || &bytes[piece.start..piece.end];
            let encode = || self.encode_segment(checked(segment(), piece.start)?, piece.start, allows, deadline);
            match (piece.token, cache) {
                (Some(id), _) => ids.push(id),
                (None, None) if ids.is_empty() => ids = encode()?, // most texts are one segment
                (None, None) => ids.extend(encode()?),
                (None, Some((cache, salt))) => {
                    let is_first = piece.start == 0;
                    ids.extend_from_slice(&cache.get(segment(), (salt, is_first), encode)?);
                }
            }
        }
        if add_special_tokens {
            let encoding: Encoding = ids.into_iter().map(|id| (id, String::new(), (0, 0), None, 0)).collect();
            let whole = self.inner.post_process(encoding, None, true).map_err(refused)?;
            ids = whole.get_ids().to_vec();
        }
        Ok(ids.into_iter().map(|id| id as i32).collect())
    }

    /// Returns the ids of a text without added tokens but those found after normalizing. `start`: its place in the
    /// whole text.
    fn encode_segment(
        &self,
        text: &str,
        start: usize,
        allows: impl Fn(usize, usize) -> bool,
        deadline: Deadline,
    ) -> Result<Vec<u32>, Failure> {
        deadline.check(WHAT)?;
        if let Some(encoder) = &self.encoder {
            return self.encode_by_pairs(encoder, text, start == 0, deadline);
        }
        let mut pieces = PreTokenizedString::from(segment_at(text, start > 0));
        pieces.split(|_, segment| Ok(self.split_normalized(text, start, segment, &allows))).map_err(refused)?;
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            deadline.check(WHAT)?;
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(refused)?;
        }
        deadline.check(WHAT)?;
        self.inner.get_model().tokenize_in_pretokenized(&mut pieces, None).map_err(refused)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(refused)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// `encode_segment` without the crate.
    fn encode_by_pairs(
        &self,
        encoder: &BytePairEncoder,
        text: &str,
        is_first: bool,
        deadline: Deadline,
    ) -> Result<Vec<u32>, Failure> {
        let text = encoder.normalize(text);
        let mut ids = Vec::with_capacity(text.len() / 2);
        for piece in self.added_normalized.split(&text, |_| false) {
            let part = &text[piece.start..piece.end];
            match piece.token {
                Some(id) => ids.push(id),
                None => encoder.encode(&self.inner, part, is_first && piece.start == 0, &mut ids, deadline, WHAT)?,
            }
        }
        Ok(ids)
    }

    /// Normalizes a segment and cuts it at the added tokens that are found afterwards. Also without such tokens the
    /// result is a slice, as in the crate: its start in the text, which some pre-tokenizers look at, is then behind
    /// what the normalizer took away.
    fn split_normalized(
        &self,
        text: &str,
        start: usize,
        mut segment: NormalizedString,
        allows: impl Fn(usize, usize) -> bool,
    ) -> Vec<(NormalizedString, Option<Vec<tokenizers::Token>>)> {
        if let Some(normalizer) = self.inner.get_normalizer() {
            let _ = normalizer.normalize(&mut segment); // a text that it refuses stays as it is, as in the crate
        }
        // The text that a match was made of, without the white space that a normalizer may have taken in.
        let allows_place = |place: Place| {
            let Some(from) = segment.convert_offsets(Range::Normalized(place.start..place.end)) else { return false };
            let Some(source) = text.get(from.clone()) else { return false };
            let begin = start + from.start + (source.len() - source.trim_start().len());
            allows(begin, begin + source.trim().len())
        };
        let pieces = self.added_normalized.split(segment.get(), allows_place);
        let cut = pieces.into_iter().filter_map(|piece| {
            let part = segment.slice(Range::Normalized(piece.start..piece.end))?;
            let token = |id| vec![tokenizers::Token::new(id, part.get().to_string(), (0, part.len()))];
            let token = piece.token.map(token);
            Some((part, token))
        });
        cut.collect()
    }

    /// Returns what special tokens are spelled like, as a JSON array.
    pub fn special_tokens(&self) -> String {
        let tokens = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        let special = tokens.values().filter(|token| token.special).map(|token| token.content.as_str());
        Json::from(special.collect::<Vec<&str>>()).to_string()
    }

    /// Returns the text of `ids`; ids without a token are left out. Errors: invalid, if the decoder fails.
    pub fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, Failure> {
        let known: Vec<u32> = ids.iter().filter(|&&id| id >= 0).map(|&id| id as u32).collect();
        self.inner
            .decode(&known, skip_special_tokens)
            .map_err(|e| Failure::invalid(format!("the tokens cannot be decoded: {e}")))
    }

    pub fn id_of(&self, token: &str) -> Option<i32> {
        self.inner.token_to_id(token).and_then(|id| i32::try_from(id).ok())
    }

    /// Returns the table of all ids. Errors: invalid, if an id is beyond MAX_IDS.
    pub fn token_table(&self) -> Result<TokenTable, Failure> {
        let vocabulary = self.inner.get_vocab(true);
        let size = vocabulary.values().map(|&id| id as usize + 1).max().unwrap_or(0);
        if size > MAX_IDS {
            return Err(Failure::invalid(format!("token id {} is beyond the limit of {MAX_IDS}", size - 1)));
        }
        let added = self.inner.get_added_vocabulary();
        let mut table = TokenTable {
            bytes: Vec::new(),
            ends: Vec::with_capacity(size),
            flags: Vec::with_capacity(size),
            leading_space: self.leading_space,
        };
        for id in 0..size as u32 {
            let mut flags = 0;
            if let Some(token) = self.inner.id_to_token(id) {
                let special = added.is_special_token(&token);
                flags = EXISTS | if special { SPECIAL } else { 0 };
                let is_added = added.get_added_tokens_decoder().contains_key(&id);
                table.bytes.extend_from_slice(&self.spelling.bytes_of(&token, is_added));
            }
            table.flags.push(flags);
            table.ends.push(table.bytes.len() as u32);
        }
        Ok(table)
    }
}

impl Spelling {
    fn bytes_of(&self, token: &str, is_added: bool) -> Vec<u8> {
        match self {
            // An added token is its own text. The library's decoder would read its characters as bytes, which
            // differs only for added tokens with letters beyond ASCII.
            Spelling::ByteLevel(_) if is_added => token.as_bytes().to_vec(),
            Spelling::ByteLevel(byte_of) => token
                .chars()
                .map(|c| byte_of.get(c as usize).copied().flatten())
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| token.as_bytes().to_vec()),
            Spelling::Text { replacements, byte_fallback } => {
                let mut text = Cow::Borrowed(token);
                for (from, to) in replacements {
                    text = Cow::Owned(text.replace(from.as_str(), to));
                }
                match fallback_byte(&text) {
                    Some(byte) if *byte_fallback => vec![byte],
                    _ => text.as_bytes().to_vec(),
                }
            }
        }
    }
}

fn refused(error: tokenizers::Error) -> Failure {
    Failure::invalid(format!("the text cannot be tokenized: {error}"))
}

/// Returns a segment that knows whether a text is before it: some pre-tokenizers treat the first segment in another way.
fn segment_at(text: &str, is_later: bool) -> NormalizedString {
    let whole = |text: &str| NormalizedString::from(text);
    match is_later {
        true => whole(&format!(".{text}")).slice(Range::Original(1..)).unwrap_or_else(|| whole(text)),
        false => whole(text),
    }
}

/// Returns GPT-2's table, by byte: printable Latin-1 characters stand for themselves, U+0100 and up for the other 68.
fn byte_letters() -> Vec<char> {
    let printable = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = '\u{100}'..;
    (0..=255u8).filter_map(|b| if printable(b) { Some(b as char) } else { others.next() }).collect()
}

/// Returns the bytes of GPT-2's table, by the code points of their characters.
fn byte_level_table() -> Vec<Option<u8>> {
    let letters = byte_letters();
    let end = letters.iter().map(|&c| c as usize + 1).max().unwrap_or(0);
    let mut table = vec![None; end];
    for (byte, &letter) in letters.iter().enumerate() {
        table[letter as usize] = Some(byte as u8);
    }
    table
}

fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 {
        return None;
    }
    u8::from_str_radix(hex, 16).ok()
}

/// Reads the parts of a tokenizer.json that the crate tokenizers keeps to itself: the decoder and the merges.
fn read_parts(text: &str) -> Result<(Json, Vec<(String, String)>), Failure> {
    // The rest, a vocabulary of up to 10 MB, is left to the crate.
    #[derive(serde::Deserialize)]
    struct File {
        #[serde(default)]
        decoder: Json,
        model: Option<Model>,
    }
    #[derive(serde::Deserialize)]
    struct Model {
        #[serde(default)]
        merges: Vec<Merge>,
    }
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Merge {
        Pair(String, String),
        Text(String),
        Other(serde::de::IgnoredAny), // the crate says what is wrong
    }
    let file: File =
        serde_json::from_str(text).map_err(|e| Failure::invalid(format!("not JSON of a tokenizer: {e}")))?;
    let pair_of = |merge| match merge {
        Merge::Pair(left, right) => Some((left, right)),
        Merge::Text(text) if text.starts_with("#version") => None,
        Merge::Text(text) => text.split_once(' ').map(|(left, right)| (left.to_string(), right.to_string())),
        Merge::Other(_) => None,
    };
    let merges = file.model.map(|model| model.merges).unwrap_or_default();
    Ok((file.decoder, merges.into_iter().filter_map(pair_of).collect()))
}

/// Reads what a decoder does to each token, so that streams can do it token by token.
fn read_decoder(decoder: &Json) -> Result<(Spelling, i32), Failure> {
    let steps = match decoder["type"].as_str() {
        Some("Sequence") => decoder["decoders"].as_array().cloned().unwrap_or_default(),
        _ => vec![decoder.clone()],
    };
    if let [only] = steps.as_slice() {
        if only["type"] == "ByteLevel" {
            return Ok((Spelling::ByteLevel(byte_level_table()), KEEP));
        }
    }
    let mut replacements = Vec::new();
    let mut byte_fallback = false;
    let mut leading_space = KEEP;
    for step in &steps {
        match step["type"].as_str().unwrap_or("null") {
            "Replace" if step["pattern"]["String"].is_string() => {
                let part = |value: &Json| value.as_str().unwrap_or_default().to_string();
                replacements.push((part(&step["pattern"]["String"]), part(&step["content"])));
            }
            "Metaspace" => {
                let replacement = step["replacement"].as_str().unwrap_or("▁").to_string();
                replacements.push((replacement, " ".into()));
                let never = step["prepend_scheme"] == "never" || step["add_prefix_space"] == false;
                leading_space = if never { KEEP } else { STRIP_ALL_FIRST };
            }
            "ByteFallback" => byte_fallback = true,
            "Fuse" => {}
            "Strip" if step["content"] == " " && step["start"] == 1 && step["stop"] == 0 => leading_space = STRIP_ONE,
            other => {
                return Err(Failure::invalid(format!(
                "decoder {other} ({step}) cannot be used for streams; known are ByteLevel, Metaspace, Replace of a \
                 string, ByteFallback, Fuse, and Strip of one leading space"
            )))
            }
        }
    }
    Ok((Spelling::Text { replacements, byte_fallback }, leading_space))
}
