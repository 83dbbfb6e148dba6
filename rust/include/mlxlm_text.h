/* The C ABI of rust/: Hugging Face tokenizers, Jinja templates, and grammars.
 *
 * Conventions
 * - Text is UTF-8 with an explicit length and may contain NUL bytes. Invalid UTF-8 is reported, never read past.
 * - Functions that can fail return an MlxlmStatus and, unless it is MLXLM_OK, put a message in *error.
 * - What a function hands out (strings, id lists, handles) is freed with the matching _free function; freeing an empty
 *   value or a null handle does nothing.
 * - Handles are immutable and may be used from many threads at once; a grammar's state belongs to one at a time.
 * - Nothing here prints, aborts or unwinds into the caller: a fault inside is MLXLM_FAULT. */
#ifndef MLXLM_TEXT_H_
#define MLXLM_TEXT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum MlxlmStatus {
  MLXLM_OK = 0,
  MLXLM_INVALID = 1, /* malformed input: JSON, UTF-8, template or grammar syntax, or a template that failed */
  MLXLM_RAISED = 2,  /* the template called raise_exception; the message is the template's own */
  MLXLM_FAULT = 3    /* a fault inside a crate */
} MlxlmStatus;

/* Owned bytes; not NUL-terminated. */
typedef struct MlxlmString {
  char* data;
  size_t size;
  size_t capacity;
} MlxlmString;

/* Owned token ids. */
typedef struct MlxlmIds {
  uint32_t* data;
  size_t size;
  size_t capacity;
} MlxlmIds;

typedef struct MlxlmTokenizer MlxlmTokenizer;
typedef struct MlxlmTemplate MlxlmTemplate;

void mlxlm_string_free(MlxlmString* text);
void mlxlm_ids_free(MlxlmIds* ids);

/* Where a tokenizer of the Llama family writes the space that SentencePiece puts before a text. */
typedef enum MlxlmPrefix {
  MLXLM_PREFIX_OF_FILE = 0, /* where tokenizer.json says */
  MLXLM_PREFIX_FIRST = 1,   /* at the beginning, unless a special token stands there */
  MLXLM_PREFIX_ALWAYS = 2,  /* at the beginning, and after every special token */
  MLXLM_PREFIX_NEVER = 3
} MlxlmPrefix;

/* Builds a tokenizer from the text of a tokenizer.json. One that is not of the family's form, or writes no such space,
 * stays as the file says whatever the prefix. */
MlxlmStatus mlxlm_tokenizer_new(const char* json, size_t size, MlxlmPrefix prefix, MlxlmTokenizer** out,
                                MlxlmString* error);
void mlxlm_tokenizer_free(MlxlmTokenizer* tokenizer);

MlxlmStatus mlxlm_tokenizer_encode(const MlxlmTokenizer* tokenizer, const char* text, size_t size,
                                   int add_special_tokens, MlxlmIds* out, MlxlmString* error);
/* The crate's own decoding of all ids at once. Unknown ids are left out. */
MlxlmStatus mlxlm_tokenizer_decode(const MlxlmTokenizer* tokenizer, const uint32_t* ids, size_t n_ids,
                                   int skip_special_tokens, MlxlmString* out, MlxlmString* error);
/* Copies at most `capacity` bytes of the token's vocabulary text and returns its full length, or -1 for an unknown id.
 */
int64_t mlxlm_tokenizer_id_to_token(const MlxlmTokenizer* tokenizer, uint32_t id, char* buffer, size_t capacity);
/* The id, or -1 when the vocabulary has no such token. */
int64_t mlxlm_tokenizer_token_to_id(const MlxlmTokenizer* tokenizer, const char* token, size_t size);
/* 1 if the id is an added token marked special. */
int mlxlm_tokenizer_is_special(const MlxlmTokenizer* tokenizer, uint32_t id);
/* One past the largest id, added tokens included. */
uint32_t mlxlm_tokenizer_vocab_size(const MlxlmTokenizer* tokenizer);
/* The "decoder" object as JSON text, "null" when there is none. */
MlxlmStatus mlxlm_tokenizer_decoder_json(const MlxlmTokenizer* tokenizer, MlxlmString* out, MlxlmString* error);

/* Compiles a chat template; a syntax error is MLXLM_INVALID with its line. */
MlxlmStatus mlxlm_template_new(const char* source, size_t size, MlxlmTemplate** out, MlxlmString* error);
void mlxlm_template_free(MlxlmTemplate* chat_template);

/* The time strftime_now sees: the system's local time when `fixed` is 0, else `seconds` since the epoch in UTC. */
typedef struct MlxlmClock {
  int fixed;
  int64_t seconds;
} MlxlmClock;

/* Renders with the members of a JSON object as variables. Work is bounded in proportion to the size of the JSON. */
MlxlmStatus mlxlm_template_render(const MlxlmTemplate* chat_template, const char* json, size_t size, MlxlmClock clock,
                                  MlxlmString* out, MlxlmString* error);

/* The tokens of a tokenizer as bytes, prepared for grammars: a handle takes tens of milliseconds to make and is meant
 * to be kept. Grammars may outlive it. */
typedef struct MlxlmGrammarVocabulary MlxlmGrammarVocabulary;
/* A grammar and how much of a text it has read. */
typedef struct MlxlmGrammar MlxlmGrammar;

/* Token i has the bytes from ends[i - 1] (0 for the first) to ends[i]; none: it is never admitted. special[i] is not 0
 * where a token is a marker and no text: a grammar admits it only by name, <name> or <[id]> in Lark. `tokenizer`, or
 * null: where a grammar leaves one text, only the tokens that the tokenizer cuts it into are admitted; it must add
 * nothing to a text it encodes. */
MlxlmStatus mlxlm_grammar_vocabulary_new(const char* bytes, const size_t* ends, const uint8_t* special, size_t n_tokens,
                                         const MlxlmTokenizer* tokenizer, MlxlmGrammarVocabulary** out,
                                         MlxlmString* error);
void mlxlm_grammar_vocabulary_free(MlxlmGrammarVocabulary* vocabulary);

typedef enum MlxlmGrammarKind {
  MLXLM_GRAMMAR_JSON_SCHEMA = 0,
  MLXLM_GRAMMAR_REGEX = 1, /* the whole text matches */
  MLXLM_GRAMMAR_LARK = 2,  /* in the dialect of llguidance */
  MLXLM_GRAMMAR_CHOICE = 3 /* a JSON array of texts */
} MlxlmGrammarKind;

/* Compiles a grammar. Sources over 1 MiB (expressions and Lark: 64 KiB) and grammars that grow too large are
 * MLXLM_INVALID. */
MlxlmStatus mlxlm_grammar_new(const MlxlmGrammarVocabulary* vocabulary, MlxlmGrammarKind kind, const char* source,
                              size_t size, MlxlmGrammar** out, MlxlmString* error);
void mlxlm_grammar_free(MlxlmGrammar* grammar);
/* An independent copy. */
MlxlmStatus mlxlm_grammar_clone(const MlxlmGrammar* grammar, MlxlmGrammar** out, MlxlmString* error);
/* Reads the next token; MLXLM_INVALID where the grammar does not admit it. */
MlxlmStatus mlxlm_grammar_accept(MlxlmGrammar* grammar, uint32_t id, MlxlmString* error);
/* Bit id % 32 of words[id / 32] is 1 where the token is admitted next; other bits are 0. *may_end: 1 where the text may
 * end here. MLXLM_INVALID where the grammar is too ambiguous to say. */
MlxlmStatus mlxlm_grammar_mask(MlxlmGrammar* grammar, uint32_t* words, size_t n_words, int32_t* may_end,
                               MlxlmString* error);

#ifdef __cplusplus
}
#endif
#endif /* MLXLM_TEXT_H_ */
