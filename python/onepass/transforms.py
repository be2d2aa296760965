"""jit, and derivatives of functions. Each accepts a function of arrays, compiled or not, and also works inside a recorded function."""
import functools
import operator

from . import _core


def jit(function=None, *, static=None, **options):
    """Compiles `function`. The first call with new types and shapes records it by running it on Tensors.

    Arguments are arrays (NumPy's, onepass's, anything with the buffer protocol or DLPack) and numbers, nested in tuples, lists, dicts and
    dataclasses; results nest in the same way. A number is a weakly typed scalar, and may change from call to call without compiling anything. Other values,
    such as strings and functions, are constants of the compiled code, like the parameters named in `static`.

    static    names of parameters whose values are constants of the compiled code: `@op.jit(static=["steps"])`
    mode      "adaptive" (the default), "generic", "specialized", "unfused", "reference"
    relax     True, or some of "contract", "reassociate", "approximate" (docs/relaxations.md)
    threads, device, vector_bytes, depth, after_calls, check_nan, check_recording, memory_budget, compile, should_stop
              as in Options of the C++ interface (docs/api.md)

    `y = f(x, out=z)` writes to an existing array.
    """
    if function is None:
        return lambda f: jit(f, static=static, **options)
    return _core.Function(function, static, **options)


def _is_int(value):
    return hasattr(value, "__index__") and not isinstance(value, (bool, _core.Array, _core.Tensor))


def _list_of(name, argnums):
    """Returns argnums as a list of ints. Errors: DTypeError for anything else."""
    given = [argnums] if _is_int(argnums) or not hasattr(argnums, "__iter__") or isinstance(argnums, str) else list(argnums)
    if not all(_is_int(i) for i in given):
        raise _core.DTypeError(f"{name}: argnums is {argnums!r}; it must be an int or a list of ints, the positions of arguments")
    return [operator.index(i) for i in given]


def _callable(name, **functions):
    """Checks the functions of a loop. Errors: DTypeError for a value that cannot be called."""
    for parameter, function in functions.items():
        if not callable(function):
            raise _core.DTypeError(f"{name}: `{parameter}` is {function!r}; it must be a function")


def _strong(value):
    """Converts floats to arrays, because weakly typed values have no derivative."""
    nested = _core._Nested(value)
    return nested.rebuilt([_core.Array(v, _core.f64) if isinstance(v, float) else v for v in nested.leaves])


def _recorded_arrays(value):
    """Replaces arrays by Tensors of the current recording. Numbers stay weakly typed."""
    nested = _core._Nested(value)
    return nested.rebuilt([v if isinstance(v, (bool, int, float)) else _core._as_tensor(v) for v in nested.leaves])


def _tensors(nested):
    return [_core._as_tensor(v) for v in nested.leaves]


def _count(name, n):
    """Returns a number of steps as an int. Errors: DTypeError for a float or another value that is not an integer."""
    if isinstance(n, _core.Tensor):
        return operator.index(n)  # its error says why
    try:
        return operator.index(n)
    except TypeError:
        raise _core.DTypeError(f"{name}: the number of steps must be an integer, not {n!r}") from None


def _float_type(types):
    """Returns the type to which the floating-point ones of these types promote; f32 if there is none."""
    types = {t for t in types if t in (_core.f16, _core.bf16, _core.f32, _core.f64)}
    return types.pop() if len(types) == 1 else _core.f64 if _core.f64 in types else _core.f32


def _compiled(record, options):
    """Returns `record`, called with Tensors inside a recording, else compiled."""
    function = jit(record, **options)
    functools.update_wrapper(record, record)
    return function


def value_and_grad(function, argnums=0, has_aux=False, **options):
    """Returns a function that computes f(…) and its gradient by the argument, or the tuple of arguments, at `argnums`.

    If f returns a tuple, its first element is the loss; the tuple is returned unchanged with the gradient: ((loss, more), gradient).

    has_aux   True: the function must return a tuple (loss, more)
    Errors    ShapeError for a loss that is not a scalar, DTypeError for an integer or bool argument,
              or argnums that are not ints; ValueError for argnums that the call lacks.
    """
    return _with_gradient("value_and_grad", function, argnums, has_aux, options)


def _loss_of(name, value, has_aux):
    """Returns the loss in what a function returned."""
    if isinstance(value, (tuple, list)):
        if name == "grad" and not has_aux:
            raise _core.ValueError("grad: the function returns several values. Return only the loss, or pass has_aux=True for (gradient, more)")
        if name == "grad" and len(value) != 2:
            raise _core.ValueError(f"grad: with has_aux=True the function must return (loss, more), not {len(value)} values")
        if not value:
            raise _core.ValueError(f"{name}: the function returns an empty {type(value).__name__}. Return the loss first")
        return value[0]
    if has_aux:
        raise _core.ValueError(f"{name}: with has_aux=True the function must return a tuple (loss, more)")
    if value is None or isinstance(value, dict):
        raise _core.ValueError(f"{name}: the function returns {'None' if value is None else 'a dict'}. Return the loss, a scalar, or (loss, more)")
    return value


def _with_gradient(name, function, argnums, has_aux, options):
    wanted, several = _list_of(name, argnums), not _is_int(argnums)

    def recorded(*args, **kwargs):
        value = function(*args, **kwargs)
        loss = _loss_of(name, value, has_aux)
        chosen = [_core._Nested(args[i]) for i in wanted]
        tensors = [_tensors(n) for n in chosen]
        flat = _core._gradients(name, _core._as_tensor(loss), [t for list_ in tensors for t in list_])
        gradients, at = [], 0
        for nested, list_ in zip(chosen, tensors):
            gradients.append(nested.rebuilt(flat[at : at + len(list_)]))
            at += len(list_)
        return value, tuple(gradients) if several else gradients[0]

    compiled = jit(recorded, **options)

    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        for i in wanted:
            if not -len(args) <= i < len(args):
                raise _core.ValueError(
                    f"{name}: argnums has {i}, but the call has {len(args)} positional argument{'' if len(args) == 1 else 's'}. "
                    "Pass each argument of a gradient by position"
                )
        is_wanted = [i in wanted or i - len(args) in wanted for i in range(len(args))]
        args = [_strong(a) if w else a for w, a in zip(is_wanted, args)]
        if _core.is_recording():  # the function may use Tensors of the recording
            return recorded(*(_recorded_arrays(a) if w else a for w, a in zip(is_wanted, args)), **kwargs)
        return compiled(*args, **kwargs)

    return call


def grad(function, argnums=0, has_aux=False, **options):
    """Returns a function that computes the gradient of f(…), a scalar, by the argument, or the tuple of arguments, at `argnums`.

    has_aux   True: the function must return a tuple (loss, more); the result is (gradient, more)
    Errors    as value_and_grad; ValueError for a tuple without has_aux.
    """
    both = _with_gradient("grad", function, argnums, has_aux, options)

    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return call


def vmap(function, in_axes=0, out_axes=0, **options):
    """Applies a function of one element to all elements along an axis. Each result has a new axis.

    in_axes   the axis of every argument, or a tuple with one axis for each argument; None: the same for all elements. A nested argument's arrays have one axis.
    out_axes  the position of the new axis in every result, or a tuple with one position for each result of a tuple, like jax.vmap
    `function` is recorded once for all elements together, so no loop remains. vmap can be nested and differentiated.
    Errors    ShapeError for axes of different lengths, if no argument has an axis, or for another number of out_axes than results; IndexError for an
              axis that a result lacks; DTypeError for out_axes that are not ints; ValueError if the function returns nothing.
    """
    if not all(_is_int(axis) for axis in (out_axes if isinstance(out_axes, (list, tuple)) else [out_axes])):
        raise _core.DTypeError(f"vmap: out_axes is {out_axes!r}; it must be an int, or a tuple with an int for each result")

    def recorded(*args):
        nested = [_core._Nested(a) for a in args]
        axes = list(in_axes) if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        if len(axes) != len(args):
            raise _core.ShapeError(f"vmap: {len(axes)} axes given for {len(args)} argument{'' if len(args) == 1 else 's'}. Pass one axis for each argument, or one axis for all.")
        leaves = [_tensors(n) for n in nested]
        of_leaf = [axis for axis, list_ in zip(axes, leaves) for _ in list_]
        elements, all_ = _core._map_elements([t for list_ in leaves for t in list_], of_leaf)
        given, at = [], 0
        for n, list_ in zip(nested, leaves):
            given.append(n.rebuilt(elements[at : at + len(list_)]))
            at += len(list_)
        value = function(*given)
        results = _core._Nested(value)
        if not results.leaves:
            raise _core.ValueError("vmap: the function returns nothing. Return a Tensor, or a tuple, list, dict or dataclass of Tensors")
        mapped = _core._mapped(_tensors(results), elements, all_)
        return results.rebuilt([_with_first_axis_at(axis, x) for axis, x in zip(_axes_of_results(value, out_axes, len(mapped)), mapped)])

    compiled = jit(recorded, **options)
    functools.update_wrapper(recorded, function, updated=())

    @functools.wraps(function, updated=())
    def call(*args):
        return recorded(*args) if _core.is_recording() else compiled(*args)

    return call


def _axes_of_results(value, out_axes, count):
    """Returns one of vmap's out_axes for each leaf of what the function returned."""
    if not isinstance(out_axes, (list, tuple)):
        return [out_axes] * count
    if not isinstance(value, (list, tuple)) or len(value) != len(out_axes):
        returned = f"{len(value)} results" if isinstance(value, (list, tuple)) else "one result"
        raise _core.ShapeError(f"vmap: {len(out_axes)} out_axes given for {returned}. Pass one axis for each result of a tuple, or one axis for all")
    return [axis for axis, part in zip(out_axes, value) for _ in _core._Nested(part).leaves]


def _with_first_axis_at(axis, x):
    """Moves the first axis to a position, which may be counted from the end."""
    if not -x.ndim <= axis < x.ndim:
        raise _core.IndexError(f"vmap: axis {axis} of out_axes is out of range for a result of rank {x.ndim}")
    at = axis % x.ndim
    return x if at == 0 else _core.transpose(x, [*range(1, at + 1), 0, *range(at + 1, x.ndim)])


_SCAN, _FOLD, _ITERATE, _WHILE = range(4)


class _Steps:
    """A loop with state that is being recorded: adapts nested values to the step-by-step recorder."""

    def __init__(self, kind, init):
        self.nested = _core._Nested(init)
        self.loop = _core._StateLoop(kind, _tensors(self.nested))

    def state(self):
        return self.nested.rebuilt(self.loop.state())

    def take(self, state, results=()):
        nested = _core._Nested(state)
        tensors = _tensors(nested)
        if len(tensors) == len(self.nested.leaves) and not nested.nests_like(self.nested):  # the loop itself reports another number of leaves
            raise _core.ValueError("the step function of a loop must return a state with the same nesting as the state that it takes")
        self.loop.step(tensors, results)


def _number_of(xs):
    return isinstance(xs, int) and not isinstance(xs, bool) or type(xs).__module__ == "numpy" and getattr(xs, "shape", None) == () and hasattr(xs, "__index__")


def _run(record, *args):
    """Records now, or compiles and calls."""
    if _core.is_recording() or any(isinstance(v, _core.Tensor) for a in args for v in _leaves_of(a)):
        return record(*args)
    return jit(record)(*args)


def _over(kind, function, init, xs, length, reverse):
    name = ("scan", "fold")[kind]
    _callable(name, function=function)
    if length is not None and xs is not None and not _number_of(xs):
        raise _core.ValueError(f"{name}: both xs and length are given; only one is allowed, because xs determines the length")
    if xs is None and length is None:
        raise _core.ValueError(f"{name}: neither xs nor length is given. Pass one of them to set the number of steps")

    def recorded(init, xs=None):
        steps = _Steps(kind, init)
        if xs is None:
            steps.loop.times(_count(name, number), reverse)
        else:
            over = _core._Nested(xs)
            steps.loop.over(_tensors(over), reverse)
        results = None
        while steps.loop.next():
            element = steps.loop.element()
            x = (None if no_xs else element[0]) if xs is None else over.rebuilt(element)
            returned = function(steps.state(), x)
            if kind == _FOLD:
                steps.take(returned)
                continue
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise _core.ValueError("scan: the step function must return two values: the next state and the result of the step, which may be None")
            state, y = returned
            nested = None if y is None else _core._Nested(y)
            if results is not None and (nested is None) != (results[0] is None) or results and nested and not nested.nests_like(results[0]):
                raise _core.ValueError("scan: the results of the steps have different nesting; the nesting must not change")
            results = results or (nested,)
            steps.take(state, _tensors(nested) if nested else [])
        if kind == _FOLD:
            return steps.state()
        return steps.state(), results[0].rebuilt(steps.loop.results()) if results[0] else None

    if isinstance(xs, float):
        _count(name, xs)
    no_xs, number = xs is None, length if xs is None else xs
    return _run(recorded, init) if no_xs or _number_of(xs) else _run(recorded, init, xs)


def scan(function, init, xs=None, length=None, reverse=False):
    """Returns the state after all steps, and each step's result, like jax.lax.scan.

    `last, ys = op.scan(f, init, xs)` with `state, y = f(state, x)`: step i gets x = xs[i] and returns ys[i]; with `reverse`, the last step runs
    first.

    A whole number in place of xs is the number of steps; x is then the step index. With only `length`, x is None. State, xs and results
    may be nested. A long loop of elementwise steps records three of them, other loops record each step (docs/language.md).

    Errors    ShapeError or DTypeError if the state changes shape or type, or for xs of different lengths; ValueError for zero or too many steps;
              DTypeError for a number of steps that is not an integer.
    """
    return _over(_SCAN, function, init, xs, length, reverse)


def fold(function, init, xs=None, length=None, reverse=False):
    """Returns the state after all steps of `state = f(state, x)`; see scan. `op.fold(f, init, n)` is jax.lax.fori_loop: x is the index."""
    return _over(_FOLD, function, init, xs, length, reverse)


def iterate(function, init, steps):
    """Returns f(f(… f(init))) with `steps` calls of f. Errors: DTypeError unless `steps` is an integer."""
    _callable("iterate", function=function)
    steps = _count("iterate", steps)

    def recorded(init):
        loop = _Steps(_ITERATE, init)
        loop.loop.times(steps, False)
        while loop.loop.next():
            loop.take(function(loop.state()))
        return loop.state()

    return _run(recorded, init)


def while_loop(cond, body, init, bound=None):
    """Repeats `state = body(state)` while cond(state), at most `bound` times, like jax.lax.while_loop.

    The condition is one bool for all states, or broadcasts to each state. In the second case, each element keeps its state once its condition is
    false. If `bound` ends the loop, cond of the returned state is true.
    """
    _callable("while_loop", cond=cond, body=body)
    if bound is None:
        raise _core.ValueError("while_loop: `bound` is missing, the maximum number of steps")
    bound = _count("while_loop", bound)

    def recorded(init):
        loop = _Steps(_WHILE, init)
        loop.loop.times(bound, False)
        while loop.loop.next():
            state = loop.state()
            loop.loop.condition(_core._as_tensor(cond(state)))
            loop.take(body(state))
        return loop.state()

    return _run(recorded, init)


def vjp(function, *args):
    """Computes f(…) now and its derivative later: `y, pullback = op.vjp(f, x); dx = pullback(dy)`.

    With arrays, the pullback keeps the values that it reads (pullback.stats() lists them). It returns one gradient for one argument, else a
    tuple; None for an integer, bool or number argument. Inside a recorded function everything is one graph.
    """
    if not _core.is_recording() and not any(isinstance(v, _core.Tensor) for a in args for v in _leaves_of(a)):
        compiled = function if isinstance(function, _core.Function) else jit(function)
        return compiled.vjp(*args)
    args = _recorded_arrays(args)
    value = function(*args)
    results, arguments = _core._Nested(value), _core._Nested(args)

    def pullback(cotangent):
        given = _core._Nested(cotangent)
        if not given.nests_like(results):
            raise _core.ValueError("pullback: the nesting of the cotangents must match the nesting of the results")
        gradients = arguments.rebuilt(_core._vjp(_tensors(results), _tensors(given), _tensors(arguments)))
        return gradients[0] if len(args) == 1 else gradients

    return value, pullback


def _leaves_of(value):
    try:
        return _core._Nested(value).leaves
    except TypeError:
        return []


def _apply(record, *args):
    """Runs `record` in the current recording, else compiled for this call."""
    if _core.is_recording() or any(isinstance(v, _core.Tensor) for a in args for v in _leaves_of(a)):
        return record(*args)
    return jit(record)(*(_strong(a) for a in args))


def jvp(function, args, tangents):
    """Returns f(*args) and its forward-mode derivative along `tangents`, which nest like the arguments.

    Both have the types that f(*args) has. f is recorded twice if an argument is a float, the first time to learn these types.
    """
    leaves = _leaves_of(tuple(args))
    floats = [i for i, v in enumerate(leaves) if isinstance(v, float)]

    def recorded(args, tangents, numbers):
        nested = _core._Nested(args)
        xs, dxs, types = _tensors(nested), _tensors(_core._Nested(tangents)), None
        if floats:  # weakly typed values have no derivative
            types = [v.dtype for v in _tensors(_core._Nested(function(*args)))]
            strong = _float_type(types)
            for i, number in zip(floats, numbers):
                xs[i] = _core.cast(number, strong)
                if i < len(dxs):
                    dxs[i] = _core.cast(dxs[i], strong)
        results = _core._Nested(function(*nested.rebuilt(xs)))
        ys = _tensors(results)
        dys = _core._jvp(ys, xs, dxs)
        if types:
            ys, dys = ([_core.cast(v, t) for v, t in zip(vs, types)] for vs in (ys, dys))
        return results.rebuilt(ys), results.rebuilt(dys)

    return _run(recorded, tuple(args), tuple(tangents), [_core.Array(leaves[i], _core.f64) for i in floats])


def hessian_vector(function, x, v):
    """Returns the product of the Hessian of f at x with v. f returns a scalar; v has the shape of x. Costs about two gradients."""

    def recorded(x, v):
        nested, by = _core._Nested(x), _core._Nested(v)
        xs = _tensors(nested)
        loss = _core._as_tensor(function(nested.rebuilt(xs)))
        derivatives = _core._gradients("hessian_vector", loss, xs)
        return nested.rebuilt(_core._vjp(derivatives, _tensors(by), xs))

    return _apply(recorded, x, v)


def jacobian(function, by="fewer"):
    """Returns a function that computes the derivative of each element of f(x) by each element of x.

    The result has the shape of f(x), then the shape of x.
    by   "rows": one cotangent per element of the result; "columns": one tangent per element of x; "fewer": whichever needs fewer
    """

    def recorded(x):
        nested = _core._Nested(x)
        xs = _tensors(nested)
        y = _core._as_tensor(function(nested.rebuilt(xs)))
        return nested.rebuilt([_core._jacobian(y, t, by) for t in xs])

    return lambda x: _apply(recorded, x)


def custom_vjp(function, backward):
    """Returns a function with a user-written derivative.

    `backward(*args, result, cotangent)` returns the gradient by each argument, nested like the arguments (a tuple for several); a literal 0 means
    no gradient. Both functions are recorded like all other functions.
    """

    def recorded(*args):
        value = function(*args)
        arguments, results = _core._Nested(args), _core._Nested(value)

        def rule(xs, ys, dys):
            gradients = backward(*arguments.rebuilt(xs), results.rebuilt(ys), results.rebuilt(dys))
            return _tensors(_core._Nested(gradients))

        return results.rebuilt(_core._set_derivative(_tensors(arguments), _tensors(results), rule))

    return _everywhere(recorded, function)


def checkpoint(function):
    """Returns a function whose intermediates are recomputed by the derivative, not saved. Uses less memory and more time."""

    def recorded(*args, **kwargs):
        first = _core._recorded_nodes()
        results = _core._Nested(function(*args, **kwargs))
        return results.rebuilt(_core._compute_again(first, _tensors(results)))

    return _everywhere(recorded, function)


def _everywhere(record, function):
    """Returns a function that runs `record` inside a recording and its compiled form outside."""
    compiled = jit(record)

    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        return (record if _core.is_recording() else compiled)(*args, **kwargs)

    return call


def check_gradients(function, *args):
    """Checks f's derivatives at these arrays, against differences in f64. Returns (ok, worst error, one sentence)."""
    compiled = function if isinstance(function, _core.Function) else jit(function)
    return compiled.check_gradients(*args)
