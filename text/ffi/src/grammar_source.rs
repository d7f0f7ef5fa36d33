//! The text of a grammar as clients send it, checked and put into llguidance's form. What would make the library
//! recurse deeply, or work for long without using fuel, is refused here, by name.

use crate::error::Failure;
use crate::grammar::Vocabulary;
use crate::schema_check;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::regex_to_lark;
use serde_json::{json, Value as Json};

pub const MAX_BYTES: usize = 64 << 10;
pub const MAX_DEPTH: usize = 32;
/// Rules of a Lark grammar: the library goes from rule to rule by recursion.
const MAX_RULES: usize = 300;
const MAX_CHOICES: usize = 5000;
/// `?`, `*` and the like: a row of parts that may all be absent costs its length squared.
const MAX_REPETITIONS: usize = 1000;
/// Between two tokens of JSON; without a bound a model may write spaces until its tokens are used up.
const WHITESPACE: &str = r"[\x20\x0A\x0D\x09]{1,40}";

const JSON_OBJECT: i32 = 1;
const JSON_SCHEMA: i32 = 2;
const REGEX: i32 = 3;
const CHOICE: i32 = 4;
const LARK: i32 = 5;
const PARTS: i32 = 6;

pub fn read(kind: i32, source: &str, vocabulary: &Vocabulary) -> Result<TopLevelGrammar, Failure> {
    if source.len() > MAX_BYTES {
        return Err(Failure::invalid(format!(
            "the grammar has {} bytes; at most {MAX_BYTES} are allowed",
            source.len()
        )));
    }
    match kind {
        JSON_OBJECT => Ok(TopLevelGrammar::from_json_schema(read_schema(json!({"type": "object"}))?)),
        JSON_SCHEMA => {
            let schema = serde_json::from_str(source)
                .map_err(|e| Failure::invalid(format!("the schema is not JSON that can be read: {e}")))?;
            Ok(TopLevelGrammar::from_json_schema(read_schema(schema)?))
        }
        REGEX => Ok(TopLevelGrammar::from_lark(format!("start: {}", regex_terminal(source)?))),
        CHOICE => {
            let choices = serde_json::from_str(source)
                .map_err(|e| Failure::invalid(format!("the choice is not JSON that can be read: {e}")))?;
            Ok(TopLevelGrammar::from_lark(format!("start: {}", choice_terminal(&choices)?)))
        }
        LARK => {
            check_lark(source)?;
            Ok(TopLevelGrammar::from_lark(source.to_string()))
        }
        PARTS => {
            let parts = serde_json::from_str(source)
                .map_err(|e| Failure::invalid(format!("the parts are not JSON that can be read: {e}")))?;
            let mut writer = PartsWriter { schemas: Vec::new(), vocabulary, count: 0 };
            let body = writer.sequence(&parts, 0)?;
            let mut grammars = vec![GrammarWithLexer::from_lark(format!("start: {body}"))];
            grammars.append(&mut writer.schemas);
            Ok(TopLevelGrammar { grammars, max_tokens: None })
        }
        _ => Err(Failure::invalid(format!("kind {kind} of a grammar is not known"))),
    }
}

/// Checks a schema and adds the library's options; a client's own are limited to `whitespace_flexible`.
fn read_schema(schema: Json) -> Result<Json, Failure> {
    let mut schema = match schema {
        Json::Bool(true) => json!({}),
        other => other,
    };
    let flexible = schema_check::check(&mut schema)?;
    let options = match flexible {
        true => json!({"whitespace_pattern": WHITESPACE}),
        false => json!({"whitespace_flexible": false}),
    };
    if let Some(object) = schema.as_object_mut() {
        object.insert("x-guidance".into(), options);
    }
    Ok(schema)
}

/// A regex as a Lark terminal; the whole text must match.
fn regex_terminal(regex: &str) -> Result<String, Failure> {
    if regex.is_empty() {
        return Err(Failure::invalid("the regex is empty"));
    }
    check_regex(regex, "")?;
    Ok(format!("/{}/", regex_to_lark(regex, "")))
}

/// Refuses what the library's regex engine does not know. `ascii`: classes that mean ASCII alone ("dw" in schemas).
pub fn check_regex(regex: &str, ascii: &str) -> Result<(), Failure> {
    check_repetitions(regex)?;
    let mut parser = regex_syntax::ParserBuilder::new().nest_limit(MAX_DEPTH as u32).build();
    let regex = regex_to_lark(regex, ascii);
    parser.parse(&regex).map(|_| ()).map_err(|e| {
        let kind = match &e {
            regex_syntax::Error::Parse(e) => e.kind().to_string(),
            regex_syntax::Error::Translate(e) => e.kind().to_string(),
            other => other.to_string(),
        };
        Failure::invalid(format!("the regex is not valid or not supported: {kind}"))
    })
}

fn check_repetitions(text: &str) -> Result<(), Failure> {
    let count = text.bytes().filter(|b| matches!(b, b'?' | b'*' | b'+' | b'{')).count();
    match count <= MAX_REPETITIONS {
        true => Ok(()),
        false => Err(Failure::invalid(format!("{count} of ?, *, + and {{ are too many; use up to {MAX_REPETITIONS}"))),
    }
}

fn choice_terminal(choices: &Json) -> Result<String, Failure> {
    let choices = choices.as_array().ok_or_else(|| Failure::invalid("the choice must be an array of strings"))?;
    if choices.is_empty() || choices.len() > MAX_CHOICES {
        return Err(Failure::invalid(format!(
            "the choice has {} strings; 1 to {MAX_CHOICES} are allowed",
            choices.len()
        )));
    }
    let mut escaped = Vec::with_capacity(choices.len());
    for (index, choice) in choices.iter().enumerate() {
        match choice.as_str() {
            None | Some("") => return Err(Failure::invalid(format!("choice [{index}] must be a string, not empty"))),
            Some(text) => escaped.push(regex_syntax::escape(text)),
        }
    }
    Ok(format!("/{}/", regex_to_lark(&format!("(?:{})", escaped.join("|")), "")))
}

/// A reader of Lark that knows strings, regexes and comments apart from the rest, and no more.
fn check_lark(source: &str) -> Result<(), Failure> {
    if source.trim().is_empty() {
        return Err(Failure::invalid("the grammar is empty"));
    }
    if source.trim_start().starts_with('{') {
        return Err(Failure::invalid("a list of grammars in JSON is not supported; write one Lark grammar"));
    }
    check_repetitions(source)?;
    let (mut depth, mut rules) = (0usize, 0usize);
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        match rest[0] {
            b'/' if rest.starts_with(b"//") => at = line_end(bytes, at),
            b'#' => at = line_end(bytes, at),
            quote @ (b'"' | b'/') => at = literal_end(bytes, at, quote),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'~' | b'&' => {
                return Err(Failure::invalid(format!(
                    "`{}` (terminals without or within others) is not supported",
                    rest[0] as char
                )))
            }
            b':' if rest.starts_with(b"::=") => {
                return Err(Failure::invalid("GBNF and EBNF (`::=`) are not supported; write the grammar in Lark"))
            }
            b':' => rules += 1,
            b'%' => {
                let end = rest[1..].iter().position(|b| !b.is_ascii_alphabetic()).map_or(rest.len(), |n| n + 1);
                let word = String::from_utf8_lossy(&rest[..end]);
                if !matches!(word.as_ref(), "%ignore" | "%import") {
                    return Err(Failure::invalid(format!("`{word}` is not supported in a grammar")));
                }
            }
            b'=' => return Err(Failure::invalid("attributes of rules (`[name=value]`) are not supported")),
            b'@' => return Err(Failure::invalid("references to other grammars (`@name`) are not supported")),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(Failure::invalid(format!("the grammar nests deeper than {MAX_DEPTH}")));
        }
        at += 1;
    }
    if rules > MAX_RULES {
        return Err(Failure::invalid(format!("the grammar has {rules} rules; at most {MAX_RULES} are allowed")));
    }
    Ok(())
}

/// The place of the line's end.
fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

/// The place of the quote that ends a literal on its line; of its beginning, if none does.
fn literal_end(bytes: &[u8], begin: usize, quote: u8) -> usize {
    let mut at = begin + 1;
    while at < bytes.len() && bytes[at] != b'\n' {
        match bytes[at] {
            b'\\' => at += 1,
            b if b == quote => return at,
            _ => {}
        }
        at += 1;
    }
    begin
}

/// Writes a list of parts as one Lark rule; schemas become grammars of their own, which it names.
struct PartsWriter<'a> {
    schemas: Vec<GrammarWithLexer>,
    vocabulary: &'a Vocabulary,
    count: usize,
}

impl PartsWriter<'_> {
    fn sequence(&mut self, parts: &Json, depth: usize) -> Result<String, Failure> {
        const MAX_PARTS: usize = 2000;
        const MAX_PART_DEPTH: usize = 8;
        let parts = parts.as_array().ok_or_else(|| Failure::invalid("parts must be an array"))?;
        self.count += parts.len();
        if parts.is_empty() || self.count > MAX_PARTS || depth > MAX_PART_DEPTH {
            return Err(Failure::invalid(format!(
                "parts must be 1 to {MAX_PARTS}, nested at most {MAX_PART_DEPTH} deep"
            )));
        }
        let written = parts.iter().map(|part| self.part(part, depth)).collect::<Result<Vec<_>, _>>()?;
        Ok(written.join(" "))
    }

    fn part(&mut self, part: &Json, depth: usize) -> Result<String, Failure> {
        let object = part.as_object().ok_or_else(|| Failure::invalid("a part must be an object"))?;
        let (name, value) = object.iter().next().ok_or_else(|| Failure::invalid("a part is empty"))?;
        if name != "repeat" && object.len() != 1 {
            return Err(Failure::invalid(format!("the part with `{name}` has further fields")));
        }
        match name.as_str() {
            "text" => match value.as_str() {
                Some(text) if !text.is_empty() => Ok(format!("/{}/", regex_to_lark(&regex_syntax::escape(text), ""))),
                _ => Err(Failure::invalid("`text` of a part must be a string, not empty")),
            },
            "token" => match value.as_u64() {
                Some(id) if self.vocabulary.is_part(id as usize) => Ok(format!("<[{id}]>")),
                _ => Err(Failure::invalid(format!(
                    "`token` of a part must be the id of a token that ends no text, not {value}"
                ))),
            },
            "regex" => regex_terminal(value.as_str().unwrap_or_default()),
            "choice" => choice_terminal(value),
            "schema" => {
                const MAX_SCHEMAS: usize = 256;
                if self.schemas.len() == MAX_SCHEMAS {
                    return Err(Failure::invalid(format!("the parts have more than {MAX_SCHEMAS} schemas")));
                }
                let name = format!("schema{}", self.schemas.len());
                let mut grammar = GrammarWithLexer::from_json_schema(read_schema(value.clone())?);
                grammar.name = Some(name.clone());
                self.schemas.push(grammar);
                Ok(format!("@{name}"))
            }
            "any" => {
                let options = value.as_array().ok_or_else(|| Failure::invalid("`any` must be an array"))?;
                let options = options.iter().map(|o| self.sequence(o, depth + 1)).collect::<Result<Vec<_>, _>>()?;
                if options.is_empty() {
                    return Err(Failure::invalid("`any` of a part is empty"));
                }
                Ok(format!("({})", options.join(" | ")))
            }
            "repeat" => {
                const MAX_REPEATS: u64 = 1000;
                let min = object.get("min").map_or(Some(0), Json::as_u64);
                let max = object.get("max").map_or(Some(MAX_REPEATS), Json::as_u64);
                match (min, max) {
                    (Some(min), Some(max)) if min <= max && 1 <= max && max <= MAX_REPEATS => {
                        let body = self.sequence(value, depth + 1)?;
                        let Some(between) = object.get("between") else {
                            return Ok(format!("({body}){{{min},{max}}}"));
                        };
                        let between = self.sequence(between, depth + 1)?;
                        // The body is written twice (its schemas are not: they are grammars of their own), so rows
                        // within rows would double and double.
                        const MAX_BODY_BYTES: usize = 256 << 10;
                        if body.len() + between.len() > MAX_BODY_BYTES {
                            return Err(Failure::invalid("a `repeat` with `between` is too long"));
                        }
                        let (further_min, further_max) = (min.saturating_sub(1), max - 1);
                        let row = format!("{body} ({between} {body}){{{further_min},{further_max}}}");
                        Ok(format!("({}){}", if max == 1 { body } else { row }, if min == 0 { "?" } else { "" }))
                    }
                    _ => Err(Failure::invalid(format!("`min` and `max` of `repeat` must be up to {MAX_REPEATS}"))),
                }
            }
            _ => Err(Failure::invalid(format!("`{name}` is no part of a grammar"))),
        }
    }
}
