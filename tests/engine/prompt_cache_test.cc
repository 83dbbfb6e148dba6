// Prompt caches: options, fork, trim, and that a saved and loaded cache goes on with the same bits.
#include "engine/prompt_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "engine/cache_file.h"
#include "engine/prompt_cache_file.h"
#include "io/test_files.h"
#include "mlxlm/mlxlm.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

using Ids = std::vector<int32_t>;

Ids text_ids(int64_t n, int32_t salt = 3) {
  Ids ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * i + salt * i + salt) % 240));
  return ids;
}

void append(PromptCache& cache, const Ids& ids) {
  auto& tokens = cache.state().tokens;
  tokens.insert(tokens.end(), ids.begin(), ids.end());
}

// The logits after everything that is pending.
std::vector<float> compute(PromptCache& cache) {
  PromptCache::State& state = cache.state();
  std::vector<float> logits;
  const nn::Span span{.sequence = &state.kv, .tokens = state.pending(), .rows = nn::Rows::last};
  state.model->executor().forward({&span, 1}, logits);
  return logits;
}

std::vector<float> feed(PromptCache& cache, const Ids& ids) {
  append(cache, ids);
  return compute(cache);
}

class PromptCacheTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    io::Json llama = test::tiny_config("llama");
    llama["vocab_size"] = 256;
    llama["head_dim"] = 32;
    io::Json gemma = test::tiny_config("gemma3_text");
    gemma.update({{"vocab_size", 256},
                  {"head_dim", 32},
                  {"num_hidden_layers", 3},
                  {"sliding_window", 70},
                  {"sliding_window_pattern", 3},
                  {"query_pre_attn_scalar", 32}});
    folders_ = {test::write_random_model({.config = llama, .dtype = DType::bf16, .seed = 5}),
                test::write_random_model({.config = gemma, .bits = 4, .dtype = DType::bf16, .seed = 6}),
                test::write_random_model({.config = llama, .dtype = DType::bf16, .seed = 7})};
    for (const std::string& folder : folders_) {
      exact_.push_back(load(folder, {.precision = Precision::exact, .threads = 1}).model);
    }
    fast_.push_back(load(folders_[0], {.threads = 1}).model);
    fast_.push_back(load(folders_[1], {.threads = 1}).model);
  }
  static void TearDownTestSuite() {
    exact_.clear();
    fast_.clear();
    for (const std::string& folder : folders_) std::filesystem::remove_all(folder);
  }

  static const Model& llama() { return exact_[0]; }
  static const Model& gemma() { return exact_[1]; }
  static const Model& other_llama() { return exact_[2]; }

  static std::vector<std::string> folders_;
  static std::vector<Model> exact_, fast_;
  io::TempFolder temp_;
};
std::vector<std::string> PromptCacheTest::folders_;
std::vector<Model> PromptCacheTest::exact_, PromptCacheTest::fast_;

const PromptCacheOptions kKinds[] = {{},
                                     {.max_kv_size = 16},
                                     {.max_kv_size = 100, .keep = 0},
                                     {.kv_bits = 8, .kv_group_size = 32},
                                     {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = 70},
                                     {.max_kv_size = 16, .kv_bits = 8, .kv_group_size = 32}};

TEST_F(PromptCacheTest, StartsEmpty) {
  const PromptCache cache(llama(), kKinds[5]);
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_TRUE(cache.tokens().empty());
  EXPECT_EQ(cache.options(), kKinds[5]);
  EXPECT_TRUE(cache.can_trim(0));
  EXPECT_FALSE(cache.can_trim(1));
}

TEST_F(PromptCacheTest, RefusesOptionsThatAModelCannotHave) {
  const auto message = [](const PromptCacheOptions& options) {
    return io::thrown_by([&] { PromptCache(llama(), options); }).message;
  };
  EXPECT_NE(message({.max_kv_size = -1}).find("max_kv_size: expected 0"), std::string::npos);
  EXPECT_NE(message({.max_kv_size = int64_t{1} << 31}).find("max_kv_size"), std::string::npos);
  EXPECT_NE(message({.max_kv_size = 4}).find("keep: expected 0 or more positions and fewer than max_kv_size (4)"),
            std::string::npos);
  EXPECT_NE(message({.max_kv_size = 4, .keep = -1}).find("keep"), std::string::npos);
  EXPECT_NE(message({.kv_bits = 3}).find("kv_bits: expected 0 (not quantised), 4 or 8, got 3"), std::string::npos);
  EXPECT_NE(message({.kv_bits = 8, .kv_group_size = 48}).find("kv_group_size: expected 32"), std::string::npos);
  EXPECT_NE(message({.kv_bits = 8, .kv_group_size = 64}).find("layer 0's head_dim 32, got 64"), std::string::npos);
  EXPECT_NE(message({.kv_bits = 8, .kv_group_size = 32, .quantized_kv_start = -1}).find("quantized_kv_start"),
            std::string::npos);
  EXPECT_EQ(message({.max_kv_size = 5}), "");
}

TEST_F(PromptCacheTest, AForkGoesItsOwnWay) {
  for (const PromptCacheOptions& options : kKinds) {
    PromptCache cache(llama(), options);
    feed(cache, text_ids(90));
    PromptCache fork = cache.fork();
    EXPECT_EQ(fork.tokens(), cache.tokens());
    EXPECT_EQ(fork.options(), options);
    EXPECT_EQ(fork.bytes(), cache.bytes());
    const auto left = feed(cache, {1, 2, 3});
    const auto right = feed(fork, {4, 5});
    PromptCache alone(llama(), options);
    feed(alone, text_ids(90));
    EXPECT_EQ(feed(alone, {4, 5}), right);
    EXPECT_NE(left, right);
    EXPECT_EQ(cache.size(), 93);
    EXPECT_EQ(fork.size(), 92);
  }
}

TEST_F(PromptCacheTest, TrimForgetsExactlyAndTheRestGoesOnTheSame) {
  for (const Model& model : {llama(), gemma()}) {
    for (const PromptCacheOptions& options : kKinds) {
      for (const int64_t n : {1, 40, 139, 199}) {
        PromptCache cache(model, options);
        feed(cache, text_ids(200));
        EXPECT_TRUE(cache.can_trim(n));
        EXPECT_EQ(cache.trim(n), n);
        EXPECT_EQ(cache.size(), 200 - n);
        EXPECT_LE(cache.state().kv.length(), 200 - n);
        const auto continued = feed(cache, {7});
        PromptCache cold(model, options);
        Ids ids = text_ids(200 - n);
        ids.push_back(7);
        EXPECT_EQ(feed(cold, ids), continued) << "trimmed by " << n;
      }
    }
  }
}

TEST_F(PromptCacheTest, TrimTakesAtMostAllAndOnlyOfPendingIdsWhereItCan) {
  PromptCache cache(llama());
  feed(cache, text_ids(10));
  append(cache, {1, 2, 3});
  EXPECT_EQ(cache.trim(2), 2);
  EXPECT_EQ(cache.state().kv.length(), 10);
  EXPECT_EQ(cache.size(), 11);
  EXPECT_FALSE(cache.can_trim(12));
  EXPECT_FALSE(cache.can_trim(-1));
  EXPECT_EQ(cache.trim(100), 11);
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_THROW(cache.trim(-1), Error);
}

TEST_F(PromptCacheTest, ACacheInUseIsLeftAlone) {
  PromptCache cache(llama());
  feed(cache, text_ids(10));
  cache.state().in_use = true;
  EXPECT_THROW(cache.fork(), Error);
  EXPECT_THROW(cache.trim(1), Error);
  EXPECT_THROW(cache.save(temp_.file("cache.safetensors")), Error);
  EXPECT_FALSE(cache.can_trim(1));
}

TEST_F(PromptCacheTest, SavedAndLoadedItGoesOnWithTheSameBits) {
  const std::string path = temp_.file("cache.safetensors");
  for (const Model& model : {llama(), gemma(), fast_[0], fast_[1]}) {
    for (const PromptCacheOptions& options : kKinds) {
      for (const int64_t n : {1, 5, 16, 17, 70, 71, 200}) {
        PromptCache cache(model, options);
        feed(cache, text_ids(n));
        cache.save(path);
        LoadedPromptCache loaded = load_prompt_cache(model, path);
        EXPECT_EQ(loaded.cache.tokens(), cache.tokens());
        EXPECT_EQ(loaded.cache.options(), options);
        EXPECT_TRUE(loaded.metadata.empty());
        EXPECT_EQ(feed(loaded.cache, {9, 8, 7}), feed(cache, {9, 8, 7})) << n << " tokens";
        EXPECT_EQ(feed(loaded.cache, {6}), feed(cache, {6})) << n << " tokens";
      }
    }
  }
}

TEST_F(PromptCacheTest, StoppedInsideAPromptItGoesOnTheSame) {
  const std::string path = temp_.file("cache.safetensors");
  for (const Model& model : {llama(), gemma()}) {
    for (const PromptCacheOptions& options : kKinds) {
      PromptCache cache(model, options);
      feed(cache, text_ids(75));
      append(cache, text_ids(600, 5));  // more than one pass, none of it computed
      cache.save(path);
      PromptCache loaded = load_prompt_cache(model, path).cache;
      EXPECT_EQ(loaded.state().kv.length(), 675);
      PromptCache whole(model, options);
      append(whole, text_ids(75));
      append(whole, text_ids(600, 5));
      append(whole, {11});
      EXPECT_EQ(feed(loaded, {11}), compute(whole));
    }
  }
}

TEST_F(PromptCacheTest, CancelledInsideAPromptItGoesOnTheSame) {
  const std::string path = temp_.file("cache.safetensors");
  for (const Model& model : {llama(), gemma()}) {
    for (const PromptCacheOptions& options : kKinds) {
      PromptCache cache(model, options);
      std::stop_source stop;
      GenerateOptions request = {.prefill_step_size = 32, .prompt_cache = &cache, .cancel = stop.get_token()};
      request.prompt_progress = [&](int64_t done, int64_t) {
        if (done >= 96) stop.request_stop();
      };
      std::optional<std::string> reason;
      for (const auto& r : stream_generate(model, model.impl().tokenizer(), text_ids(300), request)) {
        reason = r.finish_reason;
        EXPECT_EQ(r.generation_tokens, 0);
      }
      EXPECT_EQ(reason, "cancelled");
      EXPECT_GE(cache.state().kv.length(), 96);
      EXPECT_LT(cache.state().kv.length(), 300) << "the rest is still to be computed";
      EXPECT_EQ(cache.tokens(), text_ids(300));
      cache.save(path);
      PromptCache loaded = load_prompt_cache(model, path).cache;
      PromptCache whole(model, options);
      feed(whole, text_ids(300));
      const auto expected = feed(whole, {11});
      EXPECT_EQ(feed(loaded, {11}), expected);
      EXPECT_EQ(feed(cache, {11}), expected);
    }
  }
}

TEST_F(PromptCacheTest, AWindowOfCodesIsBounded) {
  PromptCache cache(llama(), {.max_kv_size = 16, .kv_bits = 8, .kv_group_size = 32});
  PromptCache everything(llama());
  const GenerateOptions options = {.max_tokens = 64, .prompt_cache = &cache};
  std::vector<int64_t> bytes;
  for (int round = 0; round < 8; ++round) {
    int64_t tokens = 0;
    for (const auto& r : stream_generate(llama(), llama().impl().tokenizer(), text_ids(9, round), options)) {
      tokens = r.generation_tokens;
      bytes.push_back(cache.bytes());
    }
    EXPECT_EQ(tokens, 64);
  }
  feed(everything, cache.tokens());
  EXPECT_EQ(cache.size(), 8 * 73);
  const auto middle = bytes.begin() + 192;
  EXPECT_LE(*std::max_element(middle, bytes.end()), *std::max_element(bytes.begin(), middle));
  EXPECT_LT(cache.bytes(), everything.bytes() / 5);
}

TEST_F(PromptCacheTest, TrimmedThenSavedItGoesOnTheSame) {
  const std::string path = temp_.file("cache.safetensors");
  for (const Model& model : {llama(), gemma()}) {
    for (const PromptCacheOptions& options : kKinds) {
      for (const int64_t n : {3, 63, 100}) {
        PromptCache cache(model, options);
        feed(cache, text_ids(192));
        cache.trim(n);
        cache.save(path);
        PromptCache loaded = load_prompt_cache(model, path).cache;
        PromptCache cold(model, options);
        append(cold, text_ids(192 - n));
        append(cold, {5});
        EXPECT_EQ(feed(loaded, {5}), compute(cold)) << "trimmed by " << n;
        EXPECT_EQ(loaded.trim(2), 2);
        cold.trim(2);
        EXPECT_EQ(feed(loaded, {6}), feed(cold, {6})) << "trimmed by " << n;
      }
    }
  }
}

TEST_F(PromptCacheTest, AnEmptyCacheSavesAndLoads) {
  const std::string path = temp_.file("cache.safetensors");
  for (const PromptCacheOptions& options : kKinds) {
    PromptCache(gemma(), options).save(path, {{"model", "somewhere"}});
    LoadedPromptCache loaded = load_prompt_cache(gemma(), path);
    EXPECT_EQ(loaded.cache.size(), 0);
    EXPECT_EQ(loaded.cache.options(), options);
    EXPECT_EQ(loaded.metadata.at("model"), "somewhere");
    PromptCache fresh(gemma(), options);
    EXPECT_EQ(feed(loaded.cache, text_ids(20)), feed(fresh, text_ids(20)));
  }
}

TEST_F(PromptCacheTest, MetadataComesBackAsItWasGiven) {
  const std::string path = temp_.file("cache.safetensors");
  PromptCache cache(llama());
  feed(cache, text_ids(3));
  const std::map<std::string, std::string> metadata = {
      {"model", "a \"b\"\n—"}, {"tokenizer_config", "{}"}, {"", "empty"}, {"0", "digit"}};
  cache.save(path, metadata);
  EXPECT_EQ(load_prompt_cache(llama(), path).metadata, metadata);
  EXPECT_EQ(read_prompt_cache_metadata(path), metadata);
  EXPECT_THROW(cache.save(path, {{"mlxlm_tokens", "1"}}), Error);
  EXPECT_THROW(cache.save(path, {{"a", "\xff"}}), Error);
  EXPECT_EQ(read_prompt_cache_metadata(path), metadata) << "a failed save leaves the file as it was";
}

TEST_F(PromptCacheTest, AFileOfAnotherModelIsRefused) {
  const std::string path = temp_.file("cache.safetensors");
  PromptCache cache(llama());
  feed(cache, text_ids(3));
  cache.save(path);
  const auto message = [&](const Model& model) {
    return io::thrown_by([&] { load_prompt_cache(model, path); }).message;
  };
  EXPECT_NE(message(other_llama()).find("belongs to another model"), std::string::npos);
  EXPECT_NE(message(gemma()).find("expected the 3 layers of gemma3_text, got 2"), std::string::npos);
  EXPECT_NE(message(fast_[0]).find("expected precision fast, got exact"), std::string::npos);
  EXPECT_EQ(io::thrown_by([&] { load_prompt_cache(llama(), temp_.file("none")); }).kind, ErrorKind::not_found);
}

TEST_F(PromptCacheTest, ATruncatedOrDamagedFileIsRefused) {
  const std::string path = temp_.file("cache.safetensors");
  PromptCache cache(llama(), kKinds[5]);
  feed(cache, text_ids(40));
  cache.save(path);
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto outcome = [&](const std::string& changed) {
    const auto file = io::MappedFile::from_bytes("cache", io::to_bytes(changed));
    return io::thrown_by(
        [&] { engine::make_prompt_cache(llama(), engine::read_cache_file(io::SafetensorsFile::parse(file))); });
  };
  EXPECT_EQ(outcome(bytes).message, "");
  for (size_t n = 0; n < bytes.size(); n += 97) EXPECT_EQ(outcome(bytes.substr(0, n)).kind, ErrorKind::invalid_value);
  const size_t header = bytes.find("]}}") + 3;  // where the header ends
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes.substr(8, header - 8);
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    return outcome(io::safetensors_bytes(changed, bytes.substr(header))).message;
  };
  const auto expect_part = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_part(replaced("QuantizedRotatingKVCache", "QuantizedRotatingKVCachf"), "layer 0: expected a cache of class");
  expect_part(replaced("mlxlm_options\":\"16 ", "mlxlm_options\":\"17 "), "layer 0: max_size: expected 17, got 16");
  expect_part(replaced("0.mlxlm_start\":\"0\"", "0.mlxlm_start\":\"1\""), "expected ids of the positions 1 to 40, got");
  expect_part(replaced("\"0.mlxlm_tokens\":\"3 ", "\"0.mlxlm_tokens\":\"x "), "expected an integer, got 'x'");
  expect_part(replaced("\"0.mlxlm_tokens\":\"3 7 ", "\"0.mlxlm_tokens\":\"3 9999 "), "token id 9999");
  expect_part(replaced("mlxlm_model", "mlxlm_other"), "metadata entry 'mlxlm_model' is missing");
  expect_part(replaced("\"0.mlxlm_tokens\"", "\"0.mlxlm_other\":\"\",\"0.mlxlm_tokens\""),
              "'mlxlm_other' is not known");
  expect_part(replaced("\"2.0\":\"\"", "\"2.0\":\"KVCache\""), "the class of layer");
  expect_part(replaced("\"1.1\":", "\"1.2\":"), "the class of layer 1 is missing");
  expect_part(replaced("\"0.0.0\":{", "\"0.0.3\":{"), "tensor '0.0.0' is missing");
  expect_part(replaced("\"I32\"", "\"F32\""), "expected one integer");
  expect_part(replaced("mlxlm_version\":\"1\"", "mlxlm_version\":\"2\""), "expected a cache file of version 1");
}

// A file as mlx-lm writes it has no ids: its history begins behind it.
class ForeignFile : public PromptCacheTest {
 protected:
  std::string save_without_identity(PromptCache& cache) {
    const std::string path = temp_.file("foreign.safetensors");
    cache.save(path);
    engine::CacheFile file = engine::read_cache_file(io::SafetensorsFile::open(path));
    std::map<std::string, std::string> metadata = {{"model", "x"}};
    engine::write_cache_file(path, file.layers, metadata, [&](size_t i) {
      engine::CacheRows rows;
      for (auto [tensors, part] :
           {std::pair(&file.layers[i].keys, &rows.keys), std::pair(&file.layers[i].values, &rows.values)}) {
        for (const io::TensorView& t : *tensors) part->emplace_back(t.data, t.data + t.bytes);
      }
      return rows;
    });
    return path;
  }
};

TEST_F(ForeignFile, GoesOnTheSameAndKnowsOnlyWhatFollows) {
  for (const bool windows : {false, true}) {
    const Model& model = windows ? gemma() : llama();
    for (PromptCacheOptions options : kKinds) {
      options.quantized_kv_start = 0;  // such a file does not tell where it began
      PromptCache cache(model, options);
      feed(cache, text_ids(150));
      PromptCache loaded = load_prompt_cache(model, save_without_identity(cache)).cache;
      EXPECT_EQ(loaded.size(), 150);
      EXPECT_TRUE(loaded.tokens().empty());
      EXPECT_EQ(loaded.options().max_kv_size, options.max_kv_size);
      EXPECT_EQ(loaded.options().kv_bits, options.kv_bits);
      EXPECT_EQ(feed(loaded, {9, 8, 7}), feed(cache, {9, 8, 7}));
      EXPECT_EQ(loaded.tokens(), (Ids{9, 8, 7}));
      // Saved again, it is a file of ours that knows the last three ids.
      loaded.save(temp_.file("again"));
      PromptCache again = load_prompt_cache(model, temp_.file("again")).cache;
      EXPECT_EQ(again.tokens(), (Ids{9, 8, 7}));
      EXPECT_EQ(again.size(), 153);
      // A ring has one row more than the next query reads, and what it needs to go further back is not known.
      const bool keeps_all = options.max_kv_size == 0 && !windows;
      EXPECT_EQ(again.can_trim(2), keeps_all);
      EXPECT_EQ(again.trim(1), 1);
      cache.trim(1);
      EXPECT_EQ(feed(again, {6}), feed(cache, {6}));
    }
  }
}

TEST_F(ForeignFile, GeneratesWhatTheOriginalWould) {
  const Loaded loaded = load(folders_[0], {.precision = Precision::exact, .threads = 1});
  const auto sampled = [&](PromptCache& cache) {
    Ids ids;
    const GenerateOptions options = {.max_tokens = 20, .sampler = {.temp = 1.5f}, .seed = 3, .prompt_cache = &cache};
    for (const auto& r : stream_generate(loaded.model, loaded.tokenizer, Ids{5, 6, 7}, options)) ids.push_back(r.token);
    return ids;
  };
  for (PromptCacheOptions options : kKinds) {
    options.quantized_kv_start = 0;
    PromptCache cache(loaded.model, options);
    feed(cache, text_ids(150));
    PromptCache from_file = load_prompt_cache(loaded.model, save_without_identity(cache)).cache;
    const Ids expected = sampled(cache);
    ASSERT_EQ(expected.size(), 20u);
    EXPECT_EQ(sampled(from_file), expected);
    EXPECT_EQ(from_file.size(), 173);
    EXPECT_EQ(from_file.tokens().size(), 23u);
    // And from where it is now, saved and loaded once more.
    from_file.save(temp_.file("more"));
    PromptCache more = load_prompt_cache(loaded.model, temp_.file("more")).cache;
    EXPECT_EQ(sampled(more), sampled(cache));
  }
}

TEST_F(ForeignFile, TrimsOnlyWhereItNeedsNoIds) {
  PromptCache plain(llama());
  feed(plain, text_ids(150));
  PromptCache loaded = load_prompt_cache(llama(), save_without_identity(plain)).cache;
  feed(loaded, {1, 2});
  EXPECT_TRUE(loaded.can_trim(100));
  EXPECT_EQ(loaded.trim(100), 100);
  EXPECT_EQ(loaded.size(), 52);
  EXPECT_TRUE(loaded.tokens().empty());
  PromptCache cold(llama());
  Ids ids = text_ids(52);
  ids.push_back(4);
  EXPECT_EQ(feed(loaded, {4}), feed(cold, ids));

  PromptCache windowed(gemma());
  feed(windowed, text_ids(300));
  PromptCache moved_on = load_prompt_cache(gemma(), save_without_identity(windowed)).cache;
  EXPECT_FALSE(moved_on.can_trim(200));
  EXPECT_EQ(moved_on.trim(200), 0);
  EXPECT_EQ(moved_on.size(), 300);
  EXPECT_EQ(feed(moved_on, {3}), feed(windowed, {3}));
  EXPECT_EQ(moved_on.trim(1000), 301) << "everything can always be forgotten";
  PromptCache fresh(gemma());
  EXPECT_EQ(feed(moved_on, {3}), feed(fresh, {3}));
}

TEST_F(ForeignFile, OfAnotherTypeIsConvertedOnlyWithoutLoss) {
  PromptCache half(fast_[0]);  // bfloat16
  const auto next = feed(half, text_ids(20));
  const std::string path = save_without_identity(half);
  PromptCache widened = load_prompt_cache(llama(), path).cache;
  feed(widened, {1});
  EXPECT_EQ(widened.size(), 21);
  PromptCache full(llama());
  feed(full, text_ids(20));
  const auto thrown = io::thrown_by([&] { load_prompt_cache(fast_[0], save_without_identity(full)); });
  EXPECT_NE(thrown.message.find("tensor '0.0': expected BF16"), std::string::npos) << thrown.message;
  EXPECT_NE(thrown.message.find("got F32 with"), std::string::npos) << thrown.message;
}

}  // namespace
}  // namespace mlxlm
