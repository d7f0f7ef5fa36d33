//! The `tojson` filter of transformers: json.dumps of Python with its arguments, no HTML escapes.

use crate::arguments::Arguments;
use crate::controls::MARKS;
use crate::python;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

const MAX_DEPTH: usize = 200;

struct Style {
    ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// Implements tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False). Errors: arguments of
/// a wrong type, a value that JSON does not have, or one nested too deeply.
pub fn tojson(value: &Value, args: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let args = Arguments::new(args, named, 4)?;
    let is_set = |value: Option<Value>| value.is_some_and(|v| v.is_true());
    let ascii = is_set(args.get(0, "ensure_ascii")?);
    let indent = args.get(1, "indent")?.map(|v| indent_text(&v)).transpose()?;
    let (item_separator, key_separator) = match args.get(2, "separators")? {
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
        Some(pair) => match pair.try_iter()?.collect::<Vec<Value>>().as_slice() {
            [item, key] => (item.to_string(), key.to_string()),
            _ => return Err(bad("separators must be a pair")),
        },
    };
    let sort_keys = is_set(args.get(3, "sort_keys")?);
    args.done()?;
    let style = Style { ascii, indent, item_separator, key_separator, sort_keys };
    let mut out = String::new();
    style.write(value, &mut out, 0)?;
    Ok(Value::from(out))
}

fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {}", text.into()))
}

fn indent_text(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_string());
    }
    let count = i64::try_from(indent.clone()).map_err(|_| bad("indent must be a number or a string"))?;
    Ok(" ".repeat(count.clamp(0, 64) as usize))
}

impl Style {
    fn write(&self, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(bad("the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => self.write_text(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_items(&items, '[', ']', out, depth, |item, out| self.write(item, out, depth + 1))?;
            }
            ValueKind::Map => {
                let mut items = python::dict_items(value);
                if self.sort_keys {
                    items.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.write_items(&items, '{', '}', out, depth, |(key, item), out| {
                    self.write_text(&key_text(key)?, out);
                    out.push_str(&self.key_separator);
                    self.write(item, out, depth + 1)
                })?;
            }
            kind => return Err(bad(format!("a value of type {kind} cannot be written as JSON"))),
        }
        Ok(())
    }

    fn write_items<T>(
        &self,
        items: &[T],
        open: char,
        close: char,
        out: &mut String,
        depth: usize,
        mut write: impl FnMut(&T, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            self.new_line(out, depth + 1);
            write(item, out)?;
        }
        if !items.is_empty() {
            self.new_line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn write_text(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ascii && c > '~' && !MARKS.contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(x) if x.is_nan() => "NaN".into(),
        Ok(x) if x.is_infinite() => if x < 0.0 { "-Infinity" } else { "Infinity" }.into(),
        Ok(x) => python::float(x),
        Err(_) => value.to_string(),
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number => Ok(number(key)),
        kind => Err(bad(format!("keys must be strings or numbers, not {kind}"))),
    }
}
