"""Statistics, interpolation, polynomials and sequences of numbers."""
import math

from .. import _core, names
from ..array_api.fused import axis_in
from .operands import array_of, composed, constant, has, is_float, is_known, to_float, whole

__all__ = """bartlett blackman digitize ediff1d geomspace hamming hanning interp logspace nanargmax nanargmin nancumprod nancumsum nanpercentile
    percentile polyval ptp trapz unwrap vander""".split()

trapz = _core.trapezoid


# ---- statistics


@composed(static=("axis", "keepdims"))
def ptp(a, axis=None, keepdims=False):
    """Returns the largest element minus the smallest one."""
    return _core.max(a, axis, keepdims) - _core.min(a, axis, keepdims)


def _quantile(name, a, q, axis, keepdims):
    if is_known(q) and not has(_core.Array, q) and not _all_in(q, 0, 100):
        raise _core.ValueError(f"{name}: q is {q!r}; each percentage must be from 0 to 100")
    return _percentile(a, q, axis, keepdims, "nan" in name)


def _all_in(q, low, high):
    import numpy

    q = numpy.asarray(q)
    return q.dtype.kind in "biuf" and bool(((low <= q) & (q <= high)).all())


@composed(static=("axis", "keepdims", "skip_nan"))
def _percentile(a, q, axis, keepdims, skip_nan):
    fractions = _core.cast(q, _core.f64) / 100
    flat = _core.reshape(fractions, (-1,)) if q.ndim > 1 else fractions
    out = (_core.nanquantile if skip_nan else _core.quantile)(a, flat, axis, keepdims)
    return _core.reshape(out, (*q.shape, *out.shape[1:])) if q.ndim > 1 else out


def percentile(a, q, axis=None, *, keepdims=False):
    """Returns quantiles at percentages q, by linear interpolation. The shape of q precedes that of the result."""
    return _quantile("percentile", a, q, axis, keepdims)


def nanpercentile(a, q, axis=None, *, keepdims=False):
    """Returns percentiles of the elements that are not NaN."""
    return _quantile("nanpercentile", a, q, axis, keepdims)


@composed(static=("axis", "keepdims"))
def nanargmax(a, axis=None, keepdims=False):
    """Returns the index of the first largest element that is not NaN; 0 if all are NaN."""
    return _core.argmax(_core.where(_core.isnan(a), -names.inf, a) if is_float(a) else a, axis, keepdims)


@composed(static=("axis", "keepdims"))
def nanargmin(a, axis=None, keepdims=False):
    """Returns the index of the first smallest element that is not NaN; 0 if all are NaN."""
    return _core.argmin(_core.where(_core.isnan(a), names.inf, a) if is_float(a) else a, axis, keepdims)


@composed(static=("axis",))
def nancumsum(a, axis=None):
    """Returns the sums up to each element, with 0 for NaN; of the flattened array without an axis."""
    return _core.cumsum(_core.where(_core.isnan(a), 0.0, a) if is_float(a) else a, axis)


@composed(static=("axis",))
def nancumprod(a, axis=None):
    """Returns the products up to each element, with 1 for NaN; of the flattened array without an axis."""
    return _core.cumprod(_core.where(_core.isnan(a), 1.0, a) if is_float(a) else a, axis)


@composed()
def ediff1d(ary, to_end=None, to_begin=None):
    """Returns the differences of neighbors of the flattened array, between to_begin and to_end, which are cast to its type."""
    x = _core.reshape(ary, (-1,))
    parts = [to_begin, x[1:] - x[:-1], to_end]
    return _core.concat([_core.reshape(_core.cast(p, x.dtype), (-1,)) for p in parts if p is not None])


# ---- interpolation and polynomials


@composed()
def interp(x, xp, fp, left=None, right=None):
    """Interpolates linearly between the points (xp, fp), vectors with increasing xp. left and right replace fp[0] and fp[-1] outside of them."""
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape != fp.shape or xp.shape[0] == 0:
        raise _core.ShapeError(f"interp: xp and fp have shapes {list(xp.shape)} and {list(fp.shape)}; both must be vectors of the same length, at least 1")
    x, xp, fp = to_float(x), to_float(xp), to_float(fp)
    n, first, last = xp.shape[0], xp[0], xp[-1]
    left, right = (fp[i] if v is None else v for v, i in ((left, 0), (right, -1)))
    at = _core.clamp(_core.searchsorted(xp, x, "right") - 1, 0, max(n - 2, 0))
    if n == 1:
        inside = fp[0]
    else:
        x0, x1, y0, y1 = (_core.take(v, i, 0) for v in (xp, fp) for i in (at, at + 1))
        slope = (y1 - y0) / (x1 - x0)
        inside = slope * (x - x0) + y0
        from_end = slope * (x - x1) + y1  # for infinite values, as in NumPy
        from_end = _core.where(_core.logical_and(_core.isnan(from_end), _core.logical_or(y0 == y1, x == x0)), y0, from_end)
        inside = _core.where(_core.logical_and(_core.isnan(inside), _core.logical_not(_core.isnan(x))), from_end, inside)
        inside = _core.where(x == last, fp[-1], inside)
    return _core.where(x < first, left, _core.where(x > last, right, inside))


@composed(static=("right", "decreasing"))
def _digitize(x, bins, right, decreasing):
    if bins.ndim != 1:
        raise _core.ShapeError(f"digitize: the bins have rank {bins.ndim}; they must be a vector")
    if not decreasing:
        return _core.searchsorted(bins, x, "left" if right else "right")
    return bins.shape[0] - _core.searchsorted(_core.flip(bins, 0), x, "left" if right else "right")


def digitize(x, bins, right=False):
    """Returns the index of each element's bin: bins[i-1] <= x < bins[i], or bins[i-1] < x <= bins[i] with `right`.

    bins    a monotonic vector. Inside a recording, a Tensor or an Array must be increasing.
    """
    decreasing = False
    if is_known(bins):
        import numpy

        steps = numpy.diff(numpy.asarray(bins))
        decreasing = bool(steps.size and (steps <= 0).all() and (steps < 0).any())
        if not decreasing and (steps < 0).any():
            raise _core.ValueError("digitize: the bins are not monotonic; they must increase or decrease. Sort them")
    return _digitize(x, bins, bool(right), decreasing)


@composed()
def polyval(p, x):
    """Returns the polynomial with the coefficients p, from the highest power to the constant, at x."""
    if p.ndim != 1:
        raise _core.ShapeError(f"polyval: the coefficients have rank {p.ndim}; they must be a vector")
    y = x * 0
    for i in range(p.shape[0]):
        y = y * x + p[i]
    return y


@composed(static=("N", "increasing"))
def vander(x, N=None, increasing=False):
    """Returns a matrix whose columns are the powers of the vector x, the highest first unless `increasing`. N is the number of columns."""
    if x.ndim != 1:
        raise _core.ShapeError(f"vander: x has rank {x.ndim}; it must be a vector")
    n = x.shape[0] if N is None else whole(N, "vander", "N")
    x = x if is_float(x) or x.dtype == _core.u64 else _core.cast(x, _core.i64)
    exponents = _core.iota((n,), dtype=x.dtype)
    return _core.pow(_core.reshape(x, (-1, 1)), exponents if increasing else n - 1 - exponents)


@composed(static=("discont", "axis", "period"))
def _unwrapped(p, discont, axis, period):
    n = p.shape[axis]
    if n == 0:
        return p
    ahead = (slice(None),) * axis
    steps = p[ahead + (slice(1, None),)] - p[ahead + (slice(None, -1),)]
    whole = isinstance(period, int) and not is_float(p)
    high = period // 2 if whole else period / 2
    wrapped = _core.remainder(steps + high, period) - high
    if not whole or period % 2 == 0:
        wrapped = _core.where(_core.logical_and(wrapped == -high, steps > 0), high, wrapped)
    kept = _core.abs(steps) < (period / 2 if discont is None else discont)
    start = p[ahead + (slice(0, 1),)]
    turns = _core.where(kept, 0, wrapped - steps)
    return _core.concat([start, p[ahead + (slice(1, None),)] + _core.cast(_core.cumsum(turns, axis), turns.dtype)], axis)


def unwrap(p, discont=None, axis=-1, *, period=2 * math.pi):
    """Adds multiples of the period along an axis, so that no step is larger than half of it; only steps of at least `discont` change."""
    p = array_of(p)
    return _unwrapped(p, discont, axis_in(axis, p.ndim, "unwrap"), period)


# ---- sequences


def _cast_like_linspace(values, dtype, *ends):
    if dtype is None:
        dtype = _core.f64 if any(getattr(v, "dtype", None) == _core.f64 for v in ends) else _core.f32
    return _core.cast(values, dtype)


def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None):
    """Returns `num` numbers from base**start to base**stop, equally spaced on a logarithmic scale. Types and scalars as in linspace."""
    exponents = names.linspace(start, stop, num, endpoint, dtype=_core.f64)
    return _cast_like_linspace(_core.pow(_core.cast(base, _core.f64) if hasattr(base, "dtype") else float(base), exponents), dtype, start, stop)


def geomspace(start, stop, num=50, endpoint=True, dtype=None):
    """Returns `num` numbers from start to stop, each a fixed multiple of the one before it. Types and scalars as in linspace."""
    first, last = (_core.cast(v, _core.f64) if hasattr(v, "dtype") else float(v) for v in (start, stop))
    for end in (first, last):
        if end.__class__ is float and end == 0:
            raise _core.ValueError("geomspace: start or stop is 0; both must not be 0")
    fractions = names.linspace(0.0, 1.0, num, endpoint, dtype=_core.f64)
    values = _core.pow(last / first, fractions) * first
    if endpoint and num > 1:
        values = _core.where(fractions == 1, last, values)
    return _cast_like_linspace(values, dtype, start, stop)


def _window(name, M, dtype, weight):
    """Returns weight(t) for M points t from -1 to 1."""
    if whole(M, name, "M") <= 1:
        return _core.ones((max(M, 0),), dtype)
    return _core.cast(weight((_core.cast(_core.iota((M,), dtype=_core.i64), _core.f64) * 2 + (1 - M)) / (M - 1)), dtype)


def bartlett(M, *, dtype=_core.f32):
    """Returns M points of a triangle that starts and ends with 0."""
    return _window("bartlett", M, dtype, lambda t: 1 - _core.abs(t))


def hanning(M, *, dtype=_core.f32):
    """Returns M points of a raised cosine that starts and ends with 0."""
    return _window("hanning", M, dtype, lambda t: _core.cos(t * math.pi) * 0.5 + 0.5)


def hamming(M, *, dtype=_core.f32):
    """Returns M points of a raised cosine that starts and ends with 0.08."""
    return _window("hamming", M, dtype, lambda t: _core.cos(t * math.pi) * 0.46 + 0.54)


def blackman(M, *, dtype=_core.f32):
    """Returns M points of the sum of a constant and two cosines that starts and ends near 0."""
    return _window("blackman", M, dtype, lambda t: _core.cos(t * math.pi) * 0.5 + _core.cos(t * (2 * math.pi)) * 0.08 + 0.42)
