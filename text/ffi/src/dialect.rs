//! Translates a template from Jinja2's dialect to minijinja's, where no filter, test or method can mend the difference.
//!
//! | Jinja2 | minijinja |
//! |---|---|
//! | line ends \r\n and \r are \n | kept |
//! | `{% generation %}` (marks the assistant's tokens for training) | unknown |
//! | the line end after `{% raw %}` stays | trimmed by trim_blocks |
//! | `'%s' % x` formats | an error; becomes `'%s'\|python_format(x)` |
//! | `x[a:b:c]` is Python's for any bounds and length | differs for c < 0, panics on an empty value; becomes `(x\|python_slice(a,b,c))` |
//! | `for x in none` fails | no iterations; becomes `for x in (none)\|python_iter` |
//!
//! Each turn of a loop and each call of a macro asks IS_LATE first, a function that fails at the deadline.

/// The name of a variable of each render.
pub const IS_LATE: &str = "baton_is_late";

/// Bounds the recursion over formats inside the operands of formats; real templates nest less.
const MAX_NESTING: usize = 16;
/// Max slices with a step that are translated in one tag.
const MAX_SLICES: usize = 32;
/// Max brackets around a slice that is translated.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    Text, // and what is between raw and endraw
    Comment,
    Tag,
}

pub struct Part<'a> {
    pub kind: PartKind,
    pub text: &'a str,
}

/// Cuts a template into its tags and what is between them.
pub fn parts(source: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = source;
    while let Some(at) = next_tag(rest) {
        let (text, tagged) = rest.split_at(at);
        parts.push(Part { kind: PartKind::Text, text });
        let (kind, length) = match &tagged[..2] {
            "{#" => (PartKind::Comment, tagged.find("#}").map_or(tagged.len(), |end| end + 2)),
            "{{" => (PartKind::Tag, tag_length(tagged, "}}")),
            _ => (PartKind::Tag, tag_length(tagged, "%}")),
        };
        let (tag, after) = tagged.split_at(length);
        parts.push(Part { kind, text: tag });
        rest = after;
        if kind == PartKind::Tag && keyword(tag) == "raw" {
            let (text, after) = rest.split_at(raw_length(rest));
            parts.push(Part { kind: PartKind::Text, text });
            rest = after;
        }
    }
    parts.push(Part { kind: PartKind::Text, text: rest });
    parts
}

/// Returns the template in minijinja's dialect. A construct that cannot be parsed stays as it is; minijinja refuses it.
pub fn translate(source: &str) -> String {
    let text = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(text.len() + 64);
    for part in parts(&text) {
        match part.kind {
            PartKind::Text | PartKind::Comment => out.push_str(part.text),
            PartKind::Tag if keyword(part.text) == "raw" => out.push_str(&with_plus(part.text)),
            PartKind::Tag => out.push_str(&translate_tag(part.text)),
        }
    }
    out
}

/// Returns the string literals of a tag, quotes included, and where they start.
pub fn literals(tag: &str) -> Vec<(usize, &str)> {
    let tokens = tokens_of(tag).into_iter().filter(|token| token.text.starts_with(['\'', '"']));
    tokens.map(|token| (token.at, token.text)).collect()
}

fn next_tag(text: &str) -> Option<usize> {
    text.as_bytes().windows(2).position(|pair| pair[0] == b'{' && matches!(pair[1], b'{' | b'%' | b'#'))
}

/// Returns the bytes of the tag at the start of `text`, its end included; strings inside may contain the end.
fn tag_length(text: &str, close: &str) -> usize {
    let mut at = 2;
    let mut depth = 0usize;
    while at < text.len() {
        let rest = &text[at..];
        if depth == 0 && rest.starts_with(close) {
            return at + 2;
        }
        let token = token_length(rest);
        match rest.as_bytes()[0] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += token;
    }
    text.len()
}

/// Returns the bytes up to and including the endraw tag, or all if there is none.
fn raw_length(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        let tag = &text[from + at..];
        let length = tag.find("%}").map_or(tag.len(), |end| end + 2);
        if keyword(&tag[..length]) == "endraw" {
            return from + at + length;
        }
        from += at + 2;
    }
    text.len()
}

/// Returns the first word of a block tag.
fn keyword(tag: &str) -> &str {
    let Some(inner) = tag.strip_prefix("{%") else { return "" };
    let inner = inner.trim_start_matches(['-', '+']).trim_start();
    &inner[..word_length(inner)]
}

fn with_plus(tag: &str) -> String {
    match tag.strip_suffix("%}") {
        Some(inner) if !inner.ends_with(['-', '+']) => format!("{inner}+%}}"),
        _ => tag.to_string(),
    }
}

fn translate_tag(tag: &str) -> String {
    match keyword(tag) {
        "generation" => tag.replacen("generation", "if true", 1),
        "endgeneration" => tag.replacen("endgeneration", "endif", 1),
        "for" => with_deadline(&translate_formats(&checked_for(&translate_slices(tag)), 0)),
        "macro" => with_deadline(&translate_formats(&translate_slices(tag), 0)),
        _ => translate_formats(&translate_slices(tag), 0),
    }
}

/// Appends the question to a tag, which writes nothing; the tag's end, with its sign for white space, stays the end.
fn with_deadline(tag: &str) -> String {
    let inner = tag.strip_suffix("%}").map(|inner| inner.strip_suffix(['-', '+']).unwrap_or(inner));
    let Some(inner) = inner else { return tag.to_string() };
    format!("{inner} %}}{{% if {IS_LATE}() %}}{{% endif {}", &tag[inner.len()..])
}

/// Wraps the value that a `for` tag iterates over. Jinja2 has no inline `if` there, so a bare `if` starts the loop's
/// filter, which asks for the deadline too: what it leaves out never comes to the body.
fn checked_for(tag: &str) -> String {
    let tokens = tokens_of(tag);
    let Some(start) = tokens.iter().find(|t| t.depth == 0 && t.text == "in").map(|t| t.at + 2) else {
        return tag.to_string();
    };
    let end_from = |from: usize, words: &[&str]| {
        let is_last = |t: &Token| t.text == "%}" || (matches!(t.text, "-" | "+") && tag[t.at + 1..] == *"%}");
        tokens.iter().find(|t| t.at >= from && t.depth == 0 && (words.contains(&t.text) || is_last(t)))
    };
    let Some(end) = end_from(start, &["if", "recursive"]) else { return tag.to_string() };
    let values = format!("{} ({})|python_iter", &tag[..start], tag[start..end.at].trim());
    let filter = end.at + end.text.len();
    match end_from(filter, &["recursive"]) {
        Some(last) if end.text == "if" => {
            format!("{values} if not {IS_LATE}() and ({}) {}", tag[filter..last.at].trim(), &tag[last.at..])
        }
        _ => format!("{values} {}", &tag[end.at..]),
    }
}

/// Turns slices with a step into filters, one a turn, the leftmost first.
fn translate_slices(tag: &str) -> String {
    let mut text = tag.to_string();
    for _ in 0..MAX_SLICES {
        match translate_first_slice(&text) {
            Some(better) => text = better,
            None => break,
        }
    }
    text
}

fn translate_first_slice(text: &str) -> Option<String> {
    let tokens = tokens_of(text);
    for open in 1..tokens.len() {
        if tokens[open].text != "[" || tokens[open].depth > MAX_DEPTH {
            continue;
        }
        let Some(close) = tokens[open].partner else { continue };
        let inside = tokens[open].depth + 1;
        let colons: Vec<usize> = (open..close)
            .filter(|&i| tokens[i].depth == inside && tokens[i].text == ":")
            .map(|i| tokens[i].at)
            .collect();
        let ([first, second], Some(start)) = (colons.as_slice(), operand_start(&tokens, open - 1)) else { continue };
        let part = |from: usize, to: usize| match text[from + 1..to].trim() {
            "" => "none".to_string(),
            given => given.to_string(),
        };
        let bounds = [part(tokens[open].at, *first), part(*first, *second), part(*second, tokens[close].at)].join(", ");
        let (head, operand, tail) = (&text[..start], &text[start..tokens[open].at], &text[tokens[close].at + 1..]);
        return Some(format!("{head}({operand}|python_slice({bounds})){tail}"));
    }
    None
}

/// Returns the first token of the expression that ends with token `i`. None: it cannot have a subscript.
fn operand_start(tokens: &[Token], mut i: usize) -> Option<usize> {
    const KEYWORDS: [&str; 9] = ["in", "not", "and", "or", "if", "elif", "else", "is", "set"];
    let is_operand = |i: usize| {
        let text = tokens[i].text;
        let name = text.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '\'' || c == '"');
        matches!(text, ")" | "]" | "}") || (name && !KEYWORDS.contains(&text))
    };
    if !is_operand(i) {
        return None;
    }
    loop {
        if matches!(tokens[i].text, ")" | "]" | "}") {
            i = tokens[i].partner?;
            if i > 0 && tokens[i].text != "{" && is_operand(i - 1) {
                i -= 1;
                continue;
            }
        } else if i > 1 && tokens[i - 1].text == "." {
            i -= 2;
            continue;
        }
        return Some(tokens[i].at);
    }
}

/// Turns a string literal's `%` into a filter, with the operand that binds tighter than `%`.
fn translate_formats(text: &str, nesting: usize) -> String {
    if nesting == MAX_NESTING {
        return text.to_string();
    }
    let tokens = tokens_of(text);
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for i in 1..tokens.len() {
        let (literal, percent) = (&tokens[i - 1], &tokens[i]);
        if literal.at < done || !literal.text.starts_with(['\'', '"']) || percent.text != "%" {
            continue;
        }
        let end = operand_end(&tokens, i + 1).unwrap_or(text.len());
        let operand = translate_formats(text[percent.at + 1..end].trim(), nesting + 1);
        out.push_str(&text[done..percent.at]);
        out.push_str("|python_format(");
        out.push_str(&operand);
        out.push(')');
        done = end;
    }
    out.push_str(&text[done..]);
    out
}

/// Returns the end of the operand that starts with token `i`: signs, a name, literal or group, then `.name`, `[..]`,
/// `(..)` and `|filter`. None: the operand has no end.
fn operand_end(tokens: &[Token], mut i: usize) -> Option<usize> {
    let is = |i: usize, wanted: &[&str]| tokens.get(i).is_some_and(|t| wanted.contains(&t.text));
    while is(i, &["-", "+"]) {
        i += 1;
    }
    if is(i, &["(", "[", "{"]) {
        i = tokens[i].partner?;
    }
    loop {
        if is(i + 1, &["(", "["]) {
            i = tokens[i + 1].partner?;
        } else if is(i + 1, &[".", "|"]) {
            i += 2;
        } else {
            return tokens.get(i).map(|last| last.at + last.text.len());
        }
    }
}

struct Token<'a> {
    at: usize,
    text: &'a str,
    depth: usize,           // number of brackets around it; a bracket and its partner have the same
    partner: Option<usize>, // of a bracket: the index of the other one
}

fn tokens_of(text: &str) -> Vec<Token<'_>> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let token = &text[at..at + token_length(&text[at..])];
        let partner = if matches!(token, ")" | "]" | "}") { open.pop() } else { None };
        let this = tokens.len();
        if let Some(partner) = partner {
            tokens[partner].partner = Some(this);
        }
        if !token.trim().is_empty() {
            tokens.push(Token { at, text: token, depth: open.len(), partner });
        }
        if matches!(token, "(" | "[" | "{") {
            open.push(this);
        }
        at += token.len();
    }
    tokens
}

/// Returns the bytes of the token at the start: a string, a word or number, a tag border, or one character.
fn token_length(text: &str) -> usize {
    let first = text.chars().next().map_or(0, char::len_utf8);
    match text.as_bytes()[0] {
        quote @ (b'\'' | b'"') => {
            let mut escaped = false;
            let end = text.bytes().skip(1).position(|byte| {
                let closes = byte == quote && !escaped;
                escaped = byte == b'\\' && !escaped;
                closes
            });
            end.map_or(text.len(), |at| at + 2)
        }
        _ if text.starts_with("%}") || text.starts_with("{%") => 2,
        _ => word_length(text).max(first),
    }
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}
