"""A book of call options by Black and Scholes, with its Greeks: onepass derives them from the price, the NumPy form has them by hand."""
import math

import numpy as np
import onepass as op

from common import bipolar, main, tiled

RATE, STRIKE, VOLATILITY = 0.02, 100.0, 0.25


def price(spot, years, volatility):
    deviation = volatility * op.sqrt(years)
    d1 = (op.log(spot / STRIKE) + RATE * years) / deviation + 0.5 * deviation
    cdf = lambda x: 0.5 * (1 + op.erf(x * math.sqrt(0.5)))
    return spot * cdf(d1) - STRIKE * op.exp(-RATE * years) * cdf(d1 - deviation)


@op.jit
def with_onepass(spot, years, volatility):
    def first_order(spot, years, volatility):
        value, (delta, decay, vega) = op.value_and_grad(lambda *v: op.sum(price(*v)), argnums=(0, 1, 2))(spot, years, volatility)
        return op.sum(delta), (delta, -decay, vega)

    (_, (delta, theta, vega)), gamma = op.value_and_grad(first_order, has_aux=True)(spot, years, volatility)
    return price(spot, years, volatility), delta, gamma, vega, theta


def erf(x):
    """Computes erf, which NumPy lacks: Abramowitz and Stegun, 7.1.26, accurate to 1.5e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.copysign(1 - series * np.exp(-x * x), x)


def with_numpy(spot, years, volatility):
    root = np.sqrt(years)
    deviation = volatility * root
    d1 = (np.log(spot / STRIKE) + RATE * years) / deviation + 0.5 * deviation
    cdf = lambda x: 0.5 * (1 + erf(x * math.sqrt(0.5)))
    delta, discounted = cdf(d1), STRIKE * np.exp(-RATE * years) * cdf(d1 - deviation)
    density = np.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
    vega = spot * density * root
    theta = -spot * density * volatility / (2 * root) - RATE * discounted
    return spot * delta - discounted, delta, density / (spot * deviation), vega, theta


def picture(*results):
    """Draws price, delta, gamma, vega and theta side by side: spot price to the right, time to expiry down."""
    return tiled(np.stack([bipolar(r.reshape(512, 512)[::2, ::2]) for r in results]), across=5)


if __name__ == "__main__":
    years, spot = (v.reshape(-1) for v in np.meshgrid(np.linspace(0.02, 1, 512), np.linspace(60, 140, 512), indexing="ij"))
    main((spot, years, np.full_like(spot, VOLATILITY)), with_onepass, with_numpy, tolerance=2e-6, picture=picture)
