#!/usr/bin/env python3
"""What normalizations behind products cost in accuracy (docs/precision.md), computed with NumPy on the host.

    bench/deferred_norms.py

Rows of a float16 network, 1,024 elements with a mean of some deviations, are normalized and multiplied by a matrix. Root
mean square of the errors against float64, relative to that of the results: with the normalized row rounded to float16 and
multiplied by the matrix, and with the row as it is multiplied by the scaled and centred matrix, rounded once more.
"""
import numpy as np

ROWS, WIDTH, COLUMNS = 128, 1024, 1024


def half(a):
    return a.astype(np.float16).astype(np.float64)


def errors(mean, random):
    x = random.standard_normal((ROWS, WIDTH)) + mean
    scale = 1 + 0.2 * random.standard_normal(WIDTH)
    w = random.standard_normal((WIDTH, COLUMNS)) / np.sqrt(WIDTH)
    exact = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) * scale @ w
    stored, scale, w = half(x), half(scale), half(w)
    apart = half((stored - stored.mean(1, keepdims=True)) / stored.std(1, keepdims=True) * scale) @ w
    folded = scale[:, None] * w
    folded = half(folded - folded.mean(0))
    # Sums of the row before it is rounded, and of its squares, in float32.
    single = x.astype(np.float32)
    average = single.sum(1, keepdims=True) / np.float32(WIDTH)
    squares = (single * single).sum(1, keepdims=True) / np.float32(WIDTH)
    deviation = np.sqrt(np.maximum(squares - average * average, 0)).astype(np.float64)
    deferred = stored @ folded / deviation
    size = np.sqrt((exact**2).mean())
    return [np.sqrt(((got - exact) ** 2).mean()) / size for got in (apart, deferred)]


def main():
    random = np.random.default_rng(0)
    print("mean / deviation     apart  deferred  ratio")
    for mean in (0, 0.3, 1, 3, 10, 30, 100):
        apart, deferred = errors(mean, random)
        print(f"{mean:16g}  {apart:.2e}  {deferred:.2e}  {deferred / apart:5.2f}")


if __name__ == "__main__":
    main()
