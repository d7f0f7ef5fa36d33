//! Looks through a JSON schema before llguidance compiles it: names the path of what is wrong or not supported, and
//! bounds what compiling costs. Keywords that nobody defined are ignored, as the standard says.

use crate::error::Failure;
use crate::grammar_source::{check_regex, MAX_DEPTH};
use serde_json::Value as Json;
use std::collections::HashMap;

/// Schemas within schemas with references followed, on the way the library goes by recursion.
const MAX_RECURSION: usize = 200;
const MAX_COUNT: u64 = 10_000;
const MAX_PATTERNS: usize = 16;
/// The library tries each pattern on each name.
const MAX_PATTERN_TRIALS: usize = 5000;
/// Optional properties cost their number squared, over all objects.
const MAX_SQUARES: u64 = 1_500_000;
/// Options of anyOf and oneOf that are no constants or scalars, over the whole schema: where many of them begin
/// alike, a step's work in the library is their number squared.
const MAX_OPTIONS: usize = 500;
/// A multiple is a machine of as many states; two of them (allOf) have the product.
const MAX_MULTIPLE: f64 = 1000.0;
const MAX_MULTIPLES: f64 = 10_000.0;
/// Schemas after alternatives are multiplied out (anyOf beside anyOf).
const MAX_EXPANDED: u64 = 20_000;
/// The library compares the options of oneOf in pairs.
const MAX_ONE_OF: u64 = 1000;

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
const NOT_SUPPORTED: [&str; 14] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$recursiveRef",
    "$dynamicRef",
];

/// Removes what has no effect, and `x-guidance`; returns whether whitespace between tokens is allowed.
pub fn check(root: &mut Json) -> Result<bool, Failure> {
    let flexible = take_options(root)?;
    remove_without_effect(root, 0);
    let mut checker = Checker { root, size_of_target: HashMap::new(), squares: 0, options: 0, multiples: Vec::new() };
    let (size, _) = checker.schema(root, &mut Path::default(), 0, 0)?;
    if checker.squares.saturating_add(size.squares) > MAX_SQUARES {
        return Err(Path::default().error("the objects have too many properties"));
    }
    Ok(flexible)
}

fn take_options(root: &mut Json) -> Result<bool, Failure> {
    let Some(options) = root.as_object_mut().and_then(|object| object.shift_remove("x-guidance")) else {
        return Ok(true);
    };
    let wrong = || Failure::invalid("x-guidance may be {\"whitespace_flexible\": true or false} and nothing else");
    match options.as_object() {
        Some(options) if options.keys().all(|key| key == "whitespace_flexible") => match options.values().next() {
            None => Ok(true),
            Some(flexible) => flexible.as_bool().ok_or_else(wrong),
        },
        _ => Err(wrong()),
    }
}

/// SDKs write `propertyNames: {"type": "string"}` and `uniqueItems: false`, which any JSON fulfils.
fn remove_without_effect(schema: &mut Json, depth: usize) {
    let Some(object) = schema.as_object_mut().filter(|_| depth <= MAX_DEPTH) else { return };
    let any_name = |names: &Json| match names {
        Json::Bool(yes) => *yes,
        Json::Object(names) => names.iter().all(|(key, value)| key == "type" && value == "string"),
        _ => false,
    };
    if object.get("propertyNames").is_some_and(any_name) {
        object.shift_remove("propertyNames");
    }
    if object.get("uniqueItems") == Some(&Json::Bool(false)) {
        object.shift_remove("uniqueItems");
    }
    for (key, value) in object {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Json::Object(named)) => {
                named.values_mut().for_each(|schema| remove_without_effect(schema, depth + 1));
            }
            ("items" | "prefixItems" | "anyOf" | "oneOf" | "allOf", Json::Array(listed)) => {
                listed.iter_mut().for_each(|schema| remove_without_effect(schema, depth + 1));
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => remove_without_effect(schema, depth + 1),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Path(Vec<String>);

impl Path {
    fn error(&self, text: impl AsRef<str>) -> Failure {
        Failure::invalid(format!("schema at /{}: {}", self.0.join("/"), text.as_ref()))
    }
}

/// The size of a schema after llguidance multiplied it out.
#[derive(Clone, Copy)]
struct Size {
    alternatives: u64,
    schemas: u64,
    squares: u64, // of numbers of properties
}

const ONE: Size = Size { alternatives: 1, schemas: 1, squares: 0 };

impl Size {
    fn either(self, other: Size) -> Size {
        Size {
            alternatives: self.alternatives.saturating_add(other.alternatives),
            schemas: self.schemas.saturating_add(other.schemas),
            squares: self.squares.saturating_add(other.squares),
        }
    }
    /// A part of an object or array, which keeps its alternatives to itself until two objects are intersected.
    fn with_part(self, part: Size) -> Size {
        Size { alternatives: self.alternatives.max(part.alternatives), ..self.either(part) }
    }
    fn both(self, other: Size) -> Size {
        let times = |left: u64, right: u64| {
            left.saturating_mul(other.alternatives).saturating_add(right.saturating_mul(self.alternatives))
        };
        Size {
            alternatives: self.alternatives.saturating_mul(other.alternatives),
            schemas: times(self.schemas, other.schemas),
            squares: times(self.squares, other.squares).saturating_mul(2), // (a + b)^2 <= 2 a^2 + 2 b^2
        }
    }
}

struct Checker<'a> {
    root: &'a Json,
    /// None: being looked through, so the reference is part of a circle.
    size_of_target: HashMap<String, Option<Size>>,
    squares: u64, // of what references lead to, which is compiled once
    options: usize,
    multiples: Vec<f64>,
}

impl Checker<'_> {
    /// The size, and whether the schema is a reference alone, which the library keeps as such unless it is
    /// intersected.
    fn schema(
        &mut self,
        schema: &Json,
        path: &mut Path,
        depth: usize,
        recursion: usize,
    ) -> Result<(Size, bool), Failure> {
        if depth > MAX_DEPTH || recursion > MAX_RECURSION {
            return Err(path.error(format!(
                "schemas nest deeper than {MAX_DEPTH}, or than {MAX_RECURSION} with references followed"
            )));
        }
        let object = match schema {
            Json::Bool(_) => return Ok((ONE, false)),
            Json::Object(object) => object,
            _ => return Err(path.error("a schema must be an object or a boolean")),
        };
        let count = |key: &str| {
            object.get(key).map_or(0, |value| match value {
                Json::Object(named) => named.len(),
                Json::Array(listed) => listed.len(),
                _ => 0,
            })
        };
        let names = count("properties") + count("required");
        if names.saturating_mul(count("patternProperties")) > MAX_PATTERN_TRIALS {
            return Err(path.error("too many patterns in patternProperties beside so many names"));
        }
        // Type, properties and the like; then what the library intersects with it.
        let mut own = Size { squares: (names as u64).saturating_pow(2), ..ONE };
        let mut beside = Vec::new();
        for (key, value) in object {
            path.0.push(key.replace('~', "~0").replace('/', "~1"));
            match key.as_str() {
                "properties" | "patternProperties" => {
                    own = own.with_part(self.named(key, value, path, depth, recursion)?);
                }
                "$defs" | "definitions" => {
                    self.named(key, value, path, depth, recursion)?;
                }
                "items" | "additionalItems" | "additionalProperties" if !value.is_array() => {
                    let (size, is_reference) = self.schema(value, path, depth + 1, recursion + 1)?;
                    own = own.with_part(if is_reference { ONE } else { size });
                }
                "items" | "prefixItems" => {
                    let sizes = self.listed(value, path, depth, recursion)?;
                    own = sizes
                        .into_iter()
                        .fold(own, |own, (size, is_ref)| own.with_part(if is_ref { ONE } else { size }));
                }
                "anyOf" | "oneOf" | "allOf" => {
                    let sizes = self.listed(value, path, depth, recursion)?;
                    if sizes.is_empty() {
                        return Err(path.error(format!("{key} is empty")));
                    }
                    if key != "allOf" {
                        let options = value.as_array().into_iter().flatten();
                        self.options += options.filter(|option| !is_scalar(option)).count();
                        if self.options > MAX_OPTIONS {
                            return Err(path.error(format!(
                                "the schema has more than {MAX_OPTIONS} options of anyOf and oneOf that are objects, \
                                 arrays or references"
                            )));
                        }
                    }
                    let join = if key == "allOf" { Size::both } else { Size::either };
                    let alone = object.len() == 1 && key != "allOf";
                    let size = sizes
                        .into_iter()
                        .map(|(size, is_reference)| if alone && is_reference { ONE } else { size })
                        .reduce(join)
                        .unwrap_or(ONE);
                    if key == "oneOf" && size.schemas > MAX_ONE_OF {
                        return Err(path.error(format!("oneOf has more than {MAX_ONE_OF} schemas; use anyOf")));
                    }
                    beside.push(size);
                }
                "$ref" => beside.push(self.reference(value, path, recursion)?),
                "enum" | "const" => {
                    own.schemas = own.schemas.saturating_add(literal(key, value, path)?);
                }
                "multipleOf" => self.multiple(value, path)?,
                _ => check_plain(key, value, path)?,
            }
            path.0.pop();
        }
        let size = beside.into_iter().fold(own, Size::both);
        if size.schemas > MAX_EXPANDED {
            return Err(path.error("too many combinations of alternatives (anyOf, oneOf, allOf)"));
        }
        Ok((size, object.len() == 1 && object.contains_key("$ref")))
    }

    fn multiple(&mut self, value: &Json, path: &Path) -> Result<(), Failure> {
        let wrong = || {
            path.error(format!(
                "multipleOf must be above 0, up to {MAX_MULTIPLE} without its decimal point and trailing zeros of \
                 a fraction, and have up to 6 decimals; products of several up to {MAX_MULTIPLES}"
            ))
        };
        let mut number = value.as_f64().filter(|number| *number > 0.0).ok_or_else(wrong)?;
        let mut decimals = 0;
        while number.fract() != 0.0 && decimals < 7 {
            number *= 10.0;
            decimals += 1;
        }
        if decimals > 6 || number > MAX_MULTIPLE {
            return Err(wrong());
        }
        if !self.multiples.contains(&number) {
            self.multiples.push(number);
        }
        match self.multiples.iter().product::<f64>() <= MAX_MULTIPLES {
            true => Ok(()),
            false => Err(wrong()),
        }
    }

    fn named(
        &mut self,
        key: &str,
        value: &Json,
        path: &mut Path,
        depth: usize,
        recursion: usize,
    ) -> Result<Size, Failure> {
        let schemas = value.as_object().ok_or_else(|| path.error("must be an object of schemas"))?;
        let patterns = key == "patternProperties";
        if patterns && schemas.len() > MAX_PATTERNS {
            return Err(path.error(format!("at most {MAX_PATTERNS} patterns are allowed")));
        }
        let mut size = ONE;
        for (name, schema) in schemas {
            path.0.push(name.replace('~', "~0").replace('/', "~1"));
            if patterns {
                check_regex(name, "dw").map_err(|e| path.error(e.text))?;
            }
            let (part, is_reference) = self.schema(schema, path, depth + 1, recursion + 1)?;
            size = size.with_part(if is_reference { ONE } else { part });
            path.0.pop();
        }
        Ok(size)
    }

    fn listed(
        &mut self,
        value: &Json,
        path: &mut Path,
        depth: usize,
        recursion: usize,
    ) -> Result<Vec<(Size, bool)>, Failure> {
        let schemas = value.as_array().ok_or_else(|| path.error("must be an array of schemas"))?;
        let mut sizes = Vec::with_capacity(schemas.len());
        for (index, schema) in schemas.iter().enumerate() {
            path.0.push(index.to_string());
            sizes.push(self.schema(schema, path, depth + 1, recursion + 1)?);
            path.0.pop();
        }
        Ok(sizes)
    }

    fn reference(&mut self, value: &Json, path: &mut Path, recursion: usize) -> Result<Size, Failure> {
        let reference = value.as_str().ok_or_else(|| path.error("$ref must be a string"))?;
        if reference != "#" && !reference.starts_with("#/") {
            return Err(path.error(format!(
                "$ref {reference:?} is outside of the schema; only \"#\" and \"#/...\" are supported"
            )));
        }
        if reference.contains(['~', '%']) {
            return Err(path.error("$ref with ~ or % is not supported; rename the definition"));
        }
        if let Some(known) = self.size_of_target.get(reference) {
            return Ok(known.unwrap_or(ONE));
        }
        let target = self.target(reference).ok_or_else(|| path.error(format!("$ref {reference:?} leads nowhere")))?;
        self.size_of_target.insert(reference.to_string(), None);
        let (size, _) = self.schema(&target, path, 0, recursion + 1)?;
        self.squares = self.squares.saturating_add(size.squares);
        self.size_of_target.insert(reference.to_string(), Some(size));
        Ok(size)
    }

    /// As the library finds it. A copy, since looking through it needs the checker.
    fn target(&self, reference: &str) -> Option<Json> {
        let mut at = self.root;
        for segment in reference.trim_start_matches('#').split('/').skip(1).filter(|_| reference.len() > 2) {
            at = match at {
                Json::Array(items) => items.get(segment.parse::<usize>().ok()?)?,
                other => other.get(segment)?,
            };
        }
        Some(at.clone())
    }
}

/// Whether the values are known to be no objects or arrays.
fn is_scalar(schema: &Json) -> bool {
    let scalar = |value: &Json| !value.is_object() && !value.is_array();
    match (&schema["const"], &schema["enum"], &schema["type"]) {
        (Json::Null, Json::Null, Json::String(name)) => name != "object" && name != "array",
        (Json::Null, Json::Array(values), _) => values.iter().all(scalar),
        (Json::Null, ..) => false,
        (constant, ..) => scalar(constant),
    }
}

/// The number of values in a constant.
fn literal(key: &str, value: &Json, path: &Path) -> Result<u64, Failure> {
    if key == "enum" && value.as_array().is_none_or(|values| values.is_empty()) {
        return Err(path.error("enum must be an array, not empty"));
    }
    fn count(value: &Json) -> u64 {
        match value {
            Json::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
            Json::Object(object) => 1 + object.values().map(count).sum::<u64>(),
            _ => 1,
        }
    }
    Ok(count(value))
}

fn check_plain(key: &str, value: &Json, path: &Path) -> Result<(), Failure> {
    match key {
        "type" => check_types(value, path),
        "pattern" => match value.as_str() {
            Some(pattern) => check_regex(pattern, "dw").map_err(|e| path.error(e.text)),
            None => Err(path.error("pattern must be a string")),
        },
        "format" => match value.as_str() {
            Some(format) if FORMATS.contains(&format) => Ok(()),
            _ => Err(path.error(format!("format {value} is not supported; supported are {}", FORMATS.join(", ")))),
        },
        "required" => match value.as_array() {
            Some(names) if names.iter().all(Json::is_string) => Ok(()),
            _ => Err(path.error("required must be an array of strings")),
        },
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            match value.as_u64() {
                Some(count) if count <= MAX_COUNT => Ok(()),
                _ => Err(path.error(format!("{key} must be a whole number from 0 to {MAX_COUNT}, not {value}"))),
            }
        }
        "minimum" | "maximum" => check_number(key, value, path),
        "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => Ok(()), // draft 4
        "exclusiveMinimum" | "exclusiveMaximum" => check_number(key, value, path),
        "uniqueItems" | "propertyNames" | "x-guidance" => Err(path.error(format!("{key} is not supported here"))),
        _ if NOT_SUPPORTED.contains(&key) => Err(path.error(format!("{key} is not supported"))),
        _ => Ok(()),
    }
}

fn check_types(value: &Json, path: &Path) -> Result<(), Failure> {
    let known = |name: &Json| match name.as_str() {
        Some(name) if TYPES.contains(&name) => Ok(()),
        _ => Err(path.error(format!("type {name} is not one of {}", TYPES.join(", ")))),
    };
    match value {
        Json::Array(names) if !names.is_empty() => names.iter().try_for_each(known),
        name => known(name),
    }
}

fn check_number(key: &str, value: &Json, path: &Path) -> Result<(), Failure> {
    match value.as_f64() {
        Some(_) => Ok(()),
        None => Err(path.error(format!("{key} must be a number, not {value}"))),
    }
}
