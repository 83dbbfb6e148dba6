// The random bits behind the noise of sampling, for eight groups of four tokens at a time.

/// Four words of each of eight lanes.
struct Philox8 {
  I8 words[4];
};

/// philox4x32 of base/philox.h in every lane, for one key.
MLXLM_INLINE Philox8 philox8(Philox8 c, uint64_t seed) {
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const WideI8 p0 = mul_wide(c.words[0], kPhiloxMul0), p1 = mul_wide(c.words[2], kPhiloxMul1);
    c = {{p1.high ^ c.words[1] ^ splat_int(static_cast<int32_t>(key0)), p1.low,
          p0.high ^ c.words[3] ^ splat_int(static_cast<int32_t>(key1)), p0.low}};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return c;
}

int64_t likely_noise(uint64_t seed, int64_t position, int64_t first, int64_t n, uint32_t least, int32_t* indices,
                     uint32_t* bits) {
  const auto place = static_cast<uint64_t>(position);
  const I8 low = splat_int(static_cast<int32_t>(place)), high = splat_int(static_cast<int32_t>(place >> 32));
  const I8 purpose = splat_int(static_cast<int32_t>(DrawPurpose::gumbel));
  const I8 limit = splat_int(static_cast<int32_t>(least));
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += 32) {
    const I8 groups = splat_int(static_cast<int32_t>((first + i) / 4)) + to_int(lane_index());
    const Philox8 random = philox8({{groups, low, high, purpose}}, seed);
    MLXLM_UNROLL for (int word = 0; word < 4; ++word) {
      uint32_t found = mask_bits(at_least_unsigned(random.words[word], limit));
      if (found == 0) continue;
      uint32_t lanes[8];
      store_f32(lanes, from_bits(random.words[word]));
      for (; found != 0; found &= found - 1) {
        const int lane = __builtin_ctz(found);
        const int64_t index = i + 4 * lane + word;
        if (index >= n) break;
        indices[count] = static_cast<int32_t>(index);
        bits[count++] = lanes[lane];
      }
    }
  }
  return count;
}
