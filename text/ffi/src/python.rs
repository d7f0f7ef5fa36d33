//! Prints values as Python's str() and repr() do, where minijinja's own printing differs.

use crate::controls::MARKS;
use minijinja::value::{Tuple, ValueKind};
use minijinja::Value;
use std::fmt::Write;

/// Bounds the recursion over nested values, which print as "..." beyond it: a value may contain itself through a
/// namespace.
const MAX_DEPTH: usize = 100;

pub fn is_space(c: char) -> bool {
    // Python's str.isspace also counts the four ASCII separators, which Unicode's White_Space does not.
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub fn str_of(value: &Value) -> String {
    let mut out = String::new();
    write_str(value, &mut out);
    out
}

pub fn write_str(value: &Value, out: &mut String) {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => write_repr(value, out, 0),
    }
}

pub fn repr_of(value: &Value) -> String {
    let mut out = String::new();
    write_repr(value, &mut out, 0);
    out
}

fn write_repr(value: &Value, out: &mut String, depth: usize) {
    if depth > MAX_DEPTH {
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if !value.is_integer() => out.push_str(&float(f64::try_from(value.clone()).unwrap_or(0.0))),
        ValueKind::Seq | ValueKind::Iterable => write_sequence(value, out, depth),
        ValueKind::Map => write_map(value, out, depth),
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

fn write_sequence(value: &Value, out: &mut String, depth: usize) {
    let tuple = value.downcast_object_ref::<Tuple>().is_some();
    let mut count = 0;
    out.push(if tuple { '(' } else { '[' });
    if let Ok(items) = value.try_iter() {
        for item in items {
            if count > 0 {
                out.push_str(", ");
            }
            write_repr(&item, out, depth + 1);
            count += 1;
        }
    }
    if tuple && count == 1 {
        out.push(',');
    }
    out.push(if tuple { ')' } else { ']' });
}

fn write_map(value: &Value, out: &mut String, depth: usize) {
    out.push('{');
    for (i, (key, item)) in dict_items(value).iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write_repr(key, out, depth + 1);
        out.push_str(": ");
        write_repr(item, out, depth + 1);
    }
    out.push('}');
}

/// Returns the items of a dict. In Python the keys true and 1 (false and 0) are one: the first key with the last value.
pub fn dict_items(value: &Value) -> Vec<(Value, Value)> {
    let mut items: Vec<(Value, Value)> = Vec::with_capacity(value.len().unwrap_or(0).min(1024));
    for key in value.try_iter().into_iter().flatten() {
        let item = value.get_item(&key).unwrap_or_default();
        let same = match key.kind() {
            ValueKind::Bool | ValueKind::Number => {
                items.iter_mut().find(|(known, _)| as_number(known) == as_number(&key))
            }
            _ => None,
        };
        match same {
            Some(known) => known.1 = item,
            None => items.push((key, item)),
        }
    }
    items
}

fn as_number(key: &Value) -> Option<Value> {
    match key.kind() {
        ValueKind::Bool => Some(Value::from(i64::from(key.is_true()))),
        ValueKind::Number => Some(key.clone()),
        _ => None,
    }
}

/// Returns repr() of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16.
pub fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.into();
    }
    let text = format!("{value:?}"); // Rust has Python's thresholds and another form of exponent
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            format!("{digits}e{:+03}", exponent.parse::<i32>().unwrap_or(0))
        }
        None => text,
    }
}

fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let _ = match c as u32 {
                    code @ 0..=0xff => write!(out, "\\x{code:02x}"),
                    code @ 0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Tells what str.isprintable tells: false for control, format, surrogate, private and unassigned characters, and for
/// spaces but ' '.
fn is_printable(c: char) -> bool {
    if (' '..='~').contains(&c) || MARKS.contains(&c) {
        return true;
    }
    static HIDDEN: std::sync::OnceLock<regex::Regex> = std::sync::OnceLock::new();
    let hidden = HIDDEN.get_or_init(|| regex::Regex::new(r"[\p{C}\p{Z}]").expect("a fixed pattern"));
    !hidden.is_match(c.encode_utf8(&mut [0; 4]))
}
