// Loads a GGUF file, evaluates a short prompt and prints one token: llama_cpp_start FILE.gguf THREADS
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROMPT 64

static void fail(const char* what) {
  fprintf(stderr, "llama_cpp_start: %s failed\n", what);
  exit(1);
}

static void discard(enum ggml_log_level level, const char* text, void* data) {
  (void)level, (void)text, (void)data;
}

int main(int argc, char** argv) {
  if (argc != 3) fail("usage: llama_cpp_start FILE.gguf THREADS; this call");
  const char* prompt = "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n";
  llama_log_set(discard, NULL);
  llama_backend_init();

  struct llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) fail("loading the model");
  const struct llama_vocab* vocab = llama_model_get_vocab(model);

  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = 512;
  params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = atoi(argv[2]);
  struct llama_context* context = llama_init_from_model(model, params);
  if (!context) fail("making the context");

  llama_token tokens[MAX_PROMPT];
  const int n = llama_tokenize(vocab, prompt, (int)strlen(prompt), tokens, MAX_PROMPT, false, true);
  if (n <= 0) fail("tokenizing");
  if (llama_decode(context, llama_batch_get_one(tokens, n)) != 0) fail("decoding");

  const float* logits = llama_get_logits_ith(context, -1);
  llama_token best = 0;
  for (llama_token t = 1; t < llama_vocab_n_tokens(vocab); ++t) {
    if (logits[t] > logits[best]) best = t;
  }
  char piece[64];
  const int length = llama_token_to_piece(vocab, best, piece, (int)sizeof piece, 0, true);
  if (length < 0) fail("writing the token");
  printf("%.*s\n", length, piece);
  llama_free(context);
  llama_model_free(model);
  return 0;
}
