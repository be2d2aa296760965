// erf and its relatives.
#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {

// |x| < 17/16: x + x P(x^2 - 1/2); so shifted, no step of Horner's is large where its rounding would tell. Else 1 - e^q,
// q = log erfc |x| = |x| Q(|x|), fitted where it matters: by the error of erf, so that Q may be the worse the nearer erf is to 1; q is
// passed on with what its product lost. NaN takes the first.
// tools/fit.py erf, erfc_log: relative error of erf 2^-27.9 and 2^-28.9 (f32), 2^-59.0 and 2^-58.6 (f64).
// Measured: f32 0.85 ULP, 38 operations; f64 0.86 ULP, 63.
Expr expand_erf(Expr x) {
  const Expr a = abs(x);
  const Expr p =
      polynomial(fma(a, a, -0.5),
                 choose(x, {-0.034531258, -0.281072199, 0.0794098079, -0.0182832927, 0.0034820158, -0.000565571012, 7.4165946e-05},
                        {-0.034531261330132693, -0.28107217804543422, 0.079409986755934997, -0.018283884489153853, 0.0034802744966590856,
                         -0.00056118942210226278, 7.8296495352070178e-05, -9.6148087723156306e-06, 1.053644280279496e-06,
                         -1.0420345698749494e-07, 9.3898020545175053e-09, -7.8009456336365685e-10, 5.6922493680771396e-11}));
  const Expr small = fma(a, p, a);
  const Expr clamped = at_most(a, choose(x, 4.0, 6.0));  // erf rounds to 1 from 3.92 (f32), 5.92 (f64) on
  const Expr q = polynomial(
      clamped,
      choose(x, {-1.12843287, -0.635981619, -0.10492903, 0.0226844437, -0.00315299677, 0.000206693774},
             {-1.1283790465914443, -0.6366208276647215, -0.10276843749367059, 0.019118839271606198, 0.00022288151067711116,
              -0.0017066798308850663, 0.0005885129472608363, -9.5951531831951481e-06, -8.9160494451775293e-05, 5.3051795900989439e-05,
              -1.9239022491167189e-05, 5.060329475952613e-06, -1.0046039662340918e-06, 1.5040501680528117e-07, -1.6544391113498926e-08,
              1.2647738864001583e-09, -6.0086615578146012e-11, 1.3361736732959306e-12}));
  const Expr product = clamped * q;
  const ExpParts e = exp_parts(product, fma(clamped, q, -product));
  const Expr large = 1.0 - add_to_exponent(1.0 + e.tail, e.exponent);
  return copysign(where(a >= 1.0625, large, small), x);
}

}  // namespace onepass::ir
