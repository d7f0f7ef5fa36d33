/* C ABI of the Rust crate baton_text_ffi (src/lib.rs): tokenizers, chat templates and grammars.
 *
 * Ownership: what a function writes to an out parameter belongs to the caller, who gives it back
 * with the matching ..._free (null and {null, 0} are fine). Inputs are borrowed for the call.
 * Handles are immutable, matchers apart: any number of threads may use one, and only ..._free needs
 * to be alone. A matcher belongs to one thread at a time.
 * Errors: every call returns a baton_status; unless BATON_TEXT_OK, *error holds an English sentence
 * (UTF-8) and the other out parameters are unchanged. A panic in Rust comes back as
 * BATON_TEXT_INTERNAL; none unwinds out. Texts are pointer and length, never zero-terminated; a
 * null pointer with length 0 is the empty text. */
#ifndef BATON_TEXT_FFI_H_
#define BATON_TEXT_FFI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BATON_TEXT_OK = 0,
  BATON_TEXT_INVALID = 1, /* the input is wrong: not UTF-8, not JSON, a template that fails on it */
  BATON_TEXT_EXHAUSTED = 2, /* a limit on instructions or output was hit */
  BATON_TEXT_INTERNAL = 3,  /* a panic: a bug here or in a crate */
  BATON_TEXT_LATE = 4       /* limit_ns were over before the work was done */
} baton_status;

typedef struct {
  const uint8_t* data;
  size_t size;
} baton_view; /* borrowed */
typedef struct {
  uint8_t* data;
  size_t size;
} baton_bytes;
typedef struct {
  int32_t* data;
  size_t size;
} baton_ids;
typedef struct {
  uint32_t* data;
  size_t size;
} baton_offsets;

void baton_bytes_free(baton_bytes bytes);
void baton_ids_free(baton_ids ids);
void baton_offsets_free(baton_offsets offsets);

/* ---- tokenizers ---- */
typedef struct baton_tokenizer baton_tokenizer;

/* json: the content of tokenizer.json. */
baton_status baton_tokenizer_new(baton_view json, baton_tokenizer** out, baton_bytes* error);
void baton_tokenizer_free(baton_tokenizer* tokenizer);
/* The ids that the crate tokenizers itself makes, in several times the time of the function below,
 * which gives the same. */
baton_status baton_tokenizer_encode_by_crate(const baton_tokenizer* tokenizer, baton_view text,
                                             int32_t add_special_tokens, baton_ids* out,
                                             baton_bytes* error);
/* Special tokens as they are spelled: a JSON array of strings. */
baton_status baton_tokenizer_special_tokens(const baton_tokenizer* tokenizer, baton_bytes* out,
                                            baton_bytes* error);

/* Ids of texts between added tokens, bounded in bytes, for any number of threads. */
typedef struct baton_segment_cache baton_segment_cache;
typedef struct {
  uint64_t bytes, hits, misses;
} baton_segment_cache_counts;
baton_segment_cache* baton_segment_cache_new(size_t max_bytes);
void baton_segment_cache_free(baton_segment_cache* cache);
baton_segment_cache_counts baton_segment_cache_statistics(const baton_segment_cache* cache);

typedef struct {
  baton_view text;
  const uint32_t* controls; /* begin and end of each special token, bytes, ascending */
  size_t n_controls;        /* pairs */
  int32_t is_plain;         /* 1: special tokens are wherever the text spells one; no controls */
  uint64_t limit_ns;        /* the time for the call; UINT64_MAX: any */
  uint64_t salt;            /* whose cached ids may be used */
} baton_prompt_view;
/* cache: of this tokenizer, or null. */
baton_status baton_tokenizer_encode_prompt(const baton_tokenizer* tokenizer,
                                           const baton_prompt_view* prompt,
                                           int32_t add_special_tokens,
                                           const baton_segment_cache* cache, baton_ids* out,
                                           baton_bytes* error);

/* Ids without a token are passed over. */
baton_status baton_tokenizer_decode(const baton_tokenizer* tokenizer, const int32_t* ids,
                                    size_t count, int32_t skip_special_tokens, baton_bytes* out,
                                    baton_bytes* error);
/* -1: no such token. */
int32_t baton_tokenizer_id(const baton_tokenizer* tokenizer, baton_view token);

enum { BATON_TOKEN_EXISTS = 1, BATON_TOKEN_SPECIAL = 2 };
enum { BATON_LEADING_KEEP = 0, BATON_LEADING_STRIP_ONE = 1, BATON_LEADING_STRIP_ALL_FIRST = 2 };
typedef struct {
  baton_bytes bytes;     /* what each id stands for, joined in order of id */
  baton_offsets ends;    /* where the bytes of each id end */
  baton_bytes flags;     /* BATON_TOKEN_... of each id */
  int32_t leading_space; /* BATON_LEADING_...: what the decoder does with a text's first space */
} baton_vocabulary;
baton_status baton_tokenizer_vocabulary(const baton_tokenizer* tokenizer, baton_vocabulary* out,
                                        baton_bytes* error);

/* ---- chat templates ---- */
typedef struct baton_template baton_template;

/* special_tokens: a JSON object, or empty. control_tokens: what baton_tokenizer_special_tokens
 * says, or empty: the prompts have no control tokens. A render ends with BATON_TEXT_EXHAUSTED after
 * `fuel` instructions of the template engine or beyond `max_bytes` of output. */
baton_status baton_template_new(baton_view source, baton_view special_tokens,
                                baton_view control_tokens, uint64_t fuel, size_t max_bytes,
                                baton_template** out, baton_bytes* error);
void baton_template_free(baton_template* chat_template);

typedef struct {
  baton_view messages;  /* JSON array */
  baton_view tools;     /* JSON, or empty for none */
  baton_view documents; /* JSON, or empty for none */
  baton_view variables; /* JSON object, or empty */
  int32_t add_generation_prompt;
  int32_t year, month, day, hour, minute, second; /* local time; month and day from 1 */
  uint64_t limit_ns;                              /* the time for the call; UINT64_MAX: any */
} baton_template_input;
typedef struct {
  baton_bytes text;
  baton_offsets controls; /* begin and end of each special token that the template wrote, bytes */
} baton_rendered_prompt;
baton_status baton_template_render(const baton_template* chat_template,
                                   const baton_template_input* input, baton_rendered_prompt* out,
                                   baton_bytes* error);

/* ---- grammars ---- */
typedef struct baton_grammar_vocabulary baton_grammar_vocabulary;
typedef struct baton_grammar baton_grammar;
typedef struct baton_matcher baton_matcher;

typedef struct {
  baton_view bytes;     /* as in baton_vocabulary */
  const uint32_t* ends; /* (count) */
  const uint8_t* flags; /* (count) */
  size_t count;
} baton_token_table;

/* end_tokens: the ids that end a sequence; allowed where a text of the grammar may end. */
baton_status baton_grammar_vocabulary_new(const baton_token_table* tokens,
                                          const int32_t* end_tokens, size_t n_end_tokens,
                                          baton_grammar_vocabulary** out, baton_bytes* error);
/* Grammars keep what they need of it. */
void baton_grammar_vocabulary_free(baton_grammar_vocabulary* vocabulary);

/* kind: a GrammarKind (common/grammar_spec.h). */
baton_status baton_grammar_new(const baton_grammar_vocabulary* vocabulary, int32_t kind,
                               baton_view source, baton_grammar** out, baton_bytes* error);
/* Matchers keep what they need of it. */
void baton_grammar_free(baton_grammar* grammar);

baton_status baton_matcher_new(const baton_grammar* grammar, baton_matcher** out,
                               baton_bytes* error);
baton_status baton_matcher_copy(const baton_matcher* matcher, baton_matcher** out,
                                baton_bytes* error);
void baton_matcher_free(baton_matcher* matcher);
/* Sets bit i of words if token i is allowed, clears all others. BATON_TEXT_EXHAUSTED: a limit. */
baton_status baton_matcher_mask(baton_matcher* matcher, uint32_t* words, size_t n_words,
                                baton_bytes* error);
/* BATON_TEXT_INVALID: the token is not allowed; the matcher is unchanged. */
baton_status baton_matcher_push(baton_matcher* matcher, int32_t token, baton_bytes* error);
enum { BATON_MATCHER_ACCEPTING = 1, BATON_MATCHER_DONE = 2, BATON_MATCHER_FAILED = 4 };
/* Returns BATON_MATCHER_... together. */
int32_t baton_matcher_state(baton_matcher* matcher);

#ifdef __cplusplus
}
#endif
#endif /* BATON_TEXT_FFI_H_ */
