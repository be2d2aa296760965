#!/usr/bin/env python3
"""Fits the polynomials of ir/expand_*.cpp and prints them as C++ lists, lowest power first.

    tools/fit.py            every fit        tools/fit.py exp_f32 log     only the fits with these names

Method: weighted minimax by Lawson's iteration (C. L. Lawson 1961) in 60-digit arithmetic. It solves least squares on Chebyshev nodes and
multiplies their weights by the error until the error is level. Then the coefficients are rounded to f32 or f64 one after another, from the
lowest power, each time refitting the remaining coefficients. The output lists the interval and the largest weighted error of the rounded
polynomial, in units of 2^-24 (f32) or 2^-53 (f64) of the result, and as log2. Needs mpmath; gmpy2 makes it faster.
"""
import sys

from mpmath import mp, mpf

mp.dps = 60
LN2 = mp.log(2)


def to_f32(x):
    if x == 0:
        return mpf(0)
    m, e = mp.frexp(x)
    return mp.ldexp(mp.nint(mp.ldexp(m, 24)), int(e) - 24)


def to_f64(x):
    m, e = mp.frexp(x)
    return mp.ldexp(mp.nint(mp.ldexp(m, 53)), int(e) - 53)


def nodes(low, high, count):
    return [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]


def least_squares(xs, values, squares, powers):
    """Returns the coefficients of x^p, p in powers, that minimize the sum of squares[i]*(values[i] - polynomial(xs[i]))^2."""
    if not powers:
        return []
    n = len(powers)
    top = 2 * max(powers) + 1
    moments = [mpf(0)] * top
    right = [mpf(0)] * (max(powers) + 1)
    for x, v, s in zip(xs, values, squares):
        p = s
        for k in range(top):
            moments[k] += p
            if k < len(right):
                right[k] += p * v
            p *= x
    a = mp.matrix(n, n)
    b = mp.matrix(n, 1)
    for i in range(n):
        b[i] = right[powers[i]]
        for j in range(n):
            a[i, j] = moments[powers[i] + powers[j]]
    return list(mp.lu_solve(a, b))


def evaluate(coefficients, x):
    y = mpf(0)
    for c in reversed(coefficients):
        y = y * x + c
    return y


def fit(f, low, high, terms, weight, rounding, fixed=(), iterations=25):
    """Fits a polynomial of `terms` coefficients to f on [low, high], with errors weighted by weight(x); `fixed` are its first coefficients."""
    low, high = mpf(low), mpf(high)
    count = max(12 * terms, 120)
    xs = nodes(low, high, count)
    values = [f(x) for x in xs]
    weights = [abs(weight(x)) for x in xs]
    lawson = [mpf(1)] * count
    coefficients = list(fixed)
    best, best_squares = None, None
    mp.dps = 90   # normal equations square the condition number
    for _ in range(iterations):
        squares = [l * w * w for l, w in zip(lawson, weights)]
        rest = [v - evaluate(coefficients, x) for x, v in zip(xs, values)]
        found = coefficients + least_squares(xs, rest, squares, list(range(len(fixed), terms)))
        errors = [abs(w * (v - evaluate(found, x))) for x, v, w in zip(xs, values, weights)]
        if best is None or max(errors) < best:
            best, best_squares = max(errors), squares
        level = max(errors)
        lawson = [l * (e / level + mpf(10) ** -6) for l, e in zip(lawson, errors)]
        total = sum(lawson)
        lawson = [l / total for l in lawson]
    while len(coefficients) < terms:
        rest = [v - evaluate(coefficients, x) for x, v in zip(xs, values)]
        free = least_squares(xs, rest, best_squares, list(range(len(coefficients), terms)))
        coefficients.append(rounding(free[0]))
    mp.dps = 60
    dense = nodes(low, high, 4 * count)
    worst = max(abs(weight(x) * (f(x) - evaluate(coefficients, x))) for x in dense)
    return coefficients, best, worst


def expm1_tail(r):   # (e^r - 1 - r) / r^2
    return (mp.expm1(r) - r) / (r * r)


def log1p_tail(f):   # (log(1 + f) - f) / f^2
    return (mp.log1p(f) - f) / (f * f)


def of_square(g):    # a function of u = x^2
    return lambda u: g(mp.sqrt(u))


def of_square_less(c, g):    # a function of w = x^2 - c
    return lambda w: g(mp.sqrt(w + c))


CIRCLE = (mp.pi / 4 * mpf("1.01")) ** 2


def erfcx(a):    # erfc(a) e^(a^2)
    return mp.erfc(a) * mp.exp(a * a)


def erfinv_of_log(w):    # erfinv x for w = -log(1 - x^2)
    return mp.erfinv(mp.sqrt(-mp.expm1(-w)))


def log_gamma(x):
    return mp.loggamma(x).real


def binet(x):    # log Γ(x) = (x - 1/2) (log x - 1) + (log(2 pi) - 1)/2 + binet(x)
    return log_gamma(x) - (x - mpf(1) / 2) * (mp.log(x) - 1) - (mp.log(2 * mp.pi) - 1) / 2


# name: function, interval, terms in f32 and f64, weight that makes the error relative to the result. An interval end may be a pair,
# for f32 and f64.
FITS = {
    # e^r = 1 + r + r^2 Q(r), |r| <= ln2/2
    "exp": (expm1_tail, -LN2 / 2 * mpf("1.002"), LN2 / 2 * mpf("1.002"), 6, 11, lambda r: r * r / mp.exp(r)),
    # exp with fewer terms, for the relaxation `approximate`
    "exp_few": (expm1_tail, -LN2 / 2 * mpf("1.002"), LN2 / 2 * mpf("1.002"), 4, 0, lambda r: r * r / mp.exp(r)),
    # like exp, for e^r - 1
    "expm1": (expm1_tail, -LN2 / 2 * mpf("1.002"), LN2 / 2 * mpf("1.002"), 5, 10, lambda r: r * r / mp.expm1(r)),
    # 2^r = 1 + r ln2 + r^2 Q(r), |r| <= 1/2
    "exp2": (lambda r: (mp.expm1(r * LN2) - r * LN2) / (r * r), -mpf("0.501"), mpf("0.501"), 6, 11, lambda r: r * r / mp.power(2, r)),
    # log(1 + f) = f + f^2 Q(f), 1 + f from sqrt(1/2) to sqrt(2)
    "log": (log1p_tail, mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1, 9, 20, lambda f: f * f / mp.log1p(f)),
    "log_few": (log1p_tail, mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1, 8, 18, lambda f: f * f / mp.log1p(f)),
    # log2(1 + f) = f log2(e) + f^2 Q(f)
    "log2": (lambda f: log1p_tail(f) / LN2, mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1, 9, 20, lambda f: f * f / mp.log1p(f) * LN2),
    # tanh x = x + x u P(u), u = x^2 <= 1
    "tanh": (of_square(lambda x: (mp.tanh(x) / x - 1) / (x * x)), 0, 1, 8, 16, of_square(lambda x: x ** 3 / mp.tanh(x))),
    # erf x = x + x P(w), w = x^2 - 1/2, |x| <= 17/16
    "erf": (of_square_less(mpf(1) / 2, lambda x: mp.erf(x) / x - 1), -mpf(1) / 2, mpf(289) / 256 - mpf(1) / 2, 7, 13,
            of_square_less(mpf(1) / 2, lambda x: x / mp.erf(x))),
    "erf_few": (of_square_less(mpf(1) / 2, lambda x: mp.erf(x) / x - 1), -mpf(1) / 2, mpf(289) / 256 - mpf(1) / 2, 6, 12,
                of_square_less(mpf(1) / 2, lambda x: x / mp.erf(x))),
    # sin r = r + r u S(u), cos r = 1 - u/2 + u^2 C(u), u = r^2, |r| <= pi/4
    "sin": (of_square(lambda r: (mp.sin(r) / r - 1) / (r * r)), 0, CIRCLE, 3, 6, of_square(lambda r: r ** 3 / mp.sin(r))),
    "cos": (of_square(lambda r: (mp.cos(r) - 1 + r * r / 2) / r ** 4), 0, CIRCLE, 3, 6, of_square(lambda r: r ** 4 / mp.cos(r))),
    # sin r for |r| <= pi/2
    "sin_half": (of_square(lambda r: (mp.sin(r) / r - 1) / (r * r)), mpf(10) ** -12, (mp.pi / 2 * mpf("1.002")) ** 2, 4, 8,
                 of_square(lambda r: r ** 3 / mp.sin(r))),
    # tan r = r + r u T(u), |r| <= pi/4
    "tan": (of_square(lambda r: (mp.tan(r) / r - 1) / (r * r)), 0, CIRCLE, 7, 15, of_square(lambda r: r ** 3 / mp.tan(r))),
    # atan x = x + x u P(u), u = x^2 <= 1
    "atan": (of_square(lambda x: (mp.atan(x) / x - 1) / (x * x)), 0, 1, 10, 20, of_square(lambda x: x ** 3 / mp.atan(x))),
    # asin x = x + x u P(u), u = x^2 <= 1/4
    "asin": (of_square(lambda x: (mp.asin(x) / x - 1) / (x * x)), 0, mpf(1) / 4, 6, 13, of_square(lambda x: x ** 3 / mp.asin(x))),
    # sinh x = x + x u P(u), u = x^2 <= 1
    "sinh": (of_square(lambda x: (mp.sinh(x) / x - 1) / (x * x)), 0, 1, 4, 7, of_square(lambda x: x ** 3 / mp.sinh(x))),
    # log((1 + s)/(1 - s)) = s (2 + z (2/3 + z R(z))), z = s^2, |s| <= (sqrt(2) - 1)/(sqrt(2) + 1)
    "log_ratio": (of_square(lambda s: (2 * mp.atanh(s) / s - 2 - 2 * s * s / 3) / s ** 4),
                  0, (3 - 2 * mp.sqrt(2)) ** 2 * mpf("1.001"), 3, 9,
                  of_square(lambda s: s ** 5 / (2 * mp.atanh(s)))),
    # m^(-1/3) on [1, 2]
    "cbrt": (lambda m: m ** (-mpf(1) / 3), 1, 2, 6, 6, lambda m: m ** (mpf(1) / 3)),
    # log erfc x = x Q(x), x >= 17/16; weighted by erfc x: the error in erf x = 1 - erfc x
    "erfc_log": (lambda x: mp.log(mp.erfc(x)) / x, mpf(17) / 16, (4, 6), 6, 18, lambda x: x * mp.erfc(x)),
    # the same as erf x = 1 - R(x)^8
    "erfc_root": (lambda x: mp.erfc(x) ** (mpf(1) / 8), mpf(17) / 16, (4, 6), 7, 17, lambda x: 8 * mp.erfc(x) ** (mpf(7) / 8) / mp.erf(x)),
    # erfc x = e^(-x^2) r/2 (753/512 + S(r - 9/32)), r = 1/(x + 1), from x = 7/8 until erfc x is below every float
    "erfcx": (lambda v: 2 * erfcx(1 / (v + mpf(9) / 32) - 1) / (v + mpf(9) / 32) - mpf(753) / 512,
              (1 / mpf("11.2") - mpf(9) / 32, 1 / mpf("28.4") - mpf(9) / 32), 1 / mpf("1.875") - mpf(9) / 32, 11, 26,
              lambda v: (v + mpf(9) / 32) / (2 * erfcx(1 / (v + mpf(9) / 32) - 1))),
    # erfinv x = x (sqrt(pi)/2 + w P(w - 5/2)), w = -log(1 - x^2) <= 5; then T(sqrt(w) - 25/8). Above w = 16, which f32 does not reach:
    # F(sqrt(w) - 5).
    "erfinv": (lambda v: (erfinv_of_log(v + mpf(5) / 2) / mp.sqrt(-mp.expm1(-v - mpf(5) / 2)) - mp.sqrt(mp.pi) / 2) / (v + mpf(5) / 2),
               mpf(-5) / 2 + mpf(10) ** -12, mpf(5) / 2, 10, 23,
               lambda v: (v + mpf(5) / 2) * mp.sqrt(-mp.expm1(-v - mpf(5) / 2)) / erfinv_of_log(v + mpf(5) / 2)),
    "erfinv_tail": (lambda v: erfinv_of_log((v + mpf(25) / 8) ** 2), mpf("2.235") - mpf(25) / 8, mpf("4.001") - mpf(25) / 8, 9, 21,
                    lambda v: 1 / erfinv_of_log((v + mpf(25) / 8) ** 2)),
    "erfinv_far": (lambda v: erfinv_of_log((v + 5) ** 2), mpf("3.999") - 5, mpf("6.01") - 5, 0, 19,
                   lambda v: 1 / erfinv_of_log((v + 5) ** 2)),
    # log Γ(y) = (v^2 - 1/4) P(v), v = y - 3/2, |v| <= 1/2; x >= 3: binet(x) = T(1/x^2)/x. Errors absolute.
    "lgamma": (lambda v: log_gamma(v + mpf(3) / 2) / (v * v - mpf(1) / 4), -mpf(1) / 2, mpf(1) / 2, 9, 20, lambda v: v * v - mpf(1) / 4),
    "binet": (lambda u: binet(1 / mp.sqrt(u)) / mp.sqrt(u), mpf(10) ** -12, mpf(1) / 9, 4, 11, mp.sqrt),
    # sin(pi t) = t S(t^2), |t| <= 1/2
    "sinpi": (of_square(lambda t: mp.sin(mp.pi * t) / t), mpf(10) ** -12, mpf(1) / 4, 5, 9, of_square(lambda t: t / mp.sin(mp.pi * t))),
    # digamma(y) = P(v), v = y - 3/2, |v| <= 1/2; x >= 3: log x - 1/(2x) - u T(u), u = 1/x^2; pi cot(pi t) = 1/t - t D(t^2). Errors absolute.
    "digamma": (lambda v: mp.digamma(v + mpf(3) / 2), -mpf(1) / 2, mpf(1) / 2, 11, 23, lambda v: 1),
    "digamma_great": (of_square(lambda r: (mp.log(1 / r) - r / 2 - mp.digamma(1 / r)) / (r * r)), mpf(10) ** -12, mpf(1) / 9, 4, 12, lambda u: u),
    "cotpi": (of_square(lambda t: (1 / t - mp.pi * mp.cot(mp.pi * t)) / t), mpf(10) ** -12, mpf(1) / 4, 7, 15, mp.sqrt),
}


def main():
    wanted = sys.argv[1:]
    for name, (f, low, high, terms32, terms64, weight) in FITS.items():
        for suffix, terms, rounding, unit, digits in (("f32", terms32, to_f32, 24, 9), ("f64", terms64, to_f64, 53, 17)):
            full = f"{name}_{suffix}"
            if wanted and not any(full.startswith(w + "_") or full == w for w in wanted):
                continue
            if terms == 0:
                continue
            start, end = (e[0 if suffix == "f32" else 1] if isinstance(e, tuple) else e for e in (low, high))
            coefficients, level, worst = fit(f, start, end, terms, weight, rounding)
            scaled = float(worst * 2 ** unit)
            print(f"// {full}: [{float(start):.6g}, {float(end):.6g}], {terms} terms, error {scaled:.3g} * 2^-{unit}"
                  f" (2^{float(mp.log(worst, 2)):.1f}, before rounding 2^{float(mp.log(level, 2)):.1f})")
            print("{" + ", ".join(f"{float(c):.{digits}g}" for c in coefficients) + "}", flush=True)


if __name__ == "__main__":
    main()
