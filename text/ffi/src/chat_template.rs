//! A chat template in minijinja, mended to render what transformers renders with Jinja2. Any number of threads may
//! render one template.

use crate::clock::CivilTime;
use crate::controls::{Controls, Substitutes, Unmarked, MARKS};
use crate::deadline::{late, Deadline, Late};
use crate::error::Failure;
use crate::methods::{self, PyDict};
use crate::{dialect, filters, python, tests};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const NAME: &str = "chat template";
const MAX_SOURCE: usize = 1 << 20; // bytes
/// Bounds nested loops (each counts 1) and macro calls (each counts 4): 500 fit in 1 MiB of stack
/// (tests/text/hostile_text_test.cc).
const MAX_RECURSION: usize = 500;

pub struct ChatTemplate {
    env: Environment<'static>,
    special_tokens: BTreeMap<String, Value>,
    controls: Controls,
    max_bytes: usize,
}

pub struct RenderInput<'a> {
    pub messages: &'a str,
    pub tools: &'a str,
    pub documents: &'a str,
    pub variables: &'a str,
    pub add_generation_prompt: bool,
    pub now: CivilTime,
    pub deadline: Deadline,
}

/// The error of a template's raise_exception. Its text goes to the client word for word.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl ChatTemplate {
    /// Compiles the template. `special_tokens`: a JSON object or empty. `controls`: what special tokens are spelled
    /// like. A render ends after `fuel` instructions or `max_bytes` bytes of output. Errors: invalid, for a source that
    /// is too long or does not compile.
    pub fn new(
        source: &str,
        special_tokens: &str,
        controls: Controls,
        fuel: u64,
        max_bytes: usize,
    ) -> Result<ChatTemplate, Failure> {
        if source.len() > MAX_SOURCE {
            return Err(Failure::invalid(format!("the chat template has more than {MAX_SOURCE} bytes")));
        }
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|e| Failure::invalid(e.to_string()))?;
        env.set_syntax(syntax);
        env.set_fuel(Some(fuel));
        env.set_recursion_limit(MAX_RECURSION);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_formatter(|out, _, value| out.write_str(&python::str_of(value)).map_err(Error::from));
        env.set_unknown_method_callback(methods::call);
        filters::add_to(&mut env);
        tests::add_to(&mut env);
        env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
            let text = python::str_of(message);
            Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(Raised(text)))
        });
        env.add_template_owned(NAME, controls.mark_template(&dialect::translate(source)))
            .map_err(|e| Failure::invalid(format!("the chat template does not compile: {}", describe(&e))))?;
        let marked = |value| match value {
            Json::String(text) => Value::from(controls.mark(&text)),
            other => to_value(other),
        };
        let special_tokens = object("the special tokens", special_tokens)?;
        let special_tokens = special_tokens.into_iter().map(|(name, value)| (name, marked(value))).collect();
        Ok(ChatTemplate { env, special_tokens, controls, max_bytes })
    }

    /// Renders a conversation. Errors: invalid, for JSON of the wrong form or a template that fails on the
    /// conversation; exhausted, at the limit of instructions or of output; late, at the deadline, which is looked at
    /// in each turn of a loop, each call of a macro and each write.
    pub fn render(&self, input: &RenderInput) -> Result<Unmarked, Failure> {
        let template = self.env.get_template(NAME).map_err(|e| Failure::invalid(describe(&e)))?;
        let mut variables = Json::Object(object("the template variables", input.variables)?);
        let mut messages = messages(input.messages)?;
        let mut tools = optional("tools", input.tools)?;
        let mut documents = optional("documents", input.documents)?;
        let mut values = [&mut variables, &mut messages, &mut tools, &mut documents];
        let substitutes = Substitutes::for_request(&values.each_ref().map(|value| &**value), template.source())?;
        if let Some(substitutes) = &substitutes {
            values.iter_mut().for_each(|value| substitutes.put_into(value));
        }
        let original = |text: String| match &substitutes {
            Some(substitutes) => substitutes.take_out_of(&text),
            None => text,
        };

        let mut context = self.special_tokens.clone();
        if let Json::Object(variables) = variables {
            context.extend(variables.into_iter().map(|(k, v)| (k, to_value(v))));
        }
        context.insert("messages".into(), to_value(messages));
        context.insert("tools".into(), to_value(tools));
        context.insert("documents".into(), to_value(documents));
        context.insert("add_generation_prompt".into(), Value::from(input.add_generation_prompt));
        let now = input.now;
        let strftime_now = move |format: &str| now.strftime(format);
        context.insert("strftime_now".into(), Value::from_function(strftime_now));
        let deadline = input.deadline;
        let is_late = move || deadline.check_in_template().map(|()| false);
        context.insert(dialect::IS_LATE.into(), Value::from_function(is_late));

        let mut out = Limited { text: Vec::new(), max: self.max_bytes, full: false, deadline, late: false };
        let result = template.render_captured_to(Value::from(context), &mut out).map(|_| ());
        match result {
            Ok(()) => {
                let rendered = String::from_utf8(out.text).map_err(|e| Failure::invalid(e.to_string()))?;
                let Unmarked { text, controls } = self.controls.unmark(rendered);
                Ok(Unmarked { text: original(text), controls })
            }
            Err(_) if out.full => {
                Err(Failure::exhausted(format!("the chat template wrote more than {} bytes", self.max_bytes)))
            }
            Err(_) if out.late => Err(late("the chat template")),
            Err(error) => {
                let Failure { status, text } = failure_of(&error);
                Err(Failure { status, text: original(text.replace(MARKS, "")) })
            }
        }
    }
}

/// A writer that refuses bytes beyond `max` or after the deadline.
struct Limited {
    text: Vec<u8>,
    max: usize,
    full: bool,
    deadline: Deadline,
    late: bool,
}

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > self.max {
            self.full = true;
            return Err(std::io::Error::other("output limit"));
        }
        if self.deadline.is_over() {
            self.late = true;
            return Err(std::io::Error::other("deadline"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn failure_of(error: &Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(raised) = error.downcast_ref::<Raised>() {
            return Failure::invalid(raised.0.clone());
        }
        if error.downcast_ref::<Late>().is_some() {
            return late("the chat template");
        }
        if error.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return Failure::exhausted("the chat template ran longer than its limit of instructions");
        }
        cause = error.source();
    }
    Failure::invalid(format!("the chat template fails on this conversation: {}", describe(error)))
}

fn describe(error: &Error) -> String {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        let _ = write!(text, ": {detail}");
    }
    if let Some(line) = error.line() {
        let _ = write!(text, " (line {line})");
    }
    text
}

fn parse(what: &str, json: &str) -> Result<Json, Failure> {
    serde_json::from_str(json).map_err(|e| Failure::invalid(format!("{what}: not JSON: {e}")))
}

fn object(what: &str, json: &str) -> Result<Map<String, Json>, Failure> {
    if json.is_empty() {
        return Ok(Map::new());
    }
    match parse(what, json)? {
        Json::Object(map) => Ok(map),
        _ => Err(Failure::invalid(format!("{what}: must be a JSON object"))),
    }
}

fn optional(what: &str, json: &str) -> Result<Json, Failure> {
    match json {
        "" => Ok(Json::Null),
        json => parse(what, json),
    }
}

fn messages(json: &str) -> Result<Json, Failure> {
    match parse("messages", json)? {
        Json::Array(messages) => Ok(Json::Array(messages.into_iter().map(with_reasoning_names).collect())),
        _ => Err(Failure::invalid("messages: must be a JSON array")),
    }
}

/// Copies a message's reasoning to the keys `thinking` (first) and `reasoning_content` (last), as transformers 5 does.
/// A message without reasoning stays as it is.
fn with_reasoning_names(message: Json) -> Json {
    let Json::Object(message) = message else { return message };
    let found = ["reasoning_content", "thinking", "reasoning"]
        .iter()
        .find_map(|name| message.get(*name).filter(|value| !value.is_null()))
        .cloned();
    let Some(found) = found else { return Json::Object(message) };
    let mut named = Map::new();
    named.insert("thinking".into(), found.clone());
    named.extend(message);
    named.insert("reasoning_content".into(), found);
    Json::Object(named)
}

fn to_value(json: Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(x) => Value::from(x),
        Json::Number(x) => match (x.as_i64(), x.as_u64()) {
            (Some(x), _) => Value::from(x),
            (None, Some(x)) => Value::from(x),
            (None, None) => Value::from(x.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(x) => Value::from(x),
        Json::Array(items) => Value::from(items.into_iter().map(to_value).collect::<Vec<Value>>()),
        Json::Object(pairs) => PyDict::value_of(pairs.into_iter().map(|(k, v)| (k, to_value(v)))),
    }
}
