"""mlxlm bench and mlxlm info."""

import pytest

REQUIRED = ["prefill_tps", "decode_tps", "read_gb_per_s", "int8_gmac_per_s", "float32_gmac_per_s", "bytes_per_token",
            "decode_share_of_limit", "prefill_share_of_limit"]


def bench(mlxlm, model, *args):
    return mlxlm.json("bench", "-m", model, "-p", 24, "-g", 8, "-n", 2, *args)


@pytest.mark.parametrize("precision", ["fast", "exact"])
def test_bench_json(mlxlm, model, precision):
    result = bench(mlxlm, model, "--precision", precision, "-t", 1)
    assert all(isinstance(result[key], (int, float)) and result[key] > 0 for key in REQUIRED)
    assert result["bytes_per_token"] == mlxlm.json("info", model, "--precision", precision)["bytes_per_token"]
    for key, values in result["runs"].items():
        assert len(values) == 2 and result[key] == pytest.approx(sum(values) / 2)
    # Shares follow from the run's own figures.
    for i in range(2):
        run = {key: values[i] for key, values in result["runs"].items()}
        share = run["decode_tps"] * result["bytes_per_token"] / (run["read_gb_per_s"] * 1e9)
        rate = run["int8_gmac_per_s" if precision == "fast" else "float32_gmac_per_s"] * 1e9
        macs = mlxlm.json("info", model)["macs_per_token"]
        assert run["decode_share_of_limit"] == pytest.approx(max(share, run["decode_tps"] * macs / rate))
        head = 259 * 64
        assert run["prefill_share_of_limit"] == pytest.approx(run["prefill_tps"] * (macs - head + head / 24) / rate)


def test_bench_batch_and_depth(mlxlm, model):
    result = bench(mlxlm, model, "-b", 3, "-d", 70, "--prefill-step-size", 16)
    assert (result["batch_size"], result["depth"], result["prompt_tokens"], result["generation_tokens"]) == (3, 70, 24, 8)


def test_bench_text(mlxlm, model):
    out = mlxlm("bench", "-m", model, "-p", 24, "-g", 8, "-n", 1, check=0).out
    assert "prefill" in out and "decode" in out and "% of the limit" in out and "Peak memory" in out


def test_bench_refuses_more_than_the_context(mlxlm, model):
    assert "context is 2048" in mlxlm.fails(1, "bench", "-m", model, "-p", 2000, "-g", 100)
    assert "--prompt-tokens: expected" in mlxlm.fails(2, "bench", "-m", model, "-p", 0)


def test_info_json(mlxlm, model):
    info = mlxlm.json("info", model, "--context", "64,2048")
    weights = {"embed": 259 * 64, "layers": 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128), "norms": 5 * 64}
    assert info["parameters"] == sum(weights.values())
    assert (info["model_type"], info["n_layers"], info["hidden_size"], info["vocab_size"]) == ("llama", 2, 64, 259)
    assert (info["n_heads"], info["n_kv_heads"], info["head_dim"], info["max_context"]) == (2, 1, 32, 2048)
    assert 4 < info["bits_per_weight"] < 6
    assert info["decode_ceiling_tps"] == pytest.approx(info["read_gb_per_s"] * 1e9 / info["bytes_per_token"])
    assert [c["tokens"] for c in info["contexts"]] == [64, 2048]
    for context in info["contexts"]:
        assert context["kv_bytes"] == 2 * 2 * 32 * 2 * context["tokens"]  # layers, K and V, dims, 16 bits
        assert context["memory_bytes"] == info["weight_bytes"] + context["kv_bytes"]
    exact = mlxlm.json("info", "--model", model, "--precision", "exact", "--context", "64")
    assert exact["contexts"][0]["kv_bytes"] == 2 * info["contexts"][0]["kv_bytes"]


def test_info_text(mlxlm, model):
    out = mlxlm("info", model, check=0).out
    for word in ("llama", "parameters", "bits each", "context", "GB/s", "tokens/s", "2,048"):
        assert word in out, word


@pytest.mark.parametrize("lengths", ["", "x", "4096,", "1.5"])
def test_info_wrong_context(mlxlm, model, lengths):
    assert "--context" in mlxlm.fails(1, "info", model, "--context", lengths)
