"""One file per engine. Each has NAME, prepare(), speed(settings) → {"prefill_tps", "decode_tps"} and
start_command(settings): the command whose process loads the model, evaluates a short prompt and makes one token."""
