//! Tells the special tokens that a chat template writes from those that a request spells.
//!
//! Special tokens in the template's own text, in its string literals and in the names it is given (bos_token) are put
//! between two marks before it is compiled; strings of a request are left as they are. After rendering, what stands
//! between marks is a control token, and every other spelling of one is text, wherever it comes from: a filter,
//! a concatenation or a border cannot make a mark. So filters and comparisons see the very strings of the request;
//! only a template that compares a request's string with a special token (`'<|im_end|>' in content`) sees none.
//!
//! Some templates put a token together around a role: `'<|' + message['role'] + '|>'`. Their halves get a mark each, if
//! an expression that ends in `role` is between them, and count if a role is.
//!
//! Marks are code points that Unicode keeps for internal use. Where a request contains one, other code points stand in
//! for it while the template renders.

use crate::dialect::{self, PartKind};
use crate::error::Failure;
use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;
use serde_json::Value as Json;
use std::collections::HashSet;

const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';
const OPEN_ROLE: char = '\u{fdd2}';
const CLOSE_ROLE: char = '\u{fdd3}';
pub const MARKS: [char; 4] = [OPEN, CLOSE, OPEN_ROLE, CLOSE_ROLE];
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"]; // that the API knows

pub struct Controls {
    automaton: Option<AhoCorasick>,
    tokens: HashSet<String>,
    of_roles: HashSet<String>, // tokens with a role inside
    heads: HashSet<String>,    // what is before the role in these
    tails: HashSet<String>,    // and after it
    ends_with_role: Regex,     // an expression, then an operator or the end of a tag
    starts_with_role: Regex,   // an operator or the start of a tag, then an expression
}

/// A prompt without marks, and the places of control tokens in it: begin and end in bytes, ascending.
pub struct Unmarked {
    pub text: String,
    pub controls: Vec<u32>,
}

impl Controls {
    /// `tokens`: a JSON array of special tokens, or empty: none. Errors: invalid, for other JSON.
    pub fn new(tokens: &str) -> Result<Controls, Failure> {
        let listed: Vec<String> = match tokens {
            "" => Vec::new(),
            json => serde_json::from_str(json)
                .map_err(|e| Failure::invalid(format!("the control tokens: not a JSON array of strings: {e}")))?,
        };
        // A token that is a word or white space is no spelling of its own: a template has such words in its code.
        let is_spelling =
            |token: &String| token.contains(|c: char| !c.is_alphanumeric() && c != '_' && !c.is_whitespace());
        let tokens: HashSet<String> = listed.into_iter().filter(is_spelling).collect();
        let mut controls = Controls {
            automaton: None,
            of_roles: HashSet::new(),
            heads: HashSet::new(),
            tails: HashSet::new(),
            ends_with_role: pattern(r#"role['"]?\]?\s*\)?\s*(?:[+~]|-?\}\})\s*$"#)?,
            starts_with_role: pattern(
                r#"^(?:[+~]|\{\{-?)\s*\(?\s*(?:[\w.]|\[\s*-?[\w.]+\s*\])*(?:\brole|\[['"]role['"]\])\s*(?:[+~)]|-?\}\}|$)"#,
            )?,
            tokens,
        };
        for token in &controls.tokens {
            for (at, role) in ROLES.iter().flat_map(|role| token.match_indices(role)) {
                let (head, tail) = (&token[..at], &token[at + role.len()..]);
                if !head.is_empty() && !tail.is_empty() {
                    controls.of_roles.insert(token.clone());
                    controls.heads.insert(head.to_string());
                    controls.tails.insert(tail.to_string());
                }
            }
        }
        if !controls.tokens.is_empty() {
            let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&controls.tokens);
            controls.automaton = Some(built.map_err(|e| Failure::invalid(format!("the control tokens: {e}")))?);
        }
        Ok(controls)
    }

    /// Returns a template in minijinja's dialect with marks around what it writes of special tokens.
    pub fn mark_template(&self, source: &str) -> String {
        if self.automaton.is_none() {
            return source.to_string();
        }
        let parts = dialect::parts(source);
        let mut out = String::with_capacity(source.len() + 256);
        for (i, part) in parts.iter().enumerate() {
            match part.kind {
                PartKind::Comment => out.push_str(part.text),
                PartKind::Tag => self.mark_literals(part.text, &mut out),
                PartKind::Text => {
                    let before = if i > 0 { parts[i - 1].text } else { "" };
                    let after = parts.get(i + 1).map_or("", |next| next.text);
                    self.mark_written(part.text, before, after, &mut out);
                }
            }
        }
        out
    }

    fn mark_literals(&self, tag: &str, out: &mut String) {
        let mut done = 0;
        for (at, literal) in dialect::literals(tag) {
            out.push_str(&tag[done..=at]);
            let end = at + literal.len();
            let inside = if end > at + 1 { at + 1..end - 1 } else { end..end };
            self.mark_written(&tag[inside.clone()], &tag[..at], &tag[end..], out);
            done = inside.end.max(at + 1);
        }
        out.push_str(&tag[done..]);
    }

    /// `before`, `after`: the code around a text that the template writes.
    fn mark_written(&self, text: &str, before: &str, after: &str, out: &mut String) {
        let tail = longest(&self.tails, |tail| text.starts_with(tail)).filter(|_| self.ends_with_role.is_match(before));
        let from = tail.map_or(0, str::len);
        let head = longest(&self.heads, |head| text[from..].ends_with(head))
            .filter(|_| self.starts_with_role.is_match(after.trim_start()));
        let to = text.len() - head.map_or(0, str::len);
        if let Some(tail) = tail {
            out.push_str(tail);
            out.push(CLOSE_ROLE);
        }
        out.push_str(&self.mark(&text[from..to]));
        if let Some(head) = head {
            out.push(OPEN_ROLE);
            out.push_str(head);
        }
    }

    /// Returns a text of the operator's with marks around special tokens.
    pub fn mark(&self, text: &str) -> String {
        let Some(automaton) = &self.automaton else { return text.to_string() };
        let mut out = String::with_capacity(text.len() + 16);
        let mut done = 0;
        for found in automaton.find_iter(text) {
            out.push_str(&text[done..found.start()]);
            out.push(OPEN);
            out.push_str(&text[found.range()]);
            out.push(CLOSE);
            done = found.end();
        }
        out.push_str(&text[done..]);
        out
    }

    /// Takes the marks out of what a template rendered.
    pub fn unmark(&self, rendered: String) -> Unmarked {
        if self.automaton.is_none() || !rendered.contains(MARKS) {
            return Unmarked { text: rendered, controls: Vec::new() };
        }
        let mut text = String::with_capacity(rendered.len());
        let mut controls = Vec::new();
        let mut open: Option<(char, usize)> = None;
        let mut rest = rendered.as_str();
        while let Some(at) = rest.find(MARKS) {
            text.push_str(&rest[..at]);
            let mark = rest[at..].chars().next().unwrap_or(OPEN);
            rest = &rest[at + mark.len_utf8()..];
            let known = match (open, mark) {
                (Some((OPEN, begin)), CLOSE) => self.tokens.get(&text[begin..]),
                (Some((OPEN_ROLE, begin)), CLOSE_ROLE) => self.of_roles.get(&text[begin..]),
                _ => None,
            };
            if let Some(token) = known {
                controls.extend([(text.len() - token.len()) as u32, text.len() as u32]);
            }
            open = matches!(mark, OPEN | OPEN_ROLE).then_some((mark, text.len()));
        }
        text.push_str(rest);
        Unmarked { text, controls }
    }
}

fn pattern(text: &str) -> Result<Regex, Failure> {
    Regex::new(text).map_err(|e| Failure::invalid(e.to_string()))
}

fn longest(halves: &HashSet<String>, fits: impl Fn(&str) -> bool) -> Option<&str> {
    halves.iter().map(String::as_str).filter(|half| fits(half)).max_by_key(|half| half.len())
}

/// Code points that stand in for marks in the strings of one request.
pub struct Substitutes {
    pairs: Vec<(char, char)>, // mark, substitute
}

impl Substitutes {
    /// `texts`: everything that may be in the prompt. None: no mark is in `inputs`. Errors: invalid, if the texts have
    /// all code points that could stand in.
    pub fn for_request(inputs: &[&Json], source: &str) -> Result<Option<Substitutes>, Failure> {
        let mut has_mark = false;
        inputs.iter().for_each(|value| each_text(value, &mut |text| has_mark |= text.contains(MARKS)));
        if !has_mark {
            return Ok(None);
        }
        let mut used: HashSet<char> = source.chars().collect();
        inputs.iter().for_each(|value| each_text(value, &mut |text| used.extend(text.chars())));
        // All have three bytes in UTF-8, no case, and are neither letters nor spaces.
        let mut free = ('\u{fdd4}'..='\u{fdef}').chain('\u{e000}'..='\u{f8ff}').filter(|c| !used.contains(c));
        let pairs: Vec<(char, char)> = MARKS.iter().copied().zip(&mut free).collect();
        match pairs.len() == MARKS.len() {
            true => Ok(Some(Substitutes { pairs })),
            false => Err(Failure::invalid("the conversation has every code point for private use; leave U+FDD0 out")),
        }
    }

    pub fn put_into(&self, value: &mut Json) {
        match value {
            Json::String(text) => *text = self.swap(text, |(mark, substitute)| (mark, substitute)),
            Json::Array(items) => items.iter_mut().for_each(|item| self.put_into(item)),
            Json::Object(pairs) => {
                let swapped = std::mem::take(pairs).into_iter().map(|(key, mut item)| {
                    self.put_into(&mut item);
                    (self.swap(&key, |(mark, substitute)| (mark, substitute)), item)
                });
                *pairs = swapped.collect();
            }
            _ => {}
        }
    }

    pub fn take_out_of(&self, text: &str) -> String {
        self.swap(text, |(mark, substitute)| (substitute, mark))
    }

    fn swap(&self, text: &str, direction: impl Fn((char, char)) -> (char, char)) -> String {
        let pairs: Vec<(char, char)> = self.pairs.iter().copied().map(direction).collect();
        text.chars().map(|c| pairs.iter().find(|(from, _)| *from == c).map_or(c, |(_, to)| *to)).collect()
    }
}

fn each_text(value: &Json, visit: &mut impl FnMut(&str)) {
    match value {
        Json::String(text) => visit(text),
        Json::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
        Json::Object(pairs) => pairs.iter().for_each(|(key, item)| {
            visit(key);
            each_text(item, visit);
        }),
        _ => {}
    }
}
