//! Jinja2 tests (`x is ...`) that minijinja lacks or has with other rules.

use minijinja::value::ValueKind;
use minijinja::{Environment, Value};

pub fn add_to(env: &mut Environment<'_>) {
    env.add_test("callable", is_callable);
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", |value: &Value| is_sequence(value) || value.is_undefined());
}

/// True for values that have a length and items; in Python these include strings and dicts.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::String)
}

fn is_callable(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Plain => true, // functions and bound methods
        ValueKind::Map => {
            // A macro is an object of three attributes; minijinja does not export its type.
            value.len() == Some(3)
                && value.get_attr("caller").is_ok_and(|c| !c.is_undefined())
                && value.to_string().starts_with("<macro ")
        }
        _ => false,
    }
}
