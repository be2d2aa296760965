// The normal distribution: its distribution function and quantiles.
#include <limits>

#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {

// Returns erfc(u)/2, u = -x/sqrt(2), corrected by the rounding error of u times the slope of erfc. Far below 0 that error would be hundreds
// of ULP.
Expr expand_ndtr(Expr x) {
  const double root = 0.70710678118654752, root_low = choose(x, 1.2101617485882343e-08, -4.8336466567264567e-17);
  const Expr u = x * -root, lost = fma(x, -root, -u) - x * root_low;
  const Expr slope = lost * apply(Op::Exp, {-(u * u)}) * 1.1283791670955126;
  const Expr bounded =
      where(abs(x) < choose(x, 16.0, 40.0), slope, constant_like(x, 0.0));  // no correction for infinities; far away it is 0
  return (apply(Op::Erfc, {u}) - bounded) * 0.5;
}

// Algorithm AS 241, PPND16 (Wichura 1988, Applied Statistics 37, pp. 477-484): rational functions of (p - 1/2)^2 in the middle, and of
// sqrt(-log(min(p, 1 - p))) elsewhere.
Expr expand_ndtri(Expr p) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto rational = [](Expr r, const Coefficients& above, const Coefficients& below) {
    return polynomial(r, above) / polynomial(r, below);
  };
  const Expr q = p - 0.5;
  const Expr middle =
      q * rational(fma(-q, q, 0.180625),
                   {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
                    4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3},
                   {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3, 2.1213794301586595867e+4,
                    3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3});
  const Expr r = sqrt(-apply(Op::Log, {minimum(p, 1.0 - p)}));
  const Expr near = rational(r - 1.6,
                             {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
                              1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4},
                             {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
                              1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9});
  const Expr far = rational(r - 5.0,
                            {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
                             2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7},
                            {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                             7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15});
  const Expr beside = copysign(rare(r > 5.0, far, near), q), y = where(abs(q) <= 0.425, middle, beside);
  const Expr edges = where(p == 0.0, constant_like(p, -kInfinity),
                           where(p == 1.0, constant_like(p, kInfinity), constant_like(p, std::numeric_limits<double>::quiet_NaN())));
  return where((p > 0.0) & (p < 1.0), y, edges);
}

}  // namespace onepass::ir
