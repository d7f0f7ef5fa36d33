//! The C ABI of baton_text.h. Each entry point runs inside `guarded`, which turns errors and panics into a
//! status and a sentence. The header says who owns what.

mod added_tokens;
mod arguments;
mod byte_pair_encoder;
mod byte_pairs;
mod chat_template;
mod clock;
mod controls;
mod deadline;
mod dialect;
mod error;
mod filters;
mod grammar;
mod grammar_source;
mod json;
mod long_word;
mod methods;
mod python;
mod schema_check;
mod segment_cache;
mod tests;
mod tokenizer;
mod word_cuts;
mod word_windows;

use chat_template::{ChatTemplate, RenderInput};
use clock::CivilTime;
use controls::Controls;
use deadline::Deadline;
use error::{Failure, Status};
use grammar::{Grammar, GrammarMatcher, VocabularyInput};
use segment_cache::{SegmentCache, Statistics};
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Once};
use tokenizer::Tokenizer;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl View {
    /// Returns the bytes. Safety: the caller of the C function promises `size` readable bytes for the whole call.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.size)
        }
    }

    /// Returns the bytes as text. Errors: they are not UTF-8; the sentence names `what`.
    unsafe fn text<'a>(self, what: &str) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.bytes())
            .map_err(|e| Failure::invalid(format!("{what} is not valid UTF-8 at byte {}", e.valid_up_to())))
    }
}

/// A boxed slice that C owns until `free` takes it back.
#[repr(C)]
pub struct Owned<T> {
    data: *mut T,
    size: usize,
}

impl<T> Owned<T> {
    fn new(items: Vec<T>) -> Self {
        let size = items.len();
        let data = Box::into_raw(items.into_boxed_slice()) as *mut T;
        Owned { data, size }
    }

    unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.size)));
        }
    }
}

#[repr(C)]
pub struct Vocabulary {
    bytes: Owned<u8>,
    ends: Owned<u32>,
    flags: Owned<u8>,
    leading_space: i32,
}

#[repr(C)]
pub struct TokenTableView {
    bytes: View,
    ends: *const u32,
    flags: *const u8,
    count: usize,
}

#[repr(C)]
pub struct TemplateInput {
    messages: View,
    tools: View,
    documents: View,
    variables: View,
    add_generation_prompt: i32,
    year: i32,
    month: i32,
    day: i32,
    hour: i32,
    minute: i32,
    second: i32,
    limit_ns: u64,
}

#[repr(C)]
pub struct RenderedPrompt {
    text: Owned<u8>,
    controls: Owned<u32>,
}

#[repr(C)]
pub struct PromptView {
    text: View,
    controls: *const [u32; 2],
    n_controls: usize,
    is_plain: i32,
    limit_ns: u64,
    salt: u64,
}

thread_local! {
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps panics off stderr: the default hook prints their text, which may contain a prompt. Records the place of the
/// panic, which the error names.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
            PANIC_PLACE.with(|slot| *slot.borrow_mut() = place);
        }));
    });
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "no message",
    };
    let place = PANIC_PLACE.with(|slot| slot.borrow().clone());
    format!("panic in the text library: {message} ({place})")
}

/// Runs `body` and writes its value to `out` or its failure to `error`.
unsafe fn guarded<T>(out: *mut T, error: *mut Owned<u8>, body: impl FnOnce() -> Result<T, Failure>) -> Status {
    silence_panics();
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            out.write(value);
            return Status::Ok;
        }
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { status: Status::Internal, text: panic_text(panic.as_ref()) },
    };
    error.write(Owned::new(failure.text.into_bytes()));
    failure.status
}

/// `guarded` for calls that return nothing.
unsafe fn guarded_call(error: *mut Owned<u8>, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let mut nothing = ();
    guarded(&mut nothing, error, body)
}

/// A destructor that panics leaves nothing to report to: the process goes on without those bytes.
unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(object))));
    }
}

#[no_mangle]
pub unsafe extern "C" fn baton_bytes_free(bytes: Owned<u8>) {
    bytes.free();
}

#[no_mangle]
pub unsafe extern "C" fn baton_ids_free(ids: Owned<i32>) {
    ids.free();
}

#[no_mangle]
pub unsafe extern "C" fn baton_offsets_free(offsets: Owned<u32>) {
    offsets.free();
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_new(json: View, out: *mut *mut Tokenizer, error: *mut Owned<u8>) -> Status {
    guarded(out, error, || Ok(Box::into_raw(Box::new(Tokenizer::from_json(json.bytes())?))))
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_free(tokenizer: *mut Tokenizer) {
    free(tokenizer);
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_encode_by_crate(
    tokenizer: *const Tokenizer,
    text: View,
    add_special_tokens: i32,
    out: *mut Owned<i32>,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || {
        let ids = (*tokenizer).encode_by_crate(text.text("the text")?, add_special_tokens != 0)?;
        Ok(Owned::new(ids))
    })
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_encode_prompt(
    tokenizer: *const Tokenizer,
    prompt: *const PromptView,
    add_special_tokens: i32,
    cache: *const SegmentCache,
    out: *mut Owned<i32>,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || {
        let prompt = &*prompt;
        let controls = (prompt.is_plain == 0).then(|| slice(prompt.controls, prompt.n_controls));
        let deadline = Deadline::after(prompt.limit_ns);
        let add_special = add_special_tokens != 0;
        let bytes = prompt.text.bytes();
        let cache = cache.as_ref().map(|cache| (cache, prompt.salt));
        Ok(Owned::new((*tokenizer).encode_segments(bytes, controls, add_special, cache, deadline)?))
    })
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_special_tokens(
    tokenizer: *const Tokenizer,
    out: *mut Owned<u8>,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || Ok(Owned::new((*tokenizer).special_tokens().into_bytes())))
}

#[no_mangle]
pub extern "C" fn baton_segment_cache_new(max_bytes: usize) -> *mut SegmentCache {
    Box::into_raw(Box::new(SegmentCache::new(max_bytes)))
}

#[no_mangle]
pub unsafe extern "C" fn baton_segment_cache_free(cache: *mut SegmentCache) {
    free(cache);
}

#[no_mangle]
pub unsafe extern "C" fn baton_segment_cache_statistics(cache: *const SegmentCache) -> Statistics {
    (*cache).statistics()
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: *const i32,
    count: usize,
    skip_special_tokens: i32,
    out: *mut Owned<u8>,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || {
        let ids = if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count) };
        let text = (*tokenizer).decode(ids, skip_special_tokens != 0)?;
        Ok(Owned::new(text.into_bytes()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_id(tokenizer: *const Tokenizer, token: View) -> i32 {
    catch_unwind(AssertUnwindSafe(|| {
        let token = std::str::from_utf8(token.bytes()).ok()?;
        (*tokenizer).id_of(token)
    }))
    .ok()
    .flatten()
    .unwrap_or(-1)
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_vocabulary(
    tokenizer: *const Tokenizer,
    out: *mut Vocabulary,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || {
        let table = (*tokenizer).token_table()?;
        Ok(Vocabulary {
            bytes: Owned::new(table.bytes),
            ends: Owned::new(table.ends),
            flags: Owned::new(table.flags),
            leading_space: table.leading_space,
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn baton_template_new(
    source: View,
    special_tokens: View,
    control_tokens: View,
    fuel: u64,
    max_bytes: usize,
    out: *mut *mut ChatTemplate,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || {
        let source = source.text("the chat template")?;
        let special_tokens = special_tokens.text("the special tokens")?;
        let controls = Controls::new(control_tokens.text("the control tokens")?)?;
        let template = ChatTemplate::new(source, special_tokens, controls, fuel, max_bytes)?;
        Ok(Box::into_raw(Box::new(template)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn baton_template_free(template: *mut ChatTemplate) {
    free(template);
}

#[no_mangle]
pub unsafe extern "C" fn baton_template_render(
    template: *const ChatTemplate,
    input: *const TemplateInput,
    out: *mut RenderedPrompt,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || {
        let input = &*input;
        let prompt = (*template).render(&RenderInput {
            messages: input.messages.text("messages")?,
            tools: input.tools.text("tools")?,
            documents: input.documents.text("documents")?,
            variables: input.variables.text("variables")?,
            add_generation_prompt: input.add_generation_prompt != 0,
            now: CivilTime {
                year: input.year,
                month: input.month,
                day: input.day,
                hour: input.hour,
                minute: input.minute,
                second: input.second,
            },
            deadline: Deadline::after(input.limit_ns),
        })?;
        Ok(RenderedPrompt { text: Owned::new(prompt.text.into_bytes()), controls: Owned::new(prompt.controls) })
    })
}

unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

#[no_mangle]
pub unsafe extern "C" fn baton_grammar_vocabulary_new(
    tokens: *const TokenTableView,
    end_tokens: *const i32,
    n_end_tokens: usize,
    out: *mut *mut Arc<grammar::Vocabulary>,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || {
        let tokens = &*tokens;
        let vocabulary = grammar::Vocabulary::new(&VocabularyInput {
            bytes: tokens.bytes.bytes(),
            ends: slice(tokens.ends, tokens.count),
            flags: slice(tokens.flags, tokens.count),
            end_tokens: slice(end_tokens, n_end_tokens),
        })?;
        Ok(Box::into_raw(Box::new(Arc::new(vocabulary))))
    })
}

#[no_mangle]
pub unsafe extern "C" fn baton_grammar_vocabulary_free(vocabulary: *mut Arc<grammar::Vocabulary>) {
    free(vocabulary);
}

#[no_mangle]
pub unsafe extern "C" fn baton_grammar_new(
    vocabulary: *const Arc<grammar::Vocabulary>,
    kind: i32,
    source: View,
    out: *mut *mut Grammar,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || {
        let grammar = Grammar::new(&*vocabulary, kind, source.text("the grammar")?)?;
        Ok(Box::into_raw(Box::new(grammar)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn baton_grammar_free(grammar: *mut Grammar) {
    free(grammar);
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_new(
    grammar: *const Grammar,
    out: *mut *mut GrammarMatcher,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || Ok(Box::into_raw(Box::new((*grammar).matcher()))))
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_copy(
    matcher: *const GrammarMatcher,
    out: *mut *mut GrammarMatcher,
    error: *mut Owned<u8>,
) -> Status {
    guarded(out, error, || Ok(Box::into_raw(Box::new((*matcher).copy()))))
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_free(matcher: *mut GrammarMatcher) {
    free(matcher);
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_mask(
    matcher: *mut GrammarMatcher,
    words: *mut u32,
    n_words: usize,
    error: *mut Owned<u8>,
) -> Status {
    guarded_call(error, || {
        let words = if n_words == 0 { &mut [] } else { std::slice::from_raw_parts_mut(words, n_words) };
        (*matcher).fill_mask(words)
    })
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_push(matcher: *mut GrammarMatcher, token: i32, error: *mut Owned<u8>) -> Status {
    guarded_call(error, || (*matcher).push(token))
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_state(matcher: *mut GrammarMatcher) -> i32 {
    catch_unwind(AssertUnwindSafe(|| (*matcher).state())).unwrap_or(grammar::FAILED)
}
