"""onepass functions inside torch: onepass computes forward and backward, torch has the graph around them."""
from . import _core


def torch(function, **options):
    """Returns `function` as a differentiable function of torch tensors on the CPU, for modules and losses.

    Tensors are shared, not copied. Other arguments are passed unchanged.
    """
    import torch as torch_module

    compiled = function if isinstance(function, _core.Function) else _core.Function(function, None, **options)

    def to_torch(array):
        return torch_module.from_dlpack(array)

    class OnepassFunction(torch_module.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            plain = [a.detach() if isinstance(a, torch_module.Tensor) else a for a in args]
            if any(ctx.needs_input_grad):
                results, ctx.pullback = compiled.vjp(*plain)
            else:
                results = compiled(*plain)
            return tuple(to_torch(r) for r in results) if isinstance(results, tuple) else to_torch(results)

        @staticmethod
        def backward(ctx, *cotangents):
            gradients = ctx.pullback(*(c.contiguous() for c in cotangents))
            if not isinstance(gradients, tuple):
                gradients = (gradients,)
            return tuple(to_torch(g) if wanted and g is not None else None for g, wanted in zip(gradients, ctx.needs_input_grad))

    return OnepassFunction.apply
