// Elementary functions in double precision that give the same bits on every machine: only additions, multiplications
// and divisions, in a fixed order. (The system's libm differs between versions and platforms.)
#pragma once

namespace mlxlm {

/// Natural logarithm of a positive finite x, within 2 ulp.
double fixed_log(double x);
/// e^x; 0 below −745, +inf above 709.7; within 2 ulp for normal results.
double fixed_exp(double x);
/// base^exponent for a positive base, as exp(exponent · log(base)).
double fixed_pow(double base, double exponent);

struct SinCos {
  double sin;
  double cos;
};
/// Sine and cosine for |x| ≤ 2^20 · π/2 (absolute error below 1e−14; beyond, the reduction loses digits).
SinCos fixed_sincos(double x);

}  // namespace mlxlm
