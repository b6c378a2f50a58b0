/* Continues a text, greedily, with Moetier's C API.
 *
 *   example_generate MODEL.gguf "Once upon a time" 64
 */
#include <moetier/moetier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything that must be given back; NULL where there is nothing yet. */
struct session {
  moetier_model* model;
  moetier_context* context;
  moetier_sequence* sequence;
  moetier_sampler* sampler;
  moetier_stream* stream;
};

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, moetier_last_error());
  return EXIT_FAILURE;
}

static int open_session(struct session* s, const char* path) {
  moetier_sampler_options greedy;
  moetier_sampler_options_init(&greedy, sizeof greedy);
  greedy.temperature = 0;
  if (moetier_model_open(path, NULL, &s->model) != MOETIER_OK) return failed("opening the model");
  if (moetier_context_new(s->model, NULL, &s->context) != MOETIER_OK) return failed("making a context");
  if (moetier_sequence_new(s->context, &s->sequence) != MOETIER_OK) return failed("making a sequence");
  if (moetier_sampler_new(s->model, &greedy, &s->sampler) != MOETIER_OK) return failed("making a sampler");
  if (moetier_stream_new(s->model, 0, &s->stream) != MOETIER_OK) return failed("making a stream");
  return EXIT_SUCCESS;
}

static void close_session(struct session* s) {
  moetier_stream_free(s->stream);
  moetier_sampler_free(s->sampler);
  moetier_sequence_free(s->sequence);
  moetier_context_free(s->context);
  moetier_model_free(s->model);
}

/* Computes the prompt's tokens all at once; the logits after the last are wanted. */
static int feed_prompt(struct session* s, const char* text) {
  size_t count = 0, i;
  int32_t* tokens;
  moetier_row* rows;
  moetier_status status = moetier_tokenize(s->model, text, strlen(text), 1, 0, NULL, 0, &count);
  if (status != MOETIER_OK && status != MOETIER_TOO_SMALL) return failed("tokenizing the prompt");
  if (count == 0) {
    fprintf(stderr, "the prompt is empty\n");
    return EXIT_FAILURE;
  }
  tokens = malloc(count * sizeof *tokens);
  rows = malloc(count * sizeof *rows);
  if (tokens == NULL || rows == NULL) {
    status = MOETIER_OUT_OF_MEMORY;
    fprintf(stderr, "there is not enough memory for the prompt\n");
  } else {
    status = moetier_tokenize(s->model, text, strlen(text), 1, 0, tokens, count, &count);
    for (i = 0; i < count; ++i) {
      rows[i].sequence = s->sequence;
      rows[i].token = tokens[i];
      rows[i].want_logits = i + 1 == count;
    }
    if (status == MOETIER_OK) status = moetier_decode(s->context, rows, count);
    if (status != MOETIER_OK) failed("computing the prompt");
  }
  free(rows);
  free(tokens);
  return status == MOETIER_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Samples up to `most` tokens and prints their text as it becomes complete. */
static int generate(struct session* s, long most) {
  const size_t vocab = (size_t)moetier_model_vocab_size(s->model);
  const char* text;
  long n = 0;
  while (n < most) {
    int32_t token = 0;
    moetier_row row;
    if (moetier_sampler_sample(s->sampler, moetier_logits(s->context, 0), vocab, &token) != MOETIER_OK) {
      return failed("sampling");
    }
    if (moetier_token_is_end(s->model, token)) break;
    if (moetier_stream_push(s->stream, token, &text) != MOETIER_OK) return failed("decoding a token");
    fputs(text, stdout);
    fflush(stdout);
    if (++n == most) break;
    row.sequence = s->sequence;
    row.token = token;
    row.want_logits = 1;
    if (moetier_decode(s->context, &row, 1) != MOETIER_OK) return failed("computing a token");
  }
  if (moetier_stream_finish(s->stream, &text) != MOETIER_OK) return failed("ending the text");
  printf("%s\n", text);
  fprintf(stderr, "%ld tokens\n", n);
  return EXIT_SUCCESS;
}

int main(int argc, char** argv) {
  struct session s = {NULL, NULL, NULL, NULL, NULL};
  int result;
  if (argc != 4 || atol(argv[3]) < 0) {
    fprintf(stderr, "usage: %s MODEL.gguf PROMPT TOKENS\n", argv[0]);
    return 2;
  }
  result = open_session(&s, argv[1]);
  if (result == EXIT_SUCCESS) result = feed_prompt(&s, argv[2]);
  if (result == EXIT_SUCCESS) result = generate(&s, atol(argv[3]));
  close_session(&s);
  return result;
}
