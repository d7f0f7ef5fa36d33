//! Methods of Python's str, as templates call them; dict and list methods are minijinja-contrib's pycompat. PyDict is a
//! dict from JSON whose attributes are Python's: `m.items` is a method, `m['items']` an item.

use crate::python::is_space;
use indexmap::IndexMap;
use minijinja::formatting::{format, FormatStyle};
use minijinja::value::{from_args, DynObject, Enumerator, Kwargs, Object, ObjectRepr, Tuple};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use std::sync::Arc;

pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => string_method(text, method, args),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

fn string_method(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(result) = predicate(s, method) {
        let () = from_args(args)?;
        return Ok(Value::from(result));
    }
    Ok(match method {
        "upper" => no_args(args, s.to_uppercase())?,
        "lower" => no_args(args, s.to_lowercase())?,
        "casefold" => no_args(args, s.to_lowercase().replace('ß', "ss"))?,
        "swapcase" => no_args(args, swapcase(s))?,
        "title" => no_args(args, title(s))?,
        "capitalize" => no_args(args, capitalize(s))?,
        "strip" => strip(s, args, true, true)?,
        "lstrip" => strip(s, args, true, false)?,
        "rstrip" => strip(s, args, false, true)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(s.strip_prefix(prefix).unwrap_or(s))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(s.strip_suffix(suffix).unwrap_or(s))
        }
        "split" => split(s, args, false)?,
        "rsplit" => split(s, args, true)?,
        "splitlines" => splitlines(s, args)?,
        "partition" => partition(s, args, false)?,
        "rpartition" => partition(s, args, true)?,
        "replace" => replace(s, args)?,
        "count" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(s.matches(what).count())
        }
        "find" => position(args, |what| s.find(what).map(|at| s[..at].chars().count()))?,
        "rfind" => position(args, |what| s.rfind(what).map(|at| s[..at].chars().count()))?,
        "index" => found(position(args, |what| s.find(what).map(|at| s[..at].chars().count()))?)?,
        "rindex" => found(position(args, |what| s.rfind(what).map(|at| s[..at].chars().count()))?)?,
        "startswith" => affix(args, |prefix| s.starts_with(prefix))?,
        "endswith" => affix(args, |suffix| s.ends_with(suffix))?,
        "join" => join(s, args)?,
        "format" => Value::from(format(FormatStyle::StrFormat, s, args)?),
        "center" => pad(s, args, |room| room / 2 + (room & (s.chars().count() + room) & 1))?,
        "ljust" => pad(s, args, |_| 0)?,
        "rjust" => pad(s, args, |room| room)?,
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
            let zeros = width.min(MAX_PADDING).saturating_sub(s.chars().count());
            Value::from(format!("{sign}{}{digits}", "0".repeat(zeros)))
        }
        "expandtabs" => {
            let (size,): (Option<usize>,) = from_args(args)?;
            Value::from(expandtabs(s, size.unwrap_or(8).min(64)))
        }
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

const MAX_PADDING: usize = 1 << 20;

fn no_args(args: &[Value], result: String) -> Result<Value, Error> {
    let () = from_args(args)?;
    Ok(Value::from(result))
}

fn predicate(s: &str, method: &str) -> Option<bool> {
    let all = |test: fn(char) -> bool| !s.is_empty() && s.chars().all(test);
    let cased = |upper: bool| {
        let wanted = |c: char| if upper { c.is_uppercase() } else { c.is_lowercase() };
        let other = |c: char| if upper { c.is_lowercase() } else { c.is_uppercase() };
        s.chars().any(wanted) && !s.chars().any(other)
    };
    Some(match method {
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isdigit" | "isdecimal" | "isnumeric" => all(char::is_numeric),
        "isspace" => all(is_space),
        "isascii" => s.is_ascii(),
        "islower" => cased(false),
        "isupper" => cased(true),
        "istitle" => s.chars().any(|c| c.is_uppercase()) && title(s) == s,
        _ => return None,
    })
}

/// Returns the text with the first letter of every run of letters in title case and the others in lower case ("don't"
/// becomes "Don'T", as in Python).
fn title(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        let cased = c.is_lowercase() || c.is_uppercase();
        match inside {
            true => out.extend(c.to_lowercase()),
            false => push_title(c, &mut out),
        }
        inside = cased;
    }
    out
}

/// Appends `c` in title case: its upper case, of which only the first character stays upper if it has two.
fn push_title(c: char, out: &mut String) {
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    upper.for_each(|rest| out.extend(rest.to_lowercase()));
}

pub fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    let mut out = String::with_capacity(s.len());
    if let Some(first) = chars.next() {
        push_title(first, &mut out);
    }
    out + &chars.as_str().to_lowercase()
}

fn swapcase(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c.is_uppercase() {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
    }
    out
}

pub fn strip_ends<'a>(s: &'a str, chars: Option<&str>, start: bool, end: bool) -> &'a str {
    let matches = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let s = if start { s.trim_start_matches(matches) } else { s };
    if end {
        s.trim_end_matches(matches)
    } else {
        s
    }
}

fn strip(s: &str, args: &[Value], start: bool, end: bool) -> Result<Value, Error> {
    let (chars,): (Option<&str>,) = from_args(args)?;
    Ok(Value::from(strip_ends(s, chars, start, end)))
}

fn split(s: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (separator, max, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(kwargs.get::<Option<Value>>("sep")?).filter(|v| !v.is_none());
    let max = max.or(kwargs.get::<Option<i64>>("maxsplit")?).unwrap_or(-1);
    kwargs.assert_all_used()?;
    let max = usize::try_from(max).ok();
    let Some(separator) = separator else {
        return Ok(split_spaces(s, max, from_right).into_iter().map(Value::from).collect());
    };
    let separator = separator.as_str().ok_or_else(|| wrong("split: the separator must be a string"))?;
    if separator.is_empty() {
        return Err(wrong("split: empty separator"));
    }
    let limit = max.map_or(usize::MAX, |max| max.saturating_add(1));
    Ok(match from_right {
        false => s.splitn(limit, separator).map(Value::from).collect(),
        true => {
            let mut parts: Vec<&str> = s.rsplitn(limit, separator).collect();
            parts.reverse();
            parts.into_iter().map(Value::from).collect()
        }
    })
}

/// Splits at runs of spaces, at most `max` times. The rest stays whole, without spaces on the side of the split.
fn split_spaces(s: &str, max: Option<usize>, from_right: bool) -> Vec<String> {
    let max = max.unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let mut rest = strip_ends(s, None, !from_right, from_right);
    while !rest.is_empty() && parts.len() < max {
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(at) = cut else { break };
        let width = rest[at..].chars().next().map_or(0, char::len_utf8);
        let (left, right) = (&rest[..at], &rest[at + width..]);
        parts.push(if from_right { right } else { left }.to_string());
        rest = strip_ends(if from_right { left } else { right }, None, !from_right, from_right);
    }
    if !rest.is_empty() {
        parts.push(
            strip_ends(rest, None, from_right && parts.len() < max, !from_right && parts.len() < max).to_string(),
        );
    }
    if from_right {
        parts.reverse();
    }
    parts
}

fn splitlines(s: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
    let keep = keep.or(kwargs.get::<Option<bool>>("keepends")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    Ok(lines(s, keep).into_iter().map(Value::from).collect())
}

/// Splits as str.splitlines does: it knows more line ends than \n, and no empty line follows the last end.
pub fn lines(s: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = s;
    while let Some(at) = rest.find(is_end) {
        let width = match rest[at..].starts_with("\r\n") {
            true => 2,
            false => rest[at..].chars().next().map_or(0, char::len_utf8),
        };
        lines.push(&rest[..if keep_ends { at + width } else { at }]);
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn partition(s: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(wrong("partition: empty separator"));
    }
    let parts = match (if from_right { s.rfind(separator) } else { s.find(separator) }, from_right) {
        (Some(at), _) => [&s[..at], separator, &s[at + separator.len()..]],
        (None, true) => ["", "", s],
        (None, false) => [s, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn replace(s: &str, args: &[Value]) -> Result<Value, Error> {
    let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
    Ok(Value::from(match usize::try_from(count.unwrap_or(-1)) {
        Ok(count) => s.replacen(old, new, count),
        Err(_) => s.replace(old, new),
    }))
}

fn position(args: &[Value], find: impl Fn(&str) -> Option<usize>) -> Result<Value, Error> {
    let (what,): (&str,) = from_args(args)?;
    Ok(Value::from(find(what).map_or(-1, |at| at as i64)))
}

fn found(position: Value) -> Result<Value, Error> {
    match position.as_i64() {
        Some(at) if at >= 0 => Ok(position),
        _ => Err(wrong("substring not found")),
    }
}

fn affix(args: &[Value], test: impl Fn(&str) -> bool) -> Result<Value, Error> {
    let (affix,): (&Value,) = from_args(args)?;
    if let Some(text) = affix.as_str() {
        return Ok(Value::from(test(text)));
    }
    if affix.downcast_object_ref::<Tuple>().is_none() {
        return Err(wrong(format!("the argument must be a string or a tuple of strings, not {}", affix.kind())));
    }
    for item in affix.try_iter()? {
        let text = item.as_str().ok_or_else(|| wrong(format!("the tuple must hold strings, not {}", item.kind())))?;
        if test(text) {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn join(separator: &str, args: &[Value]) -> Result<Value, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut out = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        let text = item.as_str().ok_or_else(|| wrong(format!("join: item {i} is no string but {}", item.kind())))?;
        out.push_str(text);
    }
    Ok(Value::from(out))
}

fn pad(s: &str, args: &[Value], left_of: impl Fn(usize) -> usize) -> Result<Value, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    let room = width.min(MAX_PADDING).saturating_sub(s.chars().count());
    let fill = fill.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(wrong("the fill must be one character"));
    }
    let left = left_of(room).min(room);
    Ok(Value::from(format!("{}{s}{}", fill.repeat(left), fill.repeat(room - left))))
}

fn expandtabs(s: &str, size: usize) -> String {
    let mut out = String::with_capacity(s.len());
    let mut column = 0;
    for c in s.chars() {
        match c {
            '\t' if size > 0 => {
                let width = size - column % size;
                out.push_str(&" ".repeat(width));
                column += width;
            }
            '\t' => {}
            c => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    out
}

const DICT_METHODS: [&str; 4] = ["get", "items", "keys", "values"];

#[derive(Debug)]
pub struct PyDict(DynObject);

impl PyDict {
    pub fn value_of(pairs: impl Iterator<Item = (String, Value)>) -> Value {
        let map = Value::from(pairs.map(|(key, value)| (Value::from(key), value)).collect::<IndexMap<Value, Value>>());
        match map.as_object() {
            Some(object) => Value::from_object(PyDict(object.clone())),
            None => map,
        }
    }
}

impl Object for PyDict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get_value(key)
    }

    /// Returns `m.name`. As in Jinja2, a method of dict hides an item of the same name.
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match DICT_METHODS.iter().find(|&&name| name == key) {
            Some(name) => Some(Value::from_object(BoundMethod { dict: Value::from_dyn_object(self.clone()), name })),
            None => self.0.get_value_by_str(key),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.0.enumerate()
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.0.enumerator_len()
    }
}

#[derive(Debug)]
struct BoundMethod {
    dict: Value,
    name: &'static str,
}

impl Object for BoundMethod {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        self.dict.call_method(state, self.name, args)
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<built-in method {} of dict object>", self.name)
    }
}
