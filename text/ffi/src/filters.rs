//! Jinja2 filters that minijinja lacks or has with other rules.

use crate::arguments::Arguments;
use crate::json;
use crate::methods::{lines, strip_ends};
use crate::python;
use minijinja::formatting::{format, FormatStyle};
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

pub fn add_to(env: &mut Environment<'_>) {
    env.add_filter("tojson", json::tojson);
    env.add_filter("python_format", python_format);
    env.add_filter("python_slice", python_slice);
    env.add_filter("python_iter", python_iter);
    env.add_filter("string", |value: &Value| python::str_of(value));
    env.add_filter("trim", trim);
    env.add_filter("join", join);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("indent", indent);
    env.add_filter("truncate", truncate);
    env.add_filter("center", center);
    env.add_filter("wordcount", wordcount);
    env.add_filter("wordwrap", wordwrap);
    env.add_filter("striptags", striptags);
    env.add_filter("urlencode", urlencode);
    env.add_filter("filesizeformat", filesizeformat);
    env.add_filter("xmlattr", xmlattr);
    env.add_filter("forceescape", |value: &Value| escape(&python::str_of(value)));
    env.add_filter("escape", |value: &Value| escape(&python::str_of(value)));
    env.add_filter("e", |value: &Value| escape(&python::str_of(value)));
    env.add_filter("pprint", |value: &Value| python::repr_of(value));
}

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

/// Formats as the `%` operator of str, which dialect.rs replaces by this filter.
fn python_format(text: &str, value: &Value) -> Result<String, Error> {
    match value.downcast_object_ref::<Tuple>() {
        Some(_) => format(FormatStyle::Printf, text, &value.try_iter()?.collect::<Vec<Value>>()),
        None => format(FormatStyle::Printf, text, &[value.clone()]),
    }
}

/// Slices with a step; dialect.rs replaces `x[a:b:c]` by this filter.
fn python_slice(value: &Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let bound = |value: Value| match value.is_none() {
        true => Ok(None),
        false => i64::try_from(value).map(Some).map_err(|_| wrong("slice indices must be integers or none")),
    };
    let step = bound(step)?.unwrap_or(1);
    if step == 0 {
        return Err(wrong("slice step cannot be zero"));
    }
    if !matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable) {
        return Err(wrong(std::format!("a value of type {} cannot be sliced", value.kind())));
    }
    let items: Vec<Value> = match value.as_str() {
        Some(text) => text.chars().map(Value::from).collect(),
        None => value.try_iter()?.collect(),
    };
    // Negative bounds count from the end, as in Python, and both are cut to the places that a walk in this direction
    // can reach.
    let length = items.len() as i64;
    let (min, max) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let index = |bound: Option<i64>, default: i64| match bound {
        None => default,
        Some(at) if at < 0 => at.saturating_add(length).clamp(min, max),
        Some(at) => at.clamp(min, max),
    };
    let (first, last) = if step > 0 { (min, max) } else { (max, min) };
    let (mut at, stop) = (index(bound(start)?, first), index(bound(stop)?, last));
    let mut picked = Vec::new();
    while if step > 0 { at < stop } else { at > stop } {
        picked.push(items[at as usize].clone());
        at = at.saturating_add(step);
    }
    Ok(match (value.as_str(), value.downcast_object_ref::<Tuple>()) {
        (Some(_), _) => Value::from(picked.iter().filter_map(Value::as_str).collect::<String>()),
        (None, Some(_)) => Value::from(Tuple::from(picked)),
        (None, None) => Value::from(picked),
    })
}

/// Passes on the value that a for loop runs over; dialect.rs adds this filter. Errors: none (undefined is no error).
fn python_iter(value: Value) -> Result<Value, Error> {
    match value.is_none() {
        true => Err(wrong("none is not iterable")),
        false => Ok(value),
    }
}

fn trim(value: &Value, args: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let args = Arguments::new(args, named, 1)?;
    let chars = args.get(0, "chars")?;
    args.done()?;
    Ok(Value::from(strip_ends(&python::str_of(value), chars.as_ref().and_then(|v| v.as_str()), true, true)))
}

fn join(value: &Value, args: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let args = Arguments::new(args, named, 2)?;
    let separator = args.get(0, "d")?.unwrap_or_default();
    let attribute = args.get(1, "attribute")?;
    args.done()?;
    let mut out = String::new();
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            python::write_str(&separator, &mut out);
        }
        match &attribute {
            None => python::write_str(&item, &mut out),
            Some(name) => python::write_str(&path(&item, name)?, &mut out),
        }
    }
    Ok(Value::from(out))
}

/// Looks up the `attribute` argument of filters: an index, a name, or names joined by dots.
fn path(item: &Value, attribute: &Value) -> Result<Value, Error> {
    let Some(names) = attribute.as_str() else { return item.get_item(attribute) };
    let mut value = item.clone();
    for name in names.split('.') {
        value = match name.parse::<i64>() {
            Ok(index) => value.get_item(&Value::from(index))?,
            Err(_) => value.get_item(&Value::from(name))?,
        };
    }
    Ok(value)
}

/// Implements default(value, default_value='', boolean=False).
fn default(value: &Value, args: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let fallback = match args.first() {
        Some(first) => first.clone(),
        None => named.get::<Option<Value>>("default_value")?.unwrap_or(Value::from("")),
    };
    let args = Arguments::new(args, named, 2)?;
    let falsy_too = args.get(1, "boolean")?.is_some_and(|v| v.is_true());
    args.done()?;
    let missing = value.is_undefined() || (falsy_too && !value.is_true());
    Ok(if missing { fallback } else { value.clone() })
}

/// Implements indent(s, width=4, first=False, blank=False): the first line is indented only with `first`, empty lines
/// only with `blank`.
fn indent(value: &Value, args: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let args = Arguments::new(args, named, 3)?;
    let width = args.get(0, "width")?.unwrap_or(Value::from(4));
    let first = args.get(1, "first")?.is_some_and(|v| v.is_true());
    let blank = args.get(2, "blank")?.is_some_and(|v| v.is_true());
    args.done()?;
    let indention = match width.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(usize::try_from(width).map_err(|_| wrong("indent: the width must be a number"))?.min(256)),
    };
    let text = python::str_of(value) + "\n";
    let mut out = String::with_capacity(text.len());
    for (i, line) in lines(&text, false).into_iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if if i == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&indention);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// Implements truncate(s, length=255, killwords=False, end='...', leeway=5).
fn truncate(value: &Value, args: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let args = Arguments::new(args, named, 4)?;
    let size = |value: Option<Value>, default: usize| match value {
        None => Ok(default),
        Some(value) => usize::try_from(value).map_err(|_| wrong("truncate: a length must be a number")),
    };
    let length = size(args.get(0, "length")?, 255)?;
    let killwords = args.get(1, "killwords")?.is_some_and(|v| v.is_true());
    let end = args.get(2, "end")?.map_or("...".into(), |v| python::str_of(&v));
    let leeway = size(args.get(3, "leeway")?, 5)?;
    args.done()?;
    let end_length = end.chars().count();
    if length < end_length {
        return Err(wrong(format!("truncate: expected length >= {end_length}, got {length}")));
    }
    let text = python::str_of(value);
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::from(text));
    }
    let mut kept: String = text.chars().take(length - end_length).collect();
    if !killwords {
        if let Some(at) = kept.rfind(' ') {
            kept.truncate(at);
        }
    }
    Ok(Value::from(kept + &end))
}

fn center(state: &mut State, value: &Value, width: Option<usize>) -> Result<Value, Error> {
    Value::from(python::str_of(value)).call_method(state, "center", &[Value::from(width.unwrap_or(80))])
}

fn wordcount(value: &Value) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    python::str_of(value).split(|c| !is_word(c)).filter(|word| !word.is_empty()).count()
}

/// Wraps each line at `width` characters, at spaces; a longer word is cut, as with Jinja2's break_long_words.
fn wordwrap(value: &Value, width: Option<usize>) -> Result<Value, Error> {
    let width = width.unwrap_or(79).max(1);
    let text = python::str_of(value);
    let wrapped: Vec<String> = lines(&text, false).into_iter().map(|line| wrap_line(line, width).join("\n")).collect();
    Ok(Value::from(wrapped.join("\n")))
}

fn wrap_line(line: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut current = String::new();
    for word in line.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let used = current.chars().count();
        if used > 0 && used + 1 + word.len() <= width {
            current.push(' ');
            current.extend(&word);
            continue;
        }
        if used > 0 {
            lines.push(std::mem::take(&mut current));
        }
        while word.len() > width {
            lines.push(word.drain(..width).collect());
        }
        current = word.into_iter().collect();
    }
    if !current.is_empty() {
        lines.push(current);
    }
    lines
}

/// Removes tags and comments, and turns runs of spaces into one space.
fn striptags(value: &Value) -> String {
    let mut text = python::str_of(value);
    for (open, close) in [("<!--", "-->"), ("<", ">")] {
        while let Some(start) = text.find(open) {
            let Some(length) = text[start..].find(close) else { break };
            text.replace_range(start..start + length + close.len(), "");
        }
    }
    let words: Vec<&str> = text.split(python::is_space).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn urlencode(value: &Value) -> Result<String, Error> {
    let quote = |value: &Value, safe: &str| -> String {
        let mut out = String::new();
        for byte in python::str_of(value).bytes() {
            match byte {
                b if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) || safe.as_bytes().contains(&b) => {
                    out.push(b as char)
                }
                b => out.push_str(&std::format!("%{b:02X}")),
            }
        }
        out
    };
    if value.kind() != ValueKind::Map {
        return Ok(quote(value, "/"));
    }
    let mut parts = Vec::new();
    for key in value.try_iter()? {
        parts.push(format!("{}={}", quote(&key, ""), quote(&value.get_item(&key)?, "")));
    }
    Ok(parts.join("&"))
}

fn filesizeformat(value: &Value, binary: Option<bool>) -> Result<String, Error> {
    let bytes = f64::try_from(value.clone()).map_err(|_| wrong("filesizeformat: not a number"))?;
    let (base, units) = match binary.unwrap_or(false) {
        true => (1024.0, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]),
        false => (1000.0, ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"]),
    };
    if bytes == 1.0 {
        return Ok("1 Byte".into());
    }
    if bytes < base {
        return Ok(format!("{} Bytes", bytes as i64));
    }
    let mut size = bytes / base;
    let mut unit = 0;
    while size >= base && unit + 1 < units.len() {
        size /= base;
        unit += 1;
    }
    Ok(format!("{size:.1} {}", units[unit]))
}

fn xmlattr(value: &Value, autospace: Option<bool>) -> Result<String, Error> {
    let mut parts = Vec::new();
    for key in value.try_iter()? {
        let item = value.get_item(&key)?;
        if !item.is_none() && !item.is_undefined() {
            parts.push(format!("{}=\"{}\"", escape(&python::str_of(&key)), escape(&python::str_of(&item))));
        }
    }
    let text = parts.join(" ");
    Ok(if autospace.unwrap_or(true) && !text.is_empty() { format!(" {text}") } else { text })
}

/// Escapes as markupsafe.escape does.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}
