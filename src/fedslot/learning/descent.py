"""Training of one perceptron, compiled: its minibatches are so small that interpreting the steps would take longest.

Parameters are one flat vector: layer after layer the weights (outputs, inputs), then the biases, as PyTorch has them.
So are their gradients. What the layers make of a minibatch of b samples lies in a flat workspace likewise, first the
inputs (b, widths[0]), then the outputs of each layer; another workspace has the loss's slopes by all of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 - what np.dot calls; loaded now, `threads` finds and limits it
from numba import types
from numpy.typing import NDArray

from fedslot.compiling import compiled, kept
from fedslot.learning.registers import LANES, REGISTER, Writer, innermost

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

ZERO, ONE = np.float32(0), np.float32(1)


def _dot(outputs: int) -> Callable[..., None]:
    """The innermost loop of `_dot_rows`, for so many outputs at a time."""

    @innermost
    def kernel(typing, out, to, apart, weights, starts, first, inputs, place, step, count):  # type: ignore[no-untyped-def]
        at = types.intp
        signature = types.void(out, at, at, weights, starts, at, inputs, at, at, at)

        def generate(context: Any, build: Any, signature: Any, values: Any) -> Any:
            write = Writer(context, build, signature, values)
            out, to, apart, weights, starts, first, inputs, place, step, count = write.values
            rows = [write.move(weights, build.load(write.move(starts, first, output))) for output in range(outputs)]
            pairs = [(output, lane) for output in range(outputs) for lane in range(0, LANES, REGISTER)]
            sums = write.sums([write.zero for _ in pairs])
            with write.turns(write.count(0), count) as turn:
                feature = write.move(inputs, place, build.mul(turn, step))
                found = {lane: write.load(feature, lane) for lane in range(0, LANES, REGISTER)}
                filled = [write.fill(row, turn) for row in rows]
                for total, (output, lane) in zip(sums, pairs, strict=True):
                    write.add_product(total, filled[output], found[lane])
            for total, (output, lane) in zip(sums, pairs, strict=True):
                write.store(build.load(total), out, to, build.mul(apart, write.count(output)), lane)
            return context.get_dummy_value()

        return signature, generate

    return kernel


_one, _six = _dot(1), _dot(6)


@compiled
def _dot_rows(table: Floats, rows: Integers, factors: Floats, out: Floats) -> None:
    """Products of some rows of a table (., n) with factors (n, m), where m is a multiple of LANES: to out (rows, m)."""
    count, wide = factors.shape
    starts, flat, flat_table, flat_factors = rows * count, out.reshape(-1), table.reshape(-1), factors.reshape(-1)
    for lane in range(0, wide, LANES):
        if len(rows) < 6:
            for row in range(len(rows)):
                _one(flat, row * wide + lane, wide, flat_table, starts, row, flat_factors, lane, wide, count)
            continue
        for some in range(0, len(rows), 6):
            row = min(some, len(rows) - 6)  # the last ones may come twice
            _six(flat, row * wide + lane, wide, flat_table, starts, row, flat_factors, lane, wide, count)


@kept
def descend(
    parameters: Floats,
    widths: Integers,
    x: Floats,
    y: Integers,
    order: Integers,
    cuts: Integers,
    lr: np.float32,
    momentum: np.float32,
) -> None:
    """Train by SGD with momentum, in place.

    widths: (layers + 1,) features, and the outputs of each layer.
    x, y: (n, features) and (n,), the samples.
    order: (epochs, n) samples in the order in which they come.
    cuts: (minibatches + 1,) places where minibatches of an epoch begin and end.
    """
    velocity, gradient = np.zeros(len(parameters), np.float32), np.empty(len(parameters), np.float32)
    made, slopes = _workspaces(widths, cuts)
    for epoch in range(len(order)):
        for part in range(len(cuts) - 1):
            rows = order[epoch, cuts[part] : cuts[part + 1]]
            _take(x, rows, _matrix(made, 0, len(rows), widths[0]))
            _propagate(parameters, gradient, widths, made, slopes, y, rows, False)
            _step(parameters, velocity, gradient, lr, momentum)


@kept
def descend_in_span(
    parameters: Floats,
    widths: Integers,
    x: Floats,
    y: Integers,
    products: Floats,
    order: Integers,
    cuts: Integers,
    lr: np.float32,
    momentum: np.float32,
) -> None:
    """The same, up to rounding, given the inner products (n, n) of the samples, each with a 1 behind it for the bias.

    Gradient steps move the first layer only along samples: W = W0 - lr * sum_j a_j x_j. So what it makes of sample i
    is W0 x_i - lr * sum_j (x_i . x_j) a_j: a step costs products as wide as there are samples, not as
    the samples have features, and the gradient by W costs none at all.
    """
    samples, features = x.shape
    hidden, widths_behind = widths[1], widths[1:]
    weight, bias = _matrix(parameters, 0, hidden, features), parameters[hidden * features : hidden * (features + 1)]
    behind = parameters[hidden * (features + 1) :]
    at_start = np.empty((samples, hidden), np.float32)
    np.dot(x, weight.T, at_start)
    _add_bias(at_start, bias, False)

    velocity, gradient = np.zeros(len(behind), np.float32), np.empty(len(behind), np.float32)
    made, slopes = _workspaces(widths_behind, cuts)
    wide = (hidden + LANES - 1) // LANES * LANES
    moved, speed = np.zeros((samples, wide), np.float32), np.zeros((samples, wide), np.float32)  # a, its velocity
    moves = np.empty((len(made) // widths_behind.sum(), wide), np.float32)
    for epoch in range(len(order)):
        for part in range(len(cuts) - 1):
            rows = order[epoch, cuts[part] : cuts[part + 1]]
            inputs = _matrix(made, 0, len(rows), hidden)
            _dot_rows(products, rows, moved, moves)
            for i in range(len(rows)):
                for j in range(hidden):
                    value = at_start[rows[i], j] - lr * moves[i, j]
                    inputs[i, j] = ZERO if value <= 0 else value
            _propagate(behind, gradient, widths_behind, made, slopes, y, rows, True)
            _step(behind, velocity, gradient, lr, momentum)
            _move(moved, speed, rows, _matrix(slopes, 0, len(rows), hidden), momentum)

    gradient, narrow = np.empty(hidden * (features + 1), np.float32), moved[:, :hidden].copy()
    np.dot(narrow.T, x, _matrix(gradient, 0, hidden, features))
    _sum_rows(narrow, gradient[hidden * features :])
    for place in range(len(gradient)):
        parameters[place] -= lr * gradient[place]


@compiled
def _propagate(
    parameters: Floats,
    gradient: Floats,
    widths: Integers,
    made: Floats,
    slopes: Floats,
    y: Integers,
    rows: Integers,
    to_inputs: bool,
) -> None:
    """Forward and backward pass of a minibatch: from its inputs, in `made`, to the gradient of its mean loss.

    to_inputs: whether the inputs come out of a ReLU, and the slopes before it are wanted.
    """
    size, layers = len(rows), len(widths) - 1
    first, place = 0, 0  # of the layer's parameters, and of its inputs
    for layer in range(layers):
        n, m = widths[layer], widths[layer + 1]
        outputs = _matrix(made, place + size * n, size, m)
        np.dot(_matrix(made, place, size, n), _matrix(parameters, first, m, n).T, outputs)
        _add_bias(outputs, parameters[first + m * n : first + m * (n + 1)], layer < layers - 1)
        first, place = first + m * (n + 1), place + size * n
    _slope_of_loss(_matrix(made, place, size, widths[layers]), y, rows, _matrix(slopes, place, size, widths[layers]))
    for layer in range(layers - 1, -1, -1):
        n, m = widths[layer], widths[layer + 1]
        first, place = first - m * (n + 1), place - size * n
        inputs, slope = _matrix(made, place, size, n), _matrix(slopes, place + size * n, size, m)
        np.dot(slope.T, inputs, _matrix(gradient, first, m, n))
        _sum_rows(slope, gradient[first + m * n : first + m * (n + 1)])
        if layer > 0 or to_inputs:
            before = _matrix(slopes, place, size, n)
            np.dot(slope, _matrix(parameters, first, m, n), before)
            for i in range(size):
                for j in range(n):
                    before[i, j] *= ZERO if inputs[i, j] <= 0 else ONE


@compiled
def _slope_of_loss(scores: Floats, y: Integers, rows: Integers, slope: Floats) -> None:
    """The mean cross-entropy's slope by the scores: softmax - one-hot, by the size of the minibatch."""
    size, classes = scores.shape
    share = ONE / np.float32(size)
    for i in range(size):
        top, total = scores[i, 0], ZERO
        for j in range(1, classes):
            top = max(top, scores[i, j])
        for j in range(classes):
            slope[i, j] = np.exp(scores[i, j] - top)
            total += slope[i, j]
        for j in range(classes):
            slope[i, j] *= share / total
        slope[i, y[rows[i]]] -= share


@compiled
def _step(parameters: Floats, velocity: Floats, gradient: Floats, lr: np.float32, momentum: np.float32) -> None:
    for place in range(len(parameters)):
        velocity[place] = momentum * velocity[place] + gradient[place]
        parameters[place] -= lr * velocity[place]


@compiled
def _move(moved: Floats, speed: Floats, rows: Integers, slope: Floats, momentum: np.float32) -> None:
    """The same for samples (n, hidden), of which some rows have slopes and the others none."""
    hidden = slope.shape[1]
    for i in range(len(moved)):
        for j in range(hidden):
            speed[i, j] *= momentum
            moved[i, j] += speed[i, j]
    for i in range(len(rows)):
        for j in range(hidden):
            speed[rows[i], j] += slope[i, j]
            moved[rows[i], j] += slope[i, j]


@compiled
def _workspaces(widths: Integers, cuts: Integers) -> tuple[Floats, Floats]:
    """Room for the inputs and outputs of the largest minibatch, and for their slopes."""
    size, width = 0, 0
    for part in range(len(cuts) - 1):
        size = max(size, cuts[part + 1] - cuts[part])
    for each in widths:
        width += each
    return np.empty(size * width, np.float32), np.empty(size * width, np.float32)


@compiled
def _matrix(flat: Floats, first: int, rows: int, columns: int) -> Floats:
    """A part of a flat array as a matrix."""
    return flat[first : first + rows * columns].reshape(rows, columns)


@compiled
def _take(table: Floats, rows: Integers, out: Floats) -> None:
    for i in range(len(rows)):
        for j in range(table.shape[1]):
            out[i, j] = table[rows[i], j]


@compiled
def _add_bias(outputs: Floats, bias: Floats, relu: bool) -> None:
    for i in range(outputs.shape[0]):
        for j in range(outputs.shape[1]):
            value = outputs[i, j] + bias[j]
            outputs[i, j] = ZERO if relu and value <= 0 else value


@compiled
def _sum_rows(rows: Floats, out: Floats) -> None:
    for j in range(len(out)):
        out[j] = ZERO
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[j] += rows[i, j]
