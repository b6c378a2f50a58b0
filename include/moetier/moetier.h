/* Moetier's C API: run a GGUF language model, tokens in, logits out. Pure C99; usable from C++.
 *
 * A program opens a model, makes a context on it, makes sequences in the context, feeds tokens with moetier_decode(),
 * reads logits and chooses the next token with a sampler. examples/generate.c does all of it.
 *
 * Errors are values. A function that can fail returns a moetier_status, and moetier_last_error() then tells why in one
 * sentence. Whatever is to be handed out through pointers stays untouched on an error, unless its function says
 * otherwise. No exception crosses this interface, and nothing here ends the process.
 *
 * Ownership. What moetier_..._new, _open or _fork gives belongs to the caller until its _free, which takes NULL too.
 * The order of freeing does not matter: a context keeps its model, and a sequence its context, until they are freed as
 * well. Strings and arrays that are handed in are only read during the call. Strings that are handed out belong to the
 * object they were asked of.
 *
 * Threads. A model may be used by any number of threads at once. A context, together with its sequences, a sampler and
 * a stream each belong to one thread at a time. Contexts of one model may decode in different threads: their batches
 * are computed one after another, by the model's own threads.
 *
 * Options are structs that begin with their size, so that programs keep working with later versions of the library:
 * fill them with the init function, change what matters, and pass them. Where options are taken, NULL means the
 * defaults.
 *
 * Tokens are ids from 0 to moetier_model_vocab_size() - 1. Text is UTF-8. Sizes are in bytes unless they say otherwise.
 */
#ifndef MOETIER_H
#define MOETIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MOETIER_API __attribute__((visibility("default")))
#else
#define MOETIER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- version and errors -------------------------------------------------------------- */

/* Grows when functions or option fields are added; what is there keeps its meaning while the library's SONAME stays. */
#define MOETIER_API_VERSION 3

/* The library's own MOETIER_API_VERSION. */
MOETIER_API int32_t moetier_api_version(void);
/* The program version, e.g. "0.1.0". */
MOETIER_API const char* moetier_version(void);

typedef int32_t moetier_status;
enum {
  MOETIER_OK = 0,
  MOETIER_FAILED = 1,        /* it went wrong: a file, the model, a full context */
  MOETIER_INVALID = 2,       /* an argument cannot be right: NULL, out of range */
  MOETIER_OUT_OF_MEMORY = 3, /* memory could not be had */
  MOETIER_TOO_SMALL = 4,     /* the buffer handed in is too small; the size it needs was handed out */
  MOETIER_CANCELLED = 5      /* moetier_context_cancel() ended it */
};

/* Why the last call in this thread that did not return MOETIER_OK failed: one sentence, never NULL. Valid until the
 * next failing call in this thread. */
MOETIER_API const char* moetier_last_error(void);

/* What the library prints on standard error, for the whole process: 0 nothing, 1 warnings (the default is 2), 2
 * information too, 3 more. Out of range: MOETIER_INVALID. */
MOETIER_API moetier_status moetier_set_log_level(int32_t level);

/* --- model --------------------------------------------------------------------------- */

typedef struct moetier_model moetier_model;

typedef struct moetier_model_options {
  size_t size;     /* of this struct */
  int32_t threads; /* to compute with; 0 (the default) = as many as there are CPUs for this process */
  const char* isa; /* kernels: "auto" (the default, also NULL), "portable", "avx2", "avx512", "neon"; the answer is the same */
  /* 1 (the default): if the file is cut short or cannot be read while the model is open, computing with it fails and
   * the process lives on. For that the library handles SIGBUS while such a model is open; faults outside its files go
   * to the handler that was there before, and a handler installed later must do the same. 0: the library leaves SIGBUS
   * alone, and such a file ends the process unless the program sees to it. */
  int32_t handle_sigbus;

  /* How experts and dense weights are kept (since version 2). The answer does not depend on it. */
  const char* experts; /* "auto" (the default, also NULL), "resident", "mmap", "advise", "noop", "stream" */
  int64_t cache_mb; /* MiB of the cache of "stream"; -1 (the default): from the memory there is, once, while the model
                     * is opened; 0: no cache. A size with "auto" means "stream" */
  int64_t cache_floor_mb;        /* left free when sizing from memory (default 1536) */
  int64_t cache_ceil_mb;         /* most when sizing from memory; 0 (the default) = no bound */
  const char* cache_policy;      /* "default" (also NULL), "lru", "heat", "cycle", "pinned", "adaptive", "reuse" */
  const char* moe_cache_profile; /* a STRP file to fill the cache from; NULL (the default) = start empty */
  int32_t moe_cache_adaptive;    /* 1: the same as the policy "adaptive" (default 0) */
  const char* dense_weights;     /* "auto" (the default, also NULL), "mmap", "warm", "anon" */
  int32_t prefetch;              /* layers ahead to read on the last token's picks, 0 (the default) to 8 */
  int32_t overlap;               /* 1 (the default): compute experts as they land */
  int32_t direct_io;             /* 1 (the default): read past the page cache */
  int32_t mlock;                 /* 1: lock the cache and the dense weights in memory (default 0) */
  const char* io;                /* "auto" (the default, also NULL), "io_uring", "threads" */
  int32_t io_depth, io_threads;  /* 0 (the default): as measured on this drive */
  /* What the contexts will be like, so that a cache sized from memory leaves them room: positions per sequence (0 = as
   * a context's default), sequences (default 1), rows computed at once (default 512). */
  int64_t planned_context;
  int32_t planned_sequences;
  int64_t planned_ubatch;
} moetier_model_options;
MOETIER_API void moetier_model_options_init(moetier_model_options* options, size_t size_of_struct);

/* Opens a GGUF file, or a split set by any of its shards. The file stays mapped and must not change while the model is
 * open (see handle_sigbus for when it does). */
MOETIER_API moetier_status moetier_model_open(const char* path, const moetier_model_options* options,
                                              moetier_model** model);
MOETIER_API void moetier_model_free(moetier_model* model);

/* Logits per row. */
MOETIER_API int32_t moetier_model_vocab_size(const moetier_model* model);
/* Positions it was trained for; 0 if it does not say. */
MOETIER_API int64_t moetier_model_context_length(const moetier_model* model);
MOETIER_API int32_t moetier_model_layers(const moetier_model* model);
/* Experts per layer, and how many of them a token uses in each; 0 for a dense model. */
MOETIER_API int32_t moetier_model_experts(const moetier_model* model);
MOETIER_API int32_t moetier_model_top_k(const moetier_model* model);
/* Bytes of weights that every token needs, and of all experts. */
MOETIER_API uint64_t moetier_model_dense_bytes(const moetier_model* model);
MOETIER_API uint64_t moetier_model_expert_bytes(const moetier_model* model);
/* E.g. "qwen3moe". */
MOETIER_API const char* moetier_model_architecture(const moetier_model* model);
/* What the file calls it; may be empty. */
MOETIER_API const char* moetier_model_name(const moetier_model* model);
/* The model's chat template (Jinja); empty if it has none. */
MOETIER_API const char* moetier_model_chat_template(const moetier_model* model);

/* --- text and tokens ----------------------------------------------------------------- */

/* 1 if the file has a vocabulary that this library reads, else 0: then the functions of this section fail and say why.
 */
MOETIER_API int32_t moetier_model_has_vocab(const moetier_model* model);
/* The beginning and the end of text; -1 if there is none. */
MOETIER_API int32_t moetier_token_bos(const moetier_model* model);
MOETIER_API int32_t moetier_token_eos(const moetier_model* model);
/* 1 if the token ends a generation, else 0, also for tokens that do not exist. */
MOETIER_API int32_t moetier_token_is_end(const moetier_model* model, int32_t token);

/* Text to tokens. add_special: put BOS or EOS where the model wants them. parse_special: recognise control tokens in
 * the text (only for text that is trusted to hold them). Writes at most `capacity` tokens; *count is how many there
 * are. If that is more than `capacity`: MOETIER_TOO_SMALL, nothing is written but *count. `tokens` may be NULL if
 * capacity is 0. */
MOETIER_API moetier_status moetier_tokenize(const moetier_model* model, const char* text, size_t text_size,
                                            int32_t add_special, int32_t parse_special, int32_t* tokens,
                                            size_t capacity, size_t* count);

/* Tokens to text, the inverse of moetier_tokenize. special: write control tokens out, else they give nothing. Invalid
 * UTF-8 becomes U+FFFD. Writes the text and a NUL; *size is the text's size without it. If capacity is less than *size
 * + 1: MOETIER_TOO_SMALL, nothing is written but *size. `text` may be NULL if capacity is 0. */
MOETIER_API moetier_status moetier_detokenize(const moetier_model* model, const int32_t* tokens, size_t count,
                                              int32_t special, char* text, size_t capacity, size_t* size);

/* Token by token, without ever giving half a UTF-8 character. */
typedef struct moetier_stream moetier_stream;
MOETIER_API moetier_status moetier_stream_new(const moetier_model* model, int32_t special, moetier_stream** stream);
MOETIER_API void moetier_stream_free(moetier_stream* stream);
/* *text: what became complete with this token, NUL-terminated, maybe empty; valid until the next call on the stream. */
MOETIER_API moetier_status moetier_stream_push(moetier_stream* stream, int32_t token, const char** text);
/* *text: what is left; a character cut short becomes U+FFFD. The stream may be used anew. */
MOETIER_API moetier_status moetier_stream_finish(moetier_stream* stream, const char** text);

/* --- context and sequences ----------------------------------------------------------- */

typedef struct moetier_context moetier_context;
typedef struct moetier_sequence moetier_sequence;

enum { MOETIER_KV_F16 = 0, MOETIER_KV_F32 = 1, MOETIER_KV_Q8_0 = 2 };

typedef struct moetier_context_options {
  size_t size;     /* of this struct */
  int64_t context; /* positions per sequence; 0 (the default) = the model's, at most 8192 and a quarter of the memory */
  int32_t sequences; /* the KV cache holds so many full sequences (default 1) */
  int64_t ubatch;    /* rows computed at once (default 512); the answer does not depend on it */
  /* How keys and values are kept: MOETIER_KV_F16 (the default), MOETIER_KV_F32, or MOETIER_KV_Q8_0, which takes about
   * half the memory of F16 at a small loss and needs heads whose size is a multiple of 32. */
  int32_t kv_type;
  /* Since version 2: rows of a prompt that pass layer by layer together where experts are streamed, so that each is
   * read once for all of them (default 4096). They need scratch memory; the answer does not depend on it. */
  int64_t prompt_rows;
} moetier_context_options;
MOETIER_API void moetier_context_options_init(moetier_context_options* options, size_t size_of_struct);

MOETIER_API moetier_status moetier_context_new(const moetier_model* model, const moetier_context_options* options,
                                               moetier_context** context);
MOETIER_API void moetier_context_free(moetier_context* context);
MOETIER_API int64_t moetier_context_length(const moetier_context* context); /* positions per sequence */

/* An empty sequence. It takes memory from the context's KV cache only as it grows. */
MOETIER_API moetier_status moetier_sequence_new(moetier_context* context, moetier_sequence** sequence);
MOETIER_API void moetier_sequence_free(moetier_sequence* sequence);
MOETIER_API int64_t moetier_sequence_length(const moetier_sequence* sequence); /* positions it holds */
/* A second sequence with the same contents; their common positions are kept once. */
MOETIER_API moetier_status moetier_sequence_fork(const moetier_sequence* sequence, moetier_sequence** fork);
/* Keeps the first `length` positions; in models with recurrent layers it may be fewer, as moetier_sequence_length() then tells. */
MOETIER_API moetier_status moetier_sequence_truncate(moetier_sequence* sequence, int64_t length);
/* What the sequence holds, as bytes for moetier_sequence_load on a context of the same model and kv_type. *size is how
 * many there are; if capacity is less: MOETIER_TOO_SMALL, nothing is written but *size. `bytes` may be NULL if capacity
 * is 0. */
MOETIER_API moetier_status moetier_sequence_save(const moetier_sequence* sequence, void* bytes, size_t capacity,
                                                 size_t* size);
/* Replaces what the sequence holds. Bytes that are damaged or of another model are refused, and the sequence stays as
 * it was. */
MOETIER_API moetier_status moetier_sequence_load(moetier_sequence* sequence, const void* bytes, size_t size);

/* --- computing ----------------------------------------------------------------------- */

/* One token to append to a sequence. Its position is the sequence's length at that moment. */
typedef struct moetier_row {
  moetier_sequence* sequence;
  int32_t token;
  int32_t want_logits; /* 1: compute the logits that follow this token */
} moetier_row;

/* Appends `count` rows, of any mix of the context's sequences, and computes them. The logits of a row are the same bits
 * whatever else is in the batch. On an error every sequence is as it was before. */
MOETIER_API moetier_status moetier_decode(moetier_context* context, const moetier_row* rows, size_t count);
/* From any thread, also while the context decodes: with 1, its moetier_decode ends with MOETIER_CANCELLED before the next
 * layer or expert, whatever is still being read, and so does each later one, until this is called with 0. The context
 * must not be freed meanwhile. */
MOETIER_API moetier_status moetier_context_cancel(moetier_context* context, int32_t cancel);
/* Of the last moetier_decode: how many rows wanted logits, and those of the index-th of them:
 * moetier_model_vocab_size() floats, valid until the next moetier_decode or the context's end. NULL if there is no such
 * row (moetier_last_error says so). */
MOETIER_API size_t moetier_logits_count(const moetier_context* context);
MOETIER_API const float* moetier_logits(const moetier_context* context, size_t index);

/* --- the cache of experts (since version 2) ------------------------------------------- */

/* The cache belongs to the model: contexts of one model share it, and see what it did since they were made, for
 * whichever of them. "Hits" and "misses" count distinct experts per ubatch and layer. */
typedef struct moetier_moe_cache_stats {
  uint64_t n_hit;          /* selected experts the cache held (ubatches of up to 32 tokens) */
  uint64_t n_hit_profile;  /* of them, experts the profile put there and that were never evicted since */
  uint64_t n_miss;         /* selected experts the cache did not hold: read from the file */
  uint64_t n_bytes_upload; /* bytes read from the file, for whatever reason */
  uint64_t n_bytes_cpu;    /* 0: all experts are computed where the cache is */
  bool hybrid;             /* false */
  uint64_t n_copy;         /* experts of larger ubatches that the cache held */
  uint64_t n_bytes_copy;   /* bytes of them */
  uint64_t n_slots;        /* expert slots */
  uint64_t n_prefilled;    /* slots the profile filled while the model was opened */
  uint64_t n_bytes_cache;  /* memory of the cache */
  uint64_t n_swap;         /* experts that the adaptive policy brought in */
} moetier_moe_cache_stats;

typedef struct moetier_moe_cache_layer_stats {
  int32_t il;       /* the model's layer number */
  uint64_t n_slots; /* entries of the layer in the cache now */
  uint64_t n_hit, n_hit_profile, n_miss;
} moetier_moe_cache_layer_stats;

/* false, and the struct untouched, without a cache. Waits for a batch that another thread computes. */
MOETIER_API bool moetier_moe_cache_get_stats(const moetier_context* context, moetier_moe_cache_stats* stats);
/* One entry per layer with experts. Fills at most n_max and returns how many there are; n_max = 0 sizes the array. 0
 * without a cache. */
MOETIER_API int32_t moetier_moe_cache_get_layer_stats(const moetier_context* context,
                                                      moetier_moe_cache_layer_stats* stats, int32_t n_max);
/* The expert ids the cache holds in layer il now, ascending; the same sizing convention. 0 without a cache, and for a
 * layer without experts. */
MOETIER_API int32_t moetier_moe_cache_get_resident(const moetier_context* context, int32_t il, int32_t* experts,
                                                   int32_t n_max);
/* Brings in at most max_swaps of the hottest experts that the cache lacks, for the coldest it holds, now: the number of
 * swaps, or -1 without a cache of the adaptive policy (or if a read failed: moetier_last_error says so). */
MOETIER_API int32_t moetier_moe_cache_rebalance(moetier_context* context, int32_t max_swaps);
/* Gives the cache another size, all of it included, and evicts at once. MOETIER_FAILED while a batch of the model is
 * being computed in another thread, and without a cache. What is computed stays the same, bit for bit. */
MOETIER_API moetier_status moetier_set_cache_budget_mb(moetier_context* context, int32_t mib);

/* --- sampling ------------------------------------------------------------------------ */

typedef struct moetier_sampler moetier_sampler;

typedef struct moetier_logit_bias {
  int32_t token;
  float bias; /* added to the logit; -INFINITY forbids the token */
} moetier_logit_bias;

typedef struct moetier_sampler_options {
  size_t size;             /* of this struct */
  float temperature;       /* default 0.8; 0 = always the likeliest token */
  int32_t top_k;           /* default 40; 0 = off */
  float top_p;             /* default 0.95; 1 = off */
  float min_p;             /* default 0.05; 0 = off */
  float repeat_penalty;    /* default 1 = off */
  float presence_penalty;  /* default 0 = off */
  float frequency_penalty; /* default 0 = off */
  int32_t penalty_window;  /* last tokens that penalties look at, default 64; -1 = all */
  uint64_t seed;           /* default 0; the same seed and logits give the same tokens on every machine */
  const moetier_logit_bias* logit_bias;
  size_t logit_bias_count;
  const int32_t* suppress; /* tokens never chosen */
  size_t suppress_count;
} moetier_sampler_options;
MOETIER_API void moetier_sampler_options_init(moetier_sampler_options* options, size_t size_of_struct);

/* `model` may be NULL; with one, the tokens that its file says must never be produced are suppressed too, and those
 * beyond its vocabulary, which stand for no text. */
MOETIER_API moetier_status moetier_sampler_new(const moetier_model* model, const moetier_sampler_options* options,
                                               moetier_sampler** sampler);
MOETIER_API void moetier_sampler_free(moetier_sampler* sampler);
/* Notes a token of the prompt or one that was chosen, for the penalties. */
MOETIER_API moetier_status moetier_sampler_accept(moetier_sampler* sampler, int32_t token);
/* Chooses a token from `count` logits. It is not accepted by that. */
MOETIER_API moetier_status moetier_sampler_sample(moetier_sampler* sampler, const float* logits, size_t count,
                                                  int32_t* token);
/* Forgets the accepted tokens and starts the random generator anew. */
MOETIER_API moetier_status moetier_sampler_reset(moetier_sampler* sampler);

#ifdef __cplusplus
}
#endif

#endif
