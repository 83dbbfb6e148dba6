#include "base/scalar_math.h"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace mlxlm {
namespace {

// ln 2 and π/2 in parts: the high part has few enough bits that its product with the integer stays exact.
constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
constexpr double kHalfPi1 = 1.57079632673412561417e+00;  // 33 bits of π/2
constexpr double kHalfPi2 = 6.07710050630396597660e-11;  // the next 33
constexpr double kHalfPi3 = 2.02226624879595063154e-21;  // the rest

// sin r = r + r³·P(r²) for |r| ≤ π/4, Taylor coefficients to r^17.
double sin_poly(double r) {
  const double z = r * r;
  double p = 1.0 / 355687428096000.0;
  for (const double c : {-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0,
                         1.0 / 120.0, -1.0 / 6.0}) {
    p = p * z + c;
  }
  return r + r * z * p;
}

// cos r = 1 + r²·Q(r²), Taylor coefficients to r^18.
double cos_poly(double r) {
  const double z = r * r;
  double p = -1.0 / 6402373705728000.0;
  for (const double c : {1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
                         1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5}) {
    p = p * z + c;
  }
  return 1.0 + z * p;
}

}  // namespace

double fixed_log(double x) {
  int e = 0;
  double m = std::frexp(x, &e);  // exact: [½, 1)
  if (m < 0.70710678118654752440) {
    m *= 2;
    --e;
  }
  // log m = 2·atanh(s), s = (m − 1)/(m + 1), |s| ≤ 0.172: terms to s^23 fall below 2^−60.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) p = p * z + 1.0 / k;
  const double series = 2.0 * s + 2.0 * s * z * p;
  return e * kLn2High + (series + e * kLn2Low);
}

double fixed_exp(double x) {
  if (!(x > -745.2)) return x < 0 ? 0.0 : x;  // NaN stays NaN
  if (x > 709.79) return std::numeric_limits<double>::infinity();
  const double n = std::nearbyint(x * 1.44269504088896340736);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double p = 1.0 / 6227020800.0;  // Taylor to r^13; |r| ≤ 0.347
  for (const double c : {1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
                         1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0}) {
    p = p * r + c;
  }
  return std::ldexp(p, static_cast<int>(n));
}

double fixed_pow(double base, double exponent) { return fixed_exp(exponent * fixed_log(base)); }

SinCos fixed_sincos(double x) {
  const double n = std::nearbyint(x * 0.63661977236758134308);  // x / (π/2)
  const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
  const double s = sin_poly(r), c = cos_poly(r);
  switch (static_cast<long long>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace mlxlm
